"""A phantom as a pool to curate from: many training images, and test images with their truth."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from fastdime.data.phantoms.write import PhantomSet, write_phantom
from fastdime.data.table import SPLIT, Table, read_table

TRAIN_SEED, TEST_SEED = 44_000, 45_000  # of subjects that no bundle has seen
TRAIN, TEST_K, TEST_U = 2000, 400, 200  # images of D_k, test_k and test_u unless asked for others
VAL_SHARE = 0.1
Show = Callable[[str], AbstractContextManager[Callable[[float, int], None]]]


def pool_sizes(n: int, n_test: int, n_balanced: int) -> tuple[int, int]:
    """Return how many images to draw for training and for tests.

    D_100 takes its images from two of four cells; a little more, because cells vary.
    """
    return round(2.2 * n / (1 - VAL_SHARE)) + 40, round(max(2.2 * n_test, 1.3 * n_balanced)) + 20


def phantom_pool(name: str, train: int, test: int, out: Path, show: Show) -> Table:
    """Write two sets with independent shortcut and task, and return them as one table with splits.

    Args:
        train: images to train and validate on; without truth, which takes longer to draw.
        test: images with their exact counterfactuals.
    """
    splits = {"train": 1 - VAL_SHARE, "val": VAL_SHARE}
    wanted = {
        "train": PhantomSet(name, train, 50, TRAIN_SEED, splits=splits, truth=False),
        "test": PhantomSet(name, test, 50, TEST_SEED, splits={"test": 1.0}),
    }
    tables = []
    for part, which in wanted.items():
        with show(f"{part} images") as progress:
            tables.append(read_table(write_phantom(out / part, which, progress)))
    return _joined(*tables)


def _joined(first: Table, second: Table) -> Table:
    """Put the rows of two tables of one phantom together."""
    labels = {name: first.labels[name] + second.labels[name] for name in ("task", "shortcut", "placebo")}
    splits = {SPLIT: first.groups[SPLIT] + second.groups[SPLIT]}
    return Table(first.ids + second.ids, first.paths + second.paths, labels, splits)
