"""Switches: how fast memory moves from one program to the next, against the fastest copies of pinned memory in the same run.

- ways: a program's 12 GiB go out for another one, both take turns, and they come back when that one is gone: from frozen to
  mapped at least 0.95 of the peak in the same ways. The peak of both at once is measured within the turn before and the turn after
  each switch, in copies of the sizes that are the fastest on one machine or another. All of it is done under several daemons, one
  after the other. Of what happens once under each, which are out alone, in alone and the first switch both ways, the least is
  judged; of all switches both ways the middle one, as copies both ways are slower at times, whoever makes them. How fast they come
  back at the very end of the other is a fact: the driver clears that one's memory then, with the engine that copies in.
- small: the same memory in allocations of 2 MiB and of 20 MiB: a switch takes at most 0.6 s.
- free: three programs take turns; with 4 GiB more than one of them needs, a switch is at least 25% shorter.

In all of them used memory stays under the size that the GPU is treated as, by NVML.
"""

import argparse
from dataclasses import dataclass

import harness
from harness import GIB, Failed, crowd, timeline
from harness.spoken import Spoken

OF_PEAK_MIN = 0.95
SMALL_MIB = (2, 20)
SMALL_MOST_S = 0.6
FREE_GIB = 4.0
FREE_CUTS_MIN = 0.25
OUT = "out alone, the first move of all"
IN = "in alone"
AT_ONCE = "in alone, at the end of the other"
FIRST = "both at once, the first time"
LATER = "both at once, later"
ALL = "both at once, the middle one of all switches"
# MiB of each copy out and in: those that are the fastest, by how quiet a machine is, and others.
BEST_PIECES = ("64:64", "16:16", "8:8")
PIECES_MIB = ((64, 64), (16, 16), (8, 8), (4, 4), (4, 16), (4, 64), (8, 64), (16, 64), (64, 16))

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--parts", default="ways,small,free", help="some of them, with commas")
parser.add_argument("--gib", type=float, default=12.0)
parser.add_argument("--switches", type=int, default=6, help="how many are measured of each kind, and under each daemon")
parser.add_argument("--daemons", type=int, default=3, help="under how many daemons the ways are measured")
parser.add_argument("--turn", default="2s")
parser.add_argument("--arena", default="48GiB")
parser.add_argument("--step-s", type=float, default=0.04)


def peak(run, binary, given, label):
    """GB/s of one way out, one way in, and each of both at once, of as many bytes as a program has: the median of five. Both at
    once are measured in copies of several sizes."""
    sizes = [f"{out_mib}:{in_mib}" for out_mib, in_mib in PIECES_MIB]
    found = run.command(label, [binary, str(2 * given.gib), "5", *sizes]).result(60)

    def rates(seconds):
        return [found["bytes"] / 1e9 / each for each in seconds]

    def usual(seconds):
        return harness.percentile(rates(seconds), 0.5)

    ways = {way: found[f"{way}_s"] for way in ("out", "in")}
    each = ", ".join(f"{way} {usual(took):.2f} ({min(rates(took)):.2f} to {max(rates(took)):.2f})" for way, took in ways.items())
    run.say(f"   {label}, GB/s: {each}; both at once, each way:")
    rows = [[of["out_mib"], of["in_mib"], usual(of["s"]), min(rates(of["s"])), max(rates(of["s"])), usual(of["out_s"]), usual(of["in_s"])] for of in found["both"]]
    print(harness.table(rows, ["MiB a copy out", "in", "GB/s", "least", "most", "until out had ended", "until in had"]), flush=True)
    return {way: usual(took) for way, took in ways.items()}


@dataclass
class Plain:
    """Plain copies both ways at once within a turn: when, on this script's clock, and GB/s each way."""

    began_ns: int
    ended_ns: int
    rate: float


def peak_beside(switch, plain):
    """The mean of plain copies before and after a switch."""
    before = [copies for copies in plain if copies.ended_ns < switch.frozen_ns]
    after = [copies for copies in plain if copies.began_ns > switch.mapped_ns]
    if len(before) + len(after) < len(plain) or not before or not after:
        raise Failed("plain copies were made while memory moved, or not on both sides of a switch: longer turns are needed")
    return (before[-1].rate + after[0].rate) / 2


def judge(run, shares):
    """What was reached of the peak: what happens once under a daemon has to reach it under each of them."""

    def check(what, each, judged):
        detail = f"least {min(each):.3f} of {len(each)}, {harness.middle(each):.3f} in the middle"
        run.check(f"{what}: at least {OF_PEAK_MIN} of the peak", judged >= OF_PEAK_MIN, detail)

    for what in (OUT, IN, FIRST):
        check(f"{what}, under each daemon", shares[what], min(shares[what]))
    both = shares[FIRST] + shares.get(LATER, [])
    check(ALL, both, harness.middle(both))


def ways(run, given, turns, shape):
    """From frozen to mapped, against the peak. One way: the better one of before and after. Both ways: copies in beside copies out
    are slower at times, by some percent, for seconds or minutes, whoever makes them; so plain ones are made in the turns before and
    after each switch, and their mean is its peak."""
    copies = run.build("peak.cu", "-arch=native")
    before = peak(run, copies, given, "peak before")
    beside = Spoken(run, "peak-beside", [copies, str(2 * given.gib), "asked"])
    plain: list[Plain] = []

    def copy_plainly():
        began_ns = harness.now_ns()
        rate = max(float(beside.tell(sizes)) for sizes in BEST_PIECES)
        plain.append(Plain(began_ns, harness.now_ns(), rate))

    rounds = []
    for daemon in range(given.daemons):
        plain = []
        there = crowd.driven_out(run, f"ways{daemon + 1}", turns, shape, given.switches, given.turn, given.arena, copy_plainly)
        rounds.append((there, plain))
    beside.end()
    after = peak(run, copies, given, "peak after")
    best = {way: max(before[way], after[way]) for way in ("out", "in")}
    for _, plain in rounds:
        run.say(f"   plain copies both at once, within the turns, GB/s each way: {', '.join(f'{copies.rate:.2f}' for copies in plain)}")
    rows, shares, lanes = [], {}, []
    for daemon, (there, plain) in enumerate(rounds, 1):
        one_way = {
            OUT: (there.out, there.out.bytes_out, best["out"]),
            IN: (there.back, there.back.bytes_in, best["in"]),
            AT_ONCE: (there.back_at_once, there.back_at_once.bytes_in, best["in"]),
        }
        moves = [(what, move, size, size / 1e9 / move.seconds, peak_then) for what, (move, size, peak_then) in one_way.items()]
        for n, switch in enumerate(there.swaps):
            size = max(switch.bytes_out, switch.bytes_in)
            moves.append((FIRST if n == 0 else LATER, switch, size, switch.each_way, peak_beside(switch, plain)))
        for what, move, size, rate, peak_then in moves:
            shares.setdefault(what, []).append(rate / peak_then)
            row = [daemon, what, size / GIB, move.bytes_passed / GIB, 1e3 * move.seconds, rate, peak_then]
            rows.append([*row, f"{rate / peak_then:.3f}"])
        lanes += [(f"{daemon}, out alone", [there.out]), (f"{daemon}, in alone", [there.back]), (f"{daemon}, in at once", [there.back_at_once])]
        lanes += [(f"{daemon}, switch {n}", switch.moves) for n, switch in enumerate(there.swaps, 1)]
    header = ["daemon", "way", "GiB each way", "GiB passed on", "frozen to mapped ms", "GB/s", "peak", "of it"]
    print(harness.table(rows, header), flush=True)
    print("Where that time went.\n" + timeline.where_time_went(lanes), flush=True)
    judge(run, shares)


def small(run, given, turns, shape):
    """Many small allocations."""
    rows = []
    for mib in SMALL_MIB:
        label = f"small{mib}"
        of_small = crowd.Shape(shape.gib, mib, shape.rounds, shape.step_s)
        capacity = crowd.capacity_for(2, shape.gib)
        options = {"capacity": capacity, "arena": given.arena, "turn": given.turn}
        found = crowd.taking_turns(run, label, turns, of_small, 2, given.switches, **options)
        seconds = [switch.seconds for switch in found]
        moved = harness.percentile([max(switch.bytes_out, switch.bytes_in) for switch in found], 0.5) / GIB
        longest = max(found, key=lambda switch: switch.seconds)
        print(f"Where the time of the longest went, {mib} MiB.\n" + timeline.where_time_went([("", longest.moves)]), flush=True)
        rows.append([f"{mib} MiB", len(found), moved, *(1e3 * f(seconds) for f in (min, lambda s: harness.percentile(s, 0.5), max))])
        run.check(f"allocations of {mib} MiB: a switch takes at most {SMALL_MOST_S} s", max(seconds) <= SMALL_MOST_S, f"{max(seconds):.3f} s")
    print(harness.table(rows, ["allocations of", "switches", "GiB each way", "ms least", "p50", "most"]), flush=True)


def free(run, given, turns, shape):
    """Room that nobody needs just now."""
    rows, usual = [], []
    for extra in (0.0, FREE_GIB):
        label = f"free{extra:g}"
        options = {"capacity": crowd.capacity_for(3, shape.gib + extra), "arena": given.arena, "turn": given.turn}
        # The first round is left out: it finds memory where the programs' beginnings left it.
        found = crowd.taking_turns(run, label, turns, shape, 3, given.switches + 3, **options)[3:]
        seconds = [switch.seconds for switch in found]
        usual.append(sum(seconds) / len(seconds))
        moved = [sum(f(switch) for switch in found) / len(found) / GIB for f in (lambda s: s.bytes_out, lambda s: s.bytes_in)]
        rows.append([f"{extra:g} GiB", len(found), *moved, 1e3 * min(seconds), 1e3 * usual[-1], 1e3 * max(seconds)])
    print(harness.table(rows, ["free beside the one that runs", "switches", "GiB out", "GiB in", "ms least", "mean", "most"]), flush=True)
    cut = 1 - usual[1] / usual[0]
    run.check(f"{FREE_GIB:g} GiB of free space cut a switch by at least {FREE_CUTS_MIN:.0%}", cut >= FREE_CUTS_MIN, f"{cut:.1%}")


def body(run, given):
    parts = given.parts.split(",")
    turns = run.build("turns.cu", "-arch=native")
    shape = crowd.calibrated(run, turns, given.gib, 1024, given.step_s)
    for part, show in (("ways", ways), ("small", small), ("free", free)):
        if part in parts:
            try:
                show(run, given, turns, shape)
            except Failed as reason:
                run.check(f"{part}: measured", False, str(reason)[-700:])
                run.end_programs()  # a daemon ends only after its tenants
                run.end_daemons()


if __name__ == "__main__":
    chosen = parser.parse_args()
    harness.main("switches", 560, lambda run: body(run, chosen))
