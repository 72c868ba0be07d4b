"""Births: programs that make and destroy contexts all the time, beside others that take a turn every few milliseconds.

Channels are born and die while their program is being frozen or thawed. PASS if no program ever stands still, every byte
read back is right, and no more contexts fail than natively.
"""

import argparse
import struct
import time

import harness

STILL_S_MAX = 15.0
"""A life takes a fraction of a second alone; frozen and waiting for the driver's lock, a few."""

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--steady", type=int, default=2, help="programs that keep their context")
parser.add_argument("--makers", type=int, default=3, help="programs that make one after the other")
parser.add_argument("--seconds", type=float, default=40.0)
parser.add_argument("--turn", default="20ms")
parser.add_argument("--jitter", type=float, default=0.9)
parser.add_argument("--capacity", default="8GiB")
parser.add_argument("--arena", default="4GiB")
given = parser.parse_args()


class Maker:
    """A births.py, natively or under a daemon."""

    def __init__(self, run, label, steady, under=None):
        self.file = run.work / f"{label}.progress"
        options = ["--seconds", given.seconds, "--progress-file", self.file, *(["--steady"] if steady else [])]
        self.program = run.program(label, "births.py", *options, under=under)
        self.lives, self.since, self.still = 0, time.monotonic(), 0.0

    def look(self):
        """How long it has stood still."""
        try:
            lives = struct.unpack("<Q", self.file.read_bytes())[0]
        except (OSError, struct.error):
            lives = 0
        if lives != self.lives:
            self.lives, self.since = lives, time.monotonic()
        self.still = max(self.still, time.monotonic() - self.since)
        return time.monotonic() - self.since


def together(run, label, under=None):
    # Whoever is steady wants every turn it can get, so those of the others end as soon as they may.
    names = [f"steady-{number}" for number in range(given.steady)] + [f"maker-{n}" for n in range(given.makers)]
    makers = [Maker(run, f"{label}-{name}", name.startswith("steady"), under) for name in names]
    stuck = None
    while stuck is None and any(maker.program.alive() for maker in makers):
        stuck = next((m for m in makers if m.program.alive() and m.look() > STILL_S_MAX), None)
        time.sleep(0.02)
    if stuck:
        run.write(f"{label}-stuck.txt", harness.where_it_stands(stuck.program.pid))
        run.say(harness.where_it_stands(stuck.program.pid)[:6000])
        if under:
            run.say(under.listing())
    run.check(f"{label}: nobody stood still", stuck is None, f"longest {max(m.still for m in makers):.2f} s")
    return None if stuck else {name: maker.program.result(10) for name, maker in zip(names, makers)}


def body(run):
    native = together(run, "native")
    daemon = run.daemon("births", capacity=given.capacity, arena=given.arena, turn=given.turn, jitter=given.jitter)
    daemon.wait_arena()
    under = together(run, "rota", daemon)
    if not native or not under:
        return
    rows = [
        [label, name, r["lives"], r["wrong"], f"{r['longest_s']:.3f}"]
        for label, results in (("native", native), ("rota", under))
        for name, r in results.items()
    ]
    run.say(harness.table(rows, ["under", "program", "rounds", "wrong", "longest s"]))
    for label, results in (("native", native), ("rota", under)):
        wrong = sum(r["wrong"] for r in results.values())
        run.check(f"{label}: every byte read back is right", wrong == 0, f"{wrong} wrong")
    lives = sum(r["lives"] for name, r in under.items() if name.startswith("maker"))
    freezes = len(daemon.events.of("freeze"))
    run.check("contexts were made while turns changed", freezes > lives, f"{lives} contexts, {freezes} freezes")
    daemon.check_no_errors()


if __name__ == "__main__":
    harness.main("births", 240, body)
