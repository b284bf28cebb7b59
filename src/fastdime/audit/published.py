"""The curations of the published programs, row for row; they depend on the order of the table."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fastdime.audit.cells import CELLS, Cell, Columns, Curation, Plan, Pool, ids, labelled, pool, targets
from fastdime.data.table import SPLIT, Table
from fastdime.errors import DataError, InputError, expected

CELEBA_SEED, MEDICAL_SEED = 4, 42
CELEBA_SIZES = {"n": 10_000, "n_test": 1_000, "n_balanced": 2_000}
MULTIPLE = 4  # of the sizes of medical cells, so that quarters of them are whole


def celeba(table: Table, columns: Columns, plan: Plan) -> Curation:
    """Curate as the CelebA program does: test_u comes from the split val, and rows are in table order.

    >>> from pathlib import Path
    >>> labels = {"task": (1, 1, 0, 0) * 6, "shortcut": (1, 0) * 12}
    >>> splits = ("train",) * 8 + ("val",) * 8 + ("test",) * 8
    >>> names = tuple("abcdefghijklmnopqrstuvwx")
    >>> table = Table(names, tuple(map(Path, names)), labels, {"split": splits})
    >>> celeba(table, Columns(), Plan(ks=(100,), n=2, n_test=2, n_balanced=4)).train[100]
    ('e', 'h')
    """
    pools, left_out = _pools(table, columns)
    n, n_test, n_balanced = (getattr(plan, name) or size for name, size in CELEBA_SIZES.items())

    def sampled(split: str, k: float, images: int, name: str) -> list[int]:
        per_class = images // 2
        follows = int(per_class * (k / 100))  # cut off, not rounded, as there
        wanted = _sizes(follows, per_class - follows)
        return sorted(_sample(pools[split], wanted, CELEBA_SEED, name))

    balanced = sampled("val", 50, n_balanced, "test_u")
    return Curation(
        {k: ids(table, sampled("train", k, n, f"D_{k:g}")) for k in plan.ks},
        {},
        {k: ids(table, sampled("test", k, n_test, f"test_{k:g}")) for k in plan.ks},
        ids(table, balanced),
        targets(table, columns, balanced),
        left_out,
    )


def medical(table: Table, columns: Columns, plan: Plan) -> Curation:
    """Curate as the medical programs do: sizes follow from the smallest cell, rows are in drawn order.

    The published program writes no test_k; here it is drawn from the split test as D_k is from train.

    Raises:
        InputError: the plan has sizes, which this rule does not know.
    """
    if given := [name for name in CELEBA_SIZES if getattr(plan, name) is not None]:
        got = f"{given[0]} = {getattr(plan, given[0])}"
        raise InputError(expected("sizes", "none with the rule 'medical'", got, "use the rule 'balanced'"))
    pools, left_out = _pools(table, columns)
    base, test_base = _base(pools["train"]), _base(pools["test"])

    def sampled(split: str, k: float, most: int, name: str) -> tuple[str, ...]:
        size = most // MULTIPLE * MULTIPLE
        wanted = _sizes(int(size * k / 100), int(size * (100 - k) / 100))
        return ids(table, _sample(pools[split], wanted, MEDICAL_SEED, name))

    balanced = _sample(pools["test"], _sizes(test_base, test_base), MEDICAL_SEED, "test_u")
    return Curation(
        {k: sampled("train", k, base, f"D_{k:g}") for k in plan.ks},
        {},
        {k: sampled("test", k, test_base, f"test_{k:g}") for k in plan.ks},
        ids(table, balanced),
        targets(table, columns, balanced),
        left_out,
    )


def _pools(table: Table, columns: Columns) -> tuple[dict[str, Pool], dict[str, int]]:
    name = columns.split or SPLIT
    if name not in table.groups and name not in table.labels:
        raise InputError(
            expected("table", f"a column {name!r}, as published", "none", "use the rule 'balanced'")
        )
    rows, left_out = labelled(table, columns)
    splits = table.text(name)
    parts = {part: [row for row in rows if splits[row] == part] for part in ("train", "val", "test")}
    if other := len(rows) - sum(map(len, parts.values())):
        left_out["blank split"] = other
    return {part: pool(table, columns, part, some) for part, some in parts.items()}, left_out


def _base(cells: Pool) -> int:
    """Return the size of the smallest cell, where those against the shortcut count double."""
    return min(size if cell[0] == cell[1] else 2 * size for cell, size in cells.sizes().items())


def _sizes(follows: int, other: int) -> dict[Cell, int]:
    return {cell: follows if cell[0] == cell[1] else other for cell in CELLS}


def _sample(cells: Pool, wanted: Mapping[Cell, int], seed: int, purpose: str) -> list[int]:
    """Draw from each cell with the same seed, as pandas does with random_state."""
    if not any(wanted.values()):
        raise DataError(expected(f"{cells.name} images for {purpose}", "some in every cell", cells.sizes()))
    cells.needs(wanted, purpose)
    return [row for cell in CELLS for row in _drawn(cells.rows[cell], wanted[cell], seed)]


def _drawn(rows: Sequence[int], n: int, seed: int) -> Iterable[int]:
    places = np.random.RandomState(seed).choice(len(rows), n, replace=False) if n else ()
    return [rows[place] for place in places]
