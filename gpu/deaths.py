"""Deaths: a program killed while running, frozen, on its way out, away, on its way in; and the daemon itself killed.

A survivor runs throughout. PASS if, after each kill, the victim's device memory is free within a second and the survivor
goes on; and if everybody who lives to the end has the native result.
"""

import argparse
import struct
import time

import harness
from harness import GIB, MIB, Failed

FREE_MS_MAX = 1000.0
WATCH_S = 4.0
"""How long the device's memory is watched after a kill: longer than a turn, so that the survivor is back on the device."""
TOLERANCE = 192 * MIB
"""Of the level of used memory without the victim. A context alone is 518 MiB."""
SAME = ("steps", "bytes", "sum", "xor", "placed")

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--gib", type=float, default=12.0)
parser.add_argument("--tensor-mib", type=int, default=1024)
parser.add_argument("--inner", type=int, default=40)
parser.add_argument("--turn", default="2s")
parser.add_argument("--small", default="16GiB", help="a capacity in which one program fits")
parser.add_argument("--large", default="32GiB", help="a capacity in which two programs fit")
parser.add_argument("--arena", default="32GiB", help="with the small capacity")
parser.add_argument("--phases", default="running,frozen,moving_out,away,moving_in,daemon")
given = parser.parse_args()
ROWS = []


class Rewriter:
    """A rewrite.py under a daemon. It imports at once and touches CUDA when it is let go."""

    def __init__(self, run, daemon, label, seed):
        self.files = {kind: run.work / f"{label}.{kind}" for kind in ("hold", "ready", "stop", "progress")}
        self.seed = seed
        arguments = [part for kind, path in self.files.items() for part in (f"--{kind}-file", path)]
        self.program = run.program(label, "rewrite.py", *size_options(), "--seed", seed, *arguments, under=daemon)

    def go(self):
        harness.touch(self.files["hold"])
        self.program.wait_file(self.files["ready"], 120)

    def steps(self):
        try:
            return struct.unpack("<Q", self.files["progress"].read_bytes())[0]
        except (OSError, struct.error):
            return 0

    def moves_on(self, timeout_s):
        """Milliseconds until its next step is done, None if there is none."""
        before, began = self.steps(), time.monotonic()
        while time.monotonic() - began < timeout_s:
            if self.steps() > before:
                return (time.monotonic() - began) * 1e3
            time.sleep(0.005)
        return None

    def finish(self):
        harness.touch(self.files["stop"])
        return self.program.result(30)


def size_options():
    return ["--gib", given.gib, "--tensor-mib", given.tensor_mib, "--inner", given.inner]


def kill_in(run, daemon, nvml, survivor, victim, phase, level):
    """Kills the victim in a phase and watches what follows."""
    pid = victim.program.pid
    victim.go()
    events = daemon.events
    since = events.mark()
    event = {"running": "turn_begin", "frozen": "freeze"}.get(phase, phase)
    seen = events.wait(event, pid, since, 60)
    if phase == "running":
        time.sleep(0.5)
    elif phase == "away":
        time.sleep(0.2)
    victim.program.kill()
    killed_ns = harness.now_ns()
    before_steps = survivor.steps()
    samples, gone_ms, listed_ms, step_ms = [], None, None, None
    while harness.now_ns() - killed_ns < WATCH_S * 1e9:
        now_ms = (harness.now_ns() - killed_ns) / 1e6
        samples.append((now_ms, nvml.used()))
        if gone_ms is None and victim.program.child.poll() is not None:
            gone_ms = now_ms
        processes = nvml.processes()
        if processes and pid in processes:
            listed_ms = now_ms
        if step_ms is None and survivor.steps() > before_steps:
            step_ms = now_ms
        time.sleep(0.02)
    run.write(f"{phase}.memory.txt", "\n".join(f"{ms:9.1f} ms {used / MIB:9.0f} MiB" for ms, used in samples) + "\n")
    over = [ms for ms, used in samples if used > level + TOLERANCE]
    after = [ms for ms, _ in samples if not over or ms > over[-1]]
    free_ms = after[0] if after else None
    # The daemon's own order of things: the phase that the victim was in when it died.
    states = [e["event"] for e in events.of_process(pid) if events.at_ns(e) <= killed_ns]
    reaped = events.of("reaped", pid, since)
    reaped_ms = (events.at_ns(reaped[0]) - killed_ns) / 1e6 if reaped else None
    if step_ms is None:
        step_ms = survivor.moves_on(6.0)
        step_ms = None if step_ms is None else step_ms + WATCH_S * 1e3
    if phase == "away":
        run.fact(
            f"away: {seen.get('away_bytes', 0) / GIB:.2f} GiB of the victim were out, {seen.get('resident_bytes', 0) / GIB:.2f} GiB on the device"
        )
    kill_delay_ms = (killed_ns - events.at_ns(seen)) / 1e6
    ROWS.append(
        [
            phase,
            kill_delay_ms,
            states[-1] if states else "?",
            gone_ms,
            free_ms,
            listed_ms,
            reaped_ms,
            reaped[0].get("took_ns", 0) / 1e6 if reaped else None,
            step_ms,
        ]
    )
    run.check(
        f"{phase}: device memory free within {FREE_MS_MAX:g} ms",
        free_ms is not None and free_ms <= FREE_MS_MAX,
        f"{harness.fmt(free_ms)} ms, used at the end {samples[-1][1] / GIB:.2f} GiB, without the victim {level / GIB:.2f} GiB",
    )
    run.check(
        f"{phase}: the daemon reaped it within {FREE_MS_MAX:g} ms",
        reaped_ms is not None and reaped_ms <= FREE_MS_MAX,
        f"{harness.fmt(reaped_ms)} ms after the kill",
    )
    run.check(
        f"{phase}: the survivor goes on",
        step_ms is not None and survivor.program.alive(),
        f"next step after {harness.fmt(step_ms)} ms",
    )
    survivor.program.must_live()
    if not daemon.alive():
        raise Failed(f"rotad ended: {daemon.log_tail()}")


def part(run, nvml, label, capacity, arena, phases, seed):
    """One daemon, one survivor, a victim for each phase. Returns those who lived, with their results."""
    daemon = run.daemon(label, capacity=capacity, arena=arena, turn=given.turn)
    survivor = Rewriter(run, daemon, f"{label}-survivor", seed)
    victims = {phase: None for phase in phases}
    following = iter(phases)

    def prepare():
        phase = next(following, None)
        if phase:
            victims[phase] = Rewriter(run, daemon, f"{label}-{phase}", seed + 100)

    prepare()
    daemon.wait_arena()
    survivor.go()
    if survivor.moves_on(15) is None:
        survivor.program.must_live()
        raise Failed("the survivor does not begin")
    time.sleep(0.5)
    level = nvml.used()
    run.say(f"   survivor alone: {level / GIB:.2f} GiB used on the device")
    lived, killed = {}, set()
    for phase in phases:
        if phase != "daemon":
            prepare()
            killed.add(victims[phase].program.pid)
            kill_in(run, daemon, nvml, survivor, victims[phase], phase, level)
            continue
        daemon.check_no_errors(but=killed)
        lived.update(kill_daemon(run, daemon, survivor, victims[phase], label))
    if "daemon" not in phases:
        daemon.check_no_errors(but=killed)
        lived[survivor.program.label] = survivor
    return [(name, who.seed, who.finish()) for name, who in lived.items()]


def kill_daemon(run, daemon, survivor, other, label):
    """Kills rotad while both are resident, one of them frozen; both must go on by themselves."""
    other.go()
    if other.moves_on(15) is None:
        other.program.must_live()
        raise Failed("the second program does not begin")
    daemon.events.wait("freeze", survivor.program.pid, daemon.events.mark(), 30)
    daemon.kill()
    killed = time.monotonic()
    waits = {}
    for name, who in (("survivor, frozen", survivor), ("other", other)):
        waits[name] = who.moves_on(10)
    run.check(
        "daemon killed: both go on",
        all(w is not None for w in waits.values()) and survivor.program.alive() and other.program.alive(),
        ", ".join(f"{n}: next step after {harness.fmt(w)} ms" for n, w in waits.items()),
    )
    time.sleep(max(0.0, 2.0 - (time.monotonic() - killed)))
    return {survivor.program.label: survivor, other.program.label: other}


def body(run):
    nvml = harness.Nvml()
    wanted = [p for p in given.phases.split(",") if p]
    large = [p for p in wanted if p in ("running", "frozen", "daemon")]
    small = [p for p in wanted if p in ("moving_out", "away", "moving_in")]
    if set(wanted) - set(large) - set(small):
        raise Failed(f"no such phase: {set(wanted) - set(large) - set(small)}")
    finished = []
    try:
        if small:
            finished += part(run, nvml, "small", given.small, given.arena, small, 31)
            run.end_daemons()
        if large:
            finished += part(run, nvml, "large", given.large, "1GiB", large, 41)
            run.end_daemons()
    finally:
        print(
            harness.table(
                ROWS,
                [
                    "killed while",
                    "after ms",
                    "last event",
                    "gone ms",
                    "free ms",
                    "listed until ms",
                    "reaped ms",
                    "which took ms",
                    "next step ms",
                ],
            ),
            flush=True,
        )
    for name, seed, found in finished:
        native = run.program(
            f"native-{name}", "rewrite.py", *size_options(), "--seed", seed, "--steps", found["steps"]
        ).result(150)
        run.check(
            f"{name}: result is the native one",
            all(native[k] == found[k] for k in SAME),
            f"{found['steps']} steps, sum {found['sum']}, xor {found['xor']}",
        )


if __name__ == "__main__":
    harness.main("deaths", 560, body)
