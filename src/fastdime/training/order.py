"""Which images an update sees: a function of seed and number of the update alone, so that a run can go on."""

import numpy as np
import torch
from torch import Tensor


def batch_rows(images: int, size: int, step: int, seed: int) -> Tensor:
    """Rows of the images of one update; every epoch is a new shuffle, and no image is left out."""
    first = step * size
    places = range(first, first + size)
    epochs = {place // images for place in places}
    orders = {epoch: _shuffle(images, seed, epoch) for epoch in epochs}
    return torch.tensor([orders[place // images][place % images] for place in places])


def generator(seed: int, *key: int) -> torch.Generator:
    """A source of random numbers for one update."""
    state = np.random.SeedSequence([seed, *key]).generate_state(2, np.uint32)
    return torch.Generator().manual_seed(int(state[0]) << 32 | int(state[1]))


def _shuffle(images: int, seed: int, epoch: int) -> list[int]:
    order: list[int] = np.random.default_rng([seed, epoch]).permutation(images).tolist()
    return order
