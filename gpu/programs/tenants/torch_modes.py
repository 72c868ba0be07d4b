"""PyTorch: eager, through torch.compile, or as CUDA graphs; the allocator is chosen by PYTORCH_CUDA_ALLOC_CONF outside."""

import rounds

given = rounds.arguments(__doc__, mode={"choices": ["eager", "compile", "graphs"], "default": "eager"})

import torch  # noqa: E402
from with_torch import Kept, Training, allocator_in_use, churn, digest, settle  # noqa: E402

PERIOD = 3
STEPS = 40


def eager(training):
    value = None
    for _ in range(STEPS):
        value = training.step(training.x, training.y)
    return value


def compiled(training):
    import torch._inductor.config as inductor

    # Choices made by timing would differ from run to run.
    inductor.max_autotune = False
    inductor.coordinate_descent_tuning = False
    inductor.triton.autotune_pointwise = False
    if hasattr(inductor, "deterministic"):
        inductor.deterministic = True
    loss = torch.compile(training.loss)

    def steps(training):
        value = None
        for _ in range(STEPS):
            value = training.step(training.x, training.y, loss)
        return value

    return steps


def as_graphs(training):
    """One step is captured anew in every round, then replayed."""
    # Backward passes run in this thread. In PyTorch's own one the last tensor of a pass may be dropped when the capture has
    # ended, which with cudaMallocAsync is the end of the program, also natively.
    torch.autograd.set_multithreading_enabled(False)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            training.step(training.x, training.y)
    torch.cuda.current_stream().wait_stream(side)

    def steps(training):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            value = training.step(training.x, training.y)
        # A capture runs nothing: all steps are replays.
        for _ in range(STEPS):
            graph.replay()
        return value.clone()

    return steps


def main():
    settle()
    device = torch.device("cuda")
    kept = Kept(device)
    training = Training(device)
    steps = {"eager": lambda _: eager, "compile": compiled, "graphs": as_graphs}[given.mode](training)

    def one_round(number):
        if number == 0:
            training.begin_again()
        value = steps(training)
        found = digest(value.reshape(1)) + training.digest() + kept.digest() + churn(device, number)
        torch.cuda.empty_cache()
        return found

    training.begin_again()
    steps(training)  # compiles, loads, settles
    torch.cuda.synchronize()
    rounds.play(
        given,
        PERIOD,
        one_round,
        kept.bytes,
        allocator=allocator_in_use(),
        peak_bytes=torch.cuda.max_memory_reserved(),
    )


main()
