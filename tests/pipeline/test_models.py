import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from fastdime import toy
from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.methods import METHODS, settings_for
from fastdime.data.io import read, write_image
from fastdime.diffusion.denoiser import Denoiser, as_denoiser
from fastdime.errors import InputError
from fastdime.pipeline import models
from fastdime.pipeline.explain import explain
from fastdime.pipeline.options import RunOptions
from fastdime.runs import image_path, read_run
from support.commands import QUICK, TOY, complaint, explain_toy, fastdime_command

FEW_STEPS = settings_for("fastdime", tau=4, steps=50)


class Brightness:
    """A classifier of any image: is it brighter than middle gray?"""

    def logits(self, x: Tensor, time: Tensor) -> Tensor:
        return 20 * x.mean((1, 2, 3))[:, None]


def any_size(channels: int | None = None) -> Denoiser:
    """A denoiser that takes whatever comes."""
    return replace(as_denoiser(lambda x, t: x * 0.1), channels=channels)


def draw(path: Path, *shape: int) -> Path:
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(np.random.default_rng(0).integers(60, 120, shape, dtype=np.uint8)).save(path)
    return path


def test_colour_for_a_gray_model(tmp_path: Path) -> None:
    draw(tmp_path / "data" / "a.png", toy.SIZE, toy.SIZE, 3)
    gray = np.asarray(Image.open(draw(tmp_path / "gray.png", toy.SIZE, toy.SIZE)))
    Image.fromarray(np.repeat(gray[..., None], 3, axis=2)).save(tmp_path / "data" / "b.png")
    out = tmp_path / "run"
    assert explain_toy(tmp_path / "data", out).code == 3
    first, second = read_run(out)[1]
    assert "a.png: expected a gray image, got a colour one" in first["error"]
    assert "error" not in second  # three equal channels are gray
    assert read(image_path(out, "b")).x.shape == (1, toy.SIZE, toy.SIZE)
    assert explain_toy(tmp_path / "data", tmp_path / "both", "--convert-channels").code == 0


def test_gray_for_a_colour_model(tmp_path: Path) -> None:
    path = draw(tmp_path / "a.png", 20, 20)
    explainer = Explainer(any_size(3), Brightness(), FEW_STEPS)
    assert explain(path, explainer, tmp_path / "run").errors == 1
    assert "expected a colour image, got a gray one" in read_run(tmp_path / "run")[1][0]["error"]
    assert explain(path, explainer, tmp_path / "made", RunOptions(convert=True)).errors == 0
    assert read(image_path(tmp_path / "made", "a")).x.shape == (3, 20, 20)


def test_sizes_that_are_not_square(tmp_path: Path) -> None:
    for name, shape in {"a": (33, 47, 3), "b": (33, 47, 3), "c": (47, 33, 3)}.items():
        draw(tmp_path / "data" / f"{name}.png", *shape)
    explainer = Explainer(any_size(), Brightness(), FEW_STEPS)
    summary = explain(tmp_path / "data", explainer, tmp_path / "run")
    assert (summary.images, summary.errors) == (2, 1)
    assert read(image_path(tmp_path / "run", "a")).x.shape == (3, 33, 47)
    assert "expected 33x47 pixels, got 47x33; resize it" in read_run(tmp_path / "run")[1][2]["error"]
    square = explain(tmp_path / "data", explainer, tmp_path / "square", RunOptions(size=24))
    assert (square.images, square.errors) == (3, 0)
    assert read(image_path(tmp_path / "square", "c")).x.shape == (3, 24, 24)


def test_models_that_do_not_fit_are_told_before_the_run_begins(tmp_path: Path) -> None:
    table = toy.write(tmp_path / "data", 1)
    for network, message in [
        (lambda x, t: x @ torch.zeros(7, 7), "denoiser: expected a network that takes images of shape"),
        (lambda x, t: x[:, :, 1:], "output of the denoiser network: expected shape"),
        (lambda x, t: None, "denoiser: expected a network that takes images of shape"),
        (lambda x: x, "denoiser: expected a network that takes images of shape"),
    ]:
        with pytest.raises(InputError, match=message) as caught:
            explain(table, Explainer(as_denoiser(network), toy.classifier()), tmp_path / "run")
        assert "\n" not in str(caught.value)
    classifier = replace(toy.classifier(), channels=3)
    with pytest.raises(InputError, match="classifier: expected a network that takes images of shape"):
        explain(table, Explainer(toy.denoiser(), classifier), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_a_torchscript_classifier(tmp_path: Path) -> None:
    table = toy.write(tmp_path / "data", 2)
    torch.jit.trace(toy.RingClassifier().eval(), toy.pictures(2).x).save(str(tmp_path / "ring.pt"))
    words = ["explain", "--denoiser", "fastdime.toy:denoiser", *QUICK, "--data", table]
    done = fastdime_command(*words, "--classifier", tmp_path / "ring.pt", "--out", tmp_path / "run", "--json")
    assert (done.code, json.loads(done.out)["flip_rate"]) == (0, 1.0)
    (tmp_path / "cut.pt").write_bytes((tmp_path / "ring.pt").read_bytes()[:999])
    for name in ("cut.pt", "nothing.pt"):
        done = fastdime_command(*words, "--classifier", tmp_path / name, "--out", tmp_path / "x")
        assert name in complaint(done)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_three_classes(tmp_path: Path) -> None:
    table = toy.write(tmp_path / "data", 2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        three = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(toy.SIZE**2, 3))
    torch.jit.script(three).save(str(tmp_path / "three.pt"))
    (tmp_path / "three.json").write_text('{"kind": "multiclass"}')
    words = ["explain", "--denoiser", "fastdime.toy:denoiser", "--classifier", tmp_path / "three.pt", *QUICK]
    words += ["--data", table, "--out", tmp_path / "run", "--target"]
    assert complaint(fastdime_command(*words, "flip:ring")) == (
        "target flip:COLUMN: expected two classes, got 3; use column:COLUMN"
    )
    assert complaint(fastdime_command(*words, 3)) == "target: expected a class from 0 to 2, got 3"
    assert fastdime_command(*words, 2).code == 0
    assert {record["target"] for record in read_run(tmp_path / "run")[1]} == {2}


def test_models_that_are_missing_or_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = toy.write(tmp_path / "data", 1)
    (tmp_path / "models_of_a_user.py").write_text(
        "def fails():\n    raise OSError('no\\nweights')\nnumber = 3\n"
    )
    (tmp_path / "mistyped_module.py").write_text("def half(:\n")
    monkeypatch.chdir(tmp_path)
    denoiser, classifier = TOY[:2], TOY[2:]
    for words, message in [
        ([], "--denoiser: expected a path or module:function, or --bundle, got nothing"),
        (denoiser, "--classifier: expected a path or module:function, or --bundle, got nothing"),
        (classifier, "--denoiser: expected a path or module:function, or --bundle, got nothing"),
        (
            ["--bundle", "nowhere"],
            "bundle nowhere: expected a folder, or one that comes with fastdime (chest-",
        ),
        (
            [*classifier, "--denoiser", "nowhere"],
            "nowhere: expected a diffusers folder, a checkpoint file or",
        ),
        ([*classifier, "--denoiser", "fastdime.toy:denoisr"], "did you mean 'denoiser'?"),
        ([*classifier, "--denoiser", "models_of_a_user:fails"], "got OSError: no weights"),
        ([*classifier, "--denoiser", "models_of_a_user:number"], "got int"),
        ([*classifier, "--denoiser", "mistyped_module:half"], "got SyntaxError"),
        ([*denoiser, "--classifier", "fastdime.toy:clasifier"], "did you mean 'classifier'?"),
        ([*denoiser, "--classifier", "models_of_a_user:fails"], "got OSError: no weights"),
        ([*denoiser, "--classifier", "no_such_module:x"], "got no module no_such_module"),
        ([*TOY, "--features", "nowhere.pt"], "nowhere.pt: expected a file with weights, got nothing there"),
        ([*TOY, "--architecture", "dime-celeba"], "architecture: expected a checkpoint file to go with"),
        ([*TOY, "--set", "perceptual=30"], "features: expected a feature network, as perceptual = 30"),
        ([*TOY, "--seed", "-1"], "--seed: expected 0 or more, got -1"),
        ([*TOY, "--device", "meta"], "--device: expected a device of this machine, got 'meta'"),
        ([*TOY, "--device", "gpu"], "--device: expected a device of this machine, got 'gpu'"),
    ]:
        done = fastdime_command("explain", "--data", table, "--out", tmp_path / "run", *words)
        assert message in complaint(done), message
    assert [path.name for path in tmp_path.glob("run/images/*")] == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    table = toy.write(tmp_path / "data", 1)
    sentence = complaint(explain_toy(table, tmp_path / "run", "--device", "cuda"))
    assert sentence.startswith("--device: expected a device of this machine, got 'cuda'")
    assert not (tmp_path / "run").exists()


def test_out_of_memory_is_one_line(tmp_path: Path) -> None:
    write_image(tmp_path / "a.png", toy.pictures(1).x[0])
    write_image(tmp_path / "b.png", toy.pictures(1).x[0])

    def greedy(x: Tensor, t: Tensor) -> Tensor:
        if len(x) > 1:
            raise torch.OutOfMemoryError("tried to allocate 7 GiB")
        return x

    explainer = Explainer(as_denoiser(greedy), toy.classifier(), FEW_STEPS)
    with pytest.raises(InputError, match="--batch-size: expected fewer than 2 images at a time"):
        explain(tmp_path, explainer, tmp_path.with_name("run"))


@pytest.mark.parametrize(
    "words", [("--method", "gmd"), ("--method", "ace-l1"), ("--set", "gradient=through")], ids=" ".join
)
def test_a_method_that_onnx_cannot_run_is_refused_before_the_export(
    words: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "ENGINES", {"onnx": None})  # not to be called
    table = toy.write(tmp_path / "data", 1)
    line = complaint(
        fastdime_command(
            "explain", *TOY, "--data", table, "--out", tmp_path / "x", "--engine", "onnx", *words
        )
    )
    assert line.startswith("--engine onnx: expected a method without gradients through the denoiser, got")
    assert not (tmp_path / "x").exists()


def test_only_gmd_and_ace_take_gradients_through_the_denoiser() -> None:
    through = {name for name in METHODS if settings_for(name).through_denoiser}
    assert through == {"gmd", "gmd-nomask", "ace-l1", "ace-l2"}
