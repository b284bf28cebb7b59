"""Counterfactuals of phantoms against the exact ones."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from fastdime.bundles import Bundle, load_bundle
from fastdime.counterfactuals.explainer import Explainer
from fastdime.data.phantoms.phantom import SEEN, phantom
from fastdime.metrics.truth import MARGIN, difference_inside, pooled_error_ratio, widened
from fastdime.scores import probabilities
from fastdime.types import Classifier

SEED = 32_000  # of the subjects that are scored; no network and no setting has seen them
BATCH = 32
Direction = Literal["remove", "add"]
DIRECTIONS: tuple[Direction, ...] = ("remove", "add")
Progress = Callable[[float, int], None]
Row = dict[str, Any]


@dataclass(frozen=True)
class Pairs:
    """Images, and the exact answer to "the same with the shortcut switched"."""

    x: Tensor
    truth: Tensor
    target: int

    @cached_property
    def region(self) -> Tensor:
        """Where the two differ."""
        return (self.x - self.truth).abs().amax(1, keepdim=True) > SEEN

    def first(self, n: int) -> "Pairs":
        """Return the first n of them."""
        return Pairs(self.x[:n], self.truth[:n], self.target)


def pairs(name: str, n: int, direction: Direction, seed: int = SEED) -> Pairs:
    """Draw n subjects with the shortcut, to remove it, or the same ones without it, to add it."""
    parts = [
        phantom(name).render(seed, range(first, min(first + BATCH, n)), None) for first in range(0, n, BATCH)
    ]
    without, shown = (
        torch.cat([getattr(part, side) for part in parts]) for side in ("without", "with_shortcut")
    )
    return Pairs(shown, without, 0) if direction == "remove" else Pairs(without, shown, 1)


@dataclass(frozen=True)
class Judges:
    """Networks that score counterfactuals and had no part in making them."""

    guide: Classifier
    shortcut: Classifier
    complete: Classifier
    task: Classifier

    @classmethod
    def of(cls, bundle: Bundle) -> "Judges":
        """Take them from a bundle."""
        return cls(bundle.classifier, *(bundle.oracle(name) for name in ("shortcut", "complete", "task")))


def score(pairs: Pairs, x_cf: Tensor, judges: Judges) -> dict[str, float]:
    """Compare counterfactuals with the exact ones; distances are on the [0, 1] scale."""
    x, truth, region = pairs.x, pairs.truth, pairs.region
    everywhere = torch.ones_like(region)
    task = [yes(judges.task, images) for images in (x, x_cf)]
    return {
        "oracle_flip": _share(judges.shortcut, x_cf, pairs.target),
        "complete_flip": _share(judges.complete, x_cf, pairs.target),
        "guide_flip": _share(judges.guide, x_cf, pairs.target),
        "region_error_ratio": pooled_error_ratio(x, x_cf, truth, region),
        "full_error_ratio": pooled_error_ratio(x, x_cf, truth, everywhere),
        "outside_change": difference_inside(x, x_cf, ~widened(region, MARGIN)).pooled,
        "task_change": float((task[1] - task[0]).abs().mean()),
        "l1": difference_inside(x, x_cf, everywhere).pooled,
    }


@torch.no_grad()
def yes(judge: Classifier, x: Tensor) -> Tensor:
    """Return the probability of class 1 for each image."""
    times = torch.zeros(len(x), dtype=torch.int64)
    return probabilities(judge.logits(x, times))[:, 1]


def _share(judge: Classifier, x: Tensor, target: int) -> float:
    return float(((yes(judge, x) > 0.5) == (target == 1)).float().mean())


def counterfactuals(
    explainer: Explainer, pairs: Pairs, progress: Progress | None = None
) -> tuple[Tensor, float]:
    """Make the counterfactuals of all pairs; returns them and the seconds an image took."""
    made, began = [], time.perf_counter()
    for first in range(0, len(pairs.x), BATCH):
        x = pairs.x[first : first + BATCH]
        ids = [str(first + row) for row in range(len(x))]
        made.append(explainer(x, pairs.target, ids=ids).x_cf)
        if progress is not None:
            progress(first + len(x), len(pairs.x))
    return torch.cat(made), (time.perf_counter() - began) / len(pairs.x)


def truth(
    bundles: Sequence[str | Path], methods: Sequence[str], n: int = 128, progress: Progress | None = None
) -> list[Row]:
    """Score methods on subjects of phantoms that nothing was trained or tuned on, in both directions.

    Args:
        bundles: bundles of phantoms, which have the name of the phantom.
    """
    rows: list[Row] = []
    work = len(bundles) * len(methods) * len(DIRECTIONS) * n
    for bundle in map(load_bundle, bundles):
        judges = Judges.of(bundle)
        for direction, method in product(DIRECTIONS, methods):
            drawn, done = pairs(bundle.name, n, direction), len(rows) * n
            show = None if progress is None else partial(further, progress, done, work)
            made, seconds = counterfactuals(Explainer.from_bundle(bundle, method), drawn, show)
            told = {"phantom": bundle.name, "method": method, "direction": direction, "n": n}
            scores = {key: round(value, 4) for key, value in score(drawn, made, judges).items()}
            rows.append({**told, **scores, "seconds_per_image": round(seconds, 4)})
    return rows


def further(progress: Progress, done: int, work: int, now: float, _of: int) -> None:
    """Tell how far one part of some work is, as progress of the whole."""
    progress(done + now, work)
