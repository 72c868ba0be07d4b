"""A program that is spoken to by lines."""

from __future__ import annotations

import os
import select
import subprocess
import time

from .processes import end_group
from .waiting import Failed


READY_S = 150.0


class Spoken:
    """A program that answers each line with a line. Its first one, `told`, it says by itself: it is waited for, unless `ready_s`
    is None."""

    def __init__(self, run, label: str, argv, under=None, terms=(), env=None, ready_s: float | None = READY_S):
        self.label = label
        self.program = run.command(label, argv, under, env, terms, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._rest = b""
        self.told = None
        if ready_s is not None:
            self.ready(ready_s)

    def ready(self, timeout_s: float = READY_S):
        """Waits for its first word."""
        self.told = self.hear(timeout_s)

    def hear(self, timeout_s: float) -> str:
        """Its next line."""
        deadline = time.monotonic() + timeout_s
        pipe = self.program.child.stdout
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Failed(f"{self.label} did not answer within {timeout_s:g} s")
            if select.select([pipe], [], [], min(left, 1.0))[0]:
                data = os.read(pipe.fileno(), 65536)
                if not data:
                    raise Failed(f"{self.label} {self._how_it_ended()}: {self.program.last_words()}")
                self._rest += data
            else:
                self.program.must_be_served()
        line, self._rest = self._rest.split(b"\n", 1)
        return line.decode(errors="replace")

    def _how_it_ended(self) -> str:
        """How one ended that says no more."""
        try:
            return f"ended with {self.program.child.wait(10)}"
        except subprocess.TimeoutExpired:
            return "has closed its output, and goes on"

    def say(self, line: str):
        """Says a line."""
        try:
            self.program.child.stdin.write(line.encode() + b"\n")
            self.program.child.stdin.flush()
        except OSError as reason:
            raise Failed(f"{self.label} does not listen ({reason}): {self.program.last_words()}") from reason

    def tell(self, line: str, timeout_s: float = 60.0) -> str:
        """Says a line and answers what it says."""
        self.say(line)
        return self.hear(timeout_s)

    def end(self, last_word: str = ""):
        """Says a last word, if there is one, and that nothing follows."""
        try:
            self.program.child.stdin.write(last_word.encode())
            self.program.child.stdin.close()
            self.program.child.wait(20)
        except (OSError, subprocess.TimeoutExpired):
            end_group(self.program.child)
