"""Turns: two programs of 12 GiB that rewrite all their bytes, on a GPU treated as one of 16 GiB.

Native, one after the other, against both together under rota, which chooses how long turns are unless --turn says it.
PASS if the GPU phase of both together is at most 1.12 times the native sum, every result is the native one, bit for bit,
and no more memory moved than had to.
"""

import argparse

import harness
from harness import GIB, timeline

RATIO_MAX = 1.12
SEEDS = {"A": 11, "B": 22}
SAME = ("steps", "bytes", "sum", "xor", "placed")

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--gib", type=float, default=12.0)
parser.add_argument("--tensor-mib", type=int, default=1024)
parser.add_argument("--inner", type=int, default=40)
parser.add_argument(
    "--seconds-alone", type=float, default=40.0, help="about how long one program's GPU phase takes alone"
)
parser.add_argument("--capacity", default="16GiB")
parser.add_argument("--arena", default="32GiB")
parser.add_argument("--turn", help="all turns are this long, as in 5s")
parser.add_argument("--jitter", type=float, default=0.0)
given = parser.parse_args()


def options(run, name, steps):
    return [
        "--gib",
        given.gib,
        "--tensor-mib",
        given.tensor_mib,
        "--inner",
        given.inner,
        "--seed",
        SEEDS.get(name, 1),
        "--steps",
        steps,
    ]


def body(run):
    warm = run.program("warm-up", "rewrite.py", *options(run, "", 10)).result(150)
    step_s = warm["gpu_phase_s"] / warm["steps"]
    steps = max(1, round(given.seconds_alone / step_s))
    run.say(f"   a step takes {step_s * 1e3:.1f} ms alone; {steps} steps each")
    limit_s = given.seconds_alone * 1.5 + 90

    # The daemon pins its arena only after the native runs: pinning holds the driver's lock.
    native = {
        name: run.program(f"native-{name}", "rewrite.py", *options(run, name, steps)).result(limit_s) for name in SEEDS
    }
    alone_s = sum(r["gpu_phase_s"] for r in native.values())
    run.say(
        "   native, one after the other: "
        + ", ".join(f"{n} {r['gpu_phase_s']:.2f} s" for n, r in native.items())
        + f", sum {alone_s:.2f} s"
    )

    daemon = run.daemon("turns", capacity=given.capacity, arena=given.arena, turn=given.turn, jitter=given.jitter)
    daemon.wait_arena()
    start = run.work / "start"
    programs = {}
    for name in SEEDS:
        ready = run.work / f"ready-{name}"
        programs[name] = (
            run.program(
                name,
                "rewrite.py",
                *options(run, name, steps),
                "--ready-file",
                ready,
                "--start-file",
                start,
                under=daemon,
            ),
            ready,
        )
    for program, ready in programs.values():
        program.wait_file(ready, 120)
    harness.touch(start)
    found = {name: program.result(2 * limit_s) for name, (program, _) in programs.items()}
    daemon.events.read()

    began = min(r["began_ns"] for r in found.values())
    ended = max(r["ended_ns"] for r in found.values())
    together_s = (ended - began) / 1e9
    ratio = together_s / alone_s
    names = {program.pid: name for name, (program, _) in programs.items()}
    timeline.show(run, daemon.events, names, began, ended)

    rows = [
        ["native, one after the other", *(native[n]["gpu_phase_s"] for n in SEEDS), alone_s, 1.0],
        ["rota, together", *(found[n]["gpu_phase_s"] for n in SEEDS), together_s, ratio],
    ]
    print(harness.table(rows, ["GPU phase, s", *SEEDS, "both", "ratio"]), flush=True)
    for name in SEEDS:
        same = all(native[name][k] == found[name][k] for k in SAME)
        run.check(
            f"{name}: result is the native one",
            same,
            f"sum {found[name]['sum']} xor {found[name]['xor']} placed {found[name]['placed']}"
            + ("" if same else f", native {[native[name][k] for k in SAME]}"),
        )
    moves = len(daemon.events.of("move_end"))
    run.check("memory moved", moves >= 3, f"{moves} moves")
    switches = [e for e in daemon.events.of("move_end") if e["bytes_out"] and e["bytes_in"]]
    largest = max((max(e["bytes_out"], e["bytes_in"]) for e in switches), default=0) / GIB
    whole = sum(given.gib * 2 for _ in switches)
    moved = sum(e["bytes_out"] + e["bytes_in"] for e in switches) / GIB
    run.check(
        "no more moved than had to",
        switches and largest < given.gib,
        f"{moved:.0f} GiB in {len(switches)} switches, at most {largest:.2f} GiB each way; all of both would be {whole:.0f} GiB",
    )
    run.check(f"together / native sum at most {RATIO_MAX}", ratio <= RATIO_MAX, f"{ratio:.4f}")
    daemon.check_no_errors()


if __name__ == "__main__":
    harness.main("turns", 540, body)
