"""Methods by sources: the runs, their scores, what stands beside them, and going on."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fastdime.audit.pictures import Progress, unseen
from fastdime.bundles import INFO_FILE, SHIPPED, load_bundle
from fastdime.errors import InputError
from fastdime.experiments.demo import run_scores
from fastdime.experiments.paper.experiment import Experiment, Outcome, Plan, Source
from fastdime.experiments.paper.grid import _notes, run_grid
from fastdime.experiments.paper.grid_scores import FEWEST, _without_chance
from fastdime.experiments.paper.variants import Below, Pixels, Variant
from fastdime.pipeline.pairs import pairs_of_run
from fastdime.runs import read_run
from fastdime.scoring.catalogue import TRUTH
from fastdime.scoring.feature_meters import SETS
from fastdime.scoring.request import ScoreRequest
from fastdime.scoring.rows import Row, missing
from fastdime.scoring.score import Scores, score
from fastdime.scoring.standing import Standing
from support.commands import files
from support.shortcuts import QUICK, Killed, World, killing, make_world

PHANTOM = "chest-pacemaker"
SHORT = {"steps": 10, "tau": 3, "scales": [20.0]}
GRID = Experiment(
    "some",
    "title",
    "Table 0",
    {"small": {"n": 4, "n_dime": 2}},
    {"chexpert/dilation 21": {"l1": 0.5, "fva": 0.9}},
    (
        Variant(
            "dilation 21",
            "fastdime",
            {**SHORT, "dilation": Pixels(21, 224), "mask_from": Below(80, 160)},
        ),
        Variant("dime", "dime", SHORT),
    ),
    ("a note",),
)


def plan_for(out: Path, *sources: Source) -> Plan:
    return Plan("small", sources or (Source(PHANTOM, None, PHANTOM),), out)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("grid")


@pytest.fixture(scope="module")
def outcome(out: Path) -> Outcome:
    return run_grid(GRID, plan_for(out), unseen)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), 12)


def test_rows(outcome: Outcome) -> None:
    first, second = outcome.rows
    assert (first["source"], first["row"], first["n"]) == (PHANTOM, "dilation 21", 4)
    assert first["changed"] == "steps=10 tau=3 scales=20 dilation=7 mask_from=1"
    assert (second["row"], second["n"], second["changed"]) == ("dime", 2, "steps=10 tau=3 scales=20")
    assert (first["paper_l1"], first["paper_fva"]) == (0.5, 0.9)
    assert "paper_l1" not in second
    assert (first["denoiser_calls"], second["denoiser_calls"]) == (3, 9)
    for row in outcome.rows:
        assert row["n_remove"] + row["n_add"] == row["n"]
        assert {"fr", "bkl", "mad", "md_s1", "cout", "l1", "fid", "kid", "fs", "oracle_flip"} <= row.keys()


def test_columns_and_notes(outcome: Outcome) -> None:
    columns = outcome.columns
    assert columns[:4] == ("source", "row", "changed", "n")
    assert columns.index("paper_l1") == columns.index("l1") + 1
    assert columns[-1] == "seconds_per_image"
    assert "a note" in outcome.notes
    assert f"dime has 2 of the 4 images of {PHANTOM}: its cost is quadratic" in outcome.notes
    assert any(note.startswith("fid, sfid and kid are blank") for note in outcome.notes)


def test_scores_are_those_against_the_truth(out: Path, outcome: Outcome) -> None:
    """Another way to the same numbers: images read anew, judged by the same oracles."""
    row, run = outcome.rows[0], out / PHANTOM / "dilation-21"
    found = {one["direction"]: one for one in run_scores(run, out / "data" / PHANTOM, load_bundle(PHANTOM))}
    for way, other in found.items():
        assert row[f"n_{way}"] == other["n"]
        assert row[f"fr_{way}"] == pytest.approx(other["guide_flip"])
        assert row[f"oracle_flip_{way}"] == pytest.approx(other["oracle_flip"])
        assert row[f"complete_flip_{way}"] == pytest.approx(other["complete_flip"])
        # Pixels are pooled there, and images are averaged here.
        assert row[f"outside_change_{way}"] == pytest.approx(other["outside_change"], rel=0.2)
    parts = [row[f"oracle_flip_{way}"] * row[f"n_{way}"] for way in found]
    assert row["oracle_flip"] == pytest.approx(sum(parts) / row["n"])


def test_the_first_try_is_told_from_the_others(world: World, tmp_path: Path) -> None:
    """The guide is not moved by the first strength; by the second it always is."""
    source = Source("isic", world.table, str(world.bundle), "sick", "mark")
    shares = {}
    for scales in ([1e-6, 4000.0], [4000.0]):
        grid = replace(GRID, variants=(Variant(f"{len(scales)}", "fastdime", {"scales": scales}),))
        (row,) = run_grid(grid, plan_for(tmp_path, source), unseen).rows
        shares[len(scales)] = (row["fr"], row["first_try"])
    assert shares == {2: (1, 0), 1: (1, 1)}


def test_runs_are_run_folders_with_the_settings_of_their_row(out: Path, outcome: Outcome) -> None:
    config, records = read_run(out / PHANTOM / "dilation-21")
    assert (config["kind"], config["method"], config["target"]) == ("explain", "fastdime", "flip")
    assert (config["settings"]["dilation"], config["settings"]["tau"]) == (7, 3)
    assert len(records) == 4
    assert [record["id"] for record in read_run(out / PHANTOM / "dime")[1]] == [
        record["id"] for record in records[:2]
    ]


def test_killed_and_run_again_it_ends_the_same(out: Path, outcome: Outcome, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        run_grid(GRID, plan_for(tmp_path), killing(5))
    again = run_grid(GRID, plan_for(tmp_path), unseen)
    timeless = [[{**row, "seconds_per_image": 0} for row in each.rows] for each in (outcome, again)]
    assert timeless[0] == timeless[1]
    for row in ("dilation-21", "dime"):
        one, other = (files(folder / PHANTOM / row) for folder in (out, tmp_path))
        assert one.keys() == other.keys()
        pictures = [name for name in one if name.endswith(".png")]
        assert pictures
        assert all(one[name] == other[name] for name in pictures)


def test_what_is_done_is_not_done_again(out: Path, outcome: Outcome) -> None:
    before = files(out)
    assert run_grid(GRID, plan_for(out), unseen).rows == outcome.rows
    assert files(out) == before
    with pytest.raises(InputError, match="n of the set that is there: expected 3, got 4"):
        run_grid(GRID, replace(plan_for(out), n=3), unseen)


def test_progress_counts_calls_of_all_runs(tmp_path: Path) -> None:
    seen: dict[str, list[tuple[float, int]]] = {}

    @contextmanager
    def show(what: str) -> Iterator[Progress]:
        yield lambda done, of: seen.setdefault(what, []).append((done, of))

    run_grid(GRID, plan_for(tmp_path), show)
    told = seen["denoiser calls"]
    assert {of for _, of in told} == {4 * 3 + 2 * 9}
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert (told[0][0], told[-1][0]) == (0, 4 * 3 + 2 * 9)


def test_a_table_of_a_user(world: World, tmp_path: Path) -> None:
    """No truth is known, and the oracle of the bundle says what came of it; images are resized for it."""
    source = Source("isic", world.table, str(world.bundle), "sick", "mark")
    grid = replace(GRID, variants=(Variant("fastdime", "fastdime"),), published={})
    (row,) = run_grid(grid, plan_for(tmp_path, source), unseen).rows
    assert row["n"] == 4
    assert (row["n_remove"], row["n_add"]) == (2, 2)
    assert row["fr"] == row["oracle_flip"] == row["oracle_flip_remove"] == row["oracle_flip_add"] == 1
    assert "region_error" not in row
    config, records = read_run(tmp_path / "isic" / "fastdime")
    assert (config["size"], config["convert"]) == (16, True)
    assert config["settings"]["tau"] == QUICK["tau"]
    assert [record["id"] for record in records] == [f"image-{i}" for i in range(4)]


def test_oracles_of_a_phantom_whose_bundle_is_a_folder(tmp_path: Path) -> None:
    """Its oracles judge, not those that come with fastdime."""
    bundle = shutil.copytree(SHIPPED / "skin-ruler", tmp_path / "bundle")
    told = bundle / INFO_FILE
    told.write_text(told.read_text().replace('"skin-ruler"', '"face-smile"', 1))
    source = Source("face-smile", None, str(bundle))
    grid = replace(GRID, variants=(Variant("fastdime", "fastdime", SHORT),))
    (row,) = run_grid(grid, plan_for(tmp_path / "out", source), unseen).rows
    pairs = pairs_of_run(tmp_path / "out" / "face-smile" / "fastdime")
    truth = tmp_path / "out" / "data" / "face-smile"
    found = score(pairs, ScoreRequest(metrics=TRUTH, truth=truth)).rows
    judges = {"oracle_flip": "shortcut", "complete_flip": "complete", "task_change": "task"}
    for name, oracle in judges.items():
        assert row[name] == pytest.approx(found[name].value, abs=1e-5)
        assert found[name].network == f"{bundle}/{oracle}"
    assert row["warnings"].keys().isdisjoint(judges)


def test_features_of_a_user(world: World, tmp_path: Path) -> None:
    source = Source("isic", world.table, str(world.bundle), "sick", "mark")
    grid = replace(GRID, variants=(Variant("fastdime", "fastdime"),))
    plan = replace(plan_for(tmp_path, source), features=f"{world.bundle}/task", n=FEWEST)
    outcome = run_grid(grid, plan, unseen)
    (row,) = outcome.rows
    assert {"fid", "kid"} <= set(outcome.columns)
    assert all(row[name] is not None for name in SETS)
    assert not any("blank" in note for note in outcome.notes)


@pytest.mark.parametrize(
    ("warning", "start"),
    [
        ("unreliable: 32 pairs for 64 features; look at kid", "fid and sfid are unreliable"),
        ("3 pairs are too few to compare sets, which takes 10", "fid, sfid and kid are blank"),
    ],
)
def test_what_is_said_of_numbers_from_few_images(warning: str, start: str) -> None:
    rows = [{"failed": 0, "warnings": {}}, {"failed": 0, "warnings": {"fid": warning}}]
    (note,) = _notes([], rows)
    assert note.startswith(start)
    assert _notes([], rows[:1]) == []


def test_distances_of_sets_too_small_are_blank_and_say_why(outcome: Outcome) -> None:
    row = outcome.rows[0]
    assert [row[name] for name in ("fid", "sfid", "kid", "fid_floor", "kid_floor")] == [None] * 5
    assert row.keys().isdisjoint({"kid_low", "kid_high"})
    assert re.fullmatch(r"\d pairs are too few to compare sets(, which takes 10)?", row["warnings"]["kid"])
    assert row["l1"] is not None
    assert {"fid", "kid"}.isdisjoint(outcome.columns)


def test_a_network_that_is_missing_is_told_before_that_pairs_are_few() -> None:
    rows = {"fid": missing("get it"), "kid": Row(0.5, 0.1, 0.9, n=3), "l1": Row(0.1, n=3)}
    found = _without_chance(Scores("run", (), rows, {}, Standing(np.ones(3, dtype=bool)))).rows
    assert found["fid"].warning == "get it"
    assert (found["kid"].shown, found["kid"].interval) == (None, None)
    assert found["kid"].warning == "3 pairs are too few to compare sets, which takes 10"
    assert found["l1"].value == 0.1


def test_some_rows_only(world: World, tmp_path: Path) -> None:
    source = Source("isic", world.table, str(world.bundle), "sick", "mark")
    plan = replace(plan_for(tmp_path, source), only=("dime",), n=2)
    assert [row["row"] for row in run_grid(GRID, plan, unseen).rows] == ["dime"]


def test_images_that_cannot_be_used_are_told(world: World, tmp_path: Path) -> None:
    lines = world.table.read_text().splitlines()
    first = lines[1].split(",")
    missing = [value.replace(".png", "-gone.png") for value in first]
    table = world.table.with_name("gone.csv")
    table.write_text("\n".join([lines[0], ",".join(missing), *lines[2:]]) + "\n")
    grid = replace(GRID, variants=(Variant("fastdime", "fastdime"),))
    source = Source("isic", table, str(world.bundle), "sick", "mark")
    outcome = run_grid(grid, replace(plan_for(tmp_path, source), n=3), unseen)
    wanted = "1 of the 3 images of isic could not be used in fastdime: see its records.jsonl"
    assert wanted in outcome.notes
