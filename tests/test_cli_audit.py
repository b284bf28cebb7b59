"""The commands `fastdime audit`, `validate` and `mitigate`."""

import json
from pathlib import Path
from typing import Any

import pytest

from fastdime.audit.schema import Audit
from fastdime.validation import study
from support.commands import Done, complaint, fastdime_command
from support.shortcuts import World, make_world, quick_recipe, write_images

LEANING, BLIND = ("--model", "support.shortcuts:leaning_model"), ("--model", "support.shortcuts:blind_model")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), 16)


@pytest.fixture(scope="module")
def out(world: World) -> Path:
    """Where the pictures are; commands with the same settings ask about them and make none."""
    folder = world.table.parents[1] / "audit"
    assert run(world, folder, *LEANING, *BLIND).code == 0
    return folder


def run(world: World, folder: Path, *more: object) -> Done:
    words = ("--data", world.table, "--bundle", world.bundle, "--shortcut", "mark", "--controls", 4)
    return fastdime_command("audit", *words, "--pictures", 0, "--out", folder, *more)


# --- audit -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["audit", "validate", "mitigate"])
def test_help(command: str) -> None:
    done = fastdime_command(command, "--help")
    assert done.code == 0
    assert "--margin" in done.out
    assert "--json" in done.out


def test_a_table_and_the_verdicts_for_people(world: World, out: Path) -> None:
    done = run(world, out, *LEANING, *BLIND, "--task", "sick", "--by", "site")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].split()[:6] == ["model", "output", "shortcut", "effect", "low", "high"]
    assert [line.split()[0] for line in lines[1:3]] == ["leaning_model", "blind_model"]
    assert lines[4].startswith("leaning_model, class 1, mark: relies: the effect above placebo is 0.2")
    assert lines[-1] == f"Everything is in {out}/audit.json. Next: fastdime report {out}"


def test_json_is_the_documented_schema(world: World, out: Path) -> None:
    done = run(world, out, *LEANING, "--json", "--margin", 0.2, "--alpha", 0.1)
    assert done.code == 0, done.err
    told = Audit.model_validate_json(done.out)
    assert told == Audit.model_validate_json((out / "audit.json").read_text())
    assert (told.margin, told.alpha, told.images) == (0.2, 0.1, 16)
    assert told.data == str(world.table)
    assert done.out.count("\n") == 1


def test_a_condition_that_is_met_is_exit_code_1(world: World, out: Path) -> None:
    met = run(
        world, out, "--model", "net=support.shortcuts:leaning_model", "--fail-if", "effect>0.1", "--json"
    )
    assert met.code == 1
    assert met.err == "fastdime: net, class 1, mark: effect>0.1\n"
    assert Audit.model_validate_json(met.out).rows[0].verdict == "relies"  # it is printed all the same
    both = run(world, out, *LEANING, *BLIND, "--fail-if", "effect>0.9", "--fail-if", "verdict==relies")
    assert both.code == 1
    assert both.err == "fastdime: leaning_model, class 1, mark: verdict==relies\n"
    assert run(world, out, *BLIND, "--fail-if", "effect>0.1").code == 0


def test_pictures_first_and_answers_later(world: World, out: Path, tmp_path: Path) -> None:
    made = run(world, out)
    assert made.code == 0
    assert made.out.startswith(f"Pictures are made and listed in {out}/pictures.csv. Next: --model, or a CSV")
    lines = [f"image-{i},0.5,{0.1 + i / 100:.2f},0.5" for i in range(16)]
    (tmp_path / "net.csv").write_text("\n".join(["id,before,after,placebo", *lines]) + "\n")
    done = run(world, out, "--model", tmp_path / "net.csv", "--json")
    [row] = json.loads(done.out)["rows"]
    assert (row["model"], row["verdict"]) == ("net", "relies")


def test_pictures_for_the_report(world: World, out: Path) -> None:
    pytest.importorskip("captum", reason="SmoothGrad is made with captum")
    assert run(world, out, *LEANING, "--pictures", 2).code == 0
    assert len(list((out / "mark/smoothgrad/leaning_model").iterdir())) == 2
    report = fastdime_command("report", out, "--json")
    assert report.code == 0, report.err
    assert Path(json.loads(report.out)["report"]).stat().st_size > 1000


def test_several_shortcuts_with_bundles_of_their_own(world: World, tmp_path: Path) -> None:
    words = (
        "--data",
        world.table,
        "--shortcut",
        f"mark={world.bundle}",
        "--shortcut",
        f"other={world.bundle}",
    )
    more = (*LEANING, "--controls", 0, "--pictures", 0, "--limit", 4, "--out", tmp_path, "--json")
    done = fastdime_command("audit", *words, *more)
    assert done.code == 0, done.err
    assert [row["shortcut"] for row in json.loads(done.out)["rows"]] == ["mark", "other"]


def test_options_reach_the_request(world: World, tmp_path: Path) -> None:
    words = ("--where", "site=north", "--limit", 4, "--group", "none", "--seed", 3, "--batch-size", 2)
    more = ("--method", "fastdime", "--set", "tau=2", "--oracle", world.bundle / "oracles/task")
    done = run(world, tmp_path, *LEANING, *words, *more, "--device", "cpu", "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert (told["images"], told["group"], told["seed"]) == (4, None, 3)
    [card] = told["generators"]
    assert (card["method"], card["settings"]["tau"]) == ("fastdime", 2)
    assert card["compliance"]["oracle"].endswith("oracles/task")


def test_images_that_need_another_size(world: World, tmp_path: Path) -> None:
    from PIL import Image

    table = write_images(tmp_path / "large", 2)
    for path in (tmp_path / "large").glob("*.png"):
        with Image.open(path) as image:
            image.convert("RGB").resize((40, 32)).save(path)
    words = ("--data", table, "--bundle", world.bundle, "--shortcut", "mark", *LEANING, "--pictures", 0)
    refused = fastdime_command("audit", *words, "--out", tmp_path / "a")
    assert "images of mark: expected one or more that can be edited" in complaint(refused)
    fitting = ("--size", 16, "--convert-channels", "--root", tmp_path / "large")
    assert fastdime_command("audit", *words, *fitting, "--out", tmp_path / "b").code == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--shortcut", "mark"], "--shortcut: expected a column of the table, each once, got 'mark' twice"),
        (["--shortcut", "marc"], "label column: expected one of"),
        (["--model", "nowhere.pt"], "nowhere.pt"),
        (["--model", "a=x:y", "--model", "a=y:z"], "--model: expected different names"),
        (["--fail-if", "efect>0.1"], "did you mean 'effect'"),
        (["--margin", 0], "audit: margin: expected greater than 0, got 0.0"),
        (["--alpha", 0.7], "audit: alpha: expected less than 0.5, got 0.7"),
        (["--size", 2], "audit: size: expected greater than or equal to 8, got 2"),
        (["--by", "siet"], "did you mean 'site'"),
        (["--method", "fastdiem"], "did you mean 'fastdime'"),
        (["--set", "tua=3"], "did you mean 'tau'"),
        (["--bundle", "nowhere"], "bundle nowhere: expected a folder"),
        (["--device", "gpu"], "--device: expected a device of this machine"),
        (["--limit", "many"], "Invalid value for '--limit'"),
    ],
)
def test_bad_input_is_one_line(words: list[str], sentence: str, world: World, tmp_path: Path) -> None:
    assert sentence in complaint(run(world, tmp_path / "out", *words))
    assert not (tmp_path / "out").exists()


# --- validate and mitigate -------------------------------------------------------------------------------


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(study, "model_recipe", quick_recipe)
    return write_images(tmp_path / "many", 96)


def columns(world: World, table: Path) -> tuple[Any, ...]:
    few = ("--n", 16, "--n-balanced", 8, "--recipe", "small", "--controls", 0)
    return ("--data", table, "--bundle", world.bundle, "--task", "sick", "--shortcut", "mark", *few)


def test_validate(world: World, many: Path, tmp_path: Path) -> None:
    words = (*columns(world, many), "--k", "100,50", "--seeds", 1, "--n-test", 4, "--out", tmp_path / "out")
    done = fastdime_command("validate", *words)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].split()[:7] == ["k", "auroc", "k", "auroc", "u", "auroc", "uc"]
    assert [line.split()[0] for line in lines[1:3]] == ["100", "50"]
    assert lines[3].startswith("trend: {'p': ")
    assert lines[-1].endswith(f"Next: fastdime report {tmp_path}/out/audit")
    told = json.loads(fastdime_command("validate", *words, "--json").out)
    assert told == json.loads((tmp_path / "out/validate.json").read_text())
    assert told.keys() == {"rows", "models", "trend", "notes"}


def test_mitigate(world: World, many: Path, tmp_path: Path) -> None:
    words = (
        *columns(world, many),
        "--k",
        75,
        "--ways",
        "augment",
        "--partners",
        6,
        "--out",
        tmp_path / "out",
    )
    done = fastdime_command("mitigate", *words)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["model", "plain", "augment"]
    assert lines[3].startswith("augment: moves by ")
    assert lines[3].endswith(" less than plain.")
    told = json.loads(fastdime_command("mitigate", *words, "--json").out)
    assert told == json.loads((tmp_path / "out/mitigate.json").read_text())
    assert told.keys() == {"rows", "notes"}


NOWHERE = ("--data", "nowhere.csv", "--task", "sick", "--shortcut", "mark")


@pytest.mark.parametrize("command", ["validate", "mitigate"])
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "COMMAND: expected a phantom, or --data with --task and --shortcut, got neither"),
        (
            ["skin-ruler", "--data", "x.csv"],
            "COMMAND: expected a phantom, or --data with --task and --shortc",
        ),
        (
            ["--data", "x.csv"],
            "COMMAND --data: expected --task and one --shortcut, got no --task and 0 --sho",
        ),
        (["skin-ruler", "--task", "x"], "COMMAND skin-ruler: expected no --task and no --shortcut, got one"),
        (["skin-rular"], "bundle skin-rular: expected a folder, or one that comes with fastdime"),
        ([*NOWHERE], "--bundle: expected a bundle, to make counterfactuals with, got none"),
        ([*NOWHERE, "--bundle", "skin-ruler"], "nowhere.csv: expected a table"),
        (["skin-ruler", "--recipe", "larg"], "recipe of the task model: expected one of"),
    ],
)
def test_what_cannot_be_trained_is_one_line(
    command: str, words: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = fastdime_command(command, *words, "--out", tmp_path / "out")
    assert sentence.replace("COMMAND", command) in complaint(done)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["validate", "skin-ruler", "--k", "much"],
            "k: expected a percentage from 0 to 100, or none, got 'much'",
        ),
        (
            ["validate", "skin-ruler", "--k", "100,,50"],
            "k: expected a percentage from 0 to 100, or none, got ''",
        ),
        (
            ["validate", "skin-ruler", "--k", "none"],
            "--k: expected percentages with commas between, got 'none'",
        ),
        (["validate", "skin-ruler", "--k", "100,100"], "k: expected different percentages"),
        (["validate", "skin-ruler", "--rule", "blanced"], "did you mean 'balanced'"),
        (["validate", *NOWHERE, "--bundle", "skin-ruler", "--truth"], "--truth: expected a phantom, whose"),
        (["mitigate", "skin-ruler", "--ways", "augmnet"], "did you mean 'augment'"),
        (["mitigate", "skin-ruler", "--ways", ""], "ways of mending: expected one or more"),
        (["mitigate", "skin-ruler", "--n", 3], "n: expected a multiple of 2"),
    ],
)
def test_what_one_of_them_refuses(words: list[str], sentence: str, tmp_path: Path) -> None:
    assert sentence in complaint(fastdime_command(*words, "--out", tmp_path / "out"))
    assert not (tmp_path / "out").exists()
