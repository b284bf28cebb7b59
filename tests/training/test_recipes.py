"""Recipes: the published networks have their size, and each recipe trains."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fastdime import toy
from fastdime.classifiers.load import load_classifier
from fastdime.classifiers.networks import ARCHITECTURES, encoder_unet
from fastdime.diffusion.checkpoints import load_denoiser
from fastdime.diffusion.sidecar import ARCHITECTURES as PUBLISHED
from fastdime.errors import DataError, InputError
from fastdime.pixels import to_integers
from fastdime.training.denoising import Denoising
from fastdime.training.order import generator
from fastdime.training.pictures import Pictures, split
from fastdime.training.recipes import DENOISERS, GUIDES, RECIPES, TASKS, DenoiserRecipe
from fastdime.training.request import recipe_for, settings_for, task_for
from fastdime.training.run import train
from fastdime.training.shapes import GuidedShape, MedicalShape, UNetShape

SHRUNKEN = {
    "celeba": GuidedShape(widths=(8, 16), attention=(False, True), layers=1, heads=2, groups=4),
    "medical": MedicalShape(widths=(8, 16), layers=1, heads=2, groups=4),
    "small": UNetShape(widths=(16, 16)),
}
ONE = {"steps": 1, "batch_size": 4, "log_every": 1}


def pictures(n: int = 24) -> tuple[Pictures, Pictures]:
    drawn = toy.pictures(n)
    return split(Pictures(to_integers(drawn.x).to(torch.uint8), 8, drawn.ring.float()), 0.5, 0)


def size_of(network: nn.Module) -> int:
    return sum(weight.numel() for weight in network.parameters())


@pytest.mark.parametrize("name", RECIPES)
def test_a_denoiser_of_each_recipe_trains_and_opens(name: str, tmp_path: Path) -> None:
    recipe = replace(DENOISERS[name], shape=SHRUNKEN[name])
    task = task_for(recipe, *pictures(), {})
    trained = train(task, settings_for(recipe, ONE, task.images), tmp_path)
    denoiser = load_denoiser(trained.folder)
    assert len(denoiser.schedule) == (500 if name == "celeba" else 1000)
    assert denoiser.variance == SHRUNKEN[name].variance
    assert (denoiser.channels, denoiser.size) == (1, 32)
    assert trained.scores["loss"] == pytest.approx(task.validate(denoiser.network)["loss"], rel=1e-4)


@pytest.mark.parametrize("kind", ["guide", "task"])
@pytest.mark.parametrize("name", RECIPES)
def test_a_classifier_of_each_recipe_trains_and_opens(
    name: str, kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if recipe_for(kind, name).architecture == "encoder-unet":
        monkeypatch.setitem(vars(ARCHITECTURES["encoder-unet"]), "build", small_encoder)
    recipe = recipe_for(kind, name)
    task = task_for(recipe, *pictures(), {})
    trained = train(task, settings_for(recipe, ONE, task.images), tmp_path)
    classifier = load_classifier(trained.folder)
    assert classifier.timed == (recipe.architecture == "encoder-unet")
    assert {"loss", "accuracy", "auroc"} == trained.scores.keys()


def small_encoder(image_size: int, channels: int, **_: Any) -> nn.Module:
    return encoder_unet(image_size, channels, widths=(32, 64), res_blocks=1, head_width=32)


def conv(inside: int, outside: int, side: int = 1) -> int:
    return inside * outside * side**2 + outside


def residual(inside: int, outside: int, time: int, shifts: int) -> int:
    skip = conv(inside, outside) if inside != outside else 0
    norms = 2 * inside + 2 * outside
    return norms + conv(inside, outside, 3) + conv(time, shifts * outside) + conv(outside, outside, 3) + skip


def attention(width: int) -> int:
    return 2 * width + conv(width, 3 * width) + conv(width, width)


def way_down(channels: int, widths: tuple[int, ...], attends: tuple[bool, ...], guided: bool) -> int:
    """Count the weights of the time layers, two blocks a level on the way down, and the middle."""
    time, shifts = 4 * widths[0], 2 if guided else 1
    count = conv(widths[0], time) + conv(time, time) + conv(channels, widths[0], 3)
    inside = widths[0]
    for level, width in enumerate(widths):
        count += residual(inside, width, time, shifts) + residual(width, width, time, shifts)
        count += 2 * attention(width) * attends[level]
        if level < len(widths) - 1:
            count += residual(width, width, time, shifts) if guided else conv(width, width, 3)
        inside = width
    return count + 2 * residual(inside, inside, time, shifts) + attention(inside)


def way_up(outputs: int, widths: tuple[int, ...], attends: tuple[bool, ...], guided: bool) -> int:
    """Count the weights of three blocks a level on the way up, each with what was kept, and the end."""
    time, shifts = 4 * widths[0], 2 if guided else 1
    kept = [widths[0]]
    for level, width in enumerate(widths):
        kept += [width] * (3 if level < len(widths) - 1 else 2)
    count, inside = 0, widths[-1]
    for level, width in reversed(list(enumerate(widths))):
        for _ in range(3):
            count += residual(inside + kept.pop(), width, time, shifts) + attention(width) * attends[level]
            inside = width
        if level > 0:
            count += residual(width, width, time, shifts) if guided else conv(width, width, 3)
    return count + 2 * widths[0] + conv(widths[0], outputs, 3)


def test_published_sizes() -> None:
    """Counted by hand from the description of the published programs."""
    widths, attends = (128, 128, 256, 384, 512), (False, False, True, True, True)
    with torch.device("meta"):
        celeba, medical = GuidedShape().build(3, 128), MedicalShape().build(1, 224)
        guide = ARCHITECTURES[GUIDES["medical"].architecture].build(image_size=224, channels=1)
    assert size_of(celeba) == way_down(3, widths, attends, True) + way_up(6, widths, attends, True)
    assert tuple(celeba.config.block_out_channels) == PUBLISHED["dime-celeba"].layout.widths
    widths, nowhere = (64, 128, 256, 256), (False,) * 4
    assert size_of(medical) == way_down(1, widths, nowhere, False) + way_up(1, widths, nowhere, False)
    pool = 512 * (28 * 28 + 1) + conv(512, 3 * 512) + conv(512, 1)
    assert size_of(guide) == way_down(1, (128, 256, 512, 512), nowhere, True) + 2 * 512 + pool


@pytest.mark.parametrize("prediction", ["v", "sample", "edm"])
def test_other_predictions(prediction: str, tmp_path: Path) -> None:
    recipe = replace(DENOISERS["small"], shape=SHRUNKEN["small"])
    task = task_for(recipe, *pictures(), {"prediction": prediction})
    assert task.describe()["prediction"] == prediction
    assert task_for(recipe, *pictures(), {}).describe()["prediction"] == "v"
    assert "prediction" not in task_for(recipe, *pictures(), {"prediction": "epsilon"}).describe()
    trained = train(task, settings_for(recipe, ONE, task.images), tmp_path)
    denoiser = load_denoiser(trained.folder)
    assert denoiser.prediction == prediction
    assert trained.scores["loss"] == pytest.approx(task.validate(denoiser.network)["loss"], rel=1e-4)


def test_levels_of_a_focus_are_drawn_nine_times_out_of_ten() -> None:
    task = task_for(DENOISERS["small"], *pictures(), {"focus": 0.5})
    assert isinstance(task, Denoising)
    rows = torch.zeros(4000, dtype=torch.int64)
    _, levels, _ = task.draw(rows, generator(0))
    assert levels.max() > 900
    assert (levels < 500).float().mean() == pytest.approx(0.95, abs=0.02)  # half of the rest fall there too
    assert (levels < 250).float().mean() == pytest.approx(0.475, abs=0.03)
    assert task.describe()["focus"] == 0.5
    assert "focus" not in task_for(DENOISERS["small"], *pictures(), {}).describe()


def test_the_small_denoiser_is_small() -> None:
    assert 1e6 < size_of(UNetShape().build(1, 64)) < 3e6


def test_the_time_table_is_that_of_the_medical_program() -> None:
    unet = SHRUNKEN["medical"].build(1, 32)
    half = 4
    speed = torch.exp(-torch.log(torch.tensor(1e4)) * torch.arange(half) / (half - 1))
    angle = 321 * speed
    table = unet.time_proj(torch.tensor([321]))
    assert torch.allclose(table[0], torch.cat([angle.sin(), angle.cos()]), atol=1e-4)


def test_the_guided_network_begins_with_nothing() -> None:
    out = SHRUNKEN["celeba"].build(1, 32)(torch.randn(2, 1, 32, 32), torch.tensor([3, 4]), return_dict=False)
    assert out[0].abs().max() == 0


def test_epochs_become_updates() -> None:
    settings = settings_for(TASKS["celeba"], {}, 1050)
    assert (settings.steps, settings.validate_every) == (20 * 11, 11)
    assert settings_for(TASKS["celeba"], {"steps": 5}, 1050).steps == 5
    assert settings_for(DENOISERS["small"], {"steps": 100}, 1050).warmup == 10
    assert settings_for(DENOISERS["small"], {"steps": 100, "warmup": 50}, 1050).warmup == 50


def test_published_numbers_are_kept() -> None:
    celeba, medical = (settings_for(DENOISERS[name], {}, 1600) for name in ("celeba", "medical"))
    assert (celeba.learning_rate, celeba.weight_decay, celeba.ema) == (1e-4, 0.05, 0.9999)
    assert (celeba.clip, celeba.decay_to, celeba.warmup) == (None, 1.0, 0)
    assert (medical.learning_rate, medical.batch_size, medical.steps) == (2e-4, 16, 500 * 100)
    guide = settings_for(GUIDES["medical"], {}, 1600)
    assert (guide.optimizer, guide.learning_rate, guide.patience, guide.steps) == ("adam", 1e-6, 10, 5000)


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        ({"widths": (20, 40)}, "widths of the denoiser: expected channels in multiples of 8, got 20"),
        ({"patch": 0}, "patch of the denoiser: expected 1 or more, got 0"),
        ({"layer": 1}, "did you mean 'layers'"),
        ({"prediction": "eps"}, "--prediction: expected one of epsilon, v, sample"),
        ({"focus": 0.0}, "--focus: expected a share of the chain, above 0 and at most 1, got 0"),
        ({"focus": 1.5}, "--focus: expected a share of the chain, above 0 and at most 1, got 1.5"),
    ],
)
def test_shapes_that_cannot_be(network: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        task_for(DENOISERS["small"], *pictures(), network)


def test_images_that_cannot_be_halved() -> None:
    odd = Pictures(torch.zeros(4, 1, 36, 36, dtype=torch.uint8), 8, torch.zeros(4))
    with pytest.raises(DataError, match="a multiple of 16, got 36 x 36; use --size"):
        Denoising(odd, odd, UNetShape())


def test_recipes_have_all_three() -> None:
    assert DENOISERS.keys() == GUIDES.keys() == TASKS.keys()
    with pytest.raises(InputError, match="did you mean 'medical'"):
        recipe_for("guide", "medicl")
    assert isinstance(recipe_for("denoiser", "small"), DenoiserRecipe)
