"""DataLoader: batches come from forked workers through pinned memory, new workers in every round, into training steps."""

import rounds

given = rounds.arguments(__doc__)

import torch  # noqa: E402
from with_torch import Kept, Training, digest, settle  # noqa: E402

PERIOD = 2
BATCH = 256
BATCHES = 12


class Numbers(torch.utils.data.Dataset):
    """Samples made of their index alone."""

    def __len__(self):
        return BATCH * BATCHES

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(16, 32, 32, generator=generator), torch.randn(512, generator=generator)


def main():
    settle()
    device = torch.device("cuda")
    kept = Kept(device)
    training = Training(device, BATCH)

    def one_round(number):
        if number == 0:
            training.begin_again()
        loader = torch.utils.data.DataLoader(
            Numbers(), batch_size=BATCH, num_workers=3, pin_memory=True, multiprocessing_context="fork"
        )
        value, seen = None, 0
        for x, y in loader:
            assert x.is_pinned() and y.is_pinned()
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            for _ in range(6):
                value = training.step(x, y)
            seen += 1
        assert seen == BATCHES
        return digest(value.reshape(1)) + training.digest() + kept.digest()

    training.step(training.x, training.y)
    torch.cuda.synchronize()
    rounds.play(given, PERIOD, one_round, kept.bytes, peak_bytes=torch.cuda.max_memory_reserved())


main()
