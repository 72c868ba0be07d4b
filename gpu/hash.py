"""Hash: blocks are hashed on the GPU at the speed of its memory, with the host's result, and no flipped bit is missed.

`hasher` of the bundle does it, natively: it compares blocks of several kinds with the host, flips one random bit in about
half of all blocks and back again, and measures hashing beside copying and setting the same memory. The key is drawn anew in
each run.
"""

import argparse
import json

import harness
from harness import Failed

OF_COPY_MIN = 0.85
"""Bytes a second that hashing reads, of those that a copy on the device reads and writes."""

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--gib", type=float, default=12.0)
parser.add_argument("--check-blocks", type=int, default=256, help="blocks of each kind that the host hashes too")
parser.add_argument("--short-blocks", type=int, default=32, help="blocks of 2 MiB in a short launch")
parser.add_argument("--rounds", type=int, default=20, help="how often each speed is measured")
parser.add_argument("--seed", type=int, default=1, help="what the bytes are made of")
given = parser.parse_args()


def found_by(run):
    """What the program printed, also where it says that something is wrong."""
    flags = {
        "--mib": int(given.gib * 1024),
        "--check-blocks": given.check_blocks,
        "--short-blocks": given.short_blocks,
        "--rounds": given.rounds,
        "--seed": given.seed,
    }
    words = [str(word) for flag in flags.items() for word in flag]
    program = run.command("hasher", [run.bundled("hasher"), *words])
    try:
        program.result(50)
    except Failed as reason:
        run.check("the hasher ended well", False, str(reason))
    lines = program.out.read_text(errors="replace").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def speeds(run, measured):
    """A table of all ways, and how hashing stands to copying."""
    rows, rate = [], {}
    for way in measured:
        ms = harness.percentile(way["ms"], 0.5)
        rate[way["measured"]] = way["bytes"] / ms / 1e9
        rows.append([way["measured"], way["bytes"] / harness.GIB, ms, min(way["ms"]), max(way["ms"]), rate[way["measured"]]])
    header = ["way", "GiB read and written", "ms p50", "ms least", "ms most", "TB/s p50"]
    print(harness.table(rows, header), flush=True)
    copy = rate.get("copy on the device")
    if not copy:
        return
    whole, short = rate["hash, one launch"] / copy, rate["hash, short launches"] / copy
    run.check(f"hashing reads at least {OF_COPY_MIN} of what a copy moves", whole >= OF_COPY_MIN, f"{whole:.3f}")
    run.fact(f"in launches of {2 * given.short_blocks} MiB, {short:.3f} of what a copy moves")


def body(run):
    found = found_by(run)
    for line in (line for line in found if "compared" in line):
        right = line["wrong"] == 0 and line["blocks"] > 0
        run.check(f"{line['compared']}: the GPU's hash is the host's", right, f"{line['wrong']} of {line['blocks']} differ")
    for line in (line for line in found if "audited" in line):
        run.check(
            "every flipped bit is seen, and nothing else",
            line["flipped"] > 0 and line["missed"] == line["invented"] == line["not_back"] == 0,
            f"{line['audited']} blocks, {line['flipped']} flipped, {line['missed']} missed, {line['invented']} invented, "
            f"{line['not_back']} not the same when flipped back",
        )
    speeds(run, [line for line in found if "measured" in line])
    run.check("the hasher did all of it", any("ended" in line for line in found), f"{len(found)} lines")


if __name__ == "__main__":
    harness.main("hash", 60, body)
