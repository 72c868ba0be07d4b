"""The GPU, seen from outside: its used memory, and the driver's complaints."""

from __future__ import annotations

import ctypes
import re

from .processes import output_of
from .waiting import Failed


class Nvml:
    """Device memory of GPU 0, through libnvidia-ml.so.1."""

    class _Memory(ctypes.Structure):
        _fields_ = [("total", ctypes.c_uint64), ("free", ctypes.c_uint64), ("used", ctypes.c_uint64)]

    class _Process(ctypes.Structure):
        _fields_ = [
            ("pid", ctypes.c_uint32),
            ("used", ctypes.c_uint64),
            ("instance", ctypes.c_uint32),
            ("compute", ctypes.c_uint32),
        ]

    def __init__(self):
        try:
            self._lib = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise Failed(f"NVML is not there: {error}") from error
        self._device = ctypes.c_void_p()
        for call, arguments in (
            ("nvmlInit_v2", ()),
            ("nvmlDeviceGetHandleByIndex_v2", (ctypes.c_uint(0), ctypes.byref(self._device))),
        ):
            status = getattr(self._lib, call)(*arguments)
            if status:
                raise Failed(f"{call} answered {status}")

    def _memory(self) -> "Nvml._Memory":
        memory = self._Memory()
        status = self._lib.nvmlDeviceGetMemoryInfo(self._device, ctypes.byref(memory))
        if status:
            raise Failed(f"nvmlDeviceGetMemoryInfo answered {status}")
        return memory

    def used(self) -> int:
        """Bytes in use on the device, by anybody."""
        return self._memory().used

    def total(self) -> int:
        """Bytes of the device."""
        return self._memory().total

    def processes(self) -> dict[int, int] | None:
        """Bytes by process, None where the driver doesn't say."""
        count = ctypes.c_uint(256)
        rows = (self._Process * 256)()
        if self._lib.nvmlDeviceGetComputeRunningProcesses_v3(self._device, ctypes.byref(count), rows):
            return None
        return {rows[i].pid: rows[i].used for i in range(count.value)}


def xids() -> list[str] | None:
    """The kernel log's Xid lines; None where the log can't be read."""
    text = output_of(["dmesg"])
    return None if text is None else [line for line in text.splitlines() if re.search(r"\bxid\b", line, re.I)]
