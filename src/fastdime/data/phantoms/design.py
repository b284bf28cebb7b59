"""Who gets which label: the class, the shortcut, the placebo, and the dials that set them.

y alternates, z given y is normal with mean d'(y - 1/2) and variance 1, and the shortcut is drawn given y
only. Shares are kept by golden-ratio quotas, so that every prefix of a set has them.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from fastdime.data.phantoms.streams import LABEL_NOISE, LARGEST_SEED, PLACEBO_PRESENCE, stream
from fastdime.errors import InputError, expected

GOLDEN = 0.6180339887498949
PLASTIC = 0.7548776662466927  # its multiples are spread evenly, also against those of GOLDEN
Numbers = NDArray[np.int64]


class Dials(BaseModel):
    """How hard the task is and how loud the shortcut.

    Attributes:
        contrast: strength of the shortcut; 0 makes it invisible.
        shortcut_size: its size.
        d_prime: distance of the classes in the task latent; 1.9 allows an AUROC of .91 at best.
        flip: share of images whose shortcut is drawn against the design.
        label_noise: share of images whose task label is recorded wrongly.
        noise: strength of the sensor noise.
        nuisance: width of every range that has nothing to do with task or shortcut.
        placebo_rho: share of the images with the shortcut that carry the placebo; .5 is independent.
        shortcut_rate: share of images with the shortcut when no k is given.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    contrast: float = Field(1.0, ge=0, le=2)
    shortcut_size: float = Field(1.0, ge=0.25, le=2)
    d_prime: float = Field(1.9, ge=0, le=6)
    flip: float = Field(0.02, ge=0, le=0.5)
    label_noise: float = Field(0.0, ge=0, le=0.5)
    noise: float = Field(1.0, ge=0, le=4)
    nuisance: float = Field(1.0, ge=0, le=1.5)
    placebo_rho: float = Field(0.5, ge=0, le=1)
    shortcut_rate: float = Field(0.5, ge=0, le=1)


@dataclass(frozen=True)
class Labels:
    """Labels of some images.

    Attributes:
        y: the class the image was drawn for.
        task: the label on record; it differs from y only through label noise.
        shortcut, placebo: whether the image shows them.
    """

    y: Numbers
    task: Numbers
    shortcut: Numbers
    placebo: Numbers


def parse_k(value: str | float | None) -> float | None:
    """Check a correlation: 100, 75, 50 or any other percentage; None or "none" for no design at all."""
    if value is None or (isinstance(value, str) and value.strip().lower() == "none"):
        return None
    wanted = "a percentage from 0 to 100, or none"
    try:
        k = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        k = math.nan
    if not 0 <= k <= 100:
        raise InputError(expected("k", wanted, repr(value), "100, 75 and 50 are those of the paper"))
    return k


def check_seed(seed: int) -> int:
    """Return the seed if it is one."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed <= LARGEST_SEED:
        raise InputError(expected("seed", f"a whole number from 0 to {LARGEST_SEED}", repr(seed)))
    return int(seed)


def check_indices(indices: Iterable[int]) -> list[int]:
    """Return the numbers of some images as a list."""
    numbers = list(indices)
    for index in numbers:
        if isinstance(index, bool) or not isinstance(index, int | np.integer) or not 0 <= index < 2**63:
            raise InputError(expected("indices", "whole numbers >= 0", repr(index)))
    if not numbers:
        raise InputError(expected("indices", "at least one whole number >= 0", "none"))
    return [int(index) for index in numbers]


def shares(k: float | None, dials: Dials) -> tuple[float, float]:
    """Return P(shortcut | y = 0) and P(shortcut | y = 1)."""
    if k is None:
        return dials.shortcut_rate, dials.shortcut_rate
    design = k / 100
    diseased = design * (1 - dials.flip) + (1 - design) * dials.flip
    return 1 - diseased, diseased


def draw_labels(seed: int, indices: Sequence[int], k: float | None, dials: Dials) -> Labels:
    """Draw the labels of some images; the same index has the same subject for every k."""
    y = [index % 2 for index in indices]
    chance = shares(k, dials)
    shortcut = [_has_shortcut(seed, index, chance[index % 2]) for index in indices]
    placebo = [
        _coin(seed, PLACEBO_PRESENCE, index, dials.placebo_rho if has else 1 - dials.placebo_rho)
        for index, has in zip(indices, shortcut, strict=True)
    ]
    wrong = [_coin(seed, LABEL_NOISE, index, dials.label_noise) for index in indices]
    task = [label ^ flipped for label, flipped in zip(y, wrong, strict=True)]
    return Labels(*(np.array(column, dtype=np.int64) for column in (y, task, shortcut, placebo)))


def _has_shortcut(seed: int, index: int, chance: float) -> int:
    place = (index // 2) * GOLDEN + 0.37 * (index % 2) + 0.1234 * (seed % 97)
    return int(place % 1 < chance)


def _coin(seed: int, number: int, index: int, chance: float) -> int:
    if chance == 0:
        return 0  # the stream has no other draw that this could shift
    return int(stream(seed, number, index).random() < chance)


def split_of(index: int, splits: Mapping[str, float]) -> str:
    """Return the part of the set to which an image belongs; it does not depend on the size of the set."""
    place = ((index // 2) * PLASTIC + 0.5 * (index % 2)) % 1 * sum(splits.values())
    for name, share in splits.items():
        if place < share:
            return name
        place -= share
    return name
