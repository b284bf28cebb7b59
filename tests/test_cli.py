import json
import time
from pathlib import Path

import pytest

import fastdime
from fastdime import toy
from fastdime.configs import changes
from fastdime.counterfactuals.methods import METHODS
from fastdime.counterfactuals.settings import GuidedSettings
from support.commands import (
    QUICK,
    TOY,
    Done,
    complaint,
    explain_toy,
    fastdime_command,
    finish,
    start,
    start_python,
)

COMMANDS = (
    ["explain"],
    ["methods"],
    ["convert"],
    ["show"],
    ["bench"],
    ["bench", "overhead"],
    ["bench", "speed"],
)
HEAVY = {"torch", "numpy", "diffusers", "monai", "pandas", "pydantic", "PIL", "pydicom", "safetensors"}
LISTED = """
import sys
{work}
print(*sorted({{name.partition(".")[0] for name in sys.modules}}), file=sys.stderr)
"""
HELP = """
sys.argv = ["fastdime", "--help"]
from fastdime.cli import main
try:
    main()
except SystemExit as end:
    assert end.code == 0
"""


@pytest.mark.parametrize("work", ["import fastdime", "import fastdime.cli", HELP])
def test_nothing_heavy_is_imported_early(work: str) -> None:
    done = finish(start_python("-c", LISTED.format(work=work)))
    assert done.code == 0, done.err
    modules = set(done.err.split())
    assert "fastdime" in modules
    assert not modules & HEAVY


@pytest.mark.parametrize("words", [["-c", "import fastdime"], ["-m", "fastdime", "--help"]])
def test_starting_takes_less_than_a_second(words: list[str]) -> None:
    def seconds() -> float:
        began = time.perf_counter()
        assert finish(start_python(*words)).code == 0
        return time.perf_counter() - began

    assert min(seconds() for _ in range(5)) < 1.0  # the best: other work may slow a start down


def test_every_command_has_help() -> None:
    whole = fastdime_command("--help")
    assert whole.code == 0
    assert fastdime_command() == whole
    for words in COMMANDS:
        assert words[0] in whole.out
        done = fastdime_command(*words, "--help")
        assert (done.code, done.err) == (0, "")
        assert f"Usage: fastdime {' '.join(words)}" in done.out


def test_every_option_of_explain_says_what_it_does() -> None:
    text = fastdime_command("explain", "--help").out
    for name in ("bundle", "denoiser", "classifier", "data", "method", "target", "out", "batch-size"):
        assert f"--{name}" in text
    for name in ("device", "limit", "seed", "json", "strict", "allow", "forbid", "preset", "set", "features"):
        assert f"--{name}" in text


def test_version() -> None:
    assert fastdime_command("--version") == Done(0, f"{fastdime.__version__}\n", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["explan"], "No such command 'explan'. Did you mean 'explain'?"),
        (["explain"], "Missing option '--data'"),
        (["explain", "--data"], "Option '--data' requires an argument"),
        (["explain", "--methd", "x"], "No such option: --methd"),
        (["explain", "--data", "x", "--out", "y", "--limit", "few"], "'--limit'"),
        (["explain", "--data", "x", "--out", "y", "extra"], "extra"),
        (["show"], "Missing argument"),
        (["show", "x"], "Missing option '--out'"),
        (["show", "x", "--out", "y.png", "--limit", "0"], "'--limit'"),
        (["convert", "x"], "Missing argument"),
        (["bench"], "Missing command"),
        (["bench", "overhed"], "No such command 'overhed'"),
    ],
)
def test_wrong_words_are_one_line(words: list[str], message: str) -> None:
    assert message in complaint(fastdime_command(*words))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--method", "fastdim"], "method: expected one of fastdime, fastdime-2"),
        (["--method", "fastdim"], "got 'fastdim'; did you mean 'fastdime'?"),
        (["--preset", "celebA"], "got 'celebA'; did you mean 'celeba'?"),
        (["--set", "taau=3"], "got 'taau'; did you mean 'tau'?"),
        (["--set", "tau"], "--set: expected NAME=VALUE, got 'tau'"),
        (["--set", "=3"], "setting of fastdime: expected one of"),
        (["--set", "tau=many"], "tau"),
        (["--set", "tau=0"], "tau"),
        (["--set", "mask=all"], "mask"),
        (["--set", "tau=3,4"], "tau"),
        (["--set", "scales="], "scales"),
        (["--engine", "onxx"], "--engine: expected one of torch, onnx, got 'onxx'; did you mean 'onnx'?"),
        (["--set", "tau=900"], "tau: expected at most 50 levels on this chain, got 900"),
    ],
)
def test_wrong_settings_are_one_line(tmp_path: Path, words: list[str], message: str) -> None:
    table = toy.write(tmp_path / "data", 1)
    assert message in complaint(explain_toy(table, tmp_path / "run", *words))


def test_values_of_settings() -> None:
    wanted = {"tau": 40, "l1": 0.5, "scales": [8], "mask": "none", "add_noise": False, "steps": None}
    given = ["tau=40", "l1=0.5", "scales=8", "mask=none", "add_noise=False", "steps=None"]
    assert changes(given, GuidedSettings) == wanted
    assert changes(["scales=8,10,15"], GuidedSettings) == {"scales": [8, 10, 15]}


def test_settings_reach_the_run(tmp_path: Path) -> None:
    table = toy.write(tmp_path / "data", 1)
    wanted = {"mask": "none", "steps": None, "scales": [8.0, 9.5], "add_noise": False, "l1": 0.25}
    words = ["--set", "mask=none", "--set", "steps=none", "--set", "scales=8,9.5", "--set", "add_noise=false"]
    assert explain_toy(table, tmp_path / "run", *words, "--set", "l1=0.25").code == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert {name: config["settings"][name] for name in wanted} == wanted


def test_json_is_one_object_on_standard_output(tmp_path: Path) -> None:
    table = toy.write(tmp_path / "data", 3)
    words = ["explain", *TOY, *QUICK, "--data", table, "--out", tmp_path / "run", "--json"]
    done = finish(start(*words))
    assert (done.code, done.err) == (0, "")
    assert done.out.count("\n") == 1
    numbers = json.loads(done.out)
    assert numbers["out"] == str(tmp_path / "run")
    assert (numbers["method"], numbers["images"], numbers["errors"]) == ("fastdime", 3, 0)
    for name in ("flip_rate", "mean_change", "seconds_per_image", "denoiser_calls", "gradient_calls"):
        assert numbers[name] > 0
    table.write_text(table.read_text().replace("0001.png", "lost.png"))
    failed = fastdime_command(*words[:-2], tmp_path / "other", "--json")
    assert failed.code == 3
    assert json.loads(failed.out)["errors"] == 1


def test_methods() -> None:
    rows = json.loads(fastdime_command("methods", "--json").out)["methods"]
    assert [row["method"] for row in rows] == list(METHODS)
    assert all(row["summary"] and row["denoiser_calls"] > 0 and row["gradient_calls"] > 0 for row in rows)
    lines = fastdime_command("methods").out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(METHODS)


def test_convert_what_cannot_be_converted(tmp_path: Path) -> None:
    (tmp_path / "text.pt").write_text("no weights")
    (tmp_path / "empty.pt").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for source, out, message in [
        (tmp_path / "nowhere", "new", "nowhere: expected a diffusers folder, a checkpoint file or"),
        (tmp_path / "text.pt", "new", "text.pt: expected a checkpoint of plain tensors"),
        (tmp_path / "empty.pt", "new", "empty.pt: expected a file with weights, got an empty file"),
        (tmp_path / "notes.txt", "new", "notes.txt: expected a file that ends in"),
        (tmp_path / "folder", "new", "folder"),
        ("fastdime.toy:denoiser", "new", "expected a checkpoint with a U-Net, got ExactNoise"),
        ("fastdime.toy:denoiser", "full", "full"),
        ("fastdime.toy:denoiser", "notes.txt", "notes.txt"),
    ]:
        assert message in complaint(fastdime_command("convert", source, tmp_path / out))
    assert not (tmp_path / "new").exists()
    done = fastdime_command("convert", tmp_path / "text.pt", tmp_path / "new", "--architecture", "dime")
    complaint(done)


def test_show_what_is_no_run(tmp_path: Path) -> None:
    table = toy.write(tmp_path / "data", 2)
    out = tmp_path / "picture.png"
    run = tmp_path / "run"
    assert explain_toy(table, run).code == 0
    (tmp_path / "empty").mkdir()
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "config.json").write_bytes((run / "config.json").read_bytes())
    (tmp_path / "begun" / "records.jsonl").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"kind": "train"}')
    (tmp_path / "other" / "records.jsonl").write_text('{"id": "a"}\n')
    for name, message in {
        "nowhere": "nowhere: expected a run folder, got no config.json in it; check the path",
        "empty": "empty: expected a run folder, got no config.json in it",
        "data": "data: expected a run folder, got no config.json in it",
        "begun": "begun: expected at least one finished image, got none",
        "other": "other: expected a run folder of fastdime explain, got one of kind 'train'",
    }.items():
        assert message in complaint(fastdime_command("show", tmp_path / name, "--out", out))
    assert "a name that ends in .png" in complaint(fastdime_command("show", run, "--out", tmp_path / "x.txt"))
    place = run / "config.json" / "x.png"
    assert "a place that can be written" in complaint(fastdime_command("show", run, "--out", place))
    (tmp_path / "data" / "0001.png").unlink()
    assert "0001.png: expected an image file, got no such file" in complaint(
        fastdime_command("show", run, "--out", out)
    )
    assert not out.exists()
    assert fastdime_command("show", run, "--out", out, "--limit", 1) == Done(0, f"{out}\n", "")


def test_show_half_a_run(tmp_path: Path) -> None:
    table = toy.write(tmp_path / "data", 3)
    assert explain_toy(table, tmp_path / "run").code == 0
    path = tmp_path / "run" / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-50])  # as a killed process leaves it
    assert fastdime_command("show", tmp_path / "run", "--out", tmp_path / "a.png").code == 0


def test_a_bug_shows_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*words: object, **more: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("fastdime.report.grid.draw_run", broken)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        fastdime_command("show", tmp_path, "--out", tmp_path / "a.png")


def test_an_interrupt_anywhere_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*words: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fastdime.report.grid.draw_run", interrupted)
    done = fastdime_command("show", tmp_path, "--out", tmp_path / "a.png")
    assert done == Done(130, "", "fastdime: interrupted; run the same command again to go on\n")


def test_a_name_with_a_line_break_still_makes_one_line(tmp_path: Path) -> None:
    assert "two lines" in complaint(explain_toy(tmp_path / "two\nlines.csv", tmp_path / "run"))


def test_printed_numbers_of_a_run(tmp_path: Path) -> None:
    table = toy.write(tmp_path / "data", 2)
    lines = explain_toy(table, tmp_path / "run").out.splitlines()
    numbers = {name.strip(): value for name, value in (line.rsplit("  ", 1) for line in lines)}
    assert numbers["method"] == "fastdime"
    assert (numbers["images"], numbers["errors"]) == ("2", "0")
    assert 0 < float(numbers["mean change"]) < 1
