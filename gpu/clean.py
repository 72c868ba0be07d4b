"""Clean: memory that did not change since it came is not copied out again.

`read`: two programs of 12 GiB, of which one fits, that only read: PASS if at most 5% of what goes out is copied, once each has been out.
The same with programs that rewrite everything, with copies kept and without, says what looking for changes costs.

`audit`: two programs that read everything and, once in each turn, turn one random bit over in about half of all blocks of 2 MiB,
under a daemon that copies all of what goes out whatever its hashes say, and compares what they call the same. PASS if over 1 TiB
about half of the blocks were called the same and compared, none of them wrongly, and every word is right: a flipped bit that was
missed would be an error event, and a wrong word where it is not audited.
"""

import argparse
from dataclasses import replace

import harness
from harness import GIB, MIB, crowd, timeline
from harness.waiting import until

COPIED_MOST = 0.05
ARENA = "32GiB"
FLIPS_S = 0.6
"""Longer than a program stays when it is its turn, shorter than it is away: bits are turned over once a turn."""

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--parts", default="read,audit", help="some of them, with commas")
parser.add_argument("--gib", type=float, default=12.0)
parser.add_argument("--turn", default="1s")
parser.add_argument("--switches", type=int, default=6, help="that are judged, where programs only read")
parser.add_argument("--audit-turn", default="100ms")
parser.add_argument("--audit-gib", type=float, default=1024.0, help="that are to go out under an auditor")


def moved_out(daemon, since=0):
    """Bytes that went out and those of them that were copied, in moves that ended from there on."""
    ends = daemon.events.of("move_end", since=since)
    return sum(end["bytes_out"] for end in ends), sum(end["copied_bytes"] for end in ends)


def switched(run, label, turns, shape, given, how):
    """Two programs that take turns until each has been out, and then so often as is judged: what went out, was copied, and the switches."""
    more = ("--clean-copies", how)
    daemon = run.daemon(label, capacity=crowd.capacity_for(2, given.gib), arena=ARENA, turn=given.turn, more=more)
    daemon.wait_arena(120)
    start = run.work / f"{label}.start"
    seeds = {f"{label}-A": 1, f"{label}-B": 2}
    programs = crowd.gathered(run, daemon, turns, shape, seeds, dict.fromkeys(seeds, 0), start)
    harness.touch(start)

    def swaps(mark):
        begun = daemon.events.at_ns(daemon.events.all[mark - 1]) if mark else 0
        return [switch for switch in timeline.switches(daemon.events) if switch.frozen_ns > begun and switch.bytes_out and switch.bytes_in]

    def until_swaps(count, mark):
        def enough():
            for program in programs.values():
                program.program.must_live()
            return len(swaps(mark)) >= count

        until(f"{count} switches", 30 + 5 * count, enough, 0.1)

    # Each has been copied out and has come back once, and is hashed when it goes again.
    until_swaps(4, 0)
    mark = daemon.events.mark()
    until_swaps(given.switches, mark)
    found = swaps(mark)[: given.switches]
    out, copied = moved_out(daemon, mark)
    end(run, programs)
    daemon.check_no_errors()
    run.end_daemons()
    return out, copied, found


def end(run, programs):
    for program in programs.values():
        program.stop()
    results = {name: program.result(120) for name, program in programs.items()}
    for name, result in results.items():
        crowd.check_right(run, name, result)
    return results


def reading(run, turns, shape, given):
    rows, share = [], {}
    cases = {
        "read only, copies kept": (replace(shape, read_only=True), "on"),
        "rewritten, copies kept": (shape, "on"),
        "rewritten, none kept": (shape, "off"),
    }
    for number, (what, (kind, how)) in enumerate(cases.items()):
        out, copied, switches = switched(run, f"clean{number}", turns, kind, given, how)
        seconds = [switch.seconds for switch in switches]
        share[what] = copied / max(out, 1)
        rows.append([what, len(switches), out / GIB, copied / GIB, f"{100 * share[what]:.2f}%", 1e3 * harness.percentile(seconds, 0.5), 1e3 * max(seconds)])
    print(harness.table(rows, ["programs", "switches", "GiB out", "GiB copied", "share", "ms p50", "ms most"]), flush=True)
    only = share["read only, copies kept"]
    run.check(f"of memory that was only read at most {COPIED_MOST:.0%} is copied out", only <= COPIED_MOST, f"{100 * only:.3f}%")


def auditing(run, turns, shape, given):
    capacity, more = crowd.capacity_for(2, given.gib), ("--clean-copies", "audit")
    daemon = run.daemon("audit", capacity=capacity, arena=ARENA, turn=given.audit_turn, more=more)
    daemon.wait_arena(120)
    start = run.work / "audit.start"
    seeds = {"audit-A": 1, "audit-B": 2}
    flipping = replace(shape, read_only=True, flips_s=FLIPS_S, rounds=1)
    programs = crowd.gathered(run, daemon, turns, flipping, seeds, dict.fromkeys(seeds, 0), start)
    mark = daemon.events.mark()
    harness.touch(start)

    def moves(compared=True):
        # What goes out for the first time has nothing to be compared with.
        return [end for end in daemon.events.of("move_end", since=mark) if end["bytes_out"] and bool(end["compared_bytes"]) == compared]

    def gone():
        return sum(end["bytes_out"] for end in moves())

    def enough():
        for program in programs.values():
            program.program.must_live()
        return gone() >= given.audit_gib * GIB

    until(f"{given.audit_gib:g} GiB to go out", 480, enough, 0.5)
    out, ends = gone(), moves()
    stays = len(daemon.events.of("turn_begin", since=mark))
    results = end(run, programs)
    compared, copied = (sum(end[kind] for end in ends) for kind in ("compared_bytes", "copied_bytes"))
    flips, turned = (sum(result[kind] for result in results.values()) for kind in ("flips", "turned"))
    blocks = sum(result["bytes"] // (2 * MIB) * result["turned"] for result in results.values())
    run.fact(f"{out / GIB:.0f} GiB went out in {len(ends)} moves, all of it copied: {copied / GIB:.0f} GiB; {flips} bits turned over, {turned} times in {stays} turns, in {flips / max(blocks, 1):.3f} of the blocks each time")
    errors = [event.get("what", "?") for event in daemon.events.of("error")]
    blind = len(moves(compared=False))
    run.check("only first moves had nothing to compare with", blind <= len(programs), f"{blind} of {blind + len(ends)}")
    run.check("bits were turned over once a turn", 0.9 <= turned / max(stays, 1) <= 1.1, f"{turned / max(stays, 1):.3f} times")
    run.check("about half of the blocks had one bit turned over", 0.45 <= flips / max(blocks, 1) <= 0.55, f"{flips / max(blocks, 1):.3f}")
    run.check("about half of the blocks were called the same, and compared", 0.45 <= compared / out <= 0.55, f"{compared / GIB:.0f} GiB, {compared / out:.3f}")
    run.check(f"over {given.audit_gib / 1024:g} TiB every flipped bit was found", out >= given.audit_gib * GIB and not errors, f"{len(errors)} errors {errors[:2]}")
    daemon.check_no_errors()


def body(run, given):
    turns = run.build("turns.cu", "-arch=native")
    shape = crowd.calibrated(run, turns, given.gib, 1024, 0.02)
    parts = given.parts.split(",")
    if "read" in parts:
        reading(run, turns, shape, given)
    if "audit" in parts:
        auditing(run, turns, shape, given)


if __name__ == "__main__":
    chosen = parser.parse_args()
    harness.main("clean", 590, lambda run: body(run, chosen))
