from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, max_pool2d

from fastdime.errors import CheckpointError, InputError
from fastdime.metrics.lpips import ALEX, PLANS, VGG, load_lpips

WIDTHS = {"alex": (64, 192, 384, 256, 256), "vgg": (64, 128, 256, 512, 512)}
# Convolutions by their place in torchvision's `features`: (in, out, kernel, stride, padding); taps; poolings.
CONVOLUTIONS = {
    "alex": {
        0: (3, 64, 11, 4, 2),
        3: (64, 192, 5, 1, 2),
        6: (192, 384, 3, 1, 1),
        8: (384, 256, 3, 1, 1),
        10: (256, 256, 3, 1, 1),
    },
    "vgg": {
        place: (before, after, 3, 1, 1)
        for place, before, after in (
            *((0, 3, 64), (2, 64, 64), (5, 64, 128), (7, 128, 128), (10, 128, 256), (12, 256, 256)),
            *((14, 256, 256), (17, 256, 512), (19, 512, 512), (21, 512, 512)),
            *((24, 512, 512), (26, 512, 512), (28, 512, 512)),
        )
    },
}
TAPPED = {"alex": (0, 3, 6, 8, 10), "vgg": (2, 7, 14, 21, 28)}  # convolutions whose ReLU is compared
POOLED = {"alex": (2, 5), "vgg": (4, 9, 16, 23)}


@lru_cache
def trunk(net: str) -> dict[str, Tensor]:
    """Random weights under torchvision's names, with a small head; large enough for features to live."""
    generator = torch.Generator().manual_seed(0)
    weights = {"classifier.1.weight": torch.zeros(2, 2)}
    for place, (before, after, kernel, _, _) in CONVOLUTIONS[net].items():
        shape = (after, before, kernel, kernel)
        spread = (2 / (before * kernel**2)) ** 0.5
        weights[f"features.{place}.weight"] = spread * torch.randn(shape, generator=generator)
        weights[f"features.{place}.bias"] = 0.1 * torch.randn(after, generator=generator)
    return weights


def lins(net: str) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        f"lin{number}.model.1.weight": torch.rand((1, width, 1, 1), generator=generator)
        for number, width in enumerate(WIDTHS[net])
    }


def pair(channels: int = 3, size: int = 40) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    x, x_cf = (torch.rand((2, channels, size, size), generator=generator) * 2 - 1 for _ in range(2))
    return x, torch.cat([x_cf[:1], x[1:] * 0.9])


def features_by_hand(net: str, weights: dict[str, Tensor], x: Tensor) -> list[Tensor]:
    shift, scale = torch.tensor([-0.030, -0.088, -0.188]), torch.tensor([0.458, 0.448, 0.450])
    out, found = (x - shift.view(3, 1, 1)) / scale.view(3, 1, 1), []
    for place, (_, _, _, stride, padding) in CONVOLUTIONS[net].items():
        if place - 1 in POOLED[net]:
            out = max_pool2d(out, 3 if net == "alex" else 2, 2)
        weight, bias = (weights[f"features.{place}.{kind}"] for kind in ("weight", "bias"))
        out = conv2d(out, weight, bias, stride, padding).relu()
        if place in TAPPED[net]:
            found.append(out / (out.pow(2).sum(1, keepdim=True).sqrt() + 1e-10))
    return found


@pytest.fixture(scope="module", params=["alex", "vgg"])
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Path]:
    folder = tmp_path_factory.mktemp(request.param)
    torch.save(trunk(request.param), folder / "trunk.pth")
    torch.save(lins(request.param), folder / "lin.pth")
    return request.param, folder / "trunk.pth", folder / "lin.pth"


def test_the_distance_is_the_published_formula(files: tuple[str, Path, Path]) -> None:
    net, trunk_file, lin_file = files
    x, x_cf = pair()
    weights, lin = trunk(net), lins(net)
    wanted = torch.zeros(2)
    both = (features_by_hand(net, weights, images) for images in (x, x_cf))
    for number, (a, b) in enumerate(zip(*both, strict=True)):
        weight = lin[f"lin{number}.model.1.weight"].view(1, -1, 1, 1)
        wanted += ((a - b) ** 2 * weight).sum(1).mean((1, 2))
    own = load_lpips(trunk_file, lin_file)(x, x_cf)
    assert own.shape == (2,)
    torch.testing.assert_close(own, wanted, rtol=1e-4, atol=1e-6)
    assert own[0] > 1.5 * own[1] > 0


def test_the_distance_is_that_of_torchmetrics(
    files: tuple[str, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = pytest.importorskip(
        "torchmetrics.functional.image.lpips", reason="torchmetrics is not installed"
    )
    net, trunk_file, lin_file = files
    modules: list[nn.Module] = []
    for before, after, kernel, stride, padding in CONVOLUTIONS[net].values():
        if len(modules) in POOLED[net]:
            modules.append(nn.MaxPool2d(3 if net == "alex" else 2, 2))
        modules += [nn.Conv2d(before, after, kernel, stride, padding), nn.ReLU()]
    features = nn.Sequential(*modules)
    named = {name.removeprefix("features."): value for name, value in trunk(net).items() if "feat" in name}
    features.load_state_dict(named)
    monkeypatch.setattr(theirs, "_get_tv_model_features", lambda name, pretrained: features)
    judge = theirs._LPIPS(net=net, model_path=str(lin_file))
    x, x_cf = pair()
    with torch.no_grad():
        wanted = judge(x, x_cf).flatten()
    torch.testing.assert_close(load_lpips(trunk_file, lin_file)(x, x_cf), wanted, rtol=1e-4, atol=1e-6)


def test_equal_images_have_no_distance_and_order_does_not_matter(files: tuple[str, Path, Path]) -> None:
    metric = load_lpips(*files[1:])
    x, x_cf = pair()
    assert metric(x, x).tolist() == [0, 0]
    black = torch.full_like(x, -1)
    assert metric(black, black).tolist() == [0, 0]
    torch.testing.assert_close(metric(x, x_cf), metric(x_cf, x))
    torch.testing.assert_close(metric(x[1:], x_cf[1:]), metric(x, x_cf)[1:])


def test_gray_counts_as_three_channels(files: tuple[str, Path, Path]) -> None:
    metric = load_lpips(*files[1:])
    x, x_cf = pair(channels=1)
    torch.testing.assert_close(metric(x, x_cf), metric(x.repeat(1, 3, 1, 1), x_cf.repeat(1, 3, 1, 1)))


def test_images_of_the_least_size_work_and_smaller_ones_are_refused(files: tuple[str, Path, Path]) -> None:
    metric = load_lpips(*files[1:])
    least = metric.plan.least
    assert metric(*pair(size=least)).isfinite().all()
    with pytest.raises(InputError, match=f"images for LPIPS: .*at least {least}x{least} pixels"):
        metric(*pair(size=least - 1))
    with pytest.raises(InputError, match="1 or 3 channels"):
        metric(*pair(channels=2))
    with pytest.raises(InputError, match="x_cf: expected the shape of x"):
        metric(pair()[0], pair(size=50)[1])


def test_loading_leaves_a_frozen_network_and_moves_no_random_numbers(files: tuple[str, Path, Path]) -> None:
    state = torch.get_rng_state()
    metric = load_lpips(*files[1:])
    assert torch.equal(torch.get_rng_state(), state)
    assert not metric.training
    assert not any(weight.requires_grad for weight in metric.parameters())


def test_wrong_files_are_one_sentence(tmp_path: Path, files: tuple[str, Path, Path]) -> None:
    net, trunk_file, lin_file = files
    other = "vgg" if net == "alex" else "alex"
    short = {name: value for name, value in trunk(net).items() if not name.startswith("features.10.")}
    for name, content in {
        "resnet.pth": {"conv1.weight": torch.zeros(64, 3, 7, 7)},
        "thin.pth": {"features.0.weight": torch.zeros(8, 3, 3, 3)},
        "short.pth": short,
        "other.pth": lins(other),
    }.items():
        torch.save(content, tmp_path / name)
    for first, second, sentence in (
        ("resnet.pth", lin_file, r"resnet\.pth: expected torchvision's alexnet or vgg16, got no features\.0"),
        ("thin.pth", lin_file, r"got a first weight of shape \(8, 3, 3, 3\)"),
        ("short.pth", lin_file, r"short\.pth: .* 2 missing \(10\.weight, 10\.bias\)"),
        (
            trunk_file,
            "other.pth",
            r"other\.pth: expected weights that fit the network, got \d of another shape",
        ),
        (trunk_file, "nowhere.pth", r"nowhere\.pth: expected a file with weights, got nothing there"),
    ):
        with pytest.raises(CheckpointError, match=sentence) as caught:
            load_lpips(tmp_path / first, tmp_path / second)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("package", "folder"),
    [("lpips", "weights/v0.1"), ("torchmetrics", "functional/image/lpips_models")],
)
def test_the_published_linear_weights_load(files: tuple[str, Path, Path], package: str, folder: str) -> None:
    spec = find_spec(package)  # does not import it: lpips needs torchvision
    if spec is None or spec.origin is None:
        pytest.skip(f"{package} is not installed")
    net, trunk_file, _ = files
    metric = load_lpips(trunk_file, Path(spec.origin).parent / folder / f"{net}.pth")
    assert metric.plan is {"alex": ALEX, "vgg": VGG}[net]
    assert all(lin.weight.min() >= 0 and lin.weight.max() > 0 for lin in metric.lins)
    x, x_cf = pair()
    assert (metric(x, x_cf) > 0).all()


def test_the_plans_are_torchvisions() -> None:
    assert [plan.widths for plan in PLANS.values()] == list(WIDTHS.values())
