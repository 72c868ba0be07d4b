"""A program that uses many parts of CUDA at once, in rounds that always give the same bytes.

One round: cuBLAS products (bf16, fp32), cuDNN convolutions forward and backward, copies both ways through pinned memory
on two further streams, a CUDA graph, a compiled training step, and a sum over memory that is never written. Every
result is hashed, part by part. The first rounds are the reference; then rounds go on until the stop file is there.
Prints one line of JSON at the end: hash by part, rounds, wrong rounds.
"""

import argparse
import hashlib
import json
import os
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--rounds", type=int, default=0, help="rounds after the first ones; 0: until --stop-file is there")
parser.add_argument("--first-rounds", type=int, default=3)
parser.add_argument("--kept-mib", type=int, default=1536, help="memory that is filled once and read in every round")
parser.add_argument("--ready-file")
parser.add_argument("--start-file")
parser.add_argument("--stop-file")
given = parser.parse_args()
if not given.rounds and not given.stop_file:
    parser.error("give --rounds or --stop-file")

import torch  # noqa: E402

WHOLE_MAX_BYTES = 4 * 2**20
"""Results up to this size are hashed byte by byte; of larger ones the exact integer sums of their rows are hashed."""


def prepare():
    torch.manual_seed(given.seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False


def digest(*tensors):
    found = hashlib.sha256()
    for tensor in tensors:
        words = tensor.detach().contiguous().view(-1).view(torch.int32)
        if words.numel() * 4 > WHOLE_MAX_BYTES:
            words = words.view(-1, 4096).sum(1, dtype=torch.int64)
        found.update(words.cpu().numpy())
    return found.hexdigest()


class Products:
    """cuBLAS."""

    def __init__(self, device):
        self.bf16 = [torch.randn(8192, 8192, device=device, dtype=torch.bfloat16) for _ in range(2)]
        self.fp32 = [torch.randn(4096, 4096, device=device) for _ in range(2)]

    def round(self):
        wide = self.bf16[0] @ self.bf16[1]
        wide = (wide * 0.01) @ self.bf16[0]
        exact = self.fp32[0] @ self.fp32[1]
        return digest(wide, exact)


class Convolutions:
    """cuDNN."""

    def __init__(self, device):
        self.images = torch.randn(32, 64, 96, 96, device=device, requires_grad=True)
        self.first = torch.randn(128, 64, 3, 3, device=device, requires_grad=True)
        self.second = torch.randn(64, 128, 3, 3, device=device, requires_grad=True)

    def round(self):
        out = torch.nn.functional.conv2d(self.images, self.first, padding=1).relu()
        out = torch.nn.functional.conv2d(out, self.second, padding=1, stride=2)
        gradients = torch.autograd.grad(out.square().mean(), [self.images, self.first, self.second])
        return digest(out, *gradients)


class Copies:
    """Pinned memory, both directions at once, on streams of their own."""

    def __init__(self, device):
        words = 32 * 2**20
        self.up_host = torch.arange(words, dtype=torch.int32).mul_(-1640531527).pin_memory()
        self.down_host = torch.zeros(words, dtype=torch.int32).pin_memory()
        self.up = torch.zeros(words, dtype=torch.int32, device=device)
        self.down = torch.arange(words, dtype=torch.int32, device=device).mul_(1597334677)
        self.streams = [torch.cuda.Stream(), torch.cuda.Stream()]

    def begin(self):
        here = torch.cuda.current_stream()
        for stream in self.streams:
            stream.wait_stream(here)
        with torch.cuda.stream(self.streams[0]):
            self.up.zero_()
            self.up.copy_(self.up_host, non_blocking=True)
        self.down_host.zero_()
        with torch.cuda.stream(self.streams[1]):
            self.down_host.copy_(self.down, non_blocking=True)

    def round(self):
        here = torch.cuda.current_stream()
        for stream in self.streams:
            here.wait_stream(stream)
            stream.synchronize()
        return digest(self.up, self.down_host)


class Graph:
    """A captured graph of products and small kernels, replayed."""

    def __init__(self, device):
        self.start = torch.randn(2048, 2048, device=device, dtype=torch.bfloat16)
        self.weight = torch.randn(2048, 2048, device=device, dtype=torch.bfloat16) * 0.02
        self.input = self.start.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.body()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.output = self.body()

    def body(self):
        x = self.input
        for _ in range(8):
            x = torch.nn.functional.layer_norm(torch.nn.functional.gelu(x @ self.weight) + x, (2048,))
        return x

    def round(self):
        self.input.copy_(self.start)
        for _ in range(4):
            self.graph.replay()
            self.input.copy_(self.output)
        return digest(self.output)


class Compiled:
    """A small network's training steps through torch.compile, from the same start each round."""

    def __init__(self, device):
        self.network = torch.nn.Sequential(
            torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.LayerNorm(4096), torch.nn.Linear(4096, 1024)
        ).to(device)
        self.start = [p.detach().clone() for p in self.network.parameters()]
        self.x = torch.randn(2048, 1024, device=device)
        self.y = torch.randn(2048, 1024, device=device)
        self.loss = torch.compile(lambda x, y: (self.network(x) - y).square().mean())

    def round(self):
        parameters = list(self.network.parameters())
        with torch.no_grad():
            for parameter, first in zip(parameters, self.start):
                parameter.copy_(first)
        for _ in range(3):
            loss = self.loss(self.x, self.y)
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                for parameter, gradient in zip(parameters, gradients):
                    parameter.sub_(gradient, alpha=0.01)
        return digest(loss.reshape(1), *parameters)


class Kept:
    """Memory that is filled once and never written again."""

    def __init__(self, device):
        self.parts = [
            torch.randint(-(2**62), 2**62, (256 * 2**20 // 8,), dtype=torch.int64, device=device)
            for _ in range(max(1, given.kept_mib // 256))
        ]

    def round(self):
        return digest(*self.parts)


def main():
    prepare()
    device = torch.device("cuda")
    kinds = {
        "products": Products,
        "convolutions": Convolutions,
        "copies": Copies,
        "graph": Graph,
        "compiled": Compiled,
        "kept": Kept,
    }
    parts = {name: kind(device) for name, kind in kinds.items()}

    def one_round():
        parts["copies"].begin()
        return {name: part.round() for name, part in parts.items() if name != "copies"} | {
            "copies": parts["copies"].round()
        }

    first = one_round()  # compiles, loads, and settles the libraries' choices
    reference = one_round()
    wrong = {name: 0 for name in parts}
    unsteady = {name for name in parts if first[name] != reference[name]}
    for _ in range(given.first_rounds - 1):
        again = one_round()
        unsteady |= {name for name in parts if again[name] != reference[name]}
    torch.cuda.synchronize()
    if given.ready_file:
        open(given.ready_file, "w").close()
    while given.start_file and not os.path.exists(given.start_file):
        time.sleep(0.002)
    began = time.monotonic_ns()
    rounds = wrong_rounds = 0
    while not (given.rounds and rounds >= given.rounds) and not (given.stop_file and os.path.exists(given.stop_file)):
        found = one_round()
        rounds += 1
        different = [name for name in parts if found[name] != reference[name]]
        wrong_rounds += bool(different)
        for name in different:
            wrong[name] += 1
    ended = time.monotonic_ns()
    print(
        json.dumps(
            {
                "program": "mixed",
                "seed": given.seed,
                "rounds": rounds,
                "wrong_rounds": wrong_rounds,
                "wrong": wrong,
                "unsteady": sorted(unsteady),
                "hashes": reference,
                "hash": hashlib.sha256(json.dumps(reference, sort_keys=True).encode()).hexdigest(),
                "reserved_bytes": torch.cuda.max_memory_reserved(),
                "gpu_phase_s": (ended - began) / 1e9,
            }
        ),
        flush=True,
    )


main()
