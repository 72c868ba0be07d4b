"""What the slow ones among hinted requests waited for, by the daemon's events.

An event's instant counts from the daemon's start, a request's from the machine's. What lies between the two is the least that was
ever seen from a request's beginning to when its program says that it began: some microseconds too much.
"""

from __future__ import annotations

import bisect
from collections import Counter

LATE_NS = 150_000
"""What a thread may take to wake."""
LOADED_NS = 90_000
"""What the GPU takes to load a context once the warm-up is launched."""
NEAR_NS = 4_000_000
"""From when a request was expected to when it came, at most."""


def at_ns(event):
    return event["t_ns"]


def since_ns(wants):
    return wants["since_ns"]


def before(events, when_ns):
    """The last of them before then."""
    place = bisect.bisect_left(events, when_ns, key=at_ns)
    return events[place - 1] if place else None


def after(events, when_ns, key=at_ns):
    """The first of them from then on."""
    place = bisect.bisect_left(events, when_ns, key=key)
    return events[place] if place < len(events) else None


class Course:
    """What happened for one request, in nanoseconds from its beginning."""

    def __init__(self, begun_ns, took_ns, heard, freezes, thaws):
        self.took_ns = took_ns
        wants = after(heard, begun_ns - 1_000, since_ns)
        near = wants is not None and since_ns(wants) - begun_ns < NEAR_NS
        self.heard = wants["t_ns"] - begun_ns if near else None
        self.warmed = wants["warmed_ns"] - begun_ns if near and "warmed_ns" in wants else None
        freeze = before(freezes, begun_ns + NEAR_NS)
        aimed = freeze is not None and abs(freeze["aim"]["expect_ns"] - begun_ns) < NEAR_NS
        self.freeze = freeze if aimed else None
        if not aimed:
            return
        aim = freeze["aim"]
        self.due, self.ordered = aim["due_ns"] - begun_ns, aim["ordered_ns"] - begun_ns
        self.begun = freeze["begun_ns"] - begun_ns
        self.off = self.begun + freeze["took_ns"]
        if self.warmed is not None and self.warmed < self.begun:
            self.warmed = None  # of a request before: this one's goes while the freeze is under way, or after it
        thaw = after(thaws, freeze["t_ns"])
        self.on = thaw["t_ns"] - begun_ns if thaw else None
        self.thawing = self.on - thaw["took_ns"] if thaw else None

    def cause(self):
        """What it waited for."""
        if self.freeze is None:
            return "nobody was frozen for it"
        if self.ordered - self.due > LATE_NS:
            return "the daemon woke late"
        if self.begun - self.ordered > LATE_NS:
            return "the thread that switches woke late"
        if self.off > 0:
            return "the freeze was over late"
        if self.warmed is None:
            return "the warm-up was launched after it came"
        if self.warmed > -LOADED_NS:
            return "the warm-up was launched late"
        if self.thawing is not None and self.thawing < self.took_ns:
            return "others were put on before its end"
        return "nothing of rota's"


def courses(events, offset_ns, job, requests):
    """Of requests with their beginnings on the machine's clock and how long they took, in nanoseconds. The offset between the two
    clocks is what it is or a little more."""
    heard = [event for event in events if event["event"] == "wants" and event.get("job") == job]
    freezes = [event for event in events if event["event"] == "freeze" and event.get("aim")]
    thaws = [event for event in events if event["event"] == "thaw"]
    if not heard or not requests:
        return []
    begun = sorted(begun for begun, _ in requests)

    def behind(event):
        """How long after the beginning of the last request before it the program says that it began."""
        at = since_ns(event) + offset_ns
        place = bisect.bisect_right(begun, at)
        return at - begun[place - 1] if place else None

    offset = offset_ns - min((late for late in map(behind, heard) if late is not None), default=0)
    return [Course(at - offset, took, heard, freezes, thaws) for at, took in requests]


def spread_us(values):
    """The middle, p90, p99 and the most of them."""
    found = sorted(values)
    if not found:
        return "-"
    return " ".join(f"{found[min(len(found) - 1, int(share * len(found)))] / 1e3:.0f}" for share in (0.5, 0.9, 0.99, 1.0))


def mean_us(values):
    found = [value for value in values if value is not None]
    return f"{sum(found) / len(found) / 1e3:.0f}" if found else "-"


def explained(events, offset_ns, job, requests, limit_us):
    """Lines that say it, for requests that took longer than that."""
    all_of_them = courses(events, offset_ns, job, requests)
    slow = [course for course in all_of_them if course.took_ns > 1e3 * limit_us]
    causes = Counter(course.cause() for course in slow)
    in_words = ", ".join(f"{cause} {count}" for cause, count in causes.most_common()) or "none"
    frozen = [course for course in all_of_them if course.freeze]
    stages = {
        "due": [c.due for c in frozen],
        "ordered": [c.ordered for c in frozen],
        "begun": [c.begun for c in frozen],
        "off": [c.off for c in frozen],
        "warmed": [c.warmed for c in frozen],
        "heard": [c.heard for c in frozen],
        "ended": [c.took_ns for c in frozen],
        "thawing": [c.thawing for c in frozen],
        "on": [c.on for c in frozen],
    }
    means = "  ".join(f"{name} {mean_us(values)}" for name, values in stages.items())
    led = spread_us([-c.due for c in frozen])
    took = spread_us([c.off - c.begun for c in frozen])
    late = [c.off for c in frozen if c.off > 0]
    freezes = f"somebody was frozen for {len(frozen)} of {len(all_of_them)}; us, p50 p90 p99 most: due ahead {led}, "
    freezes += f"freezes took {took}, and {len(late)} were over late, by {spread_us(late)}"
    lost = mean_us([c.on - c.begun for c in frozen if c.on is not None])
    return [
        f"slower than {limit_us:.0f} us: {len(slow)} of {len(all_of_them)}: {in_words}",
        freezes,
        f"means in us from the beginning of those: {means}; others lose {lost} a request",
    ]
