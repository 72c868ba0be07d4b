"""E12: launches that a preloaded library sees, against those a framework makes: torch (counted by its own profiler), CuPy, JAX.

Run with count.so preloaded: `launches.py torch|cupy|jax`.
"""

import ctypes
import os
import sys

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
library = ctypes.CDLL(None)
KINDS = ("cuLaunchKernel", "cuLaunchKernelEx", "cooperative", "graphs", "host functions", "export tables")


def seen():
    words = (ctypes.c_ulong * 6)()
    library.launches_seen(words)
    return list(words)


def difference(before):
    return [b - a for a, b in zip(before, seen())]


def report(what, calls, made, found):
    kernels = sum(found[:3])
    words = ", ".join(f"{kind} {count}" for kind, count in zip(KINDS, found) if count)
    verdict = "" if made is None else ("  all seen" if kernels == made else "  DIFFERENT")
    print(f"FACT  {what:38} {calls} calls, kernels made {made if made is not None else '?'}, seen {kernels} ({words}){verdict}", flush=True)


def torch_launches():
    import torch
    from torch.profiler import ProfilerActivity, profile

    device = "cuda"
    half = [torch.randn(2048, 2048, device=device, dtype=torch.bfloat16) for _ in range(2)]
    wide = [torch.randn(1024, 1024, device=device) for _ in range(2)]
    images = torch.randn(16, 64, 56, 56, device=device)
    filters = torch.randn(64, 64, 3, 3, device=device)
    q = torch.randn(4, 16, 1024, 64, device=device, dtype=torch.bfloat16)
    compiled = torch.compile(lambda x: (x.sin() * x.cos()).sum(1))
    static = torch.randn(512, 512, device=device)
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        static @ static
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        out = (static @ static).relu()
    bodies = {
        "matmul bf16": lambda: half[0] @ half[1],
        "matmul fp32": lambda: wide[0] @ wide[1],
        "convolution": lambda: torch.nn.functional.conv2d(images, filters, padding=1),
        "attention": lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q),
        "elementwise and sum": lambda: (wide[0] * 2 + 1).sum(),
        "sort": lambda: wide[0].sort(),
        "fft": lambda: torch.fft.fft(wide[0]),
        "svd 64": lambda: torch.linalg.svd(wide[0][:64, :64]),
        "torch.compile (Triton)": lambda: compiled(wide[0]),
    }
    for what, body in bodies.items():
        try:
            for _ in range(3):
                body()
            torch.cuda.synchronize()
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
                before = seen()
                for _ in range(20):
                    body()
                torch.cuda.synchronize()
                counted = difference(before)
            made = sum(
                1
                for event in found.events()
                if event.device_type == torch.autograd.DeviceType.CUDA
                and not event.name.lower().startswith(("memcpy", "memset"))
                and event.name != "Context Sync"
            )
            report(f"torch, {what}", 20, made, counted)
        except Exception as error:  # one that fails must not hide the others
            print(f"FAIL  torch, {what}: {type(error).__name__}: {str(error)[:200]}", flush=True)
    before = seen()
    for _ in range(20):
        graph.replay()
    torch.cuda.synchronize()
    report("torch, CUDA graph", 20, None, difference(before))
    del out


def slope(what, body, wait):
    """Calls made twice as often must be seen twice as often: a launch that is not seen shows as 0 a call."""
    for _ in range(3):
        body()
    wait()
    counts = []
    for calls in (20, 40):
        before = seen()
        for _ in range(calls):
            body()
        wait()
        counts.append(difference(before))
    each = (sum(counts[1][:3]) - sum(counts[0][:3])) / 20
    report(f"{what}: {each:g} kernels a call", 40, None, counts[1])


def cupy_launches():
    import cupy

    x = cupy.random.standard_normal((1024, 1024), dtype=cupy.float32)
    wait = cupy.cuda.Device().synchronize
    own = cupy.RawKernel('extern "C" __global__ void own(float *x) { x[threadIdx.x] += 1; }', "own")
    slope("cupy, x * 2", lambda: x * 2, wait)
    slope("cupy, sum", lambda: x.sum(), wait)
    slope("cupy, matmul", lambda: x @ x, wait)
    slope("cupy, RawKernel", lambda: own((1,), (32,), (x,)), wait)
    slope("cupy, sort", lambda: cupy.sort(x, axis=None), wait)


def jax_launches():
    import jax
    import jax.numpy as jnp

    x = jnp.ones((1024, 1024), jnp.float32)
    last = [x]

    def body(f):
        def call():
            last[0] = f(x)

        return call

    def wait():
        last[0].block_until_ready()

    slope("jax, jit sin*cos", body(jax.jit(lambda x: jnp.sin(x) * jnp.cos(x))), wait)
    slope("jax, jit matmul", body(jax.jit(lambda x: x @ x)), wait)
    slope("jax, jit 8 layers", body(jax.jit(lambda x: jax.lax.fori_loop(0, 8, lambda _, y: jnp.tanh(y @ x), x))), wait)
    slope("jax, eager add", body(lambda x: x + 1), wait)


try:
    {"torch": torch_launches, "cupy": cupy_launches, "jax": jax_launches}[sys.argv[1]]()
except Exception as error:
    print(f"FAIL  {sys.argv[1]}: {type(error).__name__}: {str(error)[:300]}", flush=True)
    sys.exit(1)
