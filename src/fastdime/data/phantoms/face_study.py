"""The face study: is a person young, with a smile as the shortcut: a change of mouth, cheeks and eyes."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fastdime.data.phantoms.design import Dials
from fastdime.data.phantoms.draw import (
    Canvas,
    Picture,
    Plane,
    Pose,
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
from fastdime.data.phantoms.face import FACE_DRAWS, HairCap, draw_head, hair_colour, show_age
from fastdime.data.phantoms.streams import (
    SENSOR,
    TEXTURE,
    Coin,
    Colour,
    Draw,
    Latents,
    Paint,
    Uniform,
    colour,
    stream,
)
from fastdime.data.phantoms.study import Study, Subject

SMILE_DRAWS: dict[str, Draw] = {
    "curve": Uniform(0.075, 0.125),
    "width": Uniform(1.15, 1.35),
    "shows_teeth": Coin(0.7),
    "opening": Uniform(0.03, 0.085),
    "eyes": Uniform(0.75, 0.92),
    "cheeks": Uniform(0.06, 0.13),
    "fold": Uniform(0.10, 0.25),
}
GLASSES_DRAWS: dict[str, Draw] = {
    "round": Coin(0.5),
    "radius": Uniform(0.125, 0.15),
    "half": Uniform(0.014, 0.022),
    "colour": Paint(0.05, 0.35),
}
TEETH, GAP, EYEBALL, PUPIL, LASHES = (
    (0.96, 0.95, 0.92),
    (0.35, 0.10, 0.12),
    (0.95, 0.95, 0.94),
    (0.04, 0.04, 0.05),
    (0.12, 0.08, 0.07),
)
LIP_RED, CHEEK_RED = np.array([0.80, 0.25, 0.28]), np.array([0.9, 0.45, 0.35])


@dataclass(frozen=True)
class Expression:
    """What a smile changes; every field lies between the neutral and the smiling value."""

    curve: float
    width: float
    opening: float
    eye_height: float
    cheeks: float
    fold: float

    @classmethod
    def of(cls, subject: Subject, amount: float, scale: float) -> "Expression":
        """Blend the neutral face with the smile."""
        body, smile = subject.body, subject.shortcut
        return cls(
            curve=body["mouth_curve"] * (1 - amount) + amount * smile["curve"],
            width=body["mouth_width"] * (1 + amount * (smile["width"] * scale - 1)),
            opening=amount * scale * smile["opening"] * smile["shows_teeth"],
            eye_height=body["eye_height"] * (1 - amount * (1 - smile["eyes"])),
            cheeks=amount * smile["cheeks"],
            fold=min(0.8 * body["wrinkles"] + amount * smile["fold"], 1.0),
        )


@dataclass(frozen=True)
class Portrait:
    """A head that still lacks its expression."""

    subject: Subject
    dials: Dials
    canvas: Canvas
    head: Picture
    cap: HairCap
    noise: Picture

    @cached_property
    def neutral(self) -> Picture:
        """The face without a smile."""
        return self._with_expression(0.0)

    @cached_property
    def smiling(self) -> Picture:
        """The face with a smile."""
        return self._with_expression(self.dials.contrast)

    def _with_expression(self, amount: float) -> Picture:
        picture = self.head.copy()
        face = Expression.of(self.subject, amount, self.dials.shortcut_size)
        draw_expression(picture, self.canvas, self.subject.body, face)
        return self.cap.over(picture)

    def picture(self, shortcut: bool, placebo: bool) -> Picture:
        """Draw the face with or without a smile and glasses."""
        body, picture = self.subject.body, self.smiling if shortcut else self.neutral
        if placebo:
            picture = picture.copy()
            draw_glasses(picture, self.canvas, body, self.subject.placebo)
        across = np.linspace(-1, 1, 2 * self.canvas.size + 1)[1::2]
        light = body["gain"] * (1 + 0.10 * body["light"] * across)
        return np.clip(picture * light + self.noise, 0, 1) * 2 - 1


def scene(subject: Subject, dials: Dials, size: int) -> Portrait:
    """Draw the head of a subject."""
    canvas = Pose.of(subject.body).canvas(size)
    textures = Textures(stream(subject.seed, TEXTURE, subject.index), size)
    sensor = Textures(stream(subject.seed, SENSOR, subject.index), size)
    head, cap = draw_head(canvas, subject.body, textures)
    noise = subject.body["grain"] * dials.noise * (0.7 * sensor(64) + 0.6 * sensor.white(3))
    return Portrait(subject, dials, canvas, head, cap, noise)


def draw_expression(picture: Picture, canvas: Canvas, body: Latents, face: Expression) -> None:
    """Draw cheeks, folds, eyes, brows and mouth."""
    _draw_cheeks(picture, canvas, face)
    _draw_folds(picture, canvas, body, face)
    _draw_eyes(picture, canvas, body, face)
    _draw_brows(picture, canvas, body)
    _draw_mouth(picture, canvas, body, face)


def _draw_cheeks(picture: Picture, canvas: Canvas, face: Expression) -> None:
    part = canvas.part(-0.52, 0.03, 0.52, 0.39)
    raised = soft(ellipse(part.side, part.y, (0.29, 0.21), (0.13, 0.10)), 0.12) * face.cheeks
    skin = picture[:, part.place[0], part.place[1]]
    skin += raised * ((CHEEK_RED - 0.6)[:, None, None] * skin + 0.15)


def _draw_folds(picture: Picture, canvas: Canvas, body: Latents, face: Expression) -> None:
    part = canvas.part(-face.width - 0.1, 0.05, face.width + 0.1, 0.5)
    bend, mouth = (face.width + 0.035, body["mouth_y"] - 0.09), body["mouth_y"]
    upper = segment(part.side, part.y, (body["nose_width"] + 0.035, body["nose_y"] - 0.02), bend)
    lower = segment(part.side, part.y, bend, (face.width + 0.055, mouth + 0.01))
    line = stroke(np.minimum(upper, lower), 0.010, part.pixel)
    lay(picture, part, line * (0.7 * face.fold), (0, 0, 0))


def _draw_eyes(picture: Picture, canvas: Canvas, body: Latents, face: Expression) -> None:
    x, y, high, pixel = body["eye_x"], body["eye_y"], face.eye_height, canvas.pixel
    part = canvas.part(-0.4, y - 0.12, 0.4, y + 0.12)
    shape, radius = (
        ellipse(part.side, part.y, (x, y), (body["eye_width"], high)),
        norm(part.side - x, part.y - y),
    )
    eye = edge(shape, pixel)
    lay(picture, part, eye, EYEBALL)
    lay(picture, part, eye * edge(radius - 0.95 * high, pixel), colour(body, "iris"))
    lay(picture, part, eye * edge(radius - 0.45 * high, pixel), PUPIL)
    lay(picture, part, stroke(np.abs(shape), 0.012, pixel) * edge(part.y - y, 0.03), LASHES)


def _draw_brows(picture: Picture, canvas: Canvas, body: Latents) -> None:
    x, y = body["eye_x"], body["eye_y"] - body["brow_height"]
    part = canvas.part(-0.4, y - 0.08, 0.4, y + 0.08)
    brow = segment(part.side, part.y, (x - 0.09, y + 0.01), (x + 0.09, y))
    lay(picture, part, edge(brow - body["brow"], part.pixel), 0.75 * hair_colour(body))


def _draw_mouth(picture: Picture, canvas: Canvas, body: Latents, face: Expression) -> None:
    middle, reach, pixel = body["mouth_y"], 1.2 * face.width, canvas.pixel
    part = canvas.part(-reach, middle - 0.3, reach, middle + 0.3)
    place = np.minimum(part.side * (1 / face.width), 1.3)
    taper = np.sqrt(unit(1 - np.square(place)))
    y = part.y - middle - face.curve * (0.5 - 1.1 * np.square(place)) - 0.35 * face.opening * taper
    height = body["lips"] * (0.35 + 0.65 * taper) + 0.5 * face.opening * taper
    lay(picture, part, edge(np.maximum(np.abs(y) - height, part.side - face.width), pixel), _lip_colour(body))
    if face.opening > 0:
        _draw_teeth(picture, part, y, np.maximum(height - 0.022, 0), 0.88 * face.width)
    else:
        line = stroke(np.abs(y), 0.008, pixel) * edge(part.side - 1.03 * face.width, pixel)
        lay(picture, part, 0.8 * line, 0.25 * colour(body, "skin"))


def _lip_colour(body: Latents) -> Colour:
    red = body["lip_colour"]
    return 0.75 * (1 - red) * colour(body, "skin") + red * LIP_RED


def _draw_teeth(picture: Picture, part: Canvas, y: Plane, height: Plane, width: float) -> None:
    inside = np.maximum(np.abs(y) - height, part.side - width)
    lay(picture, part, edge(inside, part.pixel), TEETH)
    lay(picture, part, edge(np.maximum(inside, 0.45 * height - y), part.pixel), GAP)


def draw_glasses(picture: Picture, canvas: Canvas, body: Latents, geometry: Latents) -> None:
    """Draw round or square glasses with a bridge and arms."""
    radius, x, y = geometry["radius"], body["eye_x"], body["eye_y"]
    part = canvas.part(-0.65, y - 0.25, 0.65, y + 0.25)
    centre = x + 0.005, y + 0.005
    if geometry["round"]:
        rim = ellipse(part.side, part.y, centre, (radius, 0.92 * radius))
    else:
        rim = box(part.side, part.y, centre, (radius, 0.72 * radius), 0.04)
    bridge = segment(part.side, part.y, (0, y - 0.01), (x - radius + 0.005, y))
    arm = segment(part.side, part.y, (x + radius, y - 0.03), (body["head_width"], y - 0.05))
    frame = np.minimum(np.abs(rim), np.minimum(bridge, arm))
    lay(picture, part, 0.9 * stroke(frame, geometry["half"], part.pixel), colour(geometry, "colour"))


FACE_SMILE = Study(
    name="face-smile",
    channels=3,
    task="young",
    task_latent="wrinkles",
    shortcut="smile",
    placebo="glasses",
    body_draws=FACE_DRAWS,
    shortcut_draws=SMILE_DRAWS,
    placebo_draws=GLASSES_DRAWS,
    show_task=show_age,
    scene=scene,
)
