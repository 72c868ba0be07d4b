"""The grid and the headline: one service, each set-up, beside each kind of programs."""

from __future__ import annotations

from harness import Failed, percentile
from harness.mps import Mps

from .cells import NETWORKS, ONE_S, RATE, SHAPES, WARM, Beside, Cell, Service, most_s
from .sweeps import ALSO, BESIDE

SETUPS = ("stock", "mps", "mps50", "none", "own", "forecast", "sdk")
UNDER_ROTA = {"none": "off", "own": "shim", "forecast": "forecast", "sdk": "sdk"}
"""Which hints there are, for each set-up under rota: the service's ROTA_HINTS."""
KINDS = ("50us", "50ms", "graphs")
HINT_COST_MS = 0.9
NO_WORSE = 1.05
"""What the shim's own hints may cost, as quantiles of a thousand requests differ from run to run."""
HINTED = 0.9
"""Of requests whose input goes ahead: for so many the shim gives a hint. For the first it has yet to learn when."""
STARTS_S = 12
"""What a cell takes beside its requests, at most: programs that start and end."""
LAST_S = 60
"""What is kept for alone after all else, and for what those beside do alone."""
ALONE_MAX = 300
"""Requests of a service under rota with nobody beside it: what rota's own part in a request costs. Shown, not judged."""


def worlds(setups):
    """Set-ups that can be had without starting everything anew, together. The stock driver's come last: alone is measured there
    once more."""
    under = [setup for setup in setups if setup in UNDER_ROTA]
    return ([("rota", under)] if under else []) + [(world, [world]) for world in ("mps", "mps50", "stock") if world in setups]


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

    def measure(self, what, setups, requests, missing):
        """These set-ups beside these. What is measured is taken from what is missing; one that cannot be leaves the others."""
        env = {**(self.env or {}), **({"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"} if self.name == "mps50" else {})}
        beside = Beside(self.bench, f"{self.name}", what, self.under, env)
        try:
            for setup in setups:
                try:
                    self.must_have_time(requests)
                    self.bench.measure(self.services[setup], setup, beside, requests)
                    del missing[setup, what]
                except (Failed, OSError) as reason:
                    missing[setup, what] = str(reason)[-300:]
                    self.bench.run.check(f"{setup}, beside {what}: measured", False, missing[setup, what])
            if self.under and what == BESIDE and self.bench.given.also:
                also = ALSO[self.bench.given.also]
                also(self.bench, self.services["sdk"], beside)
        finally:
            beside.end()

    def must_have_time(self, requests):
        """Without rota a cell may take all the time it is given, and the last request of a network under MPS still longer."""
        need = STARTS_S + (1.1 * (requests + WARM) / RATE if self.under else most_s(requests))
        need += ONE_S if self.mps and self.bench.given.service in NETWORKS else 0
        if self.bench.left_s() < need + (0 if self.name == "stock" else LAST_S):
            raise Failed("no time was left")

    def measure_alone(self, requests):
        """All set-ups under rota with nobody beside them; by the stock driver, what alone is after all else."""
        if self.name == "stock":
            self.bench.measure(self.services["stock"], "native", None, requests)
        requests = min(requests, ALONE_MAX)
        for setup, service in self.services.items() if self.under else ():
            self.must_have_time(requests)
            self.bench.measure(service, setup, None, requests)

    def end(self):
        for service in self.services.values():
            service.end()
        if self.under:
            self.under.check_no_errors()
            self.bench.run.end_daemons()
        if self.mps:
            self.mps.stop()


def in_world(bench, name, besides, requests):
    """All cells of one world: what is beside, and the set-ups beside each. Those that could not be measured are in the table too,
    with what was wrong."""
    missing = {(setup, what): "" for what, setups in besides.items() for setup in setups}
    why = ""
    try:
        world = World(bench, name, list(dict.fromkeys(setup for setup, _ in missing)))
        try:
            world.measure_alone(requests)
            for what, setups in besides.items():
                try:
                    world.measure(what, setups, requests, missing)
                except (Failed, OSError) as reason:
                    said = str(reason)[-300:]
                    bench.run.check(f"{name}, beside {what}: measured", False, said)
                    missing |= {cell: known or said for cell, known in missing.items() if cell[1] == what}
        finally:
            world.end()
    except (Failed, OSError) as reason:
        why = str(reason)[-300:]
        bench.run.check(f"{name}: measured", False, why)
    bench.cells += [Cell(setup, what, why_not=known or why) for (setup, what), known in missing.items()]


def judge(bench):
    """What each cell has to reach."""
    base = bench.alone()
    if base is None:
        return bench.run.check("alone: measured", False)
    service, busy = bench.given.service, bench.busy_share()
    for cell in bench.cells:
        if cell.setup not in UNDER_ROTA or cell.beside == "alone" or not cell.counts:
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
            own_hints(bench, cell)
        elif cell.setup == "forecast" and SHAPES[service] == "steady":
            bench.check(cell, "p50 at most 1.1 of alone", p50 <= 1.1, f"{p50:.3f}", "p50")
            bench.check(cell, "p99 at most 1.1 of alone", p99 <= 1.1, f"{p99:.3f}", "p99")
        elif cell.setup == "forecast":
            foretold = cell.hints.get("forecast", 0)
            bench.check(cell, "hardly anything is foretold", foretold <= len(cell.times) / 100, f"{foretold} of {len(cell.times)}", "foretold")


def own_hints(bench, cell):
    """They are given where an input goes ahead of its kernel, and are never worse than none. Where none was given, both are measured
    alike: what lies between them is only said."""
    given, ahead = cell.hints.get("shim", 0), bench.given.service == "copied"
    if ahead:
        bench.check(cell, "the shim gives hints", given >= HINTED * len(cell.times), f"{given} of {len(cell.times)}", "hints")
    elif not given:
        cell.notes.append("no input ahead: no hint given")
    for other in (other for other in bench.cells if (other.setup, other.beside) == ("none", cell.beside) and other.counts):
        compared = [("", cell.times, other.times)] + ([(" from arrival", cell.whole, other.whole)] if ahead else [])
        for of, with_them, without_them in compared:
            for name, share in (("p50", 0.5), ("p99", 0.99)):
                mine, without = percentile(with_them, share), percentile(without_them, share)
                said = f"{mine:.0f}, {without:.0f} us"
                if given:
                    bench.check(cell, f"{name}{of} no worse than without hints", mine <= NO_WORSE * without, said, name + of)
                else:
                    bench.run.fact(f"{bench.given.service}, own, beside {cell.beside}: {name}{of} with no hint given, and without hints: {said}")


def say_per_node(bench):
    """Without hints others may come in between any two nodes of a network's graph: what that costs."""
    base = bench.alone()
    if bench.given.service not in NETWORKS or base is None:
        return
    nodes = bench.nodes
    for cell in (cell for cell in bench.cells if cell.setup == "none" and cell.beside != "alone" and cell.counts):
        more = cell.mean() - base.mean()
        each = f"{more / nodes:+.2f} us for each of the {nodes} nodes of its graph" if nodes else "of how many nodes its graph is nobody said"
        bench.run.fact(f"none, beside {cell.beside}: {more:+.1f} us above alone on average, {each}")


def must_keep(bench, cell, least):
    bench.check(cell, f"they keep at least {100 * least:.1f}%", cell.kept >= least, f"{100 * cell.kept:.1f}%", "kept")


def grid(bench, requests):
    given = bench.given
    kernel = given.service in ("kernel", "copied")
    kinds, counts = (KINDS, (1, 4)) if kernel else (KINDS[:2], (4,))
    besides = given.beside.split(",") if given.beside else [f"{count}x{kind}" for count in counts for kind in kinds]
    measured(bench, besides, requests, [(world, dict.fromkeys(besides, setups)) for world, setups in worlds(given.setups.split(","))])


def headline(bench, requests):
    """Alone, before and after, and beside short kernels: without hints, one and four; with the service's own, four."""
    beside = {"1x50us": ["none"], "4x50us": ["none", "sdk"]}
    measured(bench, list(beside), requests, [("rota", beside)], requests // 2)


def measured(bench, besides, requests, cells, alone=None):
    """Alone and what those beside do alone, before and after all worlds; alone once between them, too, as it changes from one minute
    to the next. It is judged whatever happens meanwhile."""
    alone = alone or requests
    often = min(3, len(cells) + 1)
    try:
        bench.solo_rates(dict.fromkeys(what.split("x", 1)[1] for what in besides))
        bench.natively_alone(alone)
        for world, of_it in cells:
            in_world(bench, world, of_it, requests)
            if len(bench.natives()) < often - 1 and bench.left_s() > STARTS_S + alone / RATE + LAST_S:
                bench.natively_alone(alone)
        if len(bench.natives()) < often and bench.left_s() > alone / RATE:
            bench.natively_alone(alone)
        if bench.left_s() > 0:
            bench.solo_rates(list(bench.solo))
    finally:
        judge(bench)
        say_per_node(bench)
        bench.check_steady()
