"""Oversize: a program of 24 GiB on a GPU that counts as 16 GiB, with `rota run --oversize`, rewriting every word in every step.

What the GPU cannot have lies in the host's memory, so no step can be faster than the bus lets a kernel rewrite that much. That
bound is measured in the same run, by the same kind of kernel alone, before and after. PASS if every word is right, with the
same bits as natively on the whole GPU, at least 0.7 of the bound is reached, and used memory stays under 16 GiB by NVML; and if
the same program without --oversize is out of memory.
"""

import argparse

import harness
from harness import GIB, MemorySampler, crowd
from harness.waiting import until

LEAST = 0.7

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--gib", type=float, default=24.0)
parser.add_argument("--capacity", default="16GiB")
parser.add_argument("--oversize", default="16GiB")
parser.add_argument("--arena", default="16GiB")
parser.add_argument("--alloc-mib", type=int, default=1024)
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--peak-gib", type=float, default=8.0)


def peak(run, binary, label, gib):
    """Bytes a second that a kernel rewrites of the host's memory, at its best."""
    found = run.command(label, [str(binary), str(gib), "6"]).result(90)
    best = found["bytes"] / min(found["rewrite_s"])
    run.say(f"   {label}: {best / 1e9:.1f} GB/s, {found['bytes'] / GIB:g} GiB made in {found['made_s']:.2f} s on node {found['node']}")
    return best


def steps_of(found, times):
    """Seconds of each step but the first, which may find the memory cold."""
    return sorted(after - before for before, after in zip(times, times[1:])) or [found["gpu_phase_s"] / max(1, found["steps"])]


def body(run, given):
    turns, host_peak = run.build("turns.cu", "-arch=native"), run.build("host_peak.cu", "-arch=native")
    shape = crowd.Shape(given.gib, given.alloc_mib, 1)
    native = crowd.Turner(run, "native", turns, shape, 1, given.steps)
    natively = native.result(120)
    run.say(f"   natively on the whole GPU a step takes {natively['gpu_phase_s'] / natively['steps'] * 1e3:.1f} ms")
    before = peak(run, host_peak, "peak before", given.peak_gib)

    daemon = run.daemon("oversize", capacity=given.capacity, arena=given.arena, oversize_max=given.oversize)
    small = run.command("without", [str(word) for word in (turns, *shape.flags(), "--seed", 1, "--steps", 1)], daemon)
    until("the program without --oversize to end", 120, lambda: not small.alive(), 0.05)
    run.check("without --oversize it is out of memory", "cudaErrorMemoryAllocation" in small.last_words(), small.last_words()[-160:])

    memory = MemorySampler()
    start = run.work / "start"
    large = crowd.Turner(run, "large", turns, shape, 1, given.steps, under=daemon, start=start, terms=["--oversize"])
    large.wait_ready(180)
    described = daemon.describe(large.pid)["jobs"][0]["tenants"][0]
    host_bytes = described["host_bytes"]
    harness.touch(start)
    found = large.result(given.steps * given.gib * GIB / 10e9 + 120)
    memory.stop()
    after = peak(run, host_peak, "peak after", given.peak_gib)

    best = max(before, after)
    steps = steps_of(found, large.step_times())
    typical, bound = steps[len(steps) // 2], host_bytes / best
    row = [given.gib, described["resident_bytes"] / GIB, host_bytes / GIB, typical * 1e3, bound * 1e3, bound / typical]
    print(harness.table([row], ["GiB", "on the GPU", "on the host", "step ms", "bound ms", "of the bound"]), flush=True)
    crowd.check_right(run, "large", found, natively)
    run.check("some of it lies in the host's memory", host_bytes >= (given.gib - 16) * GIB, f"{host_bytes / GIB:.2f} GiB")
    run.check(f"at least {LEAST} of the bus bound", bound / typical >= LEAST, f"{bound / typical:.3f}")
    most = memory.most()[0]
    run.check("used memory stays under 16 GiB", most <= 16 * GIB, f"{most / GIB:.2f} GiB more than before, at most")
    daemon.check_no_errors()


if __name__ == "__main__":
    chosen = parser.parse_args()
    harness.main("oversize", 400, lambda run: body(run, chosen))
