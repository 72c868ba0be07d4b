"""What a program can say to rota, which shares NVIDIA GPUs between programs.

    import rota

    with rota.request(slo="10ms", hint="2ms"):   # kernels follow in about 2 ms
        answer = model(read_input())

Importing this needs no CUDA and no other package. Outside of ``rota run`` every call does nothing but time requests, and says
so once on standard error (not with ``ROTA_QUIET=1``).

There is one class for a whole process: latency-critical or best-effort is its job's (``rota run --class lc``), and what one
thread or task says of its requests is said of all. A process that serves requests and trains at the same time is two
processes.
"""

from ._durations import Duration
from ._library import Refused
from ._requests import Phase, Request, hint, phase, request, serves
from ._statistics import Statistics, reset_statistics, statistics
from ._terms import set
from ._version import __version__

__all__ = [
    "Duration",
    "Phase",
    "Refused",
    "Request",
    "Statistics",
    "__version__",
    "hint",
    "phase",
    "request",
    "reset_statistics",
    "serves",
    "set",
    "statistics",
]
