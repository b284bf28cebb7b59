"""Training a classifier on the toy world, and what may be done to its images."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fastdime import toy
from fastdime.classifiers.spec import ClassifierSpec
from fastdime.errors import DataError, InputError
from fastdime.pixels import to_integers
from fastdime.training.attack import attacked
from fastdime.training.augment import Augment, erased, rectangles, shifted, tinted, with_dark_corners
from fastdime.training.classifying import Classifying
from fastdime.training.loop import Trainer
from fastdime.training.order import generator
from fastdime.training.pictures import Pictures, split
from fastdime.training.settings import TrainSettings

SPEC = ClassifierSpec(architecture="small-cnn", arguments={"channels": 1, "width": 8})
ALL = Augment(shift=2, flip=True, erase=0.75, noise=0.2, blur=0.2, corners=0.5, tint=0.2)


def pictures(n: int = 160) -> Pictures:
    drawn = toy.pictures(n)
    return Pictures(to_integers(drawn.x).to(torch.uint8), 8, drawn.ring.float())


def test_it_learns_to_see_rings(tmp_path: Path) -> None:
    task = Classifying(*split(pictures(), 0.25, 0), SPEC, Augment(shift=1), smoothing=0.01)
    settings = TrainSettings(
        steps=80, batch_size=16, validate_every=20, learning_rate=1e-2, warmup=5, ema=0.9, seed=1
    )
    Trainer(task, settings, tmp_path).run()
    best = Trainer(task, settings, tmp_path)
    network = task.build()
    network.load_state_dict(best.best)
    with torch.no_grad():
        scores = task.validate(network.eval())
    assert scores["auroc"] > 0.95
    assert scores["loss"] == pytest.approx(best.state.best)


@pytest.mark.parametrize("labels", [[0.0, 0.0], [0.0, float("nan")], [0.0, 2.0]])
def test_other_labels_are_refused(labels: list[float]) -> None:
    odd = Pictures(torch.zeros(2, 1, 16, 16, dtype=torch.uint8), 8, torch.tensor(labels))
    with pytest.raises(DataError, match="labels of the training images: expected both 0 and 1"):
        Classifying(odd, odd, SPEC)


def test_flipped_labels_are_other_data() -> None:
    train, valid = split(pictures(20), 0.5, 0)
    flipped = replace(train, labels=1 - train.labels)
    told, other = (Classifying(part, valid, SPEC).describe() for part in (train, flipped))
    assert told["data"] != other["data"]
    assert told["data"] == Classifying(train, valid, SPEC).describe()["data"]


def test_weights_that_are_not_finite_are_not_a_traceback() -> None:
    task = Classifying(*split(pictures(20), 0.5, 0), SPEC)
    network = task.build().eval()
    for weight in network.parameters():
        torch.nn.init.constant_(weight, float("nan"))
    assert all(math.isnan(score) for score in task.validate(network).values())


def test_batch_normalization_needs_two_images(tmp_path: Path) -> None:
    spec = ClassifierSpec(architecture="resnet18", arguments={"channels": 1})
    trainer = Trainer(
        Classifying(*split(pictures(20), 0.5, 0), spec), TrainSettings(steps=1, batch_size=1), tmp_path
    )
    with pytest.raises(InputError, match=r"--batch-size: expected 2 or more, for this architecture .* got 1"):
        trainer.update()


def test_a_rare_class_counts_as_much() -> None:
    many = pictures()
    kept = torch.cat([(many.labels == 0).nonzero()[:, 0], (many.labels == 1).nonzero()[:8, 0]])
    few = many.only(kept)
    weights = Classifying(few, many, SPEC)._weight(few.labels)
    assert weights[few.labels == 1].sum() == pytest.approx(weights[few.labels == 0].sum().item())


def test_a_shift_moves_and_repeats_the_border() -> None:
    x = torch.arange(25.0).view(1, 1, 5, 5).repeat(400, 1, 1, 1)
    moved = shifted(x, 2, generator(0))
    assert moved.shape == x.shape
    seen = set(moved[:, 0, 2, 2].tolist())
    assert seen == {float(5 * row + column) for row in range(5) for column in range(5)}


def test_rectangles_have_the_right_size() -> None:
    masks = rectangles(torch.zeros(200, 1, 20, 30), generator(1))
    for axis, side in ((2, 20), (3, 30)):
        lengths = masks.any(5 - axis).sum(axis - 1 if axis == 3 else 2).flatten()
        assert lengths.min() >= 0.1 * side - 1
        assert lengths.max() <= 0.5 * side
    assert (masks.sum((1, 2, 3)) == masks.any(3).sum((1, 2)) * masks.any(2).sum((1, 2))).all()


def test_covers_come_from_images_without_the_class() -> None:
    labels = torch.arange(40) % 2
    x = labels.view(-1, 1, 1, 1).float().expand(-1, 1, 16, 16) * 0.9
    changed = erased(x, labels.float(), 1.0, generator(2))
    of_class_0 = changed[labels == 0]
    donated = (of_class_0 == 0).flatten(1).all(1)
    assert donated.float().mean() > 0.4
    assert ((changed != x).flatten(1).any(1)[labels == 1]).all()


def test_dark_corners_leave_the_middle() -> None:
    x = torch.full((200, 3, 16, 24), 0.4)
    changed = with_dark_corners(x, generator(3))
    assert torch.equal(changed[:, :, 5:11, 8:16], x[:, :, 5:11, 8:16])
    assert (changed <= x).all()
    assert (changed >= -1).all()
    assert (changed[:, :, 0, 0] < x[:, :, 0, 0] - 0.1).float().mean() > 0.5
    chosen = Augment(corners=0.3)(x, torch.zeros(200), generator(3))
    assert 0.15 < (chosen != x).flatten(1).any(1).float().mean() < 0.35


def test_a_tint_scales_each_channel_up_to_its_share() -> None:
    x = torch.linspace(-1, 0.4, 200).view(-1, 1, 1, 1).expand(-1, 3, 4, 4)
    gain = (tinted(x, 0.2, generator(4)) + 1)[1:] / (x + 1)[1:]
    assert gain.std((2, 3)).max() < 1e-5
    assert gain.std(1).min() > 0
    assert 0.79 < gain.min() < 0.85
    assert 1.15 < gain.max() < 1.21


def test_changes_that_are_not_in_use_are_not_written_down() -> None:
    assert Augment().describe() == {"shift": 0, "flip": False, "erase": 0.0, "noise": 0.0, "blur": 0.0}
    assert Augment(corners=0.5).describe()["corners"] == 0.5


class Slope(torch.nn.Module):
    """Answers with a weighed sum of the pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn((1, 1, 4, 4), generator=generator(7)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.weight).sum((1, 2, 3))


def test_an_attack_goes_against_the_label_as_far_as_it_may() -> None:
    model, x = Slope(), torch.randn((10, 1, 4, 4), generator=generator(8))
    labels = torch.arange(10) % 2
    change = attacked(model, x, labels, 0.1) - x
    against = torch.where(labels == 1, -1, 1).view(-1, 1, 1, 1) * model.weight.detach()
    wanted = torch.linspace(0.01, 0.1, 10).view(-1, 1, 1, 1) * against / against.square().mean().sqrt()
    assert torch.allclose(change, wanted, atol=1e-5)
    assert model.weight.grad is None


def test_a_network_is_trained_on_attacked_images() -> None:
    train, valid = split(pictures(), 0.25, 0)
    plain, hard = (Classifying(train, valid, SPEC, Augment(attack=size)) for size in (0.0, 0.05))
    model, batch = plain.build(), plain.draw(torch.arange(16), generator(0))
    harder = hard.loss(model, *batch) - plain.loss(model, *batch)
    assert harder.min() > 0
    assert hard.describe()["augment"]["attack"] == 0.05
    assert "attack" not in plain.describe()["augment"]
    assert hard.validate(model) == plain.validate(model)


@pytest.mark.parametrize("wrong", [-0.1, math.inf, 5, True, "much"])
def test_an_attack_of_no_size_is_refused(wrong: float) -> None:
    with pytest.raises(InputError, match="attack of the augmentation: expected a spread from 0 to 1"):
        Augment(attack=wrong)


@pytest.mark.parametrize("wrong", [{"corners": 1.5}, {"tint": -0.1}, {"tint": 2}])
def test_shares_beyond_one_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match="a share from 0 to 1"):
        Augment(**wrong)


def test_the_same_generator_gives_the_same_images() -> None:
    some = pictures(20)
    x = some.x(torch.arange(20))
    one, two = (ALL(x, some.labels, generator(5, 1)) for _ in range(2))
    assert torch.equal(one, two)
    assert not torch.equal(one, ALL(x, some.labels, generator(5, 2)))
    assert torch.equal(Augment()(x, some.labels, generator(0)), x)
