"""Is the audit right: how often its intervals hold the truth, and how often its verdicts do."""

from collections.abc import Callable, Sequence

import numpy as np

from fastdime.audit.effects import Effects, Numbers
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
        found, exact = effects.effect, effects.exact.effect
        shown = ~(np.isnan(found) | np.isnan(exact))
        truth = float(exact[shown].mean())
        for values in drawn(found[shown], IMAGES, seed + number):
            interval = mean_interval(values, seed=seed)
            held.append(interval.low <= truth <= interval.high)
        if progress is not None:
            progress(number + 1, len(models))
    return float(np.mean(held))


def relies(models: Sequence[Effects], images: int, rules: Rules, progress: Progress | None = None) -> float:
    """Return the share of audits with so many images that come to the verdict `relies`."""
    said = []
    for number, effects in enumerate(models):
        found = effects.effect[~np.isnan(effects.effect)]
        for values in drawn(found, images, rules.seed + 1000 + number):
            evidence = weigh(values, rules.margin, alpha=rules.alpha, seed=rules.seed)
            said.append(verdict(evidence).kind == "relies")
        if progress is not None:
            progress(number + 1, len(models))
    return float(np.mean(said))


def drawn(values: Numbers, images: int, seed: int) -> list[Numbers]:
    """Draw test sets with replacement."""
    rng = np.random.default_rng(seed)
    return [rng.choice(values, images) for _ in range(RESAMPLED)]
