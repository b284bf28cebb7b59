import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fastdime.data.io import read, write_image
from fastdime.errors import DataError, FastdimeError, InputError
from fastdime.metrics.attributes import correlation_difference, label_correlations
from fastdime.metrics.frechet import fid
from fastdime.metrics.statistics import mean_interval
from fastdime.pipeline.pairs import Pairs, pairs_of_folders, pairs_of_run
from fastdime.runs import RECORDS, image_path, read_run
from fastdime.scoring.output import write_values
from fastdime.scoring.request import ScoreRequest
from fastdime.scoring.score import Scores, score
from fastdime.toy import write
from support.commands import TOY as MODELS
from support.commands import fastdime_command
from support.features import patches, signs

N = 12
PATCHES = "support.features:patches"
TOY = "fastdime.toy:classifier"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve images explained in so few steps that some do not reach their target."""
    folder = tmp_path_factory.mktemp("toy")
    settings = ("--set", "tau=33", "--set", "scales=2", "--set", "l1=0.5")
    done = fastdime_command(
        "explain", *MODELS, *settings, "--data", write(folder / "images", N), "--out", folder / "run"
    )
    assert done.code == 0, done.err
    valid = [record["valid"] for record in read_run(folder / "run")[1]]
    assert 2 < sum(valid) < N  # or the tests below tell nothing
    return folder / "run"


def scored(run: Path, **changes: object) -> Scores:
    return score(pairs_of_run(run), ScoreRequest.model_validate({"features": PATCHES, **changes}))


def test_the_usual_table_is_what_the_records_and_pictures_say(run: Path) -> None:
    scores, records = scored(run), read_run(run)[1]
    rows = scores.rows
    assert list(rows)[:4] == ["fr", "bkl", "mad", "md"]
    assert rows["fr"].value == np.mean([record["valid"] for record in records])
    assert rows["bkl"].value == pytest.approx(np.mean([1 - record["p_after"] for record in records]))
    moved = [record["p_after"] - record["p_before"] for record in records]
    assert rows["mad"].value == pytest.approx(np.mean(np.abs(moved)))
    signed = [-move if record["target"] else move for move, record in zip(moved, records, strict=True)]
    assert rows["md"].value == pytest.approx(np.mean(signed), abs=1e-7)
    changes = [record["change"] for record in records if record["valid"]]
    assert rows["l1"].value == pytest.approx(np.mean(changes), abs=1e-6)
    assert (rows["l1"].n, rows["l1"].subset) == (len(changes), "valid")
    assert (rows["fr"].n, rows["fr"].subset, rows["fr"].network) == (N, "all", "classifier of the run")
    assert rows["fr"].low < rows["fr"].value < rows["fr"].high
    assert all(math.isfinite(rows[name].value) for name in ("cout", "ssim", "fid", "sfid", "kid", "fs"))


def test_intervals_are_those_of_the_bootstrap(run: Path) -> None:
    scores = scored(run, metrics=("l1",), seed=3, resamples=500)
    kept = scores.values["l1"][scores.standing.valid]
    found = mean_interval(kept, resamples=500, seed=3)
    assert (scores.rows["l1"].low, scores.rows["l1"].high) == (found.low, found.high)


def test_batches_do_not_matter(run: Path) -> None:
    one, all_ = (scored(run, batch_size=size) for size in (1, N))
    for name in one.rows:
        assert one.rows[name].value == pytest.approx(all_.rows[name].value, abs=1e-5), name


def test_two_folders_and_a_classifier_give_what_the_run_gives(run: Path) -> None:
    pairs = pairs_of_folders(run.parent / "images", run / "images")
    asked = score(pairs, ScoreRequest(features=PATCHES, classifier=TOY))
    told = scored(run)
    for name, row in told.rows.items():
        assert asked.rows[name].value == pytest.approx(row.value, abs=1e-5), name
        assert asked.rows[name].n == row.n
    assert asked.rows["fr"].network == TOY


def test_without_a_classifier_nothing_is_known_of_validity(run: Path) -> None:
    rows = score(pairs_of_folders(run.parent / "images", run / "images"), ScoreRequest(features=PATCHES)).rows
    for name in ("fr", "bkl", "mad", "md", "cout"):
        assert math.isnan(rows[name].value)
        assert rows[name].warning == "classifier: expected one to ask, got none; give --classifier"
    assert (rows["l1"].n, rows["l1"].subset) == (N, "all (validity unknown)")


def features(run: Path, keep: Callable[[dict[str, object]], bool]) -> tuple[np.ndarray, np.ndarray]:
    records = [record for record in read_run(run)[1] if keep(record)]
    sides = [[read(record["path"]).x for record in records]]
    sides.append([read(image_path(run, record["id"])).x for record in records])
    before, after = (patches(torch.stack(side)).double().numpy() for side in sides)
    return before, after


def valid_pictures(run: Path) -> list[list[torch.Tensor]]:
    records = [record for record in read_run(run)[1] if record["valid"]]
    before = [read(record["path"]).x for record in records]
    return [before, [read(image_path(run, record["id"])).x for record in records]]


def test_realism_is_over_pairs_of_valid_counterfactuals(run: Path) -> None:
    row = scored(run, metrics=("fid",)).rows["fid"]
    before, after = features(run, lambda record: bool(record["valid"]))
    assert row.value == pytest.approx(fid(before, after), abs=1e-5)
    assert (row.subset, row.network) == ("valid", PATCHES)


def test_the_published_protocol(run: Path) -> None:
    labels = run.parent / "images" / "table.csv"
    rows = scored(run, protocol="published", labels=labels, label="ring").rows
    everything, _ = features(run, lambda record: True)
    _, valid = features(run, lambda record: bool(record["valid"]))
    assert rows["fid"].value == pytest.approx(fid(everything, valid), abs=1e-5)
    assert rows["fid"].subset == "valid, against all originals"
    assert (rows["l1"].n, rows["l1"].subset) == (N, "all")
    correct = [record["predicted"] == int(record["id"]) % 2 for record in read_run(run)[1]]
    assert (rows["cout"].n, rows["cout"].subset) == (sum(correct), "correct")


def test_correctly_classified_needs_labels(run: Path) -> None:
    row = scored(run, protocol="published").rows["cout"]
    assert math.isnan(row.value)
    assert "give --labels and --label" in row.warning


def test_a_subset_for_all_metrics_but_the_flip_rate(run: Path) -> None:
    rows = scored(run, subset="all", metrics=("fr", "l1", "fid")).rows
    assert {name: rows[name].n for name in ("fr", "l1", "fid")} == {"fr": N, "l1": N, "fid": N}


def test_md_by_shortcut(run: Path) -> None:
    labels = run.parent / "images" / "table.csv"
    scores = scored(run, metrics=("md_s1", "md_s0", "md"), labels=labels, shortcut="ring")
    shown = np.arange(N) % 2 == 1
    assert scores.rows["md_s1"].value == pytest.approx(scores.values["md"][shown].mean())
    assert scores.rows["md_s0"].value == pytest.approx(scores.values["md"][~shown].mean())
    assert scores.rows["md_s1"].n == shown.sum()
    missing = scored(run, metrics=("md_s1",)).rows["md_s1"]
    assert "give --labels TABLE and --shortcut COLUMN" in missing.warning


def table_of(folder: Path, lines: list[str]) -> Path:
    path = folder / "labels.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_patients_are_drawn_whole(run: Path, tmp_path: Path) -> None:
    same = table_of(tmp_path, ["id,patient", *(f"{i:04d},{i // 6}" for i in range(N))])
    rows = scored(run, metrics=("mad",), labels=same).rows
    column = scored(run, metrics=("mad",)).values["mad"]
    found = mean_interval(column, [i // 6 for i in range(N)])
    assert (rows["mad"].low, rows["mad"].high) == (found.low, found.high)
    apart = scored(run, metrics=("mad",), labels=same, group="none").rows["mad"]
    assert apart.low == mean_interval(column).low != found.low


def test_a_pair_without_a_row_is_one_line(run: Path, tmp_path: Path) -> None:
    labels = table_of(tmp_path, ["id,ring", "0000,1"])
    with pytest.raises(
        DataError, match="expected a row for each pair, got none for 11 of 12, such as '0001'"
    ):
        scored(run, labels=labels)


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        ("inception", "inception=FILE"),
        ("inception=nowhere.pth", "nowhere.pth"),
        ("support.features:brokn", "did you mean 'broken'"),
        ("support.features:broken", "0 pairs are too few to compare sets; 6 pairs have no features"),
        ("support.features:failing", "got RuntimeError: no such thing"),
        ("chest-pacemaker/shortcat", "did you mean 'shortcut'"),
    ],
)
def test_without_its_network_a_metric_says_what_to_get(run: Path, network: str, reason: str) -> None:
    rows = scored(run, features=network, metrics=("fid", "l1")).rows
    assert math.isnan(rows["fid"].value)
    assert reason in rows["fid"].warning
    assert math.isfinite(rows["l1"].value)


def first(pairs: Pairs, n: int) -> Pairs:
    return replace(pairs, places=pairs.places[:n], records=pairs.records[:n])


def test_one_pair_has_no_interval_and_no_distance_of_sets(run: Path) -> None:
    rows = score(first(pairs_of_run(run), 1), ScoreRequest(features=PATCHES, subset="all")).rows
    assert rows["l1"].value > 0
    assert math.isnan(rows["l1"].low)
    assert rows["l1"].warning == "one value has no interval"
    for name in ("fid", "sfid", "kid"):
        assert math.isnan(rows[name].value)
        assert "too few" in rows[name].warning


def test_no_valid_pair_is_no_number(run: Path) -> None:
    pairs = pairs_of_run(run)
    records = tuple({**record, "valid": False} for record in pairs.records)
    rows = score(replace(pairs, records=records), ScoreRequest(features=PATCHES)).rows
    assert rows["fr"].value == 0
    for name in ("l1", "ssim", "fid", "kid", "fs"):
        assert math.isnan(rows[name].value), name
        assert rows[name].n == 0
        assert rows[name].warning, name


def test_few_pairs_for_many_features(run: Path) -> None:
    rows = score(first(pairs_of_run(run), 6), ScoreRequest(features=PATCHES, subset="all")).rows
    assert "unreliable: 6 pairs for 9 features" in rows["fid"].warning
    assert rows["fid_floor"].value > 0
    assert rows["fid_floor"].n == rows["kid_floor"].n == 3


def test_equal_pictures(tmp_path: Path) -> None:
    for side in ("before", "after"):
        (tmp_path / side).mkdir()
        for name in range(3):
            write_image(tmp_path / side / f"{name}.png", torch.zeros(1, 32, 32), 8)
    pairs = pairs_of_folders(tmp_path / "before", tmp_path / "after")
    rows = score(pairs, ScoreRequest(features=PATCHES, classifier=TOY, subset="all")).rows
    assert rows["l1"].value == rows["changed_area"].value == 0
    assert rows["ssim"].value == 1
    assert rows["fid"].value == pytest.approx(0, abs=1e-9)


def test_pictures_too_small_for_one_metric(tmp_path: Path) -> None:
    for side in ("before", "after"):
        (tmp_path / side).mkdir()
        write_image(tmp_path / side / "a.png", torch.zeros(1, 8, 8), 8)
    rows = score(
        pairs_of_folders(tmp_path / "before", tmp_path / "after"), ScoreRequest(metrics=("ssim", "l1"))
    ).rows
    assert "at least 11x11 pixels" in rows["ssim"].warning
    assert rows["l1"].value == 0


def test_what_cannot_be_scored_is_one_line(run: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'fid'"):
        scored(run, metrics=("fidd",))
    with pytest.raises(FastdimeError, match="label column"):
        scored(run, labels=run.parent / "images" / "table.csv", label="rings")
    with pytest.raises(InputError, match="give --labels"):
        scored(run, group="patient")


def test_pairs_that_cannot_be_read_are_told_and_left_out(run: Path, tmp_path: Path) -> None:
    pairs = pairs_of_run(run)
    gone = replace(pairs.places[0], original=tmp_path / "gone.png")
    scores = score(replace(pairs, places=(gone, *pairs.places[1:])), ScoreRequest(features=PATCHES))
    assert scores.rows["fr"].n == N - 1
    assert "gone.png" in scores.failed[0]
    with pytest.raises(DataError, match="a pair that can be read"):
        score(replace(pairs, places=(gone,), records=pairs.records[:1]), ScoreRequest(features=PATCHES))


def test_the_classifier_of_the_run_must_be_the_same(run: Path) -> None:
    pairs = pairs_of_run(run)
    config = {**pairs.config, "classifier": {**pairs.config["classifier"], "weights": "0" * 16}}
    row = score(replace(pairs, config=config), ScoreRequest(metrics=("cout",))).rows["cout"]
    assert "got one with other weights; give it with --classifier" in row.warning


def test_mnac_and_cd_by_a_network(run: Path, tmp_path: Path) -> None:
    lines = [f"{i:04d},{i % 2},{i // 2 % 2},{i % 2}" for i in range(N)]
    labels = table_of(tmp_path, ["id,above,below,all", *lines])
    names = ("above", "below", "all")
    asked = {"attributes": "support.features:signs", "attribute_names": names, "query": "above"}
    rows = scored(run, **asked, labels=labels, metrics=("mnac", "cd")).rows
    before, after = (signs(torch.stack(side)) > 0 for side in valid_pictures(run))
    assert rows["mnac"].value == pytest.approx(float((before != after).sum(1).float().mean()))
    truth = label_correlations(torch.tensor([[i % 2, i // 2 % 2, i % 2] for i in range(N)]), 0)
    wanted = correlation_difference(before, after, 0, truth, "zero")
    np.testing.assert_equal(rows["cd"].value, wanted.value)
    assert rows["cd"].n == rows["mnac"].n == len(before)
    missing = scored(run, attributes="support.features:signs", metrics=("mnac", "cd")).rows["cd"]
    assert "give --labels, --attribute-names and --query" in missing.warning


def test_cout_comes_with_its_curves(run: Path) -> None:
    row = scored(run, metrics=("cout",)).rows["cout"]
    original, target = row.more["original_curve"], row.more["target_curve"]
    assert len(original) == len(target) == 51
    assert original[0] > 0.5 > original[-1]
    assert target[0] < 0.5 < target[-1]


def test_numbers_of_every_pair(run: Path, tmp_path: Path) -> None:
    scores = scored(run, metrics=("fr", "l1"))
    lines = write_values(tmp_path / "all.csv", scores).read_text(encoding="utf-8").splitlines()
    assert lines[0] == "id,valid,fr,bkl,mad,md,l1"
    assert len(lines) == N + 1
    assert float(lines[1].split(",")[-1]) == pytest.approx(scores.values["l1"][0], rel=1e-5)


def test_json_has_no_nan(run: Path) -> None:
    text = json.dumps(scored(run, protocol="published").plain(), allow_nan=False)
    fields = {"value", "low", "high", "n", "subset", "network", "warning"}
    assert all(fields <= set(row) for row in json.loads(text)["metrics"].values())


def test_a_run_is_only_read(run: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    scored(run)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    assert (run / RECORDS).exists()


def folders(path: Path, before: list[torch.Tensor], after: list[torch.Tensor | None]) -> Pairs:
    """Write pictures and their counterfactuals, or none."""
    for side, images in (("before", before), ("after", after)):
        (path / side).mkdir()
        for number, x in enumerate(images):
            if x is not None:
                write_image(path / side / f"{number}.png", x, 8)
    return pairs_of_folders(path / "before", path / "after")


def gray(*levels: float, size: int = 16) -> list[torch.Tensor]:
    return [torch.full((1, size, size), level) for level in levels]


def test_pictures_of_different_sizes(tmp_path: Path) -> None:
    before, after = gray(-0.5) + gray(-0.4, size=40), gray(0.5) + gray(0.6, size=40)
    asked = ScoreRequest(features=PATCHES, classifier="support.features:light")
    rows = score(folders(tmp_path, before, after), asked).rows
    assert rows["fr"].value == 1
    assert rows["cout"].n == 2
    assert len(rows["cout"].more["target_curve"]) == 51


def test_targets_of_many_classes(tmp_path: Path) -> None:
    pairs = folders(tmp_path, gray(-0.5, 0.0, 0.5), gray(0.0, 0.5, -0.5))
    labels = table_of(tmp_path, ["id,wanted", "0,1", "1,2", "2,0"])
    three = {"classifier": "support.features:dark_middle_light", "metrics": ("fr", "md")}
    rows = score(pairs, ScoreRequest(**three, labels=labels, target="column:wanted")).rows
    assert rows["fr"].value == 1
    assert rows["md"].value < -0.9  # of the target class, which all of them gain
    assert score(pairs, ScoreRequest(**three, target="2")).rows["fr"].value == pytest.approx(1 / 3)
    for target, sentence in (("7", "target: expected classes from 0 to 2, got 7"), ("flip", "more than two")):
        with pytest.raises(InputError, match=sentence):
            score(pairs, ScoreRequest(**three, target=target))


def test_md_of_a_run_with_many_classes(tmp_path: Path) -> None:
    for number, x in enumerate(gray(0.3, 0.5, 0.7, size=32)):
        write_image(tmp_path / f"{number}.png", x, 8)
    words = ("--classifier", "support.features:dark_middle_light", "--target", 1, "--set", "tau=6")
    done = fastdime_command(
        "explain", *MODELS[:2], *words, "--data", tmp_path, "--out", tmp_path.parent / "many"
    )
    assert done.code == 0, done.err
    pairs = pairs_of_run(tmp_path.parent / "many")
    told = score(pairs, ScoreRequest(metrics=("md",))).rows["md"].value
    asked = ScoreRequest(metrics=("md",), classifier="support.features:dark_middle_light")
    assert told == pytest.approx(score(pairs, asked).rows["md"].value, abs=1e-5)


def test_own_pairs_are_left_out_of_kid_in_both_protocols(run: Path) -> None:
    pairs = pairs_of_run(run)
    valid = [row for row, record in enumerate(pairs.records) if record["valid"]]
    places, records = (tuple(part[row] for row in valid) for part in (pairs.places, pairs.records))
    only = replace(pairs, places=places, records=records)
    found = [
        score(only, ScoreRequest(features=PATCHES, metrics=("kid",), protocol=protocol)).rows["kid"]
        for protocol in ("default", "published")
    ]
    assert found[0].value == pytest.approx(found[1].value)
    assert found[0].low == pytest.approx(found[1].low)


def test_all_originals_are_all(tmp_path: Path) -> None:
    random = torch.Generator().manual_seed(0)
    before = [torch.rand((1, 16, 16), generator=random) for _ in range(12)]
    pairs = folders(tmp_path, before, [*before[:5], *[None] * 7])
    asked = ScoreRequest(features=PATCHES, metrics=("fid", "kid"), protocol="published")
    scores = score(pairs, asked)
    kept = [read(tmp_path / "before" / f"{number}.png").x for number in range(12)]
    everything = patches(torch.stack(kept)).double().numpy()
    assert scores.rows["fid"].value == pytest.approx(fid(everything, everything[:5]), abs=1e-6)
    assert scores.rows["fid"].subset == "all (validity unknown), against all originals"
    assert "7 originals have no counterfactual" in scores.notes


def test_unknown_attributes_are_not_absent(run: Path) -> None:
    asked = {"attributes": "support.features:no_attributes", "metrics": ("mnac", "cd", "l1")}
    rows = scored(run, **asked).rows
    assert math.isnan(rows["mnac"].value)
    assert "expected numbers, got NaN" in rows["mnac"].warning
    assert math.isfinite(rows["l1"].value)


def test_features_of_some_pairs_only(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import support.features

    def some(x: torch.Tensor) -> torch.Tensor:
        found = patches(x)
        found[x.mean((1, 2, 3)) > x.mean((1, 2, 3)).median()] = torch.nan
        return found

    monkeypatch.setattr(support.features, "patches", some)
    row = scored(run, metrics=("kid",), subset="all").rows["kid"]
    assert math.isfinite(row.value)
    assert row.warning == f"{N - row.n} pairs have no features"


def test_what_has_to_be_known_about_a_run(run: Path, tmp_path: Path) -> None:
    pairs = pairs_of_run(run)
    assert score(pairs, ScoreRequest(metrics=("l1",))).notes == ()
    short = score(first(pairs, 4), ScoreRequest(metrics=("l1",))).notes
    assert short == (f"the run is not finished: 4 of {N} images",)
    there = tuple({**record, "target": record["predicted"]} for record in pairs.records)
    assert (
        f"{N} of {N} originals are in their target class already"
        in score(replace(pairs, records=there), ScoreRequest(metrics=("fr",))).notes[0]
    )
    other = replace(pairs.places[0], original=pairs.places[1].original)
    swapped = score(replace(pairs, places=(other, *pairs.places[1:])), ScoreRequest(metrics=("l1",)))
    assert swapped.notes == ("1 originals or counterfactuals are not the files that the run read and wrote",)


def test_options_without_effect_are_refused(run: Path) -> None:
    with pytest.raises(InputError, match="a run has its targets"):
        scored(run, target="1")
    with pytest.raises(InputError, match="--label ring: expected a table with that column, got none"):
        scored(run, label="ring")


def test_a_record_without_a_verdict_is_one_line(run: Path) -> None:
    pairs = pairs_of_run(run)
    broken = {name: value for name, value in pairs.records[0].items() if name != "p_after"}
    with pytest.raises(DataError, match=r"record '0000' of .*: expected a field 'p_after', got none"):
        score(replace(pairs, records=(broken, *pairs.records[1:])), ScoreRequest(metrics=("fr",)))
