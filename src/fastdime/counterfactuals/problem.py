"""What stays the same while a method works on a batch."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from fastdime.diffusion.denoiser import Denoiser
from fastdime.noise import Noise
from fastdime.types import Classifier, Meter

Features = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Problem:
    """Images, targets, models and noise; `region` is where changes are allowed (None: everywhere)."""

    x: Float[Tensor, "b c h w"]
    target: Int[Tensor, " b"]
    denoiser: Denoiser
    classifier: Classifier
    noise: Noise
    region: Bool[Tensor, "b 1 h w"] | None = None
    features: Features | None = None
    bits: int = 8
    attempt: int = 0
    meter: Meter = field(default_factory=Meter)
    places: tuple[int, ...] | None = None  # of the images in the batch that the meter counts; None: all

    def rows(self, index: Tensor) -> "Problem":
        """Return the same problem for some images."""
        region = None if self.region is None else self.region[index]
        noise = self.noise.rows(index)
        places = tuple(self._places[row] for row in index.tolist())
        return replace(
            self, x=self.x[index], target=self.target[index], noise=noise, region=region, places=places
        )

    @property
    def _places(self) -> tuple[int, ...]:
        return tuple(range(len(self.x))) if self.places is None else self.places

    @cached_property
    def counted(self) -> Denoiser:
        """The denoiser, each call of which is counted for the images of this problem."""

        def network(x_t: Tensor, times: Tensor) -> Any:
            self.meter.denoiser.update(self._places)
            return self.denoiser.network(x_t, times)

        return replace(self.denoiser, network=network)

    def count_gradient(self) -> None:
        """Count one gradient of the classifier for each image of this problem."""
        self.meter.gradient.update(self._places)

    def part(self, *key: str | int) -> Noise:
        """Return the noise for one part of this attempt."""
        return self.noise.at("attempt", self.attempt, *key)

    def with_noise(self, noise: Noise) -> "Problem":
        """Return the same problem with another source of noise."""
        return replace(self, noise=noise)

    def allowed(self) -> Bool[Tensor, "b 1 h w"]:
        """Return where changes are allowed, as a mask."""
        if self.region is not None:
            return self.region
        return torch.ones_like(self.x[:, :1], dtype=torch.bool)


@contextmanager
def left_as_found(*models: object) -> Iterator[None]:
    """Switch networks to evaluation without weight gradients, and put everything back afterwards."""
    modules = [part for model in models for part in _networks(model)]
    modes = [(module, module.training) for network in modules for module in network.modules()]
    flags = [(weight, weight.requires_grad) for network in modules for weight in network.parameters()]
    try:
        for network in modules:
            network.eval()
        for weight, _ in flags:  # one by one: TorchScript has no requires_grad_ of its own
            weight.requires_grad_(False)
        yield
    finally:
        for module, training in modes:
            module.training = training
        for weight, flag in flags:
            weight.requires_grad_(flag)


def _networks(model: object) -> list[nn.Module]:
    if isinstance(model, nn.Module):
        return [model]
    return [part for part in getattr(model, "__dict__", {}).values() if isinstance(part, nn.Module)]
