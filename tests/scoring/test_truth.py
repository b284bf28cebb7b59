import math
import shutil
from pathlib import Path

import pytest

from fastdime.bundles import SHIPPED
from fastdime.data.phantoms.write import PhantomSet, write_phantom
from fastdime.errors import DataError, InputError
from fastdime.pipeline.pairs import pairs_of_folders, pairs_of_run
from fastdime.scoring import phantoms
from fastdime.scoring.catalogue import TRUTH
from fastdime.scoring.request import ScoreRequest
from fastdime.scoring.score import score
from support.commands import fastdime_command

QUICK = (*TRUTH, "l1")


@pytest.fixture(scope="module")
def chest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chest") / "data"
    write_phantom(folder, PhantomSet("chest-pacemaker", 24, seed=7))
    return folder


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("face") / "data"
    write_phantom(folder, PhantomSet("face-smile", 60, seed=7))
    return folder


def test_exact_counterfactuals_are_perfect(chest: Path) -> None:
    pairs = pairs_of_folders(chest / "images", chest / "truth" / "other")
    rows = score(pairs, ScoreRequest(metrics=QUICK)).rows
    assert rows["region_error"].value == rows["region_error_ratio"].value == 0
    assert rows["outside_change"].value < 1e-3
    assert rows["oracle_flip"].value == rows["complete_flip"].value == 1
    assert rows["measured_flip"].value > 0.9
    assert rows["measured_residual"].value == rows["oracle_residual"].value == 0
    assert rows["latent_change"].value < 0.3
    assert rows["placebo_change"].value == pytest.approx(0, abs=1e-6)
    assert rows["l1"].value > 0
    assert math.isnan(rows["mask_overlap"].value)
    assert rows["oracle_flip"].network == "chest-pacemaker/shortcut"
    assert rows["oracle_flip"].low > 0.8  # of 24 that agree; not 1


def test_doing_nothing_is_no_answer(chest: Path) -> None:
    rows = score(pairs_of_folders(chest / "images", chest / "images"), ScoreRequest(metrics=QUICK)).rows
    assert rows["region_error_ratio"].value == rows["measured_residual"].value == 1
    assert rows["outside_change"].value == rows["latent_change"].value == rows["task_change"].value == 0
    assert rows["oracle_flip"].value < 0.1


def test_another_object_changed_is_told(chest: Path) -> None:
    pairs = pairs_of_folders(chest / "images", chest / "truth" / "placebo")
    rows = score(pairs, ScoreRequest(metrics=QUICK)).rows
    assert rows["placebo_change"].value > 0.1
    assert 0 < rows["placebo_change"].n < 24  # only where it shows
    assert rows["region_error_ratio"].value > 0.9


def test_truth_is_found_beside_the_originals_or_named(chest: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for file in (chest / "images").iterdir():
        (moved / file.name).write_bytes(file.read_bytes())
    pairs = pairs_of_folders(moved, chest / "truth" / "other")
    row = score(pairs, ScoreRequest(metrics=("region_error",))).rows["region_error"]
    assert "of a phantom set, or --truth FOLDER" in row.warning
    assert "region_error" not in score(pairs, ScoreRequest(features="support.features:patches")).rows
    named = score(pairs, ScoreRequest(metrics=("region_error",), truth=chest)).rows["region_error"]
    assert named.value == 0
    with pytest.raises(DataError, match="the settings of a phantom set"):
        score(pairs, ScoreRequest(metrics=("region_error",), truth=moved))


def test_truth_of_a_set_without_it_is_refused(tmp_path: Path) -> None:
    write_phantom(tmp_path / "bare", PhantomSet("chest-drain", 3, truth=False))
    pairs = pairs_of_folders(tmp_path / "bare" / "images", tmp_path / "bare" / "images")
    with pytest.raises(InputError, match="a phantom set with its truth"):
        score(pairs, ScoreRequest(truth=tmp_path / "bare"))


def test_attributes_of_faces_are_measured(face: Path) -> None:
    asked = ScoreRequest(metrics=("mnac", "cd"))
    exact = score(pairs_of_folders(face / "images", face / "truth" / "other"), asked).rows
    glasses = score(pairs_of_folders(face / "images", face / "truth" / "placebo"), asked).rows
    assert exact["mnac"].network == exact["cd"].network == "measured"
    assert 0.9 <= exact["mnac"].value <= 1.4  # the smile, and few misreadings
    assert 0.9 <= glasses["mnac"].value <= 1.4
    assert exact["cd"].value < 2
    # The smile never changes with the glasses, or only by misreading.
    assert math.isnan(glasses["cd"].value) or glasses["cd"].value > exact["cd"].value


def test_pictures_of_another_size_than_the_truth(chest: Path, tmp_path: Path) -> None:
    write_phantom(tmp_path / "small", PhantomSet("chest-pacemaker", 4, seed=7, size=32))
    pairs = pairs_of_folders(tmp_path / "small" / "images", tmp_path / "small" / "images")
    rows = score(pairs, ScoreRequest(metrics=("region_error", "l1"), truth=chest)).rows
    assert (
        "expected images of 1 x 64 x 64 (channels, height, width), got 1 x 32 x 32"
        in rows["region_error"].warning
    )
    assert rows["l1"].value == 0


def test_oracles_are_those_of_the_bundle_of_the_run(chest: Path, tmp_path: Path) -> None:
    """What it lacks, and all if it is not there any more, is taken from the one that comes with fastdime."""
    bundle = shutil.copytree(SHIPPED / "chest-pacemaker", tmp_path / "bundle")
    shutil.rmtree(bundle / "oracles" / "task")
    settings = ("--set", "tau=3", "--set", "steps=20", "--set", "scales=10", "--limit", 8)
    words = ("explain", "--bundle", bundle, *settings, "--data", chest / "table.csv")
    done = fastdime_command(*words, "--out", tmp_path / "run")
    assert done.code == 0, done.err

    def judges() -> list[str]:
        names = ("oracle_flip", "complete_flip", "task_change")
        rows = score(pairs_of_run(tmp_path / "run"), ScoreRequest(metrics=names)).rows
        assert not any(math.isnan(row.value) for row in rows.values())
        return [row.network for row in rows.values()]

    shipped = [f"chest-pacemaker/{name}" for name in ("shortcut", "complete", "task")]
    assert judges() == [f"{bundle}/shortcut", f"{bundle}/complete", "chest-pacemaker/task"]
    shutil.rmtree(bundle / "classifier")
    shutil.copytree(SHIPPED / "chest-drain" / "classifier", bundle / "classifier")
    assert judges() == shipped
    shutil.rmtree(bundle)
    assert judges() == shipped


def test_a_phantom_without_oracles(face: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phantoms, "SHIPPED", tmp_path)
    pairs = pairs_of_folders(face / "images", face / "truth" / "other")
    row = score(pairs, ScoreRequest(metrics=("oracle_flip",))).rows["oracle_flip"]
    assert row.warning == (
        "oracles: expected those of the run's bundle or of one that comes with fastdime "
        "(chest-drain, chest-pacemaker, face-smile, skin-ruler), got no 'shortcut' for face-smile"
    )


def test_truth_is_for_runs_that_switch_the_shortcut(chest: Path, tmp_path: Path) -> None:
    task = SHIPPED / "chest-pacemaker" / "oracles" / "task"
    settings = ("--set", "tau=3", "--set", "steps=20", "--set", "scales=10", "--limit", 8)
    for name, words in (("guide", ()), ("task", ("--classifier", task))):
        done = fastdime_command(
            "explain", "--bundle", "chest-pacemaker", *words, *settings, "--data", chest / "table.csv",
            "--out", tmp_path / name,
        )  # fmt: skip
        assert done.code == 0, done.err
    patches = "support.features:patches"
    assert score(pairs_of_run(tmp_path / "guide"), ScoreRequest(features=patches)).rows["region_error"].n == 8
    asked = score(pairs_of_run(tmp_path / "task"), ScoreRequest(features=patches))
    assert "region_error" not in asked.rows
    named = score(pairs_of_run(tmp_path / "task"), ScoreRequest(metrics=("region_error",), truth=chest))
    assert named.rows["region_error"].n == 8
