from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, batch_norm, conv2d, interpolate, max_pool2d

from fastdime.errors import CheckpointError
from fastdime.features.inception import Inception, load_inception
from fastdime.weights import Weights


@pytest.fixture(scope="module")
def network() -> Inception:
    """Weights at random, and statistics that are not those of a fresh batch norm."""
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = Inception().eval().requires_grad_(False)
    for name, value in made.state_dict().items():
        if name.endswith(("running_mean", "bn.bias")):
            value.normal_(0, 0.1, generator=generator)
        if name.endswith(("running_var", "bn.weight")):
            value.uniform_(0.5, 1.5, generator=generator)
    return made


def as_published(network: Inception) -> Weights:
    """The layout of the file: the head is in it, counters of steps are not in all copies."""
    weights = {name: value for name, value in network.state_dict().items() if "num_batches" not in name}
    return {**weights, "fc.weight": torch.zeros(1008, 2048), "fc.bias": torch.zeros(1008)}


def test_the_convolutional_part_has_the_published_number_of_weights() -> None:
    with torch.device("meta"):
        network = Inception()
    # 27 161 264 of torchvision's, less 3 326 696 of its auxiliary head and 2 049 000 of its classes.
    assert sum(weight.numel() for weight in network.parameters()) == 21_785_568
    assert sum(name.endswith("conv.weight") for name in network.state_dict()) == 94


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("Conv2d_4a_3x3.conv.weight", (192, 80, 3, 3)),
        ("Mixed_5b.branch5x5_2.conv.weight", (64, 48, 5, 5)),
        ("Mixed_5c.branch_pool.bn.running_var", (64,)),
        ("Mixed_6a.branch3x3.conv.weight", (384, 288, 3, 3)),
        ("Mixed_6c.branch7x7_2.conv.weight", (160, 160, 1, 7)),
        ("Mixed_6e.branch7x7dbl_4.conv.weight", (192, 192, 7, 1)),
        ("Mixed_7a.branch7x7x3_4.conv.weight", (192, 192, 3, 3)),
        ("Mixed_7b.branch3x3_2b.conv.weight", (384, 384, 3, 1)),
        ("Mixed_7c.branch3x3dbl_3a.conv.weight", (384, 384, 1, 3)),
    ],
)
def test_weights_have_the_published_names_and_shapes(name: str, shape: tuple[int, ...]) -> None:
    with torch.device("meta"):
        assert tuple(Inception().state_dict()[name].shape) == shape


def test_a_file_in_the_published_layout_gives_the_same_features(network: Inception, tmp_path: Path) -> None:
    torch.save(as_published(network), tmp_path / "inception.pth")
    before = torch.random.get_rng_state()
    loaded = load_inception(tmp_path / "inception.pth")
    assert torch.equal(torch.random.get_rng_state(), before)
    x = torch.linspace(-1, 1, 40 * 50).reshape(1, 1, 40, 50)
    features = network(x)
    assert features.shape == (1, 2048)
    assert features.std() > 0
    assert torch.equal(loaded(x), features)
    assert not loaded.training


class Restated:
    """The layers by hand, from the weights alone."""

    def __init__(self, weights: Weights, block: str) -> None:
        self.weights, self.block = weights, block

    def conv(self, x: Tensor, name: str, padding: tuple[int, int] = (0, 0), stride: int = 1) -> Tensor:
        of = {
            key: self.weights[f"{self.block}{name}.{key}"]
            for key in ("conv.weight", "bn.running_mean", "bn.running_var", "bn.weight", "bn.bias")
        }
        x = conv2d(x, of.pop("conv.weight"), padding=padding, stride=stride)
        return batch_norm(x, *of.values(), eps=0.001).relu()


def test_block_e_is_restated(network: Inception) -> None:
    x = torch.randn(2, 2048, 8, 8, generator=torch.Generator().manual_seed(1))
    by_hand = Restated(network.state_dict(), "Mixed_7c.").conv
    three = by_hand(x, "branch3x3_1")
    double = by_hand(by_hand(x, "branch3x3dbl_1"), "branch3x3dbl_2", (1, 1))
    wanted = [
        by_hand(x, "branch1x1"),
        by_hand(three, "branch3x3_2a", (0, 1)),
        by_hand(three, "branch3x3_2b", (1, 0)),
        by_hand(double, "branch3x3dbl_3a", (0, 1)),
        by_hand(double, "branch3x3dbl_3b", (1, 0)),
        by_hand(max_pool2d(x, 3, 1, 1), "branch_pool"),
    ]
    torch.testing.assert_close(network.get_submodule("Mixed_7c")(x), torch.cat(wanted, 1))


def test_blocks_a_and_d_are_restated(network: Inception) -> None:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(1, 192, 9, 9, generator=generator)
    by_hand = Restated(network.state_dict(), "Mixed_5b.").conv
    double = by_hand(by_hand(x, "branch3x3dbl_1"), "branch3x3dbl_2", (1, 1))
    wanted = [
        by_hand(x, "branch1x1"),
        by_hand(by_hand(x, "branch5x5_1"), "branch5x5_2", (2, 2)),
        by_hand(double, "branch3x3dbl_3", (1, 1)),
        by_hand(avg_pool2d(x, 3, 1, 1, count_include_pad=False), "branch_pool"),
    ]
    torch.testing.assert_close(network.get_submodule("Mixed_5b")(x), torch.cat(wanted, 1))
    x = torch.randn(1, 768, 9, 9, generator=generator)
    by_hand = Restated(network.state_dict(), "Mixed_7a.").conv
    seven = by_hand(by_hand(x, "branch7x7x3_1"), "branch7x7x3_2", (0, 3))
    wanted = [
        by_hand(by_hand(x, "branch3x3_1"), "branch3x3_2", stride=2),
        by_hand(by_hand(seven, "branch7x7x3_3", (3, 0)), "branch7x7x3_4", stride=2),
        max_pool2d(x, 3, 2),
    ]
    torch.testing.assert_close(network.get_submodule("Mixed_7a")(x), torch.cat(wanted, 1))


def test_the_stem_is_restated_and_sees_299_pixels(network: Inception) -> None:
    x = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(3)) * 2 - 1
    seen: list[Tensor] = []
    handle = network.get_submodule("Mixed_5b").register_forward_pre_hook(lambda _, given: seen.extend(given))
    network(x)
    handle.remove()
    by_hand = Restated(network.state_dict(), "").conv
    big = interpolate(x, (299, 299), mode="bilinear", align_corners=False)
    out = by_hand(by_hand(big, "Conv2d_1a_3x3", stride=2), "Conv2d_2a_3x3")
    out = max_pool2d(by_hand(out, "Conv2d_2b_3x3", (1, 1)), 3, 2)
    out = max_pool2d(by_hand(by_hand(out, "Conv2d_3b_1x1"), "Conv2d_4a_3x3"), 3, 2)
    assert out.shape == (1, 192, 35, 35)
    torch.testing.assert_close(seen[0], out)


def test_the_inception_of_torchvision_is_refused(network: Inception, tmp_path: Path) -> None:
    weights = as_published(network) | {"fc.weight": torch.zeros(1000, 2048), "fc.bias": torch.zeros(1000)}
    torch.save(weights, tmp_path / "inception_v3_google.pth")
    with pytest.raises(
        CheckpointError, match=r"expected the Inception of FID \(1008 classes\), got one with 1000"
    ):
        load_inception(tmp_path / "inception_v3_google.pth")


def test_weights_that_lack_a_layer_are_refused(network: Inception, tmp_path: Path) -> None:
    weights = as_published(network)
    del weights["Mixed_6b.branch1x1.conv.weight"]
    torch.save(weights, tmp_path / "cut.pth")
    with pytest.raises(CheckpointError, match=r"1 missing \(Mixed_6b.branch1x1.conv.weight\)"):
        load_inception(tmp_path / "cut.pth")
