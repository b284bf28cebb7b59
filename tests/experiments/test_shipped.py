"""The bundles that come with the package, and what is made with them."""

import json
from pathlib import Path

import pytest

from fastdime.bundles import ORACLES, SHIPPED, load_bundle, shipped
from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.methods import settings_for
from fastdime.data.io import write_image
from fastdime.data.phantoms.phantom import phantom
from fastdime.experiments.truth import Judges, counterfactuals, pairs, score, truth, yes
from fastdime.experiments.tune import loss, tune
from support.commands import fastdime_command as run

REGION = {"face-smile": 0.6}  # largest region error, if not .5: a smile is a faint change of a whole face
FRESH = 36_000  # a seed that nothing was trained, tuned or scored on


@pytest.mark.parametrize("name", shipped())
def test_each_is_small_and_says_what_it_is(name: str) -> None:
    folder = SHIPPED / name
    parts = [file for file in folder.rglob("*") if file.is_file() and ORACLES not in file.parts]
    assert sum(file.stat().st_size for file in parts) <= 4e6
    bundle = load_bundle(name)
    drawn = phantom(name).render(FRESH, range(1), None)
    assert (bundle.name, bundle.channels, bundle.size) == (name, drawn.x.shape[1], 64)
    assert len(bundle.info.classes) == 2
    for method, changes in bundle.info.settings.items():
        assert settings_for(method, **changes)
    card = (folder / "README.md").read_text()
    assert "fastdime train denoiser" in card
    assert f"fastdime bench truth --phantom {name}" in card


@pytest.mark.parametrize("name", shipped())
def test_judges_know_their_trade(name: str) -> None:
    drawn = phantom(name).render(FRESH, range(100), None)
    judges = Judges.of(load_bundle(name))
    for judge in (judges.guide, judges.shortcut, judges.complete):
        assert (yes(judge, drawn.with_shortcut) > 0.5).float().mean() >= 0.95
        assert (yes(judge, drawn.without) < 0.5).float().mean() >= 0.95
    task = [yes(judges.task, x) for x in (drawn.with_shortcut, drawn.without)]
    assert (task[0] - task[1]).abs().mean() < 0.06
    assert ((task[0] > 0.5) == (drawn.y == 1)).float().mean() > 0.7


@pytest.mark.parametrize("name", shipped())
def test_shortcuts_come_and_go(name: str) -> None:
    """Looser than what the card says, because there are few images."""
    bundle = load_bundle(name)
    remove, add = (pairs(name, 8, way, FRESH) for way in ("remove", "add"))
    explainer = Explainer.from_bundle(bundle)
    gone = score(remove, counterfactuals(explainer, remove)[0], Judges.of(bundle))
    assert gone["oracle_flip"] >= 0.75
    assert gone["region_error_ratio"] <= REGION.get(name, 0.5)
    assert gone["outside_change"] <= 0.04
    come = score(add, counterfactuals(explainer, add)[0], Judges.of(bundle))
    assert come["oracle_flip"] >= 0.5


def test_rows_of_the_bench() -> None:
    told: list[float] = []
    rows = truth(["chest-pacemaker"], ["fastdime"], 2, lambda done, of: told.append(done / of))
    assert told == [0.5, 1.0]
    assert [(row["phantom"], row["method"], row["direction"], row["n"]) for row in rows] == [
        ("chest-pacemaker", "fastdime", "remove", 2),
        ("chest-pacemaker", "fastdime", "add", 2),
    ]
    wanted = {"oracle_flip", "guide_flip", "region_error_ratio", "outside_change", "task_change", "l1"}
    assert rows[0].keys() >= wanted | {"seconds_per_image"}


def test_tuning_finds_the_better_settings() -> None:
    bundle = load_bundle("chest-pacemaker")
    good = bundle.info.settings["fastdime"]
    grid = {name: [value] for name, value in good.items()} | {"tau": [2, good["tau"]]}
    rows = tune(bundle, "chest-pacemaker", "fastdime", grid, n=4)
    assert [row["settings"]["tau"] for row in rows] == [good["tau"], 2]
    assert rows[0]["loss"] < rows[1]["loss"]
    exact = {"oracle_flip": 1.0, "complete_flip": 1.0, "region_error_ratio": 0.0, "outside_change": 0.0}
    assert loss({"remove": exact | {"task_change": 0.0}, "add": exact | {"task_change": 0.0}}) == 0


def test_demo(tmp_path: Path) -> None:
    done = run("demo", "--n", "12", "--out", str(tmp_path / "demo"), "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert sum(row["n"] for row in result["rows"]) == 12
    assert Path(result["picture"]).is_file()
    assert Path(result["report"]).stat().st_size > 100_000
    rows = {row["model"]: row for row in result["audit"]["rows"]}
    assert rows["k100"]["verdict"] == "relies"
    assert (
        rows["k50"]["effect"]["value"]
        < 0.1
        < rows["k75"]["effect"]["value"]
        < rows["k100"]["effect"]["value"]
    )
    for row in rows.values():
        assert row["mad"]["value"] == pytest.approx(row["truth"]["mad"]["value"], abs=0.15)
    again = run("demo", "--n", "12", "--out", str(tmp_path / "demo"))
    assert "oracle flip" in again.out
    assert "k100: relies" in again.out
    assert again.out.splitlines()[-1] == f"The report: {result['report']}"
    other = run("demo", "--n", "5", "--out", str(tmp_path / "demo"))
    assert other.code == 2
    assert other.err.count("\n") == 1
    unknown = run("demo", "--phantom", "skin-ruler", "--out", str(tmp_path / "other"))
    assert (unknown.code, unknown.err.count("\n")) == (2, 1)


def test_a_preset_is_what_was_published(tmp_path: Path) -> None:
    """The settings of a bundle are for the default; a preset goes without them, and --set goes on top."""
    image = tmp_path / "x.png"
    write_image(image, phantom("chest-pacemaker").render(FRESH, range(1), None).x[0], 8)
    words = ["explain", "--bundle", "chest-pacemaker", "--data", str(image), "--set", "tau=2"]
    for preset, dilation in [("default", 3), ("celeba", 5)]:
        out = tmp_path / preset
        more = ["--set", "perceptual=0"] if preset == "celeba" else []
        done = run(*words, "--preset", preset, *more, "--out", str(out))
        assert done.code == 0, done.err
        settings = json.loads((out / "config.json").read_text())["settings"]
        assert (settings["tau"], settings["dilation"]) == (2, dilation)
