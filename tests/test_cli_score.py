import csv
import json
from pathlib import Path

import pytest
from PIL import Image

from fastdime.toy import write
from support.commands import TOY, complaint, explain_toy, fastdime_command

PATCHES = ("--features", "support.features:patches")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    table = write(folder / "images", 4)
    for name, tau in (("run", 40), ("other", 20)):
        words = ("--set", f"tau={tau}", "--set", "l1=0.5", "--data", table, "--out", folder / name)
        assert fastdime_command("explain", *TOY, *words).code == 0
    return folder / "run"


def test_a_table_for_people(run: Path) -> None:
    done = fastdime_command("score", run, *PATCHES)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].split() == ["metric", "value", "95", "%", "n", "pairs", "network"]
    assert lines[1].split()[:2] == ["fr", "1"]
    assert "fid: unreliable: 4 pairs for 9 features; look at kid" in lines


def test_json_for_programs(run: Path) -> None:
    done = fastdime_command("score", run, *PATCHES, "--json", "--metrics", "fr,L1")
    told = json.loads(done.out)
    assert list(told["metrics"]) == ["fr", "l1"]
    fields = ("value", "n", "subset", "network", "warning")
    wanted = {"value": 1.0, "n": 4, "subset": "all", "network": "classifier of the run", "warning": None}
    assert {name: told["metrics"]["fr"][name] for name in fields} == wanted
    assert told["pairs"] == 4


def test_pictures_of_any_tool(run: Path, tmp_path: Path) -> None:
    sides = ("--original", run.parent / "images", "--counterfactual", run / "images")
    labels = ("--labels", run.parent / "images" / "table.csv", "--shortcut", "ring")
    words = (*sides, *labels, "--classifier", TOY[3], *PATCHES, "--per-image", tmp_path / "all.csv")
    told = json.loads(fastdime_command("score", *words, "--json").out)["metrics"]
    assert told["fr"]["value"] == 1
    assert told["md_s1"]["value"] > 0.9
    assert told["md_s0"]["value"] < -0.9
    with (tmp_path / "all.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == ["0000", "0001", "0002", "0003"]
    assert float(rows[1]["md_s1"]) > 0.9
    assert rows[0]["md_s1"] == ""


def test_pairs_that_cannot_be_used_are_counted(run: Path, tmp_path: Path) -> None:
    table = write(tmp_path / "images", 3)
    (tmp_path / "images" / "0001.png").write_bytes(b"no image")
    explain_toy(table, tmp_path / "run")
    done = fastdime_command("score", tmp_path / "run", *PATCHES, "--metrics", "l1")
    assert done.code == 3
    assert "1 of 3 pairs" in done.err


def test_runs_side_by_side(run: Path) -> None:
    words = (run, run.parent / "other", *PATCHES, "--metrics", "fr,l1")
    rows = json.loads(fastdime_command("compare", *words, "--json").out)["rows"]
    assert [(row["metric"], Path(row["run"]).name) for row in rows] == [
        ("fr", "run"),
        ("fr", "other"),
        ("l1", "run"),
        ("l1", "other"),
    ]
    difference = rows[3]["value"] - rows[2]["value"]
    assert rows[3]["difference"] == pytest.approx(difference, abs=0.01)
    assert rows[3]["common"] == rows[3]["n"]
    shown = fastdime_command("compare", *words).out.splitlines()
    assert shown[0].split()[:3] == ["metric", "run", "value"]
    assert [line.split()[0] for line in shown[1:5]] == ["fr", "fr", "l1", "l1"]


def test_labels_are_not_written_over(run: Path) -> None:
    labels = run.parent / "images" / "table.csv"
    before = labels.read_bytes()
    words = (run, "--labels", labels, "--shortcut", "ring", "--per-image", labels)
    assert "and is not read" in complaint(fastdime_command("score", *words))
    assert labels.read_bytes() == before


def test_originals_of_another_size_and_kind(run: Path, tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    for file in (run.parent / "images").glob("*.png"):
        with Image.open(file) as image:
            image.convert("RGB").resize((64, 64)).save(tmp_path / "large" / file.name)
    sides = ("--original", tmp_path / "large", "--counterfactual", run / "images", "--metrics", "l1")
    assert fastdime_command("score", *sides).code == 2
    told = json.loads(fastdime_command("score", *sides, "--size", 32, "--json").out)
    assert told["metrics"]["l1"]["n"] == 4
    assert "leave them out" in complaint(fastdime_command("score", run, "--size", 32))


def test_what_can_be_asked_for() -> None:
    told = json.loads(fastdime_command("score", "--list", "--json").out)
    assert {"fr", "bkl", "mad", "cout", "l1", "fid", "sfid", "kid", "fva", "fs", "mnac", "cd"} <= {
        row["metric"] for row in told["metrics"]
    }
    assert "inception" in {row["network"] for row in told["networks"]}
    assert "efficientnet-lite0" in fastdime_command("score", "--list").out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "pairs to score: expected a run folder, or --original and --counterfactual, got neither"),
        (["RUN", "--original", "x", "--counterfactual", "y"], "got both"),
        (["nowhere"], "nowhere: expected a run folder"),
        (["RUN", "--metrics", "fdi"], "did you mean 'fid'"),
        (["RUN", "--protocol", "paper"], "protocol: expected 'default' or 'published'"),
        (["RUN", "--subset", "good"], "subset: expected 'all', 'valid' or 'correct'"),
        (["RUN", "--labels", "nowhere.csv"], "nowhere.csv"),
        (["RUN", "--classifier", "nowhere"], "classifier nowhere: expected a file"),
        (["RUN", "--lpips", "one"], "--lpips: expected TRUNK,LINEAR: two files with weights, got 'one'"),
        (["RUN", "--device", "gpu"], "--device: expected a device of this machine"),
        (["RUN", "--per-image", "nowhere/x.csv"], "--per-image: expected a file that ends with .csv"),
        (["--original", "RUN/../images", "--counterfactual", "RUN"], "got 4 without one"),
    ],
)
def test_what_cannot_be_scored_is_one_line(run: Path, words: list[str], sentence: str) -> None:
    done = fastdime_command("score", *(word.replace("RUN", str(run)) for word in words))
    assert sentence in complaint(done)


def test_one_run_is_not_a_comparison(run: Path) -> None:
    assert "expected two or more run folders, got 1" in complaint(fastdime_command("compare", run))
