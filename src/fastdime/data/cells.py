"""Cells of table files by column, with the line that each row came from.

A column whose every cell is a number, true, false or missing (blank, NA, NaN) is a label column; any other is
text. Numbers with leading zeros, or too many digits for a float, are text, because they name something.
"""

import csv
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from fastdime.errors import DataError, MissingExtra, expected

DELIMITERS = {".csv": ",", ".tsv": "\t"}
PARQUET = ".parquet"
NUMBER = re.compile(r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?")
WORDS = {"": math.nan, "na": math.nan, "nan": math.nan, "true": 1.0, "false": 0.0}
MOST_EXACT = 2**53  # whole numbers above it are not all floats
Columns = Mapping[str, Sequence[str]]
Labels = dict[str, tuple[float, ...]]
Texts = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Sheet:
    """The cells of a file.

    Attributes:
        path: the file.
        columns: cells by name of the column.
        lines: for each row the line of the file, or the row of a parquet file.
    """

    path: Path
    columns: Columns
    lines: Sequence[int]

    def place(self, row: int) -> str:
        """Say where a row is."""
        return f"{self.path} {line_name(self.path, self.lines[row])}"


def line_name(path: str | Path, line: int) -> str:
    """Name a line of a text file, or a row of a file that has no lines."""
    return f"{'row' if str(path).lower().endswith(PARQUET) else 'line'} {line}"


def read_sheet(path: Path) -> Sheet:
    """Read a CSV, TSV or parquet file.

    Raises:
        DataError: the file cannot be used; one sentence that names it and the line.
    """
    return _read_parquet(path) if path.suffix.lower() == PARQUET else _read_csv(path)


def read_words(path: Path) -> list[list[str]]:
    """Read a text file as the words of each line that has any."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(expected(str(path), "text in UTF-8", error.reason, "save it as UTF-8")) from error
    except OSError as error:
        raise DataError(expected(str(path), "a readable file", error.strerror, "check the path")) from error
    return [words for words in map(str.split, lines) if words]


def labels_and_texts(columns: Columns, always_text: Collection[str] = ()) -> tuple[Labels, Texts]:
    """Part columns into numbers and text."""
    numbers = {name: None if name in always_text else _numbers(cells) for name, cells in columns.items()}
    labels = {name: values for name, values in numbers.items() if values is not None}
    return labels, {name: tuple(cells) for name, cells in columns.items() if name not in labels}


def number_of(text: str) -> float | None:
    """Return the number that a cell holds, NaN if it is missing, or None if it is text."""
    word = text.strip().lower()
    if word in WORDS:
        return WORDS[word]
    number = float(word) if NUMBER.fullmatch(word) else math.inf
    if word.isdecimal() and number >= MOST_EXACT:
        return None
    return number if math.isfinite(number) else None


def text_of(number: float) -> str:
    """Write a number as a cell.

    >>> text_of(1.0), text_of(0.25), text_of(float("nan"))
    ('1', '0.25', '')
    """
    if math.isnan(number):
        return ""
    return str(int(number)) if number.is_integer() and abs(number) < MOST_EXACT else repr(float(number))


def _numbers(cells: Sequence[str]) -> tuple[float, ...] | None:
    """Return a column as numbers, or None if it is text; most columns have few different cells."""
    values: dict[str, float] = {}
    for text in set(cells):
        number = number_of(text)
        if number is None:
            return None
        values[text] = number
    return tuple(map(values.__getitem__, cells))


def _read_csv(path: Path) -> Sheet:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            delimiter = DELIMITERS[path.suffix.lower()]
            return _read_columns(path, csv.reader(file, delimiter=delimiter, strict=True))
    except UnicodeDecodeError as error:
        raise DataError(expected(str(path), "text in UTF-8", error.reason, "save it as UTF-8")) from error
    except (OSError, csv.Error) as error:
        raise DataError(expected(str(path), "a readable table", error, "mend the file")) from error


def _read_columns(path: Path, reader: Any) -> Sheet:
    header: list[str] = next(filter(None, reader), [])
    doubled = sorted(name for name, count in Counter(header).items() if name and count > 1)
    if not header or doubled:
        got = f"{doubled[0]!r} twice" if doubled else "an empty file"
        raise DataError(expected(str(path), "a header with different names", got))
    lines: list[int] = []
    rows = _whole_rows(path, reader, len(header), lines)
    columns: list[list[str]] = [[] for _ in header]
    # In pieces: a list for every row of a large table would keep the garbage collector busy.
    while piece := list(islice(rows, 1000)):
        for column, cells in zip(columns, zip(*piece, strict=True), strict=True):
            column.extend(cells)
    return Sheet(path, dict(zip(header, columns, strict=True)), lines)


def _whole_rows(path: Path, reader: Any, width: int, lines: list[int]) -> Iterator[list[str]]:
    for row in filter(None, reader):
        if len(row) != width:
            place = f"{path} line {reader.line_num}"
            raise DataError(expected(place, f"{width} cells", len(row), "mend the row"))
        lines.append(reader.line_num)
        yield row


def _read_parquet(path: Path) -> Sheet:
    import pandas as pd

    try:
        frame = pd.read_parquet(path)
    except ImportError as error:
        raise MissingExtra("pyarrow", f"reading {path}", "parquet") from error
    except Exception as error:  # whatever the parquet engine says of a broken file
        reason = " ".join(str(error).split())[:200]
        raise DataError(expected(str(path), "a readable table", reason, "mend the file")) from error
    columns = {str(name): _texts(values.tolist()) for name, values in frame.items()}
    return Sheet(path, columns, range(1, len(frame) + 1))


def _texts(values: Iterable[object]) -> list[str]:
    missing = ("None", "<NA>", "nan", "NaT")  # told by their text: not every one of them can be compared
    return ["" if text in missing else text for text in map(str, values)]
