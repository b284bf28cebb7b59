"""Drawing tools. Coordinates run over [-1, 1], x to the right and y down; all sums are in float64.

Edges are ramps that end at exactly 0 and 1, so an object changes no pixel that it does not touch. In float64
the last bit of a library function hardly ever moves an 8-bit level (in one of 10^10 pixels), so pictures do
not depend on the machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fastdime.data.phantoms.streams import Colour, Latents

Plane = NDArray[np.float64]  # (h, w)
Picture = NDArray[np.float64]  # (c, h, w)
Points = NDArray[np.float64]  # (n, 2): x, y
Point = tuple[float, float]
STEP = 6  # pixels between the points of a curve


@dataclass(frozen=True)
class Pose:
    """How a body stands in the frame."""

    dx: float = 0.0
    dy: float = 0.0
    rotation: float = 0.0
    scale: float = 1.0

    @classmethod
    def of(cls, latents: Latents) -> "Pose":
        """Take the pose from the latents of a subject."""
        return cls(latents["shift_x"], latents["shift_y"], latents["rotation"], latents["scale"])

    def to_frame(self, points: Sequence[Point] | Points) -> Points:
        """Move points of the body into the frame."""
        x, y = np.asarray(points, dtype=np.float64).T
        cosine, sine = np.cos(self.rotation) * self.scale, np.sin(self.rotation) * self.scale
        return np.stack([self.dx + cosine * x - sine * y, self.dy + sine * x + cosine * y], axis=1)

    def canvas(self, size: int) -> "Canvas":
        """Return the whole picture in the coordinates of the body."""
        frame = centres(size)
        across, down = frame[None, :] - self.dx, frame[:, None] - self.dy
        cosine, sine = np.cos(self.rotation) / self.scale, np.sin(self.rotation) / self.scale
        everything = (slice(0, size), slice(0, size))
        return Canvas(cosine * across + sine * down, cosine * down - sine * across, self, size, everything)


@dataclass(frozen=True)
class Canvas:
    """Where the pixels of a picture, or of a part of it, lie in the coordinates of a body."""

    x: Plane
    y: Plane
    pose: Pose
    size: int
    place: tuple[slice, slice]

    @property
    def pixel(self) -> float:
        """Width of a pixel."""
        return 2 / self.size

    @cached_property
    def side(self) -> Plane:
        """Distance from the body's axis: what is drawn with it is drawn on both sides."""
        return np.abs(self.x)

    def part(self, left: float, top: float, right: float, bottom: float) -> "Canvas":
        """Return the part that holds a rectangle of the body, to draw a small object fast."""
        corners = self.pose.to_frame([(left, top), (right, top), (left, bottom), (right, bottom)])
        place = _places(self.size, corners.min(0)[None], corners.max(0)[None], self.pixel)[0]
        return Canvas(self.x[place], self.y[place], self.pose, self.size, place)


@lru_cache
def centres(size: int) -> Plane:
    """Return the coordinates of the pixel centres of a row."""
    return (np.arange(size) + 0.5) / size * 2 - 1


def _places(size: int, low: Points, high: Points, margin: float) -> list[tuple[slice, slice]]:
    """Return the rows and columns that hold each of some rectangles of the frame."""
    first = np.clip(np.floor((low - margin + 1) * (size / 2)), 0, size).astype(int).tolist()
    last = np.clip(np.ceil((high + margin + 1) * (size / 2)), 0, size).astype(int).tolist()
    return [
        (slice(top, bottom), slice(left, right))
        for (left, top), (right, bottom) in zip(first, last, strict=True)
    ]


def unit(values: Plane) -> Plane:
    """Clip to [0, 1]."""
    clipped = np.maximum(values, 0.0)
    return np.minimum(clipped, 1.0, out=clipped)


def edge(distance: Plane, width: float) -> Plane:
    """Turn a signed distance into coverage by a straight ramp of this width."""
    return unit(distance * (-1 / width) + 0.5)


def soft(distance: Plane, width: float) -> Plane:
    """Turn a signed distance into coverage by a smooth ramp of this width."""
    ramp = edge(distance, width)
    return ramp * ramp * (3 - 2 * ramp)


def stroke(distance: Plane, half_width: float, pixel: float) -> Plane:
    """Cover a line; one thinner than a pixel keeps its weight."""
    drawn = max(half_width, pixel / 2)
    return edge(distance - drawn, pixel) * (half_width / drawn)


def norm(x: Plane, y: Plane) -> Plane:
    """Return the distance from the origin; exact roundings only, so that machines agree."""
    return np.asarray(np.sqrt(np.square(x) + np.square(y)))


def turned(x: Plane, y: Plane, centre: Point, rotation: float = 0.0) -> tuple[Plane, Plane]:
    """Move coordinates to a centre and turn them."""
    x, y = x - centre[0], y - centre[1]
    if rotation == 0:
        return x, y
    cosine, sine = np.cos(rotation), np.sin(rotation)
    return cosine * x + sine * y, cosine * y - sine * x


def ellipse(x: Plane, y: Plane, centre: Point, radii: Point, rotation: float = 0.0) -> Plane:
    """Return the signed distance to an ellipse, nearly."""
    x, y = turned(x, y, centre, rotation)
    return (norm(x / radii[0], y / radii[1]) - 1) * min(radii)


def box(x: Plane, y: Plane, centre: Point, half: Point, corner: float) -> Plane:
    """Return the signed distance to a box with round corners."""
    across, down = np.abs(x - centre[0]) - (half[0] - corner), np.abs(y - centre[1]) - (half[1] - corner)
    outside = norm(np.maximum(across, 0), np.maximum(down, 0))
    return outside + np.minimum(np.maximum(across, down), 0) - corner


def segment(x: Plane, y: Plane, start: Point, end: Point) -> Plane:
    """Return the distance to a straight line between two points."""
    x, y = x - start[0], y - start[1]
    along, down = end[0] - start[0], end[1] - start[1]
    share = unit((x * along + y * down) * (1 / (along * along + down * down + 1e-9)))
    return norm(x - along * share, y - down * share)


def bezier(control: Sequence[Point] | Points, size: int, start: float = 0.0, stop: float = 1.0) -> Points:
    """Return points of a quadratic curve from parameter `start` to `stop`, dense enough for the picture."""
    points = np.asarray(control, dtype=np.float64)
    steps = np.diff(points, axis=0)
    length = norm(steps[:, 0], steps[:, 1]).sum() * (stop - start) * size / 2
    t = np.linspace(start, stop, max(4, int(length / STEP) + 2))[:, None]
    return np.asarray((1 - t) ** 2 * points[0] + 2 * t * (1 - t) * points[1] + t * t * points[2])


def paint_paths(size: int, paths: Sequence[Points], half_width: float) -> Plane:
    """Return the coverage of lines through points of the frame."""
    covered = np.zeros((size, size))
    for points in paths:
        _paint_path(covered, points, half_width)
    return covered


def _paint_path(covered: Plane, points: Points, half_width: float) -> None:
    size = len(covered)
    pixel, frame = 2 / size, centres(size)
    reach = max(half_width, pixel / 2) + pixel / 2
    low, high = np.minimum(points[:-1], points[1:]), np.maximum(points[:-1], points[1:])
    ends: list[Point] = [(x, y) for x, y in points.tolist()]
    for (start, end), place in zip(pairwise(ends), _places(size, low, high, reach), strict=True):
        part = covered[place]
        if part.size:  # else outside of the frame
            distance = segment(frame[None, place[1]], frame[place[0], None], start, end)
            np.maximum(part, stroke(distance, half_width, pixel), out=part)


def lay(picture: Picture, canvas: Canvas, coverage: Plane, colour: Colour | Sequence[float]) -> None:
    """Lay a colour over a part of a picture."""
    part = picture[:, canvas.place[0], canvas.place[1]]
    part += coverage * (np.asarray(colour)[:, None, None] - part)


@lru_cache
def _splines(size: int, cells: int) -> tuple[NDArray[np.int64], Plane]:
    """Return which points of a lattice reach each pixel, and the weights of a cubic B-spline.

    The weights are scaled so that white noise on the lattice keeps its variance on average.
    """
    place = (np.arange(size) + 0.5) / size * cells
    first = np.floor(place).astype(np.int64)
    f = place - first
    weights = np.stack([(1 - f) ** 3, 3 * f**3 - 6 * f**2 + 4, -3 * f**3 + 3 * f**2 + 3 * f + 1, f**3])
    return first + np.arange(4)[:, None], weights / np.sqrt(np.square(weights).sum(0).mean())


def _interpolate(lattice: Plane, size: int, cells: int) -> Plane:
    """Interpolate down the rows. Not as a matrix product: that wakes all threads, and sums in any order."""
    points, weights = _splines(size, cells)
    total = np.zeros((size, lattice.shape[1]))
    for rows, weight in zip(points, weights, strict=True):
        total += lattice[rows] * weight[:, None]
    return total


@dataclass(frozen=True)
class Textures:
    """Smooth random surfaces that look the same at every resolution; each call draws the next one."""

    rng: Generator
    size: int

    def __call__(self, cells: int) -> Plane:
        """Return a surface with so many bumps across and unit variance."""
        lattice = self.rng.standard_normal((cells + 3, cells + 3), dtype=np.float32).astype(np.float64)
        across = _interpolate(lattice.T, self.size, cells)
        return _interpolate(across.T, self.size, cells)

    def white(self, *channels: int) -> NDArray[np.float64]:
        """Return independent noise for every pixel."""
        shape = (*channels, self.size, self.size)
        return self.rng.standard_normal(shape, dtype=np.float32).astype(np.float64)
