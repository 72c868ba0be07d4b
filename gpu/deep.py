"""Deep: whether the driver's checkpoint takes what is left of a program whose memory rota has moved out.

By rota: a program of 4 GiB without work is paused with `rota pause --deep`, and one in the middle of its work. PASS if NVML, which
counted something for the first before, shows nothing for it while it is out, it then goes on through many more turns, the other is
refused or comes back, and every word of all programs is right.

Asleep: a program hands over a kernel of 10 s, and its only thread sleeps, so that none is in the driver. PASS if it is refused for work
that nobody has waited for, and every word of it is right once it was resumed. What the driver's own lock answers for such a program,
frozen, is a fact: nothing rests on it.

By steps, to see what the driver's unlock needs: by hand, one that rota leaves alone goes through all steps. Another is locked, a third
locked, put away and brought back; then frozen by `rota pause`, then unlocked; if that is not answered, unlocked again once rota
has thawed it. Answers and times are facts; PASS if all go on and every word of theirs is right.

By hand, to see what the driver does: one without work is taken through the driver's steps as it is, frozen. What each answers within
10 s is a fact; the program is killed then.
"""

import argparse
import time
from dataclasses import replace

import harness
from harness import MIB, Failed, Nvml, crowd, end_group, where_it_stands
from harness.waiting import until

STEP_WITHIN_S = 10

KERNEL_S, SLEEP_S = 10, 25
"""Of the program that sleeps: how long its kernel takes, and how long nobody waits for that."""

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--parts", default="rota,asleep,steps,hand", help="some of them, with commas, in this order")
parser.add_argument("--gib", type=float, default=4.0)
parser.add_argument("--turn", default="300ms")
parser.add_argument("--arena", default="12GiB")
parser.add_argument("--freezes", type=int, default=20, help="how often it is frozen and moved afterwards")


def step(run, name, checkpoint, program, what, how=""):
    """One step of the driver's checkpoint, in a process of its own: its answer, or None if there is none in time."""
    try:
        found = run.command(f"{name}-{what}{how}".replace(" ", "-"), [checkpoint, str(program.pid), what]).result(STEP_WITHIN_S)
    except Failed:
        run.fact(f"{name}: {what}{how}: no answer within {STEP_WITHIN_S} s")
        run.write(f"{program.label}-{what}{how}.stands".replace(" ", "-"), where_it_stands(program.pid))
        return None
    what += how
    run.fact(f"{name}: {what}: {found['answer']} after {found['s']:.3f} s")
    return found["answer"] == "CUDA_SUCCESS"


def resident(nvml, program):
    """What NVML counts for it, in MiB; None if it is not listed. Where NVML does not answer, nothing is known of it: that is no 0."""
    listed = nvml.processes()
    if listed is None:
        raise Failed(f"NVML does not say which processes use the GPU, so not whether {program.label} does")
    found = listed.get(program.pid)
    # More than there is: how NVML says that it does not know.
    if found is not None and found > nvml.total():
        raise Failed(f"NVML does not say how much {program.label} uses")
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


def times(event):
    """What all of it took, and what of it was the driver's."""
    steps = ", ".join(f"{what} {event[f'{what}_ns'] / 1e9:.3f}" for what in ("lock", "out", "in", "unlock") if f"{what}_ns" in event)
    return f"{event['took_ns'] / 1e9:.3f} s ({steps})"


def deeply(run, name, daemon, program):
    """Pauses a program deeply: the event that says what became of it, and whether it was put away."""
    mark = daemon.events.mark()
    daemon.rota("pause", "--deep", name)
    kinds = ("deep", "deep_refused")
    found = until("it to be put away, or refused", 50, lambda: [e for kind in kinds for e in daemon.events.of(kind, program.pid, mark)], 0.02)
    if found[0]["event"] == "deep":
        run.fact(f"{name}: put away in {times(found[0])}; its context had {found[0]['residue_bytes'] / MIB:.0f} MiB")
    else:
        run.fact(f"{name}: refused: {found[0]['why']}")
    return found[0], found[0]["event"] == "deep"


def resumed(run, name, daemon, program, freezes, beside):
    """Lets it go on, through so many turns."""
    mark = daemon.events.mark()
    began = time.monotonic()
    daemon.rota("resume", name)
    try:
        until("it to be back", 30, lambda: program.program.must_live() and daemon.events.of("resident", program.pid, mark), 0.02)
    except Failed:
        run.write(f"{name}.stands", where_it_stands(program.pid))
        run.say(daemon.listing())
        raise
    run.fact(f"{name}: all of it is back {time.monotonic() - began:.3f} s after it was resumed")
    for event in daemon.events.of("deep_back", program.pid, mark):
        run.fact(f"{name}: its context was brought back in {times(event)}")
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
    _, went = deeply(run, "deep-stays", daemon, stays)
    left = resident(nvml, stays)
    # Counted before, or that it is not now says nothing.
    shown = [("not listed" if mib is None else f"{mib:.0f} MiB") for mib in (before, left)]
    run.check("by rota: NVML counted something for it, and shows nothing then", went and bool(before) and not left, f"{shown[0]} before, {shown[1]} then")
    harness.touch(start)
    resumed(run, "deep-stays", daemon, stays, freezes, comes)
    run.fact(f"in the middle of its work: {'put away' if deeply(run, 'deep-stays', daemon, stays)[1] else 'it stays'}")
    resumed(run, "deep-stays", daemon, stays, 2, comes)
    end(run, stays, comes)


def asleep(run, daemon, turns, shape, checkpoint):
    """A program with a kernel on the GPU and no thread in the driver: by rota, and what the driver's lock says of another one."""
    gib = 1.0
    rounds = round(shape.rounds * shape.gib / gib * KERNEL_S / shape.step_s)
    shape = replace(shape, gib=gib, alloc_mib=256, rounds=rounds, sleep_s=SLEEP_S)

    def sleeper(name, seed):
        start = run.work / f"{name}.start"
        program = crowd.Turner(run, name, turns, shape, seed, steps=1, under=daemon, start=start)
        program.wait_ready()
        harness.touch(start)
        time.sleep(2)
        return program

    def ends(program):
        crowd.check_right(run, program.label, program.result(90))

    program = sleeper("asleep-rota", 6)
    found, went = deeply(run, program.label, daemon, program)
    why = found.get("why", "")
    run.check("asleep: refused for work that nobody has waited for", not went and "nobody has waited for" in why, why)
    mark = daemon.events.mark()
    daemon.rota("resume", program.label)
    until("it to be thawed", 30, lambda: program.program.must_live() and daemon.events.of("thaw", program.pid, mark), 0.02)
    ends(program)
    daemon.check_no_errors()

    name = "asleep, by hand"
    program = sleeper("asleep-hand", 7)
    mark = daemon.events.mark()
    daemon.rota("pause", program.label)
    until("it to be frozen", 10, lambda: daemon.events.of("freeze", program.pid, mark), 0.02)
    locked = step(run, name, checkpoint, program, "lock", " while frozen")
    unlocked = not locked or step(run, name, checkpoint, program, "unlock", " while frozen")
    mark = daemon.events.mark()
    daemon.rota("resume", program.label)
    until("it to be thawed", 10, lambda: daemon.events.of("thaw", program.pid, mark), 0.02)
    if not unlocked:
        step(run, name, checkpoint, program, "unlock", " while thawed")
    ends(program)


def by_steps(run, daemon, turns, shape, checkpoint):
    """A program that rota leaves alone, and two that it freezes before they are unlocked."""
    shape = replace(shape, gib=1.0, alloc_mib=256)

    def idle(name, seed):
        start = run.work / f"{name}.start"
        program = crowd.Turner(run, name, turns, shape, seed, under=daemon, start=start)
        program.wait_ready()
        time.sleep(1)
        return program, start

    def goes_on(program):
        until("it to go on", 30, lambda: program.program.must_live() and len(program.step_times()) > 3, 0.05)
        end(run, program)

    def taken(name, program, steps):
        return all(step(run, name, checkpoint, program, what) for what in steps)

    name = "alone"
    program, start = idle("steps-alone", 3)
    comes_back = taken(name, program, ["lock", "out", "in"])
    step(run, name, checkpoint, program, "unlock")
    harness.touch(start)
    goes_on(program)

    for seed, (name, steps) in enumerate({"locked": ["lock"], "restored": ["lock", "out", "in"]}.items(), 4):
        if len(steps) > 1 and not comes_back:
            continue
        program, start = idle(f"steps-{name}", seed)
        if not taken(name, program, steps):
            end_group(program.program.child)
            continue
        mark = daemon.events.mark()
        daemon.rota("pause", program.label)
        frozen = until("it to be frozen", 10, lambda: daemon.events.of("freeze", program.pid, mark), 0.02)
        run.fact(f"{name}: {frozen[0]['channels']} channels were frozen meanwhile, in {frozen[0]['took_ns'] / 1e6:.2f} ms")
        answered = step(run, name, checkpoint, program, "unlock", " while frozen")
        mark = daemon.events.mark()
        harness.touch(start)
        daemon.rota("resume", program.label)
        until("it to be thawed", 10, lambda: daemon.events.of("thaw", program.pid, mark), 0.02)
        if not answered:
            step(run, name, checkpoint, program, "unlock", " while thawed")
        goes_on(program)


def end(run, *programs):
    for program in programs:
        program.stop()
    for program in programs:
        crowd.check_right(run, program.label, program.result(90))


def body(run, given):
    turns, checkpoint = run.build("turns.cu", "-arch=native"), run.build("checkpoint.cu", "-arch=native")
    shape = crowd.calibrated(run, turns, given.gib, 1024, 0.02)
    parts = {
        "rota": lambda daemon: by_rota(run, daemon, turns, shape, given.freezes),
        "asleep": lambda daemon: asleep(run, daemon, turns, shape, checkpoint),
        "steps": lambda daemon: by_steps(run, daemon, turns, shape, checkpoint),
        "hand": lambda daemon: by_hand(run, daemon, turns, shape, checkpoint),
    }
    for part in given.parts.split(","):
        daemon = run.daemon(f"deep-{part}", capacity=crowd.capacity_for(2, given.gib), arena=given.arena, turn=given.turn)
        daemon.wait_arena(120)
        # What one of them finds does not depend on another.
        try:
            parts[part](daemon)
            if part == "rota":
                daemon.check_no_errors()
        except Failed as reason:
            run.check(f"{part}: it ran to its end", False, str(reason))
            run.end_programs()
        run.end_daemons()


if __name__ == "__main__":
    chosen = parser.parse_args()
    harness.main("deep", 240, lambda run: body(run, chosen))
