"""A service in Python: so many requests, each prepared for 5 ms before its work on the GPU; then a checkpoint.

    rota run --class lc --slo 20ms -- python serve.py 100

Prints what became of them as JSON. It needs no package but rota: the little of the CUDA driver that it uses is called by name.
"""

import asyncio
import ctypes
import json
import sys
import time
from dataclasses import asdict

import rota

BYTES = 1 << 20


class Gpu:
    """Some memory on the first GPU."""

    def __init__(self) -> None:
        self.driver = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self.memory = ctypes.c_uint64()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        self.call("cuMemAlloc_v2", ctypes.byref(self.memory), ctypes.c_size_t(BYTES))

    def call(self, name: str, *arguments: object) -> None:
        code = getattr(self.driver, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name} failed: {code}")

    def work(self, value: int) -> None:
        """What a request has to do."""
        found = ctypes.c_ubyte()
        self.call("cuMemsetD8_v2", self.memory, ctypes.c_ubyte(value & 0xFF), ctypes.c_size_t(BYTES))
        self.call("cuCtxSynchronize")
        last = ctypes.c_uint64(self.memory.value + BYTES - 1)
        self.call("cuMemcpyDtoH_v2", ctypes.byref(found), last, ctypes.c_size_t(1))
        if found.value != value & 0xFF:
            raise RuntimeError(f"wrong result: {found.value}, not {value & 0xFF}")


def main() -> None:
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    gpu = Gpu()

    @rota.serves(slo="10s")
    def served(number: int) -> None:
        gpu.work(number)

    @rota.serves(hint="5ms")
    async def served_later(number: int) -> None:
        await asyncio.sleep(0.005)
        gpu.work(number)

    for number in range(requests):
        if number % 3 == 0:
            with rota.request(hint="5ms"):
                time.sleep(0.005)
                gpu.work(number)
        elif number % 3 == 1:
            rota.hint(in_ms=5)
            time.sleep(0.005)
            served(number)
        else:
            asyncio.run(served_later(number))
        time.sleep(0.005)
    with rota.phase("checkpoint"):
        time.sleep(0.001)
    refused = None
    try:
        rota.set(weight=1_000_000)
    except rota.Refused as error:
        refused = str(error)
    changed = rota.set(weight=2)
    found = asdict(rota.statistics())
    print(json.dumps({**found, "refused": refused, "changed": changed}), flush=True)
    if len(sys.argv) > 2:
        sys.stdin.read()


if __name__ == "__main__":
    main()
