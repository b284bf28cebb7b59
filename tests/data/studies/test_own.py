"""Images of one's own become a table."""

from pathlib import Path

import pytest

from fastdime.data.studies.own import ColumnNames, read_own
from fastdime.errors import DataError, FastdimeError, InputError


def touch(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def test_a_table_with_names_of_its_own(tmp_path: Path) -> None:
    root = touch(tmp_path / "images", "a.png", "b.png", "d.png")
    path = tmp_path / "labels.csv"
    path.write_text("file,who,sick,marker\na.png,12,1,0\nb.png,12,0,\nc.png,13,0,1\n")
    joined = read_own(root, path, ColumnNames("file", group="who", task="sick", shortcut="marker"))
    table = joined.table
    assert table.ids == ("a", "b")
    assert table.labels["task"] == table.labels["sick"] == (1, 0)
    assert table.labels["shortcut"][0] == 0
    assert table.groups["patient"] == ("12", "12")
    assert joined.sentence() == (
        "2 images in the table; left out: 1 row without a file (c.png), 1 file without a row (d.png)"
    )
    assert "task" not in read_own(root, path, ColumnNames("file")).table.labels


def test_class_folders(tmp_path: Path) -> None:
    root = touch(tmp_path, "ok/a.png", "sick/b.png", "sick/c.png")
    table = read_own(root, names=ColumnNames(task="sick")).table
    assert table.labels["task"] == (0, 1, 1)
    assert table.groups["class"] == ("ok", "sick", "sick")
    assert read_own(root).table.labels == {}
    with pytest.raises(InputError, match=r"--task: column of .* 'sik'"):
        read_own(root, names=ColumnNames(task="sik"))


def test_what_cannot_be_used(tmp_path: Path) -> None:
    root = touch(tmp_path / "images", "a.png")
    path = tmp_path / "labels.csv"
    for text, names, sentence in [
        (
            "path\nb.png\nc.png\n",
            ColumnNames(),
            r"images named as in .*labels\.csv, such as b\.png, got no such",
        ),
        ("file\na.png\n", ColumnNames(), "a column 'path', got columns 'file'"),
        (
            "path,y\na.png,3\n",
            ColumnNames(task="y"),
            "line 2 column 'y' of image 'a': expected 0, 1 or blank",
        ),
        ("path\n../a.png\n", ColumnNames(), r"line 2: expected an image below .*images, got '\.\./a\.png'"),
    ]:
        path.write_text(text)
        with pytest.raises(FastdimeError, match=sentence):
            read_own(root, path, names)
    with pytest.raises(DataError, match="none: expected a folder with images"):
        read_own(tmp_path / "none")
