"""A kernel of ten seconds, taken off the GPU in its middle again and again.

`programs/long_kernel.py` is a single launch over 2 GiB; a second tenant forces it away. PASS if the kernel was frozen and
moved in its middle, ended, and left exactly the bytes that it leaves natively.
"""

import argparse

import harness

RESERVE_GIB = 0.6
CONTEXT_GIB = 0.55
TRIAL_PASSES = 400
FREEZES_MIN = 3

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--gib", type=float, default=2.0)
parser.add_argument("--kernel-s", type=float, default=11.5, help="about how long the kernel takes alone")
parser.add_argument("--turn", default="500ms")
parser.add_argument("--jitter", type=float, default=0.3)
parser.add_argument("--arena", default="6GiB")
given = parser.parse_args()


def body(run):
    trial = run.program("trial", "long_kernel.py", "--gib", given.gib, "--passes", TRIAL_PASSES).result(120)
    passes = max(1, round(given.kernel_s / (trial["kernel_s"] / TRIAL_PASSES)))
    native = run.program("native", "long_kernel.py", "--gib", given.gib, "--passes", passes).result(120)
    run.say(f"   native: one kernel of {native['kernel_s']:.2f} s, {passes} passes over {given.gib:g} GiB")

    capacity_mib = int((RESERVE_GIB + 2 * CONTEXT_GIB + 1.4 * given.gib) * 1024)
    daemon = run.daemon("long", capacity=f"{capacity_mib}MiB", arena=given.arena, turn=given.turn, jitter=given.jitter)
    daemon.wait_arena()
    start, stop = run.work / "start", run.work / "stop"
    ready = {name: run.work / f"ready-{name}" for name in ("kernel", "other")}
    kernel = run.program(
        "kernel",
        "long_kernel.py",
        "--gib",
        given.gib,
        "--passes",
        passes,
        "--ready-file",
        ready["kernel"],
        "--start-file",
        start,
        under=daemon,
    )
    other = run.program(
        "other",
        "rewrite.py",
        "--gib",
        given.gib,
        "--tensor-mib",
        512,
        "--seed",
        5,
        "--ready-file",
        ready["other"],
        "--start-file",
        start,
        "--stop-file",
        stop,
        under=daemon,
    )
    kernel.wait_file(ready["kernel"], 120)
    other.wait_file(ready["other"], 120)
    harness.touch(start)
    found = kernel.result(given.kernel_s * 4 + 60)
    other.must_live()
    harness.touch(stop)
    beside = other.result(60)
    daemon.events.read()

    def during(kind):
        events = daemon.events
        return [
            (events.at_ns(e) - found["launched_ns"]) / 1e9
            for e in events.of(kind, kernel.pid)
            if found["launched_ns"] < events.at_ns(e) < found["ended_ns"]
        ]

    freezes, away, thaws = during("freeze"), during("away"), during("thaw")
    least = min(
        (
            e["away_bytes"]
            for e in daemon.events.of("away", kernel.pid)
            if found["launched_ns"] < daemon.events.at_ns(e) < found["ended_ns"]
        ),
        default=0,
    )
    run.say("   frozen at (s after its launch): " + ", ".join(f"{t:.2f}" for t in freezes))
    run.say("   its memory out at:              " + ", ".join(f"{t:.2f}" for t in away))
    run.say("   thawed at:                      " + ", ".join(f"{t:.2f}" for t in thaws))
    print(
        harness.table(
            [
                ["native", native["kernel_s"], 0, 0, native["sha256"][:16]],
                ["rota", found["kernel_s"], len(freezes), len(away), found["sha256"][:16]],
            ],
            ["kernel", "seconds", "freezes", "times away", "sha256"],
        ),
        flush=True,
    )
    run.say(f"   the other tenant did {beside['steps']} steps meanwhile")
    run.check(f"frozen in its middle, at least {FREEZES_MIN} times", len(freezes) >= FREEZES_MIN, str(len(freezes)))
    # Only as much goes as the other needs: most of it, at these sizes.
    run.check(
        f"most of the memory it works on away in its middle, at least {FREEZES_MIN} times",
        len(away) >= FREEZES_MIN and least >= given.gib * harness.GIB / 2,
        f"{len(away)}, {least / harness.GIB:.2f} of {given.gib:g} GiB or more each time",
    )
    run.check(
        "the kernel's result is the native one",
        found["sha256"] == native["sha256"] and found["passes"] == native["passes"],
        found["sha256"][:16],
    )
    daemon.check_no_errors()
    daemon.stop()
    expected = (
        run.program(
            "native-other",
            "rewrite.py",
            "--gib",
            given.gib,
            "--tensor-mib",
            512,
            "--seed",
            5,
            "--steps",
            beside["steps"],
        ).result(120)
        if beside["steps"]
        else beside
    )
    run.check(
        "the other tenant's result is the native one",
        all(expected[k] == beside[k] for k in ("sum", "xor", "placed")) and beside["steps"] > 0,
        f"{beside['steps']} steps",
    )


if __name__ == "__main__":
    harness.main("long_kernel", 300, body)
