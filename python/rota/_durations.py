"""Lengths of time, as people write them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Optional, Union

Duration = Union[str, timedelta]
"""A number with its unit, as in ``"10ms"``, ``"1.5s"``, ``"200us"``; or a ``timedelta``."""

_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ns|us|ms|s)\s*")
_MOST_NS = 2**63 - 1


def nanoseconds(duration: Optional[Duration]) -> int:
    """A length of time in nanoseconds; 0 for None."""
    if duration is None:
        return 0
    if isinstance(duration, timedelta):
        found = (duration.days * 86_400 + duration.seconds) * 1_000_000_000 + duration.microseconds * 1_000
    elif isinstance(duration, str):
        match = _FORM.fullmatch(duration)
        if match is None:
            raise ValueError(f"not a length of time: {duration!r}; write a number and its unit, as in '10ms'")
        found = round(float(match.group(1)) * _UNITS[match.group(2)])
    else:
        raise TypeError(f"a length of time is a string such as '10ms', or a timedelta, not {duration!r}")
    if not 0 <= found <= _MOST_NS:
        raise ValueError(f"not a length of time: {duration!r}")
    return found
