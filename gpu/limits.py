"""Limits: a program under `--memory` gets that much and no more, whichever way it takes memory, and is told so everywhere.

For each family of allocations a program takes pieces until there is no more, down to 1 MiB. What it got, with its context, must be
the limit; what the driver, NVML and nvidia-smi tell it inside must agree; and what rota accounts for it must be what NVML says of
the process from outside. Then all is freed and taken again. A second tenant is connected and idle. Natively, the same program
shows what the family takes by itself.
"""

import argparse
import json
import time

import harness
from harness import GIB, MIB, Failed, Nvml

FAMILIES = ("plain", "pitched", "async", "pool", "vmm", "managed", "array")
UNSEEN = ("managed",)
"""Families whose memory the driver counts for no process."""
GRANULE = 2 * MIB
"""What the driver gives at least for memory that can be mapped: so much of a limit may stay unused."""

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--families", default=",".join(FAMILIES), help="some of them, with commas")
parser.add_argument("--memory-mib", type=int, default=3072, help="the limit")
parser.add_argument("--settle-s", type=float, default=4.5, help="after a change, before the books are compared: rota looks every second, and believes what it sees several times")
parser.add_argument("--without", default="", help="parts to leave out, with commas: native, two, torch")
given = parser.parse_args()
LIMIT = given.memory_mib * MIB


class Taker:
    """A program that takes memory, and its stages."""

    def __init__(self, run, label, argv, under=None, count=1):
        self.run, self.count = run, count
        self.go = run.work / f"go-{label}"
        terms = run.terms("--memory", f"{given.memory_mib}MiB") if under else ()
        self.program = run.command(label, [*argv, self.go], under, terms=terms)

    def stage(self, name, timeout_s=60.0):
        """What it says at a stage: a list, one for each process."""
        deadline = time.monotonic() + timeout_s
        while True:
            rows = []
            for line in self.program.out.read_text(errors="replace").splitlines():
                if line.startswith("{") and line.endswith("}") and json.loads(line)["stage"] == name:
                    rows.append(json.loads(line))
            if len(rows) >= self.count:
                return rows
            if not self.program.alive():
                raise Failed(f"{self.program.label} ended with {self.program.child.returncode}: {self.program.last_words()}")
            if time.monotonic() > deadline:
                raise Failed(f"{self.program.label} has not come to '{name}' after {timeout_s:g} s: {self.program.last_words()}")
            time.sleep(0.02)

    def let(self, number):
        harness.touch(self.run.work / f"{self.go.name}.{number}")

    def end(self):
        if self.program.alive():
            harness.end_group(self.program.child)
            self.program.child.wait(10)


def mib(value):
    return None if value is None else value / MIB


def accounted(daemon, pids):
    """What rota has in its books for these processes: memory on the device, contexts."""
    memory = contexts = 0
    for pid in pids:
        found = daemon.describe(pid)
        views = [t for job in (found or {}).get("jobs", []) for t in job["tenants"] if t["pid"] == pid]
        if not views:
            return None
        memory += sum(t["resident_bytes"] for t in views)
        contexts += sum(t["context_bytes"] for t in views)
    return memory, contexts


def compare(run, what, daemon, nvml, pids, unseen=0):
    """One check: rota's books and NVML's figures for the processes, from outside. Answers both. So many bytes are in the books
    alone."""
    time.sleep(given.settle_s)
    seen = nvml.processes()
    books = accounted(daemon, pids)
    if seen is None or any(pid not in seen for pid in pids):
        run.check(f"{what}: books agree with NVML", False, "NVML does not list the process")
        return books, None
    outside = sum(seen[pid] for pid in pids)
    if books is None:
        run.check(f"{what}: books agree with NVML", False, f"`rota describe` does not know it; NVML {mib(outside):.1f} MiB")
        return None, outside
    off = sum(books) - unseen - outside
    run.check(
        f"{what}: books agree with NVML",
        abs(off) <= max(0.01 * outside, 32 * MIB),
        f"rota {mib(books[0]):.1f} + {mib(books[1]):.1f} MiB of contexts, NVML {mib(outside):.1f}, off {mib(off):+.1f}"
        + (f", without {mib(unseen):.1f} that it counts for nobody" if unseen else ""),
    )
    return books, outside


def told(run, family, row, stage):
    """What the program is told is one and the same, and is the limit."""
    total = {"cuMemGetInfo": row["total"], "cuDeviceTotalMem": row["device_total"], "NVML": row["nvml_total"]}
    smi = [int(word) * MIB for word in row["nvidia_smi"].replace(",", " ").split() if word.isdigit()]
    if stage == "start":
        total["nvidia-smi"] = smi[0] if smi else None
        wrong = {name: mib(value) for name, value in total.items() if value != LIMIT}
        run.check(f"{family}: told a total of {given.memory_mib} MiB everywhere", not wrong, f"not by {wrong}" if wrong else "")
    used = {"cuMemGetInfo": row["total"] - row["free"], "NVML": row["nvml_used"], "nvidia-smi": smi[1] if len(smi) > 1 else None}
    values = [value for value in used.values() if value is not None]
    agree = len(values) == 3 and max(values) - min(values) <= GRANULE
    run.check(f"{family}: told the same use everywhere ({stage})", agree, ", ".join(f"{n} {mib(v) or 0:.1f}" for n, v in used.items()) + " MiB")
    return used["cuMemGetInfo"]


def one_family(run, daemon, nvml, family):
    taker = Taker(run, f"limits-{family}", [run.binary, family, LIMIT + LIMIT // 2], daemon)
    try:
        start = taker.stage("start")[0]
        full = taker.stage("full")[0]
        before = told(run, family, start, "start")
        right = full["last"] == "CUDA_ERROR_OUT_OF_MEMORY" and full["taken"] <= LIMIT
        run.check(f"{family}: ends with out of memory", right, f"{full['last']} after {mib(full['taken']):.0f} MiB")
        told(run, family, full, "full")
        pid = full["pid"]
        unseen = full["taken"] if family in UNSEEN else 0
        books, outside = compare(run, f"{family}, full", daemon, nvml, [pid], unseen)
        contexts = books[1] if books else before
        unused = LIMIT - contexts - full["taken"]
        run.check(
            f"{family}: gets all of the limit, to {mib(GRANULE):g} MiB",
            right and -MIB <= unused <= GRANULE,
            f"{mib(full['taken']):.0f} MiB beside {mib(contexts):.1f} of contexts: {mib(unused):.1f} of {given.memory_mib} unused",
        )
        if outside is not None:
            run.check(f"{family}: never more than the limit", outside <= LIMIT + MIB, f"NVML {mib(outside):.1f} of {given.memory_mib} MiB")
        taker.let(1)
        freed = taker.stage("freed")[0]
        _, after = compare(run, f"{family}, freed", daemon, nvml, [pid])
        told(run, family, freed, "freed")
        taker.let(2)
        again = taker.stage("again")[0]
        same = abs(again["taken"] - full["taken"]) <= GRANULE
        run.check(f"{family}: freed memory can be had again", same, f"{mib(again['taken']):.0f} after {mib(full['taken']):.0f} MiB")
        return [family, mib(before), mib(full["taken"]), mib(full["free"]), *(map(mib, books) if books else (None, None)), mib(outside), mib(after)]
    finally:
        taker.end()


def natively(run, nvml):
    """What each family takes by itself, up to half of the limit: no checks, only how far NVML follows."""
    rows = []
    for family in given.families.split(","):
        taker = Taker(run, f"native-{family}", [run.binary, family, LIMIT // 2])
        try:
            taker.stage("start")
            full = taker.stage("full")[0]
            time.sleep(0.2)
            at_full = (nvml.processes() or {}).get(full["pid"])
            taker.let(1)
            freed = taker.stage("freed")[0]
            time.sleep(0.2)
            rows.append([family, mib(full["taken"]), mib(at_full), mib((nvml.processes() or {}).get(freed["pid"]))])
        except Failed as reason:
            run.check(f"{family}: runs natively", False, str(reason)[-400:])
        finally:
            taker.end()
    print(harness.table(rows, ["natively", "taken MiB", "NVML MiB", "freed, NVML"]), flush=True)


def two_processes(run, daemon, nvml):
    """A job of two processes has one limit."""
    script = f'"{run.binary}" plain {LIMIT * 2} "$0" & "{run.binary}" plain {LIMIT * 2} "$0" & wait'
    taker = Taker(run, "limits-two", ["sh", "-c", script], daemon, count=2)
    try:
        full = taker.stage("full")
        pids = [row["pid"] for row in full]
        books, outside = compare(run, "two processes, full", daemon, nvml, pids)
        taken = sum(row["taken"] for row in full)
        if books:
            run.check(
                "two processes: one limit for the job",
                LIMIT - 2 * GRANULE <= sum(books) <= LIMIT,
                f"{mib(taken):.0f} MiB taken, rota {mib(sum(books)):.1f}, NVML {mib(outside) or 0:.1f}",
            )
        for number in (1, 2):
            taker.let(number)
    finally:
        taker.end()


def with_torch(run, daemon, nvml):
    """PyTorch with its libraries loaded: what its contexts take is in the books."""
    from harness.run import PROGRAMS

    taker = Taker(run, "limits-torch", [run.python, "-u", PROGRAMS / "limits_torch.py", GIB], daemon)
    try:
        full = taker.stage("full", 120)[0]
        compare(run, "torch", daemon, nvml, [full["pid"]])
        run.check("torch: told a total of the limit", full["total"] == LIMIT, f"{mib(full['total']):.1f} MiB")
        taker.let(1)
        again = taker.stage("again", 60)[0]
        seen = (nvml.processes() or {}).get(again["pid"])
        run.check(
            "torch: out of memory at the limit",
            again["last"] == "CUDA_ERROR_OUT_OF_MEMORY" and again["taken"] <= LIMIT and seen is not None and seen <= LIMIT + MIB,
            f"{again['last']} with {mib(again['taken']):.0f} MiB reserved, NVML {mib(seen) or 0:.1f}",
        )
    finally:
        taker.end()


def body(run):
    run.binary = run.build("limits.c", "-ldl")
    nvml = Nvml()
    left_out = given.without.split(",")
    if "native" not in left_out:
        natively(run, nvml)
    daemon = run.daemon("limits", capacity="64GiB", arena="1GiB")
    daemon.wait_arena()
    idle = run.command("idle", [run.binary, "plain", 256 * MIB, run.work / "never"], daemon)
    rows = []
    for family in given.families.split(","):
        try:
            rows.append(one_family(run, daemon, nvml, family))
        except Failed as reason:
            run.check(f"{family}: ran to its end", False, str(reason)[-600:])
    for name, part in (("two", two_processes), ("torch", with_torch)):
        if name in left_out:
            continue
        try:
            part(run, daemon, nvml)
        except Failed as reason:
            run.check(f"{name}: ran to its end", False, str(reason)[-600:])
    header = ["under rota, MiB", "used at start", "taken", "free then", "rota memory", "rota contexts", "NVML", "NVML freed"]
    print(harness.table(rows, header), flush=True)
    run.check("the idle tenant still runs", idle.alive(), "" if idle.alive() else idle.last_words())
    daemon.check_no_errors()


if __name__ == "__main__":
    harness.main("limits", 300, body)
