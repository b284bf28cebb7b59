"""A guide that is trained to mend what a denoiser gets wrong, in the toy world, whose denoiser is exact."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from fastdime import toy
from fastdime.classifiers.spec import ClassifierSpec
from fastdime.errors import InputError
from fastdime.pixels import to_integers
from fastdime.training.classifying import Classifying
from fastdime.training.coverage import input_gradient
from fastdime.training.loop import Trainer
from fastdime.training.order import generator
from fastdime.training.pictures import Pictures, split
from fastdime.training.recipes import GUIDES
from fastdime.training.request import task_for
from fastdime.training.settings import TrainSettings
from fastdime.training.steering import NOISE, Steered, Steering, explained_share, open_steered
from support.commands import fastdime_command as run

SPEC = ClassifierSpec(
    architecture="placed-cnn", arguments={"channels": 1, "width": 6, "image_size": toy.SIZE}, channels=1
)


def pictures(n: int = 200) -> Pictures:
    drawn = toy.pictures(n)
    return Pictures(to_integers(drawn.x).to(torch.uint8), 8, drawn.ring.float())


def steered() -> Steered:
    return open_steered("fastdime.toy:denoiser", pictures(2))


def alignment(task: Classifying, folder: Path) -> float:
    """Train, and return the cosine of the gradient and the way to the exact counterfactual."""
    settings = TrainSettings(
        steps=120, batch_size=16, validate_every=60, learning_rate=3e-3, warmup=5, ema=0.9, seed=1
    )
    trainer = Trainer(task, settings, folder)
    trainer.run()
    network: nn.Module = task.build()
    network.load_state_dict(trainer.best)
    new = toy.pictures(64, seed=5)
    way = (new.other - new.x) * (1 - 2 * new.ring).view(-1, 1, 1, 1)  # towards a ring
    gradient = input_gradient(task.spec.wrap(network.eval()), new.x)
    return float(cosine_similarity(gradient.flatten(1), way.flatten(1)).mean())


def test_its_gradient_points_at_the_counterfactual(tmp_path: Path) -> None:
    parts = split(pictures(), 0.2, 0)
    plain = alignment(Classifying(*parts, SPEC), tmp_path / "plain")
    steering = alignment(Steering(*parts, SPEC, steered=steered()), tmp_path / "steering")
    assert steering > plain + 0.1


@pytest.mark.parametrize(
    ("gradient", "shares"),
    [
        ([[1.0, 0.0], [1.0, 0.0]], [0.5, 0.5]),  # all that lies along the first axis
        ([[3.0, 0.0], [3.0, 0.0]], [0.5, 0.5]),  # its length does not matter
        ([[-1.0, 0.0], [-1.0, 0.0]], [0.0, 0.0]),  # the wrong way explains nothing
        ([[0.0, 0.0], [0.0, 0.0]], [0.0, 0.0]),
        ([[1.0, 0.0], [0.0, 0.0]], [0.5, 0.0]),
    ],
)
def test_share_by_hand(gradient: list[list[float]], shares: list[float]) -> None:
    error = torch.tensor([[2.0, 2.0], [2.0, 2.0]])
    assert explained_share(error, torch.tensor(gradient)).tolist() == pytest.approx(shares)


def test_its_slope_is_that_with_the_best_factor() -> None:
    random = generator(3)
    error, gradient = (torch.randn(4, 6, generator=random) for _ in range(2))
    gradient = (gradient + error).requires_grad_()  # so that the factor is above 0

    def best(gradient: Tensor) -> Tensor:
        return (error * gradient).sum() ** 2 / gradient.square().sum() / error.square().sum(1).mean()

    slopes = [
        torch.autograd.grad(value, gradient)[0]
        for value in (explained_share(error, gradient).sum(), best(gradient))
    ]
    assert torch.allclose(*slopes, atol=1e-6)


def test_levels_leave_room_for_doubt() -> None:
    judged = steered()
    levels = judged.levels(500, generator(0), *NOISE)
    alpha_bar = torch.from_numpy(judged.denoiser.schedule.alpha_bar)[levels]
    assert alpha_bar.max() == pytest.approx(NOISE[0], abs=0.01)
    assert alpha_bar.min() == pytest.approx(NOISE[1], abs=0.01)


def test_it_is_known_by_its_denoiser_and_leaves_it_alone() -> None:
    parts, judged = split(pictures(40), 0.5, 0), steered()
    task = Steering(*parts, SPEC, steered=judged)
    told, plain = task.describe(), Classifying(*parts, SPEC).describe()
    assert told == plain | {"steered": judged.describe()}
    before = {name: weight.clone() for name, weight in judged.network.state_dict().items()}
    model, batch = task.build(), task.draw(torch.arange(4), generator(0))
    task.loss(model, *batch).sum().backward()
    assert all(weight.grad is not None for weight in model.parameters())
    assert not any(weight.requires_grad for weight in judged.network.parameters())
    assert all(torch.equal(weight, before[name]) for name, weight in judged.network.state_dict().items())


def test_validation_is_the_same_each_time_and_counts_the_gradient() -> None:
    parts = split(pictures(40), 0.5, 0)
    task, plain = Steering(*parts, SPEC, steered=steered()), Classifying(*parts, SPEC)
    model = task.build().eval()
    scores, others = task.validate(model), plain.validate(model)
    assert scores == task.validate(model)
    assert scores["loss"] != others["loss"]
    assert scores["auroc"] == others["auroc"]


def test_other_images_are_refused() -> None:
    large = Pictures(torch.zeros(2, 1, 64, 64, dtype=torch.uint8), 8, torch.tensor([0.0, 1.0]))
    with pytest.raises(InputError, match=r"--steer .*: expected 32 pixels a side, got 64; use --size"):
        open_steered("fastdime.toy:denoiser", large)
    wide = Pictures(torch.zeros(2, 1, 32, 64, dtype=torch.uint8), 8, torch.tensor([0.0, 1.0]))
    with pytest.raises(InputError, match=r"--steer .*: expected 32 pixels a side, got 64; use --size"):
        open_steered("fastdime.toy:denoiser", wide)
    colour = Pictures(torch.zeros(2, 3, 32, 32, dtype=torch.uint8), 8, torch.tensor([0.0, 1.0]))
    with pytest.raises(InputError, match=r"--steer .*: expected 1 channels, got 3"):
        task_for(GUIDES["small"], colour, colour, {"steer": "fastdime.toy:denoiser"})


def test_denoisers_of_bundles_and_trainings_open(tmp_path: Path) -> None:
    data = toy.write(tmp_path / "toy", 24)
    first = ("train", "denoiser", "--data", data, "--steps", 2, "--widths", "16,16", "--out", tmp_path / "d")
    assert run(*first).code == 0
    words = ("train", "guide", "--data", data, "--shortcut", "ring", "--steps", 2, "--batch-size", 4)
    done = run(*words, "--architecture", "placed-cnn", "--steer", tmp_path / "d", "--out", tmp_path / "g")
    assert done.code == 0, done.err
    gray = Pictures(torch.zeros(2, 1, 64, 64, dtype=torch.uint8), 8, torch.tensor([0.0, 1.0]))
    assert open_steered("chest-pacemaker", gray).denoiser.size == 64
    missing = run(*words, "--steer", tmp_path / "nothing", "--out", tmp_path / "n")
    assert (missing.code, missing.err.count("\n")) == (2, 1)
    assert "--steer: " in missing.err
