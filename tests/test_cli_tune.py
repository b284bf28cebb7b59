"""The command `fastdime tune`, and --config of the commands that take its file."""

import json
from pathlib import Path
from typing import Any

import pytest

from fastdime.bundles import load_info
from fastdime.counterfactuals.methods import settings_for
from fastdime.runs import read_run
from fastdime.toy import write
from support.commands import TOY, Done, complaint, fastdime_command
from support.shortcuts import World, make_world

GRID = ("--grid", "scales=5,10", "--grid", "tau=10,40")
BLIND = ("--oracle", "support.shortcuts:blind_model")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("pilot"), 4)


@pytest.fixture(scope="module")
def out(table: Path) -> Path:
    file = table.parents[1] / "tuned.json"
    assert tune(table, file, *GRID).code == 0
    return file


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), 4)


def tune(table: Path, out: Path, *more: object) -> Done:
    return fastdime_command("tune", *TOY, "--set", "l1=0.5", "--data", table, "--out", out, *more)


def config_of(run: Path) -> dict[str, Any]:
    return read_run(run)[0]


def test_help() -> None:
    done = fastdime_command("tune", "--help")
    assert done.code == 0
    assert "--grid" in done.out
    assert "(fastdime)" in done.out  # the method, although it is not known before --config is read


def test_a_table_for_people(table: Path, out: Path) -> None:
    done = tune(table, out, *GRID, "--grid", "steps=30,200")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    names = "scales tau steps guide flip mean change changed area mask area denoiser calls seconds per image"
    assert lines[0].split() == names.split()
    marked = [line.split() for line in lines[1:9] if line.startswith("*")]
    chosen = json.loads(out.read_text())["chosen"]["settings"]
    assert [line[1:4] for line in marked] == [
        [f"{chosen['scales'][0]:g}", f"{chosen['tau']}", f"{chosen['steps']}"]
    ]
    refused = [line for line in lines if line.startswith("Refused: ")]
    assert len(refused) == 2
    assert refused[0].startswith("Refused: scales=5, tau=40, steps=30: tau: expected")
    assert sum("a guide can be fooled" in line for line in lines) == 1
    assert lines[-1] == f"Next: fastdime explain {' '.join(TOY)} --data DATA --out RUN --config {out}"


def test_json_for_programs(table: Path, out: Path) -> None:
    done = tune(table, out, *GRID, *BLIND, "--json")
    told = json.loads(done.out)
    assert told["chosen"] in told["rows"]
    assert len(told["rows"]) == 4
    assert (told["oracle"], told["method"], told["out"]) == (BLIND[1], "fastdime", str(out))
    assert all(row["oracle_flip"] is not None for row in told["rows"])


def test_explain_takes_the_file(table: Path, out: Path, tmp_path: Path) -> None:
    chosen = json.loads(tune(table, out, *GRID, "--json").out)["chosen"]
    words = ("explain", *TOY, "--data", table, "--config", out)
    assert fastdime_command(*words, "--out", tmp_path / "run").code == 0
    wanted = settings_for("fastdime", l1=0.5, **chosen["settings"])
    config, records = read_run(tmp_path / "run")
    assert (config["method"], config["settings"]) == ("fastdime", wanted.model_dump(mode="json"))
    assert records == read_run(chosen["run"])[1]  # the very pictures that were judged
    more = ("--set", "dilation=3", "--method", "fastdime", "--limit", 1)
    assert fastdime_command(*words, *more, "--out", tmp_path / "other").code == 0
    assert config_of(tmp_path / "other")["settings"] == {**config["settings"], "dilation": 3}
    again = ("explain", *TOY, "--data", table, "--config", tmp_path / "other" / "config.json", "--limit", 1)
    assert fastdime_command(*again, "--out", tmp_path / "third").code == 0
    assert config_of(tmp_path / "third")["settings"] == config_of(tmp_path / "other")["settings"]


def test_settings_of_a_bundle_do_not_come_back(world: World, tmp_path: Path) -> None:
    """The bundle has dilation 1 and l1 0; 5 and 0.05 are the defaults, which the file does not list."""
    words = ("--bundle", world.bundle, "--data", world.table)
    back = ("--set", "dilation=5", "--set", "l1=0.05", "--grid", "scales=4000", "--method", "fastdime-null")
    done = fastdime_command(
        "tune", *words, *back, "--shortcut", "mark", "--out", tmp_path / "tuned.json", "--json"
    )
    assert done.code == 0, done.err
    assert json.loads(done.out)["oracle"] == "squares/shortcut"
    file = json.loads((tmp_path / "tuned.json").read_text())
    fitting = load_info(world.bundle).settings["fastdime-null"]
    kept = {name: fitting[name] for name in ("tau", "inpaint_steps")}
    assert (file["method"], file["settings"]) == ("fastdime-null", {**kept, "scales": [4000.0]})
    told = ("--config", tmp_path / "tuned.json")
    assert fastdime_command("explain", *words, *told, "--out", tmp_path / "run").code == 0
    audit = ("--shortcut", "mark", "--controls", 0, "--pictures", 0, "--out", tmp_path / "audit")
    assert fastdime_command("audit", *words, *told, *audit).code == 0
    wanted = settings_for("fastdime-null", scales=[4000.0], **kept).model_dump(mode="json")
    assert config_of(Path(json.loads(done.out)["chosen"]["run"]))["settings"] == wanted
    assert config_of(Path(json.loads(done.out)["chosen"]["run"]))["target"] == "flip:mark"
    assert config_of(tmp_path / "run")["settings"] == wanted
    assert config_of(tmp_path / "audit" / "mark" / "edit")["settings"] == wanted


def test_an_audit_takes_the_method_of_the_file(world: World, tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text('{"method": "fastdime", "settings": {"tau": 4, "scales": [4000]}}')
    words = ("--bundle", world.bundle, "--data", world.table, "--config", tmp_path / "mine.json")
    more = ("--shortcut", "mark", "--controls", 0, "--pictures", 0, "--set", "tau=2")
    assert fastdime_command("audit", *words, *more, "--out", tmp_path / "audit").code == 0
    config = config_of(tmp_path / "audit" / "mark" / "edit")
    assert config["method"] == "fastdime"
    assert (config["settings"]["tau"], config["settings"]["scales"]) == (2, [4000.0])
    other = fastdime_command("audit", *words, *more, "--method", "gmd", "--out", tmp_path / "other")
    assert "--method: expected fastdime, as in" in complaint(other)


def test_images_that_cannot_be_used(tmp_path: Path) -> None:
    table = write(tmp_path / "images", 2)
    table.write_text(table.read_text() + "0002,missing.png,0\n")
    done = tune(table, tmp_path / "tuned.json", "--grid", "tau=40")
    assert done.code == 3
    assert "1 of 3 images could not be used: " in done.err
    assert (tmp_path / "tuned.json").is_file()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--grid", "tua=3"], "did you mean 'tau'?"),
        (["--grid", "tau=ten"], "grid: tau: expected a valid integer"),
        (["--grid", "tau"], "--grid: expected NAME=VALUE,VALUE,..., got 'tau'"),
        (["--grid", "tau="], "--grid: expected NAME=VALUE,VALUE,..., got 'tau='"),
        (["--grid", "tau=2", "--grid", "tau=3"], "--grid: expected each setting once, got 'tau' twice"),
        (["--grid", "tau=500"], "grid: expected a combination that gives pictures, got none, for"),
        (["--oracle", "fastdime.toy:classifier"], "expected another network than the guide"),
        (["--oracle", "nowhere"], "classifier nowhere: expected a file"),
        (["--method", "fastdim"], "did you mean 'fastdime'?"),
        (["--config", "nowhere.json"], "nowhere.json: expected a JSON file"),
        (["--shortcut", "rnig"], "label column: expected one of ring, got 'rnig'"),
        (["--shortcut", "ring", "--target", "1"], "--target: expected none beside --shortcut, got 1"),
        (["--limit", "0"], "--limit: expected greater than or equal to 1, got 0"),
        (["--data", "TABLE/nowhere"], "expected a table, a folder or an image, got no such file"),
        (["--data", "EMPTY"], "EMPTY"),
        (["--out", "TABLE/table.csv"], "expected a new file, or one that fastdime tune wrote"),
        (["--out", "TABLE"], "expected a new file, or one that fastdime tune wrote"),
    ],
)
def test_what_cannot_be_tuned_is_one_line(
    table: Path, tmp_path: Path, words: list[str], sentence: str
) -> None:
    (tmp_path / "EMPTY").mkdir()
    places = {"TABLE": str(table.parent), "EMPTY": str(tmp_path / "EMPTY")}
    for name, place in places.items():
        words = [word.replace(name, place) for word in words]
    before = table.read_bytes()
    done = tune(table, tmp_path / "tuned.json", *words)
    assert sentence in complaint(done)
    assert table.read_bytes() == before
    assert not (tmp_path / "tuned.json").exists()


@pytest.mark.parametrize(
    ("content", "more", "sentence"),
    [
        ("{}", [], "expected a value for method, got none"),
        ('{"method": "fastdim"}', [], "did you mean 'fastdime'?"),
        ('{"method": "fastdime", "settings": {"tua": 3}}', [], "did you mean 'tau'?"),
        ('{"method": "fastdime"}', ["--preset", "celeba"], "--preset: expected none beside --config"),
        ('{"method": "gmd"}', ["--method", "dime"], "--method: expected gmd, as in"),
        ("[1]", [], "expected a JSON object"),
    ],
)
def test_bad_files_are_one_line(
    table: Path, tmp_path: Path, content: str, more: list[str], sentence: str
) -> None:
    (tmp_path / "mine.json").write_text(content)
    words = ("--data", table, "--out", tmp_path / "run", "--config", tmp_path / "mine.json", *more)
    assert sentence in complaint(fastdime_command("explain", *TOY, *words))
