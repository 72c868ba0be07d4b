"""Waiting with a bound, on the clock that all processes of the machine share."""

from __future__ import annotations

import time

POLL_S = 0.002
"""How often a file is looked at while something is awaited: short beside a move (0.3 s), long beside a read (20 us)."""


class Failed(Exception):
    """A step of a script could not be done: the script reports it as a failed check and ends."""


def now_ns() -> int:
    """The monotonic clock, the same for all processes of the machine."""
    return time.monotonic_ns()


def until(what: str, timeout_s: float, ready, poll_s: float = POLL_S):
    """Calls `ready` until it answers something true; raises Failed after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = ready()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise Failed(f"waited {timeout_s:g} s for {what}")
        time.sleep(poll_s)
