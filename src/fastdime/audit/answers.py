"""What a model says of each image and of its edits, asked here or read from a table made elsewhere.

The long form of the table has a row for each picture: `id`, `picture` (which kind it is), then one column an
output. The short form has a row for each image and one output: `id`, `before`, `after`, and if there are any
`placebo`, `null`, `reseed`, `truth`. `path`, `file` and columns without a name are left out.
In both a column `shortcut` may say which shortcut a row is about: so pictures.csv of an audit becomes a table
of answers when a column for each output is added.
"""

import csv
import io
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from fastdime.classifiers.wrapper import SMALLEST
from fastdime.data.cells import DELIMITERS, PARQUET, Sheet, line_name, number_of, read_sheet
from fastdime.data.table import check_table_name
from fastdime.errors import DataError, InputError, expected, unknown
from fastdime.files import write_atomically

ORIGINAL, EDIT = "original", "edit"
KINDS = (ORIGINAL, EDIT, "null", "reseed", "placebo", "truth")
ID, PICTURE, SHORTCUT = "id", "picture", "shortcut"
IGNORED = (SHORTCUT, "path", "file", "")
RESERVED = (ID, PICTURE, *IGNORED)
SYNONYMS = {"counterfactual": EDIT}  # in the column `picture`
SHORT = {"before": ORIGINAL, "after": EDIT} | {kind: kind for kind in KINDS[2:]}  # columns of the short form
ONE_OUTPUT = "class 1"  # the name where there is only one and nobody named it
Rows = Float64[np.ndarray, "n m"]  # an image a row, an output a column


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers of one model; row i belongs to image i, column j to output j.

    Attributes:
        ids: of the images, all different.
        outputs: names of the outputs.
        logits: log-odds by kind of picture (some of `KINDS`), NaN where the picture is missing.
    """

    ids: tuple[str, ...]
    outputs: tuple[str, ...]
    logits: Mapping[str, Rows]

    def __post_init__(self) -> None:
        """Refuse what does not belong together."""
        check_outputs("outputs of the answers", self.outputs)
        _check_ids(self.ids)
        shape = (len(self.ids), len(self.outputs))
        for kind, values in self.logits.items():
            if kind not in KINDS:
                raise InputError(unknown("kind of picture", kind, KINDS))
            if values.shape != shape or values.dtype != np.float64 or np.isinf(values).any():
                got = f"{values.dtype} {values.shape}{' with infinity' if np.isinf(values).any() else ''}"
                raise InputError(expected(f"answers of kind {kind!r}", f"finite float64 {shape}", got))

    def probabilities(self, kind: str) -> Rows:
        """Return the probability of each output, NaN where the picture is missing.

        >>> Answers(("a",), ("class 1",), {"original": np.zeros((1, 1))}).probabilities("original")
        array([[0.5]])
        """
        from scipy.special import expit

        if kind not in self.logits:
            raise InputError(unknown("kind of picture", kind, self.logits))
        chances: Rows = expit(self.logits[kind])
        return chances


@dataclass(frozen=True)
class Scope:
    """Which rows of a table of answers are asked for.

    Attributes:
        shortcut: where the table has a column `shortcut`, only rows that hold this.
        needs_column: whether it must have that column, because several shortcuts are audited.
        others: images that may be in the table and are left out, such as those without a label.
    """

    shortcut: str | None = None
    needs_column: bool = False
    others: Collection[str] = ()


EVERYTHING = Scope()


def read_answers(
    path: str | Path, ids: Sequence[str], *, logits: bool = False, scope: Scope = EVERYTHING
) -> Answers:
    """Read the answers of a model that was asked elsewhere; see the module for the two forms.

    A probability of 0 or 1 counts as SMALLEST or 1 - SMALLEST, because its log-odds would not be finite.

    Args:
        path: CSV, TSV or parquet.
        ids: of the images of the audit. Each needs its original; other pictures may be missing or blank.
        logits: the table holds log-odds, not probabilities.

    Raises:
        DataError: the table cannot be used; one sentence that names the file and the row.
    """
    _check_ids(ids)
    sheet = open_answers(path)
    long = PICTURE in sheet.columns
    names = _outputs(sheet) if long else (ONE_OUTPUT,)
    entries = _within(sheet, _long(sheet, names) if long else _short(sheet), scope, ids)
    found = _filled(sheet, entries, ids, len(names), logits)
    missing = [name for name, row in zip(ids, found[ORIGINAL], strict=True) if math.isnan(row[0])]
    if missing:
        got = f"none of {missing[0]!r}" + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
        wanted = f"an answer for each image {f'with picture {ORIGINAL!r}' if long else 'in column before'}"
        raise DataError(expected(str(sheet.path), wanted, got, "ask the model about all images"))
    return Answers(tuple(ids), names, found)


def write_answers(path: str | Path, answers: Answers, *, logits: bool = False) -> Path:
    """Write answers in the long form; blank cells are missing pictures.

    Probabilities have nine digits, and `read_answers` does not take them nearer to 0 or 1 than SMALLEST.

    Args:
        logits: write log-odds with all their digits, from which `read_answers` gives back the very same.
    """
    check_table_name(path)
    kinds = [kind for kind in KINDS if kind in answers.logits]
    cells = {kind: answers.logits[kind] if logits else answers.probabilities(kind) for kind in kinds}
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([ID, PICTURE, *answers.outputs])
    for row, name in enumerate(answers.ids):
        for kind in kinds:
            writer.writerow(
                [name, kind, *(_cell(value, exact=logits) for value in cells[kind][row].tolist())]
            )
    try:
        content = buffer.getvalue().encode()
    except UnicodeEncodeError as error:
        got = ascii(error.object[error.start : error.end])
        raise DataError(expected(str(path), "ids in UTF-8", got, "rename the image")) from None
    write_atomically(Path(path), content)
    return Path(path)


def check_outputs(what: str, names: Sequence[str]) -> None:
    """Refuse names of outputs that a table of answers could not hold.

    >>> check_outputs("outputs", ("pneumonia", "effusion"))
    """
    doubled = [name for name, count in Counter(names).items() if count > 1]
    bad = doubled or [name for name in names if name in RESERVED]
    if not names or bad:
        wanted = f"different names, other than {', '.join(filter(None, RESERVED))}"
        raise InputError(expected(what, wanted, repr(bad[0]) if bad else "none"))


def _check_ids(ids: Sequence[str]) -> None:
    doubled = [name for name, count in Counter(ids).items() if count > 1]
    if doubled or not ids:
        got = f"{doubled[0]!r} twice" if doubled else "none"
        raise InputError(expected("ids of the images", "different ones", got))


def _cell(value: float, *, exact: bool) -> str:
    if math.isnan(value):
        return ""
    return repr(value) if exact else f"{value:.9g}"


@dataclass(frozen=True)
class _Entry:
    """The answer for one picture: a row of the table, and its cells in some columns."""

    row: int
    kind: str
    columns: tuple[str, ...]


def open_answers(source: str | Path) -> Sheet:
    """Read the cells of a table of answers; only its columns are checked."""
    path = Path(source)
    if path.suffix.lower() not in (*DELIMITERS, PARQUET) or not path.is_file():
        got = repr(path.suffix) if path.exists() else "nothing there"
        kinds = ", ".join((*DELIMITERS, PARQUET))
        raise DataError(expected(str(path), f"a table of answers ({kinds})", got, "check the path"))
    sheet = read_sheet(path)
    if ID not in sheet.columns or not (PICTURE in sheet.columns or {"before", "after"} <= set(sheet.columns)):
        wanted = "columns id, picture and one for each output, or id, before and after"
        got = ", ".join(filter(None, sheet.columns)) or "none"
        raise DataError(expected(str(path), wanted, got, "rename the columns"))
    if not sheet.lines:
        raise DataError(expected(str(path), "a row for each picture", "no rows"))
    return sheet


def _outputs(sheet: Sheet) -> tuple[str, ...]:
    names = tuple(name for name in sheet.columns if name not in RESERVED)
    if not names:
        got = ", ".join(filter(None, sheet.columns))
        raise DataError(expected(str(sheet.path), "a column for each output beside id and picture", got))
    return names


def _long(sheet: Sheet, names: tuple[str, ...]) -> Iterator[_Entry]:
    for row, word in enumerate(sheet.columns[PICTURE]):
        kind = SYNONYMS.get(word, word)
        if kind not in KINDS:
            raise DataError(unknown(f"{sheet.place(row)} column {PICTURE!r}", word, (*KINDS, *SYNONYMS)))
        yield _Entry(row, kind, names)


def _short(sheet: Sheet) -> Iterator[_Entry]:
    names = [name for name in sheet.columns if name != ID and name not in IGNORED]
    if strange := [name for name in names if name not in SHORT]:
        raise DataError(unknown(f"{sheet.path}: column", strange[0], (ID, *SHORT, *filter(None, IGNORED))))
    for row in range(len(sheet.lines)):
        yield from (_Entry(row, SHORT[name], (name,)) for name in names)


def _within(sheet: Sheet, entries: Iterator[_Entry], scope: Scope, ids: Collection[str]) -> Iterator[_Entry]:
    """Yield the entries that are asked for."""
    if scope.needs_column and SHORTCUT not in sheet.columns:
        wanted = f"a column {SHORTCUT!r}, because more than one is audited"
        raise DataError(expected(str(sheet.path), wanted, "none", "add it, as in pictures.csv"))
    about = sheet.columns.get(SHORTCUT)
    left_out = set(scope.others) - set(ids)
    for entry in entries:
        other = about is not None and scope.shortcut not in (None, about[entry.row])
        if not other and sheet.columns[ID][entry.row] not in left_out:
            yield entry


def _filled(
    sheet: Sheet, entries: Iterator[_Entry], ids: Sequence[str], outputs: int, logits: bool
) -> dict[str, Rows]:
    """Put the answers into the rows of their images; originals are always there."""
    places = {name: place for place, name in enumerate(ids)}
    found = {ORIGINAL: np.full((len(ids), outputs), np.nan)}
    seen: dict[tuple[str, str], int] = {}
    for entry in entries:
        name = sheet.columns[ID][entry.row]
        if name not in places:
            raise DataError(unknown(f"{sheet.place(entry.row)} column {ID!r}", name, ids))
        first = seen.setdefault((entry.kind, name), entry.row)
        if first != entry.row:
            got = f"{name!r} again, after {line_name(sheet.path, sheet.lines[first])}"
            wanted = f"one answer for the {entry.kind!r} of each image"
            raise DataError(expected(sheet.place(entry.row), wanted, got, "remove one"))
        values = found.setdefault(entry.kind, np.full((len(ids), outputs), np.nan))
        values[places[name]] = _numbers(sheet, entry, logits)
    return found if logits else {kind: _logit(values) for kind, values in found.items()}


def _numbers(sheet: Sheet, entry: _Entry, logits: bool) -> list[float]:
    """Return the numbers of a picture: all of them, or NaN if it is missing."""
    numbers = [_number(sheet, entry.row, column, logits) for column in entry.columns]
    blank = [column for column, number in zip(entry.columns, numbers, strict=True) if math.isnan(number)]
    if blank and len(blank) < len(numbers):
        wanted = "numbers for all outputs, or blank cells for a picture that is missing"
        raise DataError(expected(sheet.place(entry.row), wanted, f"a blank cell in {blank[0]!r}"))
    return numbers


def _number(sheet: Sheet, row: int, column: str, logits: bool) -> float:
    text = sheet.columns[column][row]
    number = number_of(text)
    if number is None or not (logits or math.isnan(number) or 0 <= number <= 1):
        wanted, remedy = (
            ("a number", "") if logits else ("a probability in [0, 1]", "log-odds are read with logits=True")
        )
        raise DataError(expected(f"{sheet.place(row)} column {column!r}", wanted, repr(text), remedy))
    return number


def _logit(p: Rows) -> Rows:
    inside = np.clip(p, SMALLEST, 1 - SMALLEST)
    odds: Rows = np.log(inside) - np.log1p(-inside)
    return odds
