"""Noise schedules: tables in float64, and the formulas that use them.

`t` counts from 0 (least noise). `network_times[t]` is the number the network is told for level t.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from fastdime.errors import InputError, expected

Level = int | Tensor  # one level for the whole batch, or one for each image
Table = NDArray[np.float64]
DETAIL = 0.3  # deviation of what a noisy image does not tell about the clean one, for "edm" predictions
Kind = Literal["linear", "scaled_linear", "cosine", "table"]


@dataclass(frozen=True, eq=False)
class Schedule:
    """A chain of noise levels.

    Attributes:
        betas: variance added by each step, float64.
        network_times: what the network is told at each level.
        kind: how the betas were made; a linear chain can be rebuilt with another length.
    """

    betas: Table
    network_times: NDArray[np.int64]
    kind: Kind = "table"

    def __post_init__(self) -> None:
        """Refuse betas that are not a chain of probabilities."""
        if self.betas.ndim != 1 or len(self.betas) == 0 or not ((self.betas > 0) & (self.betas <= 1)).all():
            raise InputError(expected("betas", "a list of numbers in (0, 1]", f"shape {self.betas.shape}"))
        if self.network_times.shape != self.betas.shape:
            raise InputError(expected("network_times", f"{len(self.betas)} numbers", len(self.network_times)))

    def __len__(self) -> int:
        """Return the number of levels."""
        return len(self.betas)

    @cached_property
    def alpha_bar(self) -> Table:
        """Share of the clean image's variance left at each level."""
        return np.cumprod(1 - self.betas, dtype=np.float64)

    def nearest(self, share: float) -> int:
        """Return the level at which about this share of the clean image's variance is left.

        >>> linear(1000).nearest(0.5)
        258
        """
        return int(np.abs(self.alpha_bar - share).argmin())

    @cached_property
    def alpha_bar_prev(self) -> Table:
        """The same one level below; 1 below level 0."""
        return np.append(1.0, self.alpha_bar[:-1])

    @cached_property
    def sqrt_alpha_bar(self) -> Table:
        """Factor of the clean image in x_t."""
        return np.sqrt(self.alpha_bar)

    @cached_property
    def sqrt_one_minus_alpha_bar(self) -> Table:
        """Factor of the noise in x_t."""
        return np.sqrt(1 - self.alpha_bar)

    @cached_property
    def sqrt_recip_alpha_bar(self) -> Table:
        """Factor of x_t in the clean image; infinite at a level of pure noise."""
        with np.errstate(divide="ignore"):
            return np.sqrt(1 / self.alpha_bar)

    @cached_property
    def sqrt_recip_alpha_bar_minus_one(self) -> Table:
        """Factor of the noise in the clean image; infinite at a level of pure noise."""
        with np.errstate(divide="ignore"):
            return np.sqrt(1 / self.alpha_bar - 1)

    @cached_property
    def edm_kept(self) -> Table:
        """Factor of x_t in the clean image, if the network predicts what is missing (Karras et al. 2022)."""
        return DETAIL**2 * self.sqrt_alpha_bar / (1 - self.alpha_bar + DETAIL**2 * self.alpha_bar)

    @cached_property
    def edm_size(self) -> Table:
        """Deviation of what is missing, which the network predicts in units of it."""
        return DETAIL * np.sqrt((1 - self.alpha_bar) / (1 - self.alpha_bar + DETAIL**2 * self.alpha_bar))

    @cached_property
    def posterior_variance(self) -> Table:
        """Variance of x_{t-1} given x_t and the clean image."""
        return self.betas * (1 - self.alpha_bar_prev) / (1 - self.alpha_bar)

    @cached_property
    def posterior_log_variance(self) -> Table:
        """Its logarithm; level 0, where it is minus infinity, takes the value of level 1."""
        variance = self.posterior_variance
        table: Table = np.log(np.append(variance[min(1, len(self) - 1)], variance[1:]))
        return table

    @cached_property
    def posterior_from_clean(self) -> Table:
        """Factor of the clean image in the posterior mean."""
        return self.betas * np.sqrt(self.alpha_bar_prev) / (1 - self.alpha_bar)

    @cached_property
    def posterior_from_state(self) -> Table:
        """Factor of x_t in the posterior mean."""
        return (1 - self.alpha_bar_prev) * np.sqrt(1 - self.betas) / (1 - self.alpha_bar)


def at(table: Table, t: Level, like: Tensor) -> Tensor:
    """Look a table up at a level, with the type and device of `like`, ready to broadcast over images."""
    if isinstance(t, int):
        return torch.as_tensor(table[t]).to(like)
    values = torch.from_numpy(table)[t.cpu()].to(like)
    return values.view(-1, *[1] * (like.ndim - 1))


def linear(steps: int, *, base: int = 1000) -> Schedule:
    """Betas from 1e-4 to 0.02 on a chain of `base`, stretched so that any length ends equally noisy."""
    stretch = base / steps
    betas = np.linspace(stretch * 1e-4, stretch * 0.02, steps, dtype=np.float64)
    return Schedule(betas, np.arange(steps), "linear")


def scaled_linear(steps: int, first: float = 0.00085, last: float = 0.012) -> Schedule:
    """Betas whose square roots are equidistant (latent diffusion)."""
    betas = np.linspace(first**0.5, last**0.5, steps, dtype=np.float64) ** 2
    return Schedule(betas, np.arange(steps), "scaled_linear")


def cosine(steps: int, largest: float = 0.999) -> Schedule:
    """Betas for which alpha-bar follows a squared cosine."""
    u = np.arange(steps + 1, dtype=np.float64) / steps
    alpha_bar = np.cos((u + 0.008) / 1.008 * np.pi / 2) ** 2
    betas = np.minimum(1 - alpha_bar[1:] / alpha_bar[:-1], largest)
    return Schedule(betas, np.arange(steps), "cosine")


def from_betas(betas: Sequence[float] | Table) -> Schedule:
    """A schedule from any table of betas."""
    table = np.asarray(betas, dtype=np.float64)
    return Schedule(table, np.arange(len(table)))


def respaced_indices(length: int, spec: int | str) -> list[int]:
    """Choose levels of a chain of `length`: "50", "10,20" (by equal sections) or "ddim25" (equal strides).

    >>> respaced_indices(10, 4)
    [0, 3, 6, 9]
    """
    text = str(spec)
    if text.startswith("ddim"):
        return _equal_stride(length, int(text[4:]))
    counts = [int(part) for part in text.split(",")]
    kept: list[int] = []
    first = 0
    for number, count in enumerate(counts):
        size = length // len(counts) + (number < length % len(counts))
        if not 1 <= count <= size:
            raise InputError(
                expected(
                    "steps", f"between 1 and {size}, the length of the chain", count, "ask for fewer steps"
                )
            )
        stride = (size - 1) / (count - 1) if count > 1 else 1.0
        place = 0.0
        for _ in range(count):  # summed up, not multiplied: the published rounding depends on it
            kept.append(first + round(place))
            place += stride
        first += size
    return kept


def _equal_stride(length: int, count: int) -> list[int]:
    for stride in range(1, length):
        if len(range(0, length, stride)) == count:
            return list(range(0, length, stride))
    raise InputError(expected("steps", "a number that a whole stride gives", f"ddim{count} of {length}"))


def respace(schedule: Schedule, spec: int | str) -> Schedule:
    """Keep some levels of a chain; the network is still told their original times."""
    kept = np.array(respaced_indices(len(schedule), spec))
    alpha_bar = schedule.alpha_bar[kept]
    betas = 1 - alpha_bar / np.append(1.0, alpha_bar[:-1])
    return Schedule(
        betas, schedule.network_times[kept], schedule.kind if len(kept) == len(schedule) else "table"
    )


def rebuild(schedule: Schedule, steps: int) -> Schedule:
    """Make a new linear chain of another length and tell the network scaled times (the medical program)."""
    if schedule.kind != "linear":
        raise InputError(
            expected("respacing 'rebuilt'", "a linear schedule", schedule.kind, "use respacing 'subset'")
        )
    length = len(schedule)
    new = linear(steps)
    times = np.array([int(t * length / steps) for t in range(steps)])
    return Schedule(new.betas, schedule.network_times[times], "linear")


def q_sample(
    schedule: Schedule, x: Float[Tensor, "b c h w"], t: Level, noise: Float[Tensor, "b c h w"]
) -> Float[Tensor, "b c h w"]:
    """Noise a clean image to level t (paper, eq. 3)."""
    return at(schedule.sqrt_alpha_bar, t, x) * x + at(schedule.sqrt_one_minus_alpha_bar, t, x) * noise


def posterior_mean(
    schedule: Schedule, x0: Float[Tensor, "b c h w"], x_t: Float[Tensor, "b c h w"], t: Level
) -> Float[Tensor, "b c h w"]:
    """Mean of x_{t-1} given x_t and the clean image."""
    return at(schedule.posterior_from_clean, t, x0) * x0 + at(schedule.posterior_from_state, t, x0) * x_t


def clean_from_noise(
    schedule: Schedule, x_t: Float[Tensor, "b c h w"], t: Level, noise: Float[Tensor, "b c h w"]
) -> Float[Tensor, "b c h w"]:
    """Clean image from x_t and the noise in it (paper, eq. 4)."""
    keep, remove = schedule.sqrt_recip_alpha_bar, schedule.sqrt_recip_alpha_bar_minus_one
    return at(keep, t, x_t) * x_t - at(remove, t, x_t) * noise


def noise_from_clean(
    schedule: Schedule, x_t: Float[Tensor, "b c h w"], t: Level, x0: Float[Tensor, "b c h w"]
) -> Float[Tensor, "b c h w"]:
    """Noise in x_t if the clean image is x0."""
    keep, remove = schedule.sqrt_recip_alpha_bar, schedule.sqrt_recip_alpha_bar_minus_one
    return (at(keep, t, x_t) * x_t - x0) / at(remove, t, x_t)
