"""Oversize: a program of 24 GiB on a GPU that counts as 16 GiB, with `rota run --oversize`, rewriting every word in every step.

What the GPU cannot have lies in the host's memory, so no step can be faster than the bus lets a kernel rewrite that much. How fast
that is is measured in the same run, by the same kind of kernel alone, before and after. The bound is by what is more than those 16 GiB:
contexts, rota's own memory and what it leaves for others' contexts count against it. PASS if every word is right, with the same bits as
natively on the whole GPU, at least 0.7 of the bound is reached, and used memory stays under 16 GiB by NVML, in the second part as
well; and if the same program without --oversize is out of memory.

Then the same size once more, with steps that rewrite only the 4 GiB that were allocated last, which is what the GPU had no room for:
what changes has to come to the GPU, so that the program ends up at least 0.9 as fast as natively, from the speed of the
bus, with the same bits.
"""

import argparse
import time

import harness
from harness import GIB, MIB, MemorySampler, crowd, size_of
from harness.waiting import until

LEAST = 0.7
LEAST_AT_HOME = 0.9

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--gib", type=float, default=24.0)
parser.add_argument("--capacity", default="16GiB")
parser.add_argument("--oversize", default="16GiB")
parser.add_argument("--arena", default="16GiB")
parser.add_argument("--alloc-mib", type=int, default=1024)
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--peak-gib", type=float, default=8.0)
parser.add_argument("--hot-gib", type=float, default=4.0)
parser.add_argument("--hot-rounds", type=int, default=64)
parser.add_argument("--hot-s", type=float, default=40.0, help="how long the program has to come home")
parser.add_argument("--part", choices=["rewrite", "homes", "all"], default="all")


def peak(run, binary, label, gib):
    """Bytes a second that a kernel rewrites of the host's memory, at its best."""
    found = run.command(label, [str(binary), str(gib), "6"]).result(90)
    best = found["bytes"] / min(found["rewrite_s"])
    run.say(f"   {label}: {best / 1e9:.1f} GB/s, {found['bytes'] / GIB:g} GiB made in {found['made_s']:.2f} s on node {found['node']}")
    return best


def typical_of(times):
    """Seconds of the middle one of some steps, by when each of them was done."""
    lengths = sorted(after - before for before, after in zip(times, times[1:]))
    return lengths[len(lengths) // 2] / 1e9 if lengths else float("inf")


def homes(run, given, turns):
    """What changes comes to the GPU."""
    shape = crowd.Shape(given.gib, given.alloc_mib, given.hot_rounds, hot_gib=given.hot_gib)
    native = crowd.Turner(run, "native-hot", turns, shape, 2, 200)
    native.result(120)
    natively = typical_of(native.step_times())

    memory = MemorySampler()
    daemon = run.daemon("homes", capacity=given.capacity, arena=given.arena, oversize_max=given.oversize)
    start = run.work / "start-homes"
    hot = crowd.Turner(run, "hot", turns, shape, 2, 0, under=daemon, start=start, terms=["--oversize"])
    hot.wait_ready(180)
    harness.touch(start)
    began = time.monotonic()
    while came(daemon) < given.hot_gib * GIB and time.monotonic() < began + given.hot_s:
        hot.program.must_live()
        time.sleep(0.25)
    took = time.monotonic() - began
    settled = len(hot.step_times())
    time.sleep(5)
    described = daemon.describe(hot.pid)["jobs"][0]["tenants"][0]
    hot.stop()
    found = hot.result(120)
    memory.stop()
    times = hot.step_times()
    before, after = typical_of(times[:8]), typical_of(times[settled:])
    changes = daemon.events.of("rehomed")
    still = sorted(event["took_ns"] / 1e6 for event in changes)
    rows = [["natively", natively * 1e3, 1.0], ["at first", before * 1e3, natively / before], ["in the end", after * 1e3, natively / after]]
    print(harness.table(rows, ["the last GiB change", "step ms", "of native"]), flush=True)
    run.fact(f"{came(daemon) / GIB:.2f} GiB came to the GPU within {took:.1f} s, in {len(changes)} changes of {', '.join(f'{ms:.0f}' for ms in still)} ms")
    run.fact(f"{described['host_bytes'] / GIB:.2f} GiB lie on the host, {described['rehomed_bytes'] / GIB:.2f} GiB changed places")
    again = crowd.Turner(run, "native-again", turns, shape, 2, found["steps"])
    crowd.check_right(run, "hot", found, again.result(120))
    run.check("all that changes came to the GPU", came(daemon) >= given.hot_gib * GIB, f"{came(daemon) / GIB:.2f} GiB")
    run.check(f"at least {LEAST_AT_HOME} of the native rate in the end", natively / after >= LEAST_AT_HOME, f"{natively / after:.3f}")
    memory.check_under(run, given.capacity, "homes")
    daemon.check_no_errors()
    run.end_daemons()


def came(daemon):
    """Bytes that came to the GPU so far."""
    return sum(event["to_device_bytes"] for event in daemon.events.of("rehomed"))


def body(run, given):
    turns, host_peak = run.build("turns.cu", "-arch=native"), run.build("host_peak.cu", "-arch=native")
    if given.part != "homes":
        rewrite(run, given, turns, host_peak)
    if given.part != "rewrite":
        homes(run, given, turns)


def rewrite(run, given, turns, host_peak):
    """Every word in every step."""
    shape = crowd.Shape(given.gib, given.alloc_mib, 1)
    native = crowd.Turner(run, "native", turns, shape, 1, given.steps)
    natively = native.result(120)
    run.say(f"   natively on the whole GPU a step takes {natively['gpu_phase_s'] / natively['steps'] * 1e3:.1f} ms")
    before = peak(run, host_peak, "peak before", given.peak_gib)

    memory = MemorySampler()
    daemon = run.daemon("oversize", capacity=given.capacity, arena=given.arena, oversize_max=given.oversize)
    small = run.command("without", [str(word) for word in (turns, *shape.flags(), "--seed", 1, "--steps", 1)], daemon)
    until("the program without --oversize to end", 120, lambda: not small.alive(), 0.05)
    run.check("without --oversize it is out of memory", "cudaErrorMemoryAllocation" in small.last_words(), small.last_words()[-160:])

    # What the one before it had is given back a moment after its end.
    until("the GPU's memory to be given back", 30, lambda: harness.Nvml().used() < memory.before + 2 * GIB, 0.05)
    start = run.work / "start"
    large = crowd.Turner(run, "large", turns, shape, 1, given.steps, under=daemon, start=start, terms=["--oversize"])
    large.wait_ready(180)
    described = daemon.describe(large.pid)["jobs"][0]["tenants"][0]
    host_bytes = described["host_bytes"]
    least_bytes = given.gib * GIB - daemon.room_bytes()
    harness.touch(start)
    found = large.result(given.steps * given.gib * GIB / 10e9 + 120)
    memory.stop()
    after = peak(run, host_peak, "peak after", given.peak_gib)

    best = max(before, after)
    more_bytes = given.gib * GIB - size_of(given.capacity)
    typical, bound, beside = typical_of(large.step_times()), more_bytes / best, least_bytes / best
    rows = [["is more than the GPU counts as", more_bytes / GIB, bound * 1e3, bound / typical], ["could not be on the GPU", least_bytes / GIB, beside * 1e3, beside / typical], ["lies on the host", host_bytes / GIB, host_bytes / best * 1e3, host_bytes / best / typical]]
    print(harness.table(rows, ["what", "GiB", "the bus takes ms", f"of a step of {typical * 1e3:.1f} ms"]), flush=True)
    crowd.check_right(run, "large", found, natively)
    spared = host_bytes - least_bytes
    run.check("no more is left free than a fifteenth of the GPU, and a handle", spared <= size_of(given.capacity) / 15 + 256 * MIB, f"{spared / GIB:.2f} GiB")
    run.check(f"at least {LEAST} of the bus bound", bound / typical >= LEAST, f"{bound / typical:.3f}")
    memory.check_under(run, given.capacity)
    daemon.check_no_errors()
    run.end_daemons()


if __name__ == "__main__":
    chosen = parser.parse_args()
    harness.main("oversize", 400, lambda run: body(run, chosen))
