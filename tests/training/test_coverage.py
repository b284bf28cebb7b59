"""Coverage: what a guide looks at, against the truth."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from fastdime.classifiers.wrapper import ImageClassifier
from fastdime.data.phantoms.write import PhantomSet, write_phantom
from fastdime.data.table import read_table
from fastdime.errors import InputError
from fastdime.training.coverage import coverage, phantom_coverage


def looking_at(place: Tensor) -> ImageClassifier:
    """A classifier whose gradient is 1 at these pixels."""
    return ImageClassifier(lambda x: (x * place).sum((1, 2, 3))[:, None])


def square(first: int, last: int) -> Tensor:
    region = torch.zeros(16, 16, dtype=torch.bool)
    region[first:last, first:last] = True
    return region[None, None]


X = torch.zeros(3, 1, 16, 16)
REGION = square(4, 12).expand(3, -1, -1, -1)


def test_a_guide_that_sees_all_and_nothing_else() -> None:
    found = coverage(looking_at(square(4, 12)), X, REGION)
    assert (found.images, found.gradient_inside, found.region_covered) == (3, 1.0, 1.0)
    assert found.region_area == 0.25


def test_a_guide_that_sees_a_part() -> None:
    found = coverage(looking_at(square(4, 6)), X, REGION)
    assert found.gradient_inside == 1
    assert found.region_covered == pytest.approx(9 / 64, abs=1e-4)  # two pixels and the next, each way


def test_a_guide_that_looks_elsewhere_or_everywhere() -> None:
    assert coverage(looking_at(square(13, 16)), X, REGION).gradient_inside == 0
    everywhere = coverage(looking_at(square(0, 16)), X, REGION)
    assert (everywhere.gradient_inside, everywhere.region_covered) == (0.25, 1.0)


def test_pairs_that_do_not_fit() -> None:
    with pytest.raises(InputError, match="pairs of one size"):
        coverage(looking_at(square(4, 12)), X, REGION[:2])


def test_a_phantom_has_its_truth(tmp_path: Path) -> None:
    guide = ImageClassifier(lambda x: x.mean((1, 2, 3))[:, None])
    table = read_table(write_phantom(tmp_path / "with", PhantomSet("chest-drain", 6, seed=1, size=32)))
    found = phantom_coverage(guide, table, "shortcut", 32)
    assert found is not None
    assert found.images == sum(table.column("shortcut"))
    assert found.gradient_inside == pytest.approx(found.region_area, abs=1e-3)
    bare = write_phantom(tmp_path / "without", PhantomSet("chest-drain", 6, seed=1, size=32, truth=False))
    assert phantom_coverage(guide, read_table(bare), "shortcut", 32) is None
