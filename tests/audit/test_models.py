import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fastdime.audit import models
from fastdime.audit.models import open_audited, parse_model, parse_models
from fastdime.classifiers.load import save_classifier
from fastdime.classifiers.networks import small_cnn
from fastdime.classifiers.spec import ClassifierSpec
from fastdime.classifiers.wrapper import ImageClassifier
from fastdime.errors import InputError
from support import onnx_files, tiny

SHAPE = (3, 8, 8)


@pytest.fixture
def x() -> Tensor:
    return torch.rand(7, *SHAPE, generator=torch.Generator().manual_seed(0)) * 2 - 1


def means(images: Tensor) -> Tensor:
    return images.mean((2, 3))


def constant(*values: float) -> Any:
    return lambda images: torch.tensor([values]).expand(len(images), -1)


def test_one_output(x: Tensor) -> None:
    model = open_audited(lambda images: images.mean((1, 2, 3)), "mean")
    assert (model.name, model.outputs) == ("mean", ("class 1",))
    found = model.ask(x)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found[:, 0], x.mean((1, 2, 3)), rtol=1e-6)


@pytest.mark.parametrize("settings", [{}, {"column": 1}])
def test_all_labels_of_a_multilabel_network(settings: dict[str, Any], x: Tensor) -> None:
    model = open_audited(means, kind="multilabel", shape=SHAPE, **settings)
    assert model.outputs == ("label 0", "label 1", "label 2")
    np.testing.assert_allclose(model.ask(x), means(x), rtol=1e-6)
    named = open_audited(means, outputs=["r", "g", "b"], kind="multilabel")
    assert named.outputs == ("r", "g", "b")
    np.testing.assert_array_equal(named.ask(x), model.ask(x))


def test_probabilities_of_labels(x: Tensor) -> None:
    model = open_audited(constant(0.25, 0.0), kind="multilabel", output="probability", shape=SHAPE)
    np.testing.assert_allclose(model.ask(x[:1]), [[np.log(1 / 3), np.log(1e-6)]], rtol=1e-5)


def test_each_class_against_the_rest(x: Tensor) -> None:
    model = open_audited(means, kind="multiclass", shape=SHAPE)
    assert model.outputs == ("class 0", "class 1", "class 2")
    p = means(x).double().softmax(1)
    np.testing.assert_allclose(model.ask(x), (p / (1 - p)).log(), rtol=1e-6)


def test_sure_classes_keep_their_log_odds(x: Tensor) -> None:
    found = open_audited(constant(90.0, 0.0, -60.0), kind="multiclass", shape=SHAPE).ask(x[:1])
    np.testing.assert_allclose(found, [[90.0, -90.0, -150.0]], rtol=1e-12)


def test_of_two_classes_only_the_second_counts(x: Tensor) -> None:
    model = open_audited(constant(1.5, 90.0), kind="multiclass", shape=SHAPE)
    assert model.outputs == ("class 1",)
    np.testing.assert_allclose(model.ask(x[:1]), [[88.5]])
    with pytest.raises(
        InputError, match=r"outputs of model model: expected 1 name, .*, got 2; of two classes"
    ):
        open_audited(constant(1.5, 90.0), outputs=["no", "yes"], kind="multiclass", shape=SHAPE)


def test_probabilities_of_many_classes_are_not_added_up(x: Tensor) -> None:
    sure = constant(1.0, *[0.0] * 999)
    found = open_audited(sure, kind="multiclass", output="probability", shape=SHAPE).ask(x[:1])
    np.testing.assert_allclose(found[0, :2], [np.log(1e6), -np.log(1e6)], rtol=1e-3)


@pytest.mark.parametrize("kind", ["binary", "multilabel", "multiclass"])
@pytest.mark.parametrize("output", ["logit", "probability"])
def test_scores_are_the_answers_with_a_gradient(kind: Any, output: Any, x: Tensor) -> None:
    network = small_cnn(3, 1 if kind == "binary" else 3, 8)
    chance = nn.Softmax(1) if kind == "multiclass" else nn.Sigmoid()
    source = nn.Sequential(network, chance) if output == "probability" else network
    model = open_audited(source, kind=kind, output=output, shape=SHAPE)
    assert model.scores is not None
    images = x.clone().requires_grad_()
    found = model.scores(images)
    np.testing.assert_array_equal(found.detach(), model.ask(x))
    [gradient] = torch.autograd.grad(found[:, -1].sum(), images)
    assert gradient.flatten(1).any(1).all()


def test_sure_classes_keep_their_gradient(x: Tensor) -> None:
    model = open_audited(lambda images: 1e4 * means(images), kind="multiclass", shape=SHAPE)
    assert model.scores is not None
    images = x.clone().requires_grad_()
    [gradient] = torch.autograd.grad(model.scores(images).sum(), images)
    assert gradient.isfinite().all()


def test_batches_and_order_do_not_matter(x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = tiny.classifier(3, 4, kind="multiclass")
    model = open_audited(classifier, shape=SHAPE)
    whole = model.ask(x)
    monkeypatch.setattr(models, "BATCH", 2)
    np.testing.assert_allclose(model.ask(x), whole, atol=1e-5)
    np.testing.assert_allclose(model.ask(x.flip(0)), whole[::-1], atol=1e-5)
    assert model.ask(x[:0]).shape == (0, 4)


def test_the_model_is_left_as_found_and_used_in_evaluation_mode(x: Tensor) -> None:
    classifier = tiny.classifier(3, 1)
    classifier.module.train()
    before = {name: value.clone() for name, value in classifier.module.state_dict().items()}
    model = open_audited(classifier, shape=SHAPE)
    np.testing.assert_array_equal(model.ask(x), model.ask(x))  # dropout would show
    assert all(part.training for part in classifier.module.modules())
    assert all(torch.equal(value, before[name]) for name, value in classifier.module.state_dict().items())
    assert all(weight.requires_grad and weight.grad is None for weight in classifier.module.parameters())


def test_images_of_any_size_where_the_model_resizes(x: Tensor) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    model = open_audited(network, kind="multiclass", size=4, channels=1)  # asked with these at once
    assert model.outputs == ("class 1",)
    assert model.ask(x).shape == model.ask(torch.zeros(7, 1, 12, 20)).shape == (7, 1)


def test_a_network_that_divides_by_the_spread_of_the_image() -> None:
    def normalised(images: Tensor) -> Tensor:
        return (images / images.std((2, 3), keepdim=True)).mean((1, 2, 3))

    assert open_audited(normalised, shape=SHAPE).outputs == ("class 1",)


@pytest.mark.parametrize(
    ("source", "settings", "sentence"),
    [
        (constant(float("nan")), {}, "model m: output of the classifier: expected finite numbers"),
        (constant(0.0, float("inf")), {"kind": "multilabel"}, "model m: .*expected finite numbers"),
        (
            constant(0.0, 0.0),
            {},
            r"model m: .*expected shape \(1, 1\) for kind 'binary', got \(1, 2\); set kind",
        ),
        (constant(0.0), {"kind": "multiclass"}, r"model m: .*\(1, 2 or more\)"),
        (
            nn.Linear(5, 1),
            {},
            r"model m: classifier: .* takes images of shape \(1, 3, 8, 8\), got RuntimeError",
        ),
        (means, {"outputs": ["a", "b"], "kind": "multilabel"}, "of model m: expected 3 names, .*, got 2"),
        (means, {"outputs": ["a", "b", "a"], "kind": "multilabel"}, "of model m: expected different names"),
        (means, {"outputs": ["a", "b", "id"], "kind": "multilabel"}, "of model m: .* got 'id'"),
        (means, {"kind": "multilabel", "shape": None}, "of model m: expected their names, or .* got neither"),
        (means, {"knd": "multilabel"}, "did you mean 'kind'"),
    ],
)
def test_what_does_not_fit_is_told_when_it_is_opened(
    source: Any, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence) as error:
        open_audited(source, "m", **{"shape": SHAPE, **settings})
    assert "\n" not in str(error.value)


def test_a_size_that_a_network_asserts() -> None:
    def strict(images: Tensor) -> Tensor:
        assert images.shape[-1] == 224, "224 pixels wanted"
        return images.mean((1, 2, 3))

    with pytest.raises(InputError, match=r"model m: .* got AssertionError: 224 pixels wanted"):
        open_audited(strict, "m", shape=SHAPE)


def test_what_does_not_fit_later_names_the_model(x: Tensor) -> None:
    model = open_audited(means, "m", ["a", "b"], kind="multilabel")  # nothing tells the number of outputs yet
    with pytest.raises(InputError, match=r"outputs of model m: expected 3 names, .*, got 2"):
        model.ask(x)
    with pytest.raises(InputError, match="model m: images: expected shape"):
        model.ask(x[0])


def test_files_and_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, x: Tensor) -> None:
    module = onnx_files.network(outputs=3)
    pytest.importorskip("onnxruntime", reason="onnxruntime runs ONNX files")
    path = onnx_files.write(tmp_path / "chest.onnx", module, batch=1, sides=(8, 8))
    path.with_suffix(".json").write_text(json.dumps({"kind": "multilabel", "size": 8}))
    model = open_audited(path, shape=(3, 16, 16))
    assert (model.name, len(model.outputs), model.scores) == ("chest", 3, None)
    np.testing.assert_allclose(model.ask(x), module(x).detach(), atol=1e-5)

    save_classifier(
        tmp_path / "net", small_cnn(3, 2, 8), ClassifierSpec(architecture="small-cnn", kind="multiclass")
    )
    assert open_audited(tmp_path / "net", shape=SHAPE).name == "net"

    source = "from fastdime.audit.models import ImageClassifier\n"
    source += "def means(): return ImageClassifier(lambda x: x.mean((2, 3)), kind='multilabel')"
    (tmp_path / "audited_by_test.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    found = open_audited("audited_by_test:means", shape=SHAPE)
    assert (found.name, len(found.outputs)) == ("means", 3)


def test_a_model_from_python_needs_no_column(x: Tensor) -> None:
    model = open_audited(ImageClassifier(means, kind="multilabel"), shape=SHAPE)
    assert model.ask(x).shape == (7, 3)


def test_names_and_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_model("runs/lr=0.1/net.pt") == ("net", "runs/lr=0.1/net.pt")
    assert parse_model("a=runs/lr=0.1/net.pt") == ("a", "runs/lr=0.1/net.pt")
    assert parse_model("lr=0.1.pt") == ("lr", "0.1.pt")
    (tmp_path / "lr=0.1.pt").touch()
    assert parse_model("lr=0.1.pt") == ("lr=0.1", "lr=0.1.pt")
    (tmp_path / "v1.5").mkdir()
    assert parse_model("v1.5") == ("v1.5", "v1.5")
    assert parse_model(".") == (tmp_path.name, ".")
    assert parse_models(["a=x:y", "x:y", "b.onnx"]) == {"a": "x:y", "y": "x:y", "b": "b.onnx"}


@pytest.mark.parametrize("text", ["", "=x.pt", "x=", " =x.pt"])
def test_a_model_without_name_or_source(text: str) -> None:
    with pytest.raises(InputError, match="--model: expected SOURCE or NAME=SOURCE, got"):
        parse_model(text)


def test_two_models_of_one_name() -> None:
    with pytest.raises(
        InputError, match=r"expected different names, got 'net' for a/net.pt and b/net.pt; give NAME="
    ):
        parse_models(["a/net.pt", "b/net.pt"])
