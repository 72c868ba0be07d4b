"""Overfull: programs that do not fit together finish in the time of one after the other, and each gets its turns.

Each program rewrites all its bytes in every step and knows at its end what every word must be. Half of them run natively before,
the other half after all of them ran together under rota, from a common start. PASS if that took little longer than the native
sum, nobody waited too long for its next turn, everybody had several turns, every result is the native one, and the GPU's used
memory, whoever asks, stayed under the size it is treated as, if that is less than it has.

A loop is as long as four turns, or a little less: a fifth turn of a moment would cost each of them a whole switch.
"""

import argparse
from dataclasses import dataclass, replace

import harness
from harness import GIB, Failed, MemorySampler, crowd, timeline

SEED = 11
TURNS_MIN = 4
STEP_S = 0.04
END_WITHIN_S = 60.0
"""How long the programs may take beyond the native sum before the script gives up."""
SPEED_OF_DUE_MIN = 0.97
"""What a program gets when another ended, of the part that is due to it then: turns are cut at steps and switches."""


@dataclass
class Case:
    """What is run, and what must hold."""

    about: str
    programs: int = 4
    gib: float = 12.0
    capacity: str = "16GiB"  # "all": as large as it is
    arena: str = "48GiB"
    seconds: float = 26.5  # of work, natively
    step_s: float = STEP_S
    gap_max: str = "21.5s"
    moving_share: str = "3%"
    ratio_most: float = 1.05
    gap_most_s: float = 22.0
    first_ends_at: float = 1.0  # of its steps


# With gaps of at most G, n programs and switches of c, a turn is (G - c) / (n - 1) - c: gaps rule, not the share of moving.
CASES = {
    "four22": Case("four of 12 GiB on 16 GiB, gaps of at most 22 s"),
    "four35": Case(
        "the same, gaps of at most 35 s", seconds=43.5, gap_max="34.5s", moving_share="2%", ratio_most=1.03, gap_most_s=35.0
    ),
    "kernels3s": Case("as four22, a step is one kernel of more than 3 s", seconds=26.4, step_s=3.3),
    "kernels3s35": Case(
        "as four35, a step is one kernel of more than 3 s",
        seconds=42.9,
        step_s=3.3,
        gap_max="34.5s",
        moving_share="2%",
        ratio_most=1.03,
        gap_most_s=35.0,
    ),
    "one_ends": Case("as four22, one ends at 60%: the others speed up to N/(N - 1) within one turn", seconds=40.0, first_ends_at=0.6),
    "pair": Case(
        "two of 100 GiB on the whole GPU",
        programs=2,
        gib=100.0,
        capacity="all",
        arena="80GiB",
        seconds=100.0,
        step_s=0.1,
        gap_max="29s",
        moving_share="3%",
        ratio_most=1.10,
        gap_most_s=30.0,
    ),
}

parser = argparse.ArgumentParser(
    description=__doc__.split("\n")[0],
    formatter_class=argparse.RawDescriptionHelpFormatter,
    epilog="\n".join(f"  {name:10} {case.about}" for name, case in CASES.items()),
)
parser.add_argument("--case", choices=CASES, default="four22")
parser.add_argument("--programs", type=int)
parser.add_argument("--gib", type=float)
parser.add_argument("--seconds", type=float, help="of work of each program, natively")
parser.add_argument("--step-s", type=float)
parser.add_argument("--capacity", help="what the GPU is treated as; all: as large as it is")
parser.add_argument("--arena")
parser.add_argument("--gap-max", help="what rota is told, as in 21.5s")
parser.add_argument("--moving-share", help="what rota is told, as in 4%%")
parser.add_argument("--alloc-mib", type=int, default=1024)


def natively(run, binary, shape, seeds, steps, limit_s):
    """Results of programs one after the other, without rota."""
    found = {}
    for name, seed in seeds.items():
        found[name] = crowd.Turner(run, f"native-{name}", binary, shape, seed, steps[name]).result(limit_s)
        run.say(f"   native {name}: {found[name]['gpu_phase_s']:.2f} s")
    return found


def body(run, case, alloc_mib):
    names = [chr(ord("A") + n) for n in range(case.programs)]
    seeds = {name: SEED * (n + 1) for n, name in enumerate(names)}
    run.say(f"   {case.about}: {case.seconds:g} s of work each, {case.gib:g} GiB in pieces of {alloc_mib} MiB")
    binary = run.build("turns.cu", "-arch=native")
    shape = crowd.calibrated(run, binary, case.gib, alloc_mib, case.step_s)
    all_steps = max(1, round(case.seconds / shape.step_s))
    steps = {name: all_steps for name in names}
    steps[names[0]] = max(1, round(all_steps * case.first_ends_at))
    limit_s = case.seconds * 1.5 + 60
    compared = case.first_ends_at == 1.0
    half = (len(names) + 1) // 2
    before, after = ({name: seeds[name] for name in part} for part in (names[:half], names[half:]))
    native = natively(run, binary, shape, before, steps, limit_s) if compared else {}

    memory = MemorySampler()
    capacity = None if case.capacity == "all" else case.capacity
    daemon = run.daemon(
        run.name, capacity=capacity, arena=case.arena, gap_max=case.gap_max, moving_share=case.moving_share
    )
    daemon.wait_arena(120)
    start = run.work / "start"
    programs = crowd.gathered(run, daemon, binary, shape, seeds, steps, start)
    run.fact(f"room for programs' memory: {daemon.room_bytes() / GIB:.2f} GiB of {case.programs * case.gib:g} GiB that they have")
    harness.touch(start)
    within_s = sum(steps.values()) * shape.step_s * 1.3 + END_WITHIN_S
    found = {name: program.result(within_s) for name, program in programs.items()}
    daemon.events.read()
    memory.stop()
    times = {name: program.step_times() for name, program in programs.items()}
    pids = {program.pid: name for name, program in programs.items()}
    began = min(result["began_ns"] for result in found.values())
    ended = max(result["ended_ns"] for result in found.values())
    timeline.show(run, daemon.events, pids, began, ended)
    turns = {name: [] for name in names}
    for turn in timeline.turns(daemon.events):
        if turn.pid in pids and (turn.end_ns is None or turn.end_ns > began) and turn.begin_ns < ended:
            turns[pids[turn.pid]].append(turn)
    daemon.check_no_errors()
    run.end_daemons()
    if compared:
        native.update(natively(run, binary, shape, after, steps, limit_s))

    waits(run, case, shape, names, found, turns, times, began)
    lost(run, turns, began, ended)
    for name in names:
        crowd.check_right(run, name, found[name], native.get(name))
    if compared:
        ratio_of(run, case, names, native, found, (ended - began) / 1e9)
    else:
        speed_up(run, names, found, turns, times)
    under_cap(run, memory, capacity, began, min(result["ended_ns"] for result in found.values()))


def under_cap(run, memory, capacity, began, one_ended):
    """The GPU's used memory against the size that it is treated as. There is never more in use than it has: where it is as large as
    it is, there is nothing to be judged."""
    if capacity is None:
        most, at = memory.most()
        run.fact(
            f"{most / GIB:.3f} GiB more in use than before at most, of {harness.Nvml().total() / GIB:.3f} GiB that the GPU has, "
            f"{(at - began) / 1e9:.2f} s after the start; by NVML in {len(memory.samples)} looks"
        )
    else:
        memory.check_under(run, capacity, began_ns=began, until_ns=one_ended)


def waits(run, case, shape, names, found, turns, times, began):
    """How long each waited for its turns, by the daemon's word and by its own steps."""
    rows, longest, shortest = [], 0.0, float("inf")
    for name in names:
        mine = turns[name]
        between = timeline.gaps(mine)
        longest = max([longest, *between])
        first = max((mine[0].begin_ns - began) / 1e9, 0.0) if mine else None
        over = [turn for turn in mine if turn.end_ns]
        lengths = [(turn.end_ns - max(turn.begin_ns, began)) / 1e9 for turn in over]
        # The first may have begun before the common start, the last ends with the work.
        shortest = min([shortest, *lengths[1:-1]])
        done = [sum(max(turn.begin_ns, began) < at <= turn.end_ns for at in times[name]) for turn in over]
        usual = [harness.percentile(values, 0.5) for values in (lengths, done)]
        rows.append([name, len(mine), first, max(between, default=None), found[name]["hole_s"], *usual])
    header = ["program", "turns", "first wait s", "longest gap s", "longest without a step s", "turn p50 s", "steps a turn p50"]
    print(harness.table(rows, header), flush=True)
    # From the last step before a gap to the first one after it: the gap, and the step that was cut in two.
    hole = max(result["hole_s"] for result in found.values())
    if case.first_ends_at < 1.0:
        # Turns get longer when fewer share, also for those who have waited under the old ones.
        run.fact(f"gaps of at most {longest:.2f} s, {hole:.2f} s without a step at most")
    else:
        fewest = min(len(turns[name]) for name in names)
        run.check(f"everybody has at least {TURNS_MIN} turns", fewest >= TURNS_MIN, f"{fewest}")
        run.check(f"gaps of at most {case.gap_most_s:g} s", 0 < longest <= case.gap_most_s, f"{longest:.2f} s")
        most = case.gap_most_s + 2 * shape.step_s
        run.check("the programs' own steps say the same", hole <= most, f"{hole:.2f} s without a step at most, {most:.2f} s allowed")
    # A step goes over all bytes in a row: in the time of one, whenever that begins, each is rewritten.
    run.check(
        "every byte is rewritten in every turn",
        shape.step_s <= shortest < float("inf"),
        f"a step takes {shape.step_s:.2f} s, the shortest turn but each program's first and last {shortest:.2f} s",
    )


def lost(run, turns, began, ended):
    """The time that was nobody's turn: where a ratio above 1 comes from."""
    found = timeline.pauses([turn for mine in turns.values() for turn in mine], began, ended)
    if found:
        seconds = [1e3 * value for value in (harness.percentile(found, 0.5), max(found))]
        row = [len(found), *seconds, sum(found), f"{100 * sum(found) / ((ended - began) / 1e9):.2f}%"]
        print(harness.table([row], ["between turns", "ms p50", "most", "s in all", "of the time"]), flush=True)


def ratio_of(run, case, names, native, found, together_s):
    """Together against one after the other."""
    alone_s = sum(native[name]["gpu_phase_s"] for name in names)
    ratio = together_s / alone_s
    rows = [
        ["native, one after the other", *(native[name]["gpu_phase_s"] for name in names), alone_s, f"{1:.4f}"],
        ["rota, together", *(found[name]["gpu_phase_s"] for name in names), together_s, f"{ratio:.4f}"],
    ]
    print(harness.table(rows, ["GPU phase, s", *names, "all", "ratio"]), flush=True)
    half = (len(names) + 1) // 2
    earlier, later = ([native[name]["gpu_phase_s"] for name in part] for part in (names[:half], names[half:]))
    drift = sum(later) / len(later) / (sum(earlier) / len(earlier)) - 1
    run.fact(f"natively, those after rota took {100 * drift:+.2f}% of those before")
    run.check(f"together / native sum at most {case.ratio_most:g}", ratio <= case.ratio_most, f"{ratio:.4f}")


def speed_up(run, names, found, turns, times):
    """When the first has ended, each of the others gets its part of one less, from the next turn on."""
    gone = found[names[0]]["ended_ns"]
    others, count = names[1:], len(names)
    first_end = min(found[name]["ended_ns"] for name in others)
    begins = sorted(turn.begin_ns for name in names for turn in turns[name])
    before = [at for at in begins if at <= gone]
    later = [at for at in begins if gone < at <= first_end]
    usual = harness.percentile([turn.end_ns - turn.begin_ns for name in others for turn in turns[name] if turn.end_ns], 0.5)
    # In as many turns as there are programs each has one: as many such rounds as there are.
    rounds = (len(before) - 1) // count, (len(later) - 1) // (count - 1)
    if not all(rounds) or not usual:
        raise Failed(f"too few turns to compare: {len(before)} before {names[0]} ended, {len(later)} after; give more --seconds")

    def rates(begin, end):
        return {name: sum(begin < at <= end for at in times[name]) / ((end - begin) / 1e9) for name in others}

    slow = rates(before[-1 - rounds[0] * count], before[-1])
    fast = rates(later[0], later[rounds[1] * (count - 1)])
    at_once = rates(later[0], later[count - 1])
    due = count / (count - 1)
    gained = {name: fast[name] / max(slow[name], 1e-9) for name in others}
    rows = [[name, slow[name], fast[name], f"{gained[name]:.3f}", f"{due:.3f}"] for name in others]
    together = sum(at_once.values()) / max(sum(slow.values()), 1e-9)
    rows.append(["all, first round", sum(slow.values()), sum(at_once.values()), f"{together:.3f}", f"{due:.3f}"])
    print(harness.table(rows, [f"when {names[0]} has ended", "steps/s before", "after", "gained", "due"]), flush=True)
    run.fact(f"{rounds[0]} rounds of turns before, {rounds[1]} after, until the next program ends")
    run.check(
        "the next turn begins within one turn",
        later[0] - gone <= usual,
        f"{(later[0] - gone) / 1e9:.2f} s after {names[0]} ended; a turn is {usual / 1e9:.2f} s",
    )
    enough = due * SPEED_OF_DUE_MIN
    run.check(f"the others together speed up to {due:.3f} from that turn on", together >= enough, f"{together:.3f}")
    for name in others:
        run.check(f"{name} speeds up to {due:.3f}", gained[name] >= enough, f"{gained[name]:.3f}")


if __name__ == "__main__":
    given = parser.parse_args()
    keys = ("programs", "gib", "seconds", "step_s", "capacity", "arena", "gap_max", "moving_share")
    changed = {key: getattr(given, key) for key in keys if getattr(given, key) is not None}
    chosen = replace(CASES[given.case], **changed)
    harness.main(given.case, 590, lambda run: body(run, chosen, given.alloc_mib))
