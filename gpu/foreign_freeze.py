"""Can one user freeze another user's channels? Found out, not judged.

A victim counts in host memory from inside a kernel. An attacker of another user names the victim's client and channels in
its own freeze call: once with its own client (a), once with the victim's (b), always on its own file. That the call
works at all is shown on the attacker's own channels first. Prints FACT lines; a FAIL means that the test itself was not valid.
"""

import argparse
import os
import queue
import subprocess
import threading
import time

import harness
from harness import Failed

USER, NOBODY, ROOT = 1000, 65534, 0
PAIRS = {
    "other user": (NOBODY, USER),
    "user against root": (NOBODY, ROOT),
    "root against user": (ROOT, USER),
    "same user": (NOBODY, NOBODY),
}

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--pairs", default=",".join(PAIRS))
given = parser.parse_args()


class Talker:
    """A process whose lines are read in the background."""

    def __init__(self, run, label, argv, user):
        environment = dict(os.environ, HOME="/tmp", CUDA_CACHE_DISABLE="1")
        environment.pop("LD_PRELOAD", None)
        self.label = label
        self.error = run.logs / f"{label}.err"
        self.child = harness.spawn(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=open(self.error, "wb"),
            env=environment,
            text=True,
            cwd="/",
            user=user,
            group=user,
            extra_groups=[],
        )
        self.lines = queue.Queue()
        self.count = None
        self.log = open(run.logs / f"{label}.out", "w")
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.child.stdout:
            self.log.write(line)
            self.log.flush()
            words = line.split()
            if len(words) == 2 and words[0] == "count":
                self.count = int(words[1])
            elif words:
                self.lines.put(words)

    def line(self, timeout_s=30.0):
        """The next line that is not a counter."""
        try:
            return self.lines.get(timeout=timeout_s)
        except queue.Empty:
            raise Failed(
                f"{self.label} said nothing for {timeout_s:g} s (status {self.child.poll()}): {self.error.read_text()[-400:]}"
            ) from None

    def ask(self, words):
        """Sends a line; returns the status and the attacker's own counter."""
        try:
            self.child.stdin.write(words + "\n")
            self.child.stdin.flush()
        except OSError as error:
            raise Failed(f"{self.label} is gone: {error}") from error
        answer = self.line(20)  # verb, disable, "status", status, "count", counter
        return answer[3], int(answer[5])

    def end(self):
        harness.end_group(self.child)
        self.child.wait(10)


def counts_on(read, seconds=0.5):
    """Whether a counter moves, after a moment to settle."""
    time.sleep(0.2)
    before = read()
    time.sleep(seconds)
    return read() != before


def pair(run, binary, name, attacker_uid, victim_uid):
    label = name.replace(" ", "-")
    victim = Talker(run, f"{label}-victim", [binary, "victim"], victim_uid)
    attacker = None
    rows = []
    try:
        _, client, subdevice, channels, *_ = victim.line()
        attacker = Talker(run, f"{label}-attacker", [binary, "attacker", client, subdevice, channels], attacker_uid)
        own = attacker.line()
        if channels == "fd" or own[3] == "fd":
            raise Failed(f"{name}: no channels were seen being made: the driver's library does not call our ioctl")
        for who, uid, made in (
            ("victim", victim_uid, [client, channels]),
            ("attacker", attacker_uid, [own[1], own[3]]),
        ):
            run.say(f"   {name}: {who} uid {uid}, client {made[0]}, {len(made[1].split(','))} channels")

        def victim_counts():
            return counts_on(lambda: victim.count)

        def attacker_counts():
            return counts_on(lambda: attacker.ask("count 0")[1])

        valid = victim_counts() and attacker_counts()
        status, _ = attacker.ask("own 1")
        stopped = not attacker_counts()
        back, _ = attacker.ask("own 0")
        again = attacker_counts()
        rows.append(
            [
                name,
                "own channels",
                status,
                "stopped" if stopped else "ran on",
                "ran on" if victim_counts() else "stopped",
                back,
            ]
        )
        run.check(
            f"{name}: the test is valid (freezing its own channels works)",
            valid and stopped and again and status == back == "0x0",
            f"status {status}, thaw {back}",
        )
        for way, verb in (
            ("(a) own client, victim named in the lists", "foreign"),
            ("(b) victim's client on its own file", "asvictim"),
        ):
            if not victim_counts():
                raise Failed(f"{name}: the victim's counter stands still before {way}")
            status, _ = attacker.ask(f"{verb} 1")
            ran_on = victim_counts()
            self_runs = attacker_counts()
            back, _ = attacker.ask(f"{verb} 0")
            recovered = victim_counts()
            if not self_runs:
                attacker.ask("own 0")
            rows.append(
                [name, way, status, "ran on" if self_runs else "stopped", "ran on" if ran_on else "STOPPED", back]
            )
            run.fact(
                f"{name} (uid {attacker_uid} -> {victim_uid}), {way}: status {status}, the victim {'ran on' if ran_on else 'WAS FROZEN'}"
                + (
                    ""
                    if ran_on
                    else f"; thawed by the attacker: status {back}, the victim {'runs again' if recovered else 'STAYED FROZEN'}"
                )
            )
            if not recovered:
                break
    finally:
        for talker in (attacker, victim):
            if talker:
                talker.end()
    return rows


def body(run):
    modes = {
        path: oct(os.stat(path).st_mode & 0o777)
        for path in ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm")
        if os.path.exists(path)
    }
    run.fact(f"device files: {modes}")
    binary = run.build("foreign_freeze.c", "-Xcompiler", "-rdynamic")
    rows = []
    for name in given.pairs.split(","):
        if name not in PAIRS:
            raise Failed(f"no such pair: {name}")
        try:
            rows += pair(run, binary, name, *PAIRS[name])
        except Failed as reason:
            run.check(f"{name}: done", False, str(reason))
    print(
        harness.table(rows, ["attacker and victim", "call", "status", "attacker", "victim", "thaw status"]), flush=True
    )


if __name__ == "__main__":
    harness.main("foreign_freeze", 120, body)
