"""Latency: how long requests of a service take beside programs that keep the GPU busy, and what those keep.

The service is one short kernel a request, or the inference of a network as a CUDA graph; its requests come steadily, by chance,
or in bursts. A request's time is from its first call of the GPU to its completion. Beside it run one or four programs of short
kernels, of kernels of 50 ms, or of graphs: under the stock driver, MPS, MPS with those at half of the threads, and rota: without
hints, with what the shim sees, with a forecast, and with hints of the service itself. Alone is measured before and after.

Every cell of the grid is in the table. A cell that misses what it has to reach is a FAIL.
"""

import argparse
import array
import time
from dataclasses import dataclass
from pathlib import Path

import harness
from harness import Busy, Failed, Spoken
from harness.mps import Mps
from harness.run import PROGRAMS

SETUPS = ("stock", "mps", "mps50", "none", "own", "forecast", "sdk")
UNDER_ROTA = {"none": "off", "own": "shim", "forecast": "forecast", "sdk": "sdk"}
"""Which hints there are, for each set-up under rota: the service's ROTA_HINTS."""
SHAPES = {"kernel": "steady", "transformer": "poisson", "convolution": "poisson", "bursts": "bursts"}
KINDS = ("50us", "50ms", "graphs")
RATE = 100
PREPARES_US = 2000
HINT_COST_MS = 0.9

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--part", choices=("headline", "grid", "windows", "leads"), default="grid")
parser.add_argument("--service", choices=tuple(SHAPES), default="kernel")
parser.add_argument("--setups", default=",".join(SETUPS), help="some of them, with commas")
parser.add_argument("--beside", default=None, help="how many and what: 1x50us,4x50ms,...; by default what the part asks for")
parser.add_argument("--requests", type=int, default=None, help="in one cell: 1000 in the grid, 10000 in the headline")
parser.add_argument("--windows", type=int, default=20, help="alone and beside others in turn, so many of each")
given = parser.parse_args()


@dataclass
class Cell:
    """What was measured once."""

    setup: str
    beside: str
    times: list
    late: int
    kept: float | None
    """What those beside it did, of what one of them does alone."""

    def percentile(self, share):
        return self.times[min(len(self.times) - 1, int(share * len(self.times)))]

    def mean(self):
        return sum(self.times) / len(self.times)


class Service(Spoken):
    """The service."""

    def __init__(self, run, label, under=None, env=None, hints="off"):
        if given.service in ("kernel", "bursts"):
            argv = [run.service]
        else:
            argv = [run.python, "-u", PROGRAMS / "latency_net.py", given.service]
        argv += [str(run.cores[0])] if run.cores else []
        sdk = {"ROTA_HINTS": hints, "ROTA_SDK": str(run.bundled("librota.so")), "PYTHONPATH": str(PROGRAMS.parent.parent / "python"), "ROTA_QUIET": "1"}
        terms = run.terms("--class", "lc", "--slo", "10ms") if under else ()
        super().__init__(run, label, argv, under, terms, {**(env or {}), **sdk})
        self.run, self.orders = run, 0

    def serve(self, requests, hints=False, prepares_us=PREPARES_US, off_us=0.0):
        """The sorted times of so many requests, and how many came late."""
        self.orders += 1
        path = self.run.logs / f"{self.label}-{self.orders}.f64"
        line = f"{path} {SHAPES[given.service]} {requests} {RATE} {int(hints)} {prepares_us} {off_us} {self.orders}"
        answer = self.tell(line, 30 + 4 * requests / RATE)
        if f'"requests": {requests}' not in answer:
            raise Failed(f"{self.label}: {answer}")
        times = array.array("d", path.read_bytes())
        return sorted(times), int(answer.rsplit(" ", 1)[1].rstrip("}"))


class Beside:
    """Programs that keep the GPU busy."""

    def __init__(self, run, label, what, under=None, env=None):
        self.run, self.what = run, what
        count, kind = what.split("x")
        self.programs = []
        try:
            for n in range(int(count)):
                core = run.cores[1 + n] if run.cores else None
                self.programs.append(Busy(run, f"{label}-{kind}-{n}", run.busy, kind, under, core=core, env=env))
            for program in self.programs:
                program.wait(60)
            time.sleep(1.0)
        except BaseException:
            self.end()
            raise
        self.kind = kind

    def counts(self):
        for program in self.programs:
            program.program.must_live()
        return time.monotonic(), sum(program.count() for program in self.programs)

    def end(self):
        failed = []
        for program in self.programs:
            try:
                program.end()
            except Failed as reason:
                failed.append(str(reason))
        if failed:
            raise Failed("; ".join(failed)[-600:])


def measure(run, service, setup, beside, requests, **words):
    """One cell."""
    before = beside.counts() if beside else None
    times, late = service.serve(requests, setup == "sdk", **words)
    kept = None
    if beside:
        after = beside.counts()
        kept = (after[1] - before[1]) / (after[0] - before[0]) / run.solo[beside.kind]
    cell = Cell(setup, beside.what if beside else "alone", times, late, kept)
    run.cells.append(cell)
    run.say(f"   {row_of(run, cell)}")
    return cell


def solo_rates(run, kinds):
    """What one of each kind does alone, natively."""
    for kind in kinds:
        program = Beside(run, "solo", f"1x{kind}")
        before = program.counts()
        time.sleep(2.5)
        after = program.counts()
        program.end()
        run.solo[kind] = (after[1] - before[1]) / (after[0] - before[0])


def alone(run):
    """All that was measured with nobody beside, natively, together."""
    times = sorted(time for cell in run.cells if cell.setup == "native" for time in cell.times)
    return Cell("native", "alone", times, 0, None)


def row_of(run, cell):
    base = alone(run)
    ratio = lambda share: f"{cell.percentile(share) / base.percentile(share):.3f}"
    figures = [f"{cell.percentile(share):.0f}" for share in (0.5, 0.99, 0.999, 1.0)]
    kept = None if cell.kept is None else f"{100 * cell.kept:.1f}%"
    return [given.service, cell.setup, cell.beside, len(cell.times), cell.late, *figures, f"{cell.mean():.1f}", ratio(0.5), ratio(0.99), kept]


HEADER = ["service", "set-up", "beside it", "n", "late", "p50 us", "p99", "p99.9", "max", "mean", "p50/alone", "p99/alone", "they keep"]


def natively_alone(run, requests):
    service = Service(run, f"alone{len(run.cells)}")
    try:
        return measure(run, service, "native", None, requests)
    finally:
        service.end()


def in_world(run, world, setups, besides, requests):
    """All cells of one driver, server or daemon."""
    under = mps = env = None
    if world == "rota":
        under = run.daemon("latency", capacity="64GiB", arena="4GiB")
        under.wait_arena()
    elif world.startswith("mps"):
        mps = Mps(run)
        env = mps.env
    try:
        for what in besides:
            beside_env = {**(env or {}), **({"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"} if world == "mps50" else {})}
            beside = Beside(run, f"{world}-{what}", what, under, beside_env)
            try:
                for setup in setups:
                    service = Service(run, f"{setup}-{what}", under, env, UNDER_ROTA.get(setup, "off"))
                    try:
                        measure(run, service, setup, beside, requests)
                        note_hints(run, under, service)
                    finally:
                        service.end()
            finally:
                beside.end()
        if under:
            under.check_no_errors()
    finally:
        run.end_daemons()
        if mps:
            mps.stop()


def note_hints(run, daemon, service):
    """Says what became of the service's hints."""
    if not daemon:
        return
    found = daemon.describe(service.label) or {}
    for job in found.get("jobs", []):
        for tenant in job["tenants"]:
            if tenant.get("hints"):
                run.say(f"      hints: {tenant['hints']}")


def worlds(setups):
    """Set-ups that can be had without starting everything anew, together."""
    together = [(world, [world]) for world in ("stock", "mps", "mps50") if world in setups]
    under = [setup for setup in setups if setup in UNDER_ROTA]
    return together + ([("rota", under)] if under else [])


def judge(run):
    """What each cell has to reach."""
    base = alone(run)
    busy = base.mean() * RATE / 1e6
    for cell in run.cells:
        if cell.kept is None or cell.setup not in UNDER_ROTA:
            continue
        name = f"{given.service}, {cell.setup}, beside {cell.beside}"
        p50, p99 = (cell.percentile(share) / base.percentile(share) for share in (0.5, 0.99))
        if cell.setup == "sdk":
            run.check(f"{name}: p50 and p99 at most 1.05 of alone", p50 <= 1.05 and p99 <= 1.05, f"{p50:.3f}, {p99:.3f}")
            least = 0.90 if given.service == "kernel" else 1 - busy - HINT_COST_MS * RATE / 1e3
            run.check(f"{name}: they keep at least {100 * least:.1f}%", cell.kept >= least, f"{100 * cell.kept:.1f}%")
        elif cell.setup == "none" and given.service == "kernel":
            more = cell.percentile(0.99) - base.percentile(0.99)
            run.check(f"{name}: p99 at most 200 us above alone", more <= 200, f"{more:+.0f} us")
            least = 0.95 * (1 - busy)
            run.check(f"{name}: they keep at least {100 * least:.1f}%", cell.kept >= least, f"{100 * cell.kept:.1f}%")
        elif cell.setup == "own":
            none = [other for other in run.cells if other.setup == "none" and other.beside == cell.beside]
            for other in none:
                ok = cell.percentile(0.99) <= 1.02 * other.percentile(0.99)
                run.check(f"{name}: p99 no worse than without hints", ok, f"{cell.percentile(0.99):.0f}, {other.percentile(0.99):.0f} us")
        elif cell.setup == "forecast" and SHAPES[given.service] == "steady":
            run.check(f"{name}: p99 at most 1.1 of alone", p99 <= 1.1, f"{p99:.3f}")


def grid(run, requests):
    setups = given.setups.split(",")
    counts = (1, 4) if given.service == "kernel" else (4,)
    kinds = KINDS if given.service == "kernel" else KINDS[:2]
    besides = given.beside.split(",") if given.beside else [f"{count}x{kind}" for kind in kinds for count in counts]
    solo_rates(run, dict.fromkeys(what.split("x")[1] for what in besides))
    natively_alone(run, requests)
    for world, within in worlds(setups):
        try:
            in_world(run, world, within, besides, requests)
        except Failed as reason:
            run.check(f"{world}: measured", False, str(reason)[-500:])
    natively_alone(run, requests)


def headline(run, requests):
    """Alone, and beside short kernels: without hints, one and four; with the service's own, four."""
    solo_rates(run, ["50us"])
    natively_alone(run, requests)
    in_world(run, "rota", ["none"], ["1x50us"], requests)
    in_world(run, "rota", ["none", "sdk"], ["4x50us"], requests)


def windows(run, requests):
    """Alone and beside others in turn, so that a machine that grows slower or faster does so for both."""
    what = given.beside or "4x50us"
    solo_rates(run, [what.split("x")[1]])
    daemon = run.daemon("latency", capacity="64GiB", arena="4GiB")
    daemon.wait_arena()
    service = Service(run, "rota-service", daemon, hints="sdk")
    beside = Beside(run, "beside", what, daemon)
    jobs = [program.label for program in beside.programs]
    means = {"native": [], "sdk": []}
    for _ in range(given.windows):
        for setup, verb in (("native", "pause"), ("sdk", "resume")):
            for job in jobs:
                if daemon.rota(verb, job) is None:
                    raise Failed(f"rota {verb} {job} failed")
            time.sleep(0.3)
            cell = measure(run, service, setup, None if setup == "native" else beside, requests)
            means[setup].append(cell.mean())
    for job in jobs:
        daemon.rota("resume", job)
    beside.end()
    service.end()
    ratio = sum(means["sdk"]) / sum(means["native"])
    run.check(f"{given.service}: mean beside {what} at most 1.01 of alone, {given.windows} windows each", ratio <= 1.01, f"{ratio:.4f}")
    daemon.check_no_errors()


def leads(run, requests):
    """Hints that are off, and requests that are prepared for less long than a freeze takes."""
    what = given.beside or "4x50us"
    solo_rates(run, [what.split("x")[1]])
    natively_alone(run, requests)
    daemon = run.daemon("latency", capacity="64GiB", arena="4GiB")
    daemon.wait_arena()
    service = Service(run, "rota-service", daemon, hints="sdk")
    beside = Beside(run, "beside", what, daemon)
    rows = []
    curve = [(PREPARES_US, off) for off in (-1000, -500, -200, 0, 200, 500, 1000)] + [(us, 0) for us in (50, 100, 200, 300, 400, 500, 900)]
    for prepares_us, off_us in curve:
        cell = measure(run, service, "sdk", beside, requests, prepares_us=prepares_us, off_us=off_us)
        rows.append([prepares_us, off_us, *row_of(run, cell)[5:]])
    beside.end()
    service.end()
    print(harness.table(rows, ["prepares us", "off us", *HEADER[5:]]), flush=True)
    daemon.check_no_errors()


def body(run):
    sdk = ["-I", str(run.bundled("rota.h").parent), str(run.bundled("librota.so")), f"-Xlinker=-rpath={run.bundle.resolve()}"]
    run.service = run.build("latency.cu", "-arch=native", *sdk)
    run.busy = run.build("shares.cu", "-arch=native")
    run.cores, run.solo, run.cells = harness.cores(5), {}, []
    run.fact(f"the programs' threads stay on cores {run.cores}" if run.cores else "too few cores: threads go where they like")
    requests = given.requests or {"grid": 1000, "headline": 10000, "windows": 100, "leads": 500}[given.part]
    try:
        {"grid": grid, "headline": headline, "windows": windows, "leads": leads}[given.part](run, requests)
    finally:
        if run.cells:
            table = harness.table([row_of(run, cell) for cell in run.cells], HEADER)
            print(table, flush=True)
            run.write("latency.txt", table + "\n")
    if given.part in ("grid", "headline"):
        judge(run)


if __name__ == "__main__":
    harness.main("latency", 590, body)
