"""One weight of the L1 distance for each target class."""

import json
from pathlib import Path

import pytest
import torch

from fastdime import toy
from fastdime.counterfactuals.checks import check_weights
from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.methods import METHODS, settings_for
from fastdime.counterfactuals.settings import GuidedSettings
from fastdime.errors import InputError
from fastdime.types import Counterfactuals
from support import tiny
from support.commands import complaint, explain_toy, files

IDS = ["a", "b", "c"]
GUIDED = [name for name, method in METHODS.items() if method.program is GuidedSettings]


def explained(l1: object, target: torch.Tensor, rows: slice = slice(None), **more: object) -> Counterfactuals:
    settings = tiny.small("fastdime-nomask", l1=l1, skip_if_met=False, scales=[2.0], **more)
    explainer = Explainer(tiny.denoiser(), tiny.classifier(), settings)
    return explainer(tiny.images()[rows], target[rows], ids=IDS[rows])


@pytest.mark.parametrize("distance", ["sum", "mean"])
def test_each_target_has_its_own_weight(distance: str) -> None:
    """A mixed batch is what each image is alone, with the one weight of its target."""
    target, weights = torch.tensor([0, 1, 0]), (4.0, 0.5)
    together = explained(weights, target, distance=distance)
    for row in range(3):
        alone = explained(weights, target, slice(row, row + 1), distance=distance)
        torch.testing.assert_close(alone.x_cf, together.x_cf[row : row + 1], atol=1e-4, rtol=0)
    for goal, weight in enumerate(weights):
        single, chosen = explained(weight, target, distance=distance), target == goal
        torch.testing.assert_close(together.x_cf[chosen], single.x_cf[chosen], atol=1e-4, rtol=0)
    if distance == "sum":
        swapped = explained(weights[::-1], target)
        assert all(not torch.equal(swapped.x_cf[row], together.x_cf[row]) for row in range(3))


@pytest.mark.parametrize("method", GUIDED)
def test_every_guided_method_takes_them(method: str) -> None:
    x, target = tiny.images(), torch.tensor([0, 1, 0])
    made = [
        Explainer(tiny.denoiser(), tiny.classifier(), tiny.small(method, l1=l1, skip_if_met=False))(x, target)
        for l1 in (0.3, [0.3, 0.3])
    ]
    torch.testing.assert_close(made[0].x_cf, made[1].x_cf, atol=1e-4, rtol=0)


def test_classes_are_those_of_the_classifier() -> None:
    classifier, settings = tiny.classifier(1, 4, kind="multiclass"), tiny.small("fastdime", l1=[1, 2, 3, 4])
    Explainer(tiny.denoiser(), classifier, settings)(tiny.images())
    check_weights(settings_for("fastdime", l1=[1, 2, 3]), 3)
    check_weights(settings_for("fastdime", l1=1), 3)


@pytest.mark.parametrize("l1", [[0.4], [0.4, 0.1, 0.1]])
def test_a_wrong_number_of_weights_is_one_clear_line(l1: list[float]) -> None:
    explainer = Explainer(tiny.denoiser(), tiny.classifier(), tiny.small("fastdime", l1=l1))
    with pytest.raises(
        InputError, match=r"^l1: expected one weight, or one for each of 2 classes, got \(0\.4"
    ):
        explainer(tiny.images())


@pytest.mark.parametrize("l1", [-1, [0.4, -0.1], [], [float("nan"), 1], ["[0.4", "0.1]"], "many", None])
def test_weights_that_are_none(l1: object) -> None:
    with pytest.raises(InputError) as caught:
        settings_for("fastdime", l1=l1)
    wanted = "setting of fastdime: l1: expected a finite number >= 0, or one for each class"
    assert str(caught.value) == f"{wanted}, got {l1!r}"


def test_ace_has_one_weight() -> None:
    with pytest.raises(InputError, match="setting of ace-l1: l1: expected a valid number"):
        settings_for("ace-l1", l1=[0.4, 0.1])


def test_they_survive_being_written_down() -> None:
    settings = settings_for("fastdime-null", l1=[0.4, 0.1])
    assert settings.l1 == (0.4, 0.1)
    assert GuidedSettings.model_validate_json(settings.model_dump_json()) == settings
    assert settings_for("fastdime", l1=2).l1 == 2.0


def test_on_the_command_line(tmp_path: Path) -> None:
    """A run records both, goes on with them, and refuses others once it has records."""
    table, out = toy.write(tmp_path / "data", 2), tmp_path / "run"
    words = ["--method", "fastdime-null", "--set"]
    wrong = complaint(explain_toy(table, out, *words, "l1=0.4,0.1,0.1"))
    assert wrong == "l1: expected one weight, or one for each of 2 classes, got (0.4, 0.1, 0.1)"
    assert explain_toy(table, out, *words, "l1=0.4,0.1").code == 0
    assert json.loads((out / "config.json").read_text())["settings"]["l1"] == [0.4, 0.1]
    made, lines = files(out), (out / "records.jsonl").read_bytes().splitlines(keepends=True)
    (out / "records.jsonl").write_bytes(lines[0])
    assert explain_toy(table, out, *words, "l1=0.4,0.1").code == 0
    assert files(out) == made
    assert "l1" in complaint(explain_toy(table, out, *words, "l1=0.1,0.4"))
    assert "settings.l1: the run has" in complaint(explain_toy(table, out, *words, "l1=0.4"))
