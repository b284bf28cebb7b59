"""A curation on disk: lists of images that every command takes as tables. No image is copied.

DIR/D_100.csv, DIR/val_100.csv, DIR/test_100.csv   for each k: id, path, task, shortcut, and the patient
DIR/test_u.csv        the same, with `target`: the shortcut label of the counterfactual, which makes test_u^c
DIR/images            a link to the folder of the images; paths go through it: no table may leave its folder
DIR/curation.json     a `CurationInfo`
"""

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from fastdime import __version__
from fastdime.audit.cells import CELLS, Cell, Columns, Curation, Plan
from fastdime.audit.curate import COLUMNS, FEW, PLAN, Rule, curate
from fastdime.audit.published import CELEBA_SEED, MEDICAL_SEED
from fastdime.configs import checked, read_json
from fastdime.data.splits import NONE, has
from fastdime.data.table import PATIENT, SPLIT, Table, read_table, write_table
from fastdime.errors import CheckpointError, DataError, InputError, expected
from fastdime.files import new_folder, not_writable, write_atomically

FORMAT: Final = 1
INFO_FILE, IMAGES, TARGET, BALANCED = "curation.json", "images", "target", "test_u"
PREFIXES = {"train": "D", "val": "val", "test": "test"}  # of file names, by the field of a curation
SEEDS = {"celeba": CELEBA_SEED, "medical": MEDICAL_SEED}
ASKED = ("rule", "task", "shortcut", "split", "group", "ks", "n", "n_test", "n_balanced", "seed")
ANOTHER = "choose another --out"


class _Info(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CellSize(_Info):
    """How many images of a set have these labels."""

    task: Literal[0, 1]
    shortcut: Literal[0, 1]
    images: int


class SetInfo(_Info):
    """One list of images: its size, by cell too, and the digest of its file."""

    images: int
    cells: tuple[CellSize, ...]
    sha256: str


class TableInfo(_Info):
    """The table that was curated: its name, how many images it has, and the digest of its file."""

    name: str
    images: int
    sha256: str | None


class CurationInfo(_Info):
    """What curation.json says.

    Attributes:
        fastdime: the version that wrote it.
        task, shortcut, split, group: the columns in use; "none" where there is no such column.
        ks, n, n_test, n_balanced: of the plan.
        seed: of the plan, or that of a published rule.
        sets: by the name of the file without .csv.
        left_out, notes: of the curation.
    """

    format: Literal[1] = FORMAT
    fastdime: str
    rule: str
    task: str
    shortcut: str
    split: str
    group: str
    ks: tuple[float, ...]
    n: int | None
    n_test: int | None
    n_balanced: int | None
    seed: int
    table: TableInfo
    sets: dict[str, SetInfo]
    left_out: dict[str, int]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Curated:
    """A folder with a curation, and what is in it."""

    folder: Path
    curation: Curation
    info: CurationInfo

    def table(self, name: str) -> Path:
        """Return the file of a set, such as D_100 or test_u."""
        return self.folder / f"{name}.csv"

    def rows(self) -> list[dict[str, Any]]:
        """Return one row a set for people: its name, images, and images of each cell."""
        return [
            {"set": name, "images": one.images, **{self._title(cell): cell.images for cell in one.cells}}
            for name, one in self.info.sets.items()
        ]

    def _title(self, cell: CellSize) -> str:
        return f"{self.info.task} {cell.task}, {self.info.shortcut} {cell.shortcut}"


def write_curation(
    folder: str | Path,
    table: Table,
    root: str | Path,
    *,
    columns: Columns = COLUMNS,
    plan: Plan = PLAN,
    rule: Rule = "balanced",
) -> Curated:
    """Curate a table and write the lists of images; a folder that has this curation is left as it is.

    Args:
        root: the folder that all images of the table are below.

    Raises:
        InputError: the folder has something else or another curation, or the request cannot be met.
        DataError: a cell has too few images, or a file of the folder was changed.

    >>> names = tuple(f"{number:03}" for number in range(400))
    >>> labels = {"task": (1, 1, 0, 0) * 100, "shortcut": (1, 0) * 200}
    >>> table = Table(names, tuple(Path("pictures") / f"{name}.png" for name in names), labels)
    >>> with TemporaryDirectory() as place:
    ...     made = write_curation(Path(place) / "curated", table, "pictures", plan=Plan(n=40))
    ...     [path.name for path in sorted(made.folder.glob("D_*"))], len(read_table(made.table("test_u")))
    (['D_100.csv', 'D_50.csv', 'D_75.csv'], 80)
    """
    place = Path(folder)
    request = _Request(table, Path(os.path.abspath(root)), columns, plan, rule)
    curation = curate(table, columns, plan, rule)
    if (place / INFO_FILE).is_file():
        with TemporaryDirectory() as other:
            _check_same(read_curation(place), _fill(Path(other), request, curation), request.root)
    else:
        with new_folder(place) as new:
            _fill(new, request, curation)
    return read_curation(place)


def read_curation(folder: str | Path) -> Curated:
    """Read a folder of `write_curation`.

    Raises:
        DataError: it is no such folder, or a list of images is not as it was written.
    """
    place = Path(folder)
    info = _read_info(place)
    tables = {name: _read_set(place / f"{name}.csv", one) for name, one in info.sets.items()}
    sets = {
        part: {k: tables[name].ids for k in info.ks if (name := f"{prefix}_{k:g}") in tables}
        for part, prefix in PREFIXES.items()
    }
    balanced = tables[BALANCED]
    targets = dict(zip(balanced.ids, map(int, balanced.binary(TARGET)), strict=True))
    curation = Curation(
        **sets, balanced=balanced.ids, targets=targets, left_out=info.left_out, notes=info.notes
    )
    return Curated(place, curation, info)


def _read_info(folder: Path) -> CurationInfo:
    path = folder / INFO_FILE
    if not path.is_file():
        wanted = "a folder written by `fastdime data curate`"
        raise DataError(expected(str(folder), wanted, f"no {INFO_FILE} in it", "check the path"))
    try:
        info = checked(CurationInfo, read_json(path), str(path), DataError)
    except CheckpointError as error:  # as any JSON file that is none
        raise DataError(str(error)) from None
    if BALANCED not in info.sets:
        raise DataError(expected(str(path), f"a set {BALANCED}", "none", "curate again into a new folder"))
    return info


def _read_set(path: Path, info: SetInfo) -> Table:
    if not path.is_file() or _digest(path) != info.sha256:
        got = "another one" if path.is_file() else "none"
        remedy = "curate again into a new folder"
        raise DataError(expected(str(path), "the list of images that was written", got, remedy))
    return read_table(path)


@dataclass(frozen=True)
class _Request:
    """What is to be curated, and how."""

    table: Table
    root: Path
    columns: Columns
    plan: Plan
    rule: Rule

    def __post_init__(self) -> None:
        """Refuse what would be lost without a word."""
        if TARGET in (self.columns.task, self.columns.shortcut, self.group):
            wanted = f"another name than {TARGET!r}, which test_u.csv needs"
            raise InputError(expected("column", wanted, repr(TARGET), "rename it in the table"))
        if self.rule in SEEDS and self.plan.seed != PLAN.seed:
            wanted = f"none with the rule {self.rule!r}, which has its own"
            raise InputError(expected("seed", wanted, self.plan.seed, "use the rule 'balanced'"))
        names = Counter(f"{k:g}" for k in self.plan.ks)
        if len(names) < len(self.plan.ks):
            got = f"two that are {names.most_common(1)[0][0]}"
            raise InputError(expected("k", "percentages that differ in their first six digits", got))

    @property
    def split(self) -> str:
        """The column that says train, val or test."""
        return self.columns.split or (SPLIT if has(self.table, SPLIT) else NONE)

    @property
    def group(self) -> str:
        """The column whose groups are not parted."""
        return self.columns.group or (PATIENT if has(self.table, PATIENT) else NONE)

    def kept(self) -> Mapping[str, tuple[str, ...]]:
        """Return the column of patients, also if groups were parted: intervals and training need it."""
        name = PATIENT if self.group == NONE else self.group
        there = has(self.table, PATIENT) or self.group != NONE  # one that was named must be there
        apart = name not in (self.columns.task, self.columns.shortcut)
        return {name: self.table.text(name)} if there and apart else {}


def _fill(folder: Path, request: _Request, curation: Curation) -> CurationInfo:
    """Write everything into an empty folder."""
    try:
        (folder / IMAGES).symlink_to(request.root, target_is_directory=True)
    except OSError as error:
        raise not_writable(folder / IMAGES, error) from error
    whole = _plain(request, folder / IMAGES)
    places = {name: row for row, name in enumerate(whole.ids)}
    sets: dict[str, SetInfo] = {}
    for name, ids in _sets(curation):
        part = whole.take(places[one] for one in ids)
        if name == BALANCED:
            targets = tuple(float(curation.targets[one]) for one in ids)
            part = replace(part, labels={**part.labels, TARGET: targets})
        sets[name] = _write_set(part, folder / f"{name}.csv", request.columns)
    info = _info(request, curation, sets)
    write_atomically(folder / INFO_FILE, (info.model_dump_json(indent=2) + "\n").encode())
    return info


def _plain(request: _Request, link: Path) -> Table:
    """Return the table with nothing but the columns that lists of images have, and paths through the link."""
    table, columns, root = request.table, request.columns, request.root
    paths = [Path(os.path.abspath(path)) for path in table.paths]
    for name, path in zip(table.ids, paths, strict=True):
        if not path.is_relative_to(root):
            remedy = "give the folder that holds all images with --root"
            raise DataError(expected(f"image {name!r}", f"a file below {root}", path, remedy))
    labels = {name: tuple(map(float, table.binary(name))) for name in (columns.task, columns.shortcut)}
    return Table(table.ids, tuple(link / path.relative_to(root) for path in paths), labels, request.kept())


def _sets(curation: Curation) -> Iterator[tuple[str, tuple[str, ...]]]:
    for part, prefix in PREFIXES.items():
        for k, ids in getattr(curation, part).items():
            yield f"{prefix}_{k:g}", ids
    yield BALANCED, curation.balanced


def _write_set(table: Table, path: Path, columns: Columns) -> SetInfo:
    write_table(table, path, path.parent)
    pairs = zip(table.labels[columns.task], table.labels[columns.shortcut], strict=True)
    found: Counter[Cell] = Counter((int(task), int(shortcut)) for task, shortcut in pairs)
    cells = tuple(CellSize(task=cell[0], shortcut=cell[1], images=found[cell]) for cell in CELLS)
    return SetInfo(images=len(table), cells=cells, sha256=_digest(path))


def _info(request: _Request, curation: Curation, sets: dict[str, SetInfo]) -> CurationInfo:
    plan, source = request.plan, Path(request.table.source)
    return CurationInfo(
        fastdime=__version__,
        rule=request.rule,
        task=request.columns.task,
        shortcut=request.columns.shortcut,
        split=request.split,
        group=request.group,
        ks=plan.ks,
        n=plan.n,
        n_test=plan.n_test,
        n_balanced=plan.n_balanced,
        seed=SEEDS.get(request.rule, plan.seed),
        table=TableInfo(
            name=source.name,
            images=len(request.table),
            sha256=_digest(source) if source.is_file() else None,
        ),
        sets=sets,
        left_out=dict(curation.left_out),
        notes=(*curation.notes, *_few(sets)),
    )


def _few(sets: Mapping[str, SetInfo]) -> Iterator[str]:
    """Say in one sentence which sets have a small cell; that k = 100 leaves cells empty is its meaning."""
    least = {name: min(cell.images for cell in one.cells if cell.images) for name, one in sets.items()}
    if small := [f"{name} ({size})" for name, size in least.items() if size < FEW]:
        yield f"cells of fewer than {FEW} images: {', '.join(small)}"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_same(found: Curated, wanted: CurationInfo, root: Path) -> None:
    """Refuse a folder that has another curation."""
    for name in ASKED:
        old, new = getattr(found.info, name), getattr(wanted, name)
        if old != new:
            told = f"the folder has {_words(old)}, you ask for {_words(new)}"
            raise InputError(f"{found.folder}: {name}: {told}; {ANOTHER}")
    if (found.info.sets, found.info.left_out) != (wanted.sets, wanted.left_out):
        got = "those of another table"
        raise InputError(expected(str(found.folder), "lists of the same images", got, ANOTHER))
    link = found.folder / IMAGES
    if os.path.realpath(link) != os.path.realpath(root):
        got = os.path.realpath(link) if os.path.lexists(link) else "none"
        raise InputError(expected(str(link), f"a link to {root}", got, f"mend it, or {ANOTHER}"))


def _words(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(f"{part:g}" for part in value)
    return "none" if value is None else str(value)
