"""How long requests took, and how things are."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from ._library import RawStatistics, library


@dataclass(frozen=True)
class Statistics:
    """What there is to know. Times are of requests of this process that have ended; quantiles are exact to 1.6%."""

    requests: int
    """Requests that have ended."""
    p50_ns: int
    p99_ns: int
    p999_ns: int
    max_ns: int
    slo_missed: int
    """Requests that took longer than their SLO."""
    slo_ns: int
    """The job's SLO; 0 if it has none."""
    requests_open: int
    """Requests that are being served, by the shim's count."""
    dropped: int
    """Words that did not reach the daemon, whose queue was full."""
    warm_ups: int
    """Kernels launched to load the context before a request."""
    warm_ups_failed: int
    """And that could not be."""
    tenant: bool
    """A daemon shares this process's GPU."""
    critical: bool
    """Its job is latency-critical."""


def statistics() -> Statistics:
    """What there is to know now. All is 0 without the library."""
    raw = RawStatistics()
    found = library()
    if found is not None:
        found.rota_statistics_get(ctypes.byref(raw), ctypes.sizeof(raw))
    return Statistics(
        requests=raw.requests,
        p50_ns=raw.p50_ns,
        p99_ns=raw.p99_ns,
        p999_ns=raw.p999_ns,
        max_ns=raw.max_ns,
        slo_missed=raw.slo_missed,
        slo_ns=raw.slo_ns,
        requests_open=raw.requests_open,
        dropped=raw.dropped,
        warm_ups=raw.warm_ups,
        warm_ups_failed=raw.warm_ups_failed,
        tenant=bool(raw.tenant),
        critical=bool(raw.critical),
    )


def reset_statistics() -> None:
    """Latencies are counted anew from now on."""
    found = library()
    if found is not None:
        found.rota_statistics_reset()
