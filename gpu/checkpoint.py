"""Checkpoint: the driver's own way to take a program's memory off the GPU and back, against rota's.

The same program with the same 12 GiB: natively under cuCheckpointProcess*, then under rota, where another program comes that needs
all of its memory, takes turns with it and ends, then natively once more. PASS if the driver takes at least 15 times as long, out and
in, and every word is right. What the driver takes changes within minutes: the fastest time counts.
"""

import argparse

import harness
from harness import GIB, crowd
from harness.waiting import until

TIMES_MIN = 15.0

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--gib", type=float, default=12.0)
parser.add_argument("--times", type=int, default=3, help="how often the driver does it before and after; the fastest counts")
parser.add_argument("--turn", default="2s")
parser.add_argument("--arena", default="32GiB")
parser.add_argument("--step-s", type=float, default=0.04)


def by_driver(run, given, when, turns, shape):
    """What each of its steps took, each time."""
    checkpoint = run.build("checkpoint.cu", "-arch=native")
    program = crowd.Turner(run, f"native-{when}", turns, shape, 1)
    program.wait_ready()
    until("its first steps", 30, lambda: program.program.must_live() and len(program.step_times()) >= 3, 0.05)
    found = run.command(f"checkpoint-{when}", [checkpoint, str(program.pid), str(given.times)]).result(40 * given.times)["times"]
    done = len(program.step_times())
    until("steps after it", 30, lambda: program.program.must_live() and len(program.step_times()) > done + 2, 0.05)
    program.stop()
    crowd.check_right(run, f"the program under the driver's checkpoint, {when}", program.result(60))
    return found


def body(run, given):
    turns = run.build("turns.cu", "-arch=native")
    shape = crowd.calibrated(run, turns, given.gib, 1024, given.step_s)
    driver = [("before", t) for t in by_driver(run, given, "before", turns, shape)]
    there = crowd.driven_out(run, "rota", turns, shape, 1, given.turn, given.arena)
    driver += [("after", t) for t in by_driver(run, given, "after", turns, shape)]

    def whole(seconds, size):
        """Where a piece of it could stay, as if that had gone as fast as the rest."""
        return seconds * shape.gib * GIB / size

    out, into = whole(there.out.seconds, there.out.bytes_out), whole(there.back.seconds, there.back.bytes_in)
    swap = there.swaps[0]
    both = whole(swap.seconds, min(swap.bytes_out, swap.bytes_in))
    rows = [[f"driver, {when}", t["lock_s"], t["out_s"], t["in_s"], t["unlock_s"], t["out_s"] + t["in_s"]] for when, t in driver]
    best = min(row[5] for row in rows)
    rows.append(["rota, one after the other", None, out, into, None, out + into])
    rows.append(["rota, while another comes or goes", None, None, None, None, both])
    print(harness.table(rows, [f"{shape.gib:g} GiB, s", "lock", "out", "in", "unlock", "out and in"]), flush=True)
    run.fact(f"rota moved {there.out.bytes_out / GIB:.2f} GiB out and {there.back.bytes_in / GIB:.2f} GiB in, {swap.bytes_out / GIB:.2f} and {swap.bytes_in / GIB:.2f} GiB at once")
    for what, seconds in (("one after the other", out + into), ("one program out and another in", both)):
        times = best / seconds
        run.check(f"the driver takes at least {TIMES_MIN:g} times as long, {what}", times >= TIMES_MIN, f"{best:.2f} s / {seconds:.3f} s = {times:.1f}")


if __name__ == "__main__":
    chosen = parser.parse_args()
    harness.main("checkpoint", 280, lambda run: body(run, chosen))
