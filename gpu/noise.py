"""Freeze and thaw under noise: how long they take while other processes keep the driver's locks busy.

Two small busy tenants, both resident, take turns of 20 ms; every freeze and thaw of the daemon is measured, some seconds
for each kind of noise. The known figures beside them are of one freeze at a time, of a compute group alone.
"""

import argparse
import subprocess
import time

import harness
from harness import Failed

KNOWN_US = {
    "quiet": "617/721/731",
    "contexts": "827/26441/27011",
    "vmm": "684/838/1055",
    "pinning": "15642/17862/17862",
    "nvidia-smi": "588/1688/1946",
}
SAMPLES_MIN = 50

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--seconds", type=float, default=8.0, help="of measuring, for each kind")
parser.add_argument("--kinds", default="quiet,contexts,vmm,pinning,nvidia-smi")
parser.add_argument("--gib", type=float, default=0.5)
parser.add_argument("--turn", default="20ms")
given = parser.parse_args()


def start_noise(run, binary, kind, seconds):
    """The processes that make the noise."""
    if kind == "quiet":
        return []
    out = open(run.logs / f"noise-{kind}.txt", "wb")
    if kind == "nvidia-smi":
        loop = f"end=$((SECONDS+{int(seconds)})); n=0; while [ $SECONDS -lt $end ]; do timeout 10 nvidia-smi -q >/dev/null || exit 1; n=$((n+1)); done; echo $n"
        return [harness.spawn(["bash", "-c", loop], stdout=out, stderr=subprocess.STDOUT)]
    return [
        harness.spawn([binary, kind, f"{seconds:g}"], stdout=out, stderr=subprocess.STDOUT)
        for _ in range(2 if kind == "contexts" else 1)
    ]


def body(run):
    binary = run.build("noise.c")
    daemon = run.daemon("noise", capacity="32GiB", arena="1GiB", turn=given.turn)
    daemon.wait_arena()
    start, stop = run.work / "start", run.work / "stop"
    programs = []
    for number, name in enumerate(("A", "B")):
        ready = run.work / f"ready-{name}"
        programs.append(
            (
                run.program(
                    name,
                    "rewrite.py",
                    "--gib",
                    given.gib,
                    "--tensor-mib",
                    128,
                    "--seed",
                    number + 1,
                    "--ready-file",
                    ready,
                    "--start-file",
                    start,
                    "--stop-file",
                    stop,
                    under=daemon,
                ),
                ready,
            )
        )
    for program, ready in programs:
        program.wait_file(ready, 120)
    harness.touch(start)
    time.sleep(1.0)

    rows = []
    for kind in given.kinds.split(","):
        noise = start_noise(run, binary, kind, given.seconds + 2.0)
        time.sleep(1.0)
        began = harness.now_ns()
        time.sleep(given.seconds)
        ended = harness.now_ns()
        alive = all(n.poll() is None for n in noise)
        for process in noise:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                harness.end_group(process)
        right = alive and all(n.returncode == 0 for n in noise)
        time.sleep(0.1)
        row = [kind]
        counts = []
        for what in ("freeze", "thaw"):
            took = [e["took_ns"] / 1e3 for e in daemon.events.of(what) if began <= daemon.events.at_ns(e) <= ended]
            counts.append(len(took))
            row += [len(took)] + [
                None if not took else f"{harness.percentile(took, share):.0f}" for share in (0.5, 0.99, 1.0)
            ]
        rows.append(row + [KNOWN_US.get(kind)])
        run.check(
            f"{kind}: at least {SAMPLES_MIN} freezes and thaws measured, the noise went on",
            min(counts) >= SAMPLES_MIN and right,
            f"{counts}" + ("" if right else ", the noise ended early: see noise-*.txt"),
        )
        for program, _ in programs:
            program.must_live()
        if not daemon.alive():
            raise Failed(f"rotad ended: {daemon.log_tail()}")
    harness.touch(stop)
    for program, _ in programs:
        result = program.result(60)
        run.say(f"   {program.label}: {result['steps']} steps")
    print(
        harness.table(
            rows, ["noise", "freezes", "p50 us", "p99", "max", "thaws", "p50 us", "p99", "max", "known p50/p99/max"]
        ),
        flush=True,
    )
    channels = {e.get("channels") for e in daemon.events.of("freeze")}
    run.fact(f"channels in one freeze: {sorted(c for c in channels if c is not None)}")
    daemon.check_no_errors()


if __name__ == "__main__":
    harness.main("noise", 240, body)
