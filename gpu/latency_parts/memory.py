"""A service with much memory beside programs that do not fit into the rest, and are moved all the time."""

from __future__ import annotations

import time

from .cells import Beside, Service

CAPACITY_GIB = 64
SERVICE_GIB = 40
PROGRAM_GIB = 13
"""Two of them do not fit beside the service: each switch moves about 4 GiB out and in."""
TURN = "200ms"
"""A move may take four times as long, and there still is one a second."""


def memory(bench, requests):
    """Each request sends its input to the GPU: moves are to stay off its copies."""
    kind = f"memory:{PROGRAM_GIB}"
    bench.solo_rates([kind])
    bench.natively_alone(requests, gib=SERVICE_GIB, sends=1)
    daemon = bench.daemon(capacity=f"{CAPACITY_GIB}GiB", arena=f"{2 * PROGRAM_GIB}GiB", turn=TURN)
    terms = ["--class", "lc", "--slo", "10ms", "--reserve"]
    service = Service(bench, "service", "kernel", daemon, hints="sdk", terms=terms, gib=SERVICE_GIB, sends=1)
    service.ready()
    beside = Beside(bench, "beside", f"2x{kind}", daemon)
    mark, began = daemon.events.mark(), time.monotonic()
    cell = bench.measure(service, "sdk", beside, requests)
    seconds = time.monotonic() - began
    moves = [event for event in daemon.events.of("move_end", since=mark) if event["bytes_out"] + event["bytes_in"] > 0]
    seen, reserved = service.described(), service.job().get("terms", {}).get("reserve")
    beside.end()
    service.end()
    daemon.check_no_errors()
    bench.run.end_daemons()
    bench.natively_alone(requests, gib=SERVICE_GIB, sends=1)
    moved = sum(event["bytes_out"] + event["bytes_in"] for event in moves) / 2**30
    bench.run.fact(f"{len(moves)} moves of {moved:.0f} GiB in all in {seconds:.1f} s")
    bench.run.check("at least one move a second", len(moves) >= seconds, f"{len(moves) / seconds:.2f} a second")
    bench.run.check("its memory is reserved", reserved is True, str(reserved))
    bench.run.check("nothing of the service is away", seen.get("away_bytes") == 0, str(seen.get("away_bytes")))
    p99 = cell.percentile(0.99) / bench.alone().percentile(0.99)
    bench.check(cell, "p99 at most 1.2 of alone", p99 <= 1.2, f"{p99:.3f}", "p99")
    bench.check_steady()
