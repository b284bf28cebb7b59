"""The paper's figure: AUROC that a model loses without the shortcut, and how far the shortcut moves it."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from fastdime.files import write_atomically

SIDE, EDGE = 420, 60  # pixels
COLOURS = ("#b04a00", "#0060a8", "#5a5a5a", "#7a4fb0")  # by k, from the highest; safe for the colour-blind
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
WIDEST = 0.5  # drop of AUROC at the right edge
Numbers = Mapping[str, float | None]


def write_drop(models: Sequence[Numbers], path: str | Path) -> Path:
    """Draw a point for each model of a validation study, as SVG; models without both numbers are left out.

    Args:
        models: with `k`, `auroc_k`, `auroc_u` and `mad`; `mad_true` is drawn hollow where it is known.
    """
    ks = sorted({float(model["k"] or 0) for model in models}, reverse=True)
    marks = [_marks(model, COLOURS[ks.index(float(model["k"] or 0)) % len(COLOURS)]) for model in models]
    size = SIDE + 2 * EDGE
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{size}" height="{size}" viewBox="0 0 {size} {size}"'
    )
    about = "MAD of the audit against the AUROC that a model loses where the shortcut means nothing"
    parts = [f'{head} font-family="sans-serif" font-size="13" role="img"><title>{about}</title>']
    parts += [f'<rect width="{size}" height="{size}" fill="white"/>', *_axes(), *_legend(ks)]
    text = "\n".join([*parts, *(mark for mark in marks if mark), "</svg>\n"])
    write_atomically(Path(path), text.encode())
    return Path(path)


def _marks(model: Numbers, colour: str) -> str:
    before, after, mad, true = (model.get(name) for name in ("auroc_k", "auroc_u", "mad", "mad_true"))
    if before is None or after is None or mad is None:
        return ""
    across = _across(before - after)
    points = [f'<circle cx="{across:.1f}" cy="{_up(mad):.1f}" r="5" fill="{colour}"/>']
    if true is not None:
        place = f'cx="{across:.1f}" cy="{_up(true):.1f}"'
        points.append(f'<circle {place} r="7" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    return "\n".join(points)


def _across(drop: float) -> float:
    return EDGE + SIDE * min(max(drop / WIDEST, -0.05), 1.05)


def _up(value: float) -> float:
    return EDGE + SIDE * (1 - value)


def _axes() -> list[str]:
    low, high = EDGE, EDGE + SIDE
    lines = [f'<path d="M{low} {low}V{high}H{high}" fill="none" stroke="black"/>']
    for tick in TICKS:
        across, up = _across(tick * WIDEST), _up(tick)
        lines += [
            f'<text x="{across:.1f}" y="{high + 18}" text-anchor="middle">{tick * WIDEST:.3g}</text>',
            f'<text x="{low - 8}" y="{up + 4:.1f}" text-anchor="end">{tick:g}</text>',
            f'<path d="M{low} {up:.1f}H{high}" stroke="#dddddd"/>',
        ]
    middle = EDGE + SIDE / 2
    lines.append(
        f'<text x="{middle}" y="{high + 40}" text-anchor="middle">AUROC on test_k minus test_u</text>'
    )
    turned = f'transform="rotate(-90 18 {middle})"'
    lines.append(f'<text x="18" y="{middle}" text-anchor="middle" {turned}>MAD (ring: exact)</text>')
    return lines


def _legend(ks: Sequence[float]) -> list[str]:
    lines = []
    for row, k in enumerate(ks):
        y, colour = 20 + 16 * row, COLOURS[row % len(COLOURS)]
        lines.append(f'<circle cx="{EDGE + 12}" cy="{y}" r="5" fill="{colour}"/>')
        lines.append(f'<text x="{EDGE + 24}" y="{y + 4}">k = {escape(f"{k:g}")}</text>')
    return lines
