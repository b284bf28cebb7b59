from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fastdime.audit.answers import EDIT, ORIGINAL
from fastdime.audit.generator import Oracle, asked, collateral, compliance, complied, self_tests
from fastdime.audit.pictures import BACK, NULL, Album
from fastdime.classifiers.wrapper import ImageClassifier
from fastdime.data import io
from fastdime.pipeline.pairs import pairs_of_run
from support.audits import Plan, make_pictures

IDS = ("a", "b", "c", "d")
SIZE = 8


def pictures(number: int) -> tuple[Tensor, Tensor]:
    """An image that the edit makes lighter by 0.4 in a quarter; the last one stays as it is."""
    x = torch.full((1, SIZE, SIZE), -0.5 + 0.25 * number)
    after = x.clone()
    after[:, :4, :4] += 0.4 * (number < 3)
    return x, after


@pytest.fixture
def album(tmp_path: Path) -> Album:
    make_pictures(tmp_path, tmp_path / "mark", Plan(ids=IDS, extras=False), pictures)
    return Album(tmp_path / "mark", pairs_of_run(tmp_path / "mark" / "edit"), "mark")


def write(album: Album, kind: str, rows: list[int], source: str, off: float = 0.0) -> None:
    for row in rows:
        album.path(kind, row).parent.mkdir(parents=True, exist_ok=True)
        io.write_image(album.path(kind, row), album.read(source, row) + off)


def bright(threshold: float) -> ImageClassifier:
    """Sees the shortcut where the first quarter is brighter."""
    return ImageClassifier(lambda x: 4 * (x[:, :, :4, :4].mean((1, 2, 3)) - threshold))


def test_images_that_comply(album: Album) -> None:
    oracle = Oracle("eyes", bright(0.0), True)  # sees -0.1, 0.15, 0.4 and 0.25
    np.testing.assert_array_equal(complied(album, oracle, np.array([0, 0, 0, 0])), [0, 1, 1, 1])
    np.testing.assert_array_equal(complied(album, oracle, np.array([1, 0, 1, 0])), [1, 1, 0, 1])


def test_compliance_is_counted_in_both_directions() -> None:
    found, has = np.array([1.0, 0, 1, 1, 0, 0]), np.array([1.0, 1, 1, 1, 0, 0])
    told = compliance(Oracle("eyes", bright(0.0), False), found, has, None)
    assert (told.oracle, told.independent) == ("eyes", False)
    assert (told.removed.value, told.removed.n) == (0.75, 4)
    assert (told.added.value, told.added.n) == (0.0, 2)
    grouped = compliance(Oracle("eyes", bright(0.0), True), found, has, ["p", "p", "q", "q", "r", "r"])
    assert (grouped.removed.clusters, grouped.added.clusters) == (2, 1)


def test_compliance_without_any_such_image() -> None:
    told = compliance(Oracle("eyes", bright(0.0), True), np.ones(3), np.ones(3), None)
    assert (told.added.value, told.added.n) == (None, 0)


def test_what_else_changes(album: Album) -> None:
    told = collateral(album, {"task": bright(0.0)}, None)
    assert told.keys() == {"change", "changed_area", "change_outside_mask", "task_oracle"}
    assert told["change"].value == pytest.approx(0.75 * 0.2 * 16 / 64, abs=1e-3)
    assert told["changed_area"].value == pytest.approx(0.75 * 16 / 64)
    assert told["change_outside_mask"].value == 0
    chances = [[-0.5, -0.25, 0.0], [-0.1, 0.15, 0.4]]
    before, after = 1 / (1 + np.exp(-4 * np.array(chances)))
    assert told["task_oracle"].value == pytest.approx(np.abs(after - before).sum() / 4, abs=5e-3)


def test_a_change_that_nobody_sees_is_no_area(album: Album) -> None:
    write(album, EDIT, [0, 1, 2, 3], ORIGINAL, 2 / 255)
    told = collateral(album, {}, ["p", "p", "q", "r"])
    assert told["changed_area"].value == 0
    assert told["change"].value == pytest.approx(1 / 255, rel=1e-3)
    assert told["change"].clusters == 3


def test_change_where_the_truth_has_none(album: Album) -> None:
    write(album, "truth", [0, 1], ORIGINAL)
    truth = album.read("truth", 0)
    truth[:, :, :4] += 0.3  # the upper half
    io.write_image(album.path("truth", 0), truth)
    told = collateral(album, {}, None)["change_outside_truth"]
    assert told.n == 2
    assert told.value == pytest.approx((0 + 0.2 * 16 / 64) / 2, abs=2e-3)


def test_a_change_outside_the_mask_is_told(album: Album) -> None:
    write(album, EDIT, [0], ORIGINAL, 0.2)
    assert collateral(album, {}, None)["change_outside_mask"].value == pytest.approx(0.1 / 4, abs=1e-3)


def test_a_picture_that_is_missing_has_no_answer(album: Album) -> None:
    write(album, NULL, [1], ORIGINAL)
    found = asked(album, NULL, lambda x: x.mean((1, 2, 3)))
    np.testing.assert_array_equal(np.isnan(found), [True, False, True, True])


@pytest.mark.parametrize(("off", "passed"), [(0.02, True), (0.2, False)])
def test_the_null_edit_returns_the_image(album: Album, off: float, passed: bool) -> None:
    write(album, NULL, [0, 1], ORIGINAL, off)
    [test] = self_tests(album)
    assert (test.name, test.passed, test.limit) == ("null edit", passed, 0.06)
    assert test.value == pytest.approx(off / 2, abs=3e-3)


@pytest.mark.parametrize(("off", "passed"), [(0.04, True), (0.4, False)])
def test_the_way_back_is_nearer_than_the_edit(album: Album, off: float, passed: bool) -> None:
    write(album, BACK, [0, 1], ORIGINAL, off)
    [test] = self_tests(album)
    assert (test.name, test.passed) == ("way back", passed)
    assert test.limit == pytest.approx(0.2 * 16 / 64, abs=1e-3)  # of those images that went back


def test_without_controls_there_are_no_tests(album: Album) -> None:
    assert self_tests(album) == ()
