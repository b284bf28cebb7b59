"""The command `fastdime data curate`."""

import json
from pathlib import Path

import pytest

from fastdime import toy
from fastdime.data.table import read_table
from support.commands import complaint, explain_toy, fastdime_command


def rings(folder: Path, n: int = 80) -> Path:
    """A table of made-up images with a column of the task and one of patients."""
    table = toy.write(folder, n)
    head, *lines = table.read_text().splitlines()
    rows = [f"{line},{number // 2 % 2},{number // 4}" for number, line in enumerate(lines)]
    table.write_text("\n".join([f"{head},sick,who", *rows]) + "\n")
    return table


CURATE = ("data", "curate", "--task", "sick", "--shortcut", "ring", "--group", "who")


def test_lists_of_images_to_train_on_and_to_explain(tmp_path: Path) -> None:
    table = rings(tmp_path / "toy")
    made = fastdime_command(*CURATE, "--data", table, "--out", tmp_path / "sets", "--k", "100,50")
    assert made.code == 0, made.err
    lines = made.out.splitlines()
    cells = "sick 1, ring 1  sick 1, ring 0  sick 0, ring 1  sick 0, ring 0"
    assert lines[0] == f"set       images  {cells}"
    # Twenty patients with an image of each cell: four test, two validate.
    assert [line.split() for line in lines[1:8]] == [
        ["D_100", "28", "14", "0", "0", "14"],
        ["D_50", "28", "7", "7", "7", "7"],
        ["val_100", "4", "2", "0", "0", "2"],
        ["val_50", "4", "1", "1", "1", "1"],
        ["test_100", "8", "4", "0", "0", "4"],
        ["test_50", "8", "2", "2", "2", "2"],
        ["test_u", "16", "4", "4", "4", "4"],
    ]
    assert lines[-1].startswith("note: cells of fewer than 10 images: D_50 (7), val_100 (2), val_50 (1)")
    trained = fastdime_command(
        *("train", "task", "--data", tmp_path / "sets/D_100.csv", "--task", "sick", "--group", "who"),
        *("--steps", 2, "--batch-size", 4, "--out", tmp_path / "task", "--json"),
    )
    assert trained.code == 0, trained.err
    told = json.loads(trained.out)
    assert told["images"] + told["validation_images"] == 28
    explained = explain_toy(
        *(tmp_path / "sets/test_u.csv", tmp_path / "run", "--target", "flip:ring", "--limit", 2, "--json")
    )
    assert (explained.code, json.loads(explained.out)["errors"]) == (0, 0), explained.err
    listed = read_table(tmp_path / "sets/test_u.csv")
    targets = dict(zip(listed.ids, listed.labels["target"], strict=True))
    for line in (tmp_path / "run/records.jsonl").read_text().splitlines():
        record = json.loads(line)
        assert record["target"] == targets[record["id"]]


def test_a_curation_of_a_table_elsewhere_as_json(tmp_path: Path) -> None:
    table = rings(tmp_path / "toy").rename(tmp_path / "t.csv")
    words = (*CURATE, "--data", table, "--root", tmp_path / "toy", "--out", tmp_path / "sets", "--n", 8)
    made = fastdime_command(*words, "--n-test", 4, "--n-balanced", 8, "--k", "50", "--json")
    assert made.code == 0, made.err
    told = json.loads(made.out)
    assert told.pop("folder") == str(tmp_path / "sets")
    assert told == json.loads((tmp_path / "sets/curation.json").read_text())
    assert {name: one["images"] for name, one in told["sets"].items()} == {
        **{"D_50": 8, "val_50": 8, "test_50": 4, "test_u": 8},
    }
    assert all(path.is_file() for path in read_table(tmp_path / "sets/D_50.csv").paths)
    again = fastdime_command(*words, "--n-test", 4, "--n-balanced", 8, "--k", "50", "--json")
    assert again.out == made.out
    other = complaint(fastdime_command(*words, "--n-test", 4, "--n-balanced", 8, "--k", "50", "--seed", 1))
    assert other.endswith("sets: seed: the folder has 0, you ask for 1; choose another --out")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--k", "100,most"],
            "--k: expected percentages with commas between, e.g. 100,75,50, got '100,most'",
        ),
        (["--k", "120"], "k: expected different percentages from 0 to 100, got 120"),
        (["--shortcut", "rings"], "did you mean 'ring'"),
        (["--shortcut", "sick"], "shortcut: expected another column than the task, got 'sick' for both"),
        (["--rule", "medcal"], "did you mean 'medical'"),
        (["--rule", "medical"], "table: expected a column 'split', as published, got none"),
        (["--n", "7"], "n: expected a multiple of 2"),
        (["--n-balanced", "400"], "test images with sick 1 and ring 1: expected at least 100 for test_u"),
        (["--group", "whose"], "expected a column 'whose'"),
    ],
)
def test_what_cannot_be_curated_is_one_line(tmp_path: Path, words: list[str], sentence: str) -> None:
    lines = [f"{n},{n}.png,{n % 2},{n // 2 % 2},p{n // 4}" for n in range(80)]
    (tmp_path / "t.csv").write_text("\n".join(["id,path,ring,sick,who", *lines]) + "\n")
    done = fastdime_command(*CURATE, "--data", tmp_path / "t.csv", "--out", tmp_path / "sets", *words)
    assert sentence in complaint(done)
    assert not (tmp_path / "sets").exists()


def test_patients_may_be_parted_if_that_is_wanted(tmp_path: Path) -> None:
    lines = [f"{n},{n}.png,{n % 2},{n // 2 % 2},p,{('train', 'test')[n // 4 % 2]}" for n in range(80)]
    (tmp_path / "t.csv").write_text("\n".join(["id,path,ring,sick,patient,split", *lines]) + "\n")
    words = (*CURATE[:6], "--data", tmp_path / "t.csv", "--out", tmp_path / "sets")
    assert "each group in one split, got 'p' in train and test" in complaint(fastdime_command(*words))
    assert fastdime_command(*words, "--group", "none").code == 0
