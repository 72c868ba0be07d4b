"""Programs of `programs/shares.cu`, which keep the GPU busy, and what they have done, read from outside at any time."""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

from .program import touch
from .waiting import Failed

SHM = Path("/dev/shm") if Path("/dev/shm").is_dir() else None


def cores(count: int) -> list[int]:
    """So many that are not of one physical core, nor the first; none if there are too few."""
    found = {}
    for core in sorted(os.sched_getaffinity(0)):
        path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
        found.setdefault(path.read_text() if path.exists() else core, core)
    return list(found.values())[1 : 1 + count] if len(found) >= count + 2 else []


class Busy:
    """One program, and its counts."""

    def __init__(self, run, label: str, binary, kind: str, under=None, terms=(), core=None, env=None):
        self.kind, self.label = kind, label
        self.path = (SHM or run.work) / f"rota-{os.getpid()}-{label}"
        for path in (self.path, self.stop_path):
            path.unlink(missing_ok=True)
        argv = [binary, kind, self.path, *([] if core is None else [str(core)])]
        self.program = run.command(label, argv, under, env, terms)
        self._map = None

    @property
    def stop_path(self) -> Path:
        return Path(f"{self.path}.stop")

    def count(self) -> int:
        """What it has done."""
        if self._map is None:
            try:
                with open(self.path, "rb") as file:
                    self._map = mmap.mmap(file.fileno(), 32, prot=mmap.PROT_READ)
            except (OSError, ValueError):
                return 0
        return sum(struct.unpack("<4Q", self._map[:32]))

    def wait(self, timeout_s: float = 40.0):
        """Until it has done something."""
        deadline = time.monotonic() + timeout_s
        while not self.count():
            self.program.must_live()
            if time.monotonic() > deadline:
                raise Failed(f"{self.label} has done nothing for {timeout_s:g} s")
            time.sleep(0.005)

    def end(self) -> dict:
        """Lets it end by itself and looks at its end."""
        touch(self.stop_path)
        try:
            return self.program.result(30)
        finally:
            for path in (self.path, self.stop_path):
                path.unlink(missing_ok=True)
