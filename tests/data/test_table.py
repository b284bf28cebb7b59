import errno
import math
import os
import re
import time
from pathlib import Path

import pytest

from fastdime.data.table import Table, read_table, write_table
from fastdime.errors import DataError, InputError


def table(folder: Path, text: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def test_csv_columns_become_labels_or_text(tmp_path: Path) -> None:
    text = (
        ",path,id,label,soft,flag,split,patient,odd\n0,b/a.png,A 1,1,0.5,True,train,007,1_0\n"
        f'1,{tmp_path}/x/c.dcm,"q,2",,-1e-3,false,NA,010,2\n\n2,b/../d.jpg,z,nan,.5,TRUE,test,011,1e999\n'
    )
    result = read_table(table(tmp_path, "\ufeff" + text))  # as Excel writes it
    assert result.ids == ("A 1", "q,2", "z")
    assert result.paths == (tmp_path / "b/a.png", tmp_path / "x/c.dcm", tmp_path / "b/../d.jpg")
    assert result.column("label")[0] == 1
    assert all(math.isnan(value) for value in result.column("label")[1:])
    assert set(result.labels) == {"label", "soft", "flag"}
    assert result.labels["soft"] == (0.5, -0.001, 0.5)
    assert result.labels["flag"] == (1, 0, 1)
    assert result.groups == {
        "split": ("train", "NA", "test"),
        "patient": ("007", "010", "011"),
        "odd": ("1_0", "2", "1e999"),
    }


def test_ids_come_from_the_paths(tmp_path: Path) -> None:
    paths = [
        "a.png",
        "./b/c.JPG",
        "1.2.840.7",
        "1.2.840.8",
        "d//e.npy",
        "/f/g.tiff",
        "h.v2.bmp",
        "x/../i.dcm",
    ]
    result = read_table(table(tmp_path, "\n".join(["path", *paths])), root="/")
    assert result.ids == ("a", "b/c", "1.2.840.7", "1.2.840.8", "d/e", "/f/g", "h.v2", "i")


def test_head_keeps_rows_together(tmp_path: Path) -> None:
    result = read_table(table(tmp_path, "path\ty\tg\na.png\t1\tu\nb.png\t0\tv\n", "t.tsv"))
    assert len(result) == 2
    assert result.head(5) == result
    assert result.head(1) == Table(("a",), (tmp_path / "a.png",), {"y": (1.0,)}, {"g": ("u",)})
    with pytest.raises(InputError, match="1 or more, got 0"):
        result.head(0)


def test_wrong_columns_are_named(tmp_path: Path) -> None:
    result = read_table(table(tmp_path, "path,Cardiomegaly,PM\na.png,1,0\nb.png,1,O\n"))
    with pytest.raises(InputError, match="got 'cardiomegaly'; did you mean 'Cardiomegaly'"):
        result.column("cardiomegaly")
    with pytest.raises(InputError, match="column 'PM': expected numbers, got 'O' for image 'b'"):
        result.column("PM")
    with pytest.raises(InputError, match="column: expected one of Cardiomegaly, PM, got 'PN'"):
        result.text("PN")


def test_labels_of_yes_and_no(tmp_path: Path) -> None:
    path = table(tmp_path, "path,a,b,c\nx.png,1,0,1\ny.png,,2,1\n\nz.png,0,0.5,no\n")
    result = read_table(path)
    assert result.binary("a")[::2] == (1, 0)
    assert math.isnan(result.binary("a")[1])
    place = rf"^{re.escape(str(path))} line "
    with pytest.raises(DataError, match=place + "3 column 'b' of image 'y': expected 0, 1 or blank, got 2;"):
        result.binary("b")
    with pytest.raises(DataError, match=place + "5 column 'b' of image 'z': .*, got 0.5;"):
        result.take([2]).binary("b")
    with pytest.raises(InputError, match=place + "5 column 'c': expected numbers, got 'no' for image 'z'"):
        result.binary("c")
    with pytest.raises(DataError, match=r"^column 'y' of image 'i': expected 0, 1 or blank, got -1"):
        Table(("i",), (Path("i.png"),), {"y": (-1.0,)}).binary("y")


def test_names_of_columns_are_free(tmp_path: Path) -> None:
    path = table(tmp_path, "file,name,person,path\na.png,u,1,7\nb.png,v,2,8\n")
    result = read_table(path, path_column="file", id_column="name", group="person")
    assert (result.ids, result.paths) == (("u", "v"), (tmp_path / "a.png", tmp_path / "b.png"))
    assert (result.labels, result.groups) == ({"path": (7, 8)}, {"person": ("1", "2")})
    with pytest.raises(DataError, match=r"t\.csv: expected a column 'patient', got columns 'file', 'name'"):
        read_table(path, path_column="file", group="patient")


def test_groups_are_text_and_blank_ones_stand_alone(tmp_path: Path) -> None:
    big = 2**60
    path = table(tmp_path, f"path,split,patient,soft,uid\na,1,7,.5,{big}\nb,2,,,{big + 1}\nc,1,,1,3\n")
    result = read_table(path)
    assert result.groups["patient"] == ("7", "", "")
    assert result.groups["split"] == ("1", "2", "1")
    assert result.text("soft") == ("0.5", "", "1")
    assert result.text("uid") == (str(big), str(big + 1), "3")  # as floats the first two would be equal
    assert len(set(result.grouping("patient"))) == 3
    assert result.grouping("split") == ("1", "2", "1")


def test_images_stay_below_the_root(tmp_path: Path) -> None:
    path = table(touch(tmp_path, "a/x.png"), f"path,y\nx.png,1\n\n{tmp_path}/a/y.png,1\n")
    assert read_table(path, root=tmp_path / "a").paths == (tmp_path / "a/x.png", tmp_path / "a/y.png")
    for cell, root in (("../x.png", None), ("/etc/x.png", None), ("b/../../x.png", tmp_path / "a")):
        table(tmp_path, f"path\na.png\n{cell}\n")
        with pytest.raises(
            DataError, match=rf"t\.csv line 3: expected an image below .*, got '{cell}'; .*--root"
        ):
            read_table(path, root=root)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    labels = {"y": (1.0, math.nan), "soft": (0.1 + 0.2, -1e-9)}
    groups = {"split": ("train", "1"), "note": ('a "b", c\nd', ""), "patient": ("007", "8")}
    before = Table(("u", "v"), (tmp_path / "i/a.png", tmp_path / "i/b.png"), labels, groups)
    path = write_table(before, tmp_path / "t.csv", tmp_path / "i")
    after = read_table(path, root=tmp_path / "i")
    assert (after.ids, after.paths, after.groups) == (before.ids, before.paths, before.groups)
    assert after.labels["soft"] == labels["soft"]
    assert after.labels["y"][0] == 1
    assert math.isnan(after.labels["y"][1])
    with pytest.raises(DataError, match=r"image 'u': expected a file below .*/j, got .*--root"):
        write_table(before, tmp_path / "t.csv", tmp_path / "j")
    for name in ("t.tsv", "t", "none/t.csv"):
        with pytest.raises(InputError, match=r"table to write: expected a file that ends with \.csv"):
            write_table(before, tmp_path / name, tmp_path)
    odd = Table(("u",), (tmp_path / "\udcff.png",))
    with pytest.raises(DataError, match="expected file names in UTF-8"):
        write_table(odd, tmp_path / "t.csv", tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a header with different names, got an empty file"),
        ("\n\n", "got an empty file"),
        ("path,y\n", "at least one image, got no rows"),
        ("image,y\na.png,1\n", "a column 'path', got columns 'image', 'y'; rename the column"),
        ("path;y\na.png;1\n", "got columns 'path;y'"),
        ("path,y,y\na.png,1,2\n", "different names, got 'y' twice"),
        ("path,y\na.png,1\n\nb.png\n", "line 4: expected 2 cells, got 1; mend the row"),
        ("path,y\na.png,1,\n", "line 2: expected 2 cells, got 3"),
        ("path,y\na.png,1\n,0\n", "line 3 column 'path': expected a text, got an empty cell"),
        ("path,id\na.png,u\nb.png,\n", "line 3 column 'id': expected a text"),
        ("path,id\na.png,u\nb.png,v\nc.png,u\n", "different ids, got 'u' for line 2 and line 4; name the"),
        ("path\na.png\na.jpg\n", "different ids, got 'a' for line 2 and line 3"),
        ('path,y\n"a.png,1\n', "a readable table, got unexpected end of data"),
        (f"path\n{'a' * 140_000}\n", "a readable table, got field larger than field limit"),
    ],
)
def test_bad_csv_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    path = table(tmp_path, text)
    with pytest.raises(DataError) as caught:
        read_table(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_bad_sources(tmp_path: Path) -> None:
    (tmp_path / "latin.csv").write_bytes("path,y\né.png,1\n".encode("latin-1"))
    (tmp_path / "t.parquet").write_bytes(b"PAR1 nothing")
    touch(tmp_path, "t.txt", "empty/.hidden.png", "empty/notes.txt")
    for name, message in [
        ("latin.csv", r"latin\.csv: expected text in UTF-8"),
        ("t.parquet", r"t\.parquet: expected a readable table"),
        ("t.txt", r"t\.txt: expected a folder or a file of kind .*, got '\.txt'"),
        ("none.csv", r"none\.csv: expected a table, a folder or an image, got no such file"),
        ("t.txt/x.csv", r"x\.csv: expected a table, a folder or an image, got no such file"),
        ("empty", r"empty: expected images \(.*\), got none"),
    ]:
        with pytest.raises(DataError, match=message):
            read_table(tmp_path / name)


def test_parquet(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas", reason="reads parquet")
    pytest.importorskip("pyarrow", reason="pandas reads parquet with it")
    frame = pd.DataFrame({"path": ["a.png", "b.png"], "y": [1, None], "k": [2, 3], "f": [True, False]})
    frame.assign(g=["u", None]).to_parquet(tmp_path / "t.parquet")
    result = read_table(tmp_path / "t.parquet")
    assert result.ids == ("a", "b")
    assert result.labels["y"][0] == 1
    assert math.isnan(result.labels["y"][1])
    assert (result.labels["k"], result.labels["f"]) == ((2, 3), (1, 0))
    assert result.groups == {"g": ("u", "")}
    frame.assign(id=["x", "x"]).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match="'x' for row 1 and row 2"):
        read_table(tmp_path / "t.parquet")


def test_folder_is_sorted_and_has_classes(tmp_path: Path) -> None:
    touch(tmp_path, "sick/b.png", "sick/deep/a.JPG", "ok/b.tif", "ok/.a.png", "ok/notes.txt", ".cache/c.png")
    result = read_table(tmp_path)
    assert result.ids == ("ok/b", "sick/b", "sick/deep/a")
    assert result.paths[0] == tmp_path / "ok/b.tif"
    assert result.groups == {"class": ("ok", "sick", "sick")}
    assert read_table(touch(tmp_path, "root.png")).groups == {}


def test_one_image(tmp_path: Path) -> None:
    touch(tmp_path, "a.b.png")
    assert read_table(str(tmp_path / "a.b.png")) == Table(("a.b",), (tmp_path / "a.b.png",))


def test_same_stem_in_a_folder_is_refused(tmp_path: Path) -> None:
    touch(tmp_path, "u/a.png", "u/a.jpg", "v/a.png")
    with pytest.raises(DataError, match=r"got 'u/a' for u/a\.jpg and u/a\.png; name the images in a table"):
        read_table(tmp_path)


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    touch(tmp_path, "elsewhere/a.png", "data/sub/b.png")
    (tmp_path / "data/linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data/sub/loop").symlink_to(tmp_path / "data")
    assert read_table(tmp_path / "data").ids == ("linked/a", "sub/b")


def test_a_closed_folder_is_not_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = os.scandir

    def scandir(path: str) -> "os._ScandirIterator[str]":
        if Path(path).name == "closed":  # permissions would not stop the superuser
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return usual(path)

    touch(tmp_path, "a/b.png", "closed/d.png")
    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(DataError, match=r"closed: expected a folder that can be read, got Permission denied"):
        read_table(tmp_path)


def test_many_rows_are_quick(tmp_path: Path) -> None:
    rows = (f"images/{i:06d}.png,{i % 2},{'test' if i % 5 else 'train'}" for i in range(200_000))
    path = table(tmp_path, "path,y,split\n" + "\n".join(rows))
    start = time.process_time()
    result = read_table(path)
    assert time.process_time() - start < 6  # 1.3 s on a slow core that has nothing else to do
    assert (len(result), result.ids[-1], result.labels["y"][-1]) == (200_000, "images/199999", 1)
