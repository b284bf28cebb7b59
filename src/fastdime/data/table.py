"""The list of images to work on: ids, paths and labels from a table, a folder or one image.

A CSV or parquet table needs a column `path`, relative to the folder of the table. A column `id` names the
images; without one the id is the path without the suffix of an image. Other columns are labels or text, as
`fastdime.data.cells` tells; `split` and `patient` are always text. Columns without a name, such as the row
numbers that pandas writes, are left out. In a folder the id is the path below it; if every image lies in a
sub-folder, the first sub-folder is the text column `class`; if some are DICOM files, `patient` is theirs.
"""

import csv
import io
import math
import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from fastdime.data.cells import (
    DELIMITERS,
    PARQUET,
    Sheet,
    labels_and_texts,
    line_name,
    number_of,
    read_sheet,
    text_of,
)
from fastdime.data.folders import SUFFIXES, dicom_patients, image_names, is_dicom
from fastdime.errors import DataError, InputError, expected, unknown
from fastdime.files import write_atomically

SPLIT, PATIENT = "split", "patient"
ALWAYS_TEXT = (SPLIT, PATIENT)


@dataclass(frozen=True)
class Table:
    """Images with their labels; row i of every column belongs to image i.

    Attributes:
        ids: one name for each image, all different.
        paths: where the images are; they are not looked at.
        labels: number columns, with NaN where the label is missing.
        groups: text columns.
        source: the file it was read from, and `lines` where in it each image stands; for messages.
    """

    ids: tuple[str, ...]
    paths: tuple[Path, ...]
    labels: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    source: str = field(default="", compare=False)
    lines: tuple[int, ...] = field(default=(), compare=False, repr=False)

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
        lines = tuple(self.lines[row] for row in kept) if self.lines else ()
        return type(self)(ids, paths, labels, groups, self.source, lines)

    def where(self, condition: str) -> Self:
        """Return the images of a condition COLUMN=VALUE."""
        name, equals, wanted = condition.partition("=")
        if not equals:
            raise InputError(expected("--where", "COLUMN=VALUE", repr(condition)))
        kept = [row for row, text in enumerate(self.text(name)) if text == wanted]
        if not kept:
            raise DataError(expected(f"--where {condition}", "at least one such row", "none"))
        return self.take(kept)

    def column(self, name: str) -> tuple[float, ...]:
        """Return a label column, or a text column of nothing but numbers, such as one that also groups."""
        if name in self.labels:
            return self.labels[name]
        if name not in self.groups:
            if not self.labels:
                raise InputError(
                    expected("label column", "a table with label columns", f"none, so no {name!r}")
                )
            raise InputError(unknown("label column", name, self.labels))
        numbers = [number_of(text) for text in self.groups[name]]
        if None not in numbers:
            return tuple(number for number in numbers if number is not None)
        row = numbers.index(None)
        text = self.groups[name][row]
        place = f"{self.place(row)}column {name!r}"
        raise InputError(expected(place, "numbers", f"{text!r} for image {self.ids[row]!r}"))

    def binary(self, name: str) -> tuple[float, ...]:
        """Return a label column that holds nothing but 0, 1 and missing labels (NaN)."""
        values = self.column(name)
        for row, value in enumerate(values):
            if value not in (0, 1) and not math.isnan(value):
                place = f"{self.place(row)}column {name!r} of image {self.ids[row]!r}"
                raise DataError(expected(place, "0, 1 or blank", text_of(value), "mend the table"))
        return values

    def text(self, name: str) -> tuple[str, ...]:
        """Return any column as text, blank where a label is missing."""
        if name in self.groups:
            return self.groups[name]
        if name in self.labels:
            return tuple(map(text_of, self.labels[name]))
        raise InputError(unknown("column", name, [*self.labels, *self.groups]))

    def grouping(self, name: str) -> tuple[str, ...]:
        """Return the group of each image, such as its patient; with a blank cell it is a group of its own."""
        cells = zip(self.ids, self.text(name), strict=True)
        return tuple(text or f"image {image_id}" for image_id, text in cells)

    def place(self, row: int) -> str:
        """Say where a row was read, for the start of a sentence; nothing if that is not known."""
        if not self.lines:
            return f"{self.source} " if self.source else ""
        return f"{self.source} {line_name(self.source, self.lines[row])} "


def read_table(
    source: str | Path,
    *,
    path_column: str = "path",
    id_column: str = "id",
    group: str | None = None,
    root: str | Path | None = None,
) -> Table:
    """Read a CSV, TSV or parquet table, list the images of a folder, or take one image.

    Args:
        path_column: the column that names the image files.
        id_column: the column that names the images; it need not be there.
        group: a column that is text even if it looks like numbers, because it names patients or the like.
        root: the folder that paths in the table are relative to, and must not leave; that of the table
            unless given.

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
    if suffix in (*DELIMITERS, PARQUET):
        names = _Names(path_column, id_column, group)
        return _from_sheet(read_sheet(path), names, path.parent if root is None else Path(root))
    if suffix in SUFFIXES or is_dicom(path):
        return Table((_id_of(path.name),), (path,))
    kinds = ", ".join((*DELIMITERS, PARQUET, *SUFFIXES))
    raise DataError(expected(str(path), f"a folder or a file of kind {kinds}", repr(suffix)))


def write_table(table: Table, path: str | Path, root: str | Path) -> Path:
    """Write a table as CSV, with the paths of its images relative to `root`.

    Raises:
        InputError: the table cannot be written there.
        DataError: an image lies outside of `root`.
    """
    check_table_name(path)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["id", "path", *table.labels, *table.groups])
    files = [_below(image, root, image_id) for image, image_id in zip(table.paths, table.ids, strict=True)]
    labels = [_cells(values) for values in table.labels.values()]
    writer.writerows(zip(table.ids, files, *labels, *table.groups.values(), strict=True))
    try:
        content = buffer.getvalue().encode()
    except UnicodeEncodeError as error:
        got = ascii(error.object[error.start : error.end])
        raise DataError(expected(str(path), "file names in UTF-8", got, "rename the file")) from None
    write_atomically(Path(path), content)
    return Path(path)


def _cells(values: Sequence[float]) -> Iterator[str]:
    known = {value: text_of(value) for value in set(values)}  # most columns have few different labels
    return map(known.__getitem__, values)


def check_other_file(path: str | Path, source: str | Path) -> None:
    """Refuse to write over the file that is read."""
    if os.path.exists(source) and os.path.exists(path) and os.path.samefile(source, path):
        wanted = "another file than the one that is read"
        raise InputError(expected("table to write", wanted, path, "choose another --out"))


def check_table_name(path: str | Path) -> None:
    """Refuse a name that no table can be written to."""
    if Path(path).suffix.lower() != ".csv" or not Path(path).parent.is_dir():
        wanted = "a file that ends with .csv, in a folder that is there"
        raise InputError(expected("table to write", wanted, path, "choose another --out"))


def check_ids(where: Path, ids: Sequence[str], places: Iterable[str], remedy: str) -> None:
    """Refuse two images of one name."""
    if len(set(ids)) == len(ids):
        return
    seen: dict[str, str] = {}
    for name, place in zip(ids, places, strict=True):
        if name in seen:
            got = f"{name!r} for {seen[name]} and {place}"
            raise DataError(expected(str(where), "different ids", got, remedy))
        seen[name] = place


@dataclass(frozen=True)
class _Names:
    """Which columns mean what."""

    path: str
    id: str
    group: str | None


def _from_sheet(sheet: Sheet, names: _Names, root: Path) -> Table:
    columns = sheet.columns
    for name in (names.path, names.group):
        if name is not None and name not in columns:
            found = ", ".join(repr(column) for column in columns)
            remedy = "rename the column that names the image files" if name == names.path else ""
            raise DataError(expected(str(sheet.path), f"a column {name!r}", f"columns {found}", remedy))
    if not sheet.lines:
        raise DataError(expected(str(sheet.path), "at least one image", "no rows"))
    files = columns[names.path]
    ids = columns[names.id] if names.id in columns else [_id_of(text) for text in files]
    for name, cells in ((names.path, files), (names.id, ids)):
        if "" in cells:
            place = f"{sheet.place(cells.index(''))} column {name!r}"
            raise DataError(expected(place, "a text", "an empty cell", "fill it or remove the row"))
    remedy = "name the images in a table with a column 'id'"
    check_ids(sheet.path, ids, (line_name(sheet.path, line) for line in sheet.lines), remedy)
    paths = tuple(_inside(sheet, row, text, root) for row, text in enumerate(files))
    rest = {name: cells for name, cells in columns.items() if name not in (names.path, names.id, "")}
    labels, groups = labels_and_texts(rest, (*ALWAYS_TEXT, names.group or ""))
    return Table(tuple(ids), paths, labels, groups, str(sheet.path), tuple(sheet.lines))


def _inside(sheet: Sheet, row: int, text: str, root: Path) -> Path:
    """Return the path of an image, unless it leaves the root; links in the root may lead anywhere."""
    path = root / text
    if (".." in text or os.path.isabs(text)) and not _is_below(path, root):
        remedy = "give the folder that holds all images with --root"
        raise DataError(expected(sheet.place(row), f"an image below {root}", repr(text), remedy))
    return path


def _is_below(path: Path, root: str | Path) -> bool:
    return Path(os.path.abspath(path)).is_relative_to(os.path.abspath(root))


def _below(path: Path, root: str | Path, image_id: str) -> str:
    if not _is_below(path, root):
        remedy = "give the folder that holds all images with --root"
        raise DataError(expected(f"image {image_id!r}", f"a file below {root}", path, remedy))
    return Path(os.path.relpath(path, root)).as_posix()


def _id_of(path: str) -> str:
    stem, suffix = os.path.splitext(path)
    # A DICOM file named 1.2.840.7 has no suffix that could be left out.
    name = stem if suffix.lower() in SUFFIXES else path
    return posixpath.normpath(name) if "./" in name or "//" in name else name


def _from_folder(folder: Path) -> Table:
    names = image_names(folder)
    if not names:
        kinds = ", ".join(SUFFIXES)
        raise DataError(expected(str(folder), f"images ({kinds})", "none", "check the path"))
    ids = [_id_of(name) for name in names]
    check_ids(folder, ids, names, "name the images in a table with a column 'id'")
    paths = tuple(folder / name for name in names)
    groups = {}
    if all("/" in name for name in names):
        groups["class"] = tuple(name.split("/", 1)[0] for name in names)
    if (patients := dicom_patients(paths)) is not None:
        groups[PATIENT] = patients
    return Table(tuple(ids), paths, {}, groups, str(folder))
