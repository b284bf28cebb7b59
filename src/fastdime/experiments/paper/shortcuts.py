"""The study of Table 4: models that were trained on planted correlations are audited with FastDiME.

OUT/SOURCE    a folder of `fastdime validate`; its `audit` is one that `fastdime report` reads
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastdime.audit.cells import CELLS
from fastdime.audit.curate import curate
from fastdime.audit.opening import open_data
from fastdime.audit.pictures import Show
from fastdime.audit.request import AuditRequest
from fastdime.bundles import load_info
from fastdime.data.table import read_table
from fastdime.errors import DataError, InputError, expected
from fastdime.experiments.paper.experiment import Experiment, Outcome, Plan, Row, Source
from fastdime.experiments.paper.sources import check_column
from fastdime.validation.validate import Wanted, table_plan, validate_phantom, validate_table

Sizes = tuple[int | None, int | None, int | None]
COLUMNS = ("auroc_k", "auroc_u", "auroc_uc", "mad", "md1", "md0")
TRUE = ("mad_true", "md1_true", "md0_true")


@dataclass(frozen=True)
class Asked:
    """The study of a source."""

    source: Source
    wanted: Wanted
    request: AuditRequest


def run_shortcuts(experiment: Experiment, plan: Plan, show: Show) -> Outcome:
    """Run the study of each source; called again, it goes on where it stopped."""
    rows: list[Row] = []
    notes = list(experiment.notes)
    studies = [_asked(source, experiment, plan) for source in plan.sources]
    for asked in studies:  # all, before hours go into the first
        _check(asked, plan.n)
    for asked in studies:
        source, told = asked.source, _study(asked, plan.out / asked.source.name, show)
        rows += [_row(line, source, experiment) for line in told["rows"]]
        notes += [f"{source.name}: {note}" for note in (*_trend(told["trend"]), *told["notes"])]
    folders = tuple(plan.out / source.name for source in plan.sources)
    return Outcome(rows, _columns(rows), notes=tuple(notes), studies=folders)


def _asked(source: Source, experiment: Experiment, plan: Plan) -> Asked:
    sizes = experiment.size(plan.scale)
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
    return Asked(source, wanted, request)


def _check(asked: Asked, n: int | None) -> None:
    """Refuse a number of images or a table that the study cannot have."""
    source, rule = asked.source, asked.wanted.rule
    if n is not None and rule == "medical":
        wanted = f"none for {source.name} at full scale, where the table decides how large test_u is"
        raise InputError(expected("--n", wanted, n, "leave it out"))
    if n is not None and n % len(CELLS):
        wanted = f"a multiple of {len(CELLS)}, for as many images of each label of task and shortcut"
        raise InputError(expected("--n", wanted, n, f"give {n + -n % len(CELLS)}"))
    if source.table is not None:
        check_column(read_table(source.table), source, "task")
        _check_curation(asked)


def _check_curation(asked: Asked) -> None:
    """Refuse a table that has too few images for the study."""
    n = asked.wanted.sizes[-1]
    try:
        plan = table_plan(asked.wanted, asked.request)
        curate(open_data(asked.request), plan.columns, plan.plan, plan.rule)
    except (DataError, InputError) as error:
        sentence = _advised(str(error), n)
        raise type(error)(f"--data {asked.source.name}={asked.source.table}: {sentence}") from None


def _advised(sentence: str, n: int | None) -> str:
    """Say what to do in words of this command: a curation names options of others."""
    fewer = "give a smaller --n or add images" if n is not None and "for test_u" in sentence else "add images"
    sentence = sentence.replace("ask for fewer images or another k, or add images", fewer)
    return sentence.replace("use the rule 'balanced'", "add it, or leave --scale full out")


def _study(asked: Asked, out: Path, show: Show) -> dict[str, Any]:
    if asked.source.exact:
        return validate_phantom(asked.source.name, asked.wanted, asked.request, out, show)
    return validate_table(asked.wanted, asked.request, out, show)


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
