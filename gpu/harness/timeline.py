"""What the daemon's events say of turns, gaps, moves and switches. Times are on the script's clock."""

from __future__ import annotations

from dataclasses import dataclass, field

from .tables import percentile, table

GIB = 1 << 30
ROWS_SHOWN_MAX = 48


@dataclass
class Turn:
    """One turn of a process; `end_ns` is None where the timeline ends before it."""

    pid: int
    begin_ns: int
    end_ns: int | None = None


@dataclass
class Move:
    """Memory on its way. `frozen_ns` is when the last one whose memory goes was off the GPU, or when the move began."""

    frozen_ns: int
    begin_ns: int
    end_ns: int
    bytes_out: int
    bytes_in: int
    pids_out: tuple
    pids_in: tuple
    failed: int
    times: dict = field(default_factory=dict)
    bytes_passed: int = 0
    bytes_short: int = 0

    @property
    def seconds(self) -> float:
        """From frozen to moved."""
        return (self.end_ns - self.frozen_ns) / 1e9


@dataclass
class Switch:
    """From one program to the next, where memory moved in between: from when the one was frozen to when the other is mapped."""

    last: int
    next: int
    frozen_ns: int
    mapped_ns: int
    moves: list = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """How long the GPU computed nothing, less the thaw."""
        return (self.mapped_ns - self.frozen_ns) / 1e9

    @property
    def bytes_out(self) -> int:
        """What went out meanwhile."""
        return sum(move.bytes_out for move in self.moves)

    @property
    def bytes_in(self) -> int:
        """What came in meanwhile."""
        return sum(move.bytes_in for move in self.moves)

    @property
    def bytes_passed(self) -> int:
        """What of that came into memory that another program had."""
        return sum(move.bytes_passed for move in self.moves)

    @property
    def each_way(self) -> float:
        """GB/s of the way that had more to carry."""
        return max(self.bytes_out, self.bytes_in) / 1e9 / self.seconds


def in_order(events) -> list[dict]:
    """All events by their time: several threads write, so neighbours may have changed places."""
    return sorted(events.all, key=lambda event: event["t_ns"])


def turns(events) -> list[Turn]:
    """All turns, by their begin."""
    found, open_turns = [], {}
    for event in in_order(events):
        pid, kind = event.get("pid"), event["event"]
        if kind == "turn_begin":
            open_turns[pid] = Turn(pid, events.at_ns(event))
            found.append(open_turns[pid])
        elif kind in ("turn_end", "left") and pid in open_turns:
            open_turns.pop(pid).end_ns = events.at_ns(event)
    return found


def gaps(of_one: list[Turn]) -> list[float]:
    """Seconds between each turn of one process and its next."""
    return [(b.begin_ns - a.end_ns) / 1e9 for a, b in zip(of_one, of_one[1:]) if a.end_ns is not None]


def pauses(of_all: list[Turn], began: int, ended: int) -> list[float]:
    """Seconds between each turn and the next one, whoever's they are: what the GPU lost. Turns that overlap lose nothing."""
    found, last = [], None
    for turn in sorted(of_all, key=lambda turn: turn.begin_ns):
        if last is not None and began < turn.begin_ns <= ended:
            found.append(max(0, turn.begin_ns - max(last, began)) / 1e9)
        if turn.end_ns is not None:
            last = max(last or 0, turn.end_ns)
    return found


def moves(events) -> list[Move]:
    """All moves that came to an end."""
    found, frozen, under_way, ended_ns = [], {}, None, 0
    pid_of = events.pid_of_tenant
    for event in in_order(events):
        at, kind = events.at_ns(event), event["event"]
        if kind == "freeze":
            frozen[event.get("pid")] = at
        elif kind == "move_begin":
            out, into = (tuple(pid_of.get(part["tenant"]) for part in event.get(key) or []) for key in ("out", "into"))
            since = [frozen[pid] for pid in out if frozen.get(pid, 0) > ended_ns]
            under_way = (max(since, default=at), at, out, into)
        elif kind == "move_end" and under_way:
            off, begin, out, into = under_way
            found.append(
                Move(
                    off,
                    begin,
                    at,
                    event.get("bytes_out", 0),
                    event.get("bytes_in", 0),
                    out,
                    into,
                    event.get("failed", 0),
                    event.get("times", {}),
                    event.get("passed_bytes", 0),
                    event.get("short_bytes", 0),
                )
            )
            under_way, ended_ns = None, at
    return found


def where_time_went(parts: list) -> str:
    """A table of what each lane did in each of these (label, moves): milliseconds between frozen and the first move's begin, then what
    the lanes copied and waited for, then what the daemon's own thread did. The lanes' columns add up to all of the moving. `short` is how much went out in short copies."""
    doing = ("copying", "hashing", "space", "room", "unmapping", "releasing", "creating", "taking", "fetching", "done")
    chores = ("import", "pass", "release", "record", "start")

    def ms(found, key):
        return sum(times.get(key, 0) for times in found) / 1e6

    rows = []
    for label, some in parts:
        before = sum(move.begin_ns - move.frozen_ns for move in some) / 1e6
        for way, unseen in (("out", "unseen_out"), ("in", "unseen_in")):
            lane = [move.times.get(way, {}) for move in some]
            size = sum(getattr(move, f"bytes_{way}") for move in some)
            copying = ms(lane, "copying")
            row = [label, way, before, *(ms(lane, what) for what in doing)]
            row += [ms([move.times for move in some], unseen), size / 1e6 / copying if copying else None]
            row.append(sum(move.bytes_short for move in some) / GIB if way == "out" else None)
            own = [move.times.get("chores", {}) for move in some]
            row += [ms(own, what) for what in chores] if way == "out" else [None] * len(chores)
            rows.append(row)
            label, before = "", 0.0
    return table(rows, ["ms", "lane", "before", *doing, "unseen", "GB/s copying", "GiB short", *chores])


def switches(events) -> list[Switch]:
    """All switches in which memory moved. What moved before the one was frozen, or after the other was mapped, is not in them."""
    moved = {move.end_ns: move for move in moves(events)}
    found, last, meanwhile = [], None, []
    for event in in_order(events):
        at, kind, pid = events.at_ns(event), event["event"], event.get("pid")
        if kind == "freeze" and not event.get("rest"):
            last, meanwhile = (pid, at), []
        elif kind == "move_end" and at in moved:
            meanwhile.append(moved[at])
        elif kind == "thaw" and last:
            if meanwhile and pid != last[0]:
                found.append(Switch(last[0], pid, last[1], at - event.get("took_ns", 0), meanwhile))
            last, meanwhile = None, []
    return found


def show(run, events, names, began, ended, rows_shown=ROWS_SHOWN_MAX):
    """Prints the timeline and a summary of it between two instants; all of it goes to timeline.txt. `names` are by process."""

    def name(pid):
        return names.get(pid, "?")

    rows, out, into, moving_ns = [], [], [], 0
    latest = {"freeze": [], "thaw": []}
    parties = {}
    for event in events.all:
        at = events.at_ns(event)
        kind = event["event"]
        if kind == "move_begin":
            parties = {
                way: "+".join(name(events.pid_of_tenant.get(part["tenant"])) for part in event.get(key) or [])
                for way, key in (("out", "out"), ("in", "into"))
            }
        if not began <= at <= ended:
            continue
        second = f"{(at - began) / 1e9:8.3f}"
        if kind in latest:
            latest[kind].append(event["took_ns"])
            rows.append([second, name(event.get("pid")), kind, event["took_ns"] / 1e6, None])
        elif kind == "move_end":
            moving_ns += event.get("took_ns", 0)
            for way, what, found in (("out", "moved out", out), ("in", "moved in", into)):
                size, took = event.get(f"bytes_{way}") or 0, event.get(f"{way}_ns") or 0
                if size and took:
                    found.append(size / took)
                    said = f"{what} {size / GIB:.2f} GiB"
                    rows.append([second, parties.get(way, "?"), said, took / 1e6, size / took])
            said = "move in all" + (" FAILED" if event.get("failed") else "")
            rows.append([second, "", said, event.get("took_ns", 0) / 1e6, None])
        elif kind == "turn_end":
            rows.append([second, name(event.get("pid")), "turn ended, ran", event.get("ran_ns", 0) / 1e6, None])
    header = ["time, s", "who", "what", "ms", "GB/s"]
    run.write("timeline.txt", table(rows, header) + "\n")
    print(table(rows[:rows_shown], header))
    if len(rows) > rows_shown:
        print(f"({len(rows) - rows_shown} rows more in timeline.txt)")

    def mean(values):
        return sum(values) / len(values) if values else None

    def ms(values, share):
        found = percentile(values, share)
        return None if found is None else found / 1e6

    summary = [
        len(events.of("move_end")),
        mean(out),
        mean(into),
        ms(latest["freeze"], 0.5),
        ms(latest["freeze"], 1.0),
        ms(latest["thaw"], 0.5),
        ms(latest["thaw"], 1.0),
        f"{100 * moving_ns / (ended - began):.2f}%",
    ]
    header = ["moves", "out GB/s", "in GB/s", "freeze p50 ms", "max", "thaw p50 ms", "max", "time moving"]
    print(table([summary], header), flush=True)
    swaps = [switch for switch in switches(events) if began <= switch.frozen_ns <= ended and switch.bytes_out and switch.bytes_in]
    if swaps:
        usual = sorted(swaps, key=lambda switch: switch.seconds)[len(swaps) // 2]
        print("Where the time of a switch went: the median one, and the longest.")
        longest = max(swaps, key=lambda switch: switch.seconds)
        print(where_time_went([("median", usual.moves), ("longest", longest.moves)]), flush=True)
