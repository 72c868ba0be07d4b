"""Stopped: a program that its user stops (Ctrl-Z) in each phase and lets go on later.

Two programs that don't fit together. A stopped one cannot answer, so what it has on the device cannot be moved off, and the
other has to wait for it: its steps meanwhile are a fact for turn_begin, freeze and moving_out. For away and moving_in,
where the stopped one's memory is out of the way, PASS if the other goes on. Always: PASS if both go on after it was let go,
errors come to an end, and both end with the native result.
"""

import argparse
import os
import signal
import struct
import time

import harness

SAME = ("steps", "bytes", "sum", "xor", "placed")
SEEDS = {"A": 3, "B": 4}
OTHER_GOES_ON = ("away", "moving_in")
"""Phases in which the memory of the stopped one is out of the way, or cannot come back."""
GO_ON_S_MAX = 30.0
GO_ON_STEPS = 2
"""The step that was under way may be complete on the device already; the one after it is not."""
SETTLE_S = 15.0
"""After this long a program that was let go causes no more errors: longer than rotad keeps a silent one waiting."""
QUIET_S = 5.0
"""How long both run on after that."""

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--gib", type=float, default=4.5)
parser.add_argument("--tensor-mib", type=int, default=512)
parser.add_argument("--capacity", default="8GiB")
parser.add_argument("--arena", default="16GiB")
parser.add_argument("--turn", default="500ms")
parser.add_argument("--stopped-s", type=float, default=6.0, help="how long a program is stopped")
parser.add_argument("--phases", default="turn_begin,freeze,moving_out,away,moving_in")
given = parser.parse_args()


def options(name):
    return ["--gib", given.gib, "--tensor-mib", given.tensor_mib, "--seed", SEEDS[name]]


class Rewriter:
    """A rewrite.py under the daemon, that goes on until it is told to end."""

    def __init__(self, run, daemon, name):
        self.files = {kind: run.work / f"{name}.{kind}" for kind in ("ready", "start", "stop", "progress")}
        files = [part for kind, path in self.files.items() for part in (f"--{kind}-file", path)]
        self.program = run.program(name, "rewrite.py", *options(name), *files, under=daemon)
        self.let_go_ns = None

    def steps(self):
        try:
            return struct.unpack("<Q", self.files["progress"].read_bytes())[0]
        except (OSError, struct.error):
            return 0


def let_go(stopped, rewriters):
    """Lets the stopped one go on. Returns the seconds until each goes on, None for one that doesn't."""
    before = {name: rewriter.steps() for name, rewriter in rewriters.items()}
    os.kill(stopped.program.pid, signal.SIGCONT)
    stopped.let_go_ns = harness.now_ns()
    began = time.monotonic()
    took = dict.fromkeys(rewriters)
    while None in took.values() and time.monotonic() - began < GO_ON_S_MAX:
        for name, rewriter in rewriters.items():
            rewriter.program.must_live()
            if took[name] is None and rewriter.steps() >= before[name] + GO_ON_STEPS:
                took[name] = time.monotonic() - began
        time.sleep(0.005)
    return took


def stop_in(run, daemon, rewriters, phase):
    """Stops A in a phase, lets it go on, and checks who goes on when. Returns a row of the table."""
    stopped, other = rewriters["A"], rewriters["B"]
    daemon.events.wait(phase, stopped.program.pid, daemon.events.mark(), 30)
    os.kill(stopped.program.pid, signal.SIGSTOP)
    time.sleep(given.stopped_s / 2)  # a move that waits for it is given up in this half
    before = other.steps()
    time.sleep(given.stopped_s / 2)
    meanwhile = other.steps() - before
    took = let_go(stopped, rewriters)
    if phase in OTHER_GOES_ON:
        run.check(f"{phase}: the other goes on while it is stopped", meanwhile > 0, f"{meanwhile} steps")
    else:
        run.fact(f"{phase}: the other did {meanwhile} steps while it was stopped")
    for who, name in (("it", "A"), ("the other", "B")):
        detail = f"{GO_ON_STEPS} steps after {harness.fmt(took[name])} s"
        run.check(f"{phase}: {who} goes on afterwards, within {GO_ON_S_MAX:g} s", took[name] is not None, detail)
    return [phase, meanwhile, took["A"], took["B"]]


def check_errors(run, daemon, rewriters):
    """Errors are expected while a program is stopped and shortly after, and none once it has settled."""
    settled_ns = rewriters["A"].let_go_ns + SETTLE_S * 1e9
    errors = daemon.events.of("error")
    late = [e for e in errors if daemon.events.at_ns(e) > settled_ns]
    what = "; ".join(str(e.get("what", e)) for e in late[:3])
    run.check(f"no error event from {SETTLE_S:g} s after it was let go for the last time", not late, what)
    expected = [e.get("pid") for e in errors if e not in late]
    about = {name: expected.count(rewriter.program.pid) for name, rewriter in rewriters.items()}
    rest = len(expected) - sum(about.values())
    run.fact(f"error events up to then: {about['A']} about it, {about['B']} about the other, {rest} about neither")


def body(run):
    daemon = run.daemon("stopped", capacity=given.capacity, arena=given.arena, turn=given.turn)
    daemon.wait_arena()
    rewriters = {name: Rewriter(run, daemon, name) for name in SEEDS}
    for rewriter in rewriters.values():
        rewriter.program.wait_file(rewriter.files["ready"], 120)
    for rewriter in rewriters.values():
        harness.touch(rewriter.files["start"])

    rows = []
    try:
        for phase in given.phases.split(","):
            rows.append(stop_in(run, daemon, rewriters, phase))
    finally:
        header = ["stopped at", "other's steps meanwhile", "it goes on after, s", "the other after, s"]
        print(harness.table(rows, header), flush=True)
    time.sleep(SETTLE_S + QUIET_S)
    for rewriter in rewriters.values():
        harness.touch(rewriter.files["stop"])
    found = {name: rewriter.program.result(60) for name, rewriter in rewriters.items()}
    check_errors(run, daemon, rewriters)

    run.end_daemons()
    for name in SEEDS:
        steps = found[name]["steps"]
        native = run.program(f"native-{name}", "rewrite.py", *options(name), "--steps", steps).result(150)
        same = all(native[key] == found[name][key] for key in SAME)
        detail = f"{steps} steps, sum {found[name]['sum']} xor {found[name]['xor']}"
        run.check(f"{name}: result is the native one", same, detail)


if __name__ == "__main__":
    harness.main("stopped", 300, body)
