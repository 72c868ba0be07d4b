"""Disk: programs with more memory than GPU and arena have take turns, and what is needed last is on a disk meanwhile.

Four programs of 12 GiB on 16 GiB, with an arena of 16 GiB: at least 20 GiB are in the cellar at any time. Each program rewrites all
its bytes in every step, with values that cannot be packed, and knows at its end what every word must be. The speed of the disk is
measured before and after, by requests as the cellar makes them. PASS if everybody had at least two turns, every result is the
native one, bytes went to the disk and came back, used memory stayed under 16 GiB by NVML, and rotad ended within 30 s. How fast
the disk is is shown, not judged.
"""

import argparse
import mmap
import os
import tempfile
import threading
import time

import harness
from harness import GIB, Failed, MemorySampler, crowd, timeline

SEED = 17
TURNS_MIN = 2
REQUEST_BYTES = 2 << 20
THREADS = 4
"""Requests of one block by so many threads at once, as the cellar makes them."""
ENDS_WITHIN_S = 30.0
"""For the end of rotad after SIGTERM: what is pinned is given back, and a file of many GiB goes, which is the disk's time too."""

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--programs", type=int, default=4)
parser.add_argument("--gib", type=float, default=12.0)
parser.add_argument("--alloc-mib", type=int, default=1024)
parser.add_argument("--capacity", default="16GiB")
parser.add_argument("--arena", default="16GiB")
parser.add_argument("--cellar", default=tempfile.gettempdir(), help="a folder on a local disk")
parser.add_argument("--cellar-limit", default="44GiB")
parser.add_argument("--turn", default="6s")
parser.add_argument("--seconds", type=float, default=15.0, help="of work of each program, natively")
parser.add_argument("--measured-gib", type=float, default=4.0, help="how much is written and read to measure the disk")


def measured(folder, gib):
    """What the disk takes and gives, in bytes a second, past the page cache."""
    try:
        file = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT, 0o600)
    except OSError as reason:
        raise Failed(f"{folder} takes no file without a name for direct requests: {reason}") from None
    count = max(THREADS, round(gib * GIB) // REQUEST_BYTES)
    buffers = [mmap.mmap(-1, REQUEST_BYTES) for _ in range(THREADS)]
    for buffer in buffers:
        buffer.write(os.urandom(REQUEST_BYTES))

    def speed_of(request):
        failures = []

        def work(thread):
            try:
                for index in range(thread, count, THREADS):
                    if request(file, [buffers[thread]], index * REQUEST_BYTES) != REQUEST_BYTES:
                        raise OSError("a request was not carried out whole")
            except OSError as reason:
                failures.append(reason)

        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(THREADS)]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise Failed(f"the disk under {folder} fails: {failures[0]}")
        return count * REQUEST_BYTES / (time.monotonic() - began)

    try:
        os.posix_fallocate(file, 0, count * REQUEST_BYTES)
        return speed_of(os.pwritev), speed_of(os.preadv)
    finally:
        os.close(file)


def natively(run, binary, shape, seeds, steps, limit_s):
    """Results of programs one after the other, without rota."""
    found = {}
    for name, seed in seeds.items():
        found[name] = crowd.Turner(run, f"native-{name}", binary, shape, seed, steps).result(limit_s)
        run.say(f"   native {name}: {found[name]['gpu_phase_s']:.2f} s")
    return found


def body(run, given):
    names = [chr(ord("A") + n) for n in range(given.programs)]
    seeds = {name: SEED * (n + 1) for n, name in enumerate(names)}
    binary = run.build("turns.cu", "-arch=native")
    shape = crowd.calibrated(run, binary, given.gib, given.alloc_mib, 0.04)
    steps = max(1, round(given.seconds / shape.step_s))
    native = natively(run, binary, shape, seeds, steps, given.seconds * 1.5 + 60)
    disk = [measured(given.cellar, given.measured_gib)]

    memory = MemorySampler()
    daemon = run.daemon(
        run.name,
        capacity=given.capacity,
        arena=given.arena,
        turn=given.turn,
        cellar=given.cellar,
        cellar_limit=given.cellar_limit,
        ends_within_s=ENDS_WITHIN_S,
    )
    daemon.wait_arena(120)
    start = run.work / "start"
    programs = crowd.gathered(run, daemon, binary, shape, seeds, dict.fromkeys(names, steps), start, 240.0)
    mark = daemon.events.mark()
    harness.touch(start)
    found = {name: program.result(480) for name, program in programs.items()}
    memory.stop()
    daemon.events.read()
    pids = {program.pid: name for name, program in programs.items()}
    began = min(result["began_ns"] for result in found.values())
    ended = max(result["ended_ns"] for result in found.values())
    timeline.show(run, daemon.events, pids, began, ended)
    turns = {name: [] for name in names}
    for turn in timeline.turns(daemon.events):
        if turn.pid in pids and (turn.end_ns is None or turn.end_ns > began) and turn.begin_ns < ended:
            turns[pids[turn.pid]].append(turn)
    moves = [event for event in daemon.events.all[mark:] if event.get("event") == "move_end"]
    daemon.check_no_errors()
    run.end_daemons()
    run.fact(f"rotad, with what {given.arena} of arena and up to {given.cellar_limit} of cellar take, {daemon.end_said}")
    disk.append(measured(given.cellar, given.measured_gib))

    rows = [[name, len(turns[name]), max(timeline.gaps(turns[name]), default=None), found[name]["gpu_phase_s"]] for name in names]
    print(harness.table(rows, ["program", "turns", "longest gap s", "GPU phase s"]), flush=True)
    through(run, moves, disk)
    fewest = min(len(turns[name]) for name in names)
    run.check(f"everybody has at least {TURNS_MIN} turns", fewest >= TURNS_MIN, f"{fewest}")
    for name in names:
        crowd.check_right(run, name, found[name], native[name])
    memory.check_under(run, given.capacity, began_ns=began)
    alone_s = sum(native[name]["gpu_phase_s"] for name in names)
    run.fact(f"together {(ended - began) / 1e9:.1f} s, one after the other {alone_s:.1f} s")


def through(run, moves, disk):
    """What went through the disk, and how fast, beside what the disk does alone."""
    sums = {key: sum(move.get(key, 0) for move in moves) for key in ("bytes_out", "bytes_in", "sunk_bytes", "fetched_bytes", "took_ns")}
    slow = [move for move in moves if move.get("sunk_bytes", 0) + move.get("fetched_bytes", 0) > 0]
    took_s = sum(move["took_ns"] for move in slow) / 1e9
    speed = [sum(move[key] for move in slow) / max(took_s, 1e-9) / 1e9 for key in ("sunk_bytes", "fetched_bytes")]
    rows = [
        ["moved out", sums["bytes_out"] / GIB, None],
        ["moved in", sums["bytes_in"] / GIB, None],
        ["of what was away, to the disk", sums["sunk_bytes"] / GIB, speed[0]],
        ["and back", sums["fetched_bytes"] / GIB, speed[1]],
    ]
    for when, (write, read) in zip(("before", "after"), disk):
        rows += [[f"the disk alone, {when}: written", None, write / 1e9], [f"the disk alone, {when}: read", None, read / 1e9]]
    print(harness.table(rows, ["what", "GiB", "GB/s"]), flush=True)
    run.fact(f"{len(slow)} of {len(moves)} moves went through the disk, and took {took_s:.1f} s in all")
    run.check(
        "bytes went to the disk and came back",
        sums["sunk_bytes"] > 0 and sums["fetched_bytes"] > 0,
        f"{sums['sunk_bytes'] / GIB:.1f} GiB and {sums['fetched_bytes'] / GIB:.1f} GiB",
    )


if __name__ == "__main__":
    arguments = parser.parse_args()
    harness.main("disk", 590, lambda run: body(run, arguments))
