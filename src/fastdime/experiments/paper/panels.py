"""A figure of labelled panels: columns with titles, rows with names, lines of text below each picture."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from fastdime.sheets import Picture, encoded, place_picture, shown, shown_size, signed, write_sheet

CELL = 128  # pixels of the longer side of a picture
GAP, LEFT = 10, 104  # between pictures; for the names of the rows
TEXT, LINE, HEADING = 12, 15, 16  # size of letters, height of a line of them, size of those of the heading
ALARM, FRAME = "crimson", 4  # colour and pixels of the frame around a failure
BOX = "orange"
LARGEST = 500_000  # bytes of a file
PALETTE = 256  # colours of a file that would be too large with all of them
REACH = 0.5  # the difference that has full colour, on the scale of [-1, 1]
COLOURS = (
    "Difference maps: blue = less, red = more; full colour = a quarter of the range from black to white."
)

Box = tuple[int, int, int, int]  # left, top, right and bottom, in pixels of the picture


@dataclass(frozen=True)
class Panel:
    """A picture, if there is one, and the lines below it.

    Attributes:
        alarm: it shows a failure: it gets a frame, and its lines are of the same colour.
        box: what to point at.
    """

    picture: Picture | None = None
    lines: Sequence[str] = ()
    alarm: bool = False
    box: Box | None = None


@dataclass(frozen=True)
class Strip:
    """Panels side by side with a name on the left, which may have several lines.

    Attributes:
        apart: a rule above shows that something else begins.
    """

    name: str
    panels: Sequence[Panel]
    apart: bool = False

    @property
    def lines(self) -> int:
        """Of text, below the panel that has most of them."""
        return max(len(panel.lines) for panel in self.panels)


@dataclass(frozen=True)
class Board:
    """A whole figure.

    Attributes:
        heading: what is shown, or asked.
        titles: of the columns; they may have several lines.
        legend: what colours mean, at the foot.
    """

    heading: str
    titles: Sequence[str]
    strips: Sequence[Strip]
    legend: str

    @cached_property
    def shown(self) -> tuple[int, int]:
        """Width and height of a picture on the sheet: that of the first, for all."""
        pictures = (panel.picture for strip in self.strips for panel in strip.panels)
        height, width = next(picture for picture in pictures if picture is not None).shape[:2]
        return shown_size(width, height, CELL)

    @property
    def step(self) -> int:
        """Pixels from one column to the next; titles need room above narrow pictures."""
        return max(CELL, self.shown[0]) + GAP

    def corner(self, number: int, column: int) -> tuple[int, int]:
        """Return the upper left corner of a picture."""
        return LEFT + column * self.step, self._tops[number]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the sheet."""
        return self._width, self._tops[-1] + LINE * len(self.foot) + GAP

    @cached_property
    def foot(self) -> list[str]:
        """Lines of the legend, broken where the sheet ends."""
        lines: list[str] = []
        for word in self.legend.split():
            longer = f"{lines[-1]} {word}" if lines else word
            if lines and _font().getlength(longer) <= self._width - 2 * GAP:
                lines[-1] = longer
            else:
                lines.append(word)
        return lines

    @property
    def _width(self) -> int:
        return LEFT + len(self.titles) * self.step

    @property
    def titles_at(self) -> int:
        """Upper end of the titles."""
        return GAP + HEADING + GAP

    @cached_property
    def _tops(self) -> list[int]:
        """Upper ends of the strips, and of what follows."""
        lines = max(title.count("\n") + 1 for title in self.titles)
        tops = [self.titles_at + lines * LINE + GAP]
        for strip in self.strips:
            tops.append(tops[-1] + self.shown[1] + strip.lines * LINE + GAP)
        return tops


def image_of(x: Tensor) -> Picture:
    """Draw an image of [-1, 1], (c, h, w)."""
    return shown(x.numpy())


def difference_of(before: Tensor, after: Tensor) -> Picture:
    """Draw what has changed, in the same colours on every figure."""
    return signed((after - before).mean(0).numpy(), REACH)


def draw_board(board: Board) -> Image.Image:
    """Draw a figure."""
    sheet = Image.new("RGB", board.size, "white")
    draw = ImageDraw.Draw(sheet)
    draw.text((GAP, GAP), board.heading, "black", ImageFont.load_default(HEADING))
    for column, title in enumerate(board.titles):
        draw.text((LEFT + column * board.step, board.titles_at), title, "black", _font())
    for number, strip in enumerate(board.strips):
        left, top = board.corner(number, 0)
        if strip.apart:
            draw.line((GAP, top - GAP // 2, board.size[0] - GAP, top - GAP // 2), "gray")
        draw.text((GAP, top), strip.name, "black", _font())
        for column, panel in enumerate(strip.panels):
            _draw_panel(sheet, panel, (left + column * board.step, top), board.shown)
    draw.text((GAP, board.corner(len(board.strips), 0)[1]), "\n".join(board.foot), "dimgray", _font())
    return sheet


def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(TEXT)


def _draw_panel(sheet: Image.Image, panel: Panel, corner: tuple[int, int], size: tuple[int, int]) -> None:
    (left, top), draw = corner, ImageDraw.Draw(sheet)
    if panel.picture is not None:
        frame, thick = (ALARM, FRAME) if panel.alarm else ("silver", 1)
        place_picture(sheet, panel.picture, corner, size, frame, thick)
        if panel.box is not None:
            factor = size[0] / panel.picture.shape[1]
            first, last = panel.box[:2], (panel.box[2] + 1, panel.box[3] + 1)
            edges = [base + round(factor * at) for base, at in zip(corner * 2, first + last, strict=True)]
            draw.rectangle(tuple(edges), outline=BOX, width=2)
    for number, line in enumerate(panel.lines):
        place = left, top + size[1] + FRAME + number * LINE
        draw.text(place, line, ALARM if panel.alarm else "black", _font())


def write_board(path: Path, board: Board) -> Path:
    """Write a figure as a PNG of at most LARGEST bytes, with fewer colours or pixels if it must be."""
    return write_sheet(path, next(each for each in _smaller(draw_board(board)) if _fits(each)))


def _fits(sheet: Image.Image) -> bool:
    return len(encoded(sheet)) <= LARGEST


def _smaller(sheet: Image.Image) -> Iterator[Image.Image]:
    yield sheet
    while True:
        yield sheet.quantize(PALETTE)
        sheet = sheet.resize((sheet.width * 3 // 4, sheet.height * 3 // 4), Image.Resampling.BOX)
