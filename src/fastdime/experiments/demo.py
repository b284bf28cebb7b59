"""The main job in a minute: counterfactuals of a small phantom set, scored against the exact ones."""

from pathlib import Path
from typing import Any

import torch

from fastdime.bundles import Bundle, load_bundle
from fastdime.counterfactuals.explainer import Explainer
from fastdime.data import io
from fastdime.data.phantoms.write import OTHER, PhantomSet, truth_path, write_phantom
from fastdime.experiments.truth import DIRECTIONS, Judges, Pairs, Progress, score
from fastdime.pipeline.explain import explain
from fastdime.pipeline.options import RunOptions
from fastdime.pipeline.summary import summarise
from fastdime.runs import Record, image_path, read_run

SEED = 33_000  # of subjects that nothing was trained, tuned or scored on
COLUMNS = ("oracle_flip", "region_error_ratio", "outside_change", "task_change")


def demo(out: Path, name: str, n: int, method: str, progress: Progress | None = None) -> list[dict[str, Any]]:
    """Make a set in OUT/data and its counterfactuals in OUT/run; returns scores for each direction."""
    bundle = load_bundle(name)
    table = write_phantom(out / "data", PhantomSet(name, n, None, SEED, bundle.size))
    explainer = Explainer.from_bundle(bundle, method)
    sources = {"method": method, "denoiser": name, "classifier": name}
    explain(
        table, explainer, out / "run", RunOptions(target="flip:shortcut"), sources=sources, progress=progress
    )
    seconds = summarise(out / "run").seconds_per_image
    return [{**row, "seconds_per_image": seconds} for row in run_scores(out / "run", out / "data", bundle)]


def run_scores(run: Path, data: Path, bundle: Bundle) -> list[dict[str, Any]]:
    """Score a run on a phantom set against its truth, the removals and the additions apart."""
    records, judges = [record for record in read_run(run)[1] if "error" not in record], Judges.of(bundle)
    rows = []
    for target, direction in enumerate(DIRECTIONS):
        chosen = [record for record in records if record["target"] == target]
        if chosen:
            pairs, made = _read(run, data, chosen, target)
            rows.append({"direction": direction, "n": len(chosen), **score(pairs, made, judges)})
    return rows


def _read(run: Path, data: Path, records: list[Record], target: int) -> tuple[Pairs, torch.Tensor]:
    ids = [record["id"] for record in records]
    x, truth, made = (
        torch.stack([io.read(path).x for path in paths])
        for paths in (
            [record["path"] for record in records],
            [truth_path(data, OTHER, name) for name in ids],
            [image_path(run, name) for name in ids],
        )
    )
    return Pairs(x, truth, target), made
