"""What an audit cannot do is one clear line, or the verdict "cannot tell"."""

import json
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

from fastdime.audit.output import write_audit
from fastdime.errors import DataError, FastdimeError
from support.shortcuts import N, World, write_bundle, write_images


def wide(x: Tensor) -> Tensor:
    return nn.Linear(32 * 32, 1)(x.flatten(1))


@pytest.mark.parametrize(
    ("changes", "models", "sentence"),
    [
        (
            {"shortcuts": {"marc": "B"}},
            None,
            "label column: expected one of .* got 'marc'; did you mean 'mark'",
        ),
        ({"shortcuts": {"mark": "B", "marc": "B"}}, None, "got 'marc'; did you mean 'mark'"),
        ({"task": "sikc"}, None, "column: expected one of .*; did you mean 'sick'"),
        ({"by": ("site", "siet")}, None, "column: .*; did you mean 'site'"),
        ({"group": "patinet"}, None, "expected a column 'patinet'"),
        ({"task": "site"}, None, "column 'site': expected numbers, got 'south' for image 'image-0'"),
        ({"shortcuts": {"site": "B"}}, None, "column 'site': expected numbers"),
        (
            {"where": "mark=0"},
            None,
            r"column 'mark': expected images that show the shortcut \(1\), got none in 8",
        ),
        ({"where": "site=east"}, None, "--where site=east: expected at least one such row, got none"),
        ({"data": Path("nowhere.csv")}, None, "nowhere.csv: expected a table, .* got no such file"),
        ({"shortcuts": {"mark": "nowhere"}}, None, "bundle nowhere: expected a folder"),
        ({"shortcuts": {"mark": None}}, None, "model leaning: expected a table of answers, or a bundle"),
        ({"shortcuts": {"mark": None}}, {}, "audit: expected a bundle to make pictures with, or a table of"),
        ({"oracle": "nowhere"}, {}, "classifier nowhere: expected"),
        (
            {},
            {"net": wide},
            r"model net: classifier: .* takes images of shape \(1, 1, 16, 16\), got RuntimeError",
        ),
        ({}, {"net": "nowhere.onnx"}, "nowhere.onnx"),
        ({}, {"net": "nowhere.csv"}, "nowhere.csv: expected a table of answers .* got nothing there"),
        ({}, {"net": "no_such_module:net"}, "no_such_module"),
        ({"method": "fastdiem"}, None, "did you mean 'fastdime'"),
        ({"settings": {"tua": 3}}, None, "did you mean 'tau'"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_made(
    changes: dict[str, Any], models: dict[str, object] | None, sentence: str, world: World, tmp_path: Path
) -> None:
    if "shortcuts" in changes:
        given = changes["shortcuts"].items()
        changes = changes | {"shortcuts": {c: str(world.bundle) if b == "B" else b for c, b in given}}
    with pytest.raises(FastdimeError, match=sentence) as error:
        world.audit(tmp_path / "out", models, **changes)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_constant_predictions(made: Any) -> None:
    [row] = made.world.audit(made.out, {"constant": lambda x: 0 * x.mean((1, 2, 3)) + 2}).audit.rows
    assert row.verdict == "cannot tell"
    assert row.reason == "the effect is 0 in every image, as if the predictions were constant"


def test_three_images(world: World, tmp_path: Path) -> None:
    found = world.audit(tmp_path, limit=3, task="sick")
    assert found.audit.rows[0].verdict == "cannot tell"
    assert found.audit.rows[0].reason == "there are 3 images, and at least 10 are needed"
    path = write_audit(found, tmp_path)
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_no_images(world: World, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("id,path,mark\n")
    with pytest.raises(DataError, match="expected at least one image, got no rows"):
        world.audit(tmp_path / "out", data=table)


def test_blank_labels_are_left_out_and_told(world: World, tmp_path: Path) -> None:
    labels = ["", "1", "0", "1"] * 4
    table = write_images(tmp_path / "images", N, labels)
    found = world.audit(tmp_path / "out", data=table, controls=0).audit
    assert found.warnings == ("mark: 4 of 16 images have no label and are left out",)
    assert (found.images, found.generators[0].images, found.rows[0].mad.n) == (16, 12, 12)
    with pytest.raises(DataError, match=r"images that show the shortcut \(1\), got none in 0 labelled"):
        world.audit(tmp_path / "none", data=write_images(tmp_path / "b", 4, [""] * 4))


def test_images_that_all_have_it(world: World, tmp_path: Path) -> None:
    found = world.audit(tmp_path, where="mark=1", limit=4, controls=0).audit
    assert found.warnings == ("mark: all images show the shortcut, so it is only removed, never added",)
    assert (found.generators[0].additions, found.rows[0].md_without.value) == (0, None)


def test_images_that_cannot_be_read(world: World, tmp_path: Path) -> None:
    table = write_images(tmp_path / "images", 4)
    (tmp_path / "images" / "1.png").write_bytes(b"no image")
    found = world.audit(tmp_path / "out", data=table).audit
    assert (found.images, found.generators[0].failed, found.rows[0].mad.n) == (4, 1, 3)
    assert found.warnings[0].startswith("mark: 1 images could not be edited, such as")
    for i in range(4):
        (tmp_path / "images" / f"{i}.png").unlink()
    with pytest.raises(
        DataError, match=r"images of mark: expected one or more that can be edited, got none; "
    ):
        world.audit(tmp_path / "other", data=table)


def test_a_bundle_without_an_oracle_is_told(world: World, made: Any, tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "bundle", oracles=())
    found = world.audit(tmp_path / "out", shortcuts={"mark": str(bundle)}, limit=4, controls=0).audit
    said = "mark: no independent oracle; whether the shortcut went or came is the guide's own word"
    assert found.warnings == (said,)
    assert found.generators[0].compliance.oracle == "squares, the guide itself"
    own = made.world.audit(made.out, oracle=str(world.bundle / "oracles" / "task")).audit
    assert own.generators[0].compliance.independent


def test_doubts_about_edits_are_told(world: World, tmp_path: Path) -> None:
    weak = {"scales": [1.0], "tau": 9}  # more noise, and hardly any guidance
    found = world.audit(tmp_path, limit=4, controls=4, settings=weak).audit
    assert "mark: the oracle sees the shortcut added in only 0% of the images" in found.warnings
    assert any(said.startswith("mark: self-test 'null edit' failed: the chain") for said in found.warnings)
