"""Lines, arrows and letters with smooth edges: drawn larger than they are shown, then made smaller."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

from PIL import Image, ImageDraw, ImageFont

FINE = 3  # pixels drawn for each one shown
INK, QUIET, RULE = "#222222", "#666666", "#DDDDDD"
Place = tuple[float, float]
Span = tuple[float, float]


@dataclass(frozen=True)
class Frame:
    """A rectangle of the picture, and the numbers that it spans.

    Attributes:
        corner, size: left and top, width and height, in pixels.
        across, up: the numbers at its left and right, and at its bottom and top.
    """

    corner: Place
    size: Place
    across: Span
    up: Span

    def place(self, x: float, y: float) -> Place:
        """Return where a point stands in the picture."""
        (left, top), (width, height) = self.corner, self.size
        share = (x - self.across[0]) / (self.across[1] - self.across[0])
        rise = (y - self.up[0]) / (self.up[1] - self.up[0])
        return left + width * share, top + height * (1 - rise)

    def places(self, points: Sequence[Sequence[float]]) -> list[Place]:
        """Return where points stand."""
        return [self.place(*point) for point in points]

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom."""
        (left, top), (width, height) = self.corner, self.size
        return left, top, left + width, top + height


class Canvas:
    """A white sheet; all measures are in pixels as they are shown."""

    def __init__(self, width: int, height: int) -> None:
        """Lay it out."""
        self.size = (width, height)
        self._image = Image.new("RGB", (width * FINE, height * FINE), "white")

    @cached_property
    def _draw(self) -> ImageDraw.ImageDraw:
        return ImageDraw.Draw(self._image)

    def finished(self) -> Image.Image:
        """Return the picture at the size at which it is shown."""
        return self._image.resize(self.size, Image.Resampling.BOX)

    def paste(self, picture: Image.Image, frame: Frame) -> None:
        """Fill a frame with a picture."""
        left, top, right, bottom = (round(edge * FINE) for edge in frame.box)
        self._image.paste(picture.resize((right - left, bottom - top), Image.Resampling.NEAREST), (left, top))

    def box(self, frame: Frame, colour: str = QUIET) -> None:
        """Draw the edge of a frame."""
        self._draw.rectangle([edge * FINE for edge in frame.box], outline=colour, width=FINE)

    def grid(self, frame: Frame, title: str, below: str) -> None:
        """Draw a plot without its curves: rules, numbers, a title, and what goes from left to right."""
        left, top, right, bottom = frame.box
        for tick in round_numbers(*frame.up):
            height = frame.place(0, tick)[1]
            self.line([(left, height), (right, height)], RULE, 1)
            self.text((left - 6, height), f"{tick:g}", 14, QUIET, "rm")
        for tick in round_numbers(*frame.across):
            self.text((frame.place(tick, 0)[0], bottom + 6), f"{tick:g}", 14, QUIET, "ma")
        self.box(frame)
        self.text((left, top - 26), title, 17)
        self.text(((left + right) / 2, bottom + 24), below, 14, QUIET, "ma")

    def line(
        self, points: Sequence[Place], colour: str, width: float = 2, dashes: Sequence[float] = ()
    ) -> None:
        """Draw a line through points; `dashes` are the lengths of a stroke and of a gap."""
        for piece in dashed(points, *dashes) if dashes else [points]:
            fine = [(x * FINE, y * FINE) for x, y in piece]
            self._draw.line(fine, fill=colour, width=round(width * FINE), joint="curve")

    def dot(self, at: Place, radius: float, fill: str, edge: str = "white") -> None:
        """Draw a disc with an edge."""
        self._draw.circle((at[0] * FINE, at[1] * FINE), radius * FINE, fill, edge, 2 * FINE)

    def arrow(self, start: Place, end: Place, colour: str, width: float = 2) -> None:
        """Draw an arrow with a filled head."""
        turn = math.atan2(end[1] - start[1], end[0] - start[0])
        head = 3 + 2.5 * width
        self.line([start, _beside(end, turn, -head / 2, 0)], colour, width)
        corners = [end, _beside(end, turn, -head, head / 2), _beside(end, turn, -head, -head / 2)]
        self._draw.polygon([(x * FINE, y * FINE) for x, y in corners], fill=colour)

    def text(
        self, at: Place, words: str, size: int = 15, colour: str = INK, anchor: str = "la", halo: float = 0
    ) -> None:
        """Write words; `anchor` is Pillow's, `halo` the width of a white edge around the letters."""
        edge = round(halo * FINE)
        place = (at[0] * FINE, at[1] * FINE)
        self._draw.text(
            place, words, colour, _font(size * FINE), anchor, stroke_width=edge, stroke_fill="white"
        )


def round_numbers(low: float, high: float) -> list[float]:
    """Return a few round numbers between two others.

    >>> round_numbers(0.0, 1.3)
    [0.0, 0.5, 1.0]
    """
    size = 10.0 ** math.floor(math.log10((high - low) / 2))
    step = next(size * part for part in (1, 2, 5, 10) if (high - low) / (size * part) <= 6)
    return [
        round(step * i, 9) for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    ]


@lru_cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _beside(at: Place, turn: float, ahead: float, aside: float) -> Place:
    """Return a place so far ahead and aside of another for someone who looks in a direction."""
    cos, sin = math.cos(turn), math.sin(turn)
    return at[0] + ahead * cos - aside * sin, at[1] + ahead * sin + aside * cos


def dashed(points: Sequence[Place], stroke: float, gap: float) -> Iterator[list[Place]]:
    """Cut a line into strokes.

    >>> list(dashed([(0, 0), (5, 0)], 2, 1))
    [[(0.0, 0.0), (2.0, 0.0)], [(3.0, 0.0), (5.0, 0.0)]]
    """
    lengths = [0.0]
    for one, other in pairwise(points):
        lengths.append(lengths[-1] + math.dist(one, other))
    began = 0.0
    while began < lengths[-1]:
        ended = min(began + stroke, lengths[-1])
        inner = [points[i] for i, length in enumerate(lengths) if began < length < ended]
        yield [_along(points, lengths, began), *inner, _along(points, lengths, ended)]
        began += stroke + gap


def _along(points: Sequence[Place], lengths: Sequence[float], length: float) -> Place:
    """Return the place at some length of a line."""
    after = next(i for i, reached in enumerate(lengths) if reached >= length and i > 0)
    (x, y), (to_x, to_y) = points[after - 1], points[after]
    share = (length - lengths[after - 1]) / ((lengths[after] - lengths[after - 1]) or 1.0)
    return x + share * (to_x - x), y + share * (to_y - y)
