"""All randomness: a draw depends on (seed, image id, key) and on nothing else.

So a result does not change with the batch size, the order of the images, or an interruption.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self, runtime_checkable

import numpy as np
import torch
from torch import Tensor

Key = tuple[str | int, ...]


@runtime_checkable
class Noise(Protocol):
    """Standard normal draws for the images of one batch."""

    def draw(self, like: Tensor, *key: str | int) -> Tensor:
        """Return a draw of the shape, type and device of `like`; the same key gives the same draw."""

    def at(self, *key: str | int) -> Self:
        """Return the same source with a longer key, for one part of the work."""

    def rows(self, index: Tensor) -> Self:
        """Return the source for some images of the batch."""


@dataclass(frozen=True)
class SeededNoise:
    """Noise from a run seed and the ids of the images.

    >>> one = SeededNoise(0, ["a"]).draw(torch.zeros(1, 1, 2, 2), "step", 3)
    >>> two = SeededNoise(0, ["b", "a"]).draw(torch.zeros(2, 1, 2, 2), "step", 3)
    >>> torch.equal(one[0], two[1])
    True
    """

    seed: int
    ids: Sequence[str]
    key: Key = ()

    def draw(self, like: Tensor, *key: str | int) -> Tensor:
        """Return one independent draw an image."""
        shape = like.shape[1:]
        draws = [self._image(image_id, key, tuple(shape)) for image_id in self.ids]
        return torch.from_numpy(np.stack(draws)).to(like)

    def at(self, *key: str | int) -> Self:
        """Return the same source with a longer key."""
        return replace(self, key=(*self.key, *key))

    def rows(self, index: Tensor) -> Self:
        """Return the source for the images at these places of the batch."""
        return replace(self, ids=[self.ids[i] for i in index.tolist()])

    def _image(
        self, image_id: str, key: Key, shape: tuple[int, ...]
    ) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
        name = repr((self.seed, image_id, self.key + key)).encode()
        counter = int.from_bytes(hashlib.blake2b(name, digest_size=16).digest(), "little")
        # Philox is counter-based: making one for each draw is cheap, and the stream is the same everywhere.
        return np.random.Generator(np.random.Philox(key=counter)).standard_normal(shape, dtype=np.float32)
