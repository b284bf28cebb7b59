"""Dose and response: a network that only sees the shortcut moves with it, one that sees nothing does not."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from fastdime.classifiers.wrapper import ImageClassifier
from fastdime.data.phantoms.measure import measure
from fastdime.experiments import dose
from fastdime.experiments.dose import dose_response, response


@pytest.fixture(autouse=True)
def few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dose, "TRAIN", 60)
    monkeypatch.setattr(dose, "TEST", 80)


def sees_the_shortcut(x: Tensor) -> Tensor:
    return torch.where(torch.as_tensor(measure("skin-ruler", x).shows), 3.0, -3.0)


def test_what_leans_wholly_on_the_shortcut() -> None:
    found = response(ImageClassifier(sees_the_shortcut), "skin-ruler", 100, 0)
    effect = torch.tensor(3.0).sigmoid() - torch.tensor(-3.0).sigmoid()
    assert found["mad"] == pytest.approx(float(effect), abs=0.03)  # the measurement errs in 1 of 100
    assert found["md_with"] > 0.85
    assert found["md_without"] < -0.85
    assert found["placebo_mad"] < 0.05
    assert found["auroc_k"] > 0.95
    assert found["auroc_u"] == pytest.approx(0.5, abs=0.12)


def test_what_sees_nothing() -> None:
    found = response(ImageClassifier(lambda x: 0 * x.mean((1, 2, 3))), "skin-ruler", 50, 1)
    assert found["mad"] == found["placebo_mad"] == 0
    assert found["auroc_u"] == found["auroc_k"] == 0.5


def test_rows_and_going_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dose, "SETTINGS", dose.SETTINGS.model_copy(update={"steps": 3, "batch_size": 8}))
    told: list[tuple[float, int]] = []
    rows = dose_response(["chest-drain"], [100, 50], 2, tmp_path, lambda done, of: told.append((done, of)))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert [(row["phantom"], row["k"], row["seeds"]) for row in rows] == [
        ("chest-drain", 100, 2),
        ("chest-drain", 50, 2),
    ]
    assert (rows[0]["ideal_mad"], rows[1]["ideal_mad"]) == (0.775, 0.0)
    logs = sorted(tmp_path.glob("*/log.jsonl"))
    assert len(logs) == 4
    before = [log.read_bytes() for log in logs]
    assert dose_response(["chest-drain"], [100, 50], 2, tmp_path) == rows
    assert [log.read_bytes() for log in logs] == before
