"""The paper's validation study: train on planted correlations, and see whether the audit finds them.

OUT/models/kK-seedS   task models f_K
OUT/audit             the audit of all of them on test_u, with its pictures
OUT/validate.json     the table
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev

import numpy as np

from fastdime.audit.audit import Found, audit_table
from fastdime.audit.cells import Columns, Curation, Plan
from fastdime.audit.curate import Rule, curate
from fastdime.audit.models import open_audited
from fastdime.audit.pictures import Show
from fastdime.audit.request import AuditRequest
from fastdime.audit.schema import Interval, Row
from fastdime.audit.trend import slope, trend
from fastdime.bundles import load_info
from fastdime.data.phantoms.design import Dials
from fastdime.data.phantoms.ideal import ideal_observer
from fastdime.data.table import Table
from fastdime.errors import InputError, expected
from fastdime.training.pictures import read_pictures
from fastdime.validation.task_models import Examples, Ids, ModelRecipe, model_recipe, train_task_model

BATCH = 64
Numbers = dict[str, float | None]


@dataclass(frozen=True)
class StudyPlan:
    """What to train and to audit.

    Attributes:
        seeds: models of each correlation.
        request: how counterfactuals of test_u are made and weighed; its `shortcuts` names one column.
        phantom: whether the ideal observer is known.
    """

    columns: Columns
    plan: Plan
    rule: Rule
    recipe: ModelRecipe
    seeds: int
    request: AuditRequest
    phantom: bool = False


@dataclass(frozen=True)
class Study:
    """What came out: a line for each k, one for each model, and the audit they are from."""

    rows: list[Numbers]
    models: list[Numbers]
    trend: Numbers
    notes: tuple[str, ...]
    found: Found


def study(table: Table, plan: StudyPlan, out: Path, show: Show) -> Study:
    """Curate, train, audit and count; called again, it goes on where it stopped."""
    if plan.seeds < 1:
        raise InputError(expected("seeds", "one model or more", plan.seeds))
    curation = curate(table, plan.columns, plan.plan, plan.rule)
    folders = {
        (k, seed): _model(table, curation, plan, (k, seed), out / "models", show)
        for k in plan.plan.ks
        for seed in range(plan.seeds)
    }
    balanced = rows_of(table, curation.balanced)
    names = {name_of(*key): folder for key, folder in folders.items()}
    found = audit_table(balanced, plan.request, names, out / "audit", show)
    rows = {row.model: row for row in found.audit.rows}
    models = []
    for (k, seed), folder in folders.items():
        area = _auroc(folder, rows_of(table, curation.test[k]), plan)
        models.append({"k": k, "seed": seed, "auroc_k": area, **numbers(rows[name_of(k, seed)])})
    return Study(_over_seeds(models, plan), models, _trend(models), curation.notes, found)


def columns_of(request: AuditRequest) -> Columns:
    """Return the columns that a request names, one for the task and one for the shortcut."""
    if request.task is None or len(request.shortcuts) != 1:
        got = f"{request.task or 'no task'} and {len(request.shortcuts)}"
        raise InputError(expected("columns", "a task and one shortcut", got))
    return Columns(request.task, next(iter(request.shortcuts)), None, request.group)


def check_bundle(request: AuditRequest) -> None:
    """Refuse a request whose bundle is not there: training takes long, and would be for nothing."""
    for source in request.shortcuts.values():
        if source is None:
            raise InputError(expected("--bundle", "a bundle, to make counterfactuals with", "none"))
        load_info(source)


def recipe_of(name: str, request: AuditRequest) -> ModelRecipe:
    """Return how a task model is trained on images as the request reads them."""
    recipe = model_recipe(name)
    return replace(recipe, size=request.size or recipe.size, convert=request.convert)


def name_of(k: float, seed: int) -> str:
    """Name a model."""
    return f"k{k:g}-seed{seed}"


def _model(
    table: Table, curation: Curation, plan: StudyPlan, key: tuple[float, int], folder: Path, show: Show
) -> Path:
    k, seed = key
    examples = Examples(table, plan.columns.task, train_ids(curation, k), plan.columns.shortcut)
    with show(f"model {name_of(k, seed)}") as progress:
        return train_task_model(
            examples, folder / name_of(k, seed), plan.recipe, seed, None, progress, device=plan.request.device
        ).folder


def train_ids(curation: Curation, k: float) -> Ids:
    """Return the images of D_k; where a rule has none to validate on, each tenth of them is."""
    train, val = curation.train[k], curation.val.get(k, ())
    if val:
        return Ids(train, val)
    return Ids([name for row, name in enumerate(train) if row % 10], list(train[::10]))


def rows_of(table: Table, ids: Sequence[str]) -> Table:
    """Return the rows of some images, in the order of their ids."""
    rows = {name: row for row, name in enumerate(table.ids)}
    return table.take(rows[name] for name in ids)


def _auroc(folder: Path, table: Table, plan: StudyPlan) -> float:
    """Return the AUROC of a model on some images."""
    from sklearn.metrics import roc_auc_score

    request = plan.request
    pictures = read_pictures(table, label=plan.columns.task, size=request.size, convert=request.convert)
    model = open_audited(folder)
    rows = np.arange(len(table))
    parts = [rows[first : first + BATCH] for first in range(0, len(rows), BATCH)]
    answers = np.concatenate([model.ask(pictures.x(part.tolist()))[:, 0] for part in parts])
    return round(float(roc_auc_score(table.binary(plan.columns.task), answers)), 4)


def numbers(row: Row) -> Numbers:
    """Return what the study tells of one model, as the paper's table has it; `_true` where it is known."""
    found: dict[str, Interval] = {
        "mad": row.mad,
        "md1": row.md_with,
        "md0": row.md_without,
        "effect": row.effect,
        "placebo": row.placebo,
    }
    if row.truth is not None:
        exact = row.truth
        found |= {"mad_true": exact.mad, "md1_true": exact.md_with, "md0_true": exact.md_without}
        found |= {"effect_true": exact.effect, "placebo_true": exact.placebo}
    areas: Numbers = {}
    if row.auroc is not None:
        areas = {"auroc_u": round(row.auroc.before, 4), "auroc_uc": round(row.auroc.after, 4)}
    return {**areas, **{name: interval.value for name, interval in found.items()}}


def _over_seeds(models: Sequence[Numbers], plan: StudyPlan) -> list[Numbers]:
    rows = []
    for k in plan.plan.ks:
        some = [model for model in models if model["k"] == k]
        row: Numbers = {"k": k, "seeds": len(some)}
        for name in some[0]:
            values = [model[name] for model in some]
            known = [value for value in values if value is not None]
            if name not in ("k", "seed") and len(known) == len(some):
                row[name] = round(mean(known), 4)
                row[f"{name}_sd"] = round(stdev(known), 4) if len(known) > 1 else None
        rows.append(row | (_ideal(k) if plan.phantom else {}))
    return rows


def _ideal(k: float) -> Numbers:
    ideal = ideal_observer(k, Dials())
    return {"ideal_mad": round(ideal.mad, 4), "ideal_auroc_k": round(ideal.auroc_k, 4)}


def _trend(models: Sequence[Numbers]) -> Numbers:
    """Test whether the effect grows with k, over all models."""
    pairs = [(model["k"], model["mad"]) for model in models]
    known = [(k, mad) for k, mad in pairs if k is not None and mad is not None]
    doses, values = [k for k, _ in known], [mad for _, mad in known]
    if len(set(doses)) < 2 or len(known) < len(pairs):
        return {}
    rises, line = trend(doses, values), slope(doses, values)
    return {"p": round(rises.p, 5), "slope_per_point": round(line.value, 5)}
