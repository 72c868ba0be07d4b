"""Shares: how much two programs do together, and whether weights and caps hold, by work done over what each does alone.

First two of a kind, alone, as the stock driver shares them, and under rota, all in one run: the sum of both over one alone. Then
weights 3:1 and 10:1 and a cap of 30% for pairs of kinds; what each kind does alone is measured before and after each of these,
because a machine grows slower or faster in minutes. The GPU itself counts its work, also in the middle of a kernel, and the
counts are read from outside every few milliseconds. A share over 10 s is the mean over all spans of 10 s in a little more time,
so that it does not hang on whose turn it was at the ends.
"""

import argparse
import time

import harness
from harness import Busy, Failed

TOGETHER = {"large": 0.985, "small4": 0.97, "gaps": 1.40}
BUSY = 0.62
"""How much of the time "gaps" has work alone. How long it has to sleep for that hangs on how late the machine wakes it."""
STOCK_KNOWN = {"large": 0.87, "small4": 0.57, "gaps": 1.20}
PAIRS = (("50us", "50ms"), ("compute", "memory"), ("graphs", "graphs"), ("small4", "small4"))
SAMPLE_S = 0.004
SLIDE = 0.15
"""How much longer than its span a measurement takes, as a share of it."""

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--parts", default="together,3:1,10:1,cap", help="some of them, with commas")
parser.add_argument("--pairs", default=",".join("+".join(p) for p in PAIRS), help="kinds for weights and caps, as in 50us+50ms")
parser.add_argument("--alone-s", type=float, default=2.5)
parser.add_argument("--together-s", type=float, default=5.0)
parser.add_argument("--settle-s", type=float, default=1.5, help="after both run, before anything counts")
given = parser.parse_args()
pairs = [tuple(pair.split("+")) for pair in given.pairs.split(",")]


def sample(programs, seconds):
    """Counts of all, every few milliseconds: (time, count, count ...)."""
    rows, began = [], time.monotonic()
    while not rows or rows[-1][0] - began < seconds:
        before = time.monotonic()
        counts = [program.count() for program in programs]
        rows.append(((before + time.monotonic()) / 2, *counts))
        time.sleep(SAMPLE_S)
    for program in programs:
        program.program.must_live()
    return rows


def rates(rows, which, span_s):
    """Counts a second in every span of that length that fits."""
    found, end = [], 0
    for begin, row in enumerate(rows):
        while end < len(rows) and rows[end][0] - row[0] < span_s:
            end += 1
        if end == len(rows):
            break
        found.append((rows[end][which] - row[which]) / (rows[end][0] - row[0]))
    if not found:
        raise Failed(f"no span of {span_s:g} s in {rows[-1][0] - rows[0][0]:.1f} s of samples")
    return found


def together(run, label, kinds, seconds, under=None, terms=((), ()), settle_s=None):
    """Runs programs of these kinds at once; answers for each its rates over all spans of `seconds`."""
    programs = [
        Busy(run, f"{label}-{'AB'[n]}", run.binary, kind, under, terms[n] if under else (), run.cores[n] if run.cores else None)
        for n, kind in enumerate(kinds)
    ]
    try:
        for program in programs:
            program.wait()
        if under:
            for program in programs:
                if not under.events.of("joined", program.program.pid):
                    raise Failed(f"the daemon never saw {program.label}")
        time.sleep(given.settle_s if settle_s is None else settle_s)
        rows = sample(programs, seconds * (1 + SLIDE))
    finally:
        ended = []
        for program in programs:
            try:
                program.end()
            except Failed as reason:
                ended.append(str(reason))
    if ended:
        raise Failed("; ".join(ended)[-700:])
    return [rates(rows, n + 1, seconds) for n in range(len(programs))]


def mean(values):
    return sum(values) / len(values)


def alone_now(run):
    """What one of each kind does alone, natively, now. No program of rota's runs meanwhile."""
    kinds = dict.fromkeys(kind for pair in pairs for kind in pair)
    run.alone.append({kind: mean(together(run, f"alone{len(run.alone)}-{kind}", [kind], given.alone_s, settle_s=0.7)[0]) for kind in kinds})


def alone(run, kind):
    """What one does alone: the mean of before and after."""
    return mean([found[kind] for found in run.alone[-2:]])


def pause_for(run, large):
    """How many microseconds "gaps" must ask to sleep for, so that it is busy for BUSY of the time."""
    work_s, asked_s = 4 / large, 0.9e-3
    cycle_s = 4 / mean(together(run, "calibrate-gaps", ["gaps"], 1.0, settle_s=0.5)[0])
    late_s = cycle_s - work_s - asked_s
    run.fact(f"gaps: 0.9 ms of sleep take {(late_s + asked_s) * 1e3:.2f} ms, which makes it busy {100 * work_s / cycle_s:.1f}% alone")
    return max(1, round((work_s * (1 / BUSY - 1) - late_s) * 1e6))


def two_of_a_kind(run):
    """Alone is measured three times, so that a GPU or CPU that grew slower or faster meanwhile is seen."""
    rows, solo, stock, under, shared = [], {name: [] for name in TOGETHER}, {}, {}, {}
    programs = {name: name for name in TOGETHER}

    def once_more(name, when):
        solo[name].append(mean(together(run, f"{when}-{name}", [programs[name]], given.alone_s, settle_s=0.7)[0]))

    once_more("large", "first")
    programs["gaps"] = f"gaps:{pause_for(run, solo['large'][0])}"
    for name in list(TOGETHER)[1:]:
        once_more(name, "first")
    for name, kind in programs.items():
        stock[name] = [mean(r) for r in together(run, f"stock-{name}", [kind, kind], given.together_s)]
        once_more(name, "between")
    daemon = run.daemon("together", capacity="32GiB", arena="1GiB")
    daemon.wait_arena()
    for name, kind in programs.items():
        under[name] = mean(together(run, f"under-{name}", [kind], given.alone_s, daemon, settle_s=0.7)[0])
        both = together(run, f"rota-{name}", [kind, kind], given.together_s, daemon, settle_s=2.5)
        shared[name] = [mean(r) for r in both]
    daemon.check_no_errors()
    run.end_daemons()
    for name in TOGETHER:
        once_more(name, "later")
    for name, target in TOGETHER.items():
        base = mean(solo[name])
        spread = (max(solo[name]) - min(solo[name])) / base
        got, plain = sum(shared[name]) / base, sum(stock[name]) / base
        rows.append([programs[name], base, f"{100 * spread:.2f}%", f"{plain:.4f}", STOCK_KNOWN[name], f"{under[name] / base:.4f}", *shared[name], f"{got:.4f}"])
        run.check(f"{name}: both together at least {target} of one alone", got >= target, f"{got:.4f}, stock driver {plain:.4f}")
        run.check(f"{name}: alone three times within 4%", spread <= 0.04, f"{100 * spread:.2f}%")
    busy = mean(solo["gaps"]) / mean(solo["large"])
    run.check(f"gaps: alone busy for {100 * BUSY:.0f}% of the time", abs(busy - BUSY) <= 0.02, f"{100 * busy:.1f}%")
    header = ["two of a kind", "alone /s", "spread", "stock sum", "known", "one, rota", "rota A /s", "rota B /s", "rota sum"]
    return harness.table(rows, header)


def measured(run, daemon, label, groups, terms, span_s):
    """Rates of each group of kinds under rota on these terms, and then of each kind alone; what failed is said and left out."""
    found = []
    for kinds in groups:
        name = f"{label}-{'-'.join(kinds)}"
        try:
            found.append((kinds, together(run, name, kinds, span_s, daemon, terms, settle_s=2.5)))
        except Failed as reason:
            run.check(f"{name}: measured", False, str(reason)[-500:])
    alone_now(run)
    return found


def weighted(run, daemon, weight, span_s, tolerance, swap):
    rows = []
    terms = (run.terms("--weight", str(weight)), run.terms("--weight", "1"))
    for kinds, found in measured(run, daemon, f"w{weight}", [pair[::-1] if swap else pair for pair in pairs], terms, span_s):
        base = [alone(run, kind) for kind in kinds]
        shares = [[value / base[n] for value in values] for n, values in enumerate(found)]
        ratios = [a / b if b else float("inf") for a, b in zip(*shares)]
        ratio = mean(shares[0]) / mean(shares[1]) if mean(shares[1]) else float("inf")
        off = ratio / weight - 1
        rows.append([f"{weight}:1 {kinds[0]} to {kinds[1]}", *(f"{value:.4f}" for value in (mean(shares[0]), mean(shares[1]), sum(map(mean, shares)), ratio, min(ratios), max(ratios))), f"{100 * off:+.2f}%"])
        run.check(
            f"{weight}:1, {kinds[0]} to {kinds[1]}, within {100 * tolerance:g}% over {span_s:g} s",
            abs(off) <= tolerance,
            f"{ratio:.3f} ({100 * off:+.2f}%), single spans {min(ratios):.3f} to {max(ratios):.3f}",
        )
    return harness.table(rows, ["weights", "share A", "share B", "sum", "ratio", "least", "most", "off"])


def capped(run, daemon, cap=0.30, tolerance=0.03, span_s=10.0):
    """The first of each pair is capped; beside it the second, which is not. And one alone on the GPU."""
    rows = []
    terms = (run.terms("--cores", f"{100 * cap:g}%"), ())
    for kinds, found in measured(run, daemon, "cap", [*pairs, (pairs[0][0],)], terms, span_s):
        base = [alone(run, kind) for kind in kinds]
        shares = [mean(values) / base[n] for n, values in enumerate(found)]
        least, most = min(found[0]) / base[0], max(found[0]) / base[0]
        off = shares[0] / cap - 1
        beside = f"beside {kinds[1]}" if len(kinds) > 1 else "alone on the GPU"
        rows.append([f"{kinds[0]}, {beside}", *(f"{value:.4f}" for value in shares), *([] if len(kinds) > 1 else [None]), f"{least:.4f}", f"{most:.4f}", f"{100 * off:+.2f}%"])
        run.check(f"cap of 30%, {kinds[0]} {beside}, within 3%", abs(off) <= tolerance, f"{shares[0]:.4f} of alone, single spans {least:.4f} to {most:.4f}")
    return harness.table(rows, ["capped at 30%", "share", "the other", "least", "most", "off"])


def body(run):
    run.binary = run.build("shares.cu", "-arch=native")
    run.alone, run.cores = [], harness.cores(2)
    run.fact(f"the programs' threads stay on cores {run.cores}" if run.cores else "too few cores: threads go where they like")
    parts, tables = given.parts.split(","), []
    try:
        if "together" in parts:
            tables.append(two_of_a_kind(run))
        if set(parts) & {"3:1", "10:1", "cap"}:
            daemon = run.daemon("shares", capacity="32GiB", arena="1GiB")
            daemon.wait_arena()
            alone_now(run)
            if "3:1" in parts:
                tables.append(weighted(run, daemon, 3, 10.0, 0.03, False))
            if "10:1" in parts:
                tables.append(weighted(run, daemon, 10, 30.0, 0.05, True))
            if "cap" in parts:
                tables.append(capped(run, daemon))
            daemon.check_no_errors()
    finally:
        print("\n".join(tables), flush=True)
        if run.alone:
            rows = [[kind, *(found.get(kind) for found in run.alone)] for kind in run.alone[0]]
            print(harness.table(rows, ["alone, natively, counts /s", "first", *("then" for _ in run.alone[1:])]), flush=True)
        run.write("shares.txt", "\n".join(tables) + "\n")


if __name__ == "__main__":
    harness.main("shares", 590, body)
