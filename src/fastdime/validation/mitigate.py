"""`fastdime mitigate`: train a model again so that it does not lean on the shortcut, and audit both.

OUT/models     the model as it is, and one for each way of mending
OUT/partners   counterfactuals of training images
OUT/audit      the audit of all models on test_u
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastdime.audit.audit import Found, audit_table, explainer_of, run_options_of
from fastdime.audit.cells import Columns, Plan
from fastdime.audit.curate import curate
from fastdime.audit.effects import Numbers
from fastdime.audit.opening import open_data
from fastdime.audit.output import write_audit
from fastdime.audit.pictures import Show, check_some
from fastdime.audit.request import AuditRequest
from fastdime.audit.schema import Interval
from fastdime.bundles import load_bundle, load_info
from fastdime.data.table import Table
from fastdime.errors import InputError, expected, unknown
from fastdime.files import write_atomically
from fastdime.metrics.statistics import paired_difference
from fastdime.pipeline.explain import explain
from fastdime.pipeline.pairs import pairs_of_run
from fastdime.training.mending import Mending
from fastdime.validation.phantom_pool import TEST_U, TRAIN, phantom_pool, pool_sizes
from fastdime.validation.study import check_bundle, columns_of, numbers, recipe_of, rows_of, train_ids
from fastdime.validation.task_models import Examples, Ids, ModelRecipe, train_task_model

PLAIN, RESULT = "plain", "mitigate.json"
WAYS: Mapping[str, Mending] = {
    "augment": Mending(augment=True),
    "consistency": Mending(augment=True, consistency=1.0),
    "balance": Mending(balance=True),
}


@dataclass(frozen=True)
class Repair:
    """What to train and how to mend it.

    Attributes:
        k: correlation of the training images, in percent.
        ways: names of WAYS.
        partners: counterfactuals to make; None = of all training and validation images.
        n, n_balanced: images to train on and of test_u; None = as many as there are, for a phantom TRAIN
            and TEST_U.
        recipe: name of the task model; None = small for phantoms, resnet18 otherwise.
    """

    k: float = 100.0
    ways: tuple[str, ...] = ("augment", "consistency")
    partners: int | None = None
    n: int | None = None
    n_balanced: int | None = None
    recipe: str | None = None

    def __post_init__(self) -> None:
        """Refuse ways that there are not."""
        for way in self.ways:
            if way not in WAYS:
                raise InputError(unknown("way of mending", way, WAYS))
        if not self.ways:
            raise InputError(expected("ways of mending", f"one or more of {', '.join(WAYS)}", "none"))


def mitigate_phantom(
    name: str, repair: Repair, request: AuditRequest, out: Path, show: Show
) -> dict[str, Any]:
    """Mend a model of a phantom, whose bundle has its name."""
    bundle = next(iter(request.shortcuts.values())) or name
    request = request.model_copy(update={"task": "task", "shortcuts": {"shortcut": bundle}})
    check_bundle(request)
    n, n_balanced = repair.n or TRAIN, repair.n_balanced or TEST_U
    plan, recipe = Plan((repair.k,), n, None, n_balanced), recipe_of(repair.recipe or "small", request)
    table = phantom_pool(name, *pool_sizes(n, 2, n_balanced), out / "data", show)
    return Bench(table, Columns(), plan, recipe, request).mitigate(repair, out, show)


def mitigate_table(repair: Repair, request: AuditRequest, out: Path, show: Show) -> dict[str, Any]:
    """Mend a model of a user's data; columns are those of the request."""
    columns = columns_of(request)
    check_bundle(request)
    recipe = recipe_of(repair.recipe or "resnet18", request)
    # Counterfactuals have the size of the bundle, and must not be told from images by a blur.
    recipe = replace(recipe, size=request.size or load_info(_bundle(request)).size)
    plan = Plan((repair.k,), repair.n, None, repair.n_balanced)
    return Bench(open_data(request), columns, plan, recipe, request).mitigate(repair, out, show)


@dataclass(frozen=True)
class Bench:
    """Where models are trained before and after, and audited."""

    table: Table
    columns: Columns
    plan: Plan
    recipe: ModelRecipe
    request: AuditRequest

    def mitigate(self, repair: Repair, out: Path, show: Show) -> dict[str, Any]:
        """Train, audit, and compare image by image; it goes on where it stopped."""
        curation = curate(self.table, self.columns, self.plan)
        ids = train_ids(curation, repair.k)
        needed = any(WAYS[way].needs_partners for way in repair.ways)
        partners = self._partners(ids, repair.partners, out / "partners", show) if needed else {}
        models = {way: self._model(way, ids, partners, out / "models", show) for way in (PLAIN, *repair.ways)}
        balanced = rows_of(self.table, curation.balanced)
        found = audit_table(balanced, self.request, models, out / "audit", show)
        write_audit(found, out / "audit")
        told = {"rows": compared(found), "notes": [*curation.notes, *found.audit.warnings]}
        write_atomically(out / RESULT, (json.dumps(told, indent=1) + "\n").encode())
        return told

    def _model(self, way: str, ids: Ids, partners: Mapping[str, Path], folder: Path, show: Show) -> Path:
        mending = WAYS.get(way)
        own = partners if mending is not None and mending.needs_partners else {}
        examples = Examples(self.table, self.columns.task, ids, self.columns.shortcut, own)
        seed, device = self.request.seed, self.request.device
        with show(f"model {way}") as progress:
            return train_task_model(
                examples, folder / way, self.recipe, seed, mending, progress, device=device
            ).folder

    def _partners(self, ids: Ids, limit: int | None, out: Path, show: Show) -> dict[str, Path]:
        """Make counterfactuals of training and validation images; those that failed have none."""
        request, column = self.request, self.columns.shortcut
        bundle = load_bundle(_bundle(request))
        explainer = explainer_of(bundle, request)
        names = {"method": request.method, "denoiser": bundle.name, "classifier": bundle.name}
        options = run_options_of(request).model_copy(update={"target": f"flip:{column}"})
        chosen = rows_of(self.table, _some(ids, limit))
        with show("counterfactuals of training images") as progress:
            explain(chosen, explainer, out, options, sources=names, progress=progress)
        check_some(out, column)
        return {place.image_id: place.counterfactual for place in pairs_of_run(out).places}


def _bundle(request: AuditRequest) -> str:
    return str(next(iter(request.shortcuts.values())))


def _some(ids: Ids, limit: int | None) -> list[str]:
    """Choose images, in equal shares from those trained and validated on."""
    if limit is None or limit >= len(ids.train) + len(ids.val):
        return [*ids.train, *ids.val]
    share = limit / (len(ids.train) + len(ids.val))
    return [
        *_spread(ids.train, round(share * len(ids.train))),
        *_spread(ids.val, round(share * len(ids.val))),
    ]


def _spread(names: Sequence[str], count: int) -> list[str]:
    """Choose so many names, evenly over the list."""
    places = np.linspace(0, len(names), count, endpoint=False).astype(int)
    return [names[place] for place in places]


def compared(found: Found) -> list[dict[str, Any]]:
    """Return a line for each model: its numbers, verdict, and how much less it moves than the plain one."""
    effects = {model: each for (_, model, _), each in found.effects.items()}
    groups = found.asked[0].subjects.groups
    lines = []
    for row in found.audit.rows:
        line: dict[str, Any] = {"model": row.model, "verdict": row.verdict, **numbers(row)}
        if row.model != PLAIN:
            plain, mended = effects[PLAIN], effects[row.model]
            line["less"] = _less(plain.size, mended.size, groups)
            line["less_true"] = _less(plain.exact.size, mended.exact.size, groups)
        lines.append(line)
    return lines


def _less(plain: Numbers, mended: Numbers, groups: Sequence[str] | None) -> dict[str, Any] | None:
    """Return how much less the mended model moves, over images that both were asked about."""
    shown = ~(np.isnan(plain) | np.isnan(mended))
    if not shown.any():
        return None
    own = None if groups is None else [group for group, kept in zip(groups, shown, strict=True) if kept]
    return Interval.of(paired_difference(mended[shown], plain[shown], own)).model_dump()
