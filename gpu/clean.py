"""Clean: memory that did not change since it came is not copied out again.

`read`: two programs of 12 GiB, of which one fits, that only read: PASS if at most 5% of what goes out is copied, once each has been out.
The same with programs that rewrite everything, with copies kept and without, says what looking for changes costs.

`audit`: two programs that read everything and, once in each turn, turn one random bit over in about half of all blocks of 2 MiB,
under a daemon that copies all of what goes out whatever its hashes say, and compares what they call the same. Which blocks are
turned over each time is computed here, too. PASS if over 1 TiB about half of the blocks were called the same and compared, none of
them wrongly, and every word is right; and if what was called the same and the blocks that were turned over are all that went out,
each time, to the block. That is judged where all of a program's memory went out, now and the time before, and no bit was being
turned over just then: then each block has changed or has not, and which is known. Room is so little that this is nearly always so.
Wherever else, no more may be called the same than was not turned over. Of the few MiB that a program has besides, for its tables,
it is not known what changes, but it has to be as much each time.

In both used memory stays under the size that the GPU is treated as, by NVML.
"""

import argparse
import bisect
import statistics
from dataclasses import dataclass, field, replace

import harness
from harness import GIB, MIB, SELDOM_S, MemorySampler, crowd, timeline
from harness.waiting import until

COPIED_MOST = 0.05
ARENA = "32GiB"
FLIPS_S = 0.6
"""Longer than a program stays when it is its turn, shorter than it is away: bits are turned over once a turn."""
BLOCK = 2 * MIB
TIGHT_MIB = 200
"""So much less room than others' programs are given: no part of a program's memory, of 128 MiB, fits beside all of the other's, so
that each time all of it goes."""
TABLES_MOST = 16 * MIB
"""What a program has beside the memory that it reads, at most: four small allocations."""
EXACT_MIN = 0.9
"""Of what went out: so much has to be judged to the block."""

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
    capacity, more = crowd.capacity_for(2, given.gib), ("--clean-copies", how)
    memory = MemorySampler(SELDOM_S)
    daemon = run.daemon(label, capacity=capacity, arena=ARENA, turn=given.turn, more=more)
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
    memory.stop()
    memory.check_under(run, capacity, label)
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


def mixed(x):
    """As in programs/turns.h."""
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & WORD
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & WORD
    return x ^ x >> 31


WORD = (1 << 64) - 1
STEPS_MAX = 1 << 20


def turned_over(seed, number, blocks):
    """Which blocks have a bit turned over at the time of this number, as programs/turns.cu chooses them: a bit of the answer each."""
    return int("".join("01"[not mixed(seed ^ mixed(block * STEPS_MAX + number)) & 1] for block in reversed(range(blocks))), 2)


def count(blocks):
    """How many they are."""
    return bin(blocks).count("1")


@dataclass
class Out:
    """What went out of a program from when it last came in until it came in again, in one move or several. It was off the GPU since
    `begin_ns` at the latest."""

    begin_ns: int
    end_ns: int
    bytes_out: int = 0
    compared: int = 0
    clear: bool = True
    """No other program's memory is in these sums, and no move failed."""
    flipped: int = 0
    """The blocks that had a bit turned over since it came in."""


def outs_of(events, pid, since, until):
    """All that went out of a program in moves that began and ended between two places in the events."""
    found, here, frozen_ns, begin, ends = [], True, 0, None, {id(event) for event in events.all[since:until]}
    for event in timeline.in_order(events):
        at, kind = events.at_ns(event), event["event"]
        if kind == "freeze" and event.get("pid") == pid:
            frozen_ns = at - event.get("took_ns", 0)
        elif kind == "move_begin":
            begin = (event, at) if id(event) in ends else None
        elif kind == "move_end" and begin and id(event) in ends:
            (begun, begin_ns), begin = begin, None
            out, into = ([events.pid_of_tenant.get(part["tenant"]) for part in begun.get(way) or []] for way in ("out", "into"))
            if pid in into:
                here = True
            if pid in out:
                if here:
                    found.append(Out(min(frozen_ns or begin_ns, begin_ns), at))
                    here = False
                last = found[-1]
                last.end_ns = at
                last.bytes_out += event["bytes_out"]
                last.compared += event["compared_bytes"]
                last.clear &= out == [pid] and pid not in into and not event["failed"]
    return found


def place_flips(outs, begun, step_ends, flipped):
    """Puts each time that bits were turned over before what went out next. That is done somewhere between when its step began and when
    that ended: where something went out meanwhile, neither that nor the next is clear."""
    for began_ns, blocks in zip(begun, flipped):
        place = bisect.bisect_right(step_ends, began_ns)
        ended_ns = step_ends[place] if place < len(step_ends) else None
        for number, out in enumerate(outs):
            if ended_ns is not None and ended_ns <= out.begin_ns:
                out.flipped |= blocks
                break
            if began_ns < out.end_ns:
                for unclear in outs[number : number + 2]:
                    unclear.clear = False
                break


@dataclass
class Judged:
    """What was found of all that went out."""

    outs: int = 0
    exact: int = 0
    exact_bytes: int = 0
    wrong: list = field(default_factory=list)
    """Where blocks that were not turned over and what was called the same are not one, though it could be told."""
    unasked: list = field(default_factory=list)
    """Where more was called the same than was not turned over."""
    rest: int = 0
    """Bytes neither called the same nor turned over, where all is known: of tables."""


def judge(judged, name, outs, size):
    """Whether what was called the same is what was not turned over. A program has `size` bytes, and its tables: what of those is called
    the same is not known, but it is as much each time that the same ones go and a bit was turned over, which is counted in one of
    them."""
    rests = {}
    for before, out in zip([None, *outs], outs):
        judged.outs += 1
        # What stayed on the GPU may be of those that were turned over; it shows when it goes.
        stayed = max(0, size + TABLES_MOST - out.bytes_out) if out.bytes_out < size else 0
        flipped = count(out.flipped) * BLOCK
        what = f"{name}: {out.bytes_out} out, {out.compared} the same, {flipped} turned over"
        if out.compared > out.bytes_out - max(0, flipped - stayed):
            judged.unasked.append(what)
        whole = [each is not None and size <= each.bytes_out <= size + TABLES_MOST for each in (before, out)]
        if all(whole) and out.clear and before.clear:
            judged.exact += 1
            judged.exact_bytes += out.bytes_out
            tables, rest = out.bytes_out - size, out.bytes_out - out.compared - flipped
            judged.rest += rest
            rests.setdefault((tables, flipped > 0), []).append((rest, what))
    for (tables, changed), found in rests.items():
        usual = statistics.mode(rest for rest, _ in found)
        judged.wrong += [what for rest, what in found if not 0 <= rest <= tables or (changed and rest != usual)]


def auditing(run, turns, shape, given):
    capacity, more = crowd.capacity_for(2, given.gib - TIGHT_MIB / 1024), ("--clean-copies", "audit")
    memory = MemorySampler()
    daemon = run.daemon("audit", capacity=capacity, arena=ARENA, turn=given.audit_turn, more=more)
    daemon.wait_arena(120)
    start = run.work / "audit.start"
    seeds = {"audit-A": 1, "audit-B": 2}
    flipping = replace(shape, read_only=True, flips_s=FLIPS_S, rounds=1)
    programs = crowd.gathered(run, daemon, turns, flipping, seeds, dict.fromkeys(seeds, 0), start)
    run.fact(f"room for programs' memory: {daemon.room_bytes() / GIB:.3f} GiB, of which one has {given.gib:g} GiB and its tables")
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
    out, ends, blind, over = gone(), moves(), len(moves(compared=False)), daemon.events.mark()
    stays = len(daemon.events.of("turn_begin", since=mark))
    results = end(run, programs)
    memory.stop()
    compared, copied = (sum(end[kind] for end in ends) for kind in ("compared_bytes", "copied_bytes"))
    flips, turned = (sum(result[kind] for result in results.values()) for kind in ("flips", "turned"))
    blocks = sum(result["bytes"] // BLOCK * result["turned"] for result in results.values())
    run.fact(f"{out / GIB:.0f} GiB went out in {len(ends)} moves; {flips} bits turned over, {turned} times in {stays} turns, in {flips / max(blocks, 1):.3f} of the blocks each time")
    errors = [event.get("what", "?") for event in daemon.events.of("error")]
    run.check("only first moves had nothing to compare with", blind <= len(programs), f"{blind} of {blind + len(ends)}")
    run.check("all of what went out was copied", copied == out, f"{copied / GIB:.3f} of {out / GIB:.3f} GiB")
    run.check("bits were turned over once a turn", 0.9 <= turned / max(stays, 1) <= 1.1, f"{turned / max(stays, 1):.3f} times")
    run.check("about half of the blocks had one bit turned over", 0.45 <= flips / max(blocks, 1) <= 0.55, f"{flips / max(blocks, 1):.3f}")
    run.check("about half of the blocks were called the same, and compared", 0.45 <= compared / out <= 0.55, f"{compared / GIB:.0f} GiB, {compared / out:.3f}")
    run.check(f"over {given.audit_gib / 1024:g} TiB every flipped bit was found", out >= given.audit_gib * GIB and not errors, f"{len(errors)} errors {errors[:2]}")
    judged, known = Judged(), 0
    for name, result in results.items():
        flipped = [turned_over(seeds[name], number, result["bytes"] // BLOCK) for number in range(result["turned"])]
        known += sum(map(count, flipped))
        outs = outs_of(daemon.events, programs[name].pid, mark, over)
        place_flips(outs, result["turned_ns"], programs[name].step_times(), flipped)
        judge(judged, name, outs, result["bytes"])
    run.check("the blocks that were turned over are those computed here, by their number", known == flips, f"{known}, the programs say {flips}")
    run.check("never was more called the same than was not turned over", judged.outs > 0 and not judged.unasked, "; ".join(judged.unasked[:3]) or f"{judged.outs} times")
    share = judged.exact_bytes / max(out, 1)
    run.check("called the same and turned over are all that went out, to the block", judged.exact > 0 and not judged.wrong, "; ".join(judged.wrong[:3]) or f"{judged.exact} of {judged.outs} times, {judged.exact_bytes / GIB:.0f} GiB, with {judged.rest / MIB:.0f} MiB of tables")
    run.check(f"at least {EXACT_MIN:.0%} of it is judged so", share >= EXACT_MIN, f"{share:.3f}")
    memory.check_under(run, capacity, "audit")
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
