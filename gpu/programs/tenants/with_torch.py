"""PyTorch as the programs here use it: nothing that may differ between two runs, digests, memory that is only kept, training."""

import hashlib
import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch  # noqa: E402

WHOLE_MAX_BYTES = 1 << 20
"""Results up to this size are hashed byte by byte; of larger ones the exact integer sums of their rows are hashed."""
KEPT_BYTES = 2560 << 20


def settle(seed=1):
    """The same numbers and the same algorithms in every run."""
    torch.manual_seed(seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False


def digest(*tensors):
    """A hash of exact bytes: two tensors with the same digest have the same bits (or the same sums of their rows)."""
    found = hashlib.sha256()
    for tensor in tensors:
        words = tensor.detach().contiguous().view(-1).view(torch.int32)
        if words.numel() * 4 > WHOLE_MAX_BYTES:
            words = words[: words.numel() // 1024 * 1024].view(-1, 1024).sum(1, dtype=torch.int64)
        found.update(words.cpu().numpy())
    return found.hexdigest()


class Kept:
    """Memory that is filled once and only read afterwards."""

    def __init__(self, device, size=KEPT_BYTES, part=256 << 20):
        generator = torch.Generator(device=device).manual_seed(7)
        self.parts = [
            torch.randint(-(2**62), 2**62, (part // 8,), dtype=torch.int64, device=device, generator=generator)
            for _ in range(size // part)
        ]
        self.bytes = sum(tensor.nbytes for tensor in self.parts)

    def digest(self):
        return digest(*self.parts)


class Training:
    """A small network of convolutions and products, trained by steepest descent with momentum from a fixed start."""

    def __init__(self, device, batch=256):
        self.network = torch.nn.Sequential(
            torch.nn.Conv2d(16, 64, 3, padding=1),
            torch.nn.GELU(),
            torch.nn.Conv2d(64, 64, 3, stride=2, padding=1),
            torch.nn.GELU(),
            torch.nn.Flatten(),
            torch.nn.Linear(64 * 16 * 16, 1024),
            torch.nn.LayerNorm(1024),
            torch.nn.GELU(),
            torch.nn.Linear(1024, 512),
        ).to(device)
        self.parameters = list(self.network.parameters())
        self.momenta = [torch.zeros_like(p) for p in self.parameters]
        self.start = [p.detach().clone() for p in self.parameters]
        self.x = torch.randn(batch, 16, 32, 32, device=device)
        self.y = torch.randn(batch, 512, device=device)

    def begin_again(self):
        with torch.no_grad():
            for parameter, momentum, first in zip(self.parameters, self.momenta, self.start):
                parameter.copy_(first)
                momentum.zero_()

    def loss(self, x, y):
        return (self.network(x) - y).square().mean()

    def step(self, x, y, loss=None):
        """One step; `loss` computes what `self.loss` does, compiled perhaps."""
        value = (loss or self.loss)(x, y)
        gradients = torch.autograd.grad(value, self.parameters)
        with torch.no_grad():
            torch._foreach_mul_(self.momenta, 0.9)
            torch._foreach_add_(self.momenta, list(gradients))
            torch._foreach_add_(self.parameters, self.momenta, alpha=-0.01)
        return value.detach()

    def digest(self):
        return digest(*self.parameters, *self.momenta)


def churn(device, number):
    """Tensors of many sizes, made and dropped: work for the allocator, on two streams. Answers an exact sum."""
    side = torch.cuda.Stream()
    here = torch.cuda.current_stream()
    total = torch.zeros((), dtype=torch.int64, device=device)
    alive = []
    for i in range(60):
        words = (i * 7919 + number * 104729) % 40 * (i % 3 == 0) * 131072 + (i * 31 + number) % 5000 + 1
        tensor = torch.arange(words, dtype=torch.int64, device=device)
        side.wait_stream(here)
        with torch.cuda.stream(side):
            tensor.mul_(2654435761).add_(i)
            tensor.record_stream(side)
        here.wait_stream(side)
        total += tensor.sum()
        alive.append(tensor)
        if len(alive) > 7:
            del alive[(i * 5) % 7]
    return f"{total.item():x}"


def allocator_in_use():
    """What PyTorch itself says about how it takes memory."""
    if torch.cuda.get_allocator_backend() == "cudaMallocAsync":
        return "cudaMallocAsync"
    expandable = any(segment.get("is_expandable") for segment in torch.cuda.memory_snapshot())
    return "expandable" if expandable else "default"
