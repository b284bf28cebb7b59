"""What a curation is asked for and gives, and the four cells of task and shortcut that it draws from."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fastdime.data.table import Table
from fastdime.errors import DataError, InputError, expected

Cell = tuple[int, int]  # task, shortcut
CELLS: tuple[Cell, ...] = ((1, 1), (1, 0), (0, 1), (0, 0))
KS = (100.0, 75.0, 50.0)  # of the paper


@dataclass(frozen=True)
class Columns:
    """Which columns of a table mean what.

    Attributes:
        task, shortcut: labels of 0, 1 or nothing.
        split: says train, val or test; None = `split` if the table has it, "none" = make a new split.
        group: groups that no split may part; None = `patient` if the table has it, "none" = no column.
    """

    task: str = "task"
    shortcut: str = "shortcut"
    split: str | None = None
    group: str | None = None

    def __post_init__(self) -> None:
        """Refuse a shortcut that is the task."""
        if self.task == self.shortcut:
            got = f"{self.shortcut!r} for both"
            raise InputError(expected("shortcut", "another column than the task", got))


@dataclass(frozen=True)
class Plan:
    """How strong the correlations are, and how many images.

    Attributes:
        ks: percent of the images with task 1 that have the shortcut, and of those with task 0 that lack it.
        n, n_test, n_balanced: images of each D_k, of each test_k and of test_u; None = as many as there can
            be, or in the rule `celeba` the published numbers.
        seed: of the rule `balanced`; the published rules have their own.
    """

    ks: tuple[float, ...] = KS
    n: int | None = None
    n_test: int | None = None
    n_balanced: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse numbers that no curation can have."""
        if not self.ks or len(set(self.ks)) < len(self.ks) or not all(0 <= k <= 100 for k in self.ks):
            raise InputError(expected("k", "different percentages from 0 to 100", _listed(self.ks)))
        for name, n, unit in (
            ("n", self.n, 2),
            ("n_test", self.n_test, 2),
            ("n_balanced", self.n_balanced, 4),
        ):
            if n is not None and (n < unit or n % unit):
                wanted = f"a multiple of {unit}, so that {'labels' if unit == 2 else 'cells'} are balanced"
                raise InputError(expected(name, wanted, n))
        if self.seed < 0:
            raise InputError(expected("seed", "a whole number >= 0", self.seed))


@dataclass(frozen=True)
class Curation:
    """Ids of images; nothing is copied.

    Attributes:
        train: D_k by k, to train on.
        val: by k, drawn like D_k from other images, to choose a model by; empty where a rule has none.
        test: test_k by k, drawn like D_k from the test images.
        balanced: test_u, the same number of images in each cell.
        targets: for each id of test_u the shortcut label of its counterfactual; these make test_u^c.
        left_out: how many rows could not be used, by the reason.
        notes: sentences about what limits the sizes.
    """

    train: Mapping[float, tuple[str, ...]]
    val: Mapping[float, tuple[str, ...]]
    test: Mapping[float, tuple[str, ...]]
    balanced: tuple[str, ...]
    targets: Mapping[str, int]
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pool:
    """Rows by cell, in the order in which they are to be taken; `name` is for messages."""

    name: str
    columns: Columns
    rows: Mapping[Cell, Sequence[int]]

    def sizes(self) -> dict[Cell, int]:
        """Return the number of rows in each cell."""
        return {cell: len(self.rows[cell]) for cell in CELLS}

    def needs(self, wanted: Mapping[Cell, int], purpose: str) -> None:
        """Refuse numbers that are not there, with a sentence that names the cell that lacks most."""
        sizes = self.sizes()
        cell = max(CELLS, key=lambda one: wanted[one] - sizes[one])
        if wanted[cell] > sizes[cell]:
            count = f"at least {wanted[cell]} for {purpose}"
            remedy = "ask for fewer images or another k, or add images"
            what = f"{self.name} images with {self.words(cell)}"
            raise DataError(expected(what, count, sizes[cell], remedy))

    def words(self, cell: Cell) -> str:
        """Name a cell.

        >>> Pool("train", Columns("Sick", "Ruler"), {}).words((1, 0))
        'Sick 1 and Ruler 0'
        """
        return f"{self.columns.task} {cell[0]} and {self.columns.shortcut} {cell[1]}"


def pool(table: Table, columns: Columns, name: str, rows: Iterable[int]) -> Pool:
    """Sort rows into cells; they keep their order, and those with a blank label are left out."""
    task, shortcut = table.binary(columns.task), table.binary(columns.shortcut)
    cells: dict[Cell, list[int]] = {cell: [] for cell in CELLS}
    for row in rows:
        if not (math.isnan(task[row]) or math.isnan(shortcut[row])):
            cells[int(task[row]), int(shortcut[row])].append(row)
    return Pool(name, columns, cells)


def labelled(table: Table, columns: Columns) -> tuple[list[int], dict[str, int]]:
    """Return the rows that have both labels, and how many rows have not.

    Raises:
        DataError: a column has one label alone.
    """
    task, shortcut = table.binary(columns.task), table.binary(columns.shortcut)
    blank = {row for row, pair in enumerate(zip(task, shortcut, strict=True)) if any(map(math.isnan, pair))}
    kept = [row for row in range(len(table)) if row not in blank]
    for name, values in ((columns.task, task), (columns.shortcut, shortcut)):
        found = {int(values[row]) for row in kept}
        if len(found) < 2:
            got = f"only {found.pop()} in {len(kept)} labelled images" if found else "no labelled image"
            remedy = "check the column or add images"
            raise DataError(expected(f"column {name!r}", "images with 0 and with 1", got, remedy))
    return kept, {"blank label": len(blank)} if blank else {}


def concordant(k: float, per_class: int) -> int:
    """Return how many of the images of one task label follow the shortcut.

    >>> concordant(75, 6)
    5
    """
    return math.floor(per_class * k / 100 + 0.5)


def counts(k: float, per_class: int) -> dict[Cell, int]:
    """Return the size of each cell for a correlation.

    >>> counts(75, 100)
    {(1, 1): 75, (1, 0): 25, (0, 1): 25, (0, 0): 75}
    """
    follows = concordant(k, per_class)
    return {cell: follows if cell[0] == cell[1] else per_class - follows for cell in CELLS}


def targets(table: Table, columns: Columns, rows: Iterable[int]) -> dict[str, int]:
    """Return the other shortcut label of each image, by id."""
    shortcut = table.binary(columns.shortcut)
    return {table.ids[row]: 1 - int(shortcut[row]) for row in rows}


def ids(table: Table, rows: Iterable[int]) -> tuple[str, ...]:
    """Return the ids of rows."""
    return tuple(table.ids[row] for row in rows)


def _listed(ks: Iterable[float]) -> str:
    return ", ".join(f"{k:g}" for k in ks) or "none"
