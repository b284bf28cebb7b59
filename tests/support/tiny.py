"""Tiny models with random weights, for tests that need any model at all."""

import torch
from torch import Tensor, nn

from fastdime.classifiers.wrapper import ImageClassifier
from fastdime.counterfactuals.methods import METHODS, settings_for
from fastdime.counterfactuals.settings import Settings
from fastdime.diffusion.denoiser import Denoiser
from fastdime.diffusion.schedule import linear
from fastdime.pixels import to_grid

# What makes any method quick; a method takes those it has.
SMALL = {
    "tau": 6,
    "steps": 30,
    "iterations": 3,
    "noise_steps": 3,
    "inpaint_steps": 3,
    "inpaint_chain": 20,
    "mask_from": 3,
    "dilation": 3,
    "l1": 0.01,
}


class TinyNoise(nn.Module):
    """Any size, any channel count; has dropout, so that a forgotten eval() shows."""

    def __init__(self, channels: int, *, learned: bool = True) -> None:
        super().__init__()
        self.inside = nn.Conv2d(channels, 8, 3, padding=1)
        self.outside = nn.Conv2d(8, channels * (2 if learned else 1), 3, padding=1)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x_t: Tensor, times: Tensor) -> Tensor:
        time = (times / 1000).to(x_t).view(-1, 1, 1, 1)
        return self.outside(self.dropout(torch.nn.functional.silu(self.inside(x_t) + time)))


class TinyScore(nn.Module):
    """Mean of a few convolution features, then a linear head."""

    def __init__(self, channels: int, outputs: int = 1) -> None:
        super().__init__()
        self.features = nn.Conv2d(channels, 6, 3, padding=1)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(6, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return 20 * self.head(self.dropout(self.features(x).tanh().mean((2, 3))))


def denoiser(channels: int = 1, *, learned: bool = True, seed: int = 0) -> Denoiser:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = TinyNoise(channels, learned=learned)
    return Denoiser(network, linear(1000), variance="learned_range" if learned else "fixed_small")


def classifier(channels: int = 1, outputs: int = 1, *, seed: int = 1, **spec: object) -> ImageClassifier:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = TinyScore(channels, outputs)
    return ImageClassifier(network, **spec)


def images(n: int = 3, channels: int = 1, height: int = 16, width: int = 16, *, bits: int = 8) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    return to_grid(torch.rand(n, channels, height, width, generator=generator) * 2 - 1, bits)


def small(method: str, preset: str = "default", **changes: object) -> Settings:
    """The settings of a method with few steps; the same for every method."""
    known = METHODS[method].program.model_fields
    few = {name: value for name, value in SMALL.items() if name in known}
    return settings_for(method, preset, **(few | changes))
