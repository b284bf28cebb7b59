from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fastdime.errors import InputError
from fastdime.metrics.closeness import changed_area, l1, l2, ssim

ALL = (l1, l2, ssim, changed_area)


def pair(channels: int = 3, size: tuple[int, int] = (24, 17), images: int = 4) -> tuple[Tensor, Tensor]:
    """Images, and the same with noise in a corner; the second pair is bright and nearly flat."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand((images, channels, *size), generator=generator) * 2 - 1
    x[1] = 0.99 + 0.01 * x[1]
    x_cf = x.clone()
    x_cf[:, :, :12, :9] = (
        x_cf[:, :, :12, :9] + 0.3 * torch.randn(x[:, :, :12, :9].shape, generator=generator)
    ).clamp(-1, 1)
    return x, x_cf


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(24, 17), (11, 11), (32, 32)])
def test_ssim_is_that_of_skimage(channels: int, size: tuple[int, int]) -> None:
    metrics = pytest.importorskip("skimage.metrics", reason="scikit-image is not installed")
    x, x_cf = pair(channels, size)
    theirs = [
        metrics.structural_similarity(
            ((a + 1) / 2).double().numpy(),
            ((b + 1) / 2).double().numpy(),
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
            data_range=1,
            channel_axis=0,
        )
        for a, b in zip(x, x_cf, strict=True)
    ]
    assert ssim(x, x_cf).tolist() == pytest.approx(theirs, abs=1e-6)
    assert min(theirs) < 0.95


def test_distances_by_hand() -> None:
    x = torch.zeros(2, 2, 2, 2)
    x_cf = x.clone()
    x_cf[1, 0, 0, 0], x_cf[1, 1, 0, 0], x_cf[1, 1, 1, 1] = 0.6, -1.0, 0.2
    assert l1(x, x_cf).tolist() == pytest.approx([0, (0.3 + 0.5 + 0.1) / 8])
    assert l2(x, x_cf).tolist() == pytest.approx([0, ((0.09 + 0.25 + 0.01) / 8) ** 0.5])
    assert changed_area(x, x_cf).tolist() == [0, 0.5]
    assert changed_area(x, x_cf, 0.2).tolist() == [0, 0.25]


def test_the_smallest_change_counts_as_changed() -> None:
    x = torch.full((1, 1, 12, 12), 0.3)
    x_cf = x.clone()
    x_cf[0, 0, 5, 5] = torch.nextafter(x[0, 0, 5, 5], torch.tensor(1.0))
    assert changed_area(x, x_cf).item() == pytest.approx(1 / 144)


@pytest.mark.parametrize("metric", ALL)
def test_equal_and_constant_images_have_a_number(metric: Callable[..., Tensor]) -> None:
    black, white = torch.full((2, 1, 12, 12), -1.0), torch.ones(2, 1, 12, 12)
    equal = 1.0 if metric is ssim else 0.0
    assert metric(white, white).tolist() == [equal] * 2
    far = metric(black, white)
    assert far.isfinite().all()
    assert (far - (1 - equal)).abs().max() < 1e-3


@pytest.mark.parametrize("metric", ALL)
def test_an_image_alone_has_the_number_it_has_in_a_batch(metric: Callable[..., Tensor]) -> None:
    x, x_cf = pair()
    together = metric(x, x_cf)
    assert together.shape == (4,)
    alone = torch.cat([metric(x[row : row + 1], x_cf[row : row + 1]) for row in range(4)])
    torch.testing.assert_close(alone, together)
    torch.testing.assert_close(metric(x_cf, x), together)


@pytest.mark.parametrize("metric", ALL)
def test_images_with_a_gradient_are_taken_as_they_are(metric: Callable[..., Tensor]) -> None:
    x, x_cf = pair()
    wanted = metric(x, x_cf)
    given = metric(x, x_cf.requires_grad_())
    assert torch.equal(given, wanted)
    assert not given.requires_grad


@pytest.mark.parametrize("metric", ALL)
def test_bad_input_is_one_sentence(metric: Callable[..., Tensor]) -> None:
    x, x_cf = pair()
    hole = x.clone()
    hole[2, 0, 3, 3] = float("nan")
    cases = {
        r"x_cf: expected the shape of x, \(4, 3, 24, 17\), got \(4, 3, 17, 17\)": (x, x_cf[:, :, :17]),
        r"x_cf: expected the shape of x": (x, x_cf[:, :1]),
        r"x: expected at least one image": (x[:0], x_cf[:0]),
        r"x: expected values in \[-1, 1\], got \[nan, nan\]": (hole, x_cf),
        r"x_cf: expected values in \[-1, 1\], got \[-255": (x, x_cf * 255),
        r"x: expected floats of shape \(b, c, h, w\), got torch.uint8": (x.to(torch.uint8), x_cf),
        r"x: expected floats of shape \(b, c, h, w\)": (x[0], x_cf[0]),
    }
    for sentence, (a, b) in cases.items():
        with pytest.raises(InputError, match=sentence) as caught:
            metric(a, b)
        assert "\n" not in str(caught.value)


def test_an_image_smaller_than_the_window_has_no_ssim() -> None:
    x, x_cf = pair(size=(24, 10))
    with pytest.raises(InputError, match="at least 11x11 pixels, got 24x10"):
        ssim(x, x_cf)


def test_a_threshold_is_a_share_of_the_range() -> None:
    x, x_cf = pair()
    for threshold in (-0.1, 1.0, float("nan")):
        with pytest.raises(InputError, match="threshold: expected a number from 0 to below 1"):
            changed_area(x, x_cf, threshold)
