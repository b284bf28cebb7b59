"""What an audit leaves behind: audit.json, a table of all effects, and a list of all pictures."""

import csv
import io
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

from fastdime.audit.answers import KINDS
from fastdime.audit.audit import Asked, Found
from fastdime.audit.effects import Effects
from fastdime.audit.schema import AUDIT_FILE, EFFECTS_FILE, PICTURES_FILE, Audit, Row
from fastdime.configs import checked, read_json
from fastdime.errors import DataError, InputError, expected
from fastdime.files import write_atomically

NUMBERS = ("before", "after", "placebo", "null", "reseed", "truth")  # columns with p_ in front
HEADER = ("shortcut", "model", "output", "id", "has", "task", "group", *(f"p_{name}" for name in NUMBERS))
EFFECT_COLUMNS = (*HEADER, "change", "effect", "complied")
TABLE = ("model", "output", "shortcut", "effect", "low", "high", "mad", "md_with", "md_without", "placebo")
Cells = list[object]


def write_audit(found: Found, out: str | Path) -> Path:
    """Write all files of an audit; returns the path of audit.json."""
    folder = Path(out)
    path = folder / AUDIT_FILE
    folder.mkdir(parents=True, exist_ok=True)
    if not found.audit.rows and path.is_file():  # pictures alone are no reason to lose what was found
        write_pictures(found.asked, folder)
        return path
    write_rows(folder / EFFECTS_FILE, (*EFFECT_COLUMNS, *found.audit.by), _effects(found))
    write_pictures(found.asked, folder)
    write_atomically(path, (found.audit.model_dump_json(indent=1) + "\n").encode())
    return path


def read_audit(run: str | Path) -> Audit:
    """Read the audit.json of a folder."""
    path = Path(run) / AUDIT_FILE
    if not path.is_file():
        remedy = "make one with: fastdime audit"
        raise InputError(expected(str(run), "the folder of an audit", f"no {AUDIT_FILE} in it", remedy))
    return checked(Audit, read_json(path), str(path), DataError)


def write_pictures(asked: Iterable[Asked], folder: Path) -> None:
    """List all pictures, so that a model can be asked about them elsewhere."""
    rows: list[Cells] = [
        [each.column, name, kind, each.album.path(kind, row)]
        for each in asked
        if each.album is not None
        for kind in KINDS
        for row, name in enumerate(each.album.ids)
        if each.album.path(kind, row).is_file()
    ]
    if rows:
        write_rows(folder / PICTURES_FILE, ("shortcut", "id", "picture", "path"), rows)


def write_rows(path: Path, header: Iterable[str], rows: Iterable[Cells]) -> None:
    """Write a table, whole or not at all."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_atomically(path, text.getvalue().encode("utf-8", "surrogateescape"))


def table_row(row: Row) -> dict[str, object]:
    """Return what a person wants to see of a row first."""
    intervals = {name: getattr(row, name).value for name in ("mad", "md_with", "md_without", "placebo")}
    known = row.verdict != "cannot tell"  # a number would be taken for an answer
    found = (row.effect.value, row.effect.low, row.effect.high) if known else (None, None, None)
    ends = dict(zip(("effect", "low", "high"), found, strict=True))
    return {"model": row.model, "output": row.output, "shortcut": row.shortcut, **ends, **intervals}


def _effects(found: Found) -> Iterator[Cells]:
    asked = {each.column: each for each in found.asked}
    for (column, model, output), effects in found.effects.items():
        each = asked[column]
        for row, name in enumerate(each.ids):
            yield [column, model, output, name, *_cells(each, effects, row)]


def _cells(each: Asked, effects: Effects, row: int) -> Cells:
    subjects = each.subjects
    task = None if subjects.task is None else subjects.task[row]
    complied = None if subjects.complied is None else subjects.complied[row]
    return [
        int(effects.has[row]),
        _whole(task),
        "" if subjects.groups is None else subjects.groups[row],
        *(_shown(getattr(effects, name)[row]) for name in NUMBERS),
        _shown(effects.change[row]),
        _shown(effects.effect[row]),
        _whole(complied),
        *(values[row] for values in subjects.by.values()),
    ]


def _whole(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else str(int(value))


def _shown(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6f}"
