"""A program that is one kernel of many seconds.

A fixed number of blocks goes over the whole memory again and again inside a single launch, changing every word in every
pass. All arithmetic is on integers with wrap-around and each word belongs to one block: the result is the same on every
run. Prints one line of JSON at the end, with the instants of launch and end on the monotonic clock.
"""

import argparse
import hashlib
import json
import os
import time

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--gib", type=float, default=2.0)
parser.add_argument("--passes", type=int, required=True, help="how often the kernel goes over the memory")
parser.add_argument("--ready-file", help="made when all is ready")
parser.add_argument("--start-file", help="the kernel is launched when this file is there")
given = parser.parse_args()

import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

BLOCK = 2048
PROGRAMS = 132 * 8


@triton.jit
def passes_over(words, passes, blocks, BLOCK: tl.constexpr):
    """All passes; this program of the grid owns every n-th block of the memory."""
    count = tl.load(passes)
    last = tl.load(blocks)
    stride = tl.num_programs(0)
    for number in range(0, count):
        for block in range(tl.program_id(0), last, stride):
            place = tl.arange(0, BLOCK).to(tl.int64) + block * BLOCK
            x = tl.load(words + place).to(tl.uint64, bitcast=True)
            x += (place + number).to(tl.uint64) * 0xD1342543DE82EF95
            for _ in range(4):
                x ^= x << 13
                x ^= x >> 7
                x ^= x << 17
            tl.store(words + place, x.to(tl.int64, bitcast=True))


def digest(words):
    """A hash over every byte, in place and order."""
    found = hashlib.sha256()
    for part in words.split(32 * 2**20):
        found.update(part.cpu().numpy())
    return found.hexdigest()


def main():
    device = torch.device(os.environ.get("REWRITE_DEVICE", "cuda"))
    synchronise = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    number = int(given.gib * 2**30) // 8
    assert number % BLOCK == 0 and number < 2**31, "--gib must be a whole number of blocks, below 16"
    words = torch.empty(number, dtype=torch.int64, device=device)
    passes = torch.ones(4, dtype=torch.int32, device=device)
    blocks = torch.full((4,), number // BLOCK, dtype=torch.int32, device=device)
    grid = (min(PROGRAMS, number // BLOCK),)

    def first_contents():
        torch.arange(1, number + 1, out=words)
        synchronise()

    first_contents()
    passes_over[grid](words, passes, blocks, BLOCK=BLOCK)
    synchronise()
    first_contents()
    passes.fill_(given.passes)
    synchronise()

    if given.ready_file:
        open(given.ready_file, "w").close()
    while given.start_file and not os.path.exists(given.start_file):
        time.sleep(0.002)
    launched_ns = time.monotonic_ns()
    passes_over[grid](words, passes, blocks, BLOCK=BLOCK)
    synchronise()
    ended_ns = time.monotonic_ns()
    print(
        json.dumps(
            {
                "program": "long_kernel",
                "bytes": number * 8,
                "passes": given.passes,
                "launched_ns": launched_ns,
                "ended_ns": ended_ns,
                "kernel_s": (ended_ns - launched_ns) / 1e9,
                "sha256": digest(words),
            }
        ),
        flush=True,
    )


main()
