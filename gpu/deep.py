"""Deep: whether the driver's checkpoint takes what is left of a program whose memory rota has moved out.

By rota: a program of 4 GiB without work is paused with `rota pause --deep`, and one in the middle of its work. PASS if NVML shows
nothing for the first while it is out, it then goes on through many more turns, the other is refused or comes back, and every word of
all programs is right.

By hand, to see what the driver does: one without work is taken through the driver's steps as it is, frozen. What each answers within
10 s is a fact; the program is killed then.
"""

import argparse
import time

import harness
from harness import MIB, Failed, Nvml, crowd
from harness.waiting import until

STEP_WITHIN_S = 10

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--parts", default="rota,hand", help="some of them, with commas")
parser.add_argument("--gib", type=float, default=4.0)
parser.add_argument("--turn", default="300ms")
parser.add_argument("--arena", default="12GiB")
parser.add_argument("--freezes", type=int, default=20, help="how often it is frozen and moved afterwards")


def step(run, name, checkpoint, program, what):
    """One step of the driver's checkpoint, in a process of its own: its answer, or None if there is none in time."""
    try:
        found = run.command(f"{name}-{what}", [checkpoint, str(program.pid), what]).result(STEP_WITHIN_S)
    except Failed:
        run.fact(f"{name}: {what}: no answer within {STEP_WITHIN_S} s")
        return None
    run.fact(f"{name}: {what}: {found['answer']} after {found['s']:.3f} s")
    return found["answer"] == "CUDA_SUCCESS"


def resident(nvml, program):
    """What NVML counts for it, in MiB; None if it is not listed."""
    found = (nvml.processes() or {}).get(program.pid)
    return None if found is None else found / MIB


def driven_out(run, name, daemon, turns, shape, busy):
    """A program that is away, and the one that took its place."""
    start = run.work / f"{name}.start"
    stays = crowd.Turner(run, f"{name}-stays", turns, shape, 1, under=daemon, start=None if busy else start)
    stays.wait_ready()
    mark = daemon.events.mark()
    comes = crowd.Turner(run, f"{name}-comes", turns, shape, 2, under=daemon)
    comes.wait_ready()
    until("it to be moved out", 30, lambda: daemon.events.of("moving_out", stays.pid, mark), 0.02)
    return stays, comes, start


def by_hand(run, daemon, turns, shape, checkpoint):
    """A program without work, away and frozen as it is. It may never be of use again: it is killed."""
    name, nvml = "by hand", Nvml()
    stays, comes, _ = driven_out(run, "hand", daemon, turns, shape, busy=False)
    time.sleep(1)
    run.fact(f"{name}: away, NVML counts {resident(nvml, stays)} MiB for it")
    if step(run, name, checkpoint, stays, "lock") and step(run, name, checkpoint, stays, "out"):
        run.fact(f"{name}: out, NVML counts {resident(nvml, stays)} MiB for it")
    done = len(comes.step_times())
    until("the other to go on", 30, lambda: comes.program.must_live() and len(comes.step_times()) > done + 2, 0.05)
    stays.program.kill()
    end(run, comes)


def deeply(run, name, daemon, program):
    """Pauses a program deeply: the event that says what became of it."""
    mark = daemon.events.mark()
    daemon.rota("pause", "--deep", name)
    kinds = ("deep", "deep_refused")
    found = until("it to be put away, or refused", 50, lambda: [e for kind in kinds for e in daemon.events.of(kind, program.pid, mark)], 0.02)
    if found[0]["event"] == "deep":
        run.fact(f"{name}: put away in {found[0]['took_ns'] / 1e9:.3f} s; its context had {found[0]['residue_bytes'] / MIB:.0f} MiB")
    else:
        run.fact(f"{name}: refused: {found[0]['why']}")
    return found[0]["event"] == "deep"


def resumed(run, name, daemon, program, freezes, beside):
    """Lets it go on, through so many turns."""
    mark = daemon.events.mark()
    began = time.monotonic()
    daemon.rota("resume", name)
    until("it to be back", 30, lambda: program.program.must_live() and daemon.events.of("resident", program.pid, mark), 0.02)
    run.fact(f"{name}: all of it is back {time.monotonic() - began:.3f} s after it was resumed")
    until(
        f"{freezes} freezes",
        30 + freezes,
        lambda: program.program.must_live() and beside.program.must_live() and len(daemon.events.of("freeze", program.pid, mark)) >= freezes,
        0.1,
    )


def by_rota(run, daemon, turns, shape, freezes):
    nvml = Nvml()
    stays, comes, start = driven_out(run, "deep", daemon, turns, shape, busy=False)
    before = resident(nvml, stays)
    went = deeply(run, "deep-stays", daemon, stays)
    left = resident(nvml, stays)
    run.check("by rota: NVML shows nothing for it", went and not left, f"{before} MiB before, {'not listed' if left is None else left} then")
    harness.touch(start)
    resumed(run, "deep-stays", daemon, stays, freezes, comes)
    run.fact(f"in the middle of its work: {'put away' if deeply(run, 'deep-stays', daemon, stays) else 'it stays'}")
    resumed(run, "deep-stays", daemon, stays, 2, comes)
    end(run, stays, comes)


def end(run, *programs):
    for program in programs:
        program.stop()
    for program in programs:
        crowd.check_right(run, program.label, program.result(90))


def body(run, given):
    turns, checkpoint = run.build("turns.cu", "-arch=native"), run.build("checkpoint.cu", "-arch=native")
    shape = crowd.calibrated(run, turns, given.gib, 1024, 0.02)
    daemon = run.daemon("deep", capacity=crowd.capacity_for(2, given.gib), arena=given.arena, turn=given.turn)
    daemon.wait_arena(120)
    parts = given.parts.split(",")
    if "rota" in parts:
        by_rota(run, daemon, turns, shape, given.freezes)
    daemon.check_no_errors()
    if "hand" in parts:
        by_hand(run, daemon, turns, shape, checkpoint)


if __name__ == "__main__":
    chosen = parser.parse_args()
    harness.main("deep", 150, lambda run: body(run, chosen))
