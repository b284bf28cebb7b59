from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fastdime.errors import InputError
from fastdime.metrics.statistics import paired_difference
from fastdime.pipeline.pairs import pairs_of_run
from fastdime.scoring.compare import Line, compare
from fastdime.scoring.request import ScoreRequest
from fastdime.scoring.score import Scores, score
from fastdime.toy import write
from support.commands import TOY, fastdime_command

REQUEST = ScoreRequest(metrics=("fr", "l1", "fid"), features="support.features:patches")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The same twelve images with weak guidance, and the first ten of them with strong guidance."""
    folder = tmp_path_factory.mktemp("toy")
    table, found = write(folder / "images", 12), []
    for name, scale, limit in (("weak", 2, 12), ("strong", 8, 10)):
        words = ("--set", "tau=33", "--set", f"scales={scale}", "--set", "l1=0.5", "--limit", limit)
        done = fastdime_command("explain", *TOY, *words, "--data", table, "--out", folder / name)
        assert done.code == 0, done.err
        found.append(folder / name)
    return found


def lines_of(scores: list[Scores]) -> dict[tuple[str, str], Line]:
    return {(line.metric, Path(line.run).name): line for line in compare(scores, REQUEST)}


def test_differences_are_over_images_that_both_runs_have(runs: list[Path]) -> None:
    weak, strong = (score(pairs_of_run(run), REQUEST) for run in runs)
    lines = lines_of([weak, strong])
    line = lines["fr", "strong"]
    assert line.difference is not None
    assert line.difference == paired_difference(weak.values["fr"][:10], strong.values["fr"][:10])
    assert line.difference.value > 0.2
    assert lines["fr", "weak"].difference is None
    assert lines["fr", "weak"].row.n == 12


def test_differences_of_closeness_are_over_images_valid_in_both(runs: list[Path]) -> None:
    weak, strong = (score(pairs_of_run(run), REQUEST) for run in runs)
    assert weak.standing.valid is not None
    assert strong.standing.valid is not None
    both = np.flatnonzero(weak.standing.valid[:10] & strong.standing.valid)
    difference = lines_of([weak, strong])["l1", "strong"].difference
    assert difference == paired_difference(weak.values["l1"][both], strong.values["l1"][both])


def test_distances_of_sets_have_no_difference(runs: list[Path]) -> None:
    lines = lines_of([score(pairs_of_run(run), REQUEST) for run in runs])
    told = lines["fid", "strong"].plain()
    assert told["value"] > 0
    assert told["difference"] is None
    assert told["common"] == 0


def test_equal_runs_do_not_differ(runs: list[Path]) -> None:
    one = score(pairs_of_run(runs[0]), REQUEST)
    again = score(pairs_of_run(runs[0]), REQUEST)
    for metric in ("fr", "l1"):
        [line] = [line for line in compare([one, again], REQUEST)[1::2] if line.metric == metric]
        assert line.difference is not None
        assert line.difference.value == line.difference.low == line.difference.high == 0


def test_runs_without_a_common_image(runs: list[Path]) -> None:
    one, other = (score(pairs_of_run(run), REQUEST) for run in runs)
    with pytest.raises(InputError, match="runs to compare: expected images of the same ids"):
        compare([one, replace(other, ids=tuple(f"x{name}" for name in other.ids))], REQUEST)
