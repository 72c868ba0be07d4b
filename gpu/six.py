"""Six: six programs of 8 GiB, three of which fit at a time: what is moved, against the least that had to be.

`rota sim optimum` computes the least from the daemon's own timeline: what somebody would have moved who knew all turns
beforehand, with the same turns in the same order. PASS if at most 1.1 of that was moved, every word is right, and used memory
stayed under the size that the GPU is treated as, by NVML.
"""

import argparse
import json
import subprocess

import harness
from harness import GIB, MIB, Failed, MemorySampler, crowd, timeline

MOST = 1.1
PROGRAMS = 6
OPTIMUM_WITHIN_S = 120
TURNS_MIN = 12
"""Turns in the time that is judged, of all together: fewer say nothing."""

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--gib", type=float, default=8.0)
parser.add_argument("--capacity", default="28GiB")
parser.add_argument("--arena", default="32GiB")
parser.add_argument("--seconds", type=float, default=12.0, help="of work of each program, natively")
parser.add_argument("--turn", default="1500ms", help="all turns are this long; own: as rota chooses")
parser.add_argument("--step-s", type=float, default=0.04)


def judged(run, daemon, room, began_ns):
    """What the optimum says of the time in which all six are there and have been moved once."""
    events = daemon.events
    first_away = {}
    for event in events.of("away"):
        first_away.setdefault(event.get("pid"), event["t_ns"])
    if len(first_away) < PROGRAMS:
        raise Failed(f"only {len(first_away)} of {PROGRAMS} programs were ever moved")
    start = next(event["t_ns"] for event in timeline.in_order(events) if events.at_ns(event) >= began_ns)
    left = min(event["t_ns"] for event in events.of("left"))
    begin, end = max(start, *first_away.values()), left - 1
    argv = [run.bundled("rota"), "sim", "optimum", "--events", events.path, "--room", f"{room // MIB}MiB"]
    argv = [str(word) for word in (*argv, "--from-ns", begin, "--to-ns", end, "-o", "json")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=OPTIMUM_WITHIN_S, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise Failed(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr.strip()}")
    turns = [event for event in events.of("turn_begin") if begin <= event["t_ns"] <= end]
    return json.loads(done.stdout), len(turns), (end - begin) / 1e9


def body(run, given):
    turns = run.build("turns.cu", "-arch=native")
    shape = crowd.calibrated(run, turns, given.gib, 1024, given.step_s)
    memory = MemorySampler()
    turn = None if given.turn == "own" else given.turn
    daemon = run.daemon("six", capacity=given.capacity, arena=given.arena, turn=turn)
    daemon.wait_arena(120)
    start = run.work / "start"
    seeds = {name: n + 1 for n, name in enumerate("ABCDEF"[:PROGRAMS])}
    steps = dict.fromkeys(seeds, max(1, round(given.seconds / shape.step_s)))
    programs = crowd.gathered(run, daemon, turns, shape, seeds, steps, start)
    room = daemon.room_bytes()
    fit = int(room // (shape.gib * GIB))
    run.fact(f"room for programs' memory: {room / GIB:.2f} GiB, so {fit} of {PROGRAMS} fit at a time")
    harness.touch(start)
    found = {name: program.result(given.seconds * PROGRAMS * 1.5 + 60) for name, program in programs.items()}
    daemon.events.read()
    began, ended = min(r["began_ns"] for r in found.values()), max(r["ended_ns"] for r in found.values())
    names = {program.pid: name for name, program in programs.items()}
    timeline.show(run, daemon.events, names, began, ended, rows_shown=24)
    for name, result in found.items():
        crowd.check_right(run, name, result)
    run.check("three of them fit at a time", fit == 3, f"{fit}")
    memory.stop()
    memory.check_under(run, given.capacity, began_ns=began)
    least, turns_seen, seconds = judged(run, daemon, room, began)
    row = [least["moved_bytes"] / GIB, least["least_bytes"] / GIB, "yes" if least["exact"] else "a bound", turns_seen, seconds]
    print(harness.table([row], ["moved GiB", "least GiB", "exact", "turns", "in s"]), flush=True)
    run.check(f"at least {TURNS_MIN} turns are judged", turns_seen >= TURNS_MIN, f"{turns_seen}")
    ratio = least["ratio"]
    run.check(f"moved / least at most {MOST}", ratio is not None and ratio <= MOST, "nothing had to move" if ratio is None else f"{ratio:.3f}")
    daemon.check_no_errors()


if __name__ == "__main__":
    chosen = parser.parse_args()
    harness.main("six", 340, lambda run: body(run, chosen))
