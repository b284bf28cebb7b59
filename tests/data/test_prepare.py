"""Images of one form."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import ValidationError

from fastdime.data.forms import Form
from fastdime.data.io import read
from fastdime.data.prepare import prepare
from fastdime.data.studies.catalog import STUDIES
from fastdime.data.table import Table, read_table
from fastdime.errors import DataError, InputError

XRAY = Form(size=16, channels=1, convert=True, fit="stretch", smooth="bicubic")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    random = np.random.default_rng(0)
    folder = tmp_path / "data"
    (folder / "x").mkdir(parents=True)
    Image.fromarray(random.integers(0, 256, (40, 30, 3), dtype=np.uint8)).save(folder / "x" / "a.b.png")
    Image.fromarray(random.integers(0, 65536, (20, 50), dtype=np.uint16)).save(folder / "c.png")
    (folder / "bad.png").write_text("no image")
    lines = "path,task,patient\nx/a.b.png,1,007\nbad.png,0,8\nc.png,,9\n"
    (folder / "t.csv").write_text(lines)
    return read_table(folder / "t.csv")


def test_images_take_the_form_and_keep_their_labels(table: Table, tmp_path: Path) -> None:
    done = prepare(table, tmp_path / "out", XRAY)
    ready = read_table(done.table)
    assert ready.ids == ("x/a.b", "c")
    assert ready.groups["patient"] == ("007", "9")
    assert ready.labels["task"][0] == 1
    (error,) = done.errors
    assert "t.csv line 3 " in error
    assert "bad.png: expected" in error
    for row, bits in ((0, 8), (1, 16)):
        picture = read(ready.paths[row])
        source = read(
            table.paths[2 * row], size=16, channels=1, convert=True, fit="stretch", smooth="bicubic"
        )
        assert (picture.bits, picture.x.shape) == (bits, (1, 16, 16))
        assert torch.equal(picture.x, source.x)


def test_it_goes_on_and_only_with_the_same(table: Table, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = prepare(table, out, XRAY)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    first.table.unlink()
    images = sorted((out / "images").iterdir())
    images[0].unlink()
    when = images[1].stat().st_mtime_ns
    assert prepare(table, out, XRAY) == first
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert images[1].stat().st_mtime_ns == when  # not made again
    for other, form in ((table.head(1), XRAY), (table, XRAY.model_copy(update={"size": 17}))):
        with pytest.raises(InputError, match=r"out: expected the images it was begun with"):
            prepare(other, out, form)
    with pytest.raises(InputError, match=r"data: expected a new folder, got one that is in use"):
        prepare(table, tmp_path / "data", XRAY)


def test_gray_and_colour_are_not_mixed(table: Table, tmp_path: Path) -> None:
    for number, (form, rows) in enumerate([(Form(size=16), [1, 0, 2]), (Form(size=16, channels=1), [2, 0])]):
        with pytest.raises(DataError, match=r"expected a (gray|colour) image, .* use --convert-channels"):
            prepare(table.take(rows), tmp_path / str(number), form)
    done = prepare(table, tmp_path / "out", Form(size=16, convert=True))
    assert [read(path).x.shape[0] for path in read_table(done.table).paths] == [3, 3]
    assert len(done.errors) == 1
    alike = prepare(table.take([2]), tmp_path / "alike", Form(size=16))
    assert read(read_table(alike.table).paths[0]).x.shape[0] == 1


def test_none_that_can_be_read(table: Table, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"an image that can be read, got none; the first: .*line 3 .*bad\.png"
    ):
        prepare(table.take([1]), tmp_path / "out", XRAY)


def test_published_forms() -> None:
    """Faces are cut, 128 pixels; chests and skin are 224, bicubic, and chests gray."""
    forms = {name: study.form for name, study in STUDIES.items()}
    assert forms["celeba"] == Form(size=128, channels=3, convert=True)
    assert forms["chexpert"] == forms["nih"] == XRAY.model_copy(update={"size": 224})
    assert forms["isic"] == XRAY.model_copy(update={"size": 224, "channels": 3})
    with pytest.raises(ValidationError):
        Form(size=4)
