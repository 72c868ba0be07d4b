"""Five priorities: who waits for whom, and for how long; two services with different SLOs; nobody starves."""

from __future__ import annotations

import time

import harness
from harness import Busy, Failed, percentile

from .cells import RATE, TURNS_OF_A_REQUEST, Beside, Service, end_busy

LEVELS = ("realtime", "high", "normal", "low", "idle")
HEARD_MS = 2.0
"""From when a program says that it has work to when it is acted upon, and from the thaw to when that is counted."""
AROUND_A_MOVE_MS = 20.0
"""What comes before and after the copies of a move."""
LOAD = 0.6
AGEING_S = 150
"""Long enough for the lowest to rise above the highest: 30 s a level."""


def priorities(bench, requests):
    resident(bench)
    away(bench)
    two_services(bench, requests)
    ageing(bench)


class Watched:
    """The daemon's events from now on."""

    def __init__(self, daemon):
        self.events, self.since = daemon.events, daemon.events.mark()

    def of(self, name, pid=None):
        return self.events.of(name, pid, self.since)

    def longest_ms(self, *names):
        """The longest of such events, of each kind."""
        return [max((event["took_ns"] / 1e6 for event in self.of(name) if "took_ns" in event), default=0.0) for name in names]

    def waits_ms(self, pid):
        """How long a process waited each time: from when it had work, and was off the GPU, until it was thawed."""
        mine = [event for name in ("wants", "thaw", "idle") for event in self.of(name, pid)]
        waits, since = [], None
        for event in sorted(mine, key=lambda event: event["t_ns"]):
            if event["event"] == "thaw" and since is not None:
                waits.append((event["t_ns"] - since) / 1e6)
            since = event["t_ns"] if event["event"] == "wants" else None
        return sorted(waits)


def asks_again_and_again(bench, daemon, level, times, every_s, **words):
    """A best-effort program of this priority that has a little work now and then: how long it waited, and what happened."""
    service = Service(bench, f"{level}-asks", "kernel", daemon, terms=("--priority", level), **words)
    service.ready()
    watched = Watched(daemon)
    service.serve(times, prepares_us=0, rate=1 / every_s)()
    time.sleep(0.1)  # for the last of the events
    waits = watched.waits_ms(service.program.pid)
    service.end()
    return waits, watched


def resident(bench):
    """Whoever is on the device waits for a lower one no longer than a freeze."""
    daemon = bench.daemon(more=["--policy", "priority"])
    lowest = Busy(bench.run, "idle-works", bench.busy, "50us", daemon, bench.run.terms("--priority", "idle"))
    lowest.wait(60)
    rows = []
    for level in LEVELS[:-1]:
        waits, watched = asks_again_and_again(bench, daemon, level, 100, 0.03)
        freeze, thaw = watched.longest_ms("freeze", "thaw")
        most = max(waits, default=0.0)
        rows.append([level, len(waits), percentile(waits, 0.5), percentile(waits, 0.99), most, freeze, thaw])
        allowed = freeze + thaw + HEARD_MS
        bench.run.check(f"{level} waits for idle no longer than one freeze", bool(waits) and most <= allowed, f"{most:.2f} ms of {allowed:.2f}, {len(waits)} times")
    lowest.end()
    print(harness.table(rows, ["priority", "waits", "p50 ms", "p99", "longest", "longest freeze", "longest thaw"]), flush=True)
    daemon.check_no_errors()
    bench.run.end_daemons()


def away(bench):
    """Whoever is away waits for a freeze and its own move."""
    daemon = bench.daemon(capacity="16GiB", arena="24GiB", more=["--policy", "priority"])
    lowest = Busy(bench.run, "low-works", bench.busy, "memory:10", daemon, bench.run.terms("--priority", "low"))
    lowest.wait(60)
    waits, watched = asks_again_and_again(bench, daemon, "high", 8, 3.0, gib=10)
    freeze, thaw, move = watched.longest_ms("freeze", "thaw", "move_end")
    most, allowed = max(waits, default=0.0), freeze + move + thaw + HEARD_MS + AROUND_A_MOVE_MS
    bench.run.check("high, away, waits for low no longer than a freeze and its own move", bool(waits) and most <= allowed, f"{most:.1f} ms of {allowed:.1f}, {len(waits)} times")
    lowest.end()
    daemon.check_no_errors()
    bench.run.end_daemons()


def two_services(bench, requests):
    """Two services with different SLOs, beside one that keeps the GPU busy, hold them at 60% load."""
    bench.solo_rates(["50us"])
    wanted = {"fast": (16, 5.0), "slow": (160, 50.0)}  # how many usual requests one is, and its SLO in ms
    cores = {"fast": 0, "slow": 4}
    rates = {}
    for name, (times, _) in wanted.items():
        service = Service(bench, f"{name}-alone", "kernel", turns=times * TURNS_OF_A_REQUEST)
        service.ready()
        took, _ = service.serve(100, rate=20)()
        service.end()
        rates[name] = LOAD / 2 / (sum(took) / len(took) / 1e6)
    daemon = bench.daemon()
    services = {}
    for name, (times, slo_ms) in wanted.items():
        terms = ("--class", "lc", "--slo", f"{slo_ms:g}ms")
        services[name] = Service(bench, name, "kernel", daemon, hints="sdk", terms=terms, turns=times * TURNS_OF_A_REQUEST, core=cores[name])
    for service in services.values():
        service.ready()
    beside = Beside(bench, "beside", "1x50us", daemon)
    before = beside.counts()
    seconds = requests / RATE
    served = {name: service.serve(int(seconds * rates[name]), True, rate=rates[name]) for name, service in services.items()}
    took = {name: hear()[0] for name, hear in served.items()}
    after = beside.counts()
    for name, (_, slo_ms) in wanted.items():
        p99 = percentile(took[name], 0.99) / 1e3
        missed = sum(time > slo_ms * 1e3 for time in took[name])
        bench.run.check(f"{name}: p99 within its SLO of {slo_ms:g} ms at {100 * LOAD:.0f}% load", p99 <= slo_ms, f"{p99:.2f} ms, {missed} of {len(took[name])} missed, {rates[name]:.0f} a second")
    kept = (after[1] - before[1]) / (after[0] - before[0]) / bench.solo["50us"]
    bench.run.fact(f"the one beside them keeps {100 * kept:.1f}% of what it does alone")
    beside.end()
    for service in services.values():
        service.end()
    daemon.check_no_errors()
    bench.run.end_daemons()


def ageing(bench):
    """All five keep the GPU busy: each gets on."""
    daemon = bench.daemon(more=["--policy", "priority"])
    programs = [Busy(bench.run, f"{level}-busy", bench.busy, "50us", daemon, bench.run.terms("--priority", level)) for level in reversed(LEVELS)]
    try:
        # The lowest come first: they are not to have begun only because nobody else was there.
        deadline = time.monotonic() + 60
        while not programs[-1].count():
            programs[-1].program.must_live()
            if time.monotonic() > deadline:
                raise Failed("the highest has done nothing for 60 s")
            time.sleep(0.01)
        before = [program.count() for program in programs]
        seconds = min(AGEING_S, bench.left_s() - 20)
        time.sleep(max(seconds, 1))
        done = [program.count() - first for program, first in zip(programs, before)]
    finally:
        end_busy(programs)
    for level, count in zip(reversed(LEVELS), done):
        bench.run.check(f"{level} gets on beside all others within {seconds:.0f} s", count > 0, f"{count / max(sum(done), 1):.1%} of all that was done")
    daemon.check_no_errors()
    bench.run.end_daemons()
