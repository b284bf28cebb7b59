"""Images in memory, and those that do not belong together."""

from pathlib import Path

import pytest
import torch

from fastdime.data.io import write_image
from fastdime.data.table import Table, read_table
from fastdime.errors import DataError, InputError
from fastdime.training import pictures
from fastdime.training.pictures import read_pictures


def table(folder: Path, **images: tuple[tuple[int, int, int], int]) -> Table:
    """Write images of some shapes and depths, with a table."""
    folder.mkdir(exist_ok=True)
    for name, (shape, bits) in images.items():
        x = torch.rand(shape, generator=torch.Generator().manual_seed(len(name))) * 2 - 1
        write_image(folder / f"{name}.png", x, bits)
    path = folder / f"{'-'.join(images)}.csv"
    path.write_text("path\n" + "".join(f"{name}.png\n" for name in images))
    return read_table(path)


GRAY = ((1, 16, 16), 8)


@pytest.mark.parametrize(
    ("odd", "sentence"),
    [
        (((1, 8, 8), 8), r"expected \(1, 16, 16\) with 8 bits, .*got \(1, 8, 8\) with 8 bits; .*--size"),
        (((1, 16, 16), 16), ".*with 16 bits; give all files the same depth"),
        (((3, 16, 16), 8), "expected a gray image, got a colour one; .*--convert-channels"),
    ],
)
def test_images_that_differ_are_named_with_their_row(
    odd: tuple[tuple[int, int, int], int], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=f"one-odd.csv line 3 .*odd.png: {sentence}"):
        read_pictures(table(tmp_path, one=GRAY, odd=odd))
    train = read_pictures(table(tmp_path, one=GRAY))
    with pytest.raises(DataError, match=f"odd.csv line 2 .*odd.png: {sentence}"):
        read_pictures(table(tmp_path, odd=odd), like=train)


def test_conversion_must_be_asked_for(tmp_path: Path) -> None:
    train = read_pictures(table(tmp_path, one=GRAY))
    valid = read_pictures(table(tmp_path, odd=((3, 16, 16), 8)), like=train, convert=True)
    assert valid.form == train.form


def test_a_missing_image_is_named_with_its_row(tmp_path: Path) -> None:
    images = table(tmp_path, one=GRAY, two=GRAY)
    (tmp_path / "two.png").unlink()
    with pytest.raises(DataError, match=r"one-two.csv line 3 .*two.png: expected an image file"):
        read_pictures(images)


def test_memory_is_counted_as_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = table(tmp_path, one=((1, 16, 16), 16))
    used = read_pictures(deep).levels
    monkeypatch.setattr(pictures, "LARGEST", used.numel() * used.element_size())
    read_pictures(deep)
    monkeypatch.setattr(pictures, "LARGEST", used.numel() * used.element_size() - 1)
    with pytest.raises(InputError, match="GiB in memory"):
        read_pictures(deep)
