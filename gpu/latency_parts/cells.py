"""A service, programs that keep the GPU busy beside it, and what was measured of both at once."""

from __future__ import annotations

import array
import contextlib
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import harness
from harness import Busy, Failed, Spoken
from harness.run import PROGRAMS

from .nearby import nearby
from .processors import Processors
from .slow import explained

SHAPES = {"kernel": "steady", "copied": "steady", "transformer": "poisson", "convolution": "poisson", "bursts": "bursts"}
"""The services, and how their requests come."""
NETWORKS = ("transformer", "convolution")
RATE = 100
"""Requests a second."""
PREPARES_US = 2000
"""From the arrival of a request to its first call of the GPU."""
WARM = 50
"""Requests before those that are counted, beside others under rota: it forgets in 5 s of silence when they come, and a service rests
for longer while others start."""
TURNS_OF_A_REQUEST = 2000
"""Of the loop in its kernel: some 60 us on an H200."""

MUCH = 1.05
"""Of the slow ones alone: what slower ones waited for is looked for."""
SPARE_S = 20
"""What requests may take longer than they come, all together: then no more are begun."""
ONE_S = 40
"""What the last of them may take, if each kernel of a network waits for whole kernels of others."""
STOLEN_MAX_MS = 10
"""A second: where other machines had more of the processors, it is measured again."""
AGAIN_S = 60
"""What may go into that, all together."""
STEADY = (("p50", 0.5, 0.05), ("p99", 0.99, 0.10))
"""How far alone may be apart before and after."""

HEADER = ["service", "set-up", "beside it", "n", "late", "p50 us", "p99", "p99.9", "max", "mean", "p50/alone", "p99/alone", "they keep", "misses"]


@dataclass
class Cell:
    """What was measured once, or why it was not."""

    setup: str
    beside: str
    times: list = field(default_factory=list)
    """In microseconds, sorted."""
    whole: list = field(default_factory=list)
    """From their arrivals to their completions, in microseconds, sorted."""
    late: int = 0
    """Requests that began later than they were to, through no fault of the GPU."""
    rate: float | None = None
    """What those beside it did in a second."""
    solo: list = field(default_factory=list)
    """What one of them does alone in a second, each time it was measured: the last may come later."""
    hints: dict = field(default_factory=dict)
    """What became of hints meanwhile."""
    misses: list = field(default_factory=list)
    """What it was to reach, and did not."""
    notes: list = field(default_factory=list)
    """What else is to be known of it."""
    stolen_ms: float = 0.0
    """What other machines had of the processors, a second."""
    disturbed: bool = False
    """It was measured again, and does not count."""
    why_not: str = ""

    @property
    def counts(self):
        return bool(self.times) and not self.disturbed

    @property
    def kept(self):
        """What those beside it did, of what one of them does alone."""
        return None if self.rate is None else self.rate / (sum(self.solo) / len(self.solo))

    def percentile(self, share):
        return self.times[min(len(self.times) - 1, int(share * len(self.times)))]

    def mean(self):
        return sum(self.times) / len(self.times)


class Service(Spoken):
    """A service. It is started, and waited for with `ready`."""

    def __init__(self, bench, label, kind, under=None, env=None, hints="off", terms=("--class", "lc", "--slo", "10ms"), core=0, **words):
        run = bench.run
        core = str(run.cores[core]) if run.cores else None
        if kind in NETWORKS:
            argv = [run.python, "-u", PROGRAMS / "latency_net.py", kind, *([core] if core else [])]
        else:
            words |= {"copied": 1} if kind == "copied" else {}
            words |= {"core": core} if core else {}
            argv = [bench.service, *(f"{name}={value}" for name, value in words.items())]
        first = {"PYTHONPATH": PROGRAMS.parent.parent / "python", "LD_LIBRARY_PATH": run.work}
        said = {name: ":".join(filter(None, (str(path), os.environ.get(name)))) for name, path in first.items()}
        said |= {"ROTA_HINTS": hints, "ROTA_SDK": str(run.bundled("librota.so")), "ROTA_QUIET": "1"}
        super().__init__(run, label, argv, under, run.terms(*terms) if under else (), {**(env or {}), **said}, ready_s=None)
        self.bench, self.kind, self.under, self.orders, self.counted, self.last, self.whole = bench, kind, under, 0, {}, [], []

    def serve(self, requests, hints=False, prepares_us=PREPARES_US, off_us=0.0, spread_us=0.0, rate=RATE, shape=None):
        """The sorted times of so many requests, or of those that could be served in that time, and how many began late. `last` has
        them as they came, `whole` from their arrivals."""
        self.orders += 1
        number, longest_s = self.orders, most_s(requests, rate)
        path = self.bench.run.logs / f"{self.label}-{number}.f64"
        self.say(f"{path} {shape or SHAPES[self.kind]} {requests} {rate:g} {int(hints)} {prepares_us} {off_us} {spread_us} {longest_s:g} {number}")
        return lambda: self._served(path, number, requests, longest_s + ONE_S)

    def nodes(self):
        """How many its graph has, by its first word; None where it does not say."""
        try:
            return json.loads(self.told).get("nodes")
        except (ValueError, AttributeError):
            raise Failed(f"{self.label}: {self.told}") from None

    def _answer(self, number, timeout_s):
        """What it says to this order. An answer that comes too late for one before is passed over."""
        deadline = time.monotonic() + timeout_s
        while True:
            line = self.hear(max(0.1, deadline - time.monotonic()))
            try:
                answer = json.loads(line)
                if answer["order"] == number:
                    return answer["requests"], answer["late"]
            except (ValueError, KeyError, TypeError):
                raise Failed(f"{self.label}: {line}") from None

    def _served(self, path: Path, number, requests, timeout_s):
        served, late = self._answer(number, timeout_s)
        try:
            figures = array.array("d", path.read_bytes())
            path.unlink()
        except (OSError, ValueError) as reason:
            raise Failed(f"{self.label}: {reason}") from reason
        if not 0 < served <= requests or len(figures) != 3 * served:
            raise Failed(f"{self.label} wrote {len(figures)} figures of {served} requests, of {requests}")
        times, began, whole = (figures[n * served : (n + 1) * served] for n in range(3))
        self.last = [(int(begun), int(1e3 * took)) for begun, took in zip(began, times)]
        self.whole = sorted(whole)
        return sorted(times), late

    def job(self):
        """What rota says of its job; nothing natively."""
        found = (self.under.describe(self.label) if self.under else None) or {}
        return next(iter(found.get("jobs", [])), {})

    def described(self):
        """What rota says of it; nothing natively."""
        return next(iter(self.job().get("tenants", [])), {})

    def new_hints(self):
        """What became of hints since the last time."""
        now = {name: count for name, count in (self.described().get("hints") or {}).items() if isinstance(count, int)}
        new = {name: count - self.counted.get(name, 0) for name, count in now.items() if name != "rhythm_ns"}
        self.counted = now
        return {name: count for name, count in new.items() if count}


def most_s(requests, rate=RATE):
    """After so long no more of these requests are begun."""
    return SPARE_S + requests / rate


def end_busy(programs):
    """Ends programs that keep the GPU busy, all at the same time: some may get no turn before others are gone."""
    failed = []
    for program in programs:
        harness.touch(program.stop_path)
    for program in programs:
        try:
            program.end()
        except Failed as reason:
            failed.append(str(reason))
    if failed:
        raise Failed("; ".join(failed)[-600:])


class Beside:
    """Programs that keep the GPU busy, so many of a kind: `4x50us`."""

    def __init__(self, bench, label, what, under=None, env=None):
        run, self.what = bench.run, what
        count, self.kind = what.split("x", 1)
        self.programs = []
        try:
            for n in range(int(count)):
                core = run.cores[1 + n] if run.cores else None
                name = f"{label}-{self.kind.replace(':', '-')}-{n}"
                self.programs.append(Busy(run, name, bench.busy, self.kind, under, core=core, env=env))
            for program in self.programs:
                program.wait(60)
            time.sleep(0.5)
        except BaseException:
            with contextlib.suppress(Failed):
                self.end()
            raise

    def counts(self):
        for program in self.programs:
            program.program.must_live()
        return time.monotonic(), sum(program.count() for program in self.programs)

    def end(self):
        end_busy(self.programs)


class Bench:
    """What one run of the script has measured so far, and what it measures with."""

    def __init__(self, run, given, deadline):
        self.run, self.given, self.deadline = run, given, deadline
        self.solo, self.cells, self.again_s, self.nodes = {}, [], AGAIN_S, None
        library, header = (run.bundled(name).resolve() for name in ("librota.so", "rota.h"))
        (run.work / "librota.so.1").symlink_to(library)  # the name that the program looks for
        # These words are in the name under which the program is kept for other runs: no folder of this run may be in them.
        sdk = ["-I", str(header.parent), "-L", str(library.parent), "-lrota"]
        with ThreadPoolExecutor() as pool:
            service = pool.submit(run.build, "latency.cu", "-arch=native", *sdk)
            busy = pool.submit(run.build, "shares.cu", "-arch=native")
            self.service, self.busy = service.result(), busy.result()

    def left_s(self):
        return self.deadline - time.monotonic()

    def daemon(self, **settings):
        """A daemon of its own name: each has its own events."""
        self.daemons = getattr(self, "daemons", 0) + 1
        daemon = self.run.daemon(f"latency{self.daemons}", **{"capacity": "64GiB", "arena": "4GiB", **settings})
        daemon.wait_arena()
        return daemon

    def measure(self, service, setup, beside, requests, hints=None, **words):
        """One cell; once more where other machines had the processors meanwhile. Both are in the table, the second counts."""
        hints = setup == "sdk" if hints is None else hints
        began = time.monotonic()
        cell = self._measure(service, setup, beside, requests, hints, words)
        took = time.monotonic() - began
        if cell.stolen_ms > STOLEN_MAX_MS and took <= min(self.again_s, self.left_s() - took):
            self.again_s -= took
            cell.disturbed = True
            cell.notes.append("again below")
            cell = self._measure(service, setup, beside, requests, hints, words)
        self.all_served(cell, requests, words)
        return cell

    def _measure(self, service, setup, beside, requests, hints, words):
        daemon = service.under
        if daemon and beside:
            service.serve(WARM, hints, **words)()
            service.new_hints()
        seen, meanwhile = (daemon.events.mark(), Processors(daemon.workers())) if daemon else (0, Processors({}))
        before = beside.counts() if beside else None
        times, late = service.serve(requests, hints, **words)()
        cell = Cell(setup, beside.what if beside else "alone", times, service.whole, late)
        if beside:
            after = beside.counts()
            cell.rate, cell.solo = (after[1] - before[1]) / (after[0] - before[0]), self.solo[beside.kind]
        meanwhile.end()
        cell.hints, cell.stolen_ms = service.new_hints(), meanwhile.stolen_ms
        if cell.stolen_ms > STOLEN_MAX_MS:
            cell.notes.append(f"{cell.stolen_ms:.0f} ms a second stolen")
        self.cells.append(cell)
        self.run.say("   " + "  ".join(harness.fmt(value) for value in self.row(cell)) + (f"   hints {cell.hints}" if cell.hints else ""))
        whole = [harness.percentile(cell.whole, share) for share in (0.5, 0.99)]
        self.run.say(f"      from arrival to completion, us: p50 {whole[0]:.0f}, p99 {whole[1]:.0f}")
        self.run.say(f"      processors, ms a second: {meanwhile.said}")
        if daemon and beside:
            daemon.events.read()
            self.explain(cell, service, daemon.events.all[seen:], daemon.events.offset_ns())
        return cell

    def all_served(self, cell, requests, words):
        """Under rota and alone, all requests are to be served; what others do not serve is noted."""
        if len(cell.times) == requests:
            return
        reached = f"{len(cell.times)} of {requests} in {most_s(requests, words.get('rate', RATE)):.0f} s"
        if cell.setup == "stock":
            cell.notes.append(reached)
        elif cell.setup in ("mps", "mps50"):
            cell.notes.append(f"{reached}: each waits for whole kernels")
        else:
            self.check(cell, "all requests are served", False, reached, reached)

    def explain(self, cell, service, events, offset_ns):
        """What the slow ones waited for: with hints, those slower than alone; without, the slowest."""
        base = self.alone()
        if cell.hints and base:
            lines = explained(events, offset_ns, service.label, service.last, MUCH * base.percentile(0.99))
        else:
            lines = nearby(events, offset_ns, service.label, service.last, cell.percentile(0.99))
        for line in lines:
            self.run.say(f"      {line}")

    def solo_rates(self, kinds):
        """What one of each kind does alone, natively: before all else, and after."""
        for kind in kinds:
            program = Beside(self, "solo", f"1x{kind}")
            before = program.counts()
            time.sleep(2.5)
            after = program.counts()
            program.end()
            self.solo.setdefault(kind, []).append((after[1] - before[1]) / (after[0] - before[0]))
            said = f"one {kind} alone: " + " and ".join(f"{rate:.1f}" for rate in self.solo[kind]) + " a second"
            self.run.fact(said) if len(self.solo[kind]) > 1 else self.run.say(f"   {said}")

    def natively_alone(self, requests, **words):
        service = Service(self, f"alone{len(self.cells)}", self.given.service, **words)
        try:
            service.ready()
            self.nodes = service.nodes()
            return self.measure(service, "native", None, requests)
        finally:
            service.end()

    def alone(self):
        """All that was measured with nobody beside, together; None before there is any."""
        times = sorted(time for cell in self.natives() for time in cell.times)
        return Cell("native", "alone", times) if times else None

    def natives(self):
        return [cell for cell in self.cells if cell.setup == "native" and cell.counts]

    def check_steady(self):
        """Alone is to be the same before and after: what changed meanwhile is in all figures between."""
        natives = self.natives()
        if len(natives) < 2:
            return self.run.check("alone: measured before and after", False, f"{len(natives)} times")
        for name, share, most in STEADY:
            first, last = natives[0].percentile(share), natives[-1].percentile(share)
            steady = max(first, last) <= (1 + most) * min(first, last)
            said = f"{first:.0f} and {last:.0f} us" + ("" if steady else ": baseline not steady")
            self.run.check(f"alone, before and after: {name} within {100 * most:.0f}%", steady, said)
        self.say_range(natives)

    def say_range(self, natives):
        """How far alone was apart from one time to another, and what that makes of the ratios of those that hint."""
        of_alone = {name: [cell.percentile(share) for cell in natives] for name, share, _ in STEADY}
        ranges = ", ".join(f"{name} {min(found):.1f} to {max(found):.1f} us" for name, found in of_alone.items())
        self.run.fact(f"alone, measured {len(natives)} times: {ranges}")
        base = self.alone()
        for cell in (cell for cell in self.cells if cell.setup == "sdk" and cell.beside != "alone" and cell.counts):
            ratios = []
            for name, share, _ in STEADY:
                mine, found = cell.percentile(share), of_alone[name]
                ratios.append(f"{name} {mine / base.percentile(share):.3f} ({mine / max(found):.3f} to {mine / min(found):.3f})")
            self.run.fact(f"sdk, beside {cell.beside}: of alone all together (of each time): {', '.join(ratios)}")

    def busy_share(self):
        """How much of the time the service needs the GPU alone."""
        return self.alone().mean() * RATE / 1e6

    def row(self, cell):
        head = [self.given.service, cell.setup, cell.beside]
        if not cell.times:
            return head + [0] + [None] * (len(HEADER) - 5) + [f"not measured: {cell.why_not}"]
        base = self.alone()
        ratio = lambda share: f"{cell.percentile(share) / base.percentile(share):.3f}" if base else None
        figures = [f"{cell.percentile(share):.0f}" for share in (0.5, 0.99, 0.999, 1.0)]
        kept = None if cell.kept is None else f"{100 * cell.kept:.1f}%"
        said = ", ".join(cell.misses + [f"({note})" for note in cell.notes])
        return [*head, len(cell.times), cell.late, *figures, f"{cell.mean():.1f}", ratio(0.5), ratio(0.99), kept, said or None]

    def check(self, cell, what, ok, detail, short):
        """A check of one cell: what it misses is named in its row, too."""
        self.run.check(f"{self.given.service}, {cell.setup}, beside {cell.beside}: {what}", ok, detail)
        if not ok:
            cell.misses.append(short)

    def print_table(self):
        if not self.cells:
            return
        table = harness.table([self.row(cell) for cell in self.cells], HEADER)
        print(table, flush=True)
        self.run.write("latency.txt", table + "\n")
