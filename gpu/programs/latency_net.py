"""A service whose request is the inference of a network, as one CUDA graph: input to the GPU, replay, output back.

    latency_net.py transformer|convolution [CORE]

Serves the orders on its input, as programs/latency.h says. Natively it says first how many nodes its graph has.
"""

import array
import gc
import json
import math
import os
import random
import re
import sys
import tempfile
import time

import torch

SPIN_NS = 300_000
LATE_NS = 50_000
BURST = 10


def transformer():
    layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    return torch.nn.TransformerEncoder(layer, 8, enable_nested_tensor=False), (1, 128, 1024)


def convolution():
    def block(width, out, stride):
        layers = [torch.nn.Conv2d(width, out, 3, stride, 1, bias=False), torch.nn.BatchNorm2d(out), torch.nn.ReLU()]
        return layers + [torch.nn.Conv2d(out, out, 3, 1, 1, bias=False), torch.nn.BatchNorm2d(out), torch.nn.ReLU()]

    layers = [torch.nn.Conv2d(3, 64, 7, 2, 3, bias=False), torch.nn.ReLU()]
    for width, out in ((64, 64), (64, 128), (128, 256), (256, 512)):
        layers += block(width, out, 1 if width == out else 2) + block(out, out, 1)
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(512, 1000)), (8, 3, 224, 224)


def nodes_of(net, there, stream):
    """How many nodes its graph has; None where this PyTorch does not tell. The graph is one that is not used."""
    try:
        graph = torch.cuda.CUDAGraph()
        graph.enable_debug_mode()
        with torch.cuda.graph(graph, stream=stream):
            net(there)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "graph.dot")
            graph.debug_dump(path)
            with open(path) as file:
                return len(set(re.findall(r"graph_\d+_node_\d+", file.read()))) or None
    except Exception as reason:
        print(f"nodes of the graph: {reason}", file=sys.stderr)
        return None


def arrivals(shape, count, rate, number):
    """When requests arrive, in nanoseconds from the first on."""
    draw, mean, at = random.Random(number), 1e9 / rate, 0.0
    for n in range(count):
        yield int(at)
        if shape == "steady":
            at += mean
        elif shape == "poisson":
            at += mean * -math.log(1.0 - draw.random())
        elif shape == "bursts":
            at += 0 if (n + 1) % BURST else BURST * mean * -math.log(1.0 - draw.random())
        else:
            raise SystemExit(f"no such shape: {shape}")


def wait_until(when):
    rest = when - time.monotonic_ns() - SPIN_NS
    if rest > 0:
        time.sleep(rest / 1e9)
    while time.monotonic_ns() < when:
        pass


def serve(request, order):
    file, shape, count, rate, hints, prepares_us, off_us, spread_us, max_s, number = order.split()
    hints, number, prepares, most = int(hints), int(number), int(float(prepares_us) * 1e3), int(float(max_s) * 1e9)
    draw = random.Random(~number)  # its own: when requests arrive does not hang on it
    if hints:
        import rota
    took, began, whole = (array.array("d") for _ in range(3))
    late, free_at, first = 0, 0, time.monotonic_ns() + 20_000_000
    for at in arrivals(shape, int(count), float(rate), number):
        if took and time.monotonic_ns() - first > most:
            break
        arrives = first + at
        calls = max(arrives + prepares, free_at)
        wait_until(max(arrives, free_at))
        if hints:
            off = int(1e3 * (float(off_us) + draw.uniform(-1, 1) * float(spread_us)))
            rota.hint(in_ms=max(0, calls - time.monotonic_ns() - off) / 1e6)
        wait_until(calls)
        if hints:
            with rota.request():
                begun = time.monotonic_ns()
                request()
                ended = time.monotonic_ns()
        else:
            begun = time.monotonic_ns()
            request()
            ended = time.monotonic_ns()
        late += begun - calls > LATE_NS
        took.append((ended - begun) / 1e3)
        began.append(float(begun))
        whole.append((ended - arrives) / 1e3)
        free_at = time.monotonic_ns()
    with open(file, "wb") as out:
        took.tofile(out)
        began.tofile(out)
        whole.tofile(out)
    print(json.dumps({"order": number, "requests": len(took), "late": late}), flush=True)


def main():
    torch.manual_seed(1)
    # One way through the network, natively and under rota.
    torch.backends.mha.set_fastpath_enabled(False)
    net, size = {"transformer": transformer, "convolution": convolution}[sys.argv[1]]()
    net = net.eval().cuda().bfloat16()
    host_in = torch.randn(size, dtype=torch.bfloat16).pin_memory()
    stream = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(stream):
        there = host_in.cuda()
        for _ in range(3):
            result = net(there)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            result = net(there)
        host_out = torch.empty(result.shape, dtype=result.dtype).pin_memory()
        nodes = None if "ROTA_SOCKET" in os.environ else nodes_of(net, there, stream)

        def request():
            there.copy_(host_in, non_blocking=True)
            graph.replay()
            host_out.copy_(result, non_blocking=True)
            stream.synchronize()

        for _ in range(50):
            request()
        if len(sys.argv) > 2:
            os.sched_setaffinity(0, {int(sys.argv[2])})
        # Whatever is there stays; nothing is to be looked through in the middle of a request.
        gc.collect()
        gc.disable()
        print(json.dumps({"ready": True, "nodes": nodes}), flush=True)
        for order in sys.stdin:
            serve(request, order)


if __name__ == "__main__":
    main()
