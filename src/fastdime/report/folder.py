"""What lies in the folder of an audit: audit.json, the effects on each image, and the doses."""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fastdime.audit.schema import AUDIT_FILE, EFFECTS_FILE, Audit, Row
from fastdime.configs import checked
from fastdime.errors import DataError, InputError, expected
from fastdime.report.dose import Dose, json_of, read_dose

KEYS = ("shortcut", "model", "output", "id", "has", "p_before", "p_after", "change")  # cannot be missing
NUMBERS = ("p_before", "p_after", "p_placebo", "p_truth", "change", "effect")  # in the order of Change
Key = tuple[str, str]  # model and output


@dataclass(frozen=True)
class Change:
    """What the edit did to one output; None where a picture or number is not there."""

    before: float | None
    after: float | None
    placebo: float | None
    truth: float | None
    change: float | None
    effect: float | None


@dataclass(frozen=True)
class Subject:
    """One image of a shortcut.

    Attributes:
        has: whether it shows the shortcut, so that the edit removed it.
        facts: other things to tell: task, whether the oracle agreed, and columns of `by`.
        changes: by model and output.
    """

    image_id: str
    has: bool
    group: str
    facts: Mapping[str, str]
    changes: dict[Key, Change] = field(default_factory=dict)


@dataclass(frozen=True)
class AuditFolder:
    """An audit with its images; `subjects` are by shortcut and id, and `notes` say what is missing."""

    path: Path
    audit: Audit
    subjects: Mapping[str, Mapping[str, Subject]]
    dose: Dose | None
    notes: tuple[str, ...]

    def leading(self, shortcut: str) -> Row | None:
        """Return the row of a shortcut with the largest effect, by which its images are ranked."""
        rows = [row for row in self.audit.rows if row.shortcut == shortcut]
        return max(rows, key=lambda row: -2 if row.effect.value is None else row.effect.value, default=None)


def read_folder(run: Path) -> AuditFolder:
    """Read everything but the pictures.

    Raises:
        InputError: the folder is not there, or has no audit.json.
        DataError: a file is broken; one sentence that names it.
    """
    audit = read_audit(run)
    path = run / EFFECTS_FILE
    if not path.is_file():
        note = f"{EFFECTS_FILE} is no longer in the folder of the audit, so no images are shown."
        return AuditFolder(run, audit, {}, read_dose(run), (note,))
    return AuditFolder(run, audit, _subjects(path, audit), read_dose(run), ())


def read_audit(run: Path) -> Audit:
    """Read audit.json."""
    path = run / AUDIT_FILE
    if not path.is_file():
        got = f"no {AUDIT_FILE} in it" if run.is_dir() else "no such folder"
        raise InputError(expected(str(run), "the folder of an audit", got, "check the path"))
    return checked(Audit, json_of(path), str(path), DataError)


def _subjects(path: Path, audit: Audit) -> dict[str, dict[str, Subject]]:
    found: dict[str, dict[str, Subject]] = {}
    for place, row in _lines(path, audit.by):
        known = found.setdefault(row["shortcut"], {})
        subject = known.setdefault(row["id"], _subject(row, audit, place))
        subject.changes[row["model"], row["output"]] = Change(
            *(_number(row, name, place) for name in NUMBERS)
        )
    return found


def _lines(path: Path, by: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the rows of effects.csv as texts, with where they stand."""
    try:
        with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
            reader = csv.reader(file)
            names = _names(path, next(reader, []), by)
            for cells in reader:
                place = f"{path} line {reader.line_num}"
                yield place, _row(place, names, cells)
    except (OSError, csv.Error) as error:
        raise DataError(expected(str(path), "a table", error, "audit again")) from None


def _row(place: str, names: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    if len(cells) != len(names):
        raise DataError(expected(place, f"{len(names)} cells", len(cells), "audit again"))
    return dict(zip(names, cells, strict=True))


def _names(path: Path, header: Sequence[str], by: Sequence[str]) -> list[str]:
    """Mark the columns of `by`, so that one with the name of another column is not taken for it."""
    first = len(header) - len(by)
    names = [*header[:first], *map(_own, by)]
    if missing := [name for name in KEYS if name not in header]:
        got = f"no column {missing[0]!r}"
        raise DataError(expected(str(path), "what fastdime audit writes", got, "audit again"))
    if [*header[first:]] != [*by]:
        got = ", ".join(header[first:])
        raise DataError(expected(str(path), f"last columns {', '.join(by)}", got, "audit again"))
    return names


def _own(name: str) -> str:
    return f"by {name}"


def _subject(row: Mapping[str, str], audit: Audit, place: str) -> Subject:
    facts = {audit.task: row["task"]} if audit.task and row.get("task") else {}
    facts |= {name: row[_own(name)] for name in audit.by if row[_own(name)]}
    if row.get("complied"):
        facts["oracle agrees"] = "yes" if _number(row, "complied", place) else "no"
    return Subject(row["id"], _number(row, "has", place) == 1, row.get("group", ""), facts)


def _number(row: Mapping[str, str], name: str, place: str) -> float | None:
    """Read a number; None where it is blank."""
    text = row.get(name, "")
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        raise DataError(expected(f"{place}, {name}", "a number", repr(text), "audit again")) from None
    return value if math.isfinite(value) else None
