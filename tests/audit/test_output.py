import csv
import json
from pathlib import Path
from typing import Any

import pytest

from fastdime.audit.output import EFFECT_COLUMNS, TABLE, read_audit, table_row, write_audit
from fastdime.errors import DataError, FastdimeError, InputError
from support.audits import Plan, interval, row
from support.shortcuts import N


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def folder(made: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("written") / "new"
    assert write_audit(made.found, out) == out / "audit.json"
    return out


def test_what_is_written_is_read(made: Any, folder: Path) -> None:
    assert read_audit(folder) == made.found.audit
    assert sorted(path.name for path in folder.iterdir()) == ["audit.json", "effects.csv", "pictures.csv"]


def test_written_twice_it_is_the_same(made: Any, folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    write_audit(made.found, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_effects_of_every_image(made: Any, folder: Path) -> None:
    lines = rows_of(folder / "effects.csv")
    assert list(lines[0]) == [*EFFECT_COLUMNS, "site"]
    assert len(lines) == 2 * N
    effects = made.found.effects["mark", "leaning", "class 1"]
    for i, line in enumerate(lines[:N]):
        assert (line["shortcut"], line["model"], line["output"]) == ("mark", "leaning", "class 1")
        assert (line["id"], line["has"], line["task"]) == (f"image-{i}", str(i % 2), str(i // 2 % 2))
        assert (line["group"], line["site"]) == (f"p{i // 2}", "north" if i % 3 else "south")
        assert float(line["p_before"]) == pytest.approx(effects.before[i], abs=1e-6)
        assert float(line["change"]) == pytest.approx(effects.change[i], abs=1e-6)
        assert float(line["effect"]) == pytest.approx(effects.effect[i], abs=1e-6)
        assert (line["complied"], line["p_truth"]) == ("1", "")
    assert [line["p_null"] != "" for line in lines[:N]] == [i < 4 for i in range(N)]


def test_every_picture_is_listed(made: Any, folder: Path) -> None:
    lines = rows_of(folder / "pictures.csv")
    assert list(lines[0]) == ["shortcut", "id", "picture", "path"]
    counts = {kind: sum(line["picture"] == kind for line in lines) for kind in ("original", "edit", "null")}
    assert counts == {"original": N, "edit": N, "null": 4}
    assert all(Path(line["path"]).is_file() for line in lines)
    assert {line["shortcut"] for line in lines} == {"mark"}


def test_cells_that_are_not_known_are_blank(made: Any, tmp_path: Path) -> None:
    write_audit(made.world.audit(made.out, group="none"), tmp_path)
    line = rows_of(tmp_path / "effects.csv")[0]
    assert (line["task"], line["group"]) == ("", "")


def test_names_that_a_table_must_quote(made: Any, tmp_path: Path) -> None:
    odd = 'net, "new"\n<b>'
    write_audit(made.world.audit(made.out, {odd: lambda x: x.mean((1, 2, 3))}), tmp_path)
    assert {line["model"] for line in rows_of(tmp_path / "effects.csv")} == {odd}
    assert read_audit(tmp_path).rows[0].model == odd


def test_what_a_person_sees_first() -> None:
    told = table_row(row(Plan(), 0, ("drain", "net", "sick")))
    assert tuple(told) == TABLE
    assert (told["effect"], told["low"], told["high"]) == (0.31, 0.28, 0.34)
    bare = row(Plan(), 0, ("drain", "net", "sick")).model_copy(update={"effect": interval(None)})
    assert table_row(bare)["low"] is None


def test_a_folder_without_an_audit(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"expected the folder of an audit, got no audit.json in it; make one"
    ):
        read_audit(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", '{"format": 2}', "{}"])
def test_a_broken_file_is_one_line(folder: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "audit.json").write_text(text)
    with pytest.raises(FastdimeError) as error:
        read_audit(tmp_path)
    assert "audit.json" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_field_of_another_version_is_named(folder: Path, tmp_path: Path) -> None:
    told = json.loads((folder / "audit.json").read_text()) | {"colour": "red"}
    (tmp_path / "audit.json").write_text(json.dumps(told))
    with pytest.raises(DataError, match="got 'colour'"):
        read_audit(tmp_path)
