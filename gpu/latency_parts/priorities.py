"""Five priorities: who waits for whom, and for how long; two services with different SLOs; nobody starves."""

from __future__ import annotations

import time

import harness
from harness import Busy, Failed, percentile

from .cells import PREPARES_US, RATE, TURNS_OF_A_REQUEST, Beside, Service, end_busy

LEVELS = ("realtime", "high", "normal", "low", "idle")
HEARD_MS = 2.0
"""From when a program says that it has work to when it is acted upon, and from the thaw to when that is counted."""
AROUND_A_MOVE_MS = 20.0
"""What comes before and after the copies of a move."""
RESIDENT_MAX_MS, AWAY_MAX_MS = 5.0, 1000.0
"""However long a freeze or a move of 10 GiB takes: this is too long."""
ASKED, ASKED_AWAY = 100, 6
WAITED = 0.9
"""Of what was asked for: so often it has to have waited, else nothing was shown."""
AWAY = (("high", "low"), ("realtime", "idle"))
LOAD = 0.6
KEEPS_UP = 0.97
"""Of the rate at which requests come: so many are to be served."""
AGEING, AGEING_S = "6s", 30
"""Long enough for the lowest to rise above the highest: four levels."""


def priorities(bench, requests):
    """One part that fails leaves the others."""
    for part, given in ((resident, ()), (away, ()), (two_services, (requests,)), (ageing, ())):
        try:
            part(bench, *given)
        except (Failed, OSError) as reason:
            bench.run.check(f"{part.__name__}: ran to its end", False, str(reason)[-300:])
            bench.run.end_programs()
            bench.run.end_daemons()


def busy(bench, label, kind, daemon, level, core):
    """A program of this priority that keeps the GPU busy, on a core of its own: the service's is the first."""
    core = bench.run.cores[core] if bench.run.cores else None
    return Busy(bench.run, label, bench.busy, kind, daemon, bench.run.terms("--priority", level), core=core)


class Watched:
    """The daemon's events from now on, and one process."""

    def __init__(self, daemon, pid):
        self.events, self.since, self.pid = daemon.events, daemon.events.mark(), pid

    def of(self, name, pid=None):
        return self.events.of(name, pid, self.since)

    def longest_ms(self, *names):
        """The longest of such events, of each kind."""
        return [max((event["took_ns"] / 1e6 for event in self.of(name) if "took_ns" in event), default=0.0) for name in names]

    def waits_ms(self):
        """How long the process waited each time: from when it had work, and was off the GPU, until it was thawed."""
        mine = [event for name in ("wants", "thaw", "idle") for event in self.of(name, self.pid)]
        waits, since = [], None
        for event in sorted(mine, key=lambda event: event["t_ns"]):
            if event["event"] == "thaw" and since is not None:
                waits.append((event["t_ns"] - since) / 1e6)
            since = event.get("since_ns", event["t_ns"]) if event["event"] == "wants" else None
        return sorted(waits)


def asks_again_and_again(bench, daemon, label, level, times, every_s, **words):
    """A best-effort program of this priority that has a little work now and then: how long it waited by the daemon's events, how
    long its work took by its own clock, both in milliseconds, and what happened."""
    service = Service(bench, label, "kernel", daemon, terms=("--priority", level), **words)
    service.ready()
    watched = Watched(daemon, service.program.pid)
    took, _ = service.serve(times, prepares_us=0, rate=1 / every_s)()
    time.sleep(0.1)  # for the last of the events
    waits = watched.waits_ms()
    service.end()
    return waits, [time_us / 1e3 for time_us in took], watched


def least(asked):
    """How often it has to have waited."""
    return int(WAITED * asked)


def check_waits(bench, what, asked, waits, own, allowed, most):
    """It waited as often as it asked, or nearly; never longer than allowed, nor than the most, whatever is allowed; and its own
    clock says so, too."""
    longest, bound = max(waits, default=0.0), min(allowed, most)
    bench.run.check(what, len(waits) >= least(asked) and longest <= bound, f"{longest:.2f} ms of {bound:.2f}, {len(waits)} of {asked} times")
    bench.run.check(f"{what}, by its own clock", len(own) == asked and own[-1] <= most, f"{own[-1]:.2f} ms of {most:.2f}, {len(own)} of {asked} served")


def resident(bench):
    """Whoever is on the device waits for a lower one no longer than a freeze: each for each that is lower."""
    daemon = bench.daemon(more=["--policy", "priority"])
    rows = []
    for place, lower in enumerate(LEVELS[1:], 1):
        works = busy(bench, f"{lower}-works", "50us", daemon, lower, 1)
        works.wait(60)
        for level in LEVELS[:place]:
            waits, own, watched = asks_again_and_again(bench, daemon, f"{level}-asks-{lower}", level, ASKED, 0.03)
            freeze, thaw = watched.longest_ms("freeze", "thaw")
            rows.append([level, lower, len(waits), percentile(waits, 0.5), percentile(waits, 0.99), max(waits, default=None), percentile(own, 0.5), own[-1], freeze, thaw])
            check_waits(bench, f"{level} waits for {lower} no longer than one freeze", ASKED, waits, own, freeze + thaw + HEARD_MS, RESIDENT_MAX_MS)
        works.end()
    header = ["priority", "beside", "waits", "p50 ms", "p99", "longest", "own p50", "own longest", "longest freeze", "longest thaw"]
    print(harness.table(rows, header), flush=True)
    daemon.check_no_errors()
    bench.run.end_daemons()


def away(bench):
    """Whoever is away waits for a freeze and its own move."""
    daemon = bench.daemon(capacity="16GiB", arena="24GiB", more=["--policy", "priority"])
    for level, lower in AWAY:
        works = busy(bench, f"{lower}-works", "memory:10", daemon, lower, 1)
        works.wait(60)
        waits, own, watched = asks_again_and_again(bench, daemon, f"{level}-asks-{lower}", level, ASKED_AWAY, 3.0, gib=10)
        freeze, thaw, move = watched.longest_ms("freeze", "thaw", "move_end")
        moves = len(watched.of("moving_in", watched.pid))
        allowed = freeze + move + thaw + HEARD_MS + AROUND_A_MOVE_MS
        check_waits(bench, f"{level}, away, waits for {lower} no longer than a freeze and its own move", ASKED_AWAY, waits, own, allowed, AWAY_MAX_MS)
        bench.run.check(f"{level} was away when it asked", moves >= least(ASKED_AWAY), f"came back {moves} times, asked {ASKED_AWAY}")
        works.end()
    daemon.check_no_errors()
    bench.run.end_daemons()


def hold(bench, service, shape, slo_ms, asked, rate):
    """Whether a service kept its SLO, and kept up. Where requests come by chance it is only shown."""
    times = [whole_us - PREPARES_US for whole_us in service.whole]
    p99, missed = percentile(times, 0.99) / 1e3, sum(time_us > slo_ms * 1e3 for time_us in times)
    begun = [begun_ns for begun_ns, _ in service.last]
    reached = (len(begun) - 1) / max(1e-9, (begun[-1] - begun[0]) / 1e9)
    said = f"{p99:.2f} ms, {missed} of {len(times)} missed"
    if shape != "steady":
        return bench.run.fact(f"{service.label}, {shape}, an SLO of {slo_ms:g} ms: p99 {said}, {reached:.1f} a second of {rate:.1f}")
    bench.run.check(f"{service.label}: p99 within its SLO of {slo_ms:g} ms at {100 * LOAD:.0f}% load", p99 <= slo_ms, said)
    kept_up = len(times) == asked and reached >= KEEPS_UP * rate
    bench.run.check(f"{service.label}: keeps up with its requests", kept_up, f"{reached:.1f} a second of {rate:.1f}, {len(times)} of {asked}")


def two_services(bench, requests):
    """Two services with different SLOs, beside one that keeps the GPU busy, hold them at 60% load. A request's time is from when it
    is ready for the GPU, whether the one before it has ended or not. By chance they come too, which is shown. Rota heeds an SLO from
    four times a freeze and a thaw on, which is some milliseconds."""
    bench.solo_rates(["50us"])
    wanted = {"fast": (32, 10.0), "slow": (512, 160.0)}  # how many usual requests one is, and its SLO in ms: five times that
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
    for shape in ("steady", "poisson"):
        before = beside.counts()
        served = {name: service.serve(int(requests / RATE * rates[name]), True, rate=rates[name], shape=shape) for name, service in services.items()}
        for hear in served.values():
            hear()
        after = beside.counts()
        for name, (_, slo_ms) in wanted.items():
            hold(bench, services[name], shape, slo_ms, int(requests / RATE * rates[name]), rates[name])
        kept = (after[1] - before[1]) / (after[0] - before[0]) / bench.solo["50us"][0]
        bench.run.fact(f"{shape}: the one beside them keeps {100 * kept:.1f}% of what it does alone")
    beside.end()
    for service in services.values():
        service.end()
    daemon.check_no_errors()
    bench.run.end_daemons()


def ageing(bench):
    """All five keep the GPU busy: each gets on."""
    daemon = bench.daemon(more=["--policy", "priority", "--ageing", AGEING])
    programs = [busy(bench, f"{level}-busy", "50us", daemon, level, core) for core, level in enumerate(reversed(LEVELS))]
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
