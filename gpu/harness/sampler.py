"""How much is in use on the GPU, looked at all the time, and whether that stays under what the GPU is treated as."""

from __future__ import annotations

import threading
import time

from .device import Nvml
from .waiting import Failed, now_ns

GIB, MIB = 1 << 30, 1 << 20
LOOK_S = 0.02
"""Between two looks: short beside a move of some GiB (0.2 s), seldom enough not to keep the driver's lock from others."""
SELDOM_S = 0.1
"""Where moves are what is measured: some looks in each of 12 GiB, and next to nothing for it to wait for."""
SETTLED_S, SETTLES_WITHIN_S = 0.3, 5.0
"""What programs had is given back a moment after their end. For so long nothing may have been given back, before it counts as what
others have."""
BLIND_MAX_S = 2.0
"""Without a look for longer than this it is not known what was used."""


class MemorySampler:
    """Used memory of GPU 0 from here on, by anybody. `before` is what was in use at first, by whoever was there already: the least
    that was seen until nothing more was given back."""

    def __init__(self, every_s: float = LOOK_S):
        self._nvml = Nvml()
        self._every_s = every_s
        self.samples: list[tuple[int, int]] = []
        self.looks: list[tuple[int, int]] = []
        self.failure = ""
        self.before = self._settled()
        self._look()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _settled(self) -> int:
        least, begun = self._nvml.used(), time.monotonic()
        since = begun
        while time.monotonic() < min(since + SETTLED_S, begun + SETTLES_WITHIN_S):
            time.sleep(LOOK_S)
            if (used := self._nvml.used()) < least:
                least, since = used, time.monotonic()
        return least

    def _follow(self):
        while not self._stop.is_set():
            try:
                self._look()
            except Exception as reason:
                # Whoever does not look sees nothing wrong: that is no pass.
                self.failure = str(reason) or type(reason).__name__
                return
            time.sleep(self._every_s)

    def _look(self):
        begun = now_ns()
        used = self._nvml.used()
        self.samples.append((begun, used))
        self.looks.append((begun, now_ns()))

    def stop(self):
        """Ends looking."""
        self._stop.set()
        self._thread.join(2)
        # A look that does not come back is not waited for, and counts as none.
        self.samples, self.looks = self.samples[:], self.looks[:]
        self._ended_ns = now_ns()

    def blind_s(self, held: tuple[int, int] | None = None) -> float:
        """The longest time in which it is not known what was used, once it was stopped: from one look to the end of the next, as the
        driver may keep one waiting. `held`: from when to when it gave nobody memory, as was seen otherwise; nothing is missed then."""
        ends = [ended for _, ended in self.looks[1:]] + [self._ended_ns]
        spans = [(begun, ended) for (begun, _), ended in zip(self.looks, ends)]
        return max(ended - begun - _common((begun, ended), held) for begun, ended in spans) / 1e9

    def longest_look(self) -> tuple[int, int]:
        """From when to when the driver kept a look waiting for longest, once it was stopped."""
        return max(self.looks, key=lambda look: look[1] - look[0])

    def most(self, until_ns: int | None = None) -> tuple[int, int]:
        """The most that was in use, up to an instant if one is given: bytes more than before, and when."""
        used, at = max((used, -at) for at, used in self.samples if until_ns is None or at <= until_ns)
        return used - self.before, -at

    def check_under(self, run, capacity: str, label: str = "", began_ns: int | None = None, until_ns: int | None = None, held=None):
        """One check: no more was ever in use than the GPU is treated as, by anybody but those who had some before. `began_ns` is what
        instants are counted from, `until_ns` one up to which it is said apart; `held` as above."""
        most, at = self.most()
        said = f"{most / GIB:.3f} GiB more than before at most"
        if began_ns is not None:
            said += f", {(at - began_ns) / 1e9:.2f} s after the start"
        if until_ns is not None:
            said += f"; {self.most(until_ns)[0] / GIB:.3f} GiB until the first program ends"
        said += f"; {self.before / GIB:.3f} GiB before; by NVML in {len(self.samples)} looks, {self.blind_s():.2f} s apart at most"
        said += f", {self.blind_s(held):.2f} but for when nobody was given memory" if held else ""
        said += f"; then it failed: {self.failure}" if self.failure else ""
        saw_all = not self.failure and self.blind_s(held) <= BLIND_MAX_S
        what = (f"{label}: " if label else "") + f"used memory stays under {capacity}"
        run.check(what, saw_all and 0 < most <= size_of(capacity), said)


def _common(one: tuple[int, int], other: tuple[int, int] | None) -> int:
    """What two spans have in common."""
    return max(0, min(one[1], other[1]) - max(one[0], other[0])) if other else 0


def size_of(text: str) -> int:
    """Bytes of a size such as 16GiB."""
    for unit, bytes_each in (("GiB", GIB), ("MiB", MIB)):
        if text.endswith(unit):
            return int(float(text[: -len(unit)]) * bytes_each)
    raise Failed(f"{text} is no size in GiB or MiB")
