"""What happened near the slow ones among requests without hints, by the daemon's events.

An event's instant is known to about the shortest delay that was seen between its writing and its reading: less than 2 ms.
"""

from __future__ import annotations

import bisect
from collections import Counter

KINDS = ("slice", "turn_begin", "turn_end", "freeze", "thaw", "wants", "idle")
NEAR_NS = 1_000_000
"""Before a request's beginning and after its end."""
SHOWN = 3


def named(event, job):
    """What happened, and whether to the service itself."""
    more = f" {event['slice']}" if "slice" in event else ""
    return ("own " if event.get("job") == job else "") + event["event"] + more


def each(counts, requests):
    """How many of each there were for one request."""
    return ", ".join(f"{name} {count / requests:.2f}" for name, count in counts.most_common()) or "none"


def nearby(events, offset_ns, job, requests, limit_us):
    """Lines that say it: for requests that took longer than that, and for comparison for the others."""
    found = sorted((event["t_ns"] + offset_ns, named(event, job)) for event in events if event["event"] in KINDS)
    at = [when for when, _ in found]
    slow, rest, seen = Counter(), Counter(), []
    for begun, took in requests:
        near = found[bisect.bisect_left(at, begun - NEAR_NS) : bisect.bisect_right(at, begun + took + NEAR_NS)]
        is_slow = took > 1e3 * limit_us
        (slow if is_slow else rest).update(name for _, name in near)
        if is_slow:
            seen.append((took, begun, near))
    lines = [f"slower than {limit_us:.0f} us: {len(seen)} of {len(requests)}; events within {NEAR_NS / 1e6:g} ms of one: {each(slow, max(1, len(seen)))}"]
    lines.append(f"events within {NEAR_NS / 1e6:g} ms of one of the others: {each(rest, max(1, len(requests) - len(seen)))}")
    for took, begun, near in sorted(seen, reverse=True)[:SHOWN]:
        course = ", ".join(f"{name} {(when - begun) / 1e3:+.0f}" for when, name in near[:12]) or "nothing"
        lines.append(f"{took / 1e3:.0f} us, near it in us from its beginning: {course}")
    return lines
