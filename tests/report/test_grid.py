from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torch import Tensor

from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.methods import settings_for
from fastdime.data.table import Table
from fastdime.diffusion.denoiser import as_denoiser
from fastdime.errors import DataError, InputError
from fastdime.pipeline.explain import explain
from fastdime.report.grid import caption, draw_run
from fastdime.runs import image_path, mask_path, read_run
from fastdime.sheets import CAPTION, GAP, Layout, shown_size, signed


class Brightness:
    """A classifier of any image: is it brighter than middle gray?"""

    def logits(self, x: Tensor, time: Tensor) -> Tensor:
        return 30 * x.mean((1, 2, 3))[:, None]


def make_run(folder: Path, n: int, shape: tuple[int, ...], ids: list[str] | None = None) -> Path:
    """Explain n images of a shape (height, width, and perhaps 3)."""
    paths = []
    for i in range(n):
        levels = np.random.default_rng(i).integers(90, 160, shape, dtype=np.uint8)
        paths.append(folder / f"{i}.png")
        Image.fromarray(levels).save(paths[-1])
    denoiser = replace(as_denoiser(lambda x, t: x * 0.1))
    explainer = Explainer(denoiser, Brightness(), settings_for("fastdime", tau=6, steps=50))
    table = Table(tuple(ids or [str(i) for i in range(n)]), tuple(paths))
    explain(table, explainer, folder / "run")
    return folder / "run"


def drawn(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        assert (image.format, image.mode) == ("PNG", "RGB")
        return np.asarray(image)


def cell(sheet: np.ndarray, layout: Layout, number: int, column: int) -> np.ndarray:
    left, top = layout.corner(number, column)
    return sheet[top : top + layout.shown[1], left : left + layout.shown[0]]


@pytest.mark.parametrize(
    ("shape", "shown"),
    [
        ((32, 32), (128, 128)),
        ((33, 47, 3), (94, 66)),
        ((200, 300, 3), (256, 171)),
        ((224, 150), (150, 224)),
        ((128, 16), (16, 128)),
    ],
)
def test_pictures_keep_their_proportions(
    tmp_path: Path, shape: tuple[int, ...], shown: tuple[int, int]
) -> None:
    assert shown_size(shape[1], shape[0]) == shown
    sheet = drawn(draw_run(make_run(tmp_path, 1, shape), tmp_path / "new" / "sheet.png"))
    layout = Layout(1, shown)
    assert sheet.shape == (*layout.size[::-1], 3)
    assert sheet.shape[0] == shown[1] + 2 * CAPTION + GAP
    left, top = layout.corner(0, 3)
    frame = sheet[top - 1 : top + shown[1] + 1, left - 1 : left + shown[0] + 1]
    for edge in (frame[0], frame[-1], frame[:, 0], frame[:, -1]):
        assert (edge == 192).all()  # silver: a white mask is seen on the white sheet


def test_the_four_pictures_of_an_image(tmp_path: Path) -> None:
    run = make_run(tmp_path, 1, (32, 32))
    sheet = drawn(draw_run(run, tmp_path / "sheet.png"))
    before, after, difference, mask = (
        cell(sheet, Layout(1, (128, 128)), 0, column)[::4, ::4] for column in range(4)
    )
    for shown, path in [
        (before, tmp_path / "0.png"),
        (after, image_path(run, "0")),
        (mask, mask_path(run, "0")),
    ]:
        with Image.open(path) as image:
            assert np.array_equal(shown, np.repeat(np.asarray(image)[..., None], 3, axis=2))
    change = after[..., 0].astype(int) - before[..., 0]
    assert (difference[change == 0] == 255).all()
    red, _, blue = (difference[..., channel].astype(int) for channel in range(3))
    strong = np.abs(change) > np.abs(change).max() / 2
    assert (np.sign(red - blue) == np.sign(change))[strong].all()


def test_signed_differences_have_colours() -> None:
    picture = signed(np.array([[1.0, 0.5, 0.0, -0.5, -1.0]]))
    assert picture[0].tolist() == [
        [200, 30, 30],
        [228, 142, 142],
        [255, 255, 255],
        [142, 158, 228],
        [30, 60, 200],
    ]
    assert (signed(np.zeros((2, 2))) == 255).all()


@pytest.mark.parametrize(("n", "limit", "rows", "across"), [(5, 12, 5, 1), (8, 12, 4, 2), (8, 3, 3, 1)])
def test_rows_and_blocks(tmp_path: Path, n: int, limit: int, rows: int, across: int) -> None:
    sheet = drawn(draw_run(make_run(tmp_path, n, (16, 16)), tmp_path / "sheet.png", limit))
    layout = Layout(min(n, limit), (128, 128))
    assert (layout.rows, layout.across) == (rows, across)
    assert sheet.shape == (rows * (128 + CAPTION + GAP) + CAPTION, across * (4 * (128 + GAP) + GAP), 3)
    for number in range(layout.images):
        with Image.open(tmp_path / f"{number}.png") as image:
            assert np.array_equal(cell(sheet, layout, number, 0)[::8, ::8, 0], np.asarray(image))


def test_any_id_can_be_drawn(tmp_path: Path) -> None:
    ids = ["図" * 5, "a\nb", "\udce9", "x" * 500, "é/ü"]
    draw_run(make_run(tmp_path, len(ids), (16, 16), ids), tmp_path / "sheet.png")
    rest = {"target": 1, "p_before": 0.126, "p_after": 0.9, "valid": True}
    assert caption({"id": "a\n b", **rest}) == "a b: p(class 1) 0.13 -> 0.90, reached"
    assert caption({"id": "é" + "x" * 500, **rest}).startswith("..." + "x" * 40 + ": p")
    assert caption({"id": "é/\udce9", **rest}).startswith("\\xe9/\\udce9: p")
    assert caption({"id": "a", **rest, "valid": False}).endswith(", not reached")


def test_errors_are_left_out(tmp_path: Path) -> None:
    for name in ("a", "b"):
        Image.new("L", (16, 16), 40).save(tmp_path / f"{name}.png")
    denoiser = as_denoiser(lambda x, t: x * 0.1)
    table = Table(("a", "lost", "b"), tuple(tmp_path / f"{name}.png" for name in ("a", "lost", "b")))
    explain(table, Explainer(denoiser, Brightness(), settings_for("fastdime", tau=2)), tmp_path / "run")
    assert len(read_run(tmp_path / "run")[1]) == 3
    sheet = drawn(draw_run(tmp_path / "run", tmp_path / "sheet.png"))
    assert sheet.shape[:2] == Layout(2, (128, 128)).size[::-1]


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    run, out = make_run(tmp_path, 1, (16, 16)), tmp_path / "sheet.png"
    with pytest.raises(InputError, match="limit: expected 1 or more, got 0"):
        draw_run(run, out, 0)
    Image.new("L", (20, 16)).save(tmp_path / "0.png")
    with pytest.raises(DataError, match=r"0\.png: expected 16x16 pixels, got 16x20; it is not the original"):
        draw_run(run, out)
    image_path(run, "0").write_bytes(b"")
    with pytest.raises(DataError, match="got an empty file"):
        draw_run(run, out)
    assert not out.exists()
