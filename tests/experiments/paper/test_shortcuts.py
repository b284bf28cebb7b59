"""The study of Table 4, on a phantom and on a table."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fastdime.audit.output import read_audit
from fastdime.audit.pictures import unseen
from fastdime.experiments.paper.catalogue import SHORTCUTS
from fastdime.experiments.paper.experiment import Plan, Source
from fastdime.experiments.paper.shortcuts import run_shortcuts
from fastdime.validation import study
from support.shortcuts import World, make_world, quick_recipe

TINY = {"method": "fastdime", "seeds": 1, "images": (40, 8, 4), "controls": 0, "recipe": "small"}
STUDY = replace(SHORTCUTS, sizes={"small": TINY})


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "model_recipe", quick_recipe)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), 200)


def test_a_table_and_the_paper(world: World, tmp_path: Path) -> None:
    source = Source("isic", world.table, str(world.bundle), "sick", "mark")
    outcome = run_shortcuts(STUDY, Plan("small", (source,), tmp_path), unseen)
    assert [row["row"] for row in outcome.rows] == ["D_100", "D_75", "D_50"]
    assert [row["paper_mad"] for row in outcome.rows] == [0.19, 0.1, 0.09]
    told = json.loads((tmp_path / "isic" / "validate.json").read_text())
    assert [row["mad"] for row in outcome.rows] == [row["mad"] for row in told["rows"]]
    assert outcome.studies == (tmp_path / "isic",)
    columns = outcome.columns
    assert columns[:5] == ("source", "row", "seeds", "auroc_k", "paper_auroc_k")
    assert "mad_true" not in columns
    assert read_audit(tmp_path / "isic" / "audit").generators[0].method == "fastdime"


def test_a_phantom_has_the_truth_beside(world: World, tmp_path: Path) -> None:
    source = Source("chest-drain", None, "chest-drain")
    outcome = run_shortcuts(STUDY, Plan("small", (source,), tmp_path, n=8), unseen)
    assert [row["paper_md0"] for row in outcome.rows] == [-0.22, -0.1, -0.02]
    assert outcome.columns[-3:] == ("mad_true", "md1_true", "md0_true")
    assert read_audit(tmp_path / "chest-drain" / "audit").rows[0].mad.n == 8  # --n is of test_u
    assert any(note.startswith("chest-drain: ") for note in outcome.notes)
