import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from fastdime.classifiers.load import load_classifier, save_classifier
from fastdime.classifiers.spec import ClassifierSpec, build_network
from fastdime.classifiers.wrapper import ImageClassifier
from fastdime.errors import CheckpointError, FastdimeError, InputError
from fastdime.features.inception import Inception
from fastdime.features.network import FeatureNetwork
from fastdime.features.registry import NETWORKS, open_features


class Means(nn.Module):
    """Mean of each channel, or noise if it is left in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.9)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(x.mean((2, 3)) * self.scale)


def own_module() -> nn.Module:
    return Means()


def own_function(x: Tensor) -> Tensor:
    return x.mean((2, 3))


def own_classifier() -> ImageClassifier:
    return load_classifier(nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 1)))


def own_map() -> nn.Module:
    return nn.Conv2d(3, 4, 1)


NUMBER = 3


@pytest.fixture(autouse=True)
def this_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "own", sys.modules[__name__])


def noise(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)) * 2 - 1


@pytest.mark.parametrize("oracle", ["shortcut", "task", "complete"])
def test_an_oracle_gives_what_its_last_layer_gets(oracle: str) -> None:
    source = f"chest-pacemaker/{oracle}"
    network = open_features(source)
    x = noise(3, 1, 64, 64)
    features = network(x)
    assert features.shape == (3, network.dim)
    shipped = Path(sys.modules["fastdime"].__path__[0]) / "shipped"
    classifier = load_classifier(shipped / "chest-pacemaker" / "oracles" / oracle)
    assert isinstance(classifier.module, nn.Module)
    head = [part for part in classifier.module.modules() if isinstance(part, nn.Linear)][-1]
    with torch.no_grad():
        wanted = classifier.logits(x, torch.zeros(3, dtype=torch.int64))
        torch.testing.assert_close(head(features), wanted)


def test_a_bundle_may_be_a_folder() -> None:
    shipped = Path(sys.modules["fastdime"].__path__[0]) / "shipped" / "chest-pacemaker"
    x = noise(2, 1, 64, 64)
    by_path = open_features(f"{shipped}/task")(x)
    assert torch.equal(by_path, open_features("chest-pacemaker/task")(x))
    assert open_features(f"{shipped}/classifier").dim is not None  # the folder of a classifier


def test_the_folder_of_a_classifier_gives_features(tmp_path: Path) -> None:
    spec = ClassifierSpec(architecture="small-cnn", channels=1, size=16)
    module = build_network("small-cnn", channels=1, width=8)
    save_classifier(tmp_path / "mine", module, spec)
    network = open_features(str(tmp_path / "mine"))
    features = network(noise(2, 3, 20, 20))  # its own size and channels are looked after
    assert features.shape == (2, 32)
    assert network.dim == 32
    assert not any(part._forward_pre_hooks for part in network.extract.classifier.module.modules())


def test_the_layer_that_is_used_last_counts() -> None:
    network = open_features("own:own_classifier")
    assert network.dim is None
    assert network(noise(2, 3, 2, 2)).shape == (2, 5)


def test_a_module_is_used_in_evaluation_mode_without_gradients() -> None:
    network = open_features("own:own_module")
    x = noise(2, 3, 4, 4).requires_grad_()
    features = network(x)
    torch.testing.assert_close(features, x.detach().mean((2, 3)))
    assert not features.requires_grad


def test_a_function_of_images_is_used_as_it_is() -> None:
    x = noise(2, 1, 4, 4)
    assert torch.equal(open_features("own:own_function")(x), x.mean((2, 3)))


def test_inception_comes_from_a_file(tmp_path: Path) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.save(Inception().state_dict(), tmp_path / "weights.pth")
    network = open_features(f"inception={tmp_path / 'weights.pth'}")
    assert (network.name, network.dim) == ("inception", 2048)
    with pytest.raises(CheckpointError, match="expected a file with weights, got nothing there"):
        open_features("inception=missing.pth")


def test_inception_takes_the_weights_of_torch_fidelity(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.random.fork_rng(devices=[]):
        theirs = Inception()
    asked: list[object] = []

    def extractor(*wanted: object) -> nn.Module:
        asked.extend(wanted)
        return theirs

    module = ModuleType("torch_fidelity")
    module.FeatureExtractorInceptionV3 = extractor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch_fidelity", module)
    network = open_features("inception")
    assert asked == ["inception-v3-compat", ["2048"]]
    assert isinstance(network.extract, Inception)
    name = "Mixed_7c.branch1x1.conv.weight"
    assert torch.equal(network.extract.state_dict()[name], theirs.state_dict()[name])


def test_inception_without_weights_says_which_file_to_get(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_fidelity", None)
    sentence = "get pt_inception-2015-12-05-6726825d.pth from pytorch-fid and give inception=FILE"
    with pytest.raises(InputError, match=sentence) as caught:
        open_features("inception")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (
            "efficientnet-lite",
            "feature network: expected one of inception, .* did you mean 'efficientnet-lite0'?",
        ),
        ("", "feature network: expected one of"),
        (
            "chest-pacemaker/shortcuts",
            "expected one of complete, shortcut, task, .* did you mean 'shortcut'?",
        ),
        ("chest/shortcut", "no bundle 'chest'; check the path"),
        ("own:missing", "function: expected one of"),
        ("own:NUMBER", "expected a network, or a function of images, got int"),
        ("nowhere.at.all:network", "no module nowhere"),
    ],
)
def test_what_is_not_there_is_one_clear_line(source: str, sentence: str) -> None:
    with pytest.raises(FastdimeError, match=sentence) as caught:
        open_features(source)
    assert "\n" not in str(caught.value)


def test_a_classifier_without_a_linear_layer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    convolutions = load_classifier(nn.Sequential(nn.Conv2d(3, 1, 2), nn.Flatten()))
    monkeypatch.setattr(sys.modules[__name__], "own_classifier", lambda: convolutions)
    with pytest.raises(
        InputError, match="expected a network with a linear layer, got none; give a module:function"
    ):
        open_features("own:own_classifier")


@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        (torch.zeros(3, 8, 8), "images: expected floats of shape"),
        (torch.zeros(1, 2, 8, 8), "images: expected floats of shape"),
        (torch.zeros(0, 3, 8, 8), "images: expected floats of shape"),
        (torch.zeros(1, 3, 8, 8, dtype=torch.uint8), "got torch.uint8"),
        (torch.full((1, 3, 8, 8), 255.0), r"images: expected values in \[-1, 1\], got 255 to 255; scale"),
        (torch.full((1, 3, 8, 8), torch.nan), "got nan to nan"),
    ],
)
def test_images_of_another_kind_are_refused(x: Tensor, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        FeatureNetwork("mean", own_function)(x)


def test_an_output_that_is_no_row_an_image_is_refused() -> None:
    sentence = r"output of feature network own:own_map: expected shape \(2, features\), got \(2, 4, 8, 8\)"
    with pytest.raises(InputError, match=sentence):
        open_features("own:own_map")(noise(2, 3, 8, 8))
    with pytest.raises(InputError, match="got list"):
        FeatureNetwork("list", lambda x: [x])(noise(2, 3, 8, 8))  # type: ignore[arg-type,return-value]


def test_every_network_says_what_it_is_and_what_it_needs() -> None:
    assert set(NETWORKS) >= {"inception", "efficientnet-lite0", "dlib-face"}
    for entry in NETWORKS.values():
        assert entry.summary
        assert entry.needs
        assert "\n" not in entry.summary + entry.needs
