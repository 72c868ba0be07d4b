"""CuPy with stream-ordered pools: all its memory comes from cudaMallocAsync, on three streams."""

import hashlib

import rounds

given = rounds.arguments(__doc__)

import cupy  # noqa: E402

PERIOD = 3
PARTS = 10
WORDS = (256 << 20) // 8
MIX = cupy.ElementwiseKernel(
    "int64 number", "int64 x", "for (int i = 0; i < 40; i++) { x ^= x << 13; x += (i + number) * 2654435761ll; x ^= x << 7; }", "mix"
)


def digest(*arrays):
    found = hashlib.sha256()
    for array in arrays:
        words = array.ravel().view(cupy.int32)
        if words.nbytes > 1 << 20:
            words = words.reshape(-1, 1024).sum(axis=1, dtype=cupy.int64)
        found.update(cupy.asnumpy(words).tobytes())
    return found.hexdigest()


def main():
    pool = cupy.cuda.MemoryAsyncPool()
    cupy.cuda.set_allocator(pool.malloc)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    kept = [cupy.empty(WORDS, dtype=cupy.int64) for _ in range(PARTS)]
    # Integers as numbers, so that the sums of a product are exact whatever order they are made in.
    a = (cupy.arange(2048 * 2048, dtype=cupy.int64) * 7 % 13 - 6).astype(cupy.float32).reshape(2048, 2048)

    def one_round(number):
        if number == 0:
            for n, part in enumerate(kept):
                part[:] = cupy.arange(WORDS, dtype=cupy.int64)
                part += n
        cupy.cuda.Device().synchronize()
        results = []
        for turn in range(4):
            for stream, share in zip(streams, (kept[0::3], kept[1::3], kept[2::3])):
                with stream:
                    for part in share:
                        MIX(number * 100 + turn, part)
                    # Made and dropped in the order of the stream: the pool's own work.
                    for size in (1000, 300_000, 5_000_000, 20_000_000):
                        made = cupy.arange(size + number, dtype=cupy.int64)
                        made *= 3
                        made = made[::-1] + share[0][: made.size]
                        results.append(made.sum())
        for stream in streams:
            stream.synchronize()
        with streams[0]:
            product = a @ a
            ordered = cupy.sort(kept[0][: 1 << 20])
            streams[0].synchronize()
        return digest(*kept, product, ordered, *[r.reshape(1) for r in results])

    one_round(0)
    cupy.cuda.Device().synchronize()
    used = pool.used_bytes()
    assert used >= PARTS * WORDS * 8, f"the pool has only {used} bytes in use"
    rounds.play(given, PERIOD, one_round, PARTS * WORDS * 8, pool_used_bytes=int(used), peak_bytes=int(pool.total_bytes()))


main()
