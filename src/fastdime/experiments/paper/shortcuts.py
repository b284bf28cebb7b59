"""The study of Table 4: models that were trained on planted correlations are audited with FastDiME.

OUT/SOURCE    a folder of `fastdime validate`; its `audit` is one that `fastdime report` reads
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastdime.audit.pictures import Show
from fastdime.audit.request import AuditRequest
from fastdime.bundles import load_info
from fastdime.experiments.paper.experiment import Experiment, Outcome, Plan, Row, Source
from fastdime.validation.validate import Wanted, validate_phantom, validate_table

Sizes = tuple[int | None, int | None, int | None]
COLUMNS = ("auroc_k", "auroc_u", "auroc_uc", "mad", "md1", "md0")
TRUE = ("mad_true", "md1_true", "md0_true")


def run_shortcuts(experiment: Experiment, plan: Plan, show: Show) -> Outcome:
    """Run the study of each source; called again, it goes on where it stopped."""
    rows: list[Row] = []
    notes = list(experiment.notes)
    for source in plan.sources:
        told = _study(source, experiment, plan, show)
        rows += [_row(line, source, experiment) for line in told["rows"]]
        notes += [f"{source.name}: {note}" for note in (*_trend(told["trend"]), *told["notes"])]
    folders = tuple(plan.out / source.name for source in plan.sources)
    return Outcome(rows, _columns(rows), notes=tuple(notes), studies=folders)


def _study(source: Source, experiment: Experiment, plan: Plan, show: Show) -> dict[str, Any]:
    sizes, out = experiment.size(plan.scale), plan.out / source.name
    rule = sizes.get("rules", {}).get(source.name, "balanced")
    wanted = Wanted(
        seeds=sizes["seeds"], sizes=_images(source, sizes, plan.n), rule=rule, recipe=sizes.get("recipe")
    )
    request = AuditRequest(
        data=source.table or Path(source.name),
        shortcuts={source.shortcut: source.bundle},
        task=source.task,
        method=sizes["method"],
        controls=sizes["controls"],
        seed=plan.seed,
        device=plan.device,
        # A phantom is drawn as the bundle wants it; a user's images are brought into that form.
        size=None if source.exact else load_info(source.bundle).size,
        convert=not source.exact,
    )
    if source.exact:
        return validate_phantom(source.name, wanted, request, out, show)
    return validate_table(wanted, request, out, show)


def _images(source: Source, sizes: Mapping[str, Any], n: int | None) -> Sizes:
    """Return images of D_k, test_k and test_u; of a table, as many as there are."""
    train, test, balanced = sizes["images"] if source.exact else (None, None, None)
    return train, test, n or balanced


def _row(line: Row, source: Source, experiment: Experiment) -> Row:
    name = f"D_{line['k']:g}"
    return {"source": source.name, "row": name, **line, **experiment.beside(source.name, name)}


def _trend(found: Row) -> list[str]:
    return [f"mad grows with k by {found['slope_per_point']} a percent, p = {found['p']}"] if found else []


def _columns(rows: list[Row]) -> tuple[str, ...]:
    known = {name for row in rows for name in row}
    beside = [column for name in COLUMNS for column in (name, f"paper_{name}")]
    return ("source", "row", "seeds", *(name for name in (*beside, *TRUE) if name in known))
