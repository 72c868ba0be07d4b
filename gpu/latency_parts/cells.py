"""A service, programs that keep the GPU busy beside it, and what was measured of both at once."""

from __future__ import annotations

import array
import contextlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import harness
from harness import Busy, Failed, Spoken
from harness.run import PROGRAMS

from .processors import Processors
from .slow import explained

SHAPES = {"kernel": "steady", "copied": "steady", "transformer": "poisson", "convolution": "poisson", "bursts": "bursts"}
"""The services, and how their requests come."""
RATE = 100
"""Requests a second."""
PREPARES_US = 2000
"""From the arrival of a request to its first call of the GPU."""
TURNS_OF_A_REQUEST = 2000
"""Of the loop in its kernel: some 60 us on an H200."""

MUCH = 1.05
"""Of the slow ones alone: what slower ones waited for is looked for."""

HEADER = ["service", "set-up", "beside it", "n", "late", "p50 us", "p99", "p99.9", "max", "mean", "p50/alone", "p99/alone", "they keep", "misses"]


@dataclass
class Cell:
    """What was measured once, or why it was not."""

    setup: str
    beside: str
    times: list = field(default_factory=list)
    """In microseconds, sorted."""
    late: int = 0
    """Requests that began later than they were to, through no fault of the GPU."""
    kept: float | None = None
    """What those beside it did, of what one of them does alone."""
    hints: dict = field(default_factory=dict)
    """What became of hints meanwhile."""
    misses: list = field(default_factory=list)
    """What it was to reach, and did not."""
    why_not: str = ""

    def percentile(self, share):
        return self.times[min(len(self.times) - 1, int(share * len(self.times)))]

    def mean(self):
        return sum(self.times) / len(self.times)


class Service(Spoken):
    """A service. It is started, and waited for with `ready`."""

    def __init__(self, bench, label, kind, under=None, env=None, hints="off", terms=("--class", "lc", "--slo", "10ms"), core=0, **words):
        run = bench.run
        core = str(run.cores[core]) if run.cores else None
        if kind in ("transformer", "convolution"):
            argv = [run.python, "-u", PROGRAMS / "latency_net.py", kind, *([core] if core else [])]
        else:
            words |= {"copied": 1} if kind == "copied" else {}
            words |= {"core": core} if core else {}
            argv = [bench.service, *(f"{name}={value}" for name, value in words.items())]
        first = {"PYTHONPATH": PROGRAMS.parent.parent / "python", "LD_LIBRARY_PATH": run.work}
        said = {name: ":".join(filter(None, (str(path), os.environ.get(name)))) for name, path in first.items()}
        said |= {"ROTA_HINTS": hints, "ROTA_SDK": str(run.bundled("librota.so")), "ROTA_QUIET": "1"}
        super().__init__(run, label, argv, under, run.terms(*terms) if under else (), {**(env or {}), **said}, ready_s=None)
        self.bench, self.kind, self.under, self.orders, self.counted, self.last = bench, kind, under, 0, {}, []

    def serve(self, requests, hints=False, prepares_us=PREPARES_US, off_us=0.0, rate=RATE):
        """The sorted times of so many requests, and how many began late. `last` has them as they came."""
        self.orders += 1
        path = self.bench.run.logs / f"{self.label}-{self.orders}.f64"
        self.say(f"{path} {SHAPES[self.kind]} {requests} {rate:g} {int(hints)} {prepares_us} {off_us} {self.orders}")
        return lambda: self._served(path, requests, 30 + 4 * requests / rate)

    def _served(self, path: Path, requests, timeout_s):
        answer = self.hear(timeout_s)
        if f'"requests": {requests}' not in answer:
            raise Failed(f"{self.label}: {answer}")
        times = array.array("d", path.read_bytes())
        path.unlink(missing_ok=True)
        if len(times) != 2 * requests:
            raise Failed(f"{self.label} wrote {len(times)} figures of {requests} requests")
        times, began = times[:requests], times[requests:]
        self.last = [(int(begun), int(1e3 * took)) for begun, took in zip(began, times)]
        return sorted(times), int(answer.rsplit(" ", 1)[1].rstrip("}"))

    def described(self):
        """What rota says of it; nothing natively."""
        found = (self.under.describe(self.label) if self.under else None) or {}
        return next((tenant for job in found.get("jobs", []) for tenant in job["tenants"]), {})

    def new_hints(self):
        """What became of hints since the last time."""
        now = {name: count for name, count in (self.described().get("hints") or {}).items() if isinstance(count, int)}
        new = {name: count - self.counted.get(name, 0) for name, count in now.items() if name != "rhythm_ns"}
        self.counted = now
        return {name: count for name, count in new.items() if count}


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
        self.solo, self.cells = {}, []
        # By the names that the linker and the program look for.
        for name in ("librota.so", "librota.so.1"):
            (run.work / name).symlink_to(run.bundled("librota.so").resolve())
        sdk = ["-I", str(run.bundled("rota.h").resolve().parent), "-L", str(run.work), "-lrota"]
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
        """One cell."""
        daemon = service.under
        seen, meanwhile = (daemon.events.mark(), Processors(daemon.workers())) if daemon else (0, Processors({}))
        before = beside.counts() if beside else None
        times, late = service.serve(requests, setup == "sdk" if hints is None else hints, **words)()
        kept = None
        if beside:
            after = beside.counts()
            kept = (after[1] - before[1]) / (after[0] - before[0]) / self.solo[beside.kind]
        meanwhile.end()
        cell = Cell(setup, beside.what if beside else "alone", times, late, kept, service.new_hints())
        self.cells.append(cell)
        self.run.say("   " + "  ".join(harness.fmt(value) for value in self.row(cell)) + (f"   hints {cell.hints}" if cell.hints else ""))
        self.run.say(f"      processors, ms a second: {meanwhile.said}")
        base = self.alone()
        if daemon and beside and cell.hints and base:
            daemon.events.read()
            limit_us = MUCH * base.percentile(0.99)
            for line in explained(daemon.events.all[seen:], daemon.events.offset_ns(), service.label, service.last, limit_us):
                self.run.say(f"      {line}")
        return cell

    def solo_rates(self, kinds):
        """What one of each kind does alone, natively."""
        for kind in kinds:
            program = Beside(self, "solo", f"1x{kind}")
            before = program.counts()
            time.sleep(2.5)
            after = program.counts()
            program.end()
            self.solo[kind] = (after[1] - before[1]) / (after[0] - before[0])

    def natively_alone(self, requests, **words):
        service = Service(self, f"alone{len(self.cells)}", self.given.service, **words)
        try:
            service.ready()
            return self.measure(service, "native", None, requests)
        finally:
            service.end()

    def alone(self):
        """All that was measured with nobody beside, together; None before there is any."""
        times = sorted(time for cell in self.cells if cell.setup == "native" for time in cell.times)
        return Cell("native", "alone", times) if times else None

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
        return [*head, len(cell.times), cell.late, *figures, f"{cell.mean():.1f}", ratio(0.5), ratio(0.99), kept, ", ".join(cell.misses) or None]

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
