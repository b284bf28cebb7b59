"""Where the marks of a plot stand, in percent of its width and height; templates draw them as SVG.

Percentages, because a plot without a fixed size fits a phone without its letters becoming small.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fastdime.audit.schema import Audit, Interval, Row
from fastdime.report.dose import Dose
from fastdime.report.words import Answer, answer, asked_about, decimal, with_ends

STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0)
MOST_STEPS = 6  # between labels of an axis, so that they do not touch on a phone
EDGE = 0.02  # of the span, left free on both sides


@dataclass(frozen=True)
class Tick:
    """A label of an axis."""

    at: float
    text: str


@dataclass(frozen=True)
class Axis:
    """A scale from low to high."""

    low: float
    high: float
    step: float

    @classmethod
    def over(cls, values: Iterable[float]) -> "Axis":
        """Take all values in, between round numbers.

        >>> Axis.over([-0.03, 0.42])
        Axis(low=-0.1, high=0.5, step=0.1)
        """
        found = [value for value in values if math.isfinite(value)] or [0.0]
        low, high = min(0.0, *found), max(0.0, *found)
        fits = (step for step in STEPS if _floor(high, step) - _floor(low, step) < MOST_STEPS * step)
        step = next(fits, (high - low) / MOST_STEPS)
        first, last = _floor(low, step), -_floor(-high, step)
        return cls(first, last if last > first else round(first + step, 6), step)

    def at(self, value: float) -> float:
        """Return the place of a value in percent.

        >>> Axis(-1, 1, 0.5).at(0)
        50.0
        """
        share = (value - self.low) / (self.high - self.low)
        return round(100 * (EDGE + (1 - 2 * EDGE) * share), 3)

    @property
    def ticks(self) -> tuple[Tick, ...]:
        """Labels at round numbers."""
        count = round((self.high - self.low) / self.step)
        digits = max(0, -math.floor(math.log10(self.step) + 1e-9)) + (self.step == 0.25)
        values = [self.low + i * self.step for i in range(count + 1)]
        return tuple(Tick(self.at(value), decimal(value, digits)) for value in values)


def _floor(value: float, step: float) -> float:
    return round(math.floor(value / step + 1e-9) * step, 6)


@dataclass(frozen=True)
class Line:
    """One interval; `style` is the kind of mark: effect, edit, control or truth."""

    label: str
    style: str
    text: str
    at: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Forest:
    """The intervals of one row of an audit below each other."""

    title: str
    verdict: Answer | None
    lines: tuple[Line, ...]
    axis: Axis
    margin: float

    @property
    def band(self) -> tuple[float, float]:
        """Where the band of the margin begins, and how wide it is."""
        left = self.axis.at(max(-self.margin, self.axis.low))
        return left, round(self.axis.at(min(self.margin, self.axis.high)) - left, 3)


def overview(audit: Audit) -> Forest | None:
    """Put the effects of all rows below each other, when they are more than two."""
    rows = [row for row in audit.rows if row.effect.value is not None]
    if len(rows) < 3:
        return None
    axis = Axis.over([-audit.margin, audit.margin, *(n for row in rows for n in _numbers(row.effect))])
    lines = [_line(axis, f"{asked_about(row, audit)}: {row.shortcut}", "effect", row.effect) for row in rows]
    return Forest("Effect above placebo of all questions", None, tuple(lines), axis, audit.margin)


def forests(audit: Audit) -> tuple[Forest, ...]:
    """Make the plot of each row, all on one scale."""
    found = [(row, _intervals(row)) for row in audit.rows]
    numbers = [number for _, lines in found for *_, part in lines for number in _numbers(part)]
    axis = Axis.over([-audit.margin, audit.margin, *numbers])
    return tuple(
        Forest(
            f"{row.model}, {row.output}, {row.shortcut}",
            answer(row, audit),
            tuple(_line(axis, *part) for part in parts),
            axis,
            audit.margin,
        )
        for row, parts in found
    )


def _intervals(row: Row) -> list[tuple[str, str, Interval]]:
    known = [
        ("Effect above placebo", "effect", row.effect),
        ("MAD", "edit", row.mad),
        ("MD (s=1): removed", "edit", row.md_with),
        ("MD (s=0): added", "edit", row.md_without),
        ("Placebo", "control", row.placebo),
        ("Null edit", "control", row.null),
        ("Second seed", "control", row.reseed),
    ]
    if (truth := row.truth) is not None:
        known += [
            ("True effect", "truth", truth.effect),
            ("True MAD", "truth", truth.mad),
            ("True MD (s=1)", "truth", truth.md_with),
            ("True MD (s=0)", "truth", truth.md_without),
            ("True placebo", "truth", truth.placebo),
        ]
    return [line for line in known if line[2].value is not None]


def _numbers(found: Interval) -> list[float]:
    return [number for number in (found.value, found.low, found.high) if number is not None]


def _line(axis: Axis, label: str, style: str, found: Interval) -> Line:
    assert found.value is not None  # those without were left out
    low, high = (None if end is None else axis.at(end) for end in (found.low, found.high))
    return Line(label, style, with_ends(found), axis.at(found.value), low, high)


@dataclass(frozen=True)
class Point:
    """A mark at a place, with a bar from low to high (places too)."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Curve:
    """Marks of one kind, joined."""

    label: str
    style: str
    points: tuple[Point, ...]

    @property
    def joints(self) -> tuple[tuple[Point, Point], ...]:
        """Neighbours among the points."""
        return tuple(zip(self.points, self.points[1:], strict=False))


@dataclass(frozen=True)
class DosePlot:
    """MAD against the planted correlation."""

    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    curves: tuple[Curve, ...]

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        """Style and label of each curve."""
        return tuple((curve.style, curve.label) for curve in self.curves)


CURVES = (("mad", "MAD by the edits", "effect"), ("mad_true", "MAD by exact counterfactuals", "truth"))
IDEAL = ("ideal_mad", "Ideal observer", "control")


def dose_plot(dose: Dose) -> DosePlot:
    """Place the doses from left to right, and their MAD from below."""
    rows = sorted(dose.rows, key=lambda row: row.k)
    names = (*CURVES, IDEAL)
    tops = [row.mad + (row.mad_sd or 0) for row in rows if row.mad is not None]
    values = [getattr(row, name) for row in rows for name, *_ in names]
    axis = Axis.over([*tops, *(value for value in values if value is not None)])
    place = _spread([row.k for row in rows])
    curves = []
    for name, label, style in names:
        points = [
            _point(axis, place[row.k], value, row.mad_sd if name == "mad" else None)
            for row in rows
            if (value := getattr(row, name)) is not None
        ]
        if points:
            curves.append(Curve(label, style, tuple(points)))
    across = tuple(Tick(x, f"{k:g}") for k, x in place.items())
    up = tuple(Tick(round(100 - tick.at, 3), tick.text) for tick in axis.ticks)
    return DosePlot(across, up, tuple(curves))


def _spread(values: Sequence[float]) -> dict[float, float]:
    """Place values on a scale that leaves a twentieth free on both sides."""
    low, high = min(values), max(values)
    width = (high - low) or 1.0
    return {value: round(5 + 90 * (value - low) / width, 3) if high > low else 50.0 for value in values}


def _point(axis: Axis, x: float, value: float, spread: float | None) -> Point:
    y = round(100 - axis.at(value), 3)
    if not spread:
        return Point(x, y)
    return Point(x, y, *(round(100 - axis.at(max(end, 0.0)), 3) for end in (value - spread, value + spread)))
