"""The readers of published data sets, on small trees in exactly their layout and on real images."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastdime.data.studies.catalog import read_study
from fastdime.data.table import Table, read_table, write_table
from fastdime.errors import DataError, FastdimeError, InputError
from support.real_data import real

CHEXPERT = [(41055, 2, 1), (11922, 3, 1), (7, 1, 2), (7, 2, 1)]
NIH = ["00030651_005", "00000013_030", "00000013_031", "00000099_000"]


def touch(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def below(table: Table, root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path in table.paths]


# --- CelebA ----------------------------------------------------------------------------------------------

FACES = [f"{number:06d}.jpg" for number in range(1, 5)]
ATTRIBUTES = {"Eyeglasses": "-1 -1 1 -1", "Smiling": "1 -1 1 -1", "Young": "1 1 -1 -1"}
SIGNS = dict(zip(FACES, zip(*(cells.split() for cells in ATTRIBUTES.values()), strict=True), strict=True))


def celeba(root: Path, kind: str, images: str = "img_align_celeba") -> Path:
    touch(root, *(f"{images}/{face}" for face in FACES))
    parts = dict(zip(FACES, "0120", strict=True))
    if kind == "csv":
        lines = [",".join([face, *signs]) for face, signs in SIGNS.items()]
        write(root / "list_attr_celeba.csv", "\n".join([f"image_id,{','.join(ATTRIBUTES)}", *lines]))
        lines = [f"{face},{part}" for face, part in parts.items()]
        write(root / "list_eval_partition.csv", "\n".join(["image_id,partition", *lines]) + "\n")
    else:
        lines = [f"{face} " + " ".join(f"{sign:>2}" for sign in signs) for face, signs in SIGNS.items()]
        write(root / "Anno/list_attr_celeba.txt", "\n".join(["4", " ".join(ATTRIBUTES), *lines]) + "\n")
        lines = [f"{face} {part}" for face, part in parts.items()]
        write(root / "Eval/list_eval_partition.txt", "\n".join(lines) + "\n")
    return root


@pytest.mark.parametrize("kind", ["csv", "txt"])
def test_celeba(tmp_path: Path, kind: str) -> None:
    root = celeba(tmp_path, kind)
    touch(root, "img_celeba/000001.jpg")  # the uncropped images have the same names
    joined = read_study("celeba", root)
    table = joined.table
    assert below(table, root) == [f"img_align_celeba/{face}" for face in FACES]
    assert table.ids == ("000001", "000002", "000003", "000004")
    assert table.labels["task"] == table.labels["Young"] == (1, 1, 0, 0)
    assert table.labels["shortcut"] == table.labels["Smiling"] == (1, 0, 1, 0)
    assert table.labels["Eyeglasses"] == (0, 0, 1, 0)
    assert table.groups["split"] == ("train", "val", "test", "train")
    assert joined.sentence() == (
        "4 images in the table; left out: 0 rows without a file, 0 files without a row"
    )
    other = read_study("celeba", root, task="Smiling", shortcut="Eyeglasses").table
    assert (other.labels["task"], other.labels["shortcut"]) == ((1, 0, 1, 0), (0, 0, 1, 0))
    with pytest.raises(InputError, match=r"--shortcut: column of .*list_attr.* did you mean 'Smiling'"):
        read_study("celeba", root, shortcut="Smilng")


def test_celeba_as_some_copies_have_it(tmp_path: Path) -> None:
    root = celeba(tmp_path, "csv", "img_align_celeba/img_align_celeba")
    assert len(read_study("celeba", root).table) == 4


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("list_attr_celeba.csv", None, r"expected list_attr_celeba\.csv or \.txt, got no such file"),
        (
            "list_attr_celeba.csv",
            "image_id,Young\n000001.jpg,2\n",
            r"line 2 column 'Young': expected -1, 0 or 1",
        ),
        (
            "list_eval_partition.csv",
            "image_id,partition\n000001.jpg,3\n",
            r"image 1: expected a name and 0, 1",
        ),
    ],
)
def test_broken_celeba(tmp_path: Path, name: str, text: str | None, sentence: str) -> None:
    root = celeba(tmp_path, "csv")
    (root / name).unlink()
    if text is not None:
        write(root / name, text)
    with pytest.raises(DataError, match=sentence):
        read_study("celeba", root)


def test_broken_original_celeba(tmp_path: Path) -> None:
    path = celeba(tmp_path, "txt") / "Anno/list_attr_celeba.txt"
    text = path.read_text()
    path.write_text(text + "000005.jpg 1\n")
    with pytest.raises(DataError, match=r"list_attr_celeba\.txt line 7: expected 4 words, got 2"):
        read_study("celeba", tmp_path)
    path.write_text(text.partition("\n")[2])  # without the number of images
    with pytest.raises(DataError, match="expected a number, names and images"):
        read_study("celeba", tmp_path)


# --- chest X-rays ----------------------------------------------------------------------------------------


def chexpert_annotations(folder: Path) -> Path:
    names = [f"patient{p:05d}_study{s}_view{v}_frontal.jpg" for p, s, v in CHEXPERT]
    rows = zip(names, (1, 1, 0, 0), (1, 0, 1, 0), ("train", "train", "test", "test"), strict=True)
    lines = [",".join(map(str, row)) for row in rows]
    return write(folder / "che_pm_meta.csv", "\n".join(["img_name,Cardiomegaly,PM,split", *lines]) + "\n")


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("above", ["", "CheXpert-v1.0-small/train/"])
def test_chexpert(tmp_path: Path, flat: bool, above: str) -> None:
    root = tmp_path / "images"
    pattern = "patient{:05d}_study{}_view{}" if flat else "patient{:05d}/study{}/view{}"
    names = [f"{above}{pattern.format(*numbers)}_frontal.jpg" for numbers in CHEXPERT]
    touch(root, *names, names[0].replace("_frontal", "_lateral"))
    joined = read_study("chexpert", root, chexpert_annotations(tmp_path))
    table = joined.table
    assert below(table, root) == names
    assert table.ids[0] == "patient41055_study2_view1_frontal"
    assert table.groups["patient"] == ("patient41055", "patient11922", "patient00007", "patient00007")
    assert (table.labels["task"], table.labels["shortcut"]) == ((1, 1, 0, 0), (1, 0, 1, 0))
    assert table.labels["PM"] == table.labels["shortcut"]
    assert table.groups["split"] == ("train", "train", "test", "test")
    assert "0 rows without a file, 1 file without a row" in joined.sentence()
    (root / names[1]).unlink()
    joined = read_study("chexpert", root, chexpert_annotations(tmp_path))
    assert below(joined.table, root) == [names[0], *names[2:]]
    assert joined.table.labels["shortcut"] == (1, 1, 0)
    assert "1 row without a file (patient11922_study3_view1_frontal.jpg)" in joined.sentence()


def nih_annotations(folder: Path, split: str = "train,train,test,test") -> Path:
    rows = zip(NIH, (1, 1, 0, 0), ("1.0", "0.0", "", ""), (1, 0, 1, 0), split.split(","), strict=True)
    lines = [f"{name}.png,{task},{known},{drain},{part}" for name, task, known, drain, part in rows]
    head = "img_name,Pneumothorax,drain_annotated,Drain,split"
    return write(folder / "nih_drain_meta.csv", "\n".join([head, *lines]) + "\n")


def nih_official(root: Path) -> None:
    head = "Image Index,Finding Labels,Follow-up #,Patient ID,OriginalImage[Width,Height],\n"  # as published
    findings = ["Pneumothorax|Effusion", "No Finding", "Effusion", "Mass"]
    rows = [
        f"{name}.png,{found},0,{int(name[:8])},2682,2749,\n"
        for name, found in zip(NIH, findings, strict=True)
    ]
    write(root / "Data_Entry_2017.csv", head + "".join(rows))
    write(root / "train_val_list.txt", "".join(f"{name}.png\n" for name in NIH[:2]))
    write(root / "test_list.txt", "".join(f"{name}.png\n" for name in NIH[2:3]))


@pytest.mark.parametrize("flat", [False, True])
def test_nih(tmp_path: Path, flat: bool) -> None:
    root = tmp_path / "NIH"
    names = [f"{'' if flat else f'images_{i % 2 + 1:03d}/images/'}{name}.png" for i, name in enumerate(NIH)]
    touch(root, *names)
    table = read_study("nih", root, nih_annotations(tmp_path)).table
    assert below(table, root) == names
    assert table.groups == {
        "split": ("train", "train", "test", "test"),
        "patient": ("00030651", "00000013", "00000013", "00000099"),
    }
    assert (table.labels["task"], table.labels["shortcut"]) == ((1, 1, 0, 0), (1, 0, 1, 0))
    assert table.labels["drain_annotated"][:2] == (1, 0)
    assert np.isnan(table.labels["drain_annotated"][2:]).all()
    nih_official(root)
    table = read_study("nih", root, nih_annotations(tmp_path), task="Effusion").table
    assert table.labels["task"] == (1, 0, 1, 0)
    assert table.labels["Pneumothorax"] == (1, 1, 0, 0)  # the annotations win
    assert table.groups["split"] == ("train", "train", "test", "test")
    assert table.groups["official_split"] == ("train", "train", "test", "")


def test_nih_by_itself(tmp_path: Path) -> None:
    root = touch(tmp_path, *(f"images_001/images/{name}.png" for name in NIH))
    with pytest.raises(
        InputError, match=r"a file with labels, got none; give it with --annotations nih_drain"
    ):
        read_study("nih", root)
    nih_official(root)
    table = read_study("nih", root, shortcut="Mass").table
    assert (table.labels["task"], table.labels["shortcut"]) == ((1, 0, 0, 0), (0, 0, 0, 1))
    assert table.groups["split"] == ("train", "train", "test", "")
    write(root / "Data_Entry_2017.csv", "Image,Finding Labels\na.png,Mass\n")
    with pytest.raises(DataError, match=r"Data_Entry_2017\.csv: expected a column 'Image Index'"):
        read_study("nih", root)


# --- what does not fit -----------------------------------------------------------------------------------


def test_what_does_not_fit_is_one_sentence(tmp_path: Path) -> None:
    root = touch(tmp_path / "images", "cat.png", "notes.txt")
    annotations = nih_annotations(tmp_path)
    cases: list[tuple[Path, Path | None, str]] = [
        (root, annotations, r"images named as in .*meta\.csv, such as '00030651_005\.png', got 'cat\.png'"),
        (tmp_path / "none", annotations, "none: expected a folder with images, got no such folder"),
        (touch(tmp_path / "empty", "a.txt"), annotations, "empty: expected images, got none"),
        (root, tmp_path / "none.csv", r"none\.csv: expected a table with labels, got no such file"),
        (root, write(tmp_path / "a.csv", "name,y\ncat,1\n"), r"a\.csv: expected a column 'img_name' or"),
        (
            root,
            write(tmp_path / "b.csv", "img_name,y\n"),
            r"as in .*b\.csv, which has no rows, got 'cat\.png'",
        ),
        (
            root,
            write(tmp_path / "c.csv", "img_name\ncat.png\ndog.png\ncat.jpg\n"),
            r"c\.csv: expected different ids, got 'cat' for line 2 and line 4; remove one",
        ),
        (
            root,
            write(tmp_path / "d.csv", "img_name,Pneumothorax,Drain\ncat.png,1,2\n"),
            r"d\.csv line 2 column 'Drain' of image 'cat': expected 0, 1 or blank, got 2",
        ),
        (
            root,
            write(tmp_path / "e.csv", "img_name,Pneumothorax,Drain\ncat.png,yes,1\n"),
            r"e\.csv line 2 column 'Pneumothorax': expected numbers, got 'yes' for image 'cat'",
        ),
        (
            root,
            write(tmp_path / "f.csv", "img_name,Pneumothorax,Drain,split\ncat.png,1,1,dev\n"),
            r"f\.csv line 2 column 'split': expected train, val, test or blank, got 'dev'",
        ),
        (
            root,
            write(tmp_path / "g.csv", "img_name,Drain\ncat.png,1\n"),
            "--task: column of .*got 'Pneumothorax'",
        ),
    ]
    for folder, labels, sentence in cases:
        with pytest.raises(FastdimeError, match=sentence) as caught:
            read_study("nih", folder, labels)
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="data set: expected one of celeba, chexpert, nih, isic, own"):
        read_study("nhi", root)


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    root = touch(tmp_path / "images", f"a/{NIH[0]}.png", f"b/{NIH[0]}.png")
    with pytest.raises(DataError, match=r"one file for each image, got a/00030651_005\.png and b/00030651"):
        read_study("nih", root, nih_annotations(tmp_path))


# --- ISIC ------------------------------------------------------------------------------------------------


def test_isic_layout(tmp_path: Path) -> None:
    root = tmp_path / "isic"
    touch(
        root, "ISIC2018_Task3_Training_Input/ISIC_0024306.jpg", "ISIC2018_Task3_Test_Input/ISIC_0034524.jpg"
    )
    labels = write(tmp_path / "m.csv", "img_name,Mal,Ruler,split\nISIC_0024306.jpg,1.0,0.0,test\n")
    joined = read_study("isic", root, labels)
    assert below(joined.table, root) == ["ISIC2018_Task3_Training_Input/ISIC_0024306.jpg"]
    assert (joined.table.labels["task"], joined.table.labels["shortcut"]) == ((1,), (0,))
    assert joined.files_without_row == ()


def test_real_isic(tmp_path: Path) -> None:
    """The counts of malignant and ruler are those that were published with the annotations."""
    images, labels = real("data/isic2018_128"), real("annotations/isic_ruler_meta.csv")
    joined = read_study("isic", images, labels)
    table = joined.table
    assert (len(table), len(joined.rows_without_file), joined.files_without_row) == (7017, 2998, ())
    cells = Counter(zip(table.groups["split"], table.labels["task"], table.labels["shortcut"], strict=True))
    train, test = (
        [cells[split, d, s] for d, s in ((1, 1), (1, 0), (0, 1), (0, 0))] for split in ("train", "test")
    )
    assert (train, test) == ([429, 910, 760, 4207], [47, 104, 83, 477])
    again = read_table(write_table(table, tmp_path / "t.csv", images), root=images)
    assert again == table
    with Image.open(again.paths[-1]) as image:
        assert image.size == (128, 128)


@pytest.mark.parametrize(
    ("name", "file", "cells"),
    [
        ("chexpert", "che_pm_meta.csv", {"train": [872, 4993, 938, 19186], "test": [97, 555, 105, 2132]}),
        ("nih", "nih_drain_meta.csv", {"train": [1732] * 4, "test": [432] * 4}),
    ],
)
def test_published_annotations(tmp_path: Path, name: str, file: str, cells: dict[str, list[int]]) -> None:
    """With an empty file for every image, the table has the published counts."""
    annotations = real(f"annotations/{file}")
    names = [line.partition(",")[0] for line in annotations.read_text().splitlines()[1:]]
    touch(tmp_path, *names)
    table = read_study(name, tmp_path, annotations).table
    found = Counter(zip(table.groups["split"], table.labels["task"], table.labels["shortcut"], strict=True))
    order = ((1, 1), (1, 0), (0, 1), (0, 0))
    assert {split: [found[split, *pair] for pair in order] for split in cells} == cells
