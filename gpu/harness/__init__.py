"""What every script in this folder stands on.

Starts and stops `rotad`, runs programs natively or under `rota run` with a bound on every wait, follows the daemon's
event file, reads device memory through NVML, looks for Xid messages, and prints the checks as one table at the end.
`timeline` finds turns and switches in the events, `crowd` runs programs of `programs/turns.cu` together, `busy` reads what those of
`programs/shares.cu` have done, `spoken` talks to programs by lines. What is being shown
lives in the scripts, what runs on the GPU lives in `programs/`.
"""

from .busy import Busy, cores
from .device import Nvml
from .processes import end_group, spawn, where_it_stands
from .program import touch
from .run import main
from .sampler import SELDOM_S, MemorySampler, size_of
from .spoken import Spoken
from .tables import fmt, middle, percentile, table
from .waiting import Failed, now_ns

GIB = 1 << 30
MIB = 1 << 20

__all__ = [
    "GIB",
    "MIB",
    "Busy",
    "Failed",
    "MemorySampler",
    "Nvml",
    "SELDOM_S",
    "Spoken",
    "cores",
    "end_group",
    "fmt",
    "main",
    "middle",
    "now_ns",
    "percentile",
    "spawn",
    "table",
    "touch",
    "where_it_stands",
]
