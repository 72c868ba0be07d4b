"""A program that rewrites every byte of its memory in every step.

Its memory is M tensors of 64-bit words. A step mixes every word with itself, its place and the step's number, so that
nothing compresses, nothing stays unchanged, and a lost or stale block shows in the checksums for good. All arithmetic
is on integers with wrap-around and no word depends on another one: the result is the same on every run.

Prints one line of JSON at the end. `sum`, `xor` and `placed` run over all words; `placed` weighs each word by its place.
"""

import argparse
import json
import mmap
import os
import struct
import time


def wait_for(path):
    while path and not os.path.exists(path):
        time.sleep(0.002)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gib", type=float, default=12.0, help="memory, in all")
    parser.add_argument("--tensor-mib", type=int, default=1024, help="memory of one tensor")
    parser.add_argument("--inner", type=int, default=40, help="mixing rounds in one step: how long a step computes")
    parser.add_argument("--steps", type=int, default=0, help="how many steps; 0: until --stop-file is there")
    parser.add_argument("--hold-file", help="wait for this file after the imports, before CUDA is touched")
    parser.add_argument("--ready-file", help="made when all is ready")
    parser.add_argument("--start-file", help="the GPU phase begins when this file is there")
    parser.add_argument("--stop-file", help="the GPU phase ends when this file is there")
    parser.add_argument("--progress-file", help="holds the number of steps done, as a 64-bit word")
    given = parser.parse_args()
    if not given.steps and not given.stop_file:
        parser.error("give --steps or --stop-file")
    return given


given = arguments()

import numpy  # noqa: E402
import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

BLOCK = 2048
KEY_STRIDE = 2  # words between two keys: each key at a multiple of 16 bytes, so that one compiled kernel serves all


@triton.jit
def fill(words, keys, BLOCK: tl.constexpr):
    """First contents: a mix of the key and the place."""
    place = tl.program_id(0).to(tl.uint64) * BLOCK + tl.arange(0, BLOCK).to(tl.uint64)
    key = tl.load(keys).to(tl.uint64, bitcast=True)
    x = (place + 1) * 0x9E3779B97F4A7C15 + key
    x ^= x >> 30
    x *= 0xBF58476D1CE4E5B9
    x ^= x >> 27
    x *= 0x94D049BB133111EB
    x ^= x >> 31
    tl.store(words + place.to(tl.int64), x.to(tl.int64, bitcast=True))


@triton.jit
def rewrite(words, keys, step, BLOCK: tl.constexpr):
    """One step over one tensor, in place. `step` holds the step's number and the count of mixing rounds."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    key = tl.load(keys).to(tl.uint64, bitcast=True)
    number = tl.load(step).to(tl.uint64, bitcast=True)
    x = tl.load(words + place).to(tl.uint64, bitcast=True)
    x += (place.to(tl.uint64) + number) * 0xD1342543DE82EF95 + key
    for _ in range(0, tl.load(step + 1).to(tl.int32)):
        x ^= x << 13
        x ^= x >> 7
        x ^= x << 17
    tl.store(words + place, x.to(tl.int64, bitcast=True))


@triton.jit
def fold(words, sums, xors, placed, BLOCK: tl.constexpr):
    """Sum, exclusive or, and sum weighted by place, of one block."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    x = tl.load(words + place)
    tl.store(sums + tl.program_id(0), tl.sum(x, 0))
    tl.store(xors + tl.program_id(0), tl.xor_sum(x, 0))
    tl.store(placed + tl.program_id(0), tl.sum(x * (place * 2 + 1), 0))


def checksum(tensors):
    """The checksums over all words, as unsigned 64-bit numbers in hex."""
    total, mixed, placed = 0, 0, 0
    for number, words in enumerate(tensors):
        blocks = words.numel() // BLOCK
        parts = [torch.empty(blocks, dtype=torch.int64, device=words.device) for _ in range(3)]
        fold[(blocks,)](words, *parts, BLOCK=BLOCK)
        sums, xors, places = (part.cpu().numpy().view("uint64") for part in parts)
        total += int(sums.sum(dtype="uint64"))
        mixed ^= int(numpy.bitwise_xor.reduce(xors))
        placed += int(places.sum(dtype="uint64")) * (2 * number + 1)
    word = (1 << 64) - 1
    return {"sum": f"{total & word:016x}", "xor": f"{mixed & word:016x}", "placed": f"{placed & word:016x}"}


class Progress:
    """The number of steps done, where others can read it."""

    def __init__(self, path):
        self.map = None
        if path:
            with open(path, "wb") as file:
                file.write(bytes(8))
            with open(path, "r+b") as file:
                self.map = mmap.mmap(file.fileno(), 8)

    def set(self, steps):
        if self.map:
            self.map[:8] = struct.pack("<Q", steps)


def touch(path):
    if path:
        open(path, "w").close()


def main():
    wait_for(given.hold_file)
    device = torch.device(os.environ.get("REWRITE_DEVICE", "cuda"))
    synchronise = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    progress = Progress(given.progress_file)
    count = max(1, round(given.gib * 1024 / given.tensor_mib))
    words_each = given.tensor_mib * 2**20 // 8
    assert words_each % BLOCK == 0, "--tensor-mib is not a whole number of blocks"
    grid = (words_each // BLOCK,)
    tensors = [torch.empty(words_each, dtype=torch.int64, device=device) for _ in range(count)]
    keys = torch.tensor(
        [(given.seed * 0x5851F42D4C957F2D + n * 0x14057B7EF767814F) % 2**63 for n in range(count * KEY_STRIDE)],
        dtype=torch.int64,
        device=device,
    )
    key_of = [keys[n * KEY_STRIDE :] for n in range(count)]
    step = torch.tensor([0, given.inner], dtype=torch.int64, device=device)

    def one_step():
        step[:1].add_(1)
        for words, key in zip(tensors, key_of):
            rewrite[grid](words, key, step, BLOCK=BLOCK)
        synchronise()

    def first_contents():
        for words, key in zip(tensors, key_of):
            fill[grid](words, key, BLOCK=BLOCK)
        step[:1].zero_()
        synchronise()

    # Everything that will run is compiled and loaded now, then the memory is filled anew.
    first_contents()
    one_step()
    checksum(tensors[:1])
    first_contents()

    touch(given.ready_file)
    wait_for(given.start_file)
    began_ns = time.monotonic_ns()
    steps = 0
    while not (given.steps and steps >= given.steps) and not (given.stop_file and os.path.exists(given.stop_file)):
        one_step()
        steps += 1
        progress.set(steps)
    ended_ns = time.monotonic_ns()
    result = {
        "program": "rewrite",
        "seed": given.seed,
        "bytes": count * words_each * 8,
        "inner": given.inner,
        "steps": steps,
        "began_ns": began_ns,
        "ended_ns": ended_ns,
        "gpu_phase_s": (ended_ns - began_ns) / 1e9,
    }
    result.update(checksum(tensors))
    print(json.dumps(result), flush=True)


main()
