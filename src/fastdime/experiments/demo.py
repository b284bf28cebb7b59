"""The whole story in a minute or two: three models with planted correlations are audited for a shortcut."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fastdime.audit.answers import EDIT
from fastdime.audit.audit import audit
from fastdime.audit.exhibits import write_exhibits
from fastdime.audit.output import write_audit
from fastdime.audit.pictures import Show
from fastdime.audit.request import AuditRequest
from fastdime.audit.schema import Audit
from fastdime.bundles import SHIPPED, Bundle, load_bundle
from fastdime.data import io
from fastdime.data.phantoms.write import OTHER, PhantomSet, truth_path, write_phantom
from fastdime.errors import InputError, unknown
from fastdime.experiments.truth import DIRECTIONS, Judges, Pairs, score
from fastdime.pipeline.summary import summarise
from fastdime.runs import Record, image_path, read_run

SEED = 33_000  # of subjects that nothing was trained, tuned or scored on
COLUMNS = ("oracle_flip", "region_error_ratio", "outside_change", "task_change")
TASK_MODELS = SHIPPED / "task-models"
KS = (100, 75, 50)
SHORTCUT = "shortcut"


@dataclass(frozen=True)
class Story:
    """What came out: how good the counterfactuals are, and what they say of the models."""

    scores: list[dict[str, Any]]
    audit: Audit
    data: Path
    folder: Path

    @property
    def run(self) -> Path:
        """Run folder of the counterfactuals."""
        return self.folder / SHORTCUT / EDIT


def demo(out: Path, name: str, n: int, method: str, show: Show) -> Story:
    """Make a set in OUT/data, audit the task models that come with the package in OUT/audit."""
    models = task_models(name)
    bundle = load_bundle(name)
    table = write_phantom(out / "data", PhantomSet(name, n, None, SEED, bundle.size))
    request = AuditRequest(data=table, shortcuts={SHORTCUT: name}, task="task", method=method, seed=0)
    found = audit(request, models, out / "audit", show)
    write_audit(found, out / "audit")
    write_exhibits(found, request, models, out / "audit", show)
    story = Story([], found.audit, out / "data", out / "audit")
    seconds = summarise(story.run).seconds_per_image
    scores = [{**row, "seconds_per_image": seconds} for row in run_scores(story.run, out / "data", bundle)]
    return Story(scores, found.audit, story.data, story.folder)


def task_models(name: str) -> dict[str, object]:
    """Return the task models of a phantom that come with the package, by name."""
    found = {f"k{k}": TASK_MODELS / f"{name}-k{k}" for k in KS}
    if not all(folder.is_dir() for folder in found.values()):
        there = sorted({folder.name.rpartition("-k")[0] for folder in TASK_MODELS.glob("*-k*")})
        raise InputError(unknown("phantom with task models to audit", name, there))
    return dict(found)


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
