"""Latency: how long requests of a service take beside programs that keep the GPU busy, and what those keep.

The service is one short kernel a request, or the inference of a network as a CUDA graph; its requests come steadily, by chance,
or in bursts. A request's time is from its first call of the GPU to its completion; "copied" has its input sent to the GPU when it
arrives, and is timed from its kernel, and from its arrival. Beside it run one or four programs of short kernels, of kernels of 50
ms, or of graphs: under rota without hints, with what the shim sees, with a forecast, and with hints of the service itself; under
the stock driver, MPS, and MPS with those at half of the threads. Alone is measured before, between, and after.

Every cell of the grid is in the table, with what it misses. A cell that misses what it has to reach is a FAIL.
"""

import argparse
import time

import harness
from latency_parts.cells import SHAPES, Bench
from latency_parts.grid import SETUPS, grid, headline
from latency_parts.memory import memory
from latency_parts.priorities import priorities
from latency_parts.sweeps import ALSO, BESIDE, POINT, WINDOW, leads, trade, windows

LIMIT_S = 570
PARTS = {"grid": (grid, 1000), "headline": (headline, 10000), "windows": (windows, WINDOW), "leads": (leads, POINT)}
PARTS |= {"trade": (trade, 1000), "memory": (memory, 2000), "priorities": (priorities, 2000)}
"""What each does, and how many requests one measurement has."""

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--part", choices=tuple(PARTS), default="grid")
parser.add_argument("--service", choices=tuple(SHAPES), default="kernel")
parser.add_argument("--setups", default=",".join(SETUPS), help="some of them, with commas")
parser.add_argument("--beside", default=None, help="how many and what: 1x50us,4x50ms,...; by default what the part asks for")
parser.add_argument("--requests", type=int, default=None, help="in one measurement: 1000 in the grid, 10000 in the headline")
parser.add_argument("--also", choices=tuple(ALSO), default=None, help=f"in the grid: this part too, with the service that is there, beside {BESIDE}")
parser.add_argument("--windows", type=int, default=20, help="alone and beside others in turn, so many of each")
parser.add_argument("--setting", default="--favour=latency,balanced,throughput", help="what is traded: a flag of rotad with its values, from the service's end to the others'")
given = parser.parse_args()


def body(run):
    deadline = time.monotonic() + LIMIT_S - 25
    run.cores = harness.cores(5)
    harness.events.KEPT_FREE.update(run.cores)
    run.fact(f"the programs' threads stay on cores {run.cores}" if run.cores else "too few cores: threads go where they like")
    bench = Bench(run, given, deadline)
    part, requests = PARTS[given.part]
    try:
        part(bench, given.requests or requests)
    finally:
        bench.print_table()


if __name__ == "__main__":
    for setup in given.setups.split(","):
        if setup not in SETUPS:
            parser.error(f"no such set-up: {setup}; there are {', '.join(SETUPS)}")
    if given.also and ("sdk" not in given.setups.split(",") or BESIDE not in (given.beside or BESIDE).split(",")):
        parser.error(f"--also needs the set-up sdk, and {BESIDE} beside")
    harness.main(f"latency-{given.part}-{given.service}", LIMIT_S, body)
