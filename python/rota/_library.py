"""librota, found beside this package, beside the shim, or where ROTA_SDK says; and what it takes to call it."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Iterator, Optional

NAME = "librota.so"
ABI = 1

OK = 0
REFUSED = 4
INVALID = 5


class Refused(Exception):
    """The daemon does not allow it, and why."""


class RawRequest(ctypes.Structure):
    """``rota_request``."""

    _fields_ = [("began_ns", ctypes.c_uint64), ("slo_ns", ctypes.c_uint64), ("reserved", ctypes.c_uint64 * 2)]


class RawStatistics(ctypes.Structure):
    """``rota_statistics``."""

    _fields_ = [
        ("requests", ctypes.c_uint64),
        ("p50_ns", ctypes.c_uint64),
        ("p99_ns", ctypes.c_uint64),
        ("p999_ns", ctypes.c_uint64),
        ("max_ns", ctypes.c_uint64),
        ("slo_missed", ctypes.c_uint64),
        ("slo_ns", ctypes.c_uint64),
        ("requests_open", ctypes.c_uint64),
        ("dropped", ctypes.c_uint64),
        ("warm_ups", ctypes.c_uint64),
        ("warm_ups_failed", ctypes.c_uint64),
        ("tenant", ctypes.c_uint32),
        ("critical", ctypes.c_uint32),
    ]


def _places() -> Iterator[Path]:
    chosen = os.environ.get("ROTA_SDK")
    if chosen:
        # A choice is the only place.
        path = Path(chosen)
        yield path / NAME if path.is_dir() else path
        return
    yield Path(__file__).with_name(NAME)
    for entry in os.environ.get("LD_PRELOAD", "").replace(":", " ").split():
        yield Path(entry).with_name(NAME)


def _load(path: Path) -> Optional[ctypes.CDLL]:
    try:
        library = ctypes.CDLL(str(path))
        version = library.rota_version
    except (OSError, AttributeError):
        return None
    version.restype = ctypes.c_uint32
    version.argtypes = []
    if version() >> 16 != ABI:
        return None
    types = {
        "rota_hint": [ctypes.c_uint64],
        "rota_request_begin": [ctypes.POINTER(RawRequest), ctypes.c_uint64, ctypes.c_uint64],
        "rota_request_end": [ctypes.POINTER(RawRequest)],
        "rota_phase_begin": [ctypes.c_char_p],
        "rota_phase_end": [],
        "rota_set": [ctypes.c_int, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t],
        "rota_statistics_get": [ctypes.POINTER(RawStatistics), ctypes.c_size_t],
        "rota_statistics_reset": [],
    }
    for name, arguments in types.items():
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = ctypes.c_size_t if name == "rota_statistics_get" else ctypes.c_int
    return library


def _find() -> Optional[ctypes.CDLL]:
    for path in _places():
        if path.is_file():
            library = _load(path)
            if library is not None:
                return library
    return None


_found: Optional[ctypes.CDLL] = None
_looked = False


def library() -> Optional[ctypes.CDLL]:
    """The library; None where there is none, which is said once."""
    global _found, _looked
    if not _looked:
        _found = _find()
        _looked = True
        if _found is None and os.environ.get("ROTA_QUIET", "0") in ("", "0"):
            print(f"rota: {NAME} was not found (ROTA_SDK names it), so nothing is said and nothing timed", file=sys.stderr)
    return _found
