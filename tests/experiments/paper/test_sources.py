"""Which images an experiment is done on."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fastdime.bundles import shipped
from fastdime.errors import FastdimeError, InputError
from fastdime.experiments.paper import sources
from fastdime.experiments.paper.catalogue import experiment
from fastdime.experiments.paper.experiment import Plan, Source
from fastdime.experiments.paper.sources import Given, parse_named, read_images, sources_of

GRID, PLANE = experiment("counterfactuals"), experiment("toy2d")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text("id,path,split,shortcut\na,a.png,train,1\nb,b.png,test,0\nc,c.png,test,1\n")
    return path


def test_all_phantoms_unless_something_is_named() -> None:
    assert [source.name for source in sources_of(GRID, "small", Given())] == shipped()
    named = sources_of(GRID, "small", Given(phantoms=("skin-ruler", "skin-ruler")))
    assert named == (Source("skin-ruler", None, "skin-ruler"),)
    assert named[0].exact


def test_an_experiment_may_have_phantoms_of_its_own() -> None:
    own = replace(GRID, phantoms=("skin-ruler",))
    assert [source.name for source in sources_of(own, "small", Given())] == ["skin-ruler"]
    assert sources_of(own, "small", Given(bundles={"chest-drain": "nowhere"})) == sources_of(
        own, "small", Given()
    )
    asked = sources_of(own, "small", Given(phantoms=("chest-drain",)))
    assert [source.name for source in asked] == ["chest-drain"]


def test_full_scale_needs_data_but_for_the_plane(tmp_path: Path) -> None:
    assert sources_of(GRID, "full", Given()) == ()
    assert len(sources_of(PLANE, "full", Given())) == len(shipped())
    with pytest.raises(InputError, match=r"experiment: expected a data set and its bundle .*, got none"):
        Plan("full", (), tmp_path)


def test_a_data_set(table: Path) -> None:
    table.write_text("id,path,Mal,Ruler\na,a.png,0,1\n")
    given = Given(
        tables={"isic": str(table)},
        bundles={"isic": "skin-ruler"},
        tasks={"isic": "Mal"},
        shortcuts={"isic": "Ruler"},
    )
    (source,) = sources_of(GRID, "full", given)
    assert source == Source("isic", table, "skin-ruler", "Mal", "Ruler")
    assert not source.exact


def test_another_bundle_for_a_phantom() -> None:
    (source,) = sources_of(GRID, "small", Given(("skin-ruler",), bundles={"skin-ruler": "face-smile"}))
    assert source.bundle == "face-smile"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"phantoms": ("skin-rular",)}, "--phantom: expected one of .* did you mean 'skin-ruler'"),
        ({"phantoms": ("face-smile",), "bundles": {"face-smile": "nowhere"}}, "bundle nowhere: expected"),
        (
            {"phantoms": ("face-smile",), "bundles": {"face-smile": "chest-drain"}},
            "--bundle face-smile=chest-drain: expected one for images of 3 channels, got 1",
        ),
        ({"tables": {"isci": "t.csv"}}, "--data: expected one of .* did you mean 'isic'"),
        ({"tables": {"isic": "t.csv"}}, "--bundle: expected isic=FOLDER.*, got none"),
        ({"tables": {"isic": "t.csv"}, "bundles": {"isic": "skin-ruler"}}, "--data isic: .* no file t.csv"),
        ({"bundles": {"isic": "skin-ruler"}}, "--bundle isic: expected --data isic or"),
        ({"tasks": {"skin-ruler": "sick"}}, "--task skin-ruler: expected a --data skin-ruler, got none"),
        ({"shortcuts": {"isic": "Ruler"}}, "--shortcut isic: expected a --data isic"),
    ],
)
def test_what_is_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FastdimeError, match=sentence):
        sources_of(GRID, "small", Given(**given))


@pytest.mark.parametrize("texts", [["isic"], ["isic="], ["=t.csv"], ["isic=a", "isic=b"]])
def test_names_and_values(texts: list[str]) -> None:
    assert parse_named("--data", ["isic=a=b", "nih=c"]) == {"isic": "a=b", "nih": "c"}
    with pytest.raises(InputError, match="--data: expected NAME=VALUE, each name once, got"):
        parse_named("--data", texts)


def test_images_are_those_of_the_test_split(table: Path) -> None:
    assert read_images(Source("isic", table, "skin-ruler"), table).ids == ("b", "c")
    table.write_text("id,path,shortcut\na,a.png,1\nb,b.png,0\n")
    assert read_images(Source("isic", table, "skin-ruler"), table).ids == ("a", "b")


@pytest.mark.parametrize("column", ["Ruler", "shortcut"])
def test_a_table_without_the_column_is_refused_by_the_names_of_its_options(table: Path, column: str) -> None:
    table.write_text("id,path,site,mark\na,a.png,north,1\n")
    shortcuts = {} if column == "shortcut" else {"isic": column}
    given = Given(tables={"isic": str(table)}, bundles={"isic": "skin-ruler"}, shortcuts=shortcuts)
    with pytest.raises(InputError) as refusal:
        sources_of(GRID, "small", given)
    assert str(refusal.value) == (
        f"--data isic={table}: expected a column '{column}', got mark, site; "
        "name the column of the shortcut: --shortcut isic=COLUMN"
    )
    assert len(sources_of(PLANE, "small", given)) == 1  # which has no use for it


def test_a_phantom_without_a_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "shipped", lambda: ["chest-drain"])
    with pytest.raises(InputError) as refusal:
        sources_of(GRID, "small", Given(("skin-ruler",)))
    assert str(refusal.value) == (
        "--phantom skin-ruler: expected one whose bundle comes with fastdime (chest-drain), got one without; "
        "give a bundle for it: --bundle skin-ruler=FOLDER"
    )
    assert sources_of(GRID, "small", Given(("skin-ruler",), bundles={"skin-ruler": "face-smile"}))
