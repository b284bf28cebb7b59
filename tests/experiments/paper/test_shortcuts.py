"""The study of Table 4, on a phantom and on a table."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fastdime.audit.output import read_audit
from fastdime.audit.pictures import unseen
from fastdime.errors import FastdimeError
from fastdime.experiments.paper.catalogue import SHORTCUTS
from fastdime.experiments.paper.experiment import Plan, Source
from fastdime.experiments.paper.shortcuts import run_shortcuts
from fastdime.validation import study
from support.shortcuts import World, make_world, quick_recipe

TINY = {"method": "fastdime", "seeds": 1, "images": (40, 8, 4), "controls": 0, "recipe": "small"}
STUDY = replace(SHORTCUTS, sizes={"small": TINY, "full": SHORTCUTS.sizes["full"]})


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


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"n": 30}, "--n: expected a multiple of 4, .*, got 30; give 32"),
        ({"n": 32, "scale": "full"}, "--n: expected none for isic at full scale, .*, got 32; leave it out"),
        ({"n": 400}, r"--data isic=.*csv: .* for test_u of 400 images, got \d+; give a smaller --n or add"),
        ({"scale": "full"}, "--data isic=.*csv: .* column 'split', .*, got none; add it, or leave --scale"),
        ({"task": "task"}, "--data isic=.*csv: expected a column 'task', got .*; name .* --task isic=COLUMN"),
    ],
)
def test_what_is_refused_in_words_of_the_command(
    asked: dict[str, Any], sentence: str, world: World, tmp_path: Path
) -> None:
    """Before anything is made, also of the sources before."""
    drain = Source("chest-drain", None, "chest-drain")
    source = Source("isic", world.table, str(world.bundle), asked.get("task", "sick"), "mark")
    plan = Plan(asked.get("scale", "small"), (drain, source), tmp_path, asked.get("n"))
    with pytest.raises(FastdimeError, match=f"^{sentence}"):
        run_shortcuts(STUDY, plan, unseen)
    assert not list(tmp_path.iterdir())


def test_a_table_that_is_too_small_does_not_blame_the_number_of_images(tmp_path: Path) -> None:
    few = make_world(tmp_path / "world", 40)
    plan = Plan("small", (Source("isic", few.table, str(few.bundle), "sick", "mark"),), tmp_path / "out", 40)
    with pytest.raises(FastdimeError, match=r"for test_100 of 6 images, got \d; add images$"):
        run_shortcuts(STUDY, plan, unseen)
