"""What a published data set looks like on disk, and how its images are joined with labels by name."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fastdime.data.cells import Columns, Sheet, labels_and_texts, line_name, read_sheet
from fastdime.data.folders import names_with_suffix
from fastdime.data.forms import Form
from fastdime.data.table import ALWAYS_TEXT, PATIENT, SPLIT, Table, check_ids
from fastdime.errors import DataError, InputError, expected, unknown

IMAGE = "image"  # column with the name of the image, after reading
NAME_COLUMNS = ("img_name", "image_id", "Image Index", IMAGE)
OFFICIAL_SPLIT = "official_split"
SPLITS = ("train", "val", "test", "")
XRAY = Form(size=224, channels=1, convert=True, fit="stretch", smooth="bicubic")


def last_part(name: str) -> str:
    """Return the name of a file without its folders and suffix, which is what most data sets go by."""
    return os.path.splitext(name.rpartition("/")[2])[0]


@dataclass(frozen=True)
class Study:
    """A data set.

    Attributes:
        task, shortcut: the label columns of the paper.
        form: what the published programs make of the images.
        annotations: name of the published file with shortcut labels, if labels are not part of the data set.
        folder: if there are folders of this name, images are only in them.
        key: the name of an image in the labels, without suffix, from its path below the root.
        patient: the patient of an image, from its name.
        official: read the labels and the split that come with the images, if they are there.
    """

    task: str
    shortcut: str
    form: Form
    annotations: str = ""
    folder: str = ""
    key: Callable[[str], str] = last_part
    patient: Callable[[str], str] | None = None
    official: Callable[[Path], Sheet | None] | None = None


@dataclass(frozen=True)
class Joined:
    """A table, and what found no partner.

    Attributes:
        rows_without_file: names in the labels that are not on disk; they are not in the table.
        files_without_row: images on disk that the labels do not name; nor are they.
    """

    table: Table
    rows_without_file: tuple[str, ...]
    files_without_row: tuple[str, ...]

    def sentence(self) -> str:
        """Say in one line what was joined and what was not."""
        rows = _count(self.rows_without_file, "row without a file", "rows without a file")
        files = _count(self.files_without_row, "file without a row", "files without a row")
        return f"{len(self.table)} images in the table; left out: {rows}, {files}"


def _count(names: Sequence[str], one: str, many: str) -> str:
    first = f" ({'such as ' if len(names) > 1 else ''}{names[0]})" if names else ""
    return f"{len(names)} {one if len(names) == 1 else many}{first}"


def join(
    study: Study,
    root: str | Path,
    annotations: str | Path | None = None,
    *,
    task: str | None = None,
    shortcut: str | None = None,
) -> Joined:
    """Join the images below `root` with their labels.

    Args:
        annotations: CSV with the name of an image, label columns and `split`; where it is given, its rows
            make the table, and what comes with the images is added to them.
        task, shortcut: other label columns than those of the paper.

    Raises:
        DataError: files or labels are missing, do not fit together, or hold something else than expected.
    """
    folder = Path(root)
    if not folder.is_dir():
        raise DataError(expected(str(folder), "a folder with images", "no such folder", "check the path"))
    sheet = _sheet(study, folder, annotations)
    files = _files(study, folder)
    joined = _matched(study, sheet, files, folder)
    return replace(joined, table=with_roles(joined.table, task or study.task, shortcut or study.shortcut))


def _sheet(study: Study, root: Path, annotations: str | Path | None) -> Sheet:
    official = study.official(root) if study.official else None
    if annotations is None:
        if official is None:
            remedy = f"give it with --annotations {study.annotations}" if study.annotations else ""
            raise InputError(expected(str(root), "a file with labels", "none", remedy))
        return official
    path = Path(annotations)
    if not path.is_file():
        raise DataError(expected(str(path), "a table with labels", "no such file", "check --annotations"))
    given = _named(read_sheet(path))
    return given if official is None else _added(given, official)


def _named(sheet: Sheet) -> Sheet:
    """Call the column with the names of the images by one name, and see that they are different."""
    found = next((name for name in NAME_COLUMNS if name in sheet.columns), None)
    if found is None:
        got = f"columns {', '.join(map(repr, sheet.columns))}"
        raise DataError(expected(str(sheet.path), f"a column {' or '.join(map(repr, NAME_COLUMNS))}", got))
    columns = {IMAGE if name == found else name: cells for name, cells in sheet.columns.items() if name}
    places = (line_name(sheet.path, line) for line in sheet.lines)
    check_ids(sheet.path, list(map(last_part, columns[IMAGE])), places, "remove one of the rows")
    return replace(sheet, columns=columns)


def _added(given: Sheet, official: Sheet) -> Sheet:
    """Add the official columns to annotations; where both have one, the annotations win."""
    row_of = {last_part(name): row for row, name in enumerate(official.columns[IMAGE])}
    rows = [row_of.get(last_part(name)) for name in given.columns[IMAGE]]
    more = {OFFICIAL_SPLIT if name == SPLIT else name: cells for name, cells in official.columns.items()}
    new = {
        name: ["" if row is None else cells[row] for row in rows]
        for name, cells in more.items()
        if name not in given.columns
    }
    return replace(given, columns={**given.columns, **new})


def _files(study: Study, root: Path) -> dict[str, list[str]]:
    """Return the files by the name that labels give them."""
    names = names_with_suffix(root)
    inside = [name for name in names if study.folder in name.split("/")[:-1]] if study.folder else []
    files: dict[str, list[str]] = {}
    for name in inside or names:
        files.setdefault(study.key(name), []).append(name)
    if not files:
        raise DataError(expected(str(root), "images", "none", "check the path"))
    return files


def _matched(study: Study, sheet: Sheet, files: dict[str, list[str]], root: Path) -> Joined:
    names = [last_part(name) for name in sheet.columns[IMAGE]]
    rows = [row for row, name in enumerate(names) if name in files]
    if not rows:
        wanted = f"images named as in {sheet.path}"
        wanted += f", such as {sheet.columns[IMAGE][0]!r}" if names else ", which has no rows"
        raise DataError(expected(str(root), wanted, repr(next(iter(files.values()))[0]), "check both"))
    for name in (names[row] for row in rows):
        if len(files[name]) > 1:
            got = " and ".join(files[name][:2])
            raise DataError(expected(str(root), "one file for each image", got, "keep one of the folders"))
    known = set(names)
    return Joined(
        _table(study, sheet, rows, [root / files[names[row]][0] for row in rows]),
        tuple(sheet.columns[IMAGE][row] for row, name in enumerate(names) if name not in files),
        tuple(places[0] for name, places in files.items() if name not in known),
    )


def _table(study: Study, sheet: Sheet, rows: list[int], paths: list[Path]) -> Table:
    ids = tuple(last_part(sheet.columns[IMAGE][row]) for row in rows)
    columns: Columns = {
        name: [cells[row] for row in rows] for name, cells in sheet.columns.items() if name != IMAGE
    }
    for row, text in zip(rows, columns.get(SPLIT, ()), strict=False):
        if text not in SPLITS:
            place = f"{sheet.place(row)} column {SPLIT!r}"
            raise DataError(expected(place, "train, val, test or blank", repr(text), "mend the cell"))
    labels, groups = labels_and_texts(columns, ALWAYS_TEXT)
    if study.patient is not None:
        groups[PATIENT] = tuple(map(study.patient, ids))
    lines = tuple(sheet.lines[row] for row in rows)
    return Table(ids, tuple(paths), labels, groups, str(sheet.path), lines)


def with_roles(table: Table, task: str | None, shortcut: str | None) -> Table:
    """Add the labels `task` and `shortcut`, which hold 0, 1 or nothing, from the columns of these names."""
    roles = {}
    for role, name in (("task", task), ("shortcut", shortcut)):
        if name is None:
            continue
        if name not in table.labels and name not in table.groups:
            raise InputError(unknown(f"--{role}: column of {table.source}", name, table.labels))
        roles[role] = table.binary(name)
    rest = {name: values for name, values in table.labels.items() if name not in roles}
    return replace(table, labels={**roles, **rest})
