"""Random numbers of a phantom: a draw depends on (seed, stream, index) and on nothing else.

Every stream draws a fixed sequence, so switching the shortcut, the placebo or a dial shifts no other draw.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import NDArray

SUBJECT, SHORTCUT, PLACEBO, TEXTURE, SENSOR = range(5)
PLACEBO_PRESENCE, LABEL_NOISE = 200, 201
STREAMS = 256
LARGEST_SEED = 2**32 - 1
CHANNELS = ("red", "green", "blue")
Latents = dict[str, float]
Colour = NDArray[np.float64]


def stream(seed: int, number: int, index: int) -> Generator:
    """Return the generator of one stream of one image."""
    return Generator(Philox(key=np.array([seed * STREAMS + number, index], dtype=np.uint64)))


class Draw(Protocol):
    """How one latent is drawn; `width` widens or narrows its range about the centre."""

    def draw(self, rng: Generator, width: float) -> Sequence[float]:
        """Return one number, or the three of a colour."""


@dataclass(frozen=True)
class Uniform:
    """Evenly between two bounds."""

    low: float
    high: float

    def draw(self, rng: Generator, width: float) -> Sequence[float]:
        """Return one number."""
        centre, reach = (self.low + self.high) / 2, (self.high - self.low) / 2
        return [centre + width * reach * (2 * float(rng.random()) - 1)]


@dataclass(frozen=True)
class LogUniform:
    """Evenly on a logarithmic scale."""

    low: float
    high: float

    def draw(self, rng: Generator, width: float) -> Sequence[float]:
        """Return one number."""
        [exponent] = Uniform(float(np.log(self.low)), float(np.log(self.high))).draw(rng, width)
        return [float(np.exp(exponent))]


@dataclass(frozen=True)
class Normal:
    """A bell curve, cut at 2.5 standard deviations."""

    deviation: float
    mean: float = 0.0

    def draw(self, rng: Generator, width: float) -> Sequence[float]:
        """Return one number."""
        return [self.mean + width * self.deviation * min(max(float(rng.standard_normal()), -2.5), 2.5)]


@dataclass(frozen=True)
class Choice:
    """One of 0, 1, ... n - 1, all equally likely."""

    n: int

    def draw(self, rng: Generator, width: float) -> Sequence[float]:
        """Return one whole number."""
        return [float(int(rng.random() * self.n))]


@dataclass(frozen=True)
class Coin:
    """1 with this probability, else 0."""

    chance: float

    def draw(self, rng: Generator, width: float) -> Sequence[float]:
        """Return 0 or 1."""
        return [float(rng.random() < self.chance)]


@dataclass(frozen=True)
class Paint:
    """Any colour between two brightnesses."""

    low: float
    high: float

    def draw(self, rng: Generator, width: float) -> Sequence[float]:
        """Return red, green and blue."""
        return [Uniform(self.low, self.high).draw(rng, width)[0] for _ in CHANNELS]


@dataclass(frozen=True)
class Palette:
    """A Dirichlet mixture of some colours; a small `concentration` favours the pure ones."""

    colours: tuple[tuple[float, float, float], ...]
    concentration: float = 1.0

    def draw(self, rng: Generator, width: float) -> Sequence[float]:
        """Return red, green and blue."""
        share = rng.standard_gamma(self.concentration, len(self.colours))
        colours = np.array(self.colours)
        centre = colours.mean(0)
        mixed = ((share / share.sum())[:, None] * colours).sum(0)
        return [float(part) for part in centre + width * (mixed - centre)]


def draw_latents(rng: Generator, draws: Mapping[str, Draw], width: float = 1.0) -> Latents:
    """Draw every latent in the order of the table; a colour becomes three of them."""
    latents: Latents = {}
    for name, draw in draws.items():
        values = draw.draw(rng, width)
        names = [name] if len(values) == 1 else [f"{name}_{channel}" for channel in CHANNELS]
        latents.update(zip(names, values, strict=True))
    return latents


def colour(latents: Mapping[str, float], name: str) -> Colour:
    """Return the three latents of a colour."""
    return np.array([latents[f"{name}_{channel}"] for channel in CHANNELS])
