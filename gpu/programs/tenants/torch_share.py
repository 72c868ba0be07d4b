"""torch.multiprocessing: tensors on the GPU shared between three processes, each changing its part of the others' memory."""

import rounds

given = rounds.arguments(__doc__)

import torch  # noqa: E402
import torch.multiprocessing as processes  # noqa: E402
from with_torch import digest, settle  # noqa: E402

PERIOD = 3
TENSORS = 9
WORDS = (288 << 20) // 4
WORKERS = 2


def worker(number, orders, answers):
    """Holds the parent's tensors; in each round changes its own ones and sends a tensor of its own back."""
    settle()
    tensors = orders.get()
    own = torch.zeros(WORDS // 64, dtype=torch.int32, device="cuda")
    answers.put(own)
    while True:
        order = orders.get()
        if order is None:
            break
        place = torch.arange(WORDS, dtype=torch.int32, device="cuda")
        for n in range(number, TENSORS, WORKERS):
            for turn in range(20):
                tensors[n].mul_(1103515245).add_(place).add_(order + turn)
        # What the other worker's tensors were before this round is known to the parent alone: only own ones are read.
        own.copy_(tensors[number][: own.numel()])
        torch.cuda.synchronize()
        answers.put(order)
    del tensors, own
    answers.put("over")


def main():
    settle()
    context = processes.get_context("spawn")
    tensors = [torch.arange(WORDS, dtype=torch.int32, device="cuda").mul_(n + 1) for n in range(TENSORS)]
    torch.cuda.synchronize()
    orders = [context.Queue() for _ in range(WORKERS)]
    answers = [context.Queue() for _ in range(WORKERS)]
    started = [context.Process(target=worker, args=(n, orders[n], answers[n])) for n in range(WORKERS)]
    for process in started:
        process.start()
    for queue in orders:
        queue.put(tensors)
    theirs = [queue.get(timeout=60) for queue in answers]

    def one_round(number):
        if number == 0:
            for n, tensor in enumerate(tensors):
                torch.arange(WORDS, dtype=torch.int32, device="cuda", out=tensor).mul_(n + 1)
        torch.cuda.synchronize()
        for queue in orders:
            queue.put(number)
        for queue in answers:
            assert queue.get(timeout=60) == number
        return digest(*tensors, *theirs)

    try:
        rounds.play(given, PERIOD, one_round, TENSORS * WORDS * 4, workers=WORKERS, peak_bytes=torch.cuda.max_memory_reserved())
    finally:
        for queue in orders:
            queue.put(None)
        theirs.clear()
        for queue in answers:
            queue.get(timeout=60)
        for process in started:
            process.join(20)
            if process.is_alive():
                process.kill()


if __name__ == "__main__":
    main()
