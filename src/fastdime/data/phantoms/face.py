"""A head without its expression: backdrop, hair, clothes, skin and the signs of age."""

from dataclasses import dataclass

import numpy as np

from fastdime.data.phantoms.draw import (
    Canvas,
    Picture,
    Plane,
    Textures,
    box,
    edge,
    ellipse,
    lay,
    norm,
    segment,
    soft,
    stroke,
    unit,
)
from fastdime.data.phantoms.streams import (
    Choice,
    Colour,
    Draw,
    Latents,
    Normal,
    Paint,
    Palette,
    Uniform,
    colour,
)
from fastdime.data.phantoms.study import clipped

SKINS = ((0.98, 0.84, 0.74), (0.93, 0.74, 0.60), (0.78, 0.56, 0.42), (0.55, 0.37, 0.27))
HAIRS = (
    (0.10, 0.07, 0.06),
    (0.28, 0.17, 0.09),
    (0.48, 0.28, 0.13),
    (0.80, 0.62, 0.33),
    (0.55, 0.22, 0.10),
)
IRISES = ((0.20, 0.12, 0.07), (0.22, 0.38, 0.55), (0.25, 0.40, 0.25))
GREY = np.array([0.78, 0.78, 0.80])
SHORT, LONG, BOB = 0, 1, 2  # hair styles
FACE_DRAWS: dict[str, Draw] = {
    "skin": Palette(SKINS, 0.7),
    "pigment": Palette(HAIRS, 0.3),
    "greying": Normal(0.16),
    "backdrop": Paint(0.15, 0.85),
    "backdrop_slope": Normal(0.12),
    "clothes": Paint(0.1, 0.9),
    "shift_x": Normal(0.04),
    "shift_y": Normal(0.03),
    "rotation": Normal(0.07),
    "scale": Normal(0.04, mean=1),
    "head_width": Uniform(0.44, 0.53),
    "head_height": Uniform(0.58, 0.66),
    "jaw": Uniform(0.10, 0.28),
    "eye_x": Uniform(0.185, 0.22),
    "eye_y": Uniform(-0.06, 0.0),
    "eye_width": Uniform(0.085, 0.11),
    "eye_height": Uniform(0.045, 0.062),
    "brow_height": Uniform(0.10, 0.15),
    "brow": Uniform(0.018, 0.034),
    "nose_y": Uniform(0.15, 0.21),
    "nose_width": Uniform(0.06, 0.09),
    "mouth_y": Uniform(0.36, 0.41),
    "mouth_width": Uniform(0.15, 0.20),
    "lips": Uniform(0.022, 0.038),
    "lip_colour": Uniform(0.1, 0.35),
    "style": Choice(3),
    "hairline": Uniform(-0.44, -0.34),
    "volume": Uniform(0.06, 0.16),
    "light": Normal(0.35),
    "gain": Uniform(0.85, 1.08),
    "grain": Uniform(0.012, 0.03),
    "iris": Palette(IRISES),
    "mouth_curve": Normal(0.012),
}


def show_age(body: Latents) -> Latents:
    """Return the signs of age; z is high in the young."""
    z = clipped(body["z"])
    return {
        "wrinkles": 0.30 * float(np.exp(-0.42 * z)),
        "grey": min(max(0.30 - 0.17 * z + body["greying"], 0.0), 0.95),
    }


def hair_colour(body: Latents) -> Colour:
    """Return the pigment of the hair, greyed."""
    return colour(body, "pigment") * (1 - body["grey"]) + GREY * body["grey"]


@dataclass(frozen=True)
class HairCap:
    """The hair over the forehead, which lies over the expression."""

    coverage: Plane
    picture: Picture

    def over(self, picture: Picture) -> Picture:
        """Lay the hair over a face."""
        return picture + self.coverage * (self.picture - picture)


def draw_head(canvas: Canvas, body: Latents, textures: Textures) -> tuple[Picture, HairCap]:
    """Draw everything below the expression, and the hair that goes above it."""
    picture = backdrop(canvas, body, textures)
    cap = hair_cap(canvas, body, textures)
    _draw_back_hair(picture, canvas, body)
    _draw_shoulders(picture, canvas, body)
    _draw_skin(picture, canvas, body, textures)
    _draw_wrinkles(picture, canvas, body)
    _draw_nose(picture, canvas, body)
    return picture, cap


def backdrop(canvas: Canvas, body: Latents, textures: Textures) -> Picture:
    """Return an uneven wall."""
    down = np.linspace(-1, 1, 2 * canvas.size + 1)[1::2, None]
    even = 1 + body["backdrop_slope"] * down + 0.03 * textures(4)
    return colour(body, "backdrop")[:, None, None] * even


def hair_cap(canvas: Canvas, body: Latents, textures: Textures) -> HairCap:
    """Return the hair above a curved hairline."""
    x, y, grown = canvas.x, canvas.y, 0.45 * body["volume"]
    head = ellipse(x, y, (0, 0.02), (body["head_width"] + grown, body["head_height"] + grown))
    bow = 0.33 if body["style"] == BOB else 0.55
    line = body["hairline"] + bow * np.square(x) + (0.10 * x if body["style"] == SHORT else 0)
    shade = 1 - 0.25 * unit((y + 0.6) * 1.2) + 0.12 * np.clip(x * (-2 * body["light"]), -1, 1)
    strands = (1 + 0.10 * textures(24)) * shade
    return HairCap(soft(np.maximum(head, y - line), 0.04), hair_colour(body)[:, None, None] * strands)


def _draw_back_hair(picture: Picture, canvas: Canvas, body: Latents) -> None:
    width, volume, shade = body["head_width"], body["volume"], 0.85 * hair_colour(body)
    if body["style"] == LONG:
        shape = box(canvas.x, canvas.y, (0, 0.12), (width + 0.9 * volume, 0.72), 0.40)
        lay(picture, canvas, soft(shape, 0.06), shade)
    if body["style"] == BOB:
        shape = ellipse(canvas.x, canvas.y, (0, -0.08), (width + 1.3 * volume, 0.62))
        lay(picture, canvas, soft(shape, 0.05), shade)


def _draw_shoulders(picture: Picture, canvas: Canvas, body: Latents) -> None:
    skin, pixel = colour(body, "skin"), canvas.pixel
    clothes, neck = canvas.part(-0.9, 0.7, 0.9, 1.6), canvas.part(-0.25, 0.35, 0.25, 1.05)
    lay(
        picture,
        clothes,
        soft(box(clothes.x, clothes.y, (0, 1.12), (0.78, 0.34), 0.25), pixel),
        colour(body, "clothes"),
    )
    lay(picture, neck, edge(box(neck.x, neck.y, (0, 0.70), (0.19, 0.30), 0.1), pixel), 0.86 * skin)
    ears = canvas.part(-0.7, -0.15, 0.7, 0.3)
    place = body["head_width"] - 0.005, 0.08
    lay(picture, ears, edge(ellipse(ears.side, ears.y, place, (0.07, 0.12)), pixel), 0.90 * skin)


def _draw_skin(picture: Picture, canvas: Canvas, body: Latents, textures: Textures) -> None:
    narrowed = canvas.x / (1 - body["jaw"] * unit(canvas.y - 0.1))
    distance = ellipse(narrowed, canvas.y, (0, 0.08), (body["head_width"], body["head_height"]))
    shade = 1 - 0.10 * np.clip(canvas.x * (2 * body["light"]), -1, 1)
    shade -= 0.16 * np.square(unit(distance * (1 / 0.25) + 1))
    shade *= 1 + 0.02 * textures(10) + 0.015 * textures(28)
    picture += edge(distance, canvas.pixel) * (colour(body, "skin")[:, None, None] * shade - picture)


def _draw_wrinkles(picture: Picture, canvas: Canvas, body: Latents) -> None:
    part = canvas.part(-0.45, -0.42, 0.45, 0.16)
    lines = _forehead_lines(part) + 0.9 * _crows_feet(part, body) + 0.8 * _eye_bags(part, body)
    lay(picture, part, unit(lines) * (0.75 * body["wrinkles"]), (0, 0, 0))


def _forehead_lines(part: Canvas) -> Plane:
    lines = np.zeros_like(part.x)
    arch = 0.12 * np.square(part.x)
    for height, half in ((-0.33, 0.24), (-0.265, 0.22), (-0.20, 0.20)):
        line = stroke(np.abs(part.y - height - arch), 0.010, part.pixel) * edge(part.side - half, 0.08)
        np.maximum(lines, line, out=lines)
    return lines


def _crows_feet(part: Canvas, body: Latents) -> Plane:
    x, y = body["eye_x"], body["eye_y"]
    upper = segment(part.side, part.y, (x + 0.11, y), (x + 0.19, y - 0.05))
    lower = segment(part.side, part.y, (x + 0.11, y + 0.03), (x + 0.19, y + 0.05))
    return stroke(np.minimum(upper, lower), 0.009, part.pixel)


def _eye_bags(part: Canvas, body: Latents) -> Plane:
    x, y = (part.side - body["eye_x"]) * (1 / 1.15), part.y - body["eye_y"]
    ring = np.abs(norm(x, y) - 0.105)
    return stroke(ring, 0.011, part.pixel) * edge(0.05 - y, part.pixel)


def _draw_nose(picture: Picture, canvas: Canvas, body: Latents) -> None:
    skin, tip, part = colour(body, "skin"), body["nose_y"], canvas.part(-0.2, -0.15, 0.2, 0.35)
    ring = np.abs(norm(0.8 * part.x, part.y - tip + 0.03) - 0.75 * body["nose_width"])
    wings = stroke(ring, 0.012, part.pixel) * edge(tip - 0.02 - part.y, part.pixel)
    lay(picture, part, 0.45 * wings, 0.45 * skin)
    lit = 1 if body["light"] >= 0 else -1
    bridge = segment(part.x, part.y, (0.02 * lit, -0.05), (0.025 * lit, tip - 0.04))
    lay(picture, part, 0.18 * soft(np.square(bridge) - 0.0012, 0.004), 0.6 * skin)
