"""The search for settings, in the made-up world of rings."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch import Tensor

import fastdime
from fastdime import toy
from fastdime.classifiers.wrapper import ImageClassifier
from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.methods import METHODS, settings_for
from fastdime.errors import DataError, InputError
from fastdime.experiments.grids import check_grid, default_grid, parse_grid
from fastdime.experiments.search import SLACK, choose, open_oracle, tune_settings
from fastdime.pipeline.models import Sources
from fastdime.pipeline.options import RunOptions
from support import tiny
from support.shortcuts import World, make_world

GRID = {"scales": [[1.0], [10.0]], "tau": [2, 40]}
IMAGES = 4


class Killed(Exception):
    """Stands for a signal."""


def dull(x: Tensor) -> Tensor:
    """See no ring anywhere."""
    return -1 + 0 * x.mean((1, 2, 3))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.write(tmp_path_factory.mktemp("pilot"), IMAGES)


@pytest.fixture(scope="module")
def tuned(table: Path) -> fastdime.Tuned:
    return tune_settings(table, explainer(), table.parents[1] / "runs", GRID, oracle=ImageClassifier(dull))


def explainer(**changes: Any) -> Explainer:
    return Explainer(toy.denoiser(), toy.classifier(), settings_for("fastdime", **{"l1": 0.5} | changes))


def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if name not in ("run", "seconds_per_image")}
        for row in rows
    ]


# --- scores ----------------------------------------------------------------------------------------------


def test_each_combination_has_a_row(tuned: fastdime.Tuned) -> None:
    tried = [(row["settings"]["scales"], row["settings"]["tau"]) for row in tuned.rows]
    assert tried == [([1.0], 2), ([1.0], 40), ([10.0], 2), ([10.0], 40)]
    assert [row["denoiser_calls"] for row in tuned.rows] == [2, 40, 2, 40]
    assert all(row["seconds_per_image"] > 0 for row in tuned.rows)


def test_scores_are_those_of_the_files(table: Path, tuned: fastdime.Tuned) -> None:
    for row in tuned.rows:
        _, records = fastdime.read_run(row["run"])
        changes, masks = [], []
        for record in records:
            files = Path(record["path"]), Path(row["run"]) / "images" / record["image"]
            before, after = (np.asarray(Image.open(file), dtype=float) / 255 for file in files)
            changes.append(np.abs(after - before).mean())
            masks.append((np.asarray(Image.open(Path(row["run"]) / "images" / record["mask"])) > 0).mean())
        assert row["mean_change"] == pytest.approx(np.mean(changes), abs=1e-5)
        assert row["mask_area"] == pytest.approx(np.mean(masks), abs=1e-5)
        assert row["guide_flip"] == np.mean([record["valid"] for record in records])


def test_the_oracle_judges_the_target_of_each_image(tuned: fastdime.Tuned) -> None:
    """It sees no ring anywhere, so it agrees where a ring was to go, and that is every second image."""
    assert [row["oracle_flip"] for row in tuned.rows] == [0.5] * 4
    assert tuned.rows[3]["guide_flip"] == 1


def test_what_runs_away_has_not_flipped(table: Path, tmp_path: Path) -> None:
    grid = {"scales": [[1e38], [10.0]], "tau": [20]}
    found = tune_settings(table, explainer(clip_denoised=False), tmp_path, grid)
    lost, good = found.rows
    assert (lost["diverged"], lost["guide_flip"], lost["mean_change"]) == (IMAGES, 0, None)
    assert (good["diverged"], found.chosen) == (0, good)
    with pytest.raises(InputError, match="numbers without bound from each"):
        tune_settings(table, explainer(clip_denoised=False), tmp_path, {"scales": [[1e38]], "tau": [20]})


# --- choice ----------------------------------------------------------------------------------------------


def test_the_choice_obeys_the_rule(tuned: fastdime.Tuned) -> None:
    best = max(row["oracle_flip"] for row in tuned.rows)
    near = [row for row in tuned.rows if row["oracle_flip"] >= best - SLACK]
    assert tuned.chosen["mean_change"] == min(row["mean_change"] for row in near)
    wanted = settings_for("fastdime", l1=0.5, **tuned.chosen["settings"])
    assert tuned.settings == wanted


def test_the_guide_decides_only_without_an_oracle(table: Path, tuned: fastdime.Tuned) -> None:
    """The oracle finds all alike, so it leaves the least change, which convinces the guide of nothing."""
    alone = tune_settings(table, explainer(), table.parents[1] / "runs", GRID)
    assert alone.chosen["guide_flip"] >= 1 - SLACK > tuned.chosen["guide_flip"]
    assert alone.chosen["oracle_flip"] is None
    assert "a guide can be fooled" in alone.warnings[0]
    assert not any("guide" in warning for warning in tuned.warnings)


def row(flip: float, change: float | None, calls: int = 10) -> dict[str, Any]:
    return {"oracle_flip": flip, "mean_change": change, "denoiser_calls": calls}


@pytest.mark.parametrize(
    ("rows", "place"),
    [
        ([row(1.0, 0.02), row(0.95, 0.01), row(0.94, 0.001)], 1),
        ([row(0.5, 0.02, 30), row(0.5, 0.02, 20)], 1),
        ([row(0.3, 0.05), row(0.9, 0.5)], 1),
        ([row(0.0, None), {"refused": "too long"}, row(0.0, 0.1)], 2),
    ],
    ids=["least change among the best", "fewer calls", "flips come first", "without pictures"],
)
def test_rule_by_hand(rows: list[dict[str, Any]], place: int) -> None:
    assert choose(rows) is rows[place]


def test_warnings(table: Path, tmp_path: Path) -> None:
    weak = tune_settings(table, explainer(), tmp_path, {"scales": [[0.001]], "tau": [5, 10]})
    assert any("flip only 0% of the images" in warning for warning in weak.warnings)
    assert not any("edge" in warning for warning in weak.warnings)
    strong = tune_settings(table, explainer(), tmp_path, {"scales": [[10.0]], "tau": [2, 40]})
    assert any("at the edge of what was tried: tau=40;" in warning for warning in strong.warnings)
    assert not any("flip only" in warning for warning in strong.warnings)


# --- going on --------------------------------------------------------------------------------------------


def test_it_goes_on_and_makes_nothing_twice(
    table: Path, tuned: fastdime.Tuned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    usual = Explainer.__call__

    def counted(self: Explainer, x: Tensor, *rest: Any, **more: Any) -> Any:
        calls.append(len(x))
        return usual(self, x, *rest, **more)

    def killing(done: float, of: int) -> None:
        assert of == 4 * IMAGES
        if done > 2.5 * IMAGES:
            raise Killed

    monkeypatch.setattr(Explainer, "__call__", counted)
    oracle = ImageClassifier(dull)
    with pytest.raises(Killed):
        tune_settings(table, explainer(), tmp_path, GRID, oracle=oracle, progress=killing)
    assert len(calls) == 3  # a batch is a combination; the third was not finished
    shown: list[float] = []
    again = tune_settings(
        table, explainer(), tmp_path, GRID, oracle=oracle, progress=lambda done, of: shown.append(done / of)
    )
    assert len(calls) == 5
    assert (shown[0], shown[-1]) == (0.5, 1.0)
    assert without_times(again.rows) == without_times(tuned.rows)
    tune_settings(table, explainer(), tmp_path, {"tau": [2, 20], "scales": [[1.0]]}, oracle=oracle)
    assert len(calls) == 6  # a larger grid, in another order: only what is new


def test_other_settings_are_not_mixed_in(table: Path, tuned: fastdime.Tuned) -> None:
    with pytest.raises(InputError, match=r"settings\.l1: the run has 0\.5, you ask for 0\.1"):
        tune_settings(table, explainer(l1=0.1), table.parents[1] / "runs", GRID)


# --- grids -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_grid_that_it_takes(method: str) -> None:
    settings = tiny.small(method)
    grid = default_grid(settings)
    check_grid(grid, settings)
    assert all(len(ladder) == 1 for ladder in grid["scales"])
    assert len(grid["scales"]) == 5
    assert ("tau" in grid) == ("tau" in type(settings).model_fields)


def test_start_levels_stay_within_the_chain() -> None:
    assert default_grid(settings_for("fastdime", steps=50, tau=45))["tau"] == [30, 45]


def test_values_that_are_lists() -> None:
    grid = parse_grid(["l1=0.4:0.1,0.2", "steps=none,50", "scales=8"], type(settings_for("fastdime")))
    assert grid == {"l1": [[0.4, 0.1], 0.2], "steps": [None, 50], "scales": [[8]]}


@pytest.mark.parametrize(
    ("grid", "sentence"),
    [
        ({}, "none for any setting"),
        ({"tau": []}, "none for 'tau'"),
        ({"tua": [3]}, "did you mean 'tau'"),
        ({"tau": [0]}, "grid: tau: expected greater than or equal to 1, got 0"),
    ],
)
def test_bad_grids(table: Path, tmp_path: Path, grid: dict[str, list[Any]], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        tune_settings(table, explainer(), tmp_path, grid)


def test_combinations_that_cannot_be_are_listed(table: Path, tmp_path: Path) -> None:
    grid = {"tau": [10, 500], "l1": [0.5, [1, 2, 3]], "perceptual": [0.0, 1.0]}
    rows = tune_settings(table, explainer(), tmp_path, grid).rows
    reasons = [one.get("refused", "") for one in rows]
    assert ["refused" in one for one in rows] == [False, *[True] * 7]
    assert reasons[1].startswith("features: expected a feature network")
    assert reasons[2].startswith("l1: expected one weight, or one for each of 2 classes")
    assert "500" in reasons[4]
    with pytest.raises(InputError, match="grid: expected a combination that gives pictures, got none, for"):
        tune_settings(table, explainer(), tmp_path, {"tau": [500]})


# --- images and oracles ----------------------------------------------------------------------------------


def test_images_that_cannot_be_used_do_not_count(table: Path, tmp_path: Path) -> None:
    toy.write(tmp_path / "images", 3)
    (tmp_path / "images" / "0001.png").write_bytes(b"no image")
    found = tune_settings(tmp_path / "images", explainer(), tmp_path / "runs", {"tau": [40]})
    assert (found.chosen["images"], found.chosen["diverged"], found.chosen["guide_flip"]) == (2, 0, 1)
    assert len(found.failed) == 1
    with pytest.raises(DataError, match=r"one or more that can be used, got none; .*0001\.png"):
        tune_settings(tmp_path / "images" / "0001.png", explainer(), tmp_path / "other", {"tau": [40]})


def test_an_oracle_is_another_network_of_the_same_classes(table: Path, tmp_path: Path) -> None:
    for guide in (toy.classifier(), explainer().classifier):
        with pytest.raises(InputError, match="oracle: expected another network than the guide"):
            tune_settings(table, explainer(), tmp_path, GRID, oracle=guide)
    three = tiny.classifier(outputs=3, kind="multiclass")
    with pytest.raises(InputError, match="oracle: expected 2 classes, as the guide has, got 3"):
        tune_settings(table, explainer(), tmp_path, GRID, oracle=three)
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), 4)


def test_where_oracles_come_from(world: World) -> None:
    own, other = Sources(world.bundle), Sources(world.bundle, classifier="support.shortcuts:leaning_model")
    assert open_oracle(None, own)[0] == "squares/shortcut"
    assert open_oracle("task", own)[0] == "squares/task"
    assert open_oracle("task", other)[0] == "squares/task"
    assert open_oracle(None, other) is None  # the oracle of the bundle is about something else
    assert open_oracle(None, Sources(denoiser="x", classifier="y")) is None
    assert open_oracle("support.shortcuts:blind_model", own)[0] == "support.shortcuts:blind_model"
    with pytest.raises(InputError, match="did you mean 'shortcut'"):
        open_oracle("shortcuts", own)


def test_targets_are_those_of_the_options(world: World, tmp_path: Path) -> None:
    bundle = fastdime.load_bundle(world.bundle)
    guided = Explainer.from_bundle(bundle)
    options = RunOptions(target="1", limit=2)
    found = tune_settings(world.table, guided, tmp_path, {"tau": [3]}, options=options)
    _, records = fastdime.read_run(found.chosen["run"])
    assert [record["target"] for record in records] == [1, 1]
    assert json.loads(json.dumps(found.rows)) == found.rows
