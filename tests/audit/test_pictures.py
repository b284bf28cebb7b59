import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fastdime.audit.answers import EDIT, ORIGINAL
from fastdime.audit.pictures import (
    BACK,
    NULL,
    PLACEBO,
    TRUTH,
    Album,
    Studio,
    copy_truth,
    phantom_folder,
    unguided,
    write_placebos,
)
from fastdime.audit.placebo import placebo_edit
from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.methods import METHODS, settings_for
from fastdime.counterfactuals.settings import GuidedSettings
from fastdime.data import io
from fastdime.data.table import read_table
from fastdime.pipeline.options import RunOptions
from fastdime.pipeline.pairs import pairs_of_run
from fastdime.runs import image_path
from fastdime.terminal import silence_of
from support import tiny
from support.audits import Plan, make_pictures, noise

PLAN = Plan(ids=("a", "b/c", "d"), extras=False)


def silent(done: float, of: int) -> None:
    pass


@pytest.fixture
def album(tmp_path: Path) -> Album:
    """Made-up pictures of a shortcut, without any placebo yet."""
    (tmp_path / "data").mkdir()
    make_pictures(tmp_path / "data", tmp_path / "shortcut", PLAN, noise())
    for path in (tmp_path / "shortcut" / "placebo").iterdir():
        path.unlink()
    return Album(tmp_path / "shortcut", pairs_of_run(tmp_path / "shortcut" / "edit"), "shortcut")


def as_phantom(album: Album, **config: Any) -> Path:
    """Make a phantom set of the folder that the originals lie in."""
    folder = album.path(ORIGINAL, 0).parent.parent
    (folder / "truth" / "other").mkdir(parents=True)
    for row, name in enumerate(album.ids[:1]):
        io.write_image(folder / "truth" / "other" / f"{name}.png", album.read(EDIT, row) * 0.5)
    (folder / "dataset.json").write_text(json.dumps({"phantom": "tiny", **config}))
    return folder


# --- albums ----------------------------------------------------------------------------------------------


def test_where_pictures_lie(album: Album) -> None:
    assert album.ids == ("a", "b/c", "d")
    assert album.path(EDIT, 1) == album.folder / "edit" / "images" / "b%2Fc.png"
    assert album.path(NULL, 1) == album.folder / "null" / "images" / "b%2Fc.png"
    assert album.path(PLACEBO, 1) == album.folder / "placebo" / "b%2Fc.png"
    assert album.path(ORIGINAL, 1).name == "1.png"
    assert album.rows_with(EDIT) == album.rows_with(ORIGINAL) == [0, 1, 2]
    assert album.rows_with(NULL) == album.rows_with(PLACEBO) == []


def test_pictures_come_some_at_a_time(album: Album) -> None:
    parts = list(album.batches(EDIT, 2))
    assert [rows for rows, _ in parts] == [[0, 1], [2]]
    torch.testing.assert_close(torch.cat([x for _, x in parts]), album.stack(EDIT, [0, 1, 2]))
    torch.testing.assert_close(parts[1][1][0], album.read(EDIT, 2))
    assert list(album.batches(NULL)) == []


def test_originals_are_read_as_the_run_read_them(album: Album) -> None:
    path = album.path(ORIGINAL, 0)
    io.write_image(path, torch.zeros(3, 32, 32) + torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1))
    resized = replace(album, pairs=replace(album.pairs, size=16, convert=True))
    assert resized.read(ORIGINAL, 0).shape == (1, 16, 16)


def test_masks_are_where_an_edit_may_change(album: Album) -> None:
    mask = album.mask(0)
    assert torch.equal(mask, (album.read(EDIT, 0) != album.read(ORIGINAL, 0)).any(0, keepdim=True))


# --- placebos and truth ----------------------------------------------------------------------------------


def test_placebos_are_made_once(album: Album) -> None:
    told: list[tuple[float, int]] = []
    write_placebos(album, 3, lambda done, of: told.append((done, of)))
    assert told == [(1, 3), (2, 3), (3, 3)]
    x, x_cf = album.stack(ORIGINAL, [0, 1, 2]), album.stack(EDIT, [0, 1, 2])
    assert torch.equal(album.stack(PLACEBO, [0, 1, 2]), placebo_edit(x, x_cf, album.ids, 3))
    album.path(PLACEBO, 1).unlink()
    before = album.path(PLACEBO, 0).stat().st_mtime_ns
    told.clear()
    write_placebos(album, 3, lambda done, of: told.append((done, of)))
    assert told == [(1, 1)]
    assert album.path(PLACEBO, 0).stat().st_mtime_ns == before


def test_placebos_are_as_deep_as_the_edits(album: Album) -> None:
    for kind in (ORIGINAL, EDIT):
        io.write_image(album.path(kind, 0), album.read(kind, 0) * 0.99999, 16)
    write_placebos(album, 0, silent)
    assert [io.read(album.path(PLACEBO, row)).bits for row in (0, 1)] == [16, 8]
    change = [(album.read(kind, 0) - album.read(ORIGINAL, 0)).abs() for kind in (EDIT, PLACEBO)]
    assert float(change[1].sum()) == pytest.approx(float(change[0].sum()), rel=0.01)
    assert int((change[1] == 0).sum()) > 100  # where nothing is drawn the pixels are those of the file


def test_exact_counterfactuals_are_kept(album: Album) -> None:
    as_phantom(album)
    copy_truth(album)
    assert album.rows_with(TRUTH) == [0]
    torch.testing.assert_close(album.read(TRUTH, 0), album.read(EDIT, 0) * 0.5, atol=0.005, rtol=0)


def test_exact_counterfactuals_go_through_size_with_the_originals(album: Album) -> None:
    folder = as_phantom(album)
    for path in (album.path(ORIGINAL, 0), folder / "truth" / "other" / "a.png"):
        io.write_image(path, torch.nn.functional.interpolate(io.read(path).x[None], scale_factor=2)[0])
    resized = replace(album, pairs=replace(album.pairs, size=16))
    copy_truth(resized)
    assert resized.read(TRUTH, 0).shape == resized.read(ORIGINAL, 0).shape == (1, 16, 16)


def test_truth_is_about_the_shortcut_of_a_phantom_and_nothing_else(album: Album) -> None:
    assert phantom_folder(album) is None
    folder = as_phantom(album)
    assert phantom_folder(album) == folder
    assert phantom_folder(replace(album, column="task")) is None
    (folder / "dataset.json").write_text('{"phantom": "tiny", "truth": false}')
    assert phantom_folder(album) is None
    (folder / "dataset.json").write_text('{"kind": "another program"}')
    assert phantom_folder(album) is None
    copy_truth(album)
    assert not (album.folder / TRUTH).exists()


# --- making them -----------------------------------------------------------------------------------------


def studio(folder: Path, controls: int, method: str = "fastdime-null") -> Studio:
    (folder / "data").mkdir()
    make_pictures(folder / "data", folder / "unused", PLAN, noise())
    table = folder / "data" / "table.csv"
    lines = [f"{name},images/{row}.png,{row % 2}" for row, name in enumerate(PLAN.ids)]
    table.write_text("\n".join(["id,path,mark", *lines]) + "\n")
    explainer = Explainer(tiny.denoiser(), tiny.classifier(), tiny.small(method, scales=[0.1]), seed=3)
    names = {"method": method, "denoiser": "tiny", "classifier": "tiny"}
    options = RunOptions(batch_size=2)
    return Studio(read_table(table), "mark", explainer, names, folder / "out", options, controls, silence_of)


def test_everything_is_made(tmp_path: Path) -> None:
    made = studio(tmp_path, 2).make()
    counts = {kind: len(made.rows_with(kind)) for kind in (EDIT, PLACEBO, NULL, "reseed", BACK)}
    assert counts == {EDIT: 3, PLACEBO: 3, NULL: 2, "reseed": 2, BACK: 3}
    told = {
        kind: json.loads((tmp_path / "out" / kind / "config.json").read_text())
        for kind in (EDIT, NULL, "reseed", BACK)
    }
    assert [told[kind]["target"] for kind in told] == ["flip:mark"] * 3 + ["column:mark"]
    assert [told[kind]["seed"] for kind in told] == [3, 3, 1_000_006, 3]
    assert told[NULL]["settings"]["scales"] == [0.0]
    records = [json.loads(line) for line in (tmp_path / "out/back/records.jsonl").read_text().splitlines()]
    assert [record["target"] for record in records] == [0, 1, 0]  # what the original shows
    assert records[0]["path"] == str(image_path(tmp_path / "out" / EDIT, "a"))


def test_controls_can_be_left_out(tmp_path: Path) -> None:
    made = studio(tmp_path, 0).make()
    assert made.rows_with(NULL) == made.rows_with("reseed") == []
    assert not (tmp_path / "out" / NULL).exists()


@pytest.mark.parametrize("method", METHODS)
def test_a_chain_without_guidance(method: str) -> None:
    settings = settings_for(method)
    found = unguided(settings)
    assert (found.scales, found.skip_if_met) == ((0.0,), False)
    if isinstance(found, GuidedSettings):
        assert found.second_pass != "null"
    changed = {
        name for name in type(settings).model_fields if getattr(settings, name) != getattr(found, name)
    }
    assert changed <= {"scales", "skip_if_met", "second_pass"}


@pytest.mark.parametrize("method", ["fastdime", "fastdime-null", "ace-l1"])
def test_a_chain_without_guidance_does_not_depend_on_the_target(method: str) -> None:
    settings = unguided(tiny.small(method, l1=0.0))
    explainer = Explainer(tiny.denoiser(), tiny.classifier(), settings)
    one, other = (explainer(tiny.images(), target=target).x_cf for target in (0, 1))
    assert torch.equal(one, other)
    assert not torch.equal(one, tiny.images())  # it is a chain all the same
