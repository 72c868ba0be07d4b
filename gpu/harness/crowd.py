"""Programs of `programs/turns.cu`: how long their steps take, natively and together under a daemon."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass, replace

from . import timeline
from .program import Program, touch
from .sampler import SELDOM_S, MemorySampler
from .waiting import Failed, until

GIB = 1 << 30
SAME = ("steps", "bytes", "sum", "xor", "placed")
"""What a program must find as it did natively."""

RESERVE_MIB, CONTEXT_MIB, SLACK_MIB = 696, 540, 200
"""What the daemon keeps for itself with an arena of 48 GiB, what a context takes on an H200 or a little more, and what they may be off
by in all."""


IDLE_S = 0.5
"""Long enough for what went before to be over on the GPU."""


@dataclass
class Shape:
    """What all programs of a crowd are like. `rounds` says how long a step is."""

    gib: float
    alloc_mib: int = 1024
    rounds: int = 64
    step_s: float = 0.0
    read_only: bool = False
    flips_s: float = 0.0
    """So far apart bits are turned over, if it is not 0."""
    hot_gib: float = 0.0
    sleep_s: float = 0.0

    def flags(self) -> list:
        """As the program takes them."""
        size = ["--gib", self.gib, "--alloc-mib", self.alloc_mib]
        hot = ["--hot-gib", self.hot_gib] if self.hot_gib else []
        hot += ["--sleep-s", self.sleep_s] if self.sleep_s else []
        kinds = (["--read-only"] if self.read_only else []) + (["--flips", self.flips_s] if self.flips_s else [])
        return size + hot + ["--rounds", self.rounds] + kinds


class Turner:
    """One program, and the files by which it is told and tells."""

    def __init__(self, run, label: str, binary, shape: Shape, seed: int, steps: int = 0, under=None, start=None, terms=(), waits=False):
        self.label = label
        self.context, self.memory = (run.work / f"{label}.{kind}" for kind in ("context", "memory"))
        self.ready, self.stop_file, self.progress = (run.work / f"{label}.{kind}" for kind in ("ready", "stop", "progress"))
        argv = [binary, *shape.flags(), "--seed", seed, "--steps", steps]
        argv += ["--ready-file", self.ready, "--stop-file", self.stop_file, "--progress-file", self.progress]
        argv += ["--start-file", start] if start else []
        argv += ["--context-file", self.context, "--memory-file", self.memory] if waits else []
        self.program: Program = run.command(label, [str(word) for word in argv], under, terms=terms)
        self.pid = self.program.pid

    def take_memory(self):
        """One that `waits` has its context: from now on it takes memory."""
        self.program.wait_file(self.context)
        time.sleep(IDLE_S)
        touch(self.memory)

    def wait_ready(self, timeout_s: float = 120.0):
        """Until it has all its memory, filled."""
        self.program.wait_file(self.ready, timeout_s)

    def stop(self):
        """Tells it to end after this step."""
        touch(self.stop_file)

    def result(self, timeout_s: float) -> dict:
        """What it found at its end."""
        return self.program.result(timeout_s)

    def step_times(self) -> list[int]:
        """When each of its steps was done."""
        try:
            with open(self.progress, "rb") as file:
                done = struct.unpack("<Q", file.read(8).ljust(8, b"\0"))[0]
                return list(struct.unpack(f"<{done}Q", file.read(8 * done)))
        except FileNotFoundError:
            return []


def calibrated(run, binary, gib: float, alloc_mib: int, step_s: float) -> Shape:
    """A shape whose steps take about so long natively, on this machine."""
    flags = ["--gib", gib, "--alloc-mib", alloc_mib, "--calibrate-s", step_s]
    found = run.command("calibrate", [binary, *map(str, flags)]).result(90)
    shape = Shape(gib, alloc_mib, found["rounds"], found["step_s"])
    run.say(
        f"   a step is {shape.rounds} rounds over {gib:g} GiB and takes {shape.step_s * 1e3:.1f} ms; "
        f"with one round it takes {found['least_s'] * 1e3:.1f} ms"
    )
    if not 0.8 <= shape.step_s / max(step_s, found["least_s"]) <= 1.25:
        run.fact(f"steps of {step_s:g} s were asked for and are {shape.step_s:.3f} s")
    return shape


def gathered(run, daemon, binary, shape: Shape, seeds: dict, steps: dict, start, ready_s: float = 90.0) -> dict:
    """Programs under a daemon, each started when the one before it has all its memory; they wait for the file `start`."""
    crowd = {}
    for name, seed in seeds.items():
        crowd[name] = Turner(run, name, binary, shape, seed, steps[name], daemon, start)
        try:
            crowd[name].wait_ready(ready_s)
        except Failed as reason:
            why = sorted({event.get("why", "") for event in daemon.events.of("denied")})
            raise Failed(f"{reason}" + (f"; rota said: {'; '.join(why)}" if why else "")) from None
    return crowd


def capacity_for(programs: int, room_gib: float) -> str:
    """The size to treat the GPU as, so that so many programs find that much room beside their contexts, and little more."""
    return f"{round(room_gib * 1024) + RESERVE_MIB + programs * CONTEXT_MIB + SLACK_MIB}MiB"


def taking_turns(run, label: str, binary, shape: Shape, programs: int, count: int, **options) -> list:
    """Switches between programs that take turns until there were so many in which memory went both ways. Used memory is to stay under
    the capacity among the options."""
    memory = MemorySampler(SELDOM_S)
    daemon = run.daemon(label, **options)
    daemon.wait_arena(120)
    start = run.work / f"{label}.start"
    seeds = {f"{label}-{'ABCDEFGH'[n]}": n + 1 for n in range(programs)}
    crowd = gathered(run, daemon, binary, shape, seeds, dict.fromkeys(seeds, 0), start)
    run.say(f"   room for programs' memory: {daemon.room_bytes() / GIB:.2f} GiB of {programs * shape.gib:g} GiB that they have")
    mark = daemon.events.mark()
    touch(start)

    def swaps():
        begun = daemon.events.at_ns(daemon.events.all[mark - 1]) if mark else 0
        found = [switch for switch in timeline.switches(daemon.events) if switch.frozen_ns > begun]
        return [switch for switch in found if switch.bytes_out and switch.bytes_in]

    def enough():
        for turner in crowd.values():
            turner.program.must_live()
        return len(swaps()) >= count

    until(f"{count} switches", 30 + 10 * count, enough, 0.2)
    found = swaps()[:count]
    for turner in crowd.values():
        turner.stop()
    for name, turner in crowd.items():
        check_right(run, name, turner.result(120))
    memory.stop()
    memory.check_under(run, options["capacity"], label)
    daemon.check_no_errors()
    run.end_daemons()
    return found


@dataclass
class There:
    """What `driven_out` saw: all of a program's memory going out for another, switches between the two, the way back at the instant
    that one ended, and the way back when nothing else was left on the GPU."""

    out: timeline.Move
    swaps: list
    back_at_once: timeline.Move
    back: timeline.Move


def driven_out(run, label: str, binary, shape: Shape, count: int, turn: str, arena: str, between=lambda: None) -> There:
    """One program works alone; another one that has its context already asks for all its memory at once; they take turns; the second
    one ends, and the first comes back at once, while the other's memory is being cleared. Once more, but it is paused meanwhile, and
    resumed when the other is long gone. `between` is called within each turn until there were so many switches."""
    capacity, memory = capacity_for(2, shape.gib), MemorySampler(SELDOM_S)
    daemon = run.daemon(label, capacity=capacity, arena=arena, turn=turn)
    daemon.wait_arena(120)
    stays = Turner(run, f"{label}-stays", binary, shape, 1, under=daemon)
    stays.wait_ready()
    until("its first steps", 30, lambda: stays.program.must_live() and len(stays.step_times()) >= 3, 0.05)
    whole = replace(shape, alloc_mib=round(shape.gib * 1024))
    right = {}

    def comes(name, seed):
        turner = Turner(run, f"{label}-{name}", binary, whole, seed, under=daemon, waits=True)
        turner.take_memory()
        turner.wait_ready()
        return turner

    def ends(turner):
        turner.stop()
        right[turner.label] = turner.result(60)

    def goes_on():
        done = len(stays.step_times())
        until("the one that stayed to go on", 30, lambda: stays.program.must_live() and len(stays.step_times()) > done + 2, 0.05)

    def both_ways():
        return [switch for switch in timeline.switches(daemon.events) if switch.bytes_out and switch.bytes_in]

    first = comes("comes", 2)

    def one_more(before):
        return stays.program.must_live() and first.program.must_live() and len(both_ways()) > before

    while (before := len(both_ways())) < count:
        between()
        until(f"{count} switches", 40, lambda: one_more(before), 0.1)
    between()
    ends(first)
    goes_on()
    mark = daemon.events.mark()
    second = comes("comes-again", 3)
    daemon.rota("pause", stays.label)
    ends(second)
    time.sleep(IDLE_S)
    daemon.rota("resume", stays.label)
    goes_on()
    ends(stays)
    daemon.events.read()
    memory.stop()
    for name, found in right.items():
        check_right(run, name, found)
    memory.check_under(run, capacity, label)
    daemon.check_no_errors()
    all_moves, swaps = timeline.moves(daemon.events), both_ways()[:count]
    later = daemon.events.at_ns(daemon.events.all[mark - 1]) if mark else 0
    run.end_daemons()
    out = [move for move in all_moves if move.pids_out == (stays.pid,) and not move.bytes_in and move.begin_ns <= later]
    before = all_moves.index(max(out, key=lambda move: move.bytes_out)) if out else 0
    if before:
        run.fact(f"{label}: {before} moves of {sum(m.bytes_out for m in all_moves[:before]) / GIB:.2f} GiB came before the large one")
    back = [move for move in all_moves if move.pids_in == (stays.pid,) and not move.bytes_out]
    backs = [[move for move in back if (move.begin_ns > later) == is_later] for is_later in (False, True)]
    if not out or not all(backs):
        raise Failed(f"{len(out)} moves went out only, {len(backs[0])} and {len(backs[1])} came in only: one of each was expected")
    at_once, alone = (max(some, key=lambda move: move.bytes_in) for some in backs)
    return There(max(out, key=lambda move: move.bytes_out), swaps, at_once, alone)


def check_right(run, name: str, found: dict, native: dict | None = None):
    """One check: no word is wrong, and the result is the native one where there is one."""
    same = native is None or all(native[key] == found[key] for key in SAME)
    detail = f"{found['steps']} steps, sum {found['sum']} xor {found['xor']} placed {found['placed']}"
    if found["wrong"]:
        detail += f", {found['wrong']} words wrong, the first at {found['first_wrong']}"
    if not same:
        detail += f", native {[native[key] for key in SAME]}"
    what = "every word is right" + (", the result is the native one" if native else "")
    run.check(f"{name}: {what}", same and not found["wrong"], detail)
