"""Mending: what is shown, what is asked for, and that a run goes on only with the same."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fastdime.classifiers.load import load_classifier
from fastdime.classifiers.spec import ClassifierSpec
from fastdime.errors import DataError, InputError
from fastdime.training.augment import Augment
from fastdime.training.classifying import Classifying
from fastdime.training.loop import Trainer
from fastdime.training.mending import Mended, Mending, Partners, balanced, with_partners
from fastdime.training.order import generator
from fastdime.training.pictures import Pictures
from fastdime.training.run import train
from fastdime.training.settings import TrainSettings

SPEC = ClassifierSpec(architecture="small-cnn", arguments={"channels": 1, "width": 8})
SETTINGS = TrainSettings(
    steps=6, batch_size=8, validate_every=3, log_every=1, warmup=1, checkpoint_seconds=1e-9
)
N = 24
AUGMENT, CONSISTENT, BOTH = Mending(augment=True), Mending(consistency=2.0), Mending(True, 2.0)


def drawn(task: Tensor, shortcut: Tensor) -> Pictures:
    """A gradient that tells the number of the image, a bright corner for the task, one for the shortcut."""
    number = torch.arange(len(task)).view(-1, 1, 1, 1)
    levels = (100 + number).expand(-1, 1, 16, 16).clone()
    levels[:, :, :4, :4] += 60 * task.long().view(-1, 1, 1, 1)
    levels[:, :, -4:, -4:] += 80 * shortcut.long().view(-1, 1, 1, 1)
    return Pictures(levels.to(torch.uint8), 8, task.float())


def labels(k: int) -> tuple[Tensor, Tensor]:
    """Task and shortcut; they differ in every k-th pair, never for k = 0."""
    task = torch.arange(N) % 2
    differs = torch.tensor([bool(k) and row // 2 % k == 0 for row in range(N)])
    return task, torch.where(differs, 1 - task, task)


def mended(mending: Mending, k: int = 0, rows: Tensor | None = None, **changes: Any) -> Mended:
    task, shortcut = labels(k)
    pictures, rows = drawn(task, shortcut), torch.arange(N) if rows is None else rows
    partners = Partners(drawn(task, 1 - shortcut).only(rows), rows) if mending.needs_partners else None
    known = {"shortcut": shortcut, "valid_shortcut": shortcut} if mending.balance else {}
    given = {"valid": pictures, "mending": mending, "partners": partners, **known, **changes}
    return Mended(train=pictures, spec=SPEC, **given)


def numbers(x: Tensor) -> Tensor:
    """Which image a picture is of."""
    return ((x[:, 0, 8, 8] + 1) * 127.5).round().long() - 100


def corner(x: Tensor) -> Tensor:
    """Whether a picture shows the shortcut."""
    return (x[:, 0, -1, -1] > x[:, 0, 8, 8]).long()


# --- what is shown ---------------------------------------------------------------------------------------


def test_half_of_the_time_the_counterfactual_is_shown() -> None:
    task = mended(AUGMENT)
    rows = torch.arange(N).repeat(50)
    x, y, _ = task.draw(rows, generator(0))
    assert torch.equal(numbers(x), rows)
    assert torch.equal(y, task.train.labels[rows])
    switched = (corner(x) != labels(0)[1][rows]).view(50, N).float()
    assert switched.mean() == pytest.approx(0.5, abs=0.04)
    assert 0.2 < switched.mean(0).min() < switched.mean(0).max() < 0.8


def test_an_image_without_counterfactual_is_shown_itself() -> None:
    some = torch.tensor([5, 2, 20])  # in any order
    rows = torch.arange(N).repeat(30)
    x, *_ = mended(AUGMENT, rows=some).draw(rows, generator(0))
    assert torch.equal(numbers(x), rows)
    assert set(rows[corner(x) != labels(0)[1][rows]].tolist()) == {2, 5, 20}


@pytest.mark.parametrize("mending", [CONSISTENT, BOTH])
def test_both_are_shown_and_changed_alike(mending: Mending) -> None:
    rows = torch.arange(N)
    x, y, _, other = mended(mending, augment=Augment(shift=3, noise=0.2)).draw(rows, generator(3))
    assert torch.equal(y, mended(mending).train.labels)
    same = (x == other).flatten(1)
    assert (same.sum(1) >= 16 * 16 - 8 * 8).all()  # all but the corner, wherever it was moved to
    assert not same.all(1).any()


def test_the_image_comes_first_unless_both_are_learned_from() -> None:
    x, _, _, other = mended(CONSISTENT).draw(torch.arange(N), generator(0))
    assert torch.equal(corner(x), labels(0)[1])
    assert torch.equal(corner(other), 1 - labels(0)[1])


def test_cells_come_up_equally_often() -> None:
    task = mended(Mending(balance=True), k=6)
    x, y, _ = task.draw(torch.zeros(64, dtype=torch.int64), generator(0))
    assert (2 * y.long() + corner(x)).bincount().tolist() == [16] * 4
    assert torch.equal(task._weight(y), torch.ones(64))
    drawn = [task.draw(torch.arange(64), generator(step))[0] for step in range(20)]
    seen = set(numbers(torch.cat(drawn)).tolist())
    assert seen == set(range(N))


def test_counterfactuals_fill_empty_cells() -> None:
    task = mended(
        Mending(augment=True, balance=True),
        rows=torch.tensor([0, 1]),
        valid=with_partners(mended(AUGMENT).train, mended(AUGMENT).partners),
        valid_shortcut=torch.cat([labels(0)[1], 1 - labels(0)[1]]),
    )
    x, y, _ = task.draw(torch.arange(40), generator(0))
    assert (2 * y.long() + corner(x)).bincount().tolist() == [10] * 4
    assert set(numbers(x)[corner(x) != y].tolist()) == {0, 1}


def test_the_rest_of_a_division_goes_to_any_cell() -> None:
    cells = torch.tensor([0, 1, 2, 3])
    found = torch.cat([balanced(cells, 6, generator(step)) for step in range(400)]).bincount()
    assert found.sum() == 2400
    assert (found - 600).abs().max() < 60


# --- what is asked for -----------------------------------------------------------------------------------


class Corners(nn.Module):
    """Logit = a * task corner + b * shortcut corner."""

    def __init__(self, a: float, b: float) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.tensor([a, b]))

    def forward(self, x: Tensor) -> Tensor:
        task = (x[:, 0, 0, 0] > x[:, 0, 8, 8]).float() * 2 - 1
        return self.weights[0] * task + self.weights[1] * (corner(x) * 2 - 1)


def test_loss_by_hand() -> None:
    network, (y, s) = Corners(1.0, 0.5), labels(3)
    sign, mark = 2.0 * y - 1, 2.0 * s - 1
    own, other = (torch.nn.functional.softplus(-sign * (sign + 0.5 * side * mark)) for side in (1, -1))
    for mending, entropy in ((CONSISTENT, own), (BOTH, (own + other) / 2)):
        task = mended(mending, k=3)
        found = task.loss(network, *task.draw(torch.arange(N), generator(0)))
        torch.testing.assert_close(found, entropy + 2.0 * (2 * 0.5) ** 2)
    task = mended(CONSISTENT, k=3, rows=torch.tensor([7]))
    penalty = task.loss(network, *task.draw(torch.arange(N), generator(0))) - own
    torch.testing.assert_close(penalty, torch.where(torch.arange(N) == 7, 2.0, 0.0), atol=1e-6, rtol=1e-6)


def test_without_consistency_the_loss_is_that_of_a_classifier() -> None:
    task, network = mended(AUGMENT), Corners(1.0, 0.5)
    plain = Classifying(task.train, task.valid, SPEC)
    batch = task.draw(torch.arange(N), generator(0))
    assert torch.equal(task.loss(network, *batch), plain.loss(network, *batch))


def test_a_fair_validation_finds_out_who_leans() -> None:
    task = mended(AUGMENT)
    fair = replace(task, valid=with_partners(task.train, task.partners))
    assert len(fair.valid) == 2 * N
    leans, sees = Corners(0.0, 4.0), Corners(2.0, 0.0)
    assert task.validate(leans)["loss"] < task.validate(sees)["loss"]
    assert fair.validate(leans)["loss"] > fair.validate(sees)["loss"]
    assert (fair.validate(leans)["auroc"], fair.validate(sees)["auroc"]) == (0.5, 1.0)


def test_cells_weigh_the_same_in_validation() -> None:
    task = mended(Mending(balance=True), k=6)
    s, weight = labels(6)[1], task._valid_weight()
    groups = [weight[(task.valid.labels == y) & (s == mark)].sum() for y in (0, 1) for mark in (0, 1)]
    torch.testing.assert_close(torch.stack(groups), torch.full((4,), N / 4))


def effect(task: Classifying, out: Path) -> float:
    """How far the switch of the shortcut moves a trained network."""
    settings = TrainSettings(steps=40, batch_size=8, validate_every=40, learning_rate=1e-2, warmup=4, ema=0.8)
    trained = train(task, settings, out)
    assert trained.scores["accuracy"] == 1
    network = load_classifier(trained.folder)
    rows, (y, s) = torch.arange(N), labels(0)
    with torch.no_grad():
        before, after = (network.logits(drawn(y, side).x(rows), 0 * rows).sigmoid() for side in (s, 1 - s))
    return float((before - after).abs().mean())


@pytest.mark.parametrize("mending", [AUGMENT, CONSISTENT, BOTH])
def test_a_mended_network_does_not_lean(mending: Mending, leaning: float, tmp_path: Path) -> None:
    assert leaning > 0.3
    assert effect(mended(mending), tmp_path) < 0.03


@pytest.fixture(scope="module")
def leaning(tmp_path_factory: pytest.TempPathFactory) -> float:
    pictures = drawn(*labels(0))
    return effect(Classifying(pictures, pictures, SPEC), tmp_path_factory.mktemp("leaning"))


# --- going on --------------------------------------------------------------------------------------------


class Killed(Exception):
    """Stands for a signal."""


@pytest.mark.parametrize("mending", [BOTH, Mending(augment=True, balance=True)])
def test_interrupted_it_ends_the_same(mending: Mending, tmp_path: Path) -> None:
    def stop(done: float, of: int) -> None:
        if done == 4:
            raise Killed

    task = mended(mending, k=6, augment=Augment(shift=2, noise=0.1))
    whole = train(task, SETTINGS, tmp_path / "whole")
    with pytest.raises(Killed):
        train(task, SETTINGS, tmp_path / "broken", stop)
    torch.rand(3)  # what others draw does not matter
    broken = train(task, SETTINGS, tmp_path / "broken")
    assert broken.scores == whole.scores
    for name in ("classifier/model.safetensors", "log.jsonl"):
        assert (broken.folder.parent / name).read_bytes() == (whole.folder.parent / name).read_bytes(), name


def test_another_mending_is_refused(tmp_path: Path) -> None:
    task = mended(BOTH, k=6)
    Trainer(task, SETTINGS, tmp_path)._save()
    Trainer(mended(BOTH, k=6), SETTINGS, tmp_path)
    shuffled = replace(task.partners, rows=task.partners.rows.flip(0))
    levels = task.partners.pictures.levels.clone()
    levels[3, 0, 5, 5] ^= 1
    touched = replace(task.partners, pictures=replace(task.partners.pictures, levels=levels))
    for other, what in (
        (replace(task, mending=Mending(True, 1.0)), "mending.consistency = 1.0, where the run has 2.0"),
        (replace(task, partners=shuffled), r"mending.partner_data = '\w{16}'"),
        (replace(task, partners=touched), r"mending.partner_data = '\w{16}'"),
        (mended(BOTH, k=6, rows=torch.arange(3)), "mending.partners = 3, where the run has 24"),
        (Classifying(task.train, task.valid, SPEC), "mending.augment = None, where the run has True"),
    ):
        with pytest.raises(InputError, match=what):
            Trainer(other, SETTINGS, tmp_path)


def test_other_cells_are_other_data() -> None:
    task = mended(Mending(balance=True), k=6)
    other = replace(task, shortcut=labels(3)[1])
    assert task.describe() == mended(Mending(balance=True), k=6).describe()
    assert task.describe() != other.describe()


# --- what is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_weights_that_mean_nothing(weight: float) -> None:
    with pytest.raises(InputError, match="consistency of the mending: expected a weight >= 0"):
        Mending(consistency=weight)


def test_no_mending_at_all() -> None:
    with pytest.raises(InputError, match="expected one or more of augment, consistency, balance, got none"):
        Mending()


def test_an_empty_cell_needs_counterfactuals() -> None:
    with pytest.raises(DataError) as error:
        mended(Mending(balance=True))
    assert str(error.value) == (
        "training images with task 0 and shortcut 1: expected at least one, to balance the cells, got none; "
        "only counterfactuals can fill this cell: make some, and mend with augment"
    )
    with pytest.raises(DataError, match="validation images with task 0 and shortcut 1"):
        mended(Mending(augment=True, balance=True))
    with pytest.raises(DataError, match="training images with task 0 and shortcut 1"):
        mended(Mending(consistency=1.0, balance=True))  # counterfactuals are compared with, not learned from


def test_counterfactuals_that_are_missing_or_of_no_use() -> None:
    with pytest.raises(InputError, match="counterfactuals of the training images: expected some, got none"):
        mended(AUGMENT, partners=None)
    with pytest.raises(InputError, match="expected none, if neither augment nor consistency"):
        mended(Mending(balance=True), k=6, partners=mended(AUGMENT).partners)
    small = Pictures(torch.zeros(1, 1, 8, 8, dtype=torch.uint8), 8, torch.zeros(1))
    with pytest.raises(
        DataError, match=r"expected \(1, 16, 16\) with 8 bits, as the images, got \(1, 8, 8\)"
    ):
        mended(AUGMENT, partners=Partners(small, torch.tensor([0])))
    with pytest.raises(InputError, match="expected one of each image at most, got 2 of 1 images"):
        Partners(mended(AUGMENT).train.only(torch.arange(2)), torch.tensor([4, 4]))


@pytest.mark.parametrize("shortcut", [None, torch.zeros(3)])
def test_shortcut_labels_are_needed_to_balance(shortcut: Tensor | None) -> None:
    with pytest.raises(InputError, match="shortcut labels to balance training images: expected 24 of them"):
        mended(Mending(balance=True), k=6, shortcut=shortcut)


def test_blank_shortcut_labels_are_refused() -> None:
    blank = labels(6)[1].float()
    blank[3] = float("nan")
    with pytest.raises(DataError, match="shortcut labels of the validation images: expected 0 or 1, got nan"):
        mended(Mending(balance=True), k=6, valid_shortcut=blank)
