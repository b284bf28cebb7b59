from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import conv2d, max_pool2d

from fastdime import toy
from fastdime.classifiers.perceptual import vgg19_features, vgg19_trunk
from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.methods import settings_for
from fastdime.diffusion.denoiser import as_denoiser
from fastdime.errors import CheckpointError
from fastdime.pixels import to_grid
from fastdime.runs import read_run
from support.commands import explain_toy

# The convolutions of torchvision's vgg19 by their place in `features`, up to conv3_4 and after it.
FIRST = {0: (3, 64), 2: (64, 64), 5: (64, 128), 7: (128, 128), 10: (128, 256)}
FIRST |= dict.fromkeys((12, 14, 16), (256, 256))
REST = {19: (256, 512), 21: (512, 512), 34: (512, 512)}


def vgg(scale: float = 1.0) -> dict[str, Tensor]:
    """Random weights under torchvision's names, with a small head; large enough for features to live."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        fan = torch.tensor(shape[1:]).prod().clamp(1)
        return scale * torch.randn(shape, generator=generator) * (2 / fan) ** 0.5

    weights = {}
    for place, (before, after) in {**FIRST, **REST}.items():
        weights[f"features.{place}.weight"] = draw(after, before, 3, 3)
        weights[f"features.{place}.bias"] = 0.1 * draw(after)
    return {**weights, "classifier.0.weight": draw(4, 6), "classifier.0.bias": draw(4)}


def by_hand(weights: dict[str, Tensor], x: Tensor) -> Tensor:
    """VGG-19 up to the ReLU after conv3_4, written out."""
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    out = ((x + 1) / 2 - mean.view(3, 1, 1)) / std.view(3, 1, 1)
    for place in FIRST:
        if place in (5, 10):
            out = max_pool2d(out, 2)
        out = conv2d(
            out, weights[f"features.{place}.weight"], weights[f"features.{place}.bias"], padding=1
        ).relu()
    return out


@pytest.fixture(scope="module")
def weights() -> dict[str, Tensor]:
    return vgg()


def images(channels: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return to_grid(torch.rand(2, channels, 16, 20, generator=generator) * 2 - 1)


def test_a_whole_file_and_its_features_alone(tmp_path: Path, weights: dict[str, Tensor]) -> None:
    torch.save(weights, tmp_path / "vgg19.pth")
    alone = {name.removeprefix("features."): value for name, value in weights.items() if "features" in name}
    save_file(alone, tmp_path / "features.safetensors")
    x = images(3)
    with torch.no_grad():
        whole, part = (vgg19_features(tmp_path / name)(x) for name in ("vgg19.pth", "features.safetensors"))
    assert whole.shape == (2, 256, 4, 5)
    assert torch.equal(whole, part)
    torch.testing.assert_close(whole, by_hand(weights, x))


def test_the_trunk_ends_with_the_relu_after_conv3_4() -> None:
    trunk = vgg19_trunk()
    assert len(trunk) == 18
    assert isinstance(trunk[-1], nn.ReLU)
    assert {int(name.split(".")[0]) for name in trunk.state_dict()} == set(FIRST)


def test_gray_counts_as_three_channels(tmp_path: Path, weights: dict[str, Tensor]) -> None:
    torch.save(weights, tmp_path / "vgg19.pth")
    features, x = vgg19_features(tmp_path / "vgg19.pth"), images(1)
    with torch.no_grad():
        assert torch.allclose(features(x), features(x.repeat(1, 3, 1, 1)))
        assert torch.equal(features(x + 3), features(torch.ones_like(x)))  # clipped, as the image will be


def test_loading_moves_no_random_numbers(tmp_path: Path, weights: dict[str, Tensor]) -> None:
    torch.save(weights, tmp_path / "vgg19.pth")
    state = torch.get_rng_state()
    features = vgg19_features(tmp_path / "vgg19.pth")
    assert torch.equal(torch.get_rng_state(), state)
    assert not features.trunk.training


def test_wrong_files_are_one_sentence(tmp_path: Path, weights: dict[str, Tensor]) -> None:
    files = {
        "resnet.pth": {"conv1.weight": torch.zeros(4, 3, 3, 3), "fc.bias": torch.zeros(2)},
        "vgg16.pth": {name: value for name, value in weights.items() if not name.startswith("features.16")},
        "thin.pth": {**weights, "features.10.weight": torch.zeros(8, 128, 3, 3)},
    }
    for name, content in files.items():
        torch.save(content, tmp_path / name)
    (tmp_path / "text.pth").write_text("no weights")
    for name, message in {
        "resnet.pth": r"resnet\.pth: expected weights that fit the network, got 16 missing \(0\.weight",
        "vgg16.pth": r"got 2 missing \(16\.weight, 16\.bias\)",
        "thin.pth": r"1 of another shape \(10\.weight: \(8, 128, 3, 3\) instead of \(256, 128, 3, 3\)\)",
        "text.pth": r"text\.pth: expected a checkpoint of plain tensors",
        "nowhere.pth": r"nowhere\.pth: expected a file with weights, got nothing there",
    }.items():
        with pytest.raises(CheckpointError, match=message) as caught:
            vgg19_features(tmp_path / name)
        assert "\n" not in str(caught.value)


class Brightness:
    """A classifier of any image: is it brighter than middle gray?"""

    def logits(self, x: Tensor, time: Tensor) -> Tensor:
        return 20 * x.mean((1, 2, 3))[:, None]


@pytest.mark.parametrize("channels", [1, 3])
def test_the_perceptual_loss_pulls_towards_the_input(tmp_path: Path, channels: int) -> None:
    torch.save(vgg(), tmp_path / "vgg19.pth")
    features, x = vgg19_features(tmp_path / "vgg19.pth"), images(channels) * 0.3
    x = to_grid(x)
    settings = settings_for("fastdime-nomask", tau=8, steps=50, scales=[8.0], l1=0.0, skip_if_met=False)
    denoiser = as_denoiser(lambda x_t, t: x_t * 0.1)
    plain = Explainer(denoiser, Brightness(), settings)(x, 1)
    pulled = Explainer(denoiser, Brightness(), settings.model_copy(update={"perceptual": 30.0}), features)
    result = pulled(x, 1)
    with torch.no_grad():
        far, near = ((features(r.x_cf) - features(x)).pow(2).mean() for r in (plain, result))
    assert near < far
    alone = pulled(x[1:], 1, ids=["1"])
    assert (alone.x_cf - result.x_cf[1:]).abs().max() < 0.01
    assert all(weight.requires_grad for weight in features.parameters())  # left as found
    assert replace(pulled, seed=1)(x, 1).x_cf.ne(result.x_cf).any()


def test_the_command_line_takes_a_file_of_features(tmp_path: Path, weights: dict[str, Tensor]) -> None:
    torch.save(weights, tmp_path / "vgg19.pth")
    table = toy.write(tmp_path / "data", 2)
    words = ("--features", tmp_path / "vgg19.pth", "--set", "perceptual=30")
    assert explain_toy(table, tmp_path / "run", *words).code == 0
    config, records = read_run(tmp_path / "run")
    assert config["features"]["source"] == str(tmp_path / "vgg19.pth")
    assert len(config["features"]["weights"]) == 16
    assert [record["denoiser_calls"] > 0 for record in records] == [True, True]
