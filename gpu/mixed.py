"""Mixed work: cuBLAS, cuDNN, pinned copies on several streams, CUDA graphs and torch.compile, taken off and put back at random.

Two copies of `programs/mixed.py` that don't fit together take turns of 100 ms, stretched and shrunk at random, until each
has had 200. PASS if every round of both gave the bytes that the program gives natively, with no Xid and no error.
"""

import argparse
import time

import harness
from harness import GIB, MIB, Failed

SEEDS = {"A": 1, "B": 2}
RESERVE_GIB = 0.6
CONTEXT_GIB = 0.55

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--turns", type=int, default=200, help="turns that each program must have had")
parser.add_argument("--turn", default="100ms")
parser.add_argument("--jitter", type=float, default=0.9)
parser.add_argument("--arena", default="12GiB")
parser.add_argument("--share", type=float, default=1.4, help="how many programs' memory fits")
parser.add_argument("--limit-s", type=float, default=240.0, help="longest time for the turns")
given = parser.parse_args()


def body(run):
    # The first run compiles; the second shows that another process gives the same bytes with what was compiled.
    first = run.program("native-first", "mixed.py", "--seed", SEEDS["A"], "--rounds", 3).result(200)
    again = {
        name: run.program(f"native-{name}", "mixed.py", "--seed", seed, "--rounds", 10) for name, seed in SEEDS.items()
    }
    native = {name: program.result(150) for name, program in again.items()}
    steady = first["hashes"] == native["A"]["hashes"] and not any(
        r["wrong_rounds"] or r["unsteady"] for r in native.values()
    )
    different = [part for part, found in first["hashes"].items() if found != native["A"]["hashes"][part]]
    unsteady = sorted({part for r in native.values() for part in r["unsteady"]})
    run.check(
        "the program gives the same bytes natively, run after run",
        steady,
        "" if steady else f"unsteady {unsteady}, different in another process {different}",
    )

    size = max(r["reserved_bytes"] for r in native.values()) / GIB
    capacity_mib = int((RESERVE_GIB + 2 * CONTEXT_GIB + given.share * size) * GIB / MIB)
    run.say(f"   a program holds {size:.2f} GiB")
    daemon = run.daemon("mixed", capacity=f"{capacity_mib}MiB", arena=given.arena, turn=given.turn, jitter=given.jitter)
    daemon.wait_arena()
    start, stop = run.work / "start", run.work / "stop"
    programs = {}
    for name, seed in SEEDS.items():
        ready = run.work / f"ready-{name}"
        programs[name] = (
            run.program(
                name,
                "mixed.py",
                "--seed",
                seed,
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
    for program, ready in programs.values():
        program.wait_file(ready, 180)
    since = daemon.events.mark()
    harness.touch(start)
    began = time.monotonic()

    def turns(program):
        return len(daemon.events.of("turn_begin", program.pid, since))

    enough = False
    while not enough and time.monotonic() - began < given.limit_s:
        time.sleep(0.2)
        for program, _ in programs.values():
            program.must_live()
        if not daemon.alive():
            raise Failed(f"rotad ended: {daemon.log_tail()}")
        enough = all(turns(program) >= given.turns for program, _ in programs.values())
    took_s = time.monotonic() - began
    had = {name: turns(program) for name, (program, _) in programs.items()}
    moves = daemon.events.of("move_end", since=since)
    harness.touch(stop)
    found = {name: program.result(90) for name, (program, _) in programs.items()}

    rows = []
    for name in SEEDS:
        result = found[name]
        rows.append(
            [
                name,
                had[name],
                result["rounds"],
                result["wrong_rounds"],
                ",".join(k for k, v in result["wrong"].items() if v) or "none",
                result["hash"][:16],
                native[name]["hash"][:16],
            ]
        )
    print(
        harness.table(rows, ["program", "turns", "rounds", "wrong", "wrong parts", "hash", "native hash"]), flush=True
    )
    moved = sum(e.get("bytes_out", 0) + e.get("bytes_in", 0) for e in moves) / GIB
    run.say(f"   {len(moves)} moves, {moved:.0f} GiB in all, in {took_s:.1f} s")
    run.check(f"each program had {given.turns} turns", enough, str(had))
    run.check("memory moved in most turns", len(moves) >= given.turns, f"{len(moves)} moves")
    for name in SEEDS:
        result = found[name]
        different = [k for k in result["hashes"] if result["hashes"][k] != native[name]["hashes"][k]]
        run.check(
            f"{name}: every round gave the same bytes",
            not result["wrong_rounds"] and not result["unsteady"],
            f"{result['rounds']} rounds, {result['wrong_rounds']} wrong, unsteady {result['unsteady']}",
        )
        run.check(
            f"{name}: the bytes are the native ones",
            not different,
            f"different: {different}" if different else result["hash"][:16],
        )
    daemon.check_no_errors()


if __name__ == "__main__":
    harness.main("mixed", 560, body)
