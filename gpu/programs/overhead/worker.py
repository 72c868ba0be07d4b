"""Works when it is told to, and says how much it did: `worker.py torch|cupy [--core N]`, told as overhead/worker.cu is.

Kinds of torch: `large 1`, `layers 1` (training steps), `alloc SIZE`; of cupy: `alloc SIZE`, `async SIZE`.
"""

import gc
import os
import sys
import time

LEAD_IN_S = 0.03


def of_torch():
    import torch

    device = torch.device("cuda")
    torch.zeros(1, device=device)

    def large(_):
        """Products of large matrices: some thirty milliseconds in few kernels."""
        torch.manual_seed(1)
        network = torch.nn.Sequential(*[torch.nn.Linear(8192, 8192, bias=False) for _ in range(5)])
        network = network.to(device=device, dtype=torch.bfloat16)
        optimiser = torch.optim.SGD(network.parameters(), lr=1e-4, foreach=True)
        x = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)
        return stepper(network, optimiser, x)

    def layers(_):
        """Layers of a transformer: many kernels of many sizes, and an optimiser with state."""
        torch.manual_seed(1)
        layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True)
        network = torch.nn.TransformerEncoder(layer, 8).to(device=device, dtype=torch.bfloat16)
        optimiser = torch.optim.AdamW(network.parameters(), lr=1e-4, foreach=True)
        x = torch.randn(16, 1024, 1024, device=device, dtype=torch.bfloat16)
        return stepper(network, optimiser, x)

    def stepper(network, optimiser, x):
        def once():
            optimiser.zero_grad(set_to_none=True)
            value = network(x).float().square().mean()
            value.backward()
            optimiser.step()
            if not value.item() < 1e9:  # waits, as a program that prints its loss does; false for NaN too
                raise RuntimeError(f"the loss is {value.item()}")
            return 1

        return once

    def alloc(size):
        """Through the caching allocator, which is emptied each time: every one reaches the driver."""

        def once():
            for _ in range(16):
                block = torch.empty(size, dtype=torch.uint8, device=device)
                del block
                torch.cuda.empty_cache()
            return 16

        return once

    def forget():
        gc.collect()
        torch.cuda.empty_cache()

    return {"large": large, "layers": layers, "alloc": alloc}, forget


def of_cupy():
    import cupy

    pool = cupy.get_default_memory_pool()
    pools = {"async": cupy.cuda.MemoryAsyncPool()}
    cupy.zeros(1)
    stream = cupy.cuda.Stream(non_blocking=True)

    def alloc(size):
        """Through CuPy's own pool, which is emptied after some: every one reaches the driver."""

        def once():
            blocks = [pool.malloc(size) for _ in range(4)]
            blocks.clear()
            pool.free_all_blocks()
            return 4

        return once

    def ordered(size):
        """Through the stream-ordered pool."""
        own = pools["async"]

        def once():
            with stream:
                for _ in range(16):
                    block = own.malloc(size)
                    del block
            stream.synchronize()
            return 16

        return once

    def forget():
        gc.collect()
        pool.free_all_blocks()

    return {"alloc": alloc, "async": ordered}, forget


def main():
    if sys.argv[2:3] == ["--core"]:
        os.sched_setaffinity(0, {int(sys.argv[3])})
    kinds, forget = {"torch": of_torch, "cupy": of_cupy}[sys.argv[1]]()
    gc.disable()  # its pauses would fall on one window or the other
    once = None
    print("ready", flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "set":
            once = None
            forget()
            once = kinds[words[1]](int(words[2]))
            for _ in range(3):
                once()
            print("ready", flush=True)
        elif words[0] == "work":
            seconds, done = float(words[1]), 0
            begin = time.monotonic_ns()
            while time.monotonic_ns() - begin < LEAD_IN_S * 1e9:
                once()
            begin = end = time.monotonic_ns()
            while end - begin < seconds * 1e9:
                done += once()
                end = time.monotonic_ns()
            print(done, end - begin, flush=True)
        elif words[0] == "quit":
            return


main()
