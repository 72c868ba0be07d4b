"""JAX: training steps of a small network and integers rewritten in place, with its memory taken at once or as needed."""

import ctypes
import hashlib
import os

import rounds

given = rounds.arguments(__doc__, preallocate={"choices": ["yes", "no"], "default": "yes"})

PREALLOCATED_BYTES = 3700 << 20
if given.preallocate == "yes":
    # A share of what the driver says the device has: the same bytes whatever that is.
    driver, device, total = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_size_t()
    assert driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), 0) == 0
    assert driver.cuDeviceTotalMem_v2(ctypes.byref(total), device) == 0
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "true"
    os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{PREALLOCATED_BYTES / total.value:.6f}"
else:
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
# Choices made by timing would differ from run to run.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_autotune_level=0 --xla_gpu_deterministic_ops=true"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402

PERIOD = 3
PARTS = 10
WORDS = (256 << 20) // 4


def network(parameters, x):
    for weight, bias in parameters[:-1]:
        x = jax.nn.gelu(x @ weight + bias)
    weight, bias = parameters[-1]
    return x @ weight + bias


def loss(parameters, x, y):
    return jnp.mean((network(parameters, x) - y) ** 2)


@jax.jit
def step(parameters, x, y):
    value, gradients = jax.value_and_grad(loss)(parameters, x, y)
    return jax.tree.map(lambda p, g: p - 0.01 * g, parameters, gradients), value


def _mix(words, number):
    place = jnp.arange(words.size, dtype=jnp.uint32)

    def body(i, x):
        x = x ^ (x << 13)
        x = x ^ (x >> 17)
        return (x ^ (x << 5)) + (place + number + i) * jnp.uint32(2654435761)

    return jax.lax.fori_loop(jnp.uint32(0), jnp.uint32(16), body, words)


mix = jax.jit(_mix, donate_argnums=0)
fold = jax.jit(lambda words: words.reshape(-1, 1024).sum(axis=1, dtype=jnp.uint32))


def main():
    keys = numpy.random.default_rng(5)
    sizes = [1024, 4096, 4096, 512]
    start = [
        (jnp.asarray(keys.standard_normal((m, n), dtype=numpy.float32) / m**0.5), jnp.zeros(n, jnp.float32))
        for m, n in zip(sizes, sizes[1:])
    ]
    x = jnp.asarray(keys.standard_normal((1024, 1024), dtype=numpy.float32))
    y = jnp.asarray(keys.standard_normal((1024, 512), dtype=numpy.float32))
    words = [jnp.arange(WORDS, dtype=jnp.uint32) + n for n in range(PARTS)]
    state = {"parameters": start}

    def one_round(number):
        if number == 0:
            state["parameters"] = start
            for n in range(PARTS):
                words[n] = jnp.arange(WORDS, dtype=jnp.uint32) + n
        value = None
        for _ in range(30):
            state["parameters"], value = step(state["parameters"], x, y)
        for n in range(PARTS):
            words[n] = mix(words[n], jnp.uint32(number))
        found = hashlib.sha256(numpy.asarray(value).tobytes())
        for array in jax.tree.leaves(state["parameters"]):
            found.update(numpy.asarray(array).tobytes())
        for part in words:
            found.update(numpy.asarray(fold(part)).tobytes())
        return found.hexdigest()

    one_round(0)
    statistics = jax.local_devices()[0].memory_stats() or {}
    rounds.play(
        given,
        PERIOD,
        one_round,
        PARTS * WORDS * 4,
        platform=jax.default_backend(),
        pool_bytes=statistics.get("bytes_limit" if given.preallocate == "yes" else "pool_bytes"),
        peak_bytes=statistics.get("peak_bytes_in_use", 0),
    )


main()
