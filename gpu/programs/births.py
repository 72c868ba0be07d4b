"""A program that makes and destroys contexts all the time, by the driver's own functions.

Each life of the primary context (with --steady there is only one) allocates, fills and reads back memory on a stream of its own, so that compute and copy
channels have work at once. Prints one line of JSON at the end; the number of lives so far is in --progress-file.
"""

import argparse
import ctypes
import json
import mmap
import os
import struct
import sys
import time

MIB = 1 << 20

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--seconds", type=float, default=30.0)
parser.add_argument("--mib", type=int, default=64)
parser.add_argument("--steady", action="store_true", help="keep one context, so that others' turns end")
parser.add_argument("--progress-file", required=True, help="holds the number of lives, as a 64-bit word")
given = parser.parse_args()

cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(f"{name} answered {code} in life {lives}")


with open(given.progress_file, "wb") as file:
    file.write(bytes(8))
progress = mmap.mmap(os.open(given.progress_file, os.O_RDWR), 8)

lives = wrong = 0
longest = 0.0
call("cuInit", 0)
device = ctypes.c_int()
call("cuDeviceGet", ctypes.byref(device), 0)
end = time.monotonic() + given.seconds
size = given.mib * MIB
host = (ctypes.c_uint32 * (size // 4))()
context, stream, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()


def make():
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuStreamCreate", ctypes.byref(stream), 1)
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))


def destroy():
    call("cuMemFree_v2", memory)
    call("cuStreamDestroy_v2", stream)
    call("cuDevicePrimaryCtxReset_v2", device)
    call("cuDevicePrimaryCtxRelease_v2", device)


if given.steady:
    make()
while time.monotonic() < end:
    began = time.monotonic()
    if not given.steady:
        make()
    word = 0x5EED0000 + lives
    call("cuMemsetD32Async", memory, ctypes.c_uint32(word), ctypes.c_size_t(size // 4), stream)
    call("cuMemcpyDtoHAsync_v2", host, memory, ctypes.c_size_t(size), stream)
    call("cuStreamSynchronize", stream)
    if bytes(host) != struct.pack("<I", word) * (size // 4):
        wrong += 1
    if not given.steady:
        destroy()
    lives += 1
    longest = max(longest, time.monotonic() - began)
    progress[:8] = struct.pack("<Q", lives)
print(json.dumps({"lives": lives, "wrong": wrong, "longest_s": round(longest, 3)}))
