"""The grid and the headline: one service, each set-up, beside each kind of programs."""

from __future__ import annotations

from harness import Failed
from harness.mps import Mps

from .cells import RATE, SHAPES, Beside, Cell, Service

SETUPS = ("stock", "mps", "mps50", "none", "own", "forecast", "sdk")
UNDER_ROTA = {"none": "off", "own": "shim", "forecast": "forecast", "sdk": "sdk"}
"""Which hints there are, for each set-up under rota: the service's ROTA_HINTS."""
KINDS = ("50us", "50ms", "graphs")
HINT_COST_MS = 0.9
NO_WORSE = 1.05
"""What the shim's own hints may cost, as quantiles of a thousand requests differ from run to run."""
STARTS_S = 12
"""What a cell takes beside its requests, at most: programs that start and end."""
ALONE_MAX = 300
"""Requests of a service under rota with nobody beside it: what rota's own part in a request costs. Shown, not judged."""


def worlds(setups):
    """Set-ups that can be had without starting everything anew, together."""
    together = [(world, [world]) for world in ("stock", "mps", "mps50") if world in setups]
    under = [setup for setup in setups if setup in UNDER_ROTA]
    return ([("rota", under)] if under else []) + together


class World:
    """A driver, a server or a daemon, with a service for each set-up, which stay for all that is beside them."""

    def __init__(self, bench, name, setups):
        self.bench, self.name = bench, name
        self.under = self.mps = self.env = None
        self.services = {}
        try:
            if name == "rota":
                self.under = bench.daemon()
            elif name.startswith("mps"):
                self.mps = Mps(bench.run)
                self.env = self.mps.env
            for setup in setups:
                self.services[setup] = Service(bench, f"{setup}-service", bench.given.service, self.under, self.env, UNDER_ROTA.get(setup, "off"))
            for service in self.services.values():
                service.ready()
        except BaseException:
            self.end()
            raise

    def measure(self, what, requests, done):
        """All set-ups beside these."""
        env = {**(self.env or {}), **({"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"} if self.name == "mps50" else {})}
        beside = Beside(self.bench, f"{self.name}", what, self.under, env)
        try:
            for setup, service in self.services.items():
                need = STARTS_S + 1.1 * requests / RATE
                if self.bench.left_s() < need:
                    raise Failed("no time was left")
                self.bench.measure(service, setup, beside, requests)
                done.add((setup, what))
        finally:
            beside.end()

    def measure_alone(self, requests):
        """All set-ups under rota with nobody beside them."""
        requests = min(requests, ALONE_MAX)
        for setup, service in self.services.items() if self.under else ():
            if self.bench.left_s() > STARTS_S + 1.1 * requests / RATE:
                self.bench.measure(service, setup, None, requests)

    def end(self):
        for service in self.services.values():
            service.end()
        if self.under:
            self.under.check_no_errors()
            self.bench.run.end_daemons()
        if self.mps:
            self.mps.stop()


def in_world(bench, name, setups, besides, requests):
    """All cells of one world. Those that could not be measured are in the table all the same."""
    done, why = set(), ""
    try:
        world = World(bench, name, setups)
        try:
            world.measure_alone(requests)
            for what in besides:
                try:
                    world.measure(what, requests, done)
                except Failed as reason:
                    why = str(reason)[-300:]
                    bench.run.check(f"{name}, beside {what}: measured", False, why)
        finally:
            world.end()
    except Failed as reason:
        why = str(reason)[-300:]
        bench.run.check(f"{name}: measured", False, why)
    missing = [(setup, what) for what in besides for setup in setups if (setup, what) not in done]
    bench.cells += [Cell(setup, what, why_not=why) for setup, what in missing]


def judge(bench):
    """What each cell has to reach."""
    base = bench.alone()
    if base is None:
        return bench.run.check("alone: measured", False)
    service, busy = bench.given.service, bench.busy_share()
    for cell in bench.cells:
        if cell.setup not in UNDER_ROTA or cell.beside == "alone" or not cell.times:
            continue
        p50, p99 = (cell.percentile(share) / base.percentile(share) for share in (0.5, 0.99))
        if cell.setup == "sdk":
            bench.check(cell, "p50 at most 1.05 of alone", p50 <= 1.05, f"{p50:.3f}", "p50")
            bench.check(cell, "p99 at most 1.05 of alone", p99 <= 1.05, f"{p99:.3f}", "p99")
            must_keep(bench, cell, 0.90 if service == "kernel" else 1 - busy - HINT_COST_MS * RATE / 1e3)
        elif cell.setup == "none" and service == "kernel":
            more = cell.percentile(0.99) - base.percentile(0.99)
            bench.check(cell, "p99 at most 200 us above alone", more <= 200, f"{more:+.0f} us", "p99")
            must_keep(bench, cell, 0.95 * (1 - busy))
        elif cell.setup == "own":
            for other in (other for other in bench.cells if (other.setup, other.beside) == ("none", cell.beside) and other.times):
                for name, share in (("p50", 0.5), ("p99", 0.99)):
                    mine, without = cell.percentile(share), other.percentile(share)
                    bench.check(cell, f"{name} no worse than without hints", mine <= NO_WORSE * without, f"{mine:.0f}, {without:.0f} us", name)
        elif cell.setup == "forecast" and SHAPES[service] == "steady":
            bench.check(cell, "p99 at most 1.1 of alone", p99 <= 1.1, f"{p99:.3f}", "p99")
        elif cell.setup == "forecast":
            foretold = cell.hints.get("forecast", 0)
            bench.check(cell, "hardly anything is foretold", foretold <= len(cell.times) / 100, f"{foretold} of {len(cell.times)}", "foretold")


def must_keep(bench, cell, least):
    bench.check(cell, f"they keep at least {100 * least:.1f}%", cell.kept >= least, f"{100 * cell.kept:.1f}%", "kept")


def grid(bench, requests):
    given = bench.given
    kernel = given.service in ("kernel", "copied")
    kinds, counts = (KINDS, (1, 4)) if kernel else (KINDS[:2], (4,))
    besides = given.beside.split(",") if given.beside else [f"{count}x{kind}" for count in counts for kind in kinds]
    bench.solo_rates(dict.fromkeys(what.split("x", 1)[1] for what in besides))
    bench.natively_alone(requests)
    for world, setups in worlds(given.setups.split(",")):
        in_world(bench, world, setups, besides, requests)
    if bench.left_s() > STARTS_S + requests / RATE:
        bench.natively_alone(requests)
    judge(bench)


def headline(bench, requests):
    """Alone, before and after, and beside short kernels: without hints, one and four; with the service's own, four."""
    bench.solo_rates(["50us"])
    bench.natively_alone(requests // 2)
    in_world(bench, "rota", ["none"], ["1x50us"], requests)
    in_world(bench, "rota", ["none", "sdk"], ["4x50us"], requests)
    bench.natively_alone(requests - requests // 2)
    judge(bench)
