"""E7: what NVML says of a process that uses a framework, after each thing it does: `residue.py torch|cupy|jax`."""

import ctypes
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

from harness import MIB, Nvml  # noqa: E402

nvml = Nvml()


def say(what, own=None):
    """`own`: bytes that the framework says it has reserved; the rest is what contexts and libraries took."""
    time.sleep(0.1)
    found = nvml.processes()
    mine = (found or {}).get(os.getpid())
    text = "not listed" if mine is None else f"{mine / MIB:.1f} MiB"
    rest = "" if mine is None or own is None else f", reserved {own / MIB:.1f}, rest {(mine - own) / MIB:.1f}"
    print(f"FACT  {sys.argv[1]}, {what}: {text}{rest}, device {nvml.used() / MIB:.1f}", flush=True)


def with_torch():
    import torch

    say("imported")
    torch.zeros(1, device="cuda")
    reserved = torch.cuda.memory_reserved
    say("first tensor", reserved())
    x = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    say("randn", reserved())
    x @ x
    torch.cuda.synchronize()
    say("cuBLAS", reserved())
    torch.nn.functional.conv2d(torch.randn(8, 64, 56, 56, device="cuda"), torch.randn(64, 64, 3, 3, device="cuda"))
    torch.cuda.synchronize()
    say("cuDNN", reserved())
    q = torch.randn(4, 16, 1024, 64, device="cuda", dtype=torch.bfloat16)
    torch.nn.functional.scaled_dot_product_attention(q, q, q)
    torch.linalg.svd(torch.randn(64, 64, device="cuda"))
    torch.cuda.synchronize()
    say("attention, cuSOLVER", reserved())
    torch.compile(lambda y: (y.sin() * y.cos()).sum(1))(x.float())
    torch.cuda.synchronize()
    say("Triton", reserved())
    torch.cuda.empty_cache()
    say("empty_cache", reserved())
    free, total = torch.cuda.mem_get_info()
    print(f"FACT  torch.cuda.mem_get_info: free {free / MIB:.1f}, total {total / MIB:.1f} MiB")


def with_cupy():
    import cupy

    say("imported")
    x = cupy.ones((1024, 1024), dtype=cupy.float32)
    pool = cupy.get_default_memory_pool()
    say("first array", pool.total_bytes())
    x @ x
    cupy.cuda.Device().synchronize()
    say("cuBLAS", pool.total_bytes())


def with_jax():
    import jax
    import jax.numpy as jnp

    say("imported")
    x = jnp.ones((1024, 1024))
    x.block_until_ready()

    def own():
        return (jax.local_devices()[0].memory_stats() or {}).get("pool_bytes")

    say("first array", own())
    (x @ x).block_until_ready()
    say("matmul", own())


{"torch": with_torch, "cupy": with_cupy, "jax": with_jax}[sys.argv[1]]()
