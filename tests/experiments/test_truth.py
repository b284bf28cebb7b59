"""Scores against the exact counterfactual: known for the exact answer, for doing nothing, and in between."""

import pytest
import torch
from torch import Tensor

from fastdime.experiments.truth import DIRECTIONS, Direction, Judges, Pairs, pairs, score, widened


class Says:
    """A judge that finds a bright can: the mean of the brightest pixels."""

    def __init__(self, sharp: float = 1.0) -> None:
        self.sharp = sharp

    def logits(self, x: Tensor, time: Tensor) -> Tensor:
        assert not time.any()
        return self.sharp * x.mean((1, 2, 3))[:, None]


def square(value: float, n: int = 2) -> Tensor:
    x = torch.full((n, 1, 16, 16), -0.5)
    x[:, :, 4:8, 4:8] = value
    return x


JUDGES = Judges(Says(), Says(), Says(), Says(10.0))


def test_the_exact_answer_and_no_answer() -> None:
    drawn = Pairs(square(1.0), square(-0.5), 0)
    exact, nothing = score(drawn, drawn.truth, JUDGES), score(drawn, drawn.x, JUDGES)
    assert exact["region_error_ratio"] == exact["full_error_ratio"] == exact["outside_change"] == 0
    assert nothing["region_error_ratio"] == nothing["full_error_ratio"] == 1
    assert nothing["l1"] == nothing["task_change"] == 0
    # 16 of 256 pixels change by .75 of the range.
    assert exact["l1"] == pytest.approx(0.75 * 16 / 256)
    means = [x.mean() for x in (drawn.x, drawn.truth)]
    assert exact["task_change"] == pytest.approx(float((10 * means[0]).sigmoid() - (10 * means[1]).sigmoid()))


def test_half_of_the_way_and_a_change_outside() -> None:
    drawn = Pairs(square(1.0), square(-0.5), 0)
    made = square(0.25)
    made[:, :, 15, 15] += 0.5
    made[:, :, 8, 8] += 0.5  # within three pixels of the region: not outside
    result = score(drawn, made, JUDGES)
    assert result["region_error_ratio"] == pytest.approx(0.5)
    outside = 256 - 10 * 10
    assert result["outside_change"] == pytest.approx(0.25 / outside)
    assert result["full_error_ratio"] == pytest.approx((0.5 * 0.75 * 16 + 2 * 0.25) / (0.75 * 16))


def test_every_pixel_of_all_regions_counts_the_same() -> None:
    x, truth = square(1.0), square(-0.5)
    truth[1, :, :4] = 1.0  # the region of the second image is larger
    drawn, made = Pairs(x, truth, 0), x.clone()
    made[0] = truth[0]
    error, nothing = ((truth - images).abs()[drawn.region].mean() for images in (made, x))
    assert score(drawn, made, JUDGES)["region_error_ratio"] == pytest.approx(float(error / nothing))
    assert 0.5 < error / nothing < 1


@pytest.mark.parametrize(("target", "shares"), [(0, (0.5, 1.0, 0.0, 0.5)), (1, (0.5, 0.0, 1.0, 0.5))])
def test_judges_are_asked_for_the_target(target: int, shares: tuple[float, ...]) -> None:
    drawn = Pairs(torch.zeros(2, 1, 16, 16), torch.ones(2, 1, 16, 16), target)
    made = torch.stack([torch.full((1, 16, 16), 0.5), torch.full((1, 16, 16), -0.5)])

    class Always:
        def __init__(self, answer: float) -> None:
            self.answer = answer

        def logits(self, x: Tensor, time: Tensor) -> Tensor:
            return torch.full((len(x), 1), self.answer)

    result = score(drawn, made, Judges(Says(), Says(), Always(-1.0), Says()))
    assert (result["guide_flip"], result["complete_flip"]) == shares[:2]
    result = score(drawn, made, Judges(Says(), Says(), Always(1.0), Says()))
    assert (result["complete_flip"], result["oracle_flip"]) == shares[2:]


def test_pairs_are_the_same_subjects_both_ways() -> None:
    remove, add = (pairs("skin-ruler", 40, direction) for direction in DIRECTIONS)
    assert torch.equal(remove.x, add.truth)
    assert torch.equal(remove.truth, add.x)
    assert (remove.target, add.target) == (0, 1)
    assert remove.x.shape == (40, 3, 64, 64)
    assert remove.region.flatten(1).any(1).all()
    few: Direction = "add"
    assert torch.equal(pairs("skin-ruler", 3, few).x, add.x[:3])


def test_margin() -> None:
    region = torch.zeros(1, 1, 9, 9, dtype=torch.bool)
    region[0, 0, 4, 4] = True
    assert int(widened(region, 3).sum()) == 49
    assert torch.equal(widened(region, 0), region)
