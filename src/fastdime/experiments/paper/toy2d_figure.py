"""The picture of the example in the plane: the ways of the methods, and how they come nearer to class A."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from fastdime.experiments.paper.toy2d_canvas import INK, QUIET, Canvas, Frame, Place
from fastdime.experiments.paper.toy2d_world import Plane

# Okabe and Ito's colours, which the colour-blind can tell apart; dashes help in print.
STYLES: tuple[tuple[str, tuple[float, ...]], ...] = (
    ("#D55E00", (9, 4)),
    ("#009E73", (16, 5)),
    ("#0072B2", ()),
    ("#000000", (3, 4)),
)
CLASS_A, CLASS_B, RED = "#56B4E9", "#E69F00", "#D00000"
BANDS, SHADE = (0.02, 0.15, 0.4, 0.7), 0.16  # of the highest density; each band is darker by so much
LEFT, SIDE, GAP = 58, 450, 62  # pixels: the edge, the width of a panel, and between panels
TOP, HIGH = 112, 306  # of the panels in the first row
LOW, FLAT = 552, 240  # of those in the second
HEIGHT = LOW + FLAT + 54
ARROWS, ARROW = 10, 36  # so many of each kind in a panel, and pixels of their length
EDGE, ROOM = 3, 0.3  # of a class, in standard deviations; around all, in the plane
Path = list[list[float]]


@dataclass(frozen=True)
class Lane:
    """What is drawn of a method.

    Attributes:
        about: where its gradient comes from.
        path, pulls, exact: of one run: its states, the direction of each pull, and of the exact gradient.
        distance, distance_denoised, cosine: of each step, averaged over all runs.
    """

    name: str
    about: str
    path: Path
    pulls: Path
    exact: Path
    distance: list[float]
    distance_denoised: list[float]
    cosine: list[float]
    denoiser_calls: int


@dataclass(frozen=True)
class Scene:
    """What all methods have in common: the plane, the point that is explained, and the number of runs.

    Attributes:
        floor: mean distance of points that are of class A.
    """

    plane: Plane
    start: tuple[float, float]
    floor: float
    runs: int


def draw_figure(scene: Scene, lanes: Sequence[Lane]) -> Image.Image:
    """Draw the way of each method but the last, which is the exact gradient; below, curves of them all."""
    canvas = Canvas(LEFT + 3 * SIDE + 2 * GAP + 24, HEIGHT)
    heading = "From class B to class A: one run of each method, with the same noise, denoiser and classifier"
    canvas.text((LEFT, 18), heading, 23)
    ways = lanes[:-1]
    view = _view(scene, ways)
    shades = _shades(scene.plane, view)
    for number, lane in enumerate(ways):
        frame = _moved(view, number)
        canvas.paste(shades, frame)
        _draw_way(canvas, frame, scene.start, lane, STYLES[number][0])
        _name_classes(canvas, frame, scene.plane)
    _draw_key(canvas)
    _draw_curves(canvas, scene, lanes)
    return canvas.finished()


def _view(scene: Scene, lanes: Sequence[Lane]) -> Frame:
    """Take in all that is drawn, on one scale."""
    plane, edge = scene.plane, EDGE * scene.plane.spreads[:, None]
    drawn = [*(plane.centres - edge).tolist(), *(plane.centres + edge).tolist()]
    points = np.array(drawn + [point for lane in lanes for point in lane.path])
    middle = (points.max(0) + points.min(0)) / 2
    reach = (points.max(0) - points.min(0)) / 2 + ROOM
    half = max(reach[0] / SIDE, reach[1] / HIGH) * np.array([SIDE, HIGH])
    across, up = ((float(m - h), float(m + h)) for m, h in zip(middle, half, strict=True))
    return Frame((LEFT, TOP), (SIDE, HIGH), across, up)


def _moved(frame: Frame, number: int) -> Frame:
    """Return the frame of another panel of the row."""
    left, top = frame.corner
    return Frame((left + number * (SIDE + GAP), top), frame.size, frame.across, frame.up)


def _shades(plane: Plane, view: Frame) -> Image.Image:
    """Draw both classes as bands of density."""
    across = torch.linspace(*view.across, 2 * SIDE, dtype=torch.float64)
    up = torch.linspace(*view.up, 2 * HIGH, dtype=torch.float64).flip(0)
    places = torch.stack(torch.meshgrid(across, up, indexing="xy"), 2)
    parts = plane.log_densities(places.reshape(-1, 2)).exp().view(*places.shape[:2], -1)
    picture = np.full((*places.shape[:2], 3), 255.0)
    for colour, chosen in ((CLASS_B, ~plane.wanted), (CLASS_A, plane.wanted)):
        density = parts[..., chosen].sum(2).numpy()
        bands = np.sum([density > band * density.max() for band in BANDS], axis=0)
        picture = _tinted(picture, colour, SHADE * bands)
    return Image.fromarray(picture.round().astype(np.uint8))


def _tinted(picture: NDArray[np.float64], colour: str, share: NDArray[np.float64]) -> NDArray[np.float64]:
    paint = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)], dtype=np.float64)
    tinted: NDArray[np.float64] = picture + share[..., None] * (paint - picture)
    return tinted


def _name_classes(canvas: Canvas, frame: Frame, plane: Plane) -> None:
    """Write the name of each class above it."""
    for name, chosen in (("class B", ~plane.wanted), ("class A", plane.wanted)):
        across = float(plane.centres[chosen, 0].mean())
        above = float((plane.centres[chosen, 1] + EDGE * plane.spreads[chosen]).amax())
        canvas.text(frame.place(across, above), name, 17, anchor="md", halo=3)


def _draw_way(canvas: Canvas, frame: Frame, start: tuple[float, float], lane: Lane, colour: str) -> None:
    """Draw one run: the states, and arrows for the gradients at some of them."""
    path = frame.places(lane.path)
    canvas.line([frame.place(*start), path[0]], RED, 1.5, (3, 4))
    canvas.line(path, colour, 2)
    for number in range(0, len(lane.pulls), -(-len(lane.pulls) // ARROWS)):
        canvas.arrow(path[number], _ahead(path[number], lane.exact[number]), INK, 1.5)
        canvas.arrow(path[number], _ahead(path[number], lane.pulls[number]), colour, 3)
    canvas.dot(frame.place(*start), 6, "white", RED)
    canvas.dot(path[0], 7, RED)
    canvas.dot(path[-1], 8, colour)
    canvas.box(frame)
    left, top = frame.corner
    canvas.text((left, top - 46), lane.name, 20, colour)
    canvas.text((left + SIDE, top - 44), f"{lane.denoiser_calls} denoiser calls", 16, INK, "ra")
    canvas.text((left, top - 22), lane.about, 15, QUIET)


def _ahead(at: Place, direction: Sequence[float]) -> Place:
    return at[0] + ARROW * direction[0], at[1] - ARROW * direction[1]


def _draw_key(canvas: Canvas) -> None:
    """Say what the marks of the first row mean."""
    line = TOP + HIGH + 24
    marks = (("white", RED, "point to explain"), (RED, "white", "the same with noise: start of the runs"))
    for left, (fill, edge, words) in zip((0, 160), marks, strict=True):
        canvas.dot((LEFT + left + 8, line), 7, fill, edge)
        canvas.text((LEFT + left + 22, line), words, anchor="lm")
    canvas.dot((LEFT + 466, line), 8, QUIET)
    canvas.text((LEFT + 480, line), "end", anchor="lm")
    arrows = (
        (QUIET, 3.0, "direction of the method's gradient"),
        (INK, 1.5, "of the exact gradient of log p(A | x_t)"),
    )
    for left, (colour, width, words) in zip((540, 862), arrows, strict=True):
        canvas.arrow((LEFT + left, line), (LEFT + left + ARROW, line), colour, width)
        canvas.text((LEFT + left + ARROW + 8, line), words, anchor="lm")


def _draw_curves(canvas: Canvas, scene: Scene, lanes: Sequence[Lane]) -> None:
    """Draw the means over all runs, one panel a number."""
    _draw_legend(canvas, lanes, f"Mean of {scene.runs} runs:")
    steps = float(len(lanes[0].cosine))
    titles = ("Distance of the state x_t to class A", "Distance of its denoised point to class A")
    far = [[lane.distance for lane in lanes], [lane.distance_denoised for lane in lanes]]
    top = 1.1 * max(max(curve) for curves in far for curve in curves)
    for number, (title, curves) in enumerate(zip(titles, far, strict=True)):
        frame = _moved(Frame((LEFT, LOW), (SIDE, FLAT), (0.0, steps), (0.0, top)), number)
        canvas.grid(frame, title, "step")
        canvas.line(frame.places([[0, scene.floor], [steps, scene.floor]]), QUIET, 1)
        left, height = frame.place(0, scene.floor)
        canvas.text((left + 6, height + 6), "points of class A", 13, QUIET, "la")
        _draw_lines(canvas, frame, curves)
    cosines = [lane.cosine for lane in lanes]
    low = min(0.8, *(min(curve) - 0.02 for curve in cosines))
    frame = _moved(Frame((LEFT, LOW), (SIDE, FLAT), (0.0, steps), (low, 1.02)), 2)
    canvas.grid(frame, "Cosine of the gradient with the exact one", "step")
    _draw_lines(canvas, frame, cosines)


def _draw_lines(canvas: Canvas, frame: Frame, curves: Sequence[Sequence[float]]) -> None:
    for (colour, dashes), curve in zip(STYLES, curves, strict=True):
        canvas.line(frame.places(list(enumerate(curve))), colour, 2.5, dashes)


def _draw_legend(canvas: Canvas, lanes: Sequence[Lane], heading: str) -> None:
    line = LOW - 56
    canvas.text((LEFT, line), heading, 20, anchor="lm")
    for number, (lane, (colour, dashes)) in enumerate(zip(lanes, STYLES, strict=True)):
        left = LEFT + 230 + 200 * number
        canvas.line([(left, line), (left + 44, line)], colour, 3, dashes)
        canvas.text((left + 54, line), lane.name, 17, colour, "lm")
