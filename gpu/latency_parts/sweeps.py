"""One thing varied while all else stays: alone and beside others in turn, hints that are off, and the setting that trades the
service's latency against the others' work."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import harness
from harness import Failed

from .cells import HEADER, PREPARES_US, Beside, Service

BESIDE = "4x50us"
WINDOW = 100
"""Requests in one."""
POINT = 500
"""Requests at one point of the curve."""
NATIVE_MAX = 1000
"""Requests natively alone, which windows are shown beside."""


def beside_of(bench):
    what = bench.given.beside or BESIDE
    bench.solo_rates([what.split("x", 1)[1]])
    return what


def with_hints(bench, alone, part, requests):
    """A part with a service that gives hints, beside others, under a daemon of its own."""
    what = beside_of(bench)
    bench.natively_alone(alone)
    daemon = bench.daemon()
    service = Service(bench, "service", bench.given.service, daemon, hints="sdk")
    service.ready()
    beside = Beside(bench, "beside", what, daemon)
    part(bench, service, beside, requests)
    beside.end()
    service.end()
    daemon.check_no_errors()


def windows(bench, requests):
    with_hints(bench, min(NATIVE_MAX, 10 * requests), in_windows, requests)


def leads(bench, requests):
    with_hints(bench, requests, curve, requests)


def tell_all(beside, daemon, verb):
    """Pauses or resumes all of them, at the same time."""
    with ThreadPoolExecutor() as pool:
        said = list(pool.map(lambda program: daemon.rota(verb, program.label), beside.programs))
    if None in said:
        raise Failed(f"rota {verb} failed for {said.count(None)} of {len(said)}")


def in_windows(bench, service, beside, requests=WINDOW):
    """Alone and beside others in turn, so that a machine that grows slower or faster does so for both. Alone is under rota too,
    with the others paused and without hints."""
    means = {"paused": [], "window": []}
    for _ in range(bench.given.windows):
        for setup, verb in (("paused", "pause"), ("window", "resume")):
            tell_all(beside, service.under, verb)
            time.sleep(0.3)
            there = beside if setup == "window" else None
            means[setup].append(bench.measure(service, setup, there, requests, there is not None).mean())
    ratios = [there / alone for there, alone in zip(means["window"], means["paused"])]
    paused, ratio = sum(means["paused"]) / len(ratios), sum(means["window"]) / sum(means["paused"])
    native = bench.alone().mean()
    bench.run.fact(f"single pairs of windows: {min(ratios):.4f} to {max(ratios):.4f}")
    bench.run.fact(f"mean with the others paused {paused:.1f} us, natively alone {native:.1f}: {paused / native:.4f}")
    what = f"{bench.given.service}: mean beside {beside.what} at most 1.01 of that with them paused, {len(ratios)} windows each"
    bench.run.check(what, ratio <= 1.01, f"{ratio:.4f}")


def curve(bench, service, beside, requests=POINT):
    """Hints that are off by chance, requests that are prepared for less long than a freeze takes, and hints that are always off by
    as much. The last come last: that is learnt, and stays known for a while."""
    points = [(PREPARES_US, 0, spread) for spread in (0, 200, 500, 1000)] + [(us, 0, 0) for us in (50, 100, 200, 300, 400, 500, 900)]
    points += [(PREPARES_US, off, 0) for off in (-1000, 1000)]
    rows = []
    for prepares_us, off_us, spread_us in points:
        cell = bench.measure(service, "leads", beside, requests, True, prepares_us=prepares_us, off_us=off_us, spread_us=spread_us)
        rows.append([prepares_us, f"+-{spread_us}", off_us, *bench.row(cell)[5:-1], cell.hints.get("good", 0), cell.hints.get("missed", 0)])
    print(harness.table(rows, ["prepares us", "off by chance us", "always off us", *HEADER[5:-1], "good hints", "missed"]), flush=True)


ALSO = {"windows": in_windows, "leads": curve}
"""What can be measured within the grid, where the service and those beside it are there."""


def trade(bench, requests):
    """From one end of the setting to the other: who gives way."""
    what = beside_of(bench)
    bench.natively_alone(requests)
    name, values = bench.given.setting.split("=")
    cells = {}
    for value in values.split(","):
        daemon = bench.daemon(more=[name, value])
        service = Service(bench, f"service-{value.rstrip('%')}", bench.given.service, daemon, hints="sdk")
        service.ready()
        beside = Beside(bench, "beside", what, daemon)
        cells[value] = bench.measure(service, "sdk", beside, requests)
        beside.end()
        service.end()
        daemon.check_no_errors()
        bench.run.end_daemons()
        bench.natively_alone(requests)
    bench.solo_rates(list(bench.solo))
    rows = [[value, *bench.row(cell)[5:-1], cell.hints.get("good", 0), cell.hints.get("missed", 0)] for value, cell in cells.items()]
    print(harness.table(rows, [name, *HEADER[5:-1], "good hints", "missed"]), flush=True)
    first, last, base = cells[values.split(",")[0]], cells[values.split(",")[-1]], bench.alone()
    p99 = first.percentile(0.99) / base.percentile(0.99)
    bench.run.check(f"{name} {rows[0][0]}: p99 at most 1.05 of alone", p99 <= 1.05, f"{p99:.3f}")
    least = 0.95 * (1 - bench.busy_share())
    bench.run.check(f"{name} {rows[-1][0]}: they keep at least {100 * least:.1f}%", last.kept >= least, f"{100 * last.kept:.1f}%")
    traded = first.percentile(0.99) < last.percentile(0.99) and first.kept < last.kept
    detail = f"p99 {first.percentile(0.99):.0f} and {last.percentile(0.99):.0f} us, they keep {100 * first.kept:.1f}% and {100 * last.kept:.1f}%"
    bench.run.check(f"{name} trades one for the other", traded, detail)
    bench.check_steady()
