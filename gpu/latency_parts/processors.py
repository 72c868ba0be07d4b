"""What the machine's processors did meanwhile: time that other machines had of them, and time that threads waited for one."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

TICKS_S = os.sysconf("SC_CLK_TCK")


def stolen_s():
    """How long the processors were kept from this machine, all together, since it started."""
    return int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8]) / TICKS_S


def waited_s(pid):
    """How long the threads of a process were ready to run and did not, all together, since each started."""
    waited = 0
    for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            waited += int(thread.read_text().split()[1])
    return waited / 1e9


class Processors:
    """From its making on."""

    def __init__(self, names):
        """Of which processes, by their numbers, and what to call them."""
        self.names, self.begun = names, time.monotonic()
        self.stolen, self.waited = stolen_s(), {pid: waited_s(pid) for pid in names}
        self.said, self.stolen_ms = None, 0.0

    def end(self):
        """What it was, in words, in milliseconds a second."""
        passed = max(1e-3, time.monotonic() - self.begun)
        self.stolen_ms = 1e3 * (stolen_s() - self.stolen) / passed
        each = [f"{name} waited {1e3 * max(0.0, waited_s(pid) - self.waited[pid]) / passed:.2f}" for pid, name in self.names.items()]
        self.said = ", ".join([f"stolen {self.stolen_ms:.2f}", *each])
