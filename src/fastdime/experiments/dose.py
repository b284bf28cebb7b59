"""Dose and response: how much networks lean on a shortcut that was planted with a known correlation.

The counterfactuals are the exact ones, so this is about phantoms and networks; no diffusion model has a part.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor

from fastdime.classifiers.load import load_classifier
from fastdime.classifiers.wrapper import ImageClassifier
from fastdime.data.phantoms.design import Dials
from fastdime.data.phantoms.ideal import ideal_observer
from fastdime.data.phantoms.phantom import phantom
from fastdime.experiments.truth import Progress, yes
from fastdime.pixels import to_integers
from fastdime.training.pictures import Pictures, split
from fastdime.training.run import train
from fastdime.validation.task_models import MODELS, model_settings, model_task

TRAIN, TEST = 2000, 600  # images
TRAIN_SEED, UNBIASED_SEED, BIASED_SEED = 41_000, 42_000, 43_000
RECIPE = MODELS["small"]
SETTINGS = model_settings(RECIPE, 0, TRAIN)
SCORES = ("auroc_k", "auroc_u", "mad", "md_with", "md_without", "placebo_mad")
BATCH = 200
Row = dict[str, Any]


def dose_response(
    names: Sequence[str], ks: Sequence[float], seeds: int, out: Path, progress: Progress | None = None
) -> list[Row]:
    """Train networks on sets of each correlation and switch the shortcut in fresh images.

    Networks are kept in `out`, so that an interrupted call goes on.

    Returns:
        For each phantom and k the mean and spread over seeds, beside the ideal observer.
    """
    jobs = list(product(names, ks, range(seeds)))
    runs: dict[tuple[str, float], list[dict[str, float]]] = {}
    for done, (name, k, seed) in enumerate(jobs, start=1):
        network = _network(name, k, seed, out / f"{name}-k{k:g}-seed{seed}")
        runs.setdefault((name, k), []).append(response(network, name, k, seed))
        if progress is not None:
            progress(done, len(jobs))
    return [{"phantom": name, "k": k, **_over_seeds(some), **_ideal(k)} for (name, k), some in runs.items()]


def _network(name: str, k: float, seed: int, out: Path) -> ImageClassifier:
    images = phantom(name).images(TRAIN_SEED + seed, range(TRAIN), k)
    pictures = Pictures(to_integers(images.x).to(torch.uint8), 8, images.task.float())
    training, validation = split(pictures, 0.1, seed)
    task = model_task(RECIPE, training, validation)
    return load_classifier(train(task, SETTINGS.model_copy(update={"seed": seed}), out).folder)


def response(network: ImageClassifier, name: str, k: float, seed: int) -> dict[str, float]:
    """Measure a network on fresh images: how well it does, and what the exact switch of the shortcut does."""
    from sklearn.metrics import roc_auc_score

    biased = phantom(name).images(BIASED_SEED + seed, range(TEST), k)
    fair = phantom(name).render(UNBIASED_SEED + seed, range(TEST), 50)
    before, after, placebo = (_answers(network, x) for x in (fair.x, fair.other, fair.placebo_other))
    moved, has = before - after, fair.shortcut == 1
    return {
        "auroc_k": float(roc_auc_score(biased.task, _answers(network, biased.x))),
        "auroc_u": float(roc_auc_score(fair.task, before)),
        "mad": float(moved.abs().mean()),
        "md_with": float(moved[has].mean()),
        "md_without": float(moved[~has].mean()),
        "placebo_mad": float((before - placebo).abs().mean()),
    }


def _answers(network: ImageClassifier, x: Tensor) -> Tensor:
    return torch.cat([yes(network, part) for part in _parts(x)])


def _parts(x: Tensor) -> Iterable[Tensor]:
    return (x[first : first + BATCH] for first in range(0, len(x), BATCH))


def _over_seeds(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    row: dict[str, float] = {"seeds": len(runs)}
    for name in SCORES:
        values = [run[name] for run in runs]
        row |= {name: round(mean(values), 3), f"{name}_sd": round(stdev(values), 3) if len(runs) > 1 else 0.0}
    return row


def _ideal(k: float) -> dict[str, float]:
    ideal = ideal_observer(k, Dials())
    numbers = {"ideal_auroc_k": ideal.auroc_k, "ideal_auroc_u": ideal.auroc_u, "ideal_mad": ideal.mad}
    return {name: round(value, 3) for name, value in numbers.items()}
