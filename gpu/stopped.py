"""Stopped: a program that its user stops (Ctrl-Z) in each phase and lets go on later.

Two programs that don't fit together. A stopped one cannot answer, so its memory cannot move; PASS if the other one goes
on all the while, and both end with the native result after it was let go.
"""

import argparse
import os
import signal
import struct
import time

import harness
from harness import Failed

SAME = ("steps", "bytes", "sum", "xor", "placed")
SEEDS = {"A": 3, "B": 4}

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--gib", type=float, default=4.5)
parser.add_argument("--tensor-mib", type=int, default=512)
parser.add_argument("--seconds-alone", type=float, default=20.0, help="about how long one program's GPU phase takes alone")
parser.add_argument("--capacity", default="8GiB")
parser.add_argument("--arena", default="16GiB")
parser.add_argument("--turn", default="500ms")
parser.add_argument("--stopped-s", type=float, default=6.0, help="how long a program is stopped")
parser.add_argument("--phases", default="turn_begin,freeze,moving_out,away,moving_in")
given = parser.parse_args()


def options(name, steps):
    return ["--gib", given.gib, "--tensor-mib", given.tensor_mib, "--seed", SEEDS[name], "--steps", steps]


def steps_done(path):
    try:
        return struct.unpack("<Q", path.read_bytes())[0]
    except (OSError, struct.error):
        return 0


def body(run):
    warm = run.program("warm-up", "rewrite.py", *options("A", 20)).result(150)
    steps = max(1, round(given.seconds_alone / (warm["gpu_phase_s"] / warm["steps"])))
    native = {name: run.program(f"native-{name}", "rewrite.py", *options(name, steps)).result(150) for name in SEEDS}

    daemon = run.daemon("stopped", capacity=given.capacity, arena=given.arena, turn=given.turn)
    daemon.wait_arena()
    start = run.work / "start"
    progress = {name: run.work / f"progress-{name}" for name in SEEDS}
    programs = {}
    for name in SEEDS:
        ready = run.work / f"ready-{name}"
        files = ["--ready-file", ready, "--start-file", start, "--progress-file", progress[name]]
        programs[name] = run.program(name, "rewrite.py", *options(name, steps), *files, under=daemon)
    for name, program in programs.items():
        program.wait_file(run.work / f"ready-{name}", 120)
    harness.touch(start)

    rows = []
    for phase in given.phases.split(","):
        daemon.events.wait(phase, programs["A"].pid, daemon.events.mark(), 30)
        os.kill(programs["A"].pid, signal.SIGSTOP)
        time.sleep(given.stopped_s / 2)
        before = steps_done(progress["B"])
        time.sleep(given.stopped_s / 2)
        while_stopped = steps_done(progress["B"]) - before
        os.kill(programs["A"].pid, signal.SIGCONT)
        before = steps_done(progress["A"])
        began = time.monotonic()
        while steps_done(progress["A"]) == before and time.monotonic() - began < 30:
            programs["A"].must_live()
            time.sleep(0.005)
        again_s = time.monotonic() - began
        rows.append([phase, while_stopped, f"{again_s:.2f}"])
        run.check(f"{phase}: the other goes on while it is stopped", while_stopped > 0, f"{while_stopped} steps")
        run.check(f"{phase}: it goes on afterwards", again_s < 30, f"first step after {again_s:.2f} s")
        if not daemon.alive():
            raise Failed(f"rotad ended: {daemon.log_tail()}")
    found = {name: program.result(180) for name, program in programs.items()}
    print(harness.table(rows, ["stopped at", "other's steps meanwhile", "its next step after, s"]), flush=True)
    for name in SEEDS:
        same = all(native[name][key] == found[name][key] for key in SAME)
        run.check(f"{name}: result is the native one", same, f"sum {found[name]['sum']} xor {found[name]['xor']}")
    errors = [e for e in daemon.events.of("error") if e.get("pid") not in (programs["A"].pid, None)]
    run.check("no error event about the other", not errors, "; ".join(e.get("what", "") for e in errors[:3]))


if __name__ == "__main__":
    harness.main("stopped", 240, body)
