"""How much is in use on the GPU, looked at all the time."""

from __future__ import annotations

import threading
import time

from .device import Nvml
from .waiting import now_ns

LOOK_S = 0.02
"""Between two looks: short beside a move of some GiB (0.2 s), seldom enough not to keep the driver's lock from others."""


class MemorySampler:
    """Used memory of GPU 0 from here on, by anybody. `before` is what was used at the first look."""

    def __init__(self):
        self._nvml = Nvml()
        self.before = self._nvml.used()
        self.samples: list[tuple[int, int]] = [(now_ns(), self.before)]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self):
        while not self._stop.is_set():
            self.samples.append((now_ns(), self._nvml.used()))
            time.sleep(LOOK_S)

    def stop(self):
        """Ends looking."""
        self._stop.set()
        self._thread.join(2)

    def most(self, until_ns: int | None = None) -> tuple[int, int]:
        """The most that was in use, up to an instant if one is given: bytes more than before, and when."""
        used, at = max((used, -at) for at, used in self.samples if until_ns is None or at <= until_ns)
        return used - self.before, -at
