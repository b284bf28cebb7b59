from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fastdime.errors import InputError
from fastdime.metrics.cout import cout, difference_map


def bright(images: Tensor) -> Tensor:
    """Class 1 is as probable as the mean image is bright."""
    p = (images.mean((1, 2, 3)) + 1) / 2
    return torch.stack([1 - p, p], dim=1)


def by_hand(x: Tensor, x_cf: Tensor, probabilities: Callable[[Tensor], Tensor], steps: int) -> list[float]:
    """The published rule for class 0 and target 1, image by image and pixel by pixel."""
    scores = []
    for image, other in zip(x, x_cf, strict=True):
        change = (other - image).abs().sum(0).flatten()
        change = (change - change.min()) / (change - change.min()).max()
        order = sorted(range(len(change)), key=lambda place: -float(change[place]))  # Python's sort is stable
        step = max(1, len(change) // steps)
        mixed, curve = image.clone(), []
        for first in range(0, len(change) + step, step):
            curve.append(probabilities(mixed[None])[0])
            for place in order[first : first + step]:
                row, column = divmod(place, image.shape[2])
                mixed[:, row, column] = other[:, row, column]
        area = sum(curve[1:-1], (curve[0] + curve[-1]) / 2)
        scores.append(float(area[1] - area[0]) * step / len(change))
    return scores


def pair(size: tuple[int, int] = (9, 13), images: int = 3) -> tuple[Tensor, Tensor]:
    """Coarse values, so that many pixels change equally."""
    generator = torch.Generator().manual_seed(0)
    x, x_cf = (torch.randint(-4, 5, (images, 3, *size), generator=generator) / 4 for _ in range(2))
    return x, x_cf


@pytest.mark.parametrize("steps", [1, 7, 50, 1000])
def test_the_score_is_the_published_rule_with_ties_in_reading_order(steps: int) -> None:
    x, x_cf = pair()
    weights = torch.linspace(-1, 1, x[0].numel()).view(x[0].shape)  # which pixel comes first shows

    def placed(images: Tensor) -> Tensor:
        p = (images * weights).sum((1, 2, 3)).sigmoid()
        return torch.stack([1 - p, p], dim=1)

    own = cout(x, x_cf, placed, 0, 1, steps)
    assert own.score.tolist() == pytest.approx(by_hand(x, x_cf, placed, steps), abs=1e-5)


@pytest.mark.parametrize(
    ("pixels", "step", "points"), [((16, 16), 5, 53), ((4, 4), 1, 17), ((10, 10), 2, 51)]
)
def test_the_last_partial_step_counts_as_a_full_one(pixels: tuple[int, int], step: int, points: int) -> None:
    x, x_cf = pair(pixels)
    result = cout(x, x_cf, bright, 0, 1)
    assert result.original_curve.shape == result.target_curve.shape == (3, points)
    assert result.share.tolist() == pytest.approx([k * step / (pixels[0] * pixels[1]) for k in range(points)])
    torch.testing.assert_close(result.target_curve[:, 0], bright(x)[:, 1].double())
    torch.testing.assert_close(result.target_curve[:, -1], bright(x_cf)[:, 1].double())


def test_the_most_changed_pixels_come_first() -> None:
    x, x_cf = torch.full((1, 1, 10, 10), -1.0), torch.full((1, 1, 10, 10), -0.9)
    x_cf[0, 0, 9, 8:] = 1.0
    curve = cout(x, x_cf, lambda images: bright(images[:, :, 9:, 8:]), 0, 1).target_curve[0]
    assert curve[:3].tolist() == pytest.approx([0, 1, 1])


def test_few_pixels_that_suffice_score_higher_than_many() -> None:
    x = torch.full((2, 1, 10, 10), -1.0)
    x_cf = x.clone()
    x_cf[0, 0, 3, 3:5] = 1.0
    x_cf[1] = 1.0

    def any_light(images: Tensor) -> Tensor:
        return bright(images.flatten(2).amax(2)[:, :, None, None])

    def all_light(images: Tensor) -> Tensor:
        return bright(images.flatten(2).amin(2)[:, :, None, None])

    few, many = cout(x, x_cf, any_light, 0, 1).score, cout(x, x_cf, all_light, 0, 1).score
    assert few.tolist() == pytest.approx([0.98, 0.98])
    assert many.tolist() == pytest.approx([-1.0, -0.98])


def test_an_image_that_did_not_change_has_flat_curves_and_a_score() -> None:
    x, x_cf = pair((10, 10))
    x_cf[1] = x[1]
    result = cout(x, x_cf, bright, 0, 1)
    p = bright(x)[1]
    assert result.score[1].item() == pytest.approx(float(p[1] - p[0]))
    assert result.target_curve[1].std() < 1e-7
    assert difference_map(x, x_cf)[1].abs().max() == 0
    assert result.score.isfinite().all()


def test_each_image_has_its_own_classes_and_no_other_image_matters() -> None:
    x, x_cf = pair()
    original, target = torch.tensor([0, 1, 0]), torch.tensor([1, 0, 0])
    together = cout(x, x_cf, bright, original, target).score
    for row in range(3):
        one = slice(row, row + 1)
        alone = cout(x[one], x_cf[one], bright, int(original[row]), int(target[row])).score
        torch.testing.assert_close(alone, together[one])
    assert together[2] == 0
    swapped = cout(x, x_cf, bright, target, original).score
    torch.testing.assert_close(swapped, -together)


def test_no_gradient_is_kept_and_nothing_is_changed() -> None:
    x, x_cf = pair()
    weight = torch.ones((), requires_grad=True)
    copies = x.clone(), x_cf.clone()
    result = cout(x.requires_grad_(), x_cf, lambda images: bright(images * weight), 0, 1)
    assert not result.score.requires_grad
    assert torch.equal(x, copies[0])
    assert torch.equal(x_cf, copies[1])


def test_bad_input_is_one_sentence() -> None:
    x, x_cf = pair()
    nan = torch.full((3, 2), float("nan"))
    cases = {
        "x_cf: expected the shape of x": lambda: cout(x, x_cf[:2], bright, 0, 1),
        "steps: expected a whole number >= 1": lambda: cout(x, x_cf, bright, 0, 1, 0),
        "class: expected a number from 0 to 1, got 2": lambda: cout(x, x_cf, bright, 0, 2),
        "class: expected a number from 0 to 1, got -1": lambda: cout(x, x_cf, bright, -1, 1),
        "target: expected one class or 3 classes": lambda: cout(x, x_cf, bright, 0, torch.tensor([1, 0])),
        "original: expected one class or 3": lambda: cout(x, x_cf, bright, torch.tensor([0.0, 1, 0]), 1),
        "probabilities: expected shape (3, classes), got (3,)": lambda: cout(
            x, x_cf, lambda images: bright(images)[:, 1], 0, 1
        ),
        "probabilities: expected values in [0, 1], got [nan, nan]": lambda: cout(
            x, x_cf, lambda images: nan, 0, 1
        ),
        "probabilities: expected values in [0, 1]": lambda: cout(
            x, x_cf, lambda images: 5 * bright(images), 0, 1
        ),
    }
    for sentence, wrong in cases.items():
        with pytest.raises(InputError) as caught:
            wrong()
        assert str(caught.value).startswith(sentence)
        assert "\n" not in str(caught.value)
