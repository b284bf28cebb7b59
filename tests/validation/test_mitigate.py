import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastdime.audit.cells import Columns, Plan
from fastdime.audit.opening import open_data
from fastdime.audit.output import read_audit
from fastdime.classifiers.load import load_classifier
from fastdime.errors import DataError, InputError
from fastdime.metrics.statistics import paired_difference
from fastdime.terminal import silence_of
from fastdime.validation import mitigate
from fastdime.validation.mitigate import Bench, Repair, _some, _spread, mitigate_table
from fastdime.validation.task_models import Ids
from support.shortcuts import World, quick_recipe


def bench(world: World, n: int = 16, **changes: Any) -> Bench:
    asked = world.request(task="sick", controls=0, **changes)
    plan = Plan((75.0,), n, None, 8)
    return Bench(open_data(asked), Columns("sick", "mark"), plan, quick_recipe(), asked)


@pytest.fixture(scope="module")
def out(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mended")
    repair = Repair(75.0, ("augment", "balance"), partners=8)
    bench(world).mitigate(repair, folder, silence_of)
    return folder


def test_a_line_for_each_model_with_what_it_moves_less(out: Path) -> None:
    told = json.loads((out / "mitigate.json").read_text())
    assert [line["model"] for line in told["rows"]] == ["plain", "augment", "balance"]
    assert "less" not in told["rows"][0]
    audit = read_audit(out / "audit")
    assert [line["mad"] for line in told["rows"]] == [row.mad.value for row in audit.rows]
    for line in told["rows"][1:]:
        assert line["less"]["value"] == pytest.approx(told["rows"][0]["mad"] - line["mad"], abs=1e-5)
        assert line["less"]["low"] <= line["less"]["value"] <= line["less"]["high"]
        assert line["less"]["n"] == 8
        assert line["less_true"] is None  # no phantom
    assert isinstance(told["notes"], list)


def test_the_difference_is_paired(out: Path) -> None:
    lines = [line.split(",") for line in (out / "audit/effects.csv").read_text().splitlines()]
    at = {name: place for place, name in enumerate(lines[0])}
    change = {
        model: {
            line[at["id"]]: abs(float(line[at["change"]])) for line in lines[1:] if line[at["model"]] == model
        }
        for model in ("plain", "augment")
    }
    ids = sorted(change["plain"])
    groups = [line[at["group"]] for name in ids for line in lines[1:9] if line[at["id"]] == name]
    wanted = paired_difference(
        [change["augment"][name] for name in ids], [change["plain"][name] for name in ids], groups
    )
    told = json.loads((out / "mitigate.json").read_text())["rows"][1]["less"]
    assert told["value"] == pytest.approx(wanted.value, abs=1e-5)
    assert told["clusters"] == wanted.clusters


def test_counterfactuals_are_made_of_as_many_images_as_asked(out: Path) -> None:
    records = (out / "partners/records.jsonl").read_text().splitlines()
    assert len(records) == 8
    assert load_classifier(out / "models/augment/classifier").channels == 1
    config = json.loads((out / "models/augment/config.json").read_text())
    assert config["task"]["mending"]["partners"] < 8  # some are of images to validate on


def test_called_again_it_tells_the_same(out: Path, world: World) -> None:
    before = (out / "mitigate.json").read_bytes()
    stamps = {path: path.stat().st_mtime_ns for path in out.rglob("*.png")}
    bench(world).mitigate(Repair(75.0, ("augment", "balance"), partners=8), out, silence_of)
    assert (out / "mitigate.json").read_bytes() == before
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps


def test_balance_needs_no_counterfactuals(world: World, tmp_path: Path) -> None:
    told = bench(world).mitigate(Repair(75.0, ("balance",)), tmp_path, silence_of)
    assert [line["model"] for line in told["rows"]] == ["plain", "balance"]
    assert not (tmp_path / "partners").exists()


def test_full_correlation_cannot_be_balanced(world: World, tmp_path: Path) -> None:
    asked = world.request(task="sick", controls=0)
    all_of_it = Bench(
        open_data(asked), Columns("sick", "mark"), Plan((100.0,), 16, None, 8), quick_recipe(), asked
    )
    with pytest.raises(DataError, match="only counterfactuals can fill this cell"):
        all_of_it.mitigate(Repair(100.0, ("balance",)), tmp_path, silence_of)


def test_models_have_the_size_of_the_bundle(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Bench] = []
    monkeypatch.setattr(Bench, "mitigate", lambda self, *given: seen.append(self))
    mitigate_table(Repair(), world.request(task="sick"), tmp_path, silence_of)
    mitigate_table(Repair(), world.request(task="sick", size=8), tmp_path, silence_of)
    assert [one.recipe.size for one in seen] == [16, 8]
    assert seen[0].recipe.architecture == "resnet18"


def test_some_images_of_both_parts() -> None:
    ids = Ids([f"t{i}" for i in range(90)], [f"v{i}" for i in range(10)])
    assert _some(ids, None) == _some(ids, 100) == [*ids.train, *ids.val]
    chosen = _some(ids, 20)
    assert len([name for name in chosen if name[0] == "t"]) == 18
    assert chosen[-2:] == ["v0", "v5"]
    assert _spread([*"abcdef"], 3) == ["a", "c", "e"]
    assert _spread([*"abc"], 3) == ["a", "b", "c"]


def test_images_that_one_model_was_not_asked_about() -> None:
    nan = float("nan")
    plain, mended = np.array([0.4, 0.2, nan, 0.3]), np.array([0.1, 0.1, 0.1, nan])
    found = mitigate._less(plain, mended, ["p", "q", "q", "r"])
    assert (found["value"], found["n"], found["clusters"]) == (pytest.approx(0.2), 2, 2)
    assert mitigate._less(np.full(3, nan), mended[:3], None) is None


@pytest.mark.parametrize(
    ("ways", "sentence"),
    [
        (("augmnet",), "way of mending: expected one of .*; did you mean 'augment'"),
        ((), "ways of mending: expected one or more of augment, consistency, balance, got none"),
    ],
)
def test_ways_that_there_are_not(ways: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Repair(ways=ways)
