from pathlib import Path

import pytest
import torch

from fastdime.data.io import write_image
from fastdime.errors import DataError, InputError
from fastdime.pipeline.pairs import open_pairs, pairs_of_folders, pairs_of_run
from fastdime.toy import write
from support.commands import explain_toy


def folder_of(path: Path, names: list[str], size: int = 16, channels: int = 1) -> Path:
    path.mkdir()
    for number, name in enumerate(names):
        write_image(path / f"{name}.png", torch.full((channels, size, size), number / 10), 8)
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    table = write(folder / "images", 5)
    (folder / "images" / "0001.png").write_bytes(b"no image")
    explain_toy(table, folder / "run")
    return folder / "run"


def test_pairs_of_a_run(run: Path) -> None:
    pairs = pairs_of_run(run)
    assert pairs.ids == ("0000", "0002", "0003", "0004")
    assert "0001.png" in pairs.failed[0]
    failed: list[str] = []
    batches = list(pairs.batches(3, failed))
    assert [batch.rows for batch in batches] == [[0, 1, 2], [3]]
    assert not failed
    for batch in batches:
        assert batch.mask is not None
        outside = ~batch.mask.expand_as(batch.x)
        assert torch.equal(batch.x[outside], batch.x_cf[outside])
        assert not torch.equal(batch.x, batch.x_cf)


def test_pictures_of_a_run_are_pairs_of_folders_too(run: Path) -> None:
    originals = run.parent / "images"
    pairs = pairs_of_folders(originals, run / "images")
    assert pairs.ids == ("0000", "0002", "0003", "0004")
    assert pairs.places[0].mask == run / "images" / "0000.mask.png"


def test_originals_without_a_partner_are_left_out(tmp_path: Path) -> None:
    before = folder_of(tmp_path / "before", ["a", "b", "c"])
    after = folder_of(tmp_path / "after", ["c", "a"])
    assert pairs_of_folders(before, after).ids == ("a", "c")


def test_a_counterfactual_without_original_is_refused(tmp_path: Path) -> None:
    before = folder_of(tmp_path / "before", ["a"])
    after = folder_of(tmp_path / "after", ["a", "x"])
    with pytest.raises(
        DataError, match=r"an original of the same name in .*, got 1 without one, such as 'x'"
    ):
        pairs_of_folders(before, after)


def test_pairs_of_different_sizes_and_channels(tmp_path: Path) -> None:
    before = folder_of(tmp_path / "before", ["a", "b", "c", "d"])
    after = folder_of(tmp_path / "after", ["a", "b", "c", "d"])
    write_image(after / "b.png", torch.zeros(3, 16, 16), 8)  # gray that another tool wrote as colour
    write_image(after / "c.png", torch.zeros(1, 8, 8), 8)
    write_image(after / "d.png", torch.rand(3, 16, 16), 8)
    failed: list[str] = []
    [batch] = pairs_of_folders(before, after).batches(8, failed)
    assert batch.rows == [0, 1]
    assert "c.png: expected 8x8 pixels, got 16x16" in failed[0]
    assert "d.png: expected a gray image" in failed[1]


def test_a_command_names_one_kind_of_pairs(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="expected a run folder, or --original and --counterfactual, got neither"
    ):
        open_pairs(None, tmp_path, None)
    with pytest.raises(InputError, match="got both"):
        open_pairs(tmp_path, tmp_path, tmp_path)
