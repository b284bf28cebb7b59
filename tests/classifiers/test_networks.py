"""torchvision is not needed: its networks are restated here from their weights and compared with ours."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, batch_norm, conv2d, linear, max_pool2d, relu

from fastdime.classifiers.networks import (
    ARCHITECTURES,
    densenet121,
    from_dive,
    from_torchvision_densenet,
    placed_cnn,
    resnet18,
    resnet50,
    small_cnn,
)
from fastdime.classifiers.spec import build_network
from fastdime.errors import InputError

Weights = dict[str, Tensor]


def shaken(module: nn.Module) -> nn.Module:
    """Give the batch norms statistics that matter: fresh ones are the identity."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, nn.BatchNorm2d):
                for tensor in (part.weight, part.bias, part.running_mean, part.running_var):
                    tensor += 0.2 * torch.rand(tensor.shape, generator=generator)
    return module.eval()


@pytest.fixture
def images() -> Tensor:
    return torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))


def norm(w: Weights, name: str, x: Tensor) -> Tensor:
    mean, var = w[f"{name}.running_mean"], w[f"{name}.running_var"]
    return batch_norm(x, mean, var, w[f"{name}.weight"], w[f"{name}.bias"], eps=1e-5)


def entry(w: Weights, conv: str, bn: str, x: Tensor) -> Tensor:
    x = relu(norm(w, bn, conv2d(x, w[f"{conv}.weight"], stride=2, padding=3)))
    return max_pool2d(x, 3, stride=2, padding=1)


def residual(w: Weights, name: str, x: Tensor, stride: int) -> Tensor:
    """One residual block, of two 3x3 convolutions or of 1x1, 3x3 (with the stride), 1x1."""
    bottleneck = f"{name}.conv3.weight" in w
    strides = [1, stride, 1] if bottleneck else [stride, 1]
    out = x
    for number, step in enumerate(strides, start=1):
        kernel = w[f"{name}.conv{number}.weight"]
        out = norm(
            w,
            f"{name}.bn{number}",
            conv2d(out, kernel, stride=step, padding=kernel.shape[-1] // 2),
        )
        out = relu(out) if number < len(strides) else out
    if f"{name}.downsample.0.weight" in w:
        x = norm(w, f"{name}.downsample.1", conv2d(x, w[f"{name}.downsample.0.weight"], stride=stride))
    return relu(out + x)


def plain_resnet(w: Weights, x: Tensor, depths: list[int]) -> Tensor:
    x = entry(w, "conv1", "bn1", x)
    for layer, depth in enumerate(depths, start=1):
        for number in range(depth):
            x = residual(w, f"layer{layer}.{number}", x, stride=2 if layer > 1 and number == 0 else 1)
    return linear(x.mean((2, 3)), w["fc.weight"], w["fc.bias"])


def plain_densenet(w: Weights, x: Tensor) -> Tensor:
    """DenseNet-121 with torchvision's names."""
    x = entry(w, "features.conv0", "features.norm0", x)
    for block, depth in enumerate([6, 12, 24, 16], start=1):
        for layer in range(1, depth + 1):
            name = f"features.denseblock{block}.denselayer{layer}"
            new = conv2d(relu(norm(w, f"{name}.norm1", x)), w[f"{name}.conv1.weight"])
            new = conv2d(relu(norm(w, f"{name}.norm2", new)), w[f"{name}.conv2.weight"], padding=1)
            x = torch.cat([x, new], dim=1)
        if block < 4:
            name = f"features.transition{block}"
            x = avg_pool2d(conv2d(relu(norm(w, f"{name}.norm", x)), w[f"{name}.conv.weight"]), 2)
    x = relu(norm(w, "features.norm5", x)).mean((2, 3))
    return linear(x, w["classifier.weight"], w["classifier.bias"])


def with_torchvision_names(module: nn.Module) -> Weights:
    names = [(".layers.", "."), ("class_layers.out.", "classifier.")]
    weights = dict(module.state_dict())
    for ours, theirs in names:
        weights = {name.replace(ours, theirs): weight for name, weight in weights.items()}
    return weights


@pytest.mark.parametrize(("build", "depths"), [(resnet18, [2, 2, 2, 2]), (resnet50, [3, 4, 6, 3])])
def test_resnet_computes_what_torchvision_does(build: object, depths: list[int], images: Tensor) -> None:
    network = shaken(build(outputs=5))
    with torch.no_grad():
        torch.testing.assert_close(
            network(images), plain_resnet(network.state_dict(), images, depths), rtol=1e-5, atol=1e-5
        )


def test_resnets_have_the_published_number_of_weights() -> None:
    count = {18: 11_689_512, 50: 25_557_032}
    assert sum(p.numel() for p in resnet18(outputs=1000).parameters()) == count[18]
    assert sum(p.numel() for p in resnet50(outputs=1000).parameters()) == count[50]


def test_densenet_computes_what_torchvision_does(images: Tensor) -> None:
    network = shaken(densenet121(outputs=1000))
    weights = with_torchvision_names(network)
    assert sum(p.numel() for p in network.parameters()) == 7_978_856
    with torch.no_grad():
        torch.testing.assert_close(network(images), plain_densenet(weights, images), rtol=1e-5, atol=1e-5)
    assert from_torchvision_densenet(weights).keys() == network.state_dict().keys()


def test_old_and_dive_names_of_a_densenet_are_understood() -> None:
    own = densenet121(outputs=40).state_dict()
    new = with_torchvision_names(densenet121(outputs=40))
    old = {name.replace("norm1", "norm.1").replace("conv2", "conv.2"): weight for name, weight in new.items()}
    trunk = {name: weight for name, weight in new.items() if not name.startswith("classifier.")}
    head = {name: weight for name, weight in new.items() if name.startswith("classifier.")}
    nested = {f"feat_extract.feat_extract.{name}": weight for name, weight in trunk.items()} | head
    once = {f"feat_extract.{name}": weight for name, weight in trunk.items()} | head
    assert from_torchvision_densenet(old).keys() == own.keys()
    assert from_torchvision_densenet(own).keys() == own.keys()
    assert from_dive(nested | {"optimizer.lr": torch.zeros(1)}).keys() == own.keys()
    assert from_dive(once).keys() == own.keys()
    assert from_dive(own).keys() == own.keys()


@pytest.mark.parametrize("size", [16, 17, 64])
@pytest.mark.parametrize("channels", [1, 3])
def test_small_cnn_takes_any_size(size: int, channels: int) -> None:
    network = small_cnn(channels, 4)
    assert network(torch.zeros(2, channels, size, size)).shape == (2, 4)
    assert sum(p.numel() for p in network.parameters()) < 300_000


def test_small_cnn_scores_an_image_the_same_in_any_batch() -> None:
    x = torch.randn(3, 1, 16, 16, generator=torch.Generator().manual_seed(2))
    network = small_cnn(1)
    torch.testing.assert_close(network(x)[:1], network(x[:1]))


def test_small_cnn_refuses_an_odd_width() -> None:
    with pytest.raises(InputError, match="width of small-cnn: expected a multiple of 8, got 30"):
        small_cnn(width=30)


def test_placed_cnn_knows_places() -> None:
    network, x = placed_cnn(32, 1, width=6), torch.zeros(1, 1, 32, 32)
    x[..., 8:16, 8:16] = 1
    assert not torch.allclose(network(x), network(x.roll(8, 3)))
    with pytest.raises(InputError, match="image_size of placed-cnn: expected a multiple of 8, got 36"):
        placed_cnn(36)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("resnet18", {"channels": 1, "outputs": 3}),
        ("densenet121", {"channels": 1, "outputs": 2}),
        ("small-cnn", {"channels": 3, "outputs": 2, "width": 16}),
        ("placed-cnn", {"image_size": 24, "channels": 3, "outputs": 2, "width": 7}),
        (
            "encoder-unet",
            {
                "image_size": 24,
                "channels": 1,
                "outputs": 2,
                "widths": [32, 64, 64],
                "res_blocks": 2,
                "attention": [False, True, False],
            },
        ),
    ],
)
def test_weights_tell_the_arguments(name: str, arguments: dict[str, Any]) -> None:
    assert ARCHITECTURES[name].told(build_network(name, **arguments).state_dict()) == arguments
