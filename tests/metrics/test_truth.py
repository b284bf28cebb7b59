"""Truth metrics on images of a few pixels, counted by hand."""

import pytest
import torch
from torch import Tensor

from fastdime.data.phantoms.phantom import phantom
from fastdime.errors import InputError
from fastdime.metrics.truth import (
    difference_inside,
    mask_overlap,
    mask_recall,
    outside_change,
    placebo_change,
    pooled_error_ratio,
    region_error,
    region_error_ratio,
    residual,
    widened,
)


def area(rows: slice, columns: slice, n: int = 2) -> Tensor:
    region = torch.zeros(n, 1, 12, 12, dtype=torch.bool)
    region[:, :, rows, columns] = True
    return region


REGION = area(slice(2, 4), slice(2, 4))
X = torch.zeros(2, 3, 12, 12) + REGION
TRUTH = torch.zeros(2, 3, 12, 12)


def test_error_inside_the_region_of_each_image() -> None:
    made = TRUTH.clone()
    made[0, :, 2, 2] = 1.0  # one pixel of four is wrong by half of the range
    made[1, 0, 2, 2] = 1.0  # and here in one channel of three
    assert region_error(made, TRUTH, REGION).tolist() == pytest.approx([0.5 / 4, 0.5 / 12])
    assert region_error_ratio(X, made, TRUTH, REGION).tolist() == pytest.approx([1 / 4, 1 / 12])
    assert region_error_ratio(X, TRUTH, TRUTH, REGION).tolist() == [0, 0]
    assert region_error_ratio(X, X, TRUTH, REGION).tolist() == [1, 1]


def test_an_empty_region_is_nan_and_leaves_the_pooled_number_alone() -> None:
    region = REGION.clone()
    region[1] = False
    half = X / 2
    assert region_error(half, TRUTH, region).isnan().tolist() == [False, True]
    assert region_error_ratio(X, half, TRUTH, region).isnan().tolist() == [False, True]
    assert pooled_error_ratio(X, half, TRUTH, region) == pytest.approx(0.5)
    assert difference_inside(half, TRUTH, region).pooled == pytest.approx(0.25)
    assert torch.tensor(pooled_error_ratio(X, half, X, REGION)).isnan()  # nothing to mend


def test_a_large_region_counts_for_more_in_the_pooled_number_only() -> None:
    where = REGION.clone()
    where[1] = True
    other = TRUTH.clone()
    other[0] = 1.0
    inside = difference_inside(TRUTH, other, where)
    assert inside.per_image.tolist() == [0.5, 0]
    assert inside.pooled == pytest.approx(0.5 * 4 / (4 + 144))


def test_outside_begins_beyond_the_margin() -> None:
    made = TRUTH.clone()
    made[:, :, 6, 3] = 1.0  # three pixels from the region
    assert outside_change(TRUTH, made, REGION).tolist() == [0, 0]
    outside = 144 - 6 * 6
    assert outside_change(TRUTH, made, REGION, margin=2).tolist() == pytest.approx([0.5 / outside] * 2)
    assert outside_change(TRUTH, made, REGION, margin=12).isnan().all()  # nothing is so far


def test_margin_is_square() -> None:
    assert int(widened(REGION, 1)[0].sum()) == 16
    assert torch.equal(widened(REGION, 0), REGION)


def test_overlap_and_recall() -> None:
    mask = area(slice(2, 4), slice(3, 6))  # six pixels, two of them in the region of four
    assert mask_overlap(mask, REGION).tolist() == pytest.approx([2 / 8] * 2)
    assert mask_recall(mask.float(), REGION).tolist() == pytest.approx([2 / 4] * 2)
    none = torch.zeros_like(REGION)
    assert mask_overlap(none, REGION).tolist() == [0, 0]
    assert mask_overlap(none, none).isnan().all()
    assert mask_recall(mask, none).isnan().all()


def test_placebo_counts_where_it_shows_and_apart_from_the_shortcut() -> None:
    placebo = area(slice(3, 5), slice(2, 4))  # its upper two pixels belong to the shortcut too
    made = X.clone()
    made[:, :, 3, 2:4] = 0.0  # as the exact counterfactual does
    shows = torch.tensor([True, False])
    change = placebo_change(X, made, placebo, shows, REGION)
    assert change[0] == 0
    assert change[1].isnan()
    made[:, :, 4, 2] = 1.0
    assert placebo_change(X, made, placebo, shows, REGION)[0] == pytest.approx(0.5 / 2)
    assert placebo_change(X, made, REGION, shows, REGION).isnan().all()  # nothing is left


@pytest.mark.parametrize("name", ["chest-pacemaker", "skin-ruler", "face-smile"])
def test_the_exact_counterfactual_leaves_the_placebo_and_the_outside_alone(name: str) -> None:
    batch = phantom(name).render(15_300, range(8))
    shows = batch.placebo == 1
    assert 0 < int(shows.sum()) < 8
    change = placebo_change(batch.x, batch.other, batch.placebo_region, shows, batch.region)
    assert torch.equal(change.isnan(), ~shows)
    assert change[shows].max() < 0.005  # less than what makes a pixel part of the region
    removed = placebo_change(batch.x, batch.placebo_other, batch.placebo_region, shows, batch.region)
    assert removed[shows].min() > 0.04
    assert outside_change(batch.x, batch.other, batch.region).max() < 0.002
    assert mask_recall(batch.region, batch.region).tolist() == [1] * 8


def test_residual() -> None:
    before, exact = torch.tensor([1.0, 0.0, 2.0, 1.0]), torch.tensor([0.0, 1.0, 0.0, 1.0])
    assert residual(before, before, exact)[:3].tolist() == [1, 1, 1]
    assert residual(before, exact, exact)[:3].tolist() == [0, 0, 0]
    left = residual(before, torch.tensor([0.25, 0.25, -1.0, 0.0]), exact)
    assert left[:3].tolist() == [0.25, 0.75, -0.5]
    assert left[3].isnan()


def test_bad_input_is_one_clear_line() -> None:
    with pytest.raises(InputError, match=r"region: expected True or False of shape \(2, 1, 12, 12\), got"):
        region_error(X, TRUTH, REGION[:1])
    with pytest.raises(InputError, match=r"region: .* got torch.float32"):
        region_error(X, TRUTH, REGION.float())
    with pytest.raises(InputError, match=r"x_cf: expected the shape of x, \(2, 3, 12, 12\), got \(1, 3"):
        region_error(X, TRUTH[:1], REGION)
    with pytest.raises(InputError, match=r"expected values in \[-1, 1\], got \[nan, nan\]"):
        outside_change(X, X * torch.nan, REGION)
    with pytest.raises(InputError, match="at least one image"):
        region_error(X[:0], TRUTH[:0], REGION[:0])
    with pytest.raises(InputError, match="margin: expected a number of pixels >= 0, got -1"):
        outside_change(X, X, REGION, margin=-1)
    with pytest.raises(InputError, match="mask: expected 1 or 0 of shape"):
        mask_overlap(REGION * 0.5, REGION)
    with pytest.raises(InputError, match=r"region: expected shape \(b, 1, h, w\), got \(0, 1, 12, 12\)"):
        mask_recall(REGION[:0], REGION[:0])
    with pytest.raises(InputError, match="shows: expected True or False for each of 2 images"):
        placebo_change(X, X, REGION, torch.ones(2), REGION)
    with pytest.raises(InputError, match="scores after: expected 2 finite numbers, one an image, got NaN"):
        residual(torch.ones(2), torch.full((2,), torch.nan), torch.zeros(2))
