"""What the programs here share: rounds that repeat, so that every one can be checked, and the files by which they are told.

A program has a period of a few rounds. Round 0 begins from a fixed start, the others go on from the round before; after the last
one it begins again. So a run may be of any length, and each of its rounds must give the bytes that the same round gave first.
"""

import argparse
import hashlib
import json
import os
import time


def arguments(description, **more):
    """The command line that all have, and what `more` adds: name and keywords of an argument."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=6, help="at least so many")
    parser.add_argument("--ready-file", help="made when all is ready")
    parser.add_argument("--start-file", help="rounds begin when this file is there")
    parser.add_argument("--stop-file", help="rounds go on until this file is there")
    for name, keywords in more.items():
        parser.add_argument(f"--{name}", **keywords)
    return parser.parse_args()


def play(given, period, one_round, live_bytes, **facts):
    """Rounds until enough were done, then one line of JSON. `one_round(number)` answers a text of its results."""
    assert given.rounds >= 2 * period, f"fewer than {2 * period} rounds cannot show that they repeat"
    if given.ready_file:
        open(given.ready_file, "w").close()
    while given.start_file and not os.path.exists(given.start_file):
        time.sleep(0.002)
    began = time.monotonic_ns()
    first, wrong, rounds = [], [], 0
    while rounds < given.rounds or (given.stop_file and not os.path.exists(given.stop_file)):
        number = rounds % period
        found = one_round(number)
        if rounds < period:
            first.append(found)
        elif found != first[number]:
            wrong.append(rounds)
        rounds += 1
    result = {
        "hash": hashlib.sha256("".join(first).encode()).hexdigest(),
        "rounds": rounds,
        "wrong_rounds": len(wrong),
        "first_wrong": wrong[:4],
        "gpu_phase_s": (time.monotonic_ns() - began) / 1e9,
        "live_bytes": live_bytes,
    }
    result.update(facts)
    print(json.dumps(result), flush=True)
