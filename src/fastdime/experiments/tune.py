"""Find the start level and strength that work for a bundle, on subjects that are not scored later."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fastdime.bundles import Bundle
from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.methods import settings_for
from fastdime.experiments.grids import Grid, combinations
from fastdime.experiments.truth import DIRECTIONS, Judges, Progress, counterfactuals, pairs, score

SEED = 31_000  # of the pilot subjects


def tune(
    bundle: Bundle, name: str, method: str, grid: Grid, n: int = 32, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """Try every combination of settings in both directions on pilot subjects of a phantom, best first.

    Args:
        grid: values to try, by the name of the setting.
    """
    judges, pilot = Judges.of(bundle), {way: pairs(name, n, way, SEED) for way in DIRECTIONS}
    rows: list[dict[str, Any]] = []
    tries = list(combinations(grid))
    for number, changes in enumerate(tries):
        explainer = replace(Explainer.from_bundle(bundle, method), settings=settings_for(method, **changes))
        scores: dict[str, dict[str, float]] = {}
        for way, drawn in pilot.items():
            scores[way] = score(drawn, counterfactuals(explainer, drawn)[0], judges)
        rows.append({"settings": changes, "loss": loss(scores), **scores})
        if progress is not None:
            progress(number + 1, len(tries))
    return sorted(rows, key=lambda row: float(row["loss"]))


def loss(scores: Mapping[str, Mapping[str, float]]) -> float:
    """Weigh what counts: shortcuts that stay, the error where they were, and every change elsewhere.

    Whole objects count for additions, because a fragment that fools the guide is no answer.
    """
    remove, add = scores["remove"], scores["add"]
    missed = 2 * (1 - remove["oracle_flip"]) + (1 - add["oracle_flip"]) + 0.5 * (1 - add["complete_flip"])
    moved = sum(10 * way["outside_change"] + way["task_change"] for way in (remove, add)) / 2
    return missed + remove["region_error_ratio"] + moved
