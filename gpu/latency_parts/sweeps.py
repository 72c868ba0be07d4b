"""One thing varied while all else stays: alone and beside others in turn, hints that are off, and the setting that trades the
service's latency against the others' work."""

from __future__ import annotations

import time

import harness
from harness import Failed

from .cells import HEADER, PREPARES_US, Beside, Service


def beside_of(bench):
    what = bench.given.beside or "4x50us"
    bench.solo_rates([what.split("x", 1)[1]])
    return what


def windows(bench, requests):
    """Alone and beside others in turn, so that a machine that grows slower or faster does so for both."""
    what = beside_of(bench)
    daemon = bench.daemon()
    service = Service(bench, "service", bench.given.service, daemon, hints="sdk")
    service.ready()
    beside = Beside(bench, "beside", what, daemon)
    means = {"native": [], "sdk": []}
    for _ in range(bench.given.windows):
        for setup, verb in (("native", "pause"), ("sdk", "resume")):
            for program in beside.programs:
                if daemon.rota(verb, program.label) is None:
                    raise Failed(f"rota {verb} {program.label} failed")
            time.sleep(0.3)
            cell = bench.measure(service, setup, None if setup == "native" else beside, requests)
            means[setup].append(cell.mean())
    beside.end()
    service.end()
    ratios = [there / alone for there, alone in zip(means["sdk"], means["native"])]
    ratio = sum(means["sdk"]) / sum(means["native"])
    bench.run.fact(f"single pairs of windows: {min(ratios):.4f} to {max(ratios):.4f}")
    bench.run.check(f"{bench.given.service}: mean beside {what} at most 1.01 of alone, {len(ratios)} windows each", ratio <= 1.01, f"{ratio:.4f}")
    daemon.check_no_errors()


def leads(bench, requests):
    """Hints that are off, and requests that are prepared for less long than a freeze takes."""
    what = beside_of(bench)
    bench.natively_alone(requests)
    daemon = bench.daemon()
    service = Service(bench, "service", bench.given.service, daemon, hints="sdk")
    service.ready()
    beside = Beside(bench, "beside", what, daemon)
    rows = []
    curve = [(PREPARES_US, off) for off in (-1000, -500, -200, 0, 200, 500, 1000)] + [(us, 0) for us in (50, 100, 200, 300, 400, 500, 900)]
    for prepares_us, off_us in curve:
        cell = bench.measure(service, "sdk", beside, requests, prepares_us=prepares_us, off_us=off_us)
        rows.append([prepares_us, off_us, *bench.row(cell)[5:-1]])
    beside.end()
    service.end()
    print(harness.table(rows, ["prepares us", "off us", *HEADER[5:-1]]), flush=True)
    daemon.check_no_errors()


def trade(bench, requests):
    """From one end of the setting to the other: who gives way."""
    what = beside_of(bench)
    bench.natively_alone(requests)
    name, values = bench.given.setting.split("=")
    rows, cells = [], []
    for value in values.split(","):
        daemon = bench.daemon(more=[name, value])
        service = Service(bench, f"service-{value.rstrip('%')}", bench.given.service, daemon, hints="sdk")
        service.ready()
        beside = Beside(bench, "beside", what, daemon)
        cell = bench.measure(service, "sdk", beside, requests)
        cells.append(cell)
        rows.append([value, *bench.row(cell)[5:-1], cell.hints.get("good", 0), cell.hints.get("missed", 0)])
        beside.end()
        service.end()
        daemon.check_no_errors()
        bench.run.end_daemons()
    print(harness.table(rows, [name, *HEADER[5:-1], "good hints", "missed"]), flush=True)
    first, last, base = cells[0], cells[-1], bench.alone()
    p99 = first.percentile(0.99) / base.percentile(0.99)
    bench.run.check(f"{name} {rows[0][0]}: p99 at most 1.05 of alone", p99 <= 1.05, f"{p99:.3f}")
    least = 0.95 * (1 - bench.busy_share())
    bench.run.check(f"{name} {rows[-1][0]}: they keep at least {100 * least:.1f}%", last.kept >= least, f"{100 * last.kept:.1f}%")
    traded = first.percentile(0.99) < last.percentile(0.99) and first.kept < last.kept
    detail = f"p99 {first.percentile(0.99):.0f} and {last.percentile(0.99):.0f} us, they keep {100 * first.kept:.1f}% and {100 * last.kept:.1f}%"
    bench.run.check(f"{name} trades one for the other", traded, detail)
