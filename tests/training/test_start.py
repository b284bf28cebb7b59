"""Beginning with trained weights."""

import shutil
from pathlib import Path

import pytest
import torch

from fastdime import toy
from fastdime.classifiers.spec import ClassifierSpec
from fastdime.errors import CheckpointError, InputError
from fastdime.pixels import to_integers
from fastdime.training.classifying import Classifying
from fastdime.training.denoising import Denoising, UNetShape
from fastdime.training.loop import Trainer
from fastdime.training.pictures import Pictures, split
from fastdime.training.run import train
from fastdime.training.settings import TrainSettings
from fastdime.training.start import start_from

SETTINGS = TrainSettings(steps=2, batch_size=4, warmup=0, ema=0.0, learning_rate=1e-2)


def pictures(channels: int = 1) -> tuple[Pictures, Pictures]:
    drawn = toy.pictures(24)
    x = to_integers(drawn.x).to(torch.uint8).expand(-1, channels, -1, -1)
    return split(Pictures(x, 8, drawn.ring.float()), 0.5, 0)


def denoising(widths: tuple[int, ...] = (16, 16)) -> Denoising:
    return Denoising(*pictures(), UNetShape(widths))


def classifying(channels: int = 1, width: int = 8) -> Classifying:
    arguments = {"channels": channels, "width": width}
    return Classifying(*pictures(channels), ClassifierSpec(architecture="small-cnn", arguments=arguments))


@pytest.mark.parametrize("task", [denoising(), classifying()], ids=["denoiser", "classifier"])
def test_it_begins_where_the_other_ended(task: Denoising | Classifying, tmp_path: Path) -> None:
    first = train(task, SETTINGS, tmp_path / "first")
    for source in (tmp_path / "first", first.folder):
        start = start_from(task, source)
        trainer = Trainer(task, SETTINGS, tmp_path / f"next-{source.name}", start=start)
        with torch.no_grad():
            scores = task.validate(trainer.network.eval())
        assert scores == pytest.approx(first.scores, rel=1e-4)


def test_it_goes_on_only_with_the_same_start(tmp_path: Path) -> None:
    task = classifying()
    train(task, SETTINGS, tmp_path / "first")
    for _ in range(2):
        train(task, SETTINGS, tmp_path / "next", start=tmp_path / "first")
    with pytest.raises(InputError, match="start = None, where the run has"):
        train(task, SETTINGS, tmp_path / "next")
    train(task, SETTINGS.model_copy(update={"seed": 1}), tmp_path / "other")
    shutil.rmtree(tmp_path / "first")
    (tmp_path / "other").rename(tmp_path / "first")  # other weights in the same place
    with pytest.raises(InputError, match="start_weights = "):
        train(task, SETTINGS, tmp_path / "next", start=tmp_path / "first")


def test_the_first_layer_may_be_for_other_channels(tmp_path: Path) -> None:
    train(classifying(3), SETTINGS, tmp_path / "colour")
    gray = classifying(1)
    start = start_from(gray, tmp_path / "colour")
    assert gray.build().state_dict().keys() - start.weights.keys() == {"block1.0.weight"}


def test_weights_of_something_else(tmp_path: Path) -> None:
    train(classifying(), SETTINGS, tmp_path / "first")
    with pytest.raises(CheckpointError, match="choose the same architecture"):
        start_from(classifying(width=16), tmp_path / "first")
    with pytest.raises(CheckpointError, match="nothing there"):
        start_from(classifying(), tmp_path / "nowhere")
    train(denoising(), SETTINGS, tmp_path / "denoiser")
    with pytest.raises(CheckpointError, match="choose the same architecture"):
        start_from(denoising((16, 16, 24)), tmp_path / "denoiser")
