"""`fastdime validate`: the study on a phantom or on a user's table, with what proves it right."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fastdime.audit.cells import Columns, Plan
from fastdime.audit.curate import Rule
from fastdime.audit.effects import Effects
from fastdime.audit.opening import open_data
from fastdime.audit.output import write_audit
from fastdime.audit.pictures import Show
from fastdime.audit.request import AuditRequest
from fastdime.audit.weighing import Rules
from fastdime.files import write_atomically
from fastdime.validation.phantom_pool import TEST_K, TEST_U, TRAIN, phantom_pool, pool_sizes
from fastdime.validation.reliability import FEW, IMAGES, coverage, relies
from fastdime.validation.study import Study, StudyPlan, check_bundle, columns_of, name_of, recipe_of, study

RESULT, DOSE = "validate.json", "dose.json"
MOST, NONE = 100.0, 50.0  # the k that must be found, and the one where there is nothing to find


@dataclass(frozen=True)
class Wanted:
    """What the command is asked for.

    Attributes:
        ks: correlations in percent.
        sizes: images of D_k, test_k and test_u; None = as many as there are, for a phantom TRAIN and so on.
        recipe: name of the task model; None = small for phantoms, resnet18 otherwise.
        truth: also tell how often intervals and verdicts are right, which needs exact counterfactuals.
    """

    ks: tuple[float, ...] = (100.0, 75.0, 50.0)
    seeds: int = 3
    sizes: tuple[int | None, int | None, int | None] = (None, None, None)
    rule: Rule = "balanced"
    recipe: str | None = None
    truth: bool = False


def validate_phantom(
    name: str, wanted: Wanted, request: AuditRequest, out: Path, show: Show
) -> dict[str, Any]:
    """Run the study on a phantom, whose bundle has its name."""
    request = request.model_copy(update={"task": "task", "shortcuts": {"shortcut": _bundle(request) or name}})
    check_bundle(request)
    defaults = (TRAIN, TEST_K, TEST_U)
    n, n_test, n_balanced = (given or size for given, size in zip(wanted.sizes, defaults, strict=True))
    plan = StudyPlan(
        Columns(),
        Plan(wanted.ks, n, n_test, n_balanced),
        wanted.rule,
        recipe_of(wanted.recipe or "small", request),
        wanted.seeds,
        request,
        phantom=True,
    )
    table = phantom_pool(name, *pool_sizes(n, n_test, n_balanced), out / "data", show)
    return _told(study(table, plan, out, show), plan, wanted, out, show)


def _bundle(request: AuditRequest) -> str | None:
    return next(iter(request.shortcuts.values()))


def validate_table(wanted: Wanted, request: AuditRequest, out: Path, show: Show) -> dict[str, Any]:
    """Run the study on a user's table; its columns are those of the request."""
    plan = table_plan(wanted, request)
    check_bundle(request)
    return _told(study(open_data(request), plan, out, show), plan, wanted, out, show)


def table_plan(wanted: Wanted, request: AuditRequest) -> StudyPlan:
    """Return the plan of a study on a user's table."""
    columns, recipe = columns_of(request), recipe_of(wanted.recipe or "resnet18", request)
    return StudyPlan(columns, Plan(wanted.ks, *wanted.sizes), wanted.rule, recipe, wanted.seeds, request)


def _told(done: Study, plan: StudyPlan, wanted: Wanted, out: Path, show: Show) -> dict[str, Any]:
    """Write everything down."""
    write_audit(done.found, out / "audit")
    told: dict[str, Any] = {"rows": done.rows, "models": done.models, "trend": done.trend}
    if wanted.truth:
        told |= _reliability(done, plan, show)
    told |= {"notes": [*done.notes, *done.found.audit.warnings]}
    dose = {"rows": done.rows, "trend_p": done.trend.get("p")}
    for path, content in ((out / RESULT, told), (out / "audit" / DOSE, dose)):
        write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())
    return told


def _reliability(done: Study, plan: StudyPlan, show: Show) -> dict[str, Any]:
    rules = Rules(plan.request.margin, plan.request.alpha, plan.request.seed)
    by_model = {model: effects for (_, model, _), effects in done.found.effects.items()}

    def models(*ks: float) -> list[Effects]:
        return [by_model[name_of(k, seed)] for k in ks if k in plan.plan.ks for seed in range(plan.seeds)]

    with show("coverage") as progress:
        told: dict[str, Any] = {"coverage": coverage(models(*plan.plan.ks), rules.seed, progress)}
    for name, k, images in (("null_false_positive", NONE, IMAGES), ("power_50", MOST, FEW)):
        with show(name) as progress:
            told[name] = relies(models(k), images, rules, progress) if models(k) else None
    return {**told, "rules": asdict(rules)}
