import json
from pathlib import Path
from typing import Any

import pytest

from fastdime.audit.output import read_audit
from fastdime.data.phantoms.write import read_config
from fastdime.errors import CheckpointError, InputError
from fastdime.terminal import silence_of
from fastdime.validation import reliability, study
from fastdime.validation.phantom_pool import phantom_pool, pool_sizes
from fastdime.validation.validate import Wanted, validate_phantom, validate_table
from support.shortcuts import World, quick_recipe

FEW = Wanted(ks=(100.0, 50.0), seeds=1, sizes=(40, 4, 8), truth=True)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "model_recipe", quick_recipe)
    monkeypatch.setattr(reliability, "RESAMPLED", 3)


def test_a_phantom_with_its_truth(world: World, tmp_path: Path) -> None:
    asked = world.request(shortcuts={"shortcut": str(world.bundle)}, size=16, controls=0)
    told = validate_phantom("chest-pacemaker", FEW, asked, tmp_path, silence_of)
    assert json.loads((tmp_path / "validate.json").read_text()) == told
    wanted = {"k", "mad", "mad_true", "md1", "md1_true", "md0", "md0_true", "auroc_k", "auroc_u", "auroc_uc"}
    assert all(wanted <= row.keys() for row in told["rows"])
    assert all(0 <= told[name] <= 1 for name in ("coverage", "null_false_positive", "power_50"))
    assert told["rows"][0]["ideal_mad"] > told["rows"][1]["ideal_mad"]
    dose = json.loads((tmp_path / "audit/dose.json").read_text())
    assert (dose["rows"], dose["trend_p"]) == (told["rows"], told["trend"]["p"])
    found = read_audit(tmp_path / "audit")
    assert [row.truth.mad.n for row in found.rows] == [8, 8]
    assert found.task == "task"


def test_a_table(world: World, tmp_path: Path) -> None:
    plain = Wanted(ks=(100.0, 50.0), seeds=1, sizes=(8, 4, 8), recipe="small")
    told = validate_table(plain, world.request(task="sick", controls=0), tmp_path, silence_of)
    assert [row["k"] for row in told["rows"]] == [100, 50]
    assert not {"coverage", "null_false_positive", "power_50"} & told.keys()
    assert "mad_true" not in told["rows"][0]


@pytest.mark.parametrize(
    ("changes", "error", "sentence"),
    [
        ({"shortcuts": {"mark": None}}, InputError, "--bundle: expected a bundle"),
        ({"shortcuts": {"mark": "nowhere"}}, CheckpointError, "bundle nowhere"),
        ({"task": None}, InputError, "columns: expected a task and one shortcut"),
        ({"task": "mark"}, InputError, "shortcut: expected another column than the task"),
        ({"task": "sikc"}, InputError, "did you mean 'sick'"),
    ],
)
def test_what_is_refused_before_anything_is_made(
    changes: dict[str, Any], error: type[Exception], sentence: str, world: World, tmp_path: Path
) -> None:
    with pytest.raises(error, match=sentence):
        validate_table(FEW, world.request(**{"task": "sick"} | changes), tmp_path, silence_of)
    assert not any(tmp_path.iterdir())


def test_a_phantom_that_has_no_bundle(world: World, tmp_path: Path) -> None:
    asked = world.request(shortcuts={"shortcut": None})
    with pytest.raises(
        CheckpointError, match="bundle chest-nothing: expected a folder, or one that comes with"
    ):
        validate_phantom("chest-nothing", FEW, asked, tmp_path, silence_of)
    assert not any(tmp_path.iterdir())


def test_a_pool_has_enough_of_every_cell(tmp_path: Path) -> None:
    train, test = pool_sizes(20, 10, 8)
    assert (train, test) == (89, 42)
    table = phantom_pool("chest-pacemaker", 12, 6, tmp_path, silence_of)
    assert len(table) == len(set(table.ids)) == 18
    assert set(table.text("split")[12:]) == {"test"}
    assert "test" not in table.text("split")[:12]
    assert read_config(tmp_path / "train")["truth"] is False
    assert len(list((tmp_path / "test/truth/other").iterdir())) == 6
