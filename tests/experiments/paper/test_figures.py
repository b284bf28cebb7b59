"""The figures show what was computed: the right panels, the recorded masks, and every failure as one."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageColor
from torch import Tensor

from fastdime.audit.pictures import unseen
from fastdime.bundles import SHIPPED, Bundle, BundleInfo
from fastdime.classifiers.load import load_classifier
from fastdime.counterfactuals.methods import METHODS
from fastdime.data.phantoms.write import PhantomSet, write_phantom
from fastdime.data.table import Table, read_table, write_table
from fastdime.errors import InputError, MissingExtra
from fastdime.experiments.paper import figures, gallery, panels, path, stage, teaser
from fastdime.experiments.paper.experiment import Experiment, Plan, Source
from fastdime.experiments.paper.panels import ALARM, FRAME, Board, Panel, Strip
from fastdime.experiments.paper.stage import SEED, Shots, Stage
from fastdime.experiments.truth import pairs, yes
from fastdime.sheets import shown, signed
from fastdime.types import Counterfactuals
from fastdime.weights import weights_hash
from support import tiny
from support.commands import files

NAME = "chest-pacemaker"
TITLES = ["original", "DiME", "FastDiME", "turbo (ours)", "exact truth"]
EXPERIMENT = Experiment(
    "any", "", "", {"small": {"images": 2, "methods": ("dime", "fastdime", "turbo")}, "full": {}}
)
SOURCE = Source(NAME, None, NAME)


def few(method: str) -> dict[str, object]:
    known = METHODS[method].program.model_fields
    small = {name: value for name, value in tiny.SMALL.items() if name in known}
    return small | {"skip_if_met": False}  # a tiny guide with random weights may see anything


@pytest.fixture(autouse=True)
def bundle(monkeypatch: pytest.MonkeyPatch) -> Bundle:
    """Tiny models and few steps, with the oracles that come with the package."""
    settings = {method: few(method) for method in METHODS}
    info = BundleInfo(name=NAME, size=64, channels=1, settings=settings)
    made = Bundle(tiny.denoiser(), tiny.classifier(), info, SHIPPED / NAME)
    monkeypatch.setattr(stage, "load_bundle", lambda source: made)
    return made


@pytest.fixture
def boards(monkeypatch: pytest.MonkeyPatch) -> list[Board]:
    """All figures that are written."""
    seen: list[Board] = []
    write = stage.write_board
    monkeypatch.setattr(
        stage, "write_board", lambda place, board: (seen.append(board), write(place, board))[1]
    )
    return seen


def plan(out: Path, source: Source = SOURCE, **changes: object) -> Plan:
    return Plan("small", (source,), out, **changes)


def found(x_cf: Tensor, target: int) -> Counterfactuals:
    """A result with given counterfactuals, which the guide believes."""
    n = len(x_cf)
    each, whole = torch.full((n,), 0.9), torch.full((n,), target)
    ones = torch.ones(n, dtype=torch.bool)
    return Counterfactuals(
        x_cf, x_cf[:, :1] > 0, 1 - whole, whole, 1 - each, each, ones, each, whole, whole, ~ones
    )


def forbidden(*args: object, **options: object) -> None:
    raise AssertionError("made again")


# Drawing


def colour_at(sheet: Image.Image, x: int, y: int) -> tuple[int, ...]:
    return tuple(np.asarray(sheet)[y, x].tolist())


def test_a_board_has_its_panels_in_place_and_marks_failures() -> None:
    picture = np.full((64, 64, 3), 80, np.uint8)
    picture[0, 0] = (1, 2, 3)
    good, bad = Panel(picture), Panel(picture, ["no"], alarm=True, box=(10, 20, 30, 40))
    board = Board(
        "what", ["a", "b\nc"], [Strip("one", [good, bad]), Strip("two", [Panel(), good], apart=True)], "l m"
    )
    sheet = panels.draw_board(board)
    alarm, orange = ImageColor.getrgb(ALARM), ImageColor.getrgb(panels.BOX)
    assert (board.shown, sheet.size) == ((128, 128), board.size)
    for number, column, marked in ((0, 0, False), (0, 1, True), (1, 1, False)):
        left, top = board.corner(number, column)
        assert colour_at(sheet, left, top) == (1, 2, 3)
        assert colour_at(sheet, left + 127, top + 127) == (80, 80, 80)
        assert (colour_at(sheet, left - FRAME, top + 60) == alarm) is marked
        assert (colour_at(sheet, left + 127 + FRAME, top + 60) == alarm) is marked
        assert (colour_at(sheet, left + 2 * 10, top + 2 * 30) == orange) is marked
        assert (colour_at(sheet, left + 2 * 31, top + 2 * 30) == orange) is marked
    left, top = board.corner(1, 0)
    assert (np.asarray(sheet)[top : top + 128, left : left + 128] == 255).all()
    assert board.corner(1, 0)[1] >= board.corner(0, 0)[1] + 128 + panels.LINE  # room for the line


def test_a_legend_is_broken_where_the_sheet_ends() -> None:
    words = "some words of a legend " * 10
    strips = [Strip("", [Panel(np.zeros((64, 64, 3), np.uint8))])]
    board = Board("", ["a"], strips, words)
    assert " ".join(board.foot) == words.strip()
    ink = np.asarray(panels.draw_board(board))[board.corner(1, 0)[1] :].min(axis=(0, 2)) < 255
    assert ink.any()
    assert not ink[-panels.GAP + 1 :].any()
    assert board.size[1] == board.corner(1, 0)[1] + panels.LINE * len(board.foot) + panels.GAP


def test_a_file_is_never_too_large(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (128, 128, 3), dtype=np.uint8)
    small = Board("", ["a"], [Strip("", [Panel(noise)])], "")
    large = Board("", ["a"] * 12, [Strip("", [Panel(noise)] * 12)] * 12, "")
    for board, mode in ((small, "RGB"), (large, "P")):
        file = panels.write_board(tmp_path / f"{mode}.png", board)
        assert file.stat().st_size <= panels.LARGEST
        with Image.open(file) as image:
            assert image.mode == mode


# Images


def test_phantoms_are_the_first_subjects_of_a_seed_of_their_own(tmp_path: Path) -> None:
    shots = Stage(SOURCE, plan(tmp_path), 2).shots("add")
    drawn = pairs(NAME, 2, "add", SEED)
    assert torch.equal(shots.x, drawn.x)
    assert torch.equal(shots.truth, drawn.truth)
    assert (shots.target, shots.ids) == (1, ("0", "1"))
    left, top, right, bottom = shots.box(1, exact=True)
    box = torch.zeros_like(drawn.region[1, 0])
    box[top : bottom + 1, left : right + 1] = True
    inside = drawn.region[1, 0]
    assert bool((box | ~inside).all())
    edges = (inside[top], inside[bottom], inside[:, left], inside[:, right])
    assert all(edge.any() for edge in edges)
    assert shots.box(1) is None  # the image does not have it yet


def made_table(folder: Path, change: Callable[[Table], Table]) -> Source:
    table = change(read_table(write_phantom(folder, PhantomSet(NAME, 12, None, 1, 64))))
    write_table(table, folder / "mine.csv", folder)
    return Source("isic", folder / "mine.csv", NAME)


def test_of_a_table_the_first_rows_of_the_test_split_are_taken(tmp_path: Path) -> None:
    splits = ("train", "test") * 6
    source = made_table(tmp_path, lambda table: replace(table, groups={"split": splits}))
    table = read_table(source.table)
    for direction, label in (("remove", 1), ("add", 0)):
        labels = zip(table.ids, table.column("shortcut"), splits, strict=True)
        wanted = [name for name, value, split in labels if value == label and split == "test"][:2]
        shots = Stage(source, plan(tmp_path, source), 2).shots(direction)
        assert (list(shots.ids), shots.truth) == (wanted, None)
        assert shots.x.shape == (len(wanted), 1, 64, 64)


def test_a_gallery_of_a_table(tmp_path: Path, boards: list[Board]) -> None:
    source = made_table(tmp_path, lambda table: table.where("shortcut=1"))
    made = figures.run_gallery(EXPERIMENT, plan(tmp_path, source, n=1), unseen)
    [board] = boards
    assert list(board.titles) == TITLES[:-1]
    assert all(len(strip.panels) == 4 for strip in board.strips)
    assert len(made.rows) == 3
    assert "isic: no image to add the shortcut" in made.notes


# Gallery


def test_a_gallery_has_a_panel_for_each_method_and_asks_the_oracle(
    tmp_path: Path, boards: list[Board], bundle: Bundle
) -> None:
    made = figures.run_gallery(EXPERIMENT, plan(tmp_path), unseen)
    assert [file.name for file in made.pictures] == [f"gallery-{NAME}-{way}.png" for way in ("remove", "add")]
    assert [list(board.titles) for board in boards] == [TITLES] * 2
    assert len(made.rows) == 2 * 2 * 3
    rows = iter(made.rows)
    for board, target in zip(boards, (0, 1), strict=True):
        assert [len(strip.panels) for strip in board.strips] == [5] * 4
        shots = pairs(NAME, 2, ("remove", "add")[target], SEED)
        for column in (1, 2, 3):
            for place in (0, 1):
                panel, row = board.strips[2 * place].panels[column], next(rows)
                x_cf = torch.from_numpy(panel.picture[..., 0] / 127.5 - 1).float()[None, None]
                reached = bool(yes(bundle.oracle("shortcut"), x_cf) > 0.5) == bool(target)
                assert (row["oracle_ok"], panel.alarm) == (reached, not reached)
                change = (x_cf - shots.x[place]).abs().mean() / 2
                assert row["change"] == pytest.approx(float(change), abs=2e-5)


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_what_missed_its_target_is_marked_and_the_truth_is_not(tmp_path: Path, direction: str) -> None:
    set_up = Stage(SOURCE, plan(tmp_path), 3)
    shots = set_up.shots(direction)
    results = {"nothing": found(shots.x, shots.target), "all": found(shots.truth, shots.target)}
    rows = {name: set_up.told(name, shots, each) for name, each in results.items()}
    board = gallery.gallery_board(set_up, shots, results, rows)
    for place in range(3):
        above, below = board.strips[2 * place : 2 * place + 2]
        assert [panel.alarm for panel in above.panels] == [False, True, False, False]
        assert "NOT" in above.panels[1].lines[1]
        assert above.panels[2].lines == ["guide 0.10 -> 0.90", "oracle: reached"]
        exact = signed((shots.truth - shots.x)[place].mean(0).numpy(), panels.REACH)
        assert (below.panels[1].picture == 255).all()
        assert np.array_equal(below.panels[2].picture, exact)
        assert np.array_equal(below.panels[3].picture, exact)


def test_half_an_addition_and_no_oracle() -> None:
    row = {"p_before": 0.0, "p_after": 1.0, "valid": True, "oracle_ok": True, "whole_ok": False}
    assert stage.judgement(row)[1] == "oracle: only in part"
    unjudged = row | {"oracle_ok": None, "whole_ok": None}
    assert stage.judgement(unjudged)[1] == "no oracle"
    assert not stage.failed(unjudged)
    assert stage.failed(unjudged | {"valid": False})


def test_a_finished_figure_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = figures.run_gallery(EXPERIMENT, plan(tmp_path), unseen)
    monkeypatch.setattr(gallery, "explain", forbidden)
    assert figures.run_gallery(EXPERIMENT, plan(tmp_path), unseen) == first
    drawn = files(tmp_path)
    for other in (plan(tmp_path, seed=1), plan(tmp_path, n=1)):
        with pytest.raises(InputError, match=r"remove.png: .* got one of another --seed.*another --out"):
            figures.run_gallery(EXPERIMENT, other, unseen)
    assert files(tmp_path) == drawn
    first.pictures[1].unlink()
    with pytest.raises(AssertionError, match="made again"):
        figures.run_gallery(EXPERIMENT, plan(tmp_path), unseen)


def test_the_rows_lie_beside_the_picture(tmp_path: Path) -> None:
    made = figures.run_path(EXPERIMENT, plan(tmp_path), unseen)
    beside = [json.loads(file.with_suffix(".json").read_text())["rows"] for file in made.pictures]
    assert [row for rows in beside for row in rows] == made.rows


# Path


def test_the_masks_and_states_shown_are_the_recorded_ones(tmp_path: Path, boards: list[Board]) -> None:
    made = figures.run_path(EXPERIMENT, plan(tmp_path), unseen)
    set_up = Stage(SOURCE, plan(tmp_path), 2)
    shots = set_up.shots("remove")
    result = set_up.explainer("fastdime")(shots.x, 0, ids=shots.ids, record=range(6))
    assert [moment.t for moment in result.trajectory] == [5, 4, 3, 2, 1, 0]
    assert list(boards[0].titles) == ["original", *(f"t = {t}" for t in range(5, -1, -1)), "counterfactual"]
    for place in (0, 1):
        states, denoised, masks = (strip.panels for strip in boards[0].strips[3 * place : 3 * place + 3])
        for column, moment in enumerate(result.trajectory, 1):
            assert np.array_equal(states[column].picture, shown(moment.x_t[place].numpy()))
            assert np.array_equal(denoised[column].picture, shown(moment.x0_hat[place].numpy()))
            white = masks[column].picture[..., 0] == 255
            assert np.array_equal(white, moment.mask[place, 0].numpy())
        assert (masks[1].lines, masks[2].lines) == (["no mask"], ["no mask"])  # mask_from is 3
        assert masks[6].lines != ["no mask"]
        assert np.array_equal(states[-1].picture, shown(result.x_cf[place].numpy()))
        rows = [row for row in made.rows if (row["direction"], row["image"]) == ("remove", str(place))]
        shares = [float(moment.mask[place].float().mean()) for moment in result.trajectory]
        assert [row["mask_share"] for row in rows[:-1]] == pytest.approx(shares, abs=1e-4)
        assert (rows[-1]["t"], rows[-1]["valid"]) == ("end", bool(result.valid[place]))


def test_an_image_without_an_attempt_has_no_path(tmp_path: Path) -> None:
    set_up = Stage(SOURCE, plan(tmp_path), 2)
    shots = set_up.shots("remove")
    result = set_up.explainer("fastdime")(shots.x, 0, ids=shots.ids, record=[0, 5])
    untried = replace(result, scale=torch.tensor([0.0, 1.0]))
    board = path.path_board(set_up, shots, untried)
    assert "no attempt" in board.strips[0].name
    assert [panel.picture is None for panel in board.strips[0].panels] == [False, True, True, False]
    assert all(panel.picture is not None for panel in board.strips[3].panels)


def test_the_moments_of_a_path() -> None:
    assert path.moments_of(30) == [0, 5, 10, 15, 20, 25, 29]
    assert path.moments_of(1) == [0]


# Teaser


def test_the_teaser_tells_what_the_task_model_says(tmp_path: Path, boards: list[Board]) -> None:
    pytest.importorskip("captum", reason="SmoothGrad needs the extra saliency")
    other = Source("skin-ruler", None, "skin-ruler")
    made = figures.run_teaser(EXPERIMENT, replace(plan(tmp_path), sources=(SOURCE, other)), unseen)
    assert [file.name for file in made.pictures] == [f"teaser-{NAME}.png"]
    assert any(note.startswith("skin-ruler: left out") for note in made.notes)
    [board] = boards
    assert [len(strip.panels) for strip in board.strips] == [len(board.titles)] * 2 == [7, 7]
    model, drawn = load_classifier(SHIPPED / "task-models" / f"{NAME}-k100"), pairs(NAME, 2, "remove", SEED)
    before, exact = yes(model, drawn.x).tolist(), yes(model, drawn.truth).tolist()
    assert before[0] > 0.9 > 0.1 > exact[0]  # it leans on the shortcut
    for row in made.rows:
        place, column = int(row["image"]), {"explanation": 2}.get(row["method"], 4)
        panel = board.strips[place].panels[column]
        x_cf = torch.from_numpy(panel.picture[..., 0] / 127.5 - 1).float()[None, None]
        assert row["p_before"] == pytest.approx(before[place], abs=1e-4)
        assert row["p_after"] == pytest.approx(float(yes(model, x_cf)), abs=1e-3)
        assert row.get("p_exact", exact[place]) == pytest.approx(exact[place], abs=1e-4)
        assert panel.alarm is stage.failed(row)
        assert panel.lines == [f"says {row['p_before']:.2f} -> {row['p_after']:.2f}"]
    smooth = [strip.panels[1].picture for strip in board.strips]
    assert all(picture.max() == 255 and picture.min() == 0 for picture in smooth)


def test_without_captum_the_teaser_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, boards: list[Board]
) -> None:
    def missing(*args: object) -> None:
        raise MissingExtra("captum", "SmoothGrad", "saliency")

    monkeypatch.setattr(teaser, "write_smoothgrad", missing)
    made = figures.run_teaser(EXPERIMENT, plan(tmp_path, n=1), unseen)
    assert any("captum" in note for note in made.notes)
    panel = boards[0].strips[0].panels[1]
    assert (panel.picture, panel.lines) == (None, ["needs captum"])


def test_a_figure_that_lacked_something_is_made_again_when_it_is_there(tmp_path: Path) -> None:
    picture = Panel(np.zeros((8, 8, 3), np.uint8))
    board = Board("", ["a"], [Strip("", [picture])], "")
    place = tmp_path / "some.png"
    stage.kept(place, "without", lambda: stage.Drawn(board, [{"row": 1}], ("no SmoothGrad",)))
    assert stage.kept(place, "without", forbidden).rows == [{"row": 1}]
    stage.kept(place, "with", lambda: stage.Drawn(board, [{"row": 2}]))
    assert stage.kept(place, "with", forbidden).rows == [{"row": 2}]
    with pytest.raises(InputError, match="expected the figure of the same command"):
        stage.kept(place, "without", forbidden)


def test_a_teaser_without_any_task_model(tmp_path: Path) -> None:
    other = Source("skin-ruler", None, "skin-ruler")
    with pytest.raises(InputError) as refusal:
        figures.run_teaser(EXPERIMENT, plan(tmp_path, other), unseen)
    assert str(refusal.value) == (
        f"teaser: expected a phantom whose task model comes with fastdime ({NAME}), got skin-ruler; "
        f"give --phantom {NAME}"
    )


def test_the_explanation_is_of_the_task_model_and_the_counterfactual_of_the_guide(
    tmp_path: Path, bundle: Bundle
) -> None:
    folder = SHIPPED / "task-models" / f"{NAME}-k100"
    explainers = teaser.Teaser(Stage(SOURCE, plan(tmp_path, seed=5), 1), folder).explainers
    task, guide = (explainers[name] for name in (teaser.EXPLANATION, teaser.SHORTCUT))
    assert guide.classifier is bundle.classifier
    assert weights_hash(task.classifier.module) == weights_hash(load_classifier(folder).module)
    assert (task.resolved, task.seed, task.denoiser) == (guide.resolved, 5, guide.denoiser)


def test_shots_of_a_table_have_no_box_and_names_that_fit() -> None:
    shots = Shots(("a", "folder/ISIC_0024306"), tiny.images(2), "remove")
    assert shots.box(0) is None
    assert [shots.label(place) for place in (0, 1)] == ["image a", "image\nr/ISIC_0024306"]
