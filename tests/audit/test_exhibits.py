from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastdime.audit import exhibits
from fastdime.audit.exhibits import PATHS, write_exhibits
from fastdime.data import io
from fastdime.errors import MissingExtra
from fastdime.terminal import silence_of
from support.shortcuts import N, leaning

pytest.importorskip("captum", reason="SmoothGrad is made with captum")


def test_pictures_of_the_images_that_move_most_and_least(made: Any, tmp_path: Path) -> None:
    request = made.world.request(pictures=4)
    assert write_exhibits(made.found, request, {"leaning": leaning}, tmp_path, silence_of) == []
    sizes = made.found.effects["mark", "leaning", "class 1"].size
    order = np.argsort(-sizes, kind="stable")
    wanted = {f"image-{i}" for i in (order[0], order[-1], order[1], order[-2])}
    assert {path.stem for path in (tmp_path / "mark/smoothgrad/leaning").iterdir()} == wanted
    paths = sorted(path.name for path in (tmp_path / "mark/path").iterdir())
    assert len(paths) == PATHS
    assert set(paths) <= wanted
    first = io.read(tmp_path / "mark/path" / paths[0] / "0.png").x
    assert first.equal(io.read(made.world.table.parent / f"{paths[0].removeprefix('image-')}.png").x)


def test_none_are_made_unless_asked_for(made: Any, tmp_path: Path) -> None:
    write_exhibits(made.found, made.world.request(pictures=0), {"leaning": leaning}, tmp_path, silence_of)
    assert not any(tmp_path.iterdir())


def test_answers_from_elsewhere_have_no_gradient(made: Any, tmp_path: Path) -> None:
    lines = [f"image-{i},0.5,0.{400 + 10 * i}" for i in range(N)]
    (tmp_path / "net.csv").write_text("\n".join(["id,before,after", *lines]))
    models = {"net": tmp_path / "net.csv"}
    found = made.world.audit(made.out, models)
    write_exhibits(found, made.world.request(pictures=1), models, tmp_path / "out", silence_of)
    assert [path.name for path in (tmp_path / "out/mark").iterdir()] == ["path"]
    alone = made.world.audit(made.out, models, shortcuts={"mark": None})
    asked = made.world.request(shortcuts={"mark": None})
    write_exhibits(alone, asked, models, tmp_path / "none", silence_of)
    assert not (tmp_path / "none").exists()


def test_a_missing_package_is_told_and_the_rest_made(
    made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object) -> None:
        raise MissingExtra("captum", "SmoothGrad", "saliency")

    monkeypatch.setattr(exhibits, "write_smoothgrad", refuse)
    asked = made.world.request(pictures=1)
    [said] = write_exhibits(made.found, asked, {"leaning": leaning}, tmp_path, silence_of)
    assert said.startswith("no SmoothGrad pictures: SmoothGrad")
    assert len(list((tmp_path / "mark/path").iterdir())) == 1
