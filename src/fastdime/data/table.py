"""The list of images to work on: ids, paths and labels from a table, a folder or one image.

A CSV or parquet table needs a column `path`, relative to the folder of the table. A column `id` names the
images; without one the id is the path without the suffix of an image. A column whose every cell is a number,
true, false or missing (blank, NA, NaN) is a label column; any other is text. Numbers with leading zeros are
text, because they name something. Columns without a name, such as the row numbers that pandas writes, are
left out. In a folder the id is the path below it, and if every image lies in a sub-folder, the first
sub-folder is the text column `class`.
"""

import csv
import math
import os
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Self

from fastdime.errors import DataError, InputError, MissingExtra, expected, unknown

SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".npy", ".dcm", ".dicom")
DELIMITERS = {".csv": ",", ".tsv": "\t"}
NUMBER = re.compile(r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?")
Columns = dict[str, Sequence[str]]
WORDS = {"": math.nan, "na": math.nan, "nan": math.nan, "true": 1.0, "false": 0.0}


@dataclass(frozen=True)
class Table:
    """Images with their labels; row i of every column belongs to image i.

    Attributes:
        ids: one name for each image, all different.
        paths: where the images are; they are not looked at.
        labels: number columns, with NaN where the label is missing.
        groups: text columns.
    """

    ids: tuple[str, ...]
    paths: tuple[Path, ...]
    labels: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.ids)

    def head(self, n: int) -> Self:
        """Return the first n images."""
        if n < 1:
            raise InputError(expected("number of images", "1 or more", n))
        return self.take(range(min(n, len(self))))

    def take(self, rows: Iterable[int]) -> Self:
        """Return some of the images, in the order given."""
        kept = list(rows)
        labels = {name: tuple(values[row] for row in kept) for name, values in self.labels.items()}
        groups = {name: tuple(values[row] for row in kept) for name, values in self.groups.items()}
        ids, paths = tuple(self.ids[row] for row in kept), tuple(self.paths[row] for row in kept)
        return type(self)(ids, paths, labels, groups)

    def column(self, name: str) -> tuple[float, ...]:
        """Return a label column."""
        if name in self.labels:
            return self.labels[name]
        if name not in self.groups:
            if not self.labels:
                raise InputError(
                    expected("label column", "a table with label columns", f"none, so no {name!r}")
                )
            raise InputError(unknown("label column", name, self.labels))
        row, text = next((i, t) for i, t in enumerate(self.groups[name]) if _number(t) is None)
        raise InputError(expected(f"column {name!r}", "numbers", f"{text!r} for image {self.ids[row]!r}"))


def read_table(source: str | Path) -> Table:
    """Read a CSV, TSV or parquet table, list the images of a folder, or take one image.

    Raises:
        DataError: the table cannot be used; one sentence that names the file, the row and the column.
    """
    path = Path(source)
    suffix = path.suffix.lower()
    if os.path.isdir(path):
        return _from_folder(path)
    if not os.path.isfile(path):
        wanted = "a table, a folder or an image"
        raise DataError(expected(str(path), wanted, "no such file", "check the path"))
    if suffix in DELIMITERS:
        return _from_columns(path, *_read_csv(path))
    if suffix == ".parquet":
        return _from_columns(path, *_read_parquet(path))
    if suffix in SUFFIXES:
        return Table((path.stem,), (path,))
    kinds = ", ".join((*DELIMITERS, ".parquet", *SUFFIXES))
    raise DataError(expected(str(path), f"a folder or a file of kind {kinds}", repr(suffix)))


def _read_csv(path: Path) -> tuple[Columns, Sequence[int]]:
    """Return the cells by column, and the line of the file where each row ends."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            delimiter = DELIMITERS[path.suffix.lower()]
            return _read_columns(path, csv.reader(file, delimiter=delimiter, strict=True))
    except UnicodeDecodeError as error:
        raise DataError(expected(str(path), "text in UTF-8", error.reason, "save it as UTF-8")) from error
    except (OSError, csv.Error) as error:
        raise DataError(expected(str(path), "a readable table", error, "mend the file")) from error


def _read_columns(path: Path, reader: Any) -> tuple[Columns, Sequence[int]]:
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
    return dict(zip(header, columns, strict=True)), lines


def _whole_rows(path: Path, reader: Any, width: int, lines: list[int]) -> Iterator[list[str]]:
    for row in filter(None, reader):
        if len(row) != width:
            place = f"{path} line {reader.line_num}"
            raise DataError(expected(place, f"{width} cells", len(row), "mend the row"))
        lines.append(reader.line_num)
        yield row


def _read_parquet(path: Path) -> tuple[Columns, Sequence[int]]:
    import pandas as pd

    try:
        frame = pd.read_parquet(path)
    except ImportError as error:
        raise MissingExtra("pyarrow", f"reading {path}", "parquet") from error
    except Exception as error:  # whatever the parquet engine says of a broken file
        reason = " ".join(str(error).split())[:200]
        raise DataError(expected(str(path), "a readable table", reason, "mend the file")) from error
    columns: Columns = {str(name): _texts(values.tolist()) for name, values in frame.items()}
    return columns, range(1, len(frame) + 1)


def _texts(values: Iterable[object]) -> list[str]:
    missing = ("None", "<NA>", "nan", "NaT")  # told by their text: not every one of them can be compared
    return ["" if text in missing else text for text in map(str, values)]


def _from_columns(path: Path, columns: Columns, lines: Sequence[int]) -> Table:
    if "path" not in columns:
        names = ", ".join(repr(name) for name in columns)
        remedy = "rename the column that names the image files"
        raise DataError(expected(str(path), "a column 'path'", f"columns {names}", remedy))
    if not lines:
        raise DataError(expected(str(path), "at least one image", "no rows"))
    files = columns["path"]
    ids = columns["id"] if "id" in columns else [_id_of(text) for text in files]
    word = "row" if path.suffix.lower() == ".parquet" else "line"
    for name, cells in (("path", files), ("id", ids)):
        if "" in cells:
            place = f"{path} {word} {lines[cells.index('')]} column {name!r}"
            raise DataError(expected(place, "a text", "an empty cell", "fill it or remove the row"))
    _check_ids(path, ids, (f"{word} {line}" for line in lines))
    rest = {name: cells for name, cells in columns.items() if name not in ("path", "id", "")}
    numbers = {name: _numbers(cells) for name, cells in rest.items()}
    labels = {name: values for name, values in numbers.items() if values is not None}
    groups = {name: tuple(cells) for name, cells in rest.items() if name not in labels}
    folder = path.parent
    return Table(tuple(ids), tuple(folder / text for text in files), labels, groups)


def _numbers(cells: Sequence[str]) -> tuple[float, ...] | None:
    """Return a column as numbers, or None if it is text; most columns have few different cells."""
    values: dict[str, float] = {}
    for text in set(cells):
        number = _number(text)
        if number is None:
            return None
        values[text] = number
    return tuple(map(values.__getitem__, cells))


def _number(text: str) -> float | None:
    word = text.strip().lower()
    if word in WORDS:
        return WORDS[word]
    number = float(word) if NUMBER.fullmatch(word) else math.inf
    return number if math.isfinite(number) else None


def _id_of(path: str) -> str:
    stem, suffix = os.path.splitext(path)
    # A DICOM file named 1.2.840.7 has no suffix that could be left out.
    name = stem if suffix.lower() in SUFFIXES else path
    return posixpath.normpath(name) if "./" in name or "//" in name else name


def _check_ids(path: Path, ids: Sequence[str], places: Iterable[str]) -> None:
    if len(set(ids)) == len(ids):
        return
    seen: dict[str, str] = {}
    for name, place in zip(ids, places, strict=True):
        if name in seen:
            got = f"{name!r} for {seen[name]} and {place}"
            remedy = "name the images in a table with a column 'id'"
            raise DataError(expected(str(path), "different ids", got, remedy))
        seen[name] = place


def _from_folder(folder: Path) -> Table:
    names = sorted(_walk(folder))
    if not names:
        kinds = ", ".join(SUFFIXES)
        raise DataError(expected(str(folder), f"images ({kinds})", "none", "check the path"))
    ids = [os.path.splitext(name)[0] for name in names]
    _check_ids(folder, ids, names)
    groups = {}
    if all("/" in name for name in names):
        groups["class"] = tuple(name.split("/", 1)[0] for name in names)
    return Table(tuple(ids), tuple(folder / name for name in names), {}, groups)


def _walk(folder: Path) -> Iterator[str]:
    """Yield the images below a folder, also through links, except in hidden files and folders."""
    for place, folders, files in os.walk(folder, followlinks=True, onerror=_unreadable):
        folders[:] = [name for name in folders if name[0] != "." and not _loops(place, name)]
        prefix = Path(place).relative_to(folder).as_posix()
        for name in files:
            if name[0] != "." and os.path.splitext(name)[1].lower() in SUFFIXES:
                yield name if prefix == "." else f"{prefix}/{name}"


def _loops(place: str, name: str) -> bool:
    """Tell whether a link leads back to a folder that it lies in."""
    path = os.path.join(place, name)
    return os.path.islink(path) and Path(os.path.realpath(place)).is_relative_to(os.path.realpath(path))


def _unreadable(error: OSError) -> None:
    raise DataError(expected(str(error.filename), "a folder that can be read", error.strerror)) from error
