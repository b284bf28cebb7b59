import dataclasses
import json
import os
import pickle
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fastdime.classifiers.load import load_classifier, load_outputs, save_classifier
from fastdime.classifiers.networks import densenet121, encoder_unet, resnet18, small_cnn
from fastdime.classifiers.spec import ClassifierSpec, build_network
from fastdime.classifiers.wrapper import ImageClassifier
from fastdime.errors import CheckpointError, FastdimeError, InputError
from fastdime.weights import save_weights

REFERENCE = Path(os.environ.get("FASTDIME_REFERENCE", Path(__file__).parents[1] / "reference" / "data"))
TIME = torch.tensor([0, 5])


@pytest.fixture
def x() -> Tensor:
    return torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0)) * 2 - 1


@pytest.fixture
def small() -> nn.Module:
    torch.manual_seed(0)
    return small_cnn(3, 2, 8).eval()


def one_line(error: pytest.ExceptionInfo[FastdimeError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


def test_spec_has_the_fields_and_defaults_of_the_wrapper() -> None:
    fields = {
        field.name: field.default for field in dataclasses.fields(ImageClassifier) if field.name != "module"
    }
    spec = {name: info.default for name, info in ClassifierSpec.model_fields.items()}
    assert {name: spec[name] for name in spec if name not in ("architecture", "arguments")} == fields


def test_a_module_a_function_or_a_classifier(x: Tensor, small: nn.Module) -> None:
    assert torch.equal(load_classifier(small, kind="multiclass").logits(x, TIME), small(x))
    first = load_classifier(lambda images: images.mean((1, 2, 3)), low=0, high=2)
    again = load_classifier(first, high=4)
    assert (first.high, again.low, again.high) == (2.0, 0.0, 4.0)
    assert load_classifier(first) == first


@pytest.mark.parametrize(
    ("source", "settings", "sentence"),
    [
        (len, {"colum": 1}, "load_classifier: expected one of .*, got 'colum'; did you mean 'column'?"),
        (
            len,
            {"kind": "binry"},
            "load_classifier: kind: expected 'binary', 'multilabel' or 'multiclass', got 'binry'",
        ),
        (len, {"size": "large"}, "load_classifier: size: .*got 'large'"),
        (len, {"kind": "multilabel"}, "column of the classifier"),
        (len, {"architecture": "resnet18"}, "leave architecture and arguments out"),
        (len, {"architecture": "resnet81"}, "leave architecture and arguments out"),
        (3, {}, "expected a network or a function, got int"),
        (
            "no/such/file.pt",
            {},
            "classifier no/such/file.pt: expected a file, a folder .*, got nothing of that name",
        ),
    ],
)
def test_wrong_arguments_are_refused(source: object, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as error:
        load_classifier(source, **settings)
    one_line(error)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user's, under a name that no other test uses."""
    name = f"models_{tmp_path.name}"
    text = """
        from torch import nn
        from fastdime.classifiers.wrapper import ImageClassifier
        def network(): return nn.Sequential(nn.Flatten(), nn.Linear(768, 1))
        def function(): return lambda images: images.mean((1, 2, 3))
        def classifier(): return ImageClassifier(function(), low=0.0, high=3.0)
        def nothing(): return None
        def broken(): raise ValueError("first\\nsecond")
        number = 3
        ready = network()
    """
    (tmp_path / f"{name}.py").write_text("\n".join(line.strip() for line in text.splitlines()))
    (tmp_path / f"{name}_bad.py").write_text("import surely_not_installed")
    (tmp_path / f"{name}_worse.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    return name


@pytest.mark.parametrize("function", ["network", "function", "classifier", "ready"])
def test_a_function_of_the_users(module: str, function: str, x: Tensor) -> None:
    classifier = load_classifier(f"{module}:{function}")
    assert classifier.logits(x, TIME).shape == (2, 1)
    assert classifier.high == (3.0 if function == "classifier" else 1.0)


def test_a_module_in_the_working_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model_in_the_folder.py").write_text("def network():\n    return lambda images: images")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    load_classifier("model_in_the_folder:network")
    assert sys.path == before


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("surely_not.there:network", "can be imported, got no module surely_not; install it"),
        ("{module}.inner:network", "no module|not a package"),
        ("{module}:netwrk", "function: expected one of .*, got 'netwrk'; did you mean 'network'?"),
        ("{module}:number", "expected a function that returns a network, got int"),
        ("{module}:nothing", "expected a function that returns a network, got NoneType"),
        ("{module}:broken", "got ValueError: first second"),
        (
            "{module}_bad:network",
            "a module that can be imported, got ModuleNotFoundError: .*surely_not_installed",
        ),
        ("{module}_worse:network", "got ZeroDivisionError"),
    ],
)
def test_a_function_that_is_not_there_or_fails_is_named(module: str, source: str, sentence: str) -> None:
    source = source.format(module=module)
    with pytest.raises(InputError, match=f"classifier {source}.*({sentence})") as error:
        load_classifier(source)
    one_line(error)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_torchscript(tmp_path: Path, x: Tensor) -> None:
    network = nn.Sequential(nn.BatchNorm2d(3), nn.Dropout(), nn.Flatten(), nn.Linear(768, 2))
    path = tmp_path / "model.ts"
    program = torch.jit.script(network)
    program.save(path)
    path.with_name("model.ts.json").write_text('{"kind": "multiclass", "low": 0}')
    classifier = load_classifier(path, high=2)
    assert not classifier.module.training
    wanted = network.eval()(x + 1)
    torch.testing.assert_close(classifier.logits(x, TIME), wanted)
    torch.testing.assert_close(load_classifier(program, kind="multiclass").logits(x + 1, TIME), wanted)
    assert program.training
    with pytest.raises(
        InputError, match=r"takes images of shape .*, got RuntimeError: mat1 and mat2"
    ) as error:
        classifier.logits(x[..., :8], TIME)
    one_line(error)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_damaged_torchscript_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.ts"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/constants.pkl", b"nonsense")
    with pytest.raises(CheckpointError, match=r"model.ts: expected a whole TorchScript file") as error:
        load_classifier(path)
    one_line(error)


def test_a_pickle_is_refused_and_not_run(tmp_path: Path, small: nn.Module) -> None:
    class Hostile:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "marker",)

    torch.save(small, tmp_path / "whole.pt")
    (tmp_path / "hostile.pt").write_bytes(pickle.dumps({"model": Hostile()}, protocol=2))
    for name in ("whole.pt", "hostile.pt"):
        with pytest.raises(CheckpointError, match=rf"{name}.*pickle with code.*state_dict\(\)") as error:
            load_classifier(tmp_path / name, architecture="small-cnn")
        one_line(error)
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize(
    ("architecture", "arguments", "settings"),
    [
        ("small-cnn", {"width": 16}, {"kind": "multiclass"}),
        ("resnet18", {}, {"kind": "multiclass", "mean": (0.1,) * 3, "std": (0.5,) * 3}),
        ("dive-densenet121", {}, {"column": 1, "size": 32}),
        (
            "encoder-unet",
            {
                "image_size": 16,
                "widths": (32, 64),
                "res_blocks": 1,
                "attention": (False, True),
                "head_width": 32,
            },
            {"kind": "multiclass"},
        ),
    ],
)
def test_a_folder_gives_back_what_was_saved(
    architecture: str, arguments: dict[str, Any], settings: dict[str, Any], tmp_path: Path, x: Tensor
) -> None:
    module = build_network(architecture, outputs=2, **arguments).eval()
    with torch.no_grad():
        for weight in module.parameters():
            weight += 0.01 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
    told = {"head_width": 32} if architecture == "encoder-unet" else {}  # the weights tell the rest
    spec = ClassifierSpec(architecture=architecture, arguments=told, **settings)
    save_classifier(tmp_path / "new" / "folder", module, spec)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    loaded = load_classifier(tmp_path / "new" / "folder")
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(part.training for part in loaded.module.modules())
    expected = spec.completed().wrap(module)
    assert loaded == dataclasses.replace(expected, module=loaded.module)
    assert loaded.timed == (architecture == "encoder-unet")
    torch.testing.assert_close(loaded.logits(x, TIME), expected.logits(x, TIME), rtol=0, atol=0)
    assert sorted(path.name for path in (tmp_path / "new").rglob("*") if path.is_file()) == [
        "classifier.json",
        "model.safetensors",
    ]


def test_published_encoder_weights(tmp_path: Path) -> None:
    with np.load(REFERENCE / "encoder_unet.npz") as file:
        data = {name: torch.from_numpy(file[name]) for name in file.files}
    weights = {name.removeprefix("sd/"): value for name, value in data.items() if name.startswith("sd/")}
    path = tmp_path / "encoder.safetensors"
    save_weights(path, weights)
    head_width = int(data["hp_num_head_channels"])
    told = {"image_size": int(data["hp_image_size"]), "head_width": head_width}
    told["new_order"] = bool(data.get("hp_use_new_attention_order", False))
    kind: Any = "binary" if data["y"].shape[1] == 1 else "multiclass"
    first = load_classifier(path, architecture="encoder-unet", arguments=told, kind=kind)
    torch.testing.assert_close(first.logits(data["x"], data["t"]), data["y"], rtol=1e-4, atol=1e-4)

    own = ClassifierSpec(architecture="encoder-unet", arguments={"head_width": head_width}, kind=kind)
    usual = data["hp_resblock_updown"] and data["hp_use_scale_shift_norm"] and data["hp_channel_mult"][0] == 1
    if usual:
        save_classifier(tmp_path / "folder", first.module, own)
        again = load_classifier(tmp_path / "folder")
        torch.testing.assert_close(again.logits(data["x"], data["t"]), first.logits(data["x"], data["t"]))
    else:  # a kind that `encoder_unet` does not build
        with pytest.raises(CheckpointError, match="weights that fit"):
            save_classifier(tmp_path / "folder", first.module, own)


def test_published_encoder_weights_need_the_image_size(tmp_path: Path) -> None:
    save_weights(tmp_path / "encoder.safetensors", {"out.2.positional_embedding": torch.zeros(32, 65)})
    with pytest.raises(
        InputError, match="arguments of encoder-unet: expected a value for image_size, got none"
    ):
        load_classifier(tmp_path / "encoder.safetensors", architecture="encoder-unet")


def torchvision_densenet(module: nn.Module) -> dict[str, Tensor]:
    """The weights under the names of a DenseNet of 2017, which had no step counters."""
    weights = {name: value for name, value in module.state_dict().items() if "num_batches" not in name}
    for ours, theirs in [
        (".layers.norm", ".norm."),
        (".layers.conv", ".conv."),
        ("class_layers.out.", "classifier."),
    ]:
        weights = {name.replace(ours, theirs): value for name, value in weights.items()}
    return weights


def test_torchvision_weights_with_a_json_beside_them(tmp_path: Path, x: Tensor) -> None:
    module = densenet121(channels=1, outputs=3).eval()
    torch.save({"state_dict": torchvision_densenet(module)}, tmp_path / "dense.pth")
    spec = {"architecture": "densenet121", "kind": "multiclass", "channels": 1, "size": 64}
    (tmp_path / "dense.json").write_text(json.dumps(spec))
    classifier = load_classifier(tmp_path / "dense.pth", size=32)
    gray = (x * torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)).sum(1, keepdim=True)
    gray = torch.nn.functional.interpolate(gray, (32, 32), mode="bilinear", antialias=True)
    torch.testing.assert_close(classifier.logits(x, TIME), module(gray))


def test_dive_checkpoint(tmp_path: Path, x: Tensor) -> None:
    module = densenet121(outputs=40).eval()
    weights = torchvision_densenet(module)
    trunk = {f"feat_extract.{name}": weights[name] for name in weights if "classifier" not in name}
    head = {name.removeprefix("classifier."): weights[name] for name in weights if "classifier" in name}
    torch.save({"feat_extract": trunk, "classifier": head, "epoch": 3}, tmp_path / "dive.pth")
    classifier = load_classifier(tmp_path / "dive.pth", architecture="dive-densenet121", column=31)
    large = torch.nn.functional.interpolate(x, (128, 128), mode="bilinear", antialias=True)
    torch.testing.assert_close(classifier.logits(x, TIME), module(large)[:, 31:32])
    with pytest.raises(InputError, match="column of the classifier"):
        load_classifier(tmp_path / "dive.pth", architecture="dive-densenet121")
    whole = load_outputs(tmp_path / "dive.pth", architecture="dive-densenet121")
    torch.testing.assert_close(whole.outputs(x, TIME), module(large))


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        (None, "weights.safetensors: expected the name of an architecture"),
        ("{", r"weights.json: expected a JSON file"),
        ("[]", r"weights.json: expected a JSON object"),
        ('{"architecure": "small-cnn"}', "weights.json: .*got 'architecure'; did you mean 'architecture'?"),
        ('{"architecture": "smal-cnn"}', "weights.json: architecture: .*did you mean 'small-cnn'?"),
        ('{"architecture": "small-cnn", "kind": 3}', "weights.json: kind: expected 'binary'"),
        (
            '{"architecture": "small-cnn", "arguments": {"widht": 8}}',
            "arguments of small-cnn: .*did you mean 'width'?",
        ),
        (
            '{"architecture": "small-cnn", "arguments": {"width": 0}}',
            "small-cnn: width: expected greater than",
        ),
        ('{"architecture": "small-cnn", "arguments": {"width": 16}}', "weights that fit the network"),
        ('{"architecture": "resnet18"}', "weights that fit the network"),
    ],
)
def test_a_wrong_json_beside_weights(
    written: str | None, sentence: str, tmp_path: Path, small: nn.Module
) -> None:
    save_weights(tmp_path / "weights.safetensors", small.state_dict())
    if written is not None:
        (tmp_path / "weights.json").write_text(written)
    with pytest.raises(FastdimeError, match=sentence) as error:
        load_classifier(tmp_path / "weights.safetensors")
    one_line(error)


def test_a_folder_with_a_part_missing(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"got no classifier.json"):
        load_classifier(tmp_path)
    (tmp_path / "classifier.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"got no model.safetensors"):
        load_classifier(str(tmp_path))


def test_saving_leaves_nothing_half_written(tmp_path: Path, small: nn.Module) -> None:
    with pytest.raises(InputError, match="spec of the classifier: expected the name of an architecture"):
        save_classifier(tmp_path / "a", small, ClassifierSpec())
    with pytest.raises(CheckpointError, match="weights that fit"):
        save_classifier(tmp_path / "a", small, ClassifierSpec(architecture="resnet18"))
    with pytest.raises(InputError, match="column of the classifier"):
        save_classifier(tmp_path / "a", small, ClassifierSpec(architecture="small-cnn", column=1))
    assert list(tmp_path.iterdir()) == []


def test_saving_does_not_overwrite(tmp_path: Path, small: nn.Module) -> None:
    spec = ClassifierSpec(architecture="small-cnn", kind="multiclass")
    (tmp_path / "a").mkdir()
    save_classifier(tmp_path / "a", small, spec)
    before = (tmp_path / "a" / "model.safetensors").read_bytes()
    with pytest.raises(InputError, match="expected a new or empty folder"):
        save_classifier(tmp_path / "a", resnet18(), spec)
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == before
    with pytest.raises(InputError, match="expected a place that can be written, got"):
        save_classifier(tmp_path / "a" / "model.safetensors" / "b", small, spec)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"image_size": 10, "widths": (32, 32, 32)}, "expected a multiple of 4, for 3 levels, got 10"),
        (
            {"image_size": 16, "widths": (32, 32), "attention": (True,)},
            "attention of encoder-unet: expected 2 levels",
        ),
    ],
)
def test_an_encoder_that_cannot_be_built(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        encoder_unet(**arguments)
