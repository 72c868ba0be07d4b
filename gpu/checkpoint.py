"""Checkpoint: the driver's own way to take a program's memory off the GPU and back, against rota's.

The same program with the same 12 GiB, natively under cuCheckpointProcess*, then under rota, where another program comes that
needs all of its memory and ends again. PASS if the driver takes at least 15 times as long, out and in, and every word is right.
"""

import argparse

import harness
from harness import GIB, crowd
from harness.waiting import until

TIMES_MIN = 15.0

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--gib", type=float, default=12.0)
parser.add_argument("--times", type=int, default=3, help="how often the driver does it; the fastest counts")
parser.add_argument("--turn", default="2s")
parser.add_argument("--arena", default="32GiB")
parser.add_argument("--step-s", type=float, default=0.04)


def by_driver(run, given, turns, shape):
    """What each of its steps took, each time."""
    checkpoint = run.build("checkpoint.cu", "-arch=native")
    program = crowd.Turner(run, "native", turns, shape, 1)
    program.wait_ready()
    until("its first steps", 30, lambda: program.program.must_live() and len(program.step_times()) >= 3, 0.05)
    found = run.command("checkpoint", [checkpoint, str(program.pid), str(given.times)]).result(40 * given.times)["times"]
    done = len(program.step_times())
    until("steps after it", 30, lambda: program.program.must_live() and len(program.step_times()) > done + 2, 0.05)
    program.stop()
    crowd.check_right(run, "the program under the driver's checkpoint", program.result(60))
    return found


def body(run, given):
    turns = run.build("turns.cu", "-arch=native")
    shape = crowd.calibrated(run, turns, given.gib, 1024, given.step_s)
    driver = by_driver(run, given, turns, shape)
    there = crowd.driven_out(run, "rota", turns, shape, 1, given.turn, given.arena)
    # Where a piece of it could stay, as if that had gone as fast as the rest.
    whole = shape.gib * GIB
    out, into = (
        move.seconds * whole / size for move, size in ((there.out, there.out.bytes_out), (there.back, there.back.bytes_in))
    )
    rows = [[f"driver, {n + 1}", t["lock_s"], t["out_s"], t["in_s"], t["unlock_s"], t["out_s"] + t["in_s"]] for n, t in enumerate(driver)]
    rows.append(["rota", None, out, into, None, out + into])
    print(harness.table(rows, [f"{shape.gib:g} GiB, s", "lock", "out", "in", "unlock", "out and in"]), flush=True)
    run.fact(f"rota moved {there.out.bytes_out / GIB:.2f} GiB out and {there.back.bytes_in / GIB:.2f} GiB in")
    best = min(row[5] for row in rows[:-1])
    times = best / (out + into)
    run.check(f"the driver takes at least {TIMES_MIN:g} times as long", times >= TIMES_MIN, f"{best:.2f} s / {out + into:.3f} s = {times:.1f}")


if __name__ == "__main__":
    chosen = parser.parse_args()
    harness.main("checkpoint", 280, lambda run: body(run, chosen))
