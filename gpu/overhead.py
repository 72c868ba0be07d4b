"""Overhead: what rota costs a program that has the GPU to itself, while a second tenant is connected and idle.

Two long-lived processes, one native and one under rota, work in alternate windows, never both at once. A pair of windows gives one
ratio of rates; which of the two goes first changes from pair to pair. PASS where the lower end of the 95% interval of the mean
ratio, by bootstrap over the pairs, meets the target. A step that takes longer than the target's size of step is said.

A loop of 5 us kernels is 2% faster or slower in one CUDA context than in the next one of the same process, natively too, for as long
as the context lives: the driver throws a coin when it makes one (probes/placement.cu). More windows do not even that out, so both
processes have many contexts, each pair of windows goes to the next one, and the interval is over pairs of contexts.
"""

import argparse
import math
import os
import random
import time

import harness
from harness import GIB, MIB, Failed, Spoken

SIZES = {"512 B": 512, "64 KiB": 65536, "1 MiB": MIB, "2 MiB": 2 * MIB, "20 MiB": 20 * MIB, "1 GiB": GIB}
IN_C = ("plain-pair", "plain-batch", "async-0", "async-max", "async-max-loop")
TARGETS = {"steps": 0.995, "kernels": 0.98, "alloc": 0.95}
STEP_MIN_S = 0.020
KERNEL_US = 5.0

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--parts", default="kernels,steps,alloc-c,alloc-torch,alloc-cupy", help="some of them, with commas")
parser.add_argument("--window", type=float, default=0.25, help="seconds, of kernels and allocations")
parser.add_argument("--step-window", type=float, default=0.5, help="seconds, of steps")
parser.add_argument("--kernel-processes", type=int, default=1, help="pairs of processes for the loop of kernels")
parser.add_argument("--kernel-contexts", type=int, default=24, help="contexts of each of them")
parser.add_argument("--kernel-pairs", type=int, default=9, help="pairs of windows of each context")
parser.add_argument("--step-pairs", type=int, default=60)
parser.add_argument("--alloc-pairs", type=int, default=8)
parser.add_argument("--sizes", default=",".join(SIZES), help="some of them, with commas")
parser.add_argument("--kinds", default=",".join(IN_C), help="kinds of allocation in C, some of them")
parser.add_argument("--core", type=int, default=min(5, (os.cpu_count() or 1) - 1), help="where the workers of kernels and allocations run")
parser.add_argument("--control", action="store_true", help="both natively: what the measuring itself makes of no difference")
parser.add_argument("--seed", type=int, default=1)
given = parser.parse_args()
chance = random.Random(given.seed)


class Worker(Spoken):
    """One of the two processes."""

    def set(self, kind, size):
        answer = self.tell(f"set {kind} {size}", 120)
        if answer != "ready":
            raise Failed(f"{self.label}: {kind} {size}: {answer}")

    def use_context(self, number):
        answer = self.tell(f"context {number}", 120)
        if answer != "ready":
            raise Failed(f"{self.label}: context {number}: {answer}")

    def work(self, seconds):
        """Things done a second, in one window."""
        count, elapsed_ns = map(int, self.tell(f"work {seconds}").split())
        if count < 1 or elapsed_ns < seconds * 1e9:
            raise Failed(f"{self.label} did {count} in {elapsed_ns} ns of a window of {seconds} s")
        return count / elapsed_ns * 1e9


def interval(logs, resamples=4000):
    """Mean ratio and its 95% interval, from the logarithms of the pairs' ratios."""
    means = sorted(sum(chance.choices(logs, k=len(logs))) / len(logs) for _ in range(resamples))
    low, high = means[int(0.025 * resamples)], means[int(0.975 * resamples)]
    return tuple(math.exp(value) for value in (sum(logs) / len(logs), low, high))


def measure(native, rota, pairs, seconds, contexts=1):
    """Rates of both in alternate windows, each pair of them in the next context; ratios of the pairs as logarithms."""
    for worker in (native, rota, native, rota):
        worker.work(min(seconds, 0.1))  # clocks, caches, pools
    rates, logs = {native: [], rota: []}, []
    for number in range(pairs):
        # Which goes first changes from pair to pair, and for a context from round to round.
        order = (native, rota) if (number + number // contexts) % 2 == 0 else (rota, native)
        if contexts > 1:
            for worker in order:
                worker.use_context(number % contexts)
        pair = {worker: worker.work(seconds) for worker in order}
        for worker, rate in pair.items():
            rates[worker].append(rate)
        logs.append(math.log(pair[rota] / pair[native]))
    return rates[native], rates[rota], logs


class Bench:
    """Rows of the table, one for each thing measured."""

    def __init__(self, run, daemon):
        self.run, self.daemon, self.rows = run, daemon, []

    def both(self, label, argv):
        return Worker(self.run, f"{label}-native", argv, None), Worker(self.run, f"{label}-rota", argv, self.daemon)

    def one(self, what, part, two, pairs, seconds):
        """Measures and judges one thing. A failure is of this thing alone, unless a worker died."""
        native, rota, logs = measure(*two, pairs, seconds)
        self.judge(what, part, self.add(what, native, rota, logs))
        return 1 / harness.percentile(native, 0.5)

    def add(self, what, native, rota, logs):
        """A row; answers the mean ratio and its interval."""
        middle, low, high = interval(logs)
        typical = harness.percentile(native, 0.5)
        spread = (harness.percentile(native, 0.9) - harness.percentile(native, 0.1)) / typical
        self.rows.append(
            [what, len(logs), 1e6 / typical, 1e6 / harness.percentile(rota, 0.5), f"{middle:.4f}", f"{low:.4f}", f"{high:.4f}", f"{100 * spread:.1f}%"]
        )
        return middle, low, high

    def judge(self, what, part, found):
        middle, low, high = found
        target = TARGETS[part]
        self.run.check(f"{what}: at least {target}", low >= target, f"{middle:.4f}, 95% of {low:.4f} to {high:.4f}")

    def must_be_tenants(self, worker):
        if self.daemon and not self.daemon.events.of("joined", worker.program.pid):
            raise Failed(f"the daemon never saw {worker.label}: it would be compared with itself")


def kernels(bench, binary):
    what, rounds, contexts = f"kernels of {KERNEL_US:g} us", None, given.kernel_contexts
    all_native, all_rota, means = [], [], []
    for number in range(given.kernel_processes):
        two = bench.both(f"kernels{number + 1}", [binary, given.core])
        bench.must_be_tenants(two[1])
        for worker in two:
            for context in [*range(1, contexts), 0]:
                worker.use_context(context)
        rounds = rounds or int(two[0].tell(f"calibrate {KERNEL_US}"))
        for worker in two:
            worker.set("kernels", rounds)
        native, rota, logs = measure(*two, given.kernel_pairs * contexts, given.window, contexts)
        for context in range(contexts):
            of_it = slice(context, None, contexts)
            bench.add(f"{what}, processes {number + 1}, contexts {context + 1}", native[of_it], rota[of_it], logs[of_it])
            means.append(sum(logs[of_it]) / len(logs[of_it]))
        all_native += native
        all_rota += rota
        for worker in two:
            worker.end("quit\n")
    bench.judge(what, "kernels", bench.add(f"{what}, over pairs of contexts", all_native, all_rota, means))
    each_s = 1 / harness.percentile(all_native, 0.5)
    bench.run.check("one kernel and its start take 4 to 8 us", 4e-6 < each_s < 8e-6, f"{each_s * 1e6:.2f} us")
    bench.run.check("200 windows or more", len(all_native) >= 200, f"{len(all_native)} of each")


def steps(bench):
    two = bench.both("steps", [bench.run.python, "-u", harness_programs() / "worker.py", "torch"])
    bench.must_be_tenants(two[1])
    for kind in ("large", "layers"):
        for worker in two:
            worker.set(kind, 1)
        each_s = bench.one(f"steps, {kind}", "steps", two, given.step_pairs, given.step_window)
        bench.run.check(f"a step of {kind} takes 20 ms or more", each_s >= STEP_MIN_S, f"{each_s * 1e3:.1f} ms")
    for worker in two:
        worker.end("quit\n")


def allocations(bench, label, argv, kinds):
    two = bench.both(label, argv)
    bench.must_be_tenants(two[1])
    for kind in kinds:
        for size in given.sizes.split(","):
            for worker in two:
                worker.set(kind, SIZES[size])
            bench.one(f"{label}, {kind}, {size}", "alloc", two, given.alloc_pairs, given.window)
    for worker in two:
        worker.end("quit\n")


def harness_programs():
    from harness.run import PROGRAMS

    return PROGRAMS / "overhead"


def body(run):
    binary = run.build("overhead/worker.cu", "-arch=native")
    daemon = None
    if not given.control:
        daemon = run.daemon("overhead", capacity="64GiB", arena="1GiB")
        daemon.wait_arena()
    idle = Worker(run, "idle", [binary], daemon)  # connected, has worked once, waits for ever
    idle.set("kernels", 1000)
    idle.work(0.1)
    bench = Bench(run, daemon)
    bench.must_be_tenants(idle)
    since = daemon.events.mark() if daemon else 0
    python = [run.python, "-u", harness_programs() / "worker.py"]
    pinned = ["--core", given.core]  # loops of a few microseconds hang on where their thread runs
    parts = {
        "kernels": lambda: kernels(bench, binary),
        "steps": lambda: steps(bench),
        "alloc-c": lambda: allocations(bench, "C", [binary, given.core], given.kinds.split(",")),
        "alloc-torch": lambda: allocations(bench, "torch", [*python, "torch", *pinned], ["alloc"]),
        "alloc-cupy": lambda: allocations(bench, "cupy", [*python, "cupy", *pinned], ["alloc", "async"]),
    }
    try:
        for part in given.parts.split(","):
            began = time.monotonic()
            try:
                parts[part]()
            except Failed as reason:
                run.check(f"{part}: measured to its end", False, str(reason)[-700:])
            run.say(f"   {part}: {time.monotonic() - began:.0f} s")
    finally:
        header = ["what", "pairs", "native us", "rota us", "ratio", "low", "high", "native p10-p90"]
        print(harness.table(bench.rows, header), flush=True)
        run.write("overhead.txt", harness.table(bench.rows, header) + "\n")
    run.check("the idle tenant still runs", idle.program.alive(), "")
    if daemon:
        taken = len(daemon.events.of("turn_begin", idle.program.pid, since))
        frozen = len([e for e in daemon.events.of("freeze", since=since) if e.get("pid") != idle.program.pid])
        run.fact(f"while it was measured: turns of the idle tenant {taken}, freezes of the workers {frozen}")
        daemon.check_no_errors()


if __name__ == "__main__":
    harness.main("overhead", 590, body)
