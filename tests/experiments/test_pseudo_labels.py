"""Labels from a classifier, on small images with a bright square or without; not all have a label."""

import json
import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastdime.classifiers.load import load_classifier
from fastdime.data.choice import annotated, choose
from fastdime.data.table import Table, read_table, write_table
from fastdime.errors import DataError, InputError
from fastdime.experiments.predictions import Reading
from fastdime.experiments.pseudo_labels import Fit, PseudoLabelled, Rule, parted, pseudo_label
from support.commands import complaint, fastdime_command, finish, start

QUICK = {"steps": 50, "batch_size": 16, "validate_every": 25, "learning_rate": 3e-3, "ema": 0.8, "warmup": 5}
SETTINGS = [word for name, value in QUICK.items() for word in ("--set", f"{name}={value}")]
LABELLED = 100


@contextmanager
def silent(what: str) -> Iterator[Callable[[float, int], None]]:
    yield lambda done, of: None


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Table:
    folder, random = tmp_path_factory.mktemp("squares"), np.random.default_rng(0)
    lines = ["path,square"]
    for row in range(160):
        image = random.integers(60, 120, (16, 16), dtype=np.uint8)
        if row % 2:
            top, left = random.integers(1, 10, 2)
            image[top : top + 5, left : left + 5] += 110
        Image.fromarray(image).save(folder / f"{row:04d}.png")
        lines.append(f"{row:04d}.png,{row % 2}")
    (folder / "table.csv").write_text("\n".join(lines))
    return read_table(folder / "table.csv")


@pytest.fixture(scope="module")
def half(truth: Table) -> Table:
    """Two images of each patient; the last ones have no label."""
    squares = truth.column("square")
    known = (*squares[:LABELLED], *(math.nan,) * (len(truth) - LABELLED))
    patients = tuple(str(row // 4 * 2 + row % 2) for row in range(len(truth)))
    return replace(truth, labels={"square": known}, groups={"patient": patients})


@pytest.fixture(scope="module")
def fitted(half: Table, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PseudoLabelled]:
    folder = tmp_path_factory.mktemp("fit")
    return folder, pseudo_label(half, Rule("square", 0.8, 0.2), Fit(folder, changes=QUICK), Reading(), silent)


def test_sure_predictions_become_labels(
    truth: Table, half: Table, fitted: tuple[Path, PseudoLabelled]
) -> None:
    table, report = fitted[1].table, fitted[1].report
    labels, marks = table.binary("square"), table.binary("square_predicted")
    chances = table.column("square_probability")
    for row in range(len(half)):
        if row < LABELLED:
            assert (labels[row], marks[row]) == (half.labels["square"][row], 0)
            assert math.isnan(chances[row])
        else:
            sure = 1 if chances[row] > 0.8 else 0 if chances[row] < 0.2 else None
            assert marks[row] == (sure is not None)
            assert labels[row] == sure or (sure is None and math.isnan(labels[row]))
    new = [row for row in range(LABELLED, len(truth)) if marks[row]]
    wrong = sum(labels[row] != truth.column("square")[row] for row in new)
    assert len(new) > 40
    assert wrong <= 0.1 * len(new)
    counts = [report["labelled_1"], report["labelled_0"], report["left_blank"]]
    assert counts == [
        sum(labels[row] == 1 for row in new),
        sum(labels[row] == 0 for row in new),
        60 - len(new),
    ]
    assert (report["labelled_before"], report["scored_on"], report["unreadable"]) == (
        100,
        "held-out images",
        0,
    )


def test_scores_are_of_patients_that_were_not_trained_on(
    half: Table, fitted: tuple[Path, PseudoLabelled]
) -> None:
    """The report is worked out again from the classifier that was saved."""
    folder, done = fitted
    part = half.take(range(LABELLED))
    trains, validates, scores = parted(part.binary("square"), part.groups["patient"], 0)
    assert sorted([*trains, *validates, *scores]) == list(range(LABELLED))
    patients = [{part.groups["patient"][row] for row in rows} for rows in (trains, validates, scores)]
    assert not patients[0] & patients[1]
    assert not (patients[0] | patients[1]) & patients[2]
    again = pseudo_label(
        part.take(scores), Rule("square", 0.8, 0.2), folder / "classifier", Reading(), silent
    )
    assert again.report["scored_on"] == "all labelled images"
    for name in ("scored_images", "scored_groups", "accuracy", "auroc", "sure_of_1", "right_of_these_0"):
        assert again.report[name] == done.report[name]
    assert done.report["auroc"] > 0.9
    assert (done.report["scored_images"], done.report["scored_groups"]) == (len(scores), len(patients[2]))


def test_predictions_are_made_again_and_not_learned_from(fitted: tuple[Path, PseudoLabelled]) -> None:
    folder, done = fitted
    assert sum(annotated(done.table, "square")) == LABELLED
    again = pseudo_label(done.table, Rule("square", 0.9, 0.1), folder / "classifier", Reading(), silent)
    assert again.report["labelled_before"] == LABELLED
    assert again.report["left_blank"] >= done.report["left_blank"]
    assert again.table.column("square_probability")[LABELLED:] == pytest.approx(
        done.table.column("square_probability")[LABELLED:], abs=1e-5
    )


def test_a_fit_of_other_labels_does_not_go_on(half: Table, fitted: tuple[Path, PseudoLabelled]) -> None:
    squares = half.labels["square"]
    other = replace(half, labels={"square": (1 - squares[0], 1 - squares[1], *squares[2:])})
    with pytest.raises(InputError, match=r"the same labelled images in .*, got a classifier.*--work"):
        pseudo_label(other, Rule("square"), Fit(fitted[0], changes=QUICK), Reading(), silent)


def test_a_fit_in_other_parts_does_not_go_on(half: Table, fitted: tuple[Path, PseudoLabelled]) -> None:
    """Others would be held out, of which some were trained on."""
    parts = json.loads((fitted[0] / "rows.json").read_text())["parts"]
    assert sorted(name for names in parts.values() for name in names) == list(half.ids[:LABELLED])
    assert len(parts["scored"]) == fitted[1].report["scored_images"]
    alone = replace(half, groups={"who": half.ids})
    for rule, changes in (
        (Rule("square", group="who"), QUICK),
        (Rule("square"), {**QUICK, "seed": 1}),
    ):
        table = alone if rule.group else half
        with pytest.raises(InputError, match=r"in the same parts, got .*; choose another --work"):
            pseudo_label(table, rule, Fit(fitted[0], changes=changes), Reading(), silent)
    with pytest.raises(InputError, match=r"settings.steps = 51, .*; choose another --work"):
        pseudo_label(half, Rule("square"), Fit(fitted[0], changes={**QUICK, "steps": 51}), Reading(), silent)


def test_nothing_is_learned_from_the_test_split(half: Table, tmp_path: Path) -> None:
    """The labels of the test split are wrong, and their files are not there."""
    splits = tuple("test" if row < 40 or row == 159 else "train" for row in range(len(half)))
    wrong = tuple(1 - label if row < 40 else label for row, label in enumerate(half.labels["square"]))
    table = replace(
        half,
        paths=(*(tmp_path / "none.png",) * 40, *half.paths[40:]),
        labels={"square": wrong},
        groups={**half.groups, "split": splits},
    )
    quick = {**QUICK, "steps": 2, "validate_every": 2}
    done = pseudo_label(table, Rule("square"), Fit(tmp_path / "fit", changes=quick), Reading(), silent)
    assert (done.report["labelled_before"], done.report["left_out_of_split_test"]) == (LABELLED, 40)
    assert done.report["unreadable"] == 0
    parts = json.loads((tmp_path / "fit" / "rows.json").read_text())["parts"]
    assert sorted(name for names in parts.values() for name in names) == list(half.ids[40:LABELLED])
    assert done.table.labels["square"][:40] == wrong[:40]
    assert not math.isnan(done.table.column("square_probability")[159])  # one without a label may get one
    with pytest.raises(DataError, match="labels to learn from, got labels in split 'test' alone"):
        pseudo_label(table.take(range(40)), Rule("square"), Fit(tmp_path / "no"), Reading(), silent)


def test_any_seed_parts() -> None:
    labels, groups = [0.0, 1.0] * 10, [str(row) for row in range(20)]
    parts = parted(labels, groups, 5_000_000_000)
    assert sorted(row for rows in parts for row in rows) == list(range(20))
    assert parts != parted(labels, groups, 0)


def test_what_cannot_be_labelled(half: Table, tmp_path: Path) -> None:
    fit = Fit(tmp_path, changes=QUICK)
    few = half.take([*range(6), *range(LABELLED, 160)])
    with pytest.raises(DataError, match=r"labelled images: expected label 0 in at least 5 groups .*, got"):
        pseudo_label(few, Rule("square"), fit, Reading(), silent)
    none = half.take(range(LABELLED, 160))
    with pytest.raises(DataError, match="column 'square': expected labels to learn from, got none"):
        pseudo_label(none, Rule("square"), fit, Reading(), silent)
    with pytest.raises(InputError, match=r"0 <= low < high <= 1, got --low 0.8 and --high 0.2"):
        Rule("square", 0.2, 0.8)
    with pytest.raises(InputError, match=r"--group: expected another column than the labels, got 'square'"):
        Rule("square", group="square")
    assert not any(tmp_path.iterdir())


def test_an_unreadable_image_stays_blank(
    half: Table, fitted: tuple[Path, PseudoLabelled], tmp_path: Path
) -> None:
    (tmp_path / "x.png").write_text("no image")
    broken = replace(half, paths=(*half.paths[:-1], tmp_path / "x.png"))
    done = pseudo_label(broken, Rule("square"), fitted[0] / "classifier", Reading(), silent)
    assert done.report["unreadable"] == 1
    assert "x.png: expected" in done.report["first_unreadable"]
    assert math.isnan(done.table.column("square")[-1])
    assert done.table.column("square_predicted")[-1] == 0


def test_the_surest_are_chosen_after_those_of_people() -> None:
    chances = (math.nan, 0.97, 0.005, 0.85, math.nan, 0.5)
    labels = {
        "drain": (0.0, 1.0, 0.0, 1.0, 1.0, math.nan),
        "drain_predicted": (0.0, 1.0, 1.0, 1.0, 0.0, 0.0),
        "drain_probability": chances,
    }
    table = Table(tuple("abcdef"), (Path(),) * 6, labels)
    assert choose(table, "drain", 5) == [0, 4, 2, 1, 3]
    assert choose(table, "drain", 2, rows=[3, 2, 4]) == [4, 2]
    with pytest.raises(InputError, match="number of images with 'drain': expected 0 to 5, got 6"):
        choose(table, "drain", 6)
    plain = Table(tuple("ab"), (Path(),) * 2, {"drain": (1.0, 0.0)})
    assert choose(plain, "drain", 1, rows=[1, 0]) == [1]


# --- command line ----------------------------------------------------------------------------------------


def test_a_killed_fit_goes_on(half: Table, tmp_path: Path) -> None:
    """Stopped in the middle of the training and called again, the command gives the same table."""
    root = half.paths[0].parent
    table = write_table(half, tmp_path / "half.csv", root)
    words = ["data", "pseudo-label", table, "--column", "square", "--root", root, *SETTINGS, "--json"]
    words += ["--set", "checkpoint_seconds=0.01"]
    straight = fastdime_command(*words, "--out", tmp_path / "straight.csv")
    assert straight.code == 0, straight.err
    process = start(*words, "--out", tmp_path / "killed.csv")
    while not (tmp_path / "killed" / "checkpoint.pt").exists() and process.poll() is None:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    assert finish(process).code == -signal.SIGKILL
    assert not (tmp_path / "killed.csv").exists()
    again = fastdime_command(*words, "--out", tmp_path / "killed.csv")
    assert again.code == 0
    assert (tmp_path / "killed.csv").read_bytes() == (tmp_path / "straight.csv").read_bytes()
    one, other = json.loads(straight.out), json.loads(again.out)
    for report in (one, other):
        del report["table"], report["classifier"]
    assert one == other
    assert "--root" in again.err
    load_classifier(tmp_path / "killed" / "classifier")


def test_bad_options_are_told_before_the_work(half: Table, tmp_path: Path) -> None:
    table = write_table(half, tmp_path / "half.csv", half.paths[0].parent)
    words = ["data", "pseudo-label", table, "--root", half.paths[0].parent]
    for more, sentence in [
        (["--column", "square", "--out", tmp_path / "x"], "ends with .csv"),
        (["--column", "sqare", "--out", tmp_path / "x.csv"], "did you mean 'square'"),
        (["--column", "square", "--out", tmp_path / "x.csv", "--high", "2"], "0 <= low < high <= 1"),
        (["--column", "square", "--out", tmp_path / "x.csv", "--recipe", "smal"], "did you mean 'small'"),
        (["--column", "square", "--out", tmp_path / "x.csv", "--model", tmp_path], "no classifier.json"),
    ]:
        assert sentence in complaint(fastdime_command(*words, *more))
