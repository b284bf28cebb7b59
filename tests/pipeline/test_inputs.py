import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastdime import toy
from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.methods import settings_for
from fastdime.data.io import write_image
from fastdime.data.table import Table, read_table
from fastdime.diffusion.denoiser import as_denoiser
from fastdime.pipeline.explain import explain
from fastdime.runs import image_path, read_run
from support.commands import complaint, explain_toy, files

SIZE = toy.SIZE


def picture(path: Path, mode: str = "L", size: tuple[int, int] = (SIZE, SIZE), seed: int = 0) -> Path:
    bands = len(mode)
    levels = np.random.default_rng(seed).integers(60, 120, (*size, bands), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(levels if bands == 3 else levels[..., 0]).save(path)
    return path


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A table in which only the rows `good` and `last` can be used."""
    toy.write(tmp_path, 2)
    picture(tmp_path / "large.png", size=(SIZE, SIZE + 1))
    picture(tmp_path / "colour.png", "RGB")
    whole = (tmp_path / "0000.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.png").write_text("not a picture")
    (tmp_path / "void.png").touch()
    np.save(tmp_path / "nan.npy", np.full((SIZE, SIZE), np.nan, np.float32))
    picture(tmp_path / "mask.png")
    picture(tmp_path / "small_mask.png", size=(8, 8))
    rows = [
        "good,0000.png,1,mask.png",
        "cut,cut.png,1,mask.png",
        "text,text.png,1,mask.png",
        "void,void.png,1,mask.png",
        "missing,missing.png,1,mask.png",
        "large,large.png,1,mask.png",
        "colour,colour.png,1,mask.png",
        "nan,nan.npy,1,mask.png",
        "no label,0000.png,,mask.png",
        "half label,0000.png,0.5,mask.png",
        "wrong label,0000.png,2,mask.png",
        "negative,0000.png,-1,mask.png",
        "no mask,0000.png,1,",
        "lost mask,0000.png,1,lost.png",
        "small mask,0000.png,1,small_mask.png",
        "last,0001.png,0,mask.png",
    ]
    path = tmp_path / "table.csv"
    path.write_text("id,path,want,mask\n" + "\n".join(rows) + "\n")
    return path


BROKEN = ("--target", "column:want", "--allow", "mask", "--batch-size", 5)


def test_each_bad_row_is_one_error_record_and_the_rest_goes_on(broken: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = explain_toy(broken, out, *BROKEN, "--json")
    assert done.code == 3
    assert done.err == f"fastdime: 14 of 16 images could not be used; see {out}/records.jsonl\n"
    summary = json.loads(done.out)
    assert (summary["images"], summary["errors"]) == (2, 14)
    records = read_run(out)[1]
    assert [record["id"] for record in records] == list(read_table(broken).ids)
    errors = {record["id"]: record["error"] for record in records if "error" in record}
    for name, message in {
        "cut": "cut.png: expected an image that can be decoded, got",
        "text": "text.png: expected a PNG, JPEG",
        "void": "void.png: expected a PNG, JPEG, TIFF, BMP, DICOM or .npy image, got an empty file",
        "missing": "missing.png: expected an image file, got no such file; check the path",
        "large": "large.png: expected 32x32 pixels, got 32x33; resize it, or use --size 32",
        "colour": "colour.png: expected a gray image, got a colour one",
        "nan": "nan.npy: expected finite numbers, got NaN or infinity",
        "no label": "column 'want' of image 'no label': expected a class from 0 to 1, got an empty cell",
        "half label": "column 'want' of image 'half label': expected a class from 0 to 1, got 0.5",
        "wrong label": "expected a class from 0 to 1, got 2",
        "negative": "expected a class from 0 to 1, got -1",
        "no mask": "column 'mask' of image 'no mask': expected a mask image, got an empty cell",
        "lost mask": "lost.png: expected an image file, got no such file",
        "small mask": "small_mask.png: expected 32x32 pixels, got 8x8",
    }.items():
        assert message in errors.pop(name)
    assert not errors
    assert sorted(path.name for path in (out / "images").iterdir()) == [
        "good.mask.png",
        "good.png",
        "last.mask.png",
        "last.png",
    ]


def test_strict_stops_at_the_first_and_keeps_what_was_done(broken: Path, tmp_path: Path) -> None:
    out, calm = tmp_path / "run", tmp_path / "calm"
    sentence = complaint(explain_toy(broken, out, *BROKEN[:-1], 1, "--strict"))
    assert "cut.png: expected an image that can be decoded" in sentence
    assert [record["id"] for record in read_run(out)[1]] == ["good"]
    assert explain_toy(broken, out, *BROKEN[:-1], 1).code == 3  # goes on without --strict
    assert explain_toy(broken, calm, *BROKEN[:-1], 1).code == 3
    assert files(out) == files(calm)


def test_nothing_but_broken_images(tmp_path: Path) -> None:
    for name in ("a", "b"):
        picture(tmp_path / "data" / f"{name}.png", size=(7, 9))
    done = explain_toy(tmp_path / "data", tmp_path / "run", "--json")
    assert done.code == 3
    summary = json.loads(done.out)
    assert (summary["images"], summary["errors"], summary["flip_rate"]) == (0, 2, None)
    (tmp_path / "data" / "a.png").write_bytes(b"")
    (tmp_path / "data" / "b.png").write_bytes(b"")
    explainer = Explainer(as_denoiser(lambda x, t: x), toy.classifier(), settings_for("fastdime", tau=2))
    assert explain(tmp_path / "data", explainer, tmp_path / "other").errors == 2


def test_sources_of_data(tmp_path: Path) -> None:
    table = toy.write(tmp_path / "data", 3)
    folder = tmp_path / "folder"
    shutil.copytree(tmp_path / "data", folder, ignore=shutil.ignore_patterns("*.csv"))
    for number, (data, more, ids) in enumerate(
        [
            (table, [], ["0000", "0001", "0002"]),
            (table, ["--limit", 2], ["0000", "0001"]),
            (table, ["--limit", 9], ["0000", "0001", "0002"]),
            (folder, [], ["0000", "0001", "0002"]),
            (folder / "0001.png", [], ["0001"]),
        ]
    ):
        out = tmp_path / f"run{number}"
        assert explain_toy(data, out, *more).code == 0
        assert [record["id"] for record in read_run(out)[1]] == ids
    first, alone = (image_path(tmp_path / name, "0001").read_bytes() for name in ("run0", "run4"))
    assert first == alone  # an image is known by its id, wherever it comes from


def test_no_data(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "rows.csv").write_text("path,y\n")
    (tmp_path / "columns.csv").write_text("file,y\na.png,1\n")
    (tmp_path / "notes.txt").write_text("hello")
    for name, message in {
        "nowhere": "nowhere: expected a table, a folder or an image, got no such file; check the path",
        "empty": "empty: expected images",
        "rows.csv": "rows.csv: expected at least one image, got no rows",
        "columns.csv": "columns.csv: expected a column 'path', got columns 'file', 'y'",
        "notes.txt": "notes.txt: expected a folder or a file of kind",
    }.items():
        assert message in complaint(explain_toy(tmp_path / name, tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_any_id_is_an_id(tmp_path: Path) -> None:
    ids = ["a/b/../c", "Ünïcode 図", " spaced  out ", "..", "a.mask", "a", "x" * 300, "new\nline", "quote'\""]
    drawn = toy.pictures(len(ids))
    paths = [tmp_path / f"{i}.png" for i in range(len(ids))]
    for path, x in zip(paths, drawn.x, strict=True):
        write_image(path, x)
    explainer = Explainer(toy.denoiser(), toy.classifier(), settings_for("fastdime", tau=4, steps=50))
    summary = explain(Table(tuple(ids), tuple(paths)), explainer, tmp_path / "run")
    assert (summary.images, summary.errors) == (len(ids), 0)
    assert [record["id"] for record in read_run(tmp_path / "run")[1]] == ids
    assert all(image_path(tmp_path / "run", name).is_file() for name in ids)
    assert len(list((tmp_path / "run" / "images").iterdir())) == 2 * len(ids)


def test_file_names_that_are_no_text(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.png")
    try:
        write_image(tmp_path / "data.png", toy.pictures(1).x[0])
        (tmp_path / "data").mkdir()
        (tmp_path / "data.png").rename(tmp_path / "data" / name)
    except OSError:
        pytest.skip("this file system takes no such names")
    assert explain_toy(tmp_path / "data", tmp_path / "run").code == 0
    assert read_run(tmp_path / "run")[1][0]["id"] == name.removesuffix(".png")


def test_columns_that_nobody_asked_for_are_left_alone(tmp_path: Path) -> None:
    table = toy.write(tmp_path / "data", 2)
    lines = table.read_text().splitlines()
    table.write_text("\n".join([f"{lines[0]},age,site", f"{lines[1]},,a", f"{lines[2]},x,"]) + "\n")
    assert explain_toy(table, tmp_path / "run").code == 0


def test_targets(tmp_path: Path) -> None:
    table = toy.write(tmp_path / "data", 4)  # without, with, without, with a ring
    table.write_text(table.read_text().replace("0000.png,0", "0000.png,1"))  # a wrong label
    for number, (target, wanted) in enumerate(
        [("flip", [1, 0, 1, 0]), ("flip:ring", [0, 0, 1, 0]), ("column:ring", [1, 1, 0, 1]), ("1", [1] * 4)]
    ):
        out = tmp_path / f"run{number}"
        assert explain_toy(table, out, "--target", target).code == 0
        records = read_run(out)[1]
        assert [record["target"] for record in records] == wanted
        met = [record["predicted"] == record["target"] for record in records]
        assert [record["denoiser_calls"] == 0 for record in records] == met  # left alone if met already


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--target", "flp"], "got 'flp'; did you mean 'flip'?"),
        (["--target", ""], "target: expected one of flip, flip:COLUMN"),
        (["--target", "-1"], "target: expected one of flip, flip:COLUMN"),
        (["--target", "flip:rin"], "label column: expected one of ring, got 'rin'; did you mean 'ring'?"),
        (["--target", "column:"], "label column: expected one of ring, got ''"),
        (["--target", "flip:"], "label column: expected one of ring, got ''"),
        (["--target", "column:mask"], "column 'mask': expected numbers, got 'm.png' for image '0000'"),
        (["--target", "2"], "target: expected a class from 0 to 1, got 2"),
        (
            ["--allow", "maks"],
            "allow: no such mask image; text column: expected one of mask, got 'maks'; did",
        ),
        (["--forbid", "ring"], "forbid: no such mask image; text column: expected one of mask, got 'ring'"),
        (["--size", "16"], "size: expected 32, the size of the denoiser, got 16"),
        (["--size", "2"], "--size: expected greater than or equal to 8, got 2"),
        (["--limit", "0"], "--limit: expected greater than or equal to 1, got 0"),
        (["--batch-size", "many"], "--batch-size: expected"),
        (["--batch-size", "0"], "--batch-size: expected greater than or equal to 1"),
    ],
)
def test_wrong_options_are_one_line_and_leave_no_folder(
    tmp_path: Path, words: list[str], message: str
) -> None:
    table = toy.write(tmp_path / "data", 1)
    table.write_text("id,path,ring,mask\n0000,0000.png,0,m.png\n")
    assert message in complaint(explain_toy(table, tmp_path / "run", *words))
    assert not (tmp_path / "run").exists()


def test_a_bad_mask_for_all_images_is_told_at_once(tmp_path: Path) -> None:
    table, run = toy.write(tmp_path / "data", 1), tmp_path / "run"
    small, text = picture(tmp_path / "small.png", size=(8, 8)), tmp_path / "text.png"
    text.write_text("no mask")
    colour = picture(tmp_path / "colour.png", "RGB")
    for path, message in [
        (small, "small.png: expected 32x32 pixels, got 8x8"),
        (text, "text.png: expected a PNG"),
        (colour, "colour.png: expected a gray image, got a colour one"),
    ]:
        assert message in complaint(explain_toy(table, run, "--allow", path))
    assert not run.exists()


def test_a_run_folder_inside_the_data_is_refused(tmp_path: Path) -> None:
    toy.write(tmp_path / "data", 1)
    for out in (tmp_path / "data" / "run", tmp_path / "data"):
        assert f"{out}: expected a run folder outside of" in complaint(explain_toy(tmp_path / "data", out))
    assert explain_toy(tmp_path / "data" / "table.csv", tmp_path / "data" / "run").code == 0


def test_places_that_are_no_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = toy.write(tmp_path / "data", 1)
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file" / "run", tmp_path / ("x" * 300)):
        assert f"{out}: expected a place that can be written" in complaint(explain_toy(table, out))

    def closed(self: Path, *words: object, **more: object) -> None:
        raise PermissionError(13, "Permission denied")  # file modes would not stop the superuser

    monkeypatch.setattr(Path, "mkdir", closed)
    assert "got Permission denied; choose another place" in complaint(explain_toy(table, tmp_path / "run"))
