"""Class and weight of this process's job."""

from __future__ import annotations

import ctypes
from typing import Optional

from ._library import INVALID, OK, REFUSED, Refused, library

_CLASSES = {None: -1, "be": 0, "lc": 1}
_WEIGHT_MOST = 2**32 - 1


def set(*, cls: Optional[str] = None, weight: Optional[int] = None) -> bool:
    """Asks for another class (``"lc"`` or ``"be"``) or weight for the job of this process, as ``rota set`` does.

    All of the job's processes have them then. Returns False where no daemon hears it; raises :class:`Refused` with the reason
    where it is not allowed.
    """
    if cls not in _CLASSES:
        raise ValueError(f"a class is 'lc' or 'be', not {cls!r}")
    if weight is not None and not 1 <= weight <= _WEIGHT_MOST:
        raise ValueError(f"a weight is 1 or more, not {weight!r}")
    found = library()
    if found is None:
        return False
    reason = ctypes.create_string_buffer(1024)
    said = found.rota_set(_CLASSES[cls], weight or 0, reason, len(reason))
    if said in (REFUSED, INVALID):
        raise Refused(reason.value.decode(errors="replace"))
    return bool(said == OK)
