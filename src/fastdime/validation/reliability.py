"""Is the audit right: how often its intervals hold the truth, and how often its verdicts do."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fastdime.audit.effects import Effects
from fastdime.audit.verdict import verdict, weigh
from fastdime.audit.weighing import Rules
from fastdime.metrics.statistics import mean_interval

RESAMPLED = 100  # test sets of each model
IMAGES, FEW = 100, 50  # images of a test set
Progress = Callable[[float, int], None]


def coverage(models: Sequence[Effects], seed: int = 0, progress: Progress | None = None) -> float:
    """Return the share of 95 % intervals of the effect that hold the true one.

    Test sets are drawn from all images with replacement, so that the truth is the mean over all of them.
    """
    held = []
    for number, effects in enumerate(models):
        shown = ~np.isnan(effects.effect + effects.exact.effect)
        truth = float(effects.exact.effect[shown].mean())
        for rows in drawn(np.flatnonzero(shown), IMAGES, seed + number):
            low = mean_interval(effects.least[rows], seed=seed).low
            found = mean_interval(effects.effect[rows], seed=seed)
            held.append(min(low, found.low) <= truth <= found.high)
        if progress is not None:
            progress(number + 1, len(models))
    return float(np.mean(held))


def relies(models: Sequence[Effects], images: int, rules: Rules, progress: Progress | None = None) -> float:
    """Return the share of audits with so many images that come to the verdict `relies`."""
    said = []
    for number, effects in enumerate(models):
        shown = np.flatnonzero(~np.isnan(effects.effect))
        for rows in drawn(shown, images, rules.seed + 1000 + number):
            effect, least = effects.effect[rows], effects.least[rows]
            evidence = weigh(effect, rules.margin, alpha=rules.alpha, seed=rules.seed, least=least)
            said.append(verdict(evidence).kind == "relies")
        if progress is not None:
            progress(number + 1, len(models))
    return float(np.mean(said))


def drawn(rows: NDArray[np.intp], images: int, seed: int) -> list[NDArray[np.intp]]:
    """Draw test sets with replacement."""
    rng = np.random.default_rng(seed)
    return [rng.choice(rows, images) for _ in range(RESAMPLED)]
