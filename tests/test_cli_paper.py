"""The commands of `fastdime paper`."""

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fastdime import terminal
from fastdime.audit.pictures import Show
from fastdime.errors import DataError, InputError
from fastdime.experiments.paper import table
from fastdime.experiments.paper.catalogue import EXPERIMENTS
from fastdime.experiments.paper.experiment import Experiment, Outcome, Plan
from fastdime.experiments.paper.variants import Variant
from support.commands import complaint, fastdime_command, files
from support.shortcuts import World, make_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), 4)


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """One method in place of eight."""
    small = replace(EXPERIMENTS["counterfactuals"], variants=(Variant("fastdime", "fastdime"),))
    monkeypatch.setattr(table, "look_up", {"counterfactuals": small}.__getitem__)


def words(world: World, out: Path, *more: object) -> tuple[object, ...]:
    """Run on a table of a user."""
    images = ("--data", f"isic={world.table}", "--bundle", f"isic={world.bundle}")
    return ("paper", "run", "counterfactuals", *images, "--shortcut", "isic=mark", "--out", out, *more)


def test_list() -> None:
    done = fastdime_command("paper", "list")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].split() == ["experiment", "in", "the", "paper", "minutes", "title"]
    assert [line.split()[0] for line in lines[1:]] == list(EXPERIMENTS)
    told = json.loads(fastdime_command("paper", "list", "--json").out)["experiments"]
    assert told[0]["in_the_paper"] == "Tables 1 and 2"


@pytest.mark.usefixtures("_quick")
def test_a_table_for_people(world: World, tmp_path: Path) -> None:
    done = fastdime_command(*words(world, tmp_path, "--n", 2, "--scale", "full"))
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].split()[:3] == ["source", "row", "n"]
    assert lines[1].split()[:3] == ["isic", "fastdime", "2"]
    assert "0.3732" in lines[1]  # mad of FastDiME on ISIC in the paper
    assert any(line.startswith("Note: ") for line in lines)
    folder = tmp_path / "counterfactuals"
    assert lines[-1] == f"Everything is in {folder}, all numbers in {folder / 'table.json'}."
    told = json.loads((folder / "table.json").read_text())
    assert told.keys() == {"experiment", "scale", "n", "seed", "rows", "notes", "pictures"}
    assert (told["n"], told["seed"]) == (2, 0)
    assert (told["experiment"], told["scale"], told["pictures"]) == ("counterfactuals", "full", [])
    again = fastdime_command(*words(world, tmp_path, "--n", 2, "--scale", "full", "--json"))
    assert json.loads(again.out) == told
    assert json.loads((folder / "table.json").read_text()) == told


@pytest.mark.usefixtures("_quick")
def test_runs_can_be_scored_and_compared(world: World, tmp_path: Path) -> None:
    done = fastdime_command(*words(world, tmp_path, "--json"))
    run = tmp_path / "counterfactuals" / "isic" / "fastdime"
    (row,) = json.loads(done.out)["rows"]
    scored = json.loads(fastdime_command("score", run, "--metrics", "mad,l1", "--json").out)["metrics"]
    assert {name: round(told["value"], 5) for name, told in scored.items()} == {
        name: row[name] for name in ("mad", "l1")
    }
    assert fastdime_command("compare", run, run, "--metrics", "fr").code == 0
    assert fastdime_command("report", run, "--out", tmp_path / "report.html").code == 0


def test_pictures_and_the_figure_of_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are named from where the table is; numbers that JSON does not have become null."""

    def run(experiment: Experiment, plan: Plan, show: object) -> Outcome:
        study, picture = plan.out / "isic", plan.out / "some.png"
        study.mkdir()
        picture.touch()
        models = [{"k": 100.0, "auroc_k": 0.9, "auroc_u": 0.6, "mad": 0.5}]
        (study / "validate.json").write_text(json.dumps({"models": models}))
        return Outcome([{"row": "D_100", "mad": float("nan")}], ("row", "mad"), (picture,), (), (study,))

    monkeypatch.setattr(table, "runner_of", lambda name: run)
    done = fastdime_command("paper", "run", "shortcuts", "--out", tmp_path, "--json")
    told = json.loads(done.out)
    assert told["pictures"] == ["some.png", "isic/drop.svg"]
    assert told["rows"] == [{"row": "D_100", "mad": None}]
    drawn = ElementTree.parse(tmp_path / "shortcuts" / "isic" / "drop.svg").getroot()
    assert drawn.tag.endswith("svg")


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("counterfactual",), "experiment: expected one of .* did you mean 'counterfactuals'"),
        (("toy2d", "--scale", "large"), "--scale: expected one of small, full, got 'large'"),
        (("gallery", "--scale", "full"), "experiment: expected a data set and its bundle .*, got none"),
        (("gallery", "--phantom", "chest"), "--phantom: expected one of"),
        (("gallery", "--data", "isic"), "--data: expected NAME=VALUE"),
        (("gallery", "--data", "isic=no.csv", "--bundle", "isic=skin-ruler"), "--data isic: .* no.csv"),
        (("gallery", "--device", "abacus"), "--device: expected a device of this machine"),
        (("efficiency", "--phantom", "skin-ruler", "--n", "3"), "--n: expected an even number"),
        (("counterfactuals", "--only", "dime,fastdim"), "--only: .* did you mean 'fastdime'"),
        (("counterfactuals", "--only", ""), "--only: expected one of .*, got ''"),
        (("toy2d", "--seed", "-1"), "--seed: expected 0 or more, got -1"),
        (("toy2d", "--only", "dime"), "--only: expected an experiment with rows to choose from, got toy2d"),
        (("ablation-mask", "--phantom", "skin-ruler", "--features", "bogus"), "bogus"),
        (("shortcuts", "--phantom", "skin-ruler", "--n", "30"), "--n: expected a multiple of 4"),
        (("teaser", "--phantom", "skin-ruler"), "teaser: .*; give --phantom chest-pacemaker"),
        (("all", "--only", "dime"), "--only: expected one experiment, .*, got all; leave --only out"),
        (("all", "--scale", "full"), "experiment: expected a data set and its bundle .*, got none"),
        (("all", "--bundle", "isic=some"), "--bundle isic: expected .*, got neither"),
    ],
)
def test_what_is_refused_in_one_line(more: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    line = complaint(fastdime_command("paper", "run", *more, "--out", tmp_path))
    assert re.search(sentence, line), line
    assert not list(tmp_path.rglob("*.png"))


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> dict[str, Exception]:
    """Experiments that do nothing, but the teaser, which is the real one; those in the result fail."""
    errors: dict[str, Exception] = {}
    real = table.runner_of

    def run(experiment: Experiment, plan: Plan, show: Show) -> Outcome:
        with show("work") as progress:
            progress(1, 2)
        if experiment.name in errors:
            raise errors[experiment.name]
        return Outcome([{"row": plan.sources[0].name}], ("row",))

    monkeypatch.setattr(table, "runner_of", lambda name: real(name) if name == "teaser" else run)
    monkeypatch.setattr(terminal, "EVERY", 0)
    return errors


SKIN = ("paper", "run", "all", "--phantom", "skin-ruler", "--out")


def test_all(tmp_path: Path, failing: dict[str, Exception]) -> None:
    """The teaser has no use for this phantom, which is no failure."""
    done = fastdime_command(*SKIN, tmp_path)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].split() == ["experiment", "minutes", "path"]
    paths = {name: str(tmp_path / name / "table.json") for name in EXPERIMENTS} | {"teaser": "-"}
    assert [line.split() for line in lines[1:-1]] == [[name, "0", path] for name, path in paths.items()]
    assert re.fullmatch(r"Left out: teaser: .*; give --phantom chest-pacemaker\.", lines[-1])
    assert done.err.splitlines()[2:4] == ["2 of 9, efficiency", "2 of 9, efficiency: work: 1 of 2"]
    found = json.loads(fastdime_command(*SKIN, tmp_path, "--json").out)["experiments"]
    assert [line.pop("experiment") for line in found] == list(EXPERIMENTS)
    assert {line.pop("minutes") for line in found} == {0}
    for name, line in zip(EXPERIMENTS, found, strict=True):
        if name == "teaser":
            assert line.keys() == {"left_out"}
        else:
            assert json.loads(Path(paths[name]).read_text()) == {"experiment": name, **line}


def test_when_one_of_all_fails_the_others_are_done(tmp_path: Path, failing: dict[str, Exception]) -> None:
    failing |= {"efficiency": InputError("--n: odd"), "path": DataError("broken")}
    done = fastdime_command(*SKIN, tmp_path, "--json")
    assert done.code == 3
    ends = done.err.splitlines()[-2:]
    assert ends == ["fastdime: efficiency failed: --n: odd", "fastdime: path failed: broken"]
    found = {line["experiment"]: line for line in json.loads(done.out)["experiments"]}
    assert found["efficiency"] == {"experiment": "efficiency", "error": "--n: odd", "minutes": 0}
    assert [name for name, line in found.items() if "rows" not in line] == ["efficiency", "teaser", "path"]
    assert (tmp_path / "gallery" / "table.json").is_file()
    failing.clear()
    assert fastdime_command(*SKIN, tmp_path).code == 0


def test_a_bug_in_one_of_all_is_not_hidden(tmp_path: Path, failing: dict[str, Exception]) -> None:
    failing["efficiency"] = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        fastdime_command(*SKIN, tmp_path)


def test_results_of_another_seed_are_not_replaced(tmp_path: Path) -> None:
    words = ("paper", "run", "toy2d", "--out", tmp_path, "--n", 2)
    assert fastdime_command(*words).code == 0
    before = files(tmp_path)
    sentence = f"--out {tmp_path}: expected --seed 0, as {tmp_path / 'toy2d'} has it, got --seed 1; "
    line = complaint(fastdime_command(*words, "--seed", 1))
    assert line == sentence + "choose another --out or the same --seed"
    line = complaint(fastdime_command(*words[:-2]))
    assert "expected --n 2, as" in line
    assert "got no --n; choose another --out or the same --n" in line
    assert "expected --scale small" in complaint(fastdime_command(*words, "--scale", "full"))
    assert files(tmp_path) == before
    assert fastdime_command(*words).code == 0


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = fastdime_command("paper", "run", "toy2d", "--out", tmp_path / "file")
    assert "expected a place that can be written" in complaint(done)
