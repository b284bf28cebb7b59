"""Training and test sets with a planted correlation, as lists of ids."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Literal

from fastdime.audit.cells import (
    CELLS,
    Cell,
    Columns,
    Curation,
    Plan,
    Pool,
    counts,
    ids,
    labelled,
    pool,
    targets,
)
from fastdime.audit.published import celeba, medical
from fastdime.data.choice import choose
from fastdime.data.splits import NONE, PARTS, check_whole, groups_of, has, parts_of
from fastdime.data.table import SPLIT, Table
from fastdime.errors import DataError, InputError, expected, unknown

TEST_SHARE, VAL_SHARE = 0.2, 0.1  # of a split that is made here
FEW = 10  # images of a cell, below which a note says so
Rule = Literal["balanced", "celeba", "medical"]
COLUMNS, PLAN = Columns(), Plan()


def curate(table: Table, columns: Columns = COLUMNS, plan: Plan = PLAN, rule: Rule = "balanced") -> Curation:
    """Choose images so that the shortcut goes with the task in k percent of them.

    The rule `balanced` has as many images of task 0 as of task 1 and the same number for every k, prefers
    labels of a person to predictions, keeps patients on one side, and does not depend on the order of rows.
    D_75 has the images of D_100 in it as far as it can. `celeba` and `medical` are the published curations.

    Raises:
        InputError: a column or a rule is not known.
        DataError: a cell has too few images; the sentence names it.

    >>> from pathlib import Path
    >>> names = tuple(f"{number:03}" for number in range(400))
    >>> labels = {"task": (1, 1, 0, 0) * 100, "shortcut": (1, 0) * 200}
    >>> found = curate(Table(names, tuple(map(Path, names)), labels), plan=Plan(n=40))
    >>> [len(found.train[k]) for k in (100, 75, 50)], len(found.balanced)
    ([40, 40, 40], 80)
    """
    rules: Mapping[str, Callable[[Table, Columns, Plan], Curation]]
    rules = {"balanced": _balanced, "celeba": celeba, "medical": medical}
    if rule not in rules:
        raise InputError(unknown("rule", rule, rules))
    return rules[rule](table, columns, plan)


def _balanced(table: Table, columns: Columns, plan: Plan) -> Curation:
    rows, left_out = labelled(table, columns)
    parts, unsplit = _parts(table, columns, rows, plan.seed)
    pools = {name: _pool(table, columns, name, parts[name], plan.seed) for name in PARTS}
    sizes = {
        "train": _per_class(pools["train"], plan.ks, plan.n, "D"),
        "val": _most(pools["val"], plan.ks),
        "test": _per_class(pools["test"], plan.ks, plan.n_test, "test"),
    }
    per_cell = _per_class(pools["test"], (50.0,), plan.n_balanced, "test_u", unit=2) // 2
    balanced = _taken(pools["test"], dict.fromkeys(CELLS, per_cell))
    sets = {
        name: {k: ids(table, _sorted(table, _taken(pools[name], counts(k, sizes[name])))) for k in plan.ks}
        for name in PARTS
    }
    return Curation(
        sets["train"],
        sets["val"] if sizes["val"] else {},
        sets["test"],
        ids(table, _sorted(table, balanced)),
        targets(table, columns, _sorted(table, balanced)),
        left_out | unsplit,
        tuple(_notes(pools, sizes, per_cell)),
    )


def _pool(table: Table, columns: Columns, name: str, rows: Iterable[int], seed: int) -> Pool:
    """Bring the rows of each cell into the order in which they are taken: random, but the surest first."""
    mixed = sorted(rows, key=lambda row: _ticket(seed, "image", table.ids[row]))
    for column in (columns.task, columns.shortcut):  # the shortcut last: it decides first
        mixed = choose(table, column, len(mixed), mixed)
    return pool(table, columns, name, mixed)


def _ticket(seed: int, kind: str, name: str) -> bytes:
    """Return a random place in a queue that depends on nothing but its name."""
    return hashlib.blake2b(repr((seed, kind, name)).encode(), digest_size=16).digest()


def _taken(cells: Pool, wanted: Mapping[Cell, int]) -> list[int]:
    return [row for cell in CELLS for row in cells.rows[cell][: wanted[cell]]]


def _sorted(table: Table, rows: Iterable[int]) -> list[int]:
    return sorted(rows, key=lambda row: table.ids[row])


def _least(ks: Sequence[float], unit: int = 1) -> int:
    """Return how many images of each task label show every k: fewer would round it to 0 or 100."""
    return next(n for n in count(unit, unit) if all(0 < counts(k, n)[1, 1] < n for k in ks if 0 < k < 100))


def _most(cells: Pool, ks: Sequence[float], unit: int = 1) -> int:
    """Return how many images of each task label there can be for every k; 0 if too few to show it."""
    sizes = cells.sizes()

    def fits(per_class: int) -> bool:
        return all(counts(k, per_class)[cell] <= sizes[cell] for k in ks for cell in CELLS)

    low, high = 0, sum(sizes.values()) // unit  # what fits stops fitting once and for all
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle * unit) else (low, middle - 1)
    return low * unit if low * unit >= _least(ks, unit) else 0


def _per_class(cells: Pool, ks: Sequence[float], n: int | None, name: str, unit: int = 1) -> int:
    """Return the number of images of each task label: half of n, or as many as there can be."""
    least = _least(ks, unit)
    per_class = (_most(cells, ks, unit) or least) if n is None else n // 2
    if per_class < least:
        raise InputError(expected(f"images of {name}", f"at least {2 * least}, to show every k", n))
    for k in ks:
        purpose = name if name == "test_u" else f"{name}_{k:g}"
        cells.needs(counts(k, per_class), f"{purpose} of {2 * per_class} images")
    return per_class


def _notes(pools: Mapping[str, Pool], sizes: Mapping[str, int], per_cell: int) -> Iterable[str]:
    for name, per_class in sizes.items():
        cells = pools[name].sizes()
        smallest = min(CELLS, key=lambda cell: cells[cell])
        words = pools[name].words(smallest)
        if not per_class:
            yield f"{name}: no images, because there are {cells[smallest]} with {words}"
        elif cells[smallest] < FEW:
            yield f"{name}: {per_class} images of each label; only {cells[smallest]} have {words}"
    if per_cell < FEW:
        yield f"test_u: {per_cell} images in each cell, too few to conclude much"


def _parts(
    table: Table, columns: Columns, rows: Sequence[int], seed: int
) -> tuple[dict[str, list[int]], dict[str, int]]:
    """Return the rows of each part, and how many rows have none."""
    groups = groups_of(table, columns.group)
    if columns.split == NONE or (columns.split is None and not has(table, SPLIT)):
        part_of = _dealt(table, columns, rows, groups, (TEST_SHARE, VAL_SHARE), seed)
        return _rows_of(part_of, PARTS), {}
    splits = parts_of(table, columns.split or SPLIT, "mend the table")
    remedy = "make a new split with split 'none', or part groups with group 'none'"
    check_whole(table, columns.group, splits, remedy)
    parts = _rows_of({row: splits[row] for row in rows}, (*PARTS, ""))
    blank = len(parts.pop(""))
    for name in ("train", "test"):
        if not parts[name]:
            remedy = "make a new split with split 'none'"
            raise DataError(expected(f"column {columns.split or SPLIT!r}", f"rows of {name}", "none", remedy))
    if not parts["val"]:
        dealt = _dealt(table, columns, parts["train"], groups, (0.0, VAL_SHARE), seed)
        parts |= _rows_of(dealt, ("train", "val"))
    return parts, {"blank split": blank} if blank else {}


def _rows_of(part_of: Mapping[int, str], names: Iterable[str]) -> dict[str, list[int]]:
    return {name: [row for row, part in part_of.items() if part == name] for name in names}


def _dealt(
    table: Table,
    columns: Columns,
    rows: Sequence[int],
    groups: Sequence[str],
    shares: tuple[float, float],
    seed: int,
) -> dict[int, str]:
    """Deal whole groups to test, val and train, so that each part gets its share of the rare cells."""
    task, shortcut = table.binary(columns.task), table.binary(columns.shortcut)
    cell_of = {row: (int(task[row]), int(shortcut[row])) for row in rows}
    size = Counter(cell_of.values())
    rarest: dict[str, Cell] = {}
    for row, cell in cell_of.items():
        group = groups[row]
        rarest[group] = min(cell, rarest.get(group, cell), key=lambda one: (size[one], one))
    part_of: dict[str, str] = {}
    for cell in CELLS:
        queue = sorted(
            (group for group in rarest if rarest[group] == cell), key=lambda g: _ticket(seed, "group", g)
        )
        part_of |= {group: _part((place + 0.5) / len(queue), shares) for place, group in enumerate(queue)}
    return {row: part_of[groups[row]] for row in rows}


def _part(place: float, shares: tuple[float, float]) -> str:
    test, val = shares
    return "test" if place < test else "val" if place < test + val else "train"
