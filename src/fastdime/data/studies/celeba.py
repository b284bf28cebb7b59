"""CelebA: img_align_celeba/, list_attr_celeba and list_eval_partition; each list as .csv or original .txt."""

from pathlib import Path

from fastdime.data.cells import Sheet, read_sheet, read_words
from fastdime.data.forms import Form
from fastdime.data.studies.study import IMAGE, Study
from fastdime.data.table import SPLIT
from fastdime.errors import DataError, expected

PARTITIONS = {"0": "train", "1": "val", "2": "test"}
FOLDERS = ("", "Anno", "Eval", "celeba")  # where copies of the data set keep the lists
SIGNS = {"-1": "0", "1": "1", "0": "0"}


def official(root: Path) -> Sheet | None:
    """Read the 40 attributes, with 0 for -1, and the partition."""
    attributes, partition = _find(root, "list_attr_celeba"), _find(root, "list_eval_partition")
    if attributes is None or partition is None:
        missing = "list_attr_celeba" if attributes is None else "list_eval_partition"
        raise DataError(expected(str(root), f"{missing}.csv or .txt", "no such file", "check the path"))
    sheet = _attributes(attributes)
    parts = _partition(partition)
    splits = [parts.get(name, "") for name in sheet.columns[IMAGE]]
    return Sheet(sheet.path, {**sheet.columns, SPLIT: splits}, sheet.lines)


def _find(root: Path, name: str) -> Path | None:
    places = (root / folder / f"{name}{suffix}" for folder in FOLDERS for suffix in (".csv", ".txt"))
    return next((place for place in places if place.is_file()), None)


def _attributes(path: Path) -> Sheet:
    sheet = _written_columns(path) if path.suffix == ".txt" else read_sheet(path)
    first, *names = sheet.columns
    columns = {IMAGE: sheet.columns[first]}
    for name in names:
        cells = sheet.columns[name]
        for row in (row for row, cell in enumerate(cells) if cell not in SIGNS):
            place = f"{sheet.place(row)} column {name!r}"
            raise DataError(expected(place, "-1, 0 or 1", repr(cells[row]), "get the file again"))
        columns[name] = [SIGNS[cell] for cell in cells]
    return Sheet(path, columns, sheet.lines)


def _written_columns(path: Path) -> Sheet:
    """Read the original form: a line with the number of images, one with the names, then the images."""
    lines = read_words(path)
    if len(lines) < 3 or len(lines[0]) != 1:
        raise DataError(expected(str(path), "a number, names and images", "something else", "get it again"))
    names, rows = [IMAGE, *lines[1]], lines[2:]
    for line, row in enumerate(rows, start=3):
        if len(row) != len(names):
            raise DataError(expected(f"{path} line {line}", f"{len(names)} words", len(row), "get it again"))
    cells = zip(*rows, strict=True)
    return Sheet(path, dict(zip(names, map(list, cells), strict=True)), range(3, len(rows) + 3))


def _partition(path: Path) -> dict[str, str]:
    if path.suffix == ".txt":
        rows = read_words(path)
    else:
        sheet = read_sheet(path)
        rows = [list(row) for row in zip(*sheet.columns.values(), strict=True)]
    for line, row in enumerate(rows, start=1):
        if len(row) != 2 or row[1] not in PARTITIONS:
            got = " ".join(row)
            raise DataError(
                expected(f"{path} image {line}", "a name and 0, 1 or 2", repr(got), "get it again")
            )
    return {name: PARTITIONS[part] for name, part in rows}


STUDY = Study(
    task="Young",
    shortcut="Smiling",
    form=Form(size=128, channels=3, convert=True),
    folder="img_align_celeba",
    official=official,
)
