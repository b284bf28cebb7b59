"""The two chest studies: cardiomegaly with a pacemaker, pneumothorax with a drain."""

from collections.abc import Callable
from functools import partial

import numpy as np

from fastdime.data.phantoms import chest
from fastdime.data.phantoms.chest import Film
from fastdime.data.phantoms.design import Dials
from fastdime.data.phantoms.draw import (
    Canvas,
    Plane,
    Points,
    Pose,
    Textures,
    bezier,
    box,
    edge,
    paint_paths,
    turned,
)
from fastdime.data.phantoms.streams import (
    SENSOR,
    TEXTURE,
    Coin,
    Draw,
    Latents,
    LogUniform,
    Normal,
    Uniform,
    stream,
)
from fastdime.data.phantoms.study import Study, Subject, clipped

PACEMAKER_DRAWS: dict[str, Draw] = {
    "left": Coin(0.8),
    "x": Uniform(0.44, 0.58),
    "y": Uniform(-0.56, -0.42),
    "rotation": Uniform(-0.5, 0.5),
    "half": Uniform(0.105, 0.135),
    "aspect": Uniform(0.85, 1.1),
    "vein_x": Uniform(-0.10, -0.02),
    "vein_y": Uniform(-0.42, -0.34),
    "tip_x": Uniform(0.12, 0.26),
    "tip_y": Uniform(0.22, 0.34),
    "bow": Uniform(-0.06, 0.06),
    "second_lead": Coin(0.6),
    "second_x": Uniform(-0.12, -0.04),
    "second_y": Uniform(0.02, 0.12),
    "level": LogUniform(0.42, 1.15),
}
DRAIN_DRAWS: dict[str, Draw] = {
    "entry_x": Uniform(0.93, 1.0),
    "entry_y": Uniform(0.10, 0.42),
    "bend_x": Uniform(0.62, 0.74),
    "bend_y": Uniform(-0.05, 0.12),
    "tip_x": Uniform(0.34, 0.52),
    "tip_y": Uniform(-0.52, -0.36),
    "half": Uniform(0.020, 0.026),
    "level": Uniform(0.36, 0.50),
}
MARKER_DRAWS: dict[str, Draw] = {
    "letter_r": Coin(0.5),
    "x": Uniform(0.82, 0.88),
    "y": Uniform(-0.84, -0.78),
    "half": Uniform(0.07, 0.09),
}
LETTERS = {  # strokes of a letter, half as wide as high
    "L": [[(-0.5, -1.0), (-0.5, 1.0), (0.5, 1.0)]],
    "R": [
        [(-0.5, 1.0), (-0.5, -1.0), (0.35, -1.0), (0.5, -0.55), (0.3, -0.05), (-0.5, -0.05)],
        [(-0.05, -0.05), (0.55, 1.0)],
    ],
}
CORNER = 0.75  # share of a lead's curve before it turns into the vein
Painter = Callable[[Subject, Dials, Canvas], Plane]


def scene(paint_shortcut: Painter, subject: Subject, dials: Dials, size: int) -> Film:
    """Draw a chest, with the shortcut and the letter apart."""
    body, canvas = subject.body, Pose.of(subject.body).canvas(size)
    textures = Textures(stream(subject.seed, TEXTURE, subject.index), size)
    density = chest.body_density(canvas, body, textures)
    white = Textures(stream(subject.seed, SENSOR, subject.index), size).white()
    noise = chest.film_noise(density, body, textures, white, dials.noise)
    shortcut, letter = partial(paint_shortcut, subject, dials, canvas), partial(marker, subject.placebo, size)
    return Film(density, noise, body["gain"], body["exposure"], shortcut, letter)


def pacemaker(subject: Subject, dials: Dials, canvas: Canvas) -> Plane:
    """Return the density of a can with one or two leads."""
    geometry, strength = subject.shortcut, dials.contrast * subject.shortcut["level"]
    half_width = 0.016 * dials.shortcut_size * canvas.pose.scale
    paths = [canvas.pose.to_frame(path) for path in _leads(geometry, dials.shortcut_size, canvas.size)]
    lead = paint_paths(canvas.size, paths, half_width)
    can = _can(geometry, dials.shortcut_size, canvas)
    return 0.75 * strength * can + 0.40 * strength * lead * (1 - can)


def _can(geometry: Latents, scale: float, canvas: Canvas) -> Plane:
    half = geometry["half"] * scale
    x, y = _can_x(geometry), geometry["y"]
    reach = 1.7 * half
    part = canvas.part(x - reach, y - reach, x + reach, y + reach)
    u, v = turned(part.x, part.y, (x, y), geometry["rotation"])
    covered = np.zeros_like(canvas.x)
    shape = box(u, v, (0, 0), (half, half * geometry["aspect"]), 0.06 * scale)
    covered[part.place] = edge(shape, part.pixel / canvas.pose.scale)
    return covered


def _can_x(geometry: Latents) -> float:
    return geometry["x"] if geometry["left"] else -geometry["x"]


def _leads(geometry: Latents, scale: float, size: int) -> list[Points]:
    """Return the leads: from the can into the great vein, round its corner, and down into the heart."""
    x, half = _can_x(geometry), geometry["half"] * scale
    vein = geometry["vein_x"], geometry["vein_y"]
    start = x - np.sign(x) * 0.3 * half, geometry["y"] + 0.5 * half
    into = [start, (0.55 * x, vein[1] - 0.10), vein]
    first = [vein, (vein[0] - 0.05 + geometry["bow"], 0.16), (geometry["tip_x"], geometry["tip_y"])]
    leads = [_round_corner(into, first, size)]
    if geometry["second_lead"]:
        second = [vein, (vein[0] - 0.06, 0.05), (geometry["second_x"], geometry["second_y"])]
        leads.append(_round_corner(into, second, size))
    return leads


def _round_corner(into: list[tuple[float, float]], out: list[tuple[float, float]], size: int) -> Points:
    before, after = bezier(into, size, 0, CORNER), bezier(out, size, 1 - CORNER, 1)
    corner = bezier(np.stack([before[-1], np.asarray(into[-1]), after[0]]), size)
    return np.concatenate([before, corner[1:-1], after])


def drain(subject: Subject, dials: Dials, canvas: Canvas) -> Plane:
    """Return the density of a tube with a radio-opaque stripe, on the side of the pneumothorax."""
    geometry, side, scale = subject.shortcut, subject.body["side"], dials.shortcut_size * canvas.pose.scale
    control = [(side * geometry[f"{part}_x"], geometry[f"{part}_y"]) for part in ("entry", "bend", "tip")]
    size = canvas.size
    path = canvas.pose.to_frame(bezier(control, size))
    strength = dials.contrast * geometry["level"] / 0.43
    tube = paint_paths(size, [path], geometry["half"] * scale)
    return strength * (0.16 * tube + 0.42 * paint_paths(size, [path], 0.006 * scale))


def marker(geometry: Latents, size: int) -> Plane:
    """Return the density of a letter L or R in an upper corner."""
    letter, sign = ("R", -1) if geometry["letter_r"] else ("L", 1)
    centre = np.array([sign * geometry["x"], geometry["y"]])
    shape = np.array([0.8, 1.0]) * geometry["half"]
    paths = [centre + np.array(path) * shape for path in LETTERS[letter]]
    return 0.9 * paint_paths(size, paths, 0.018)


def _enlarge_heart(body: Latents) -> Latents:
    return {"ctr": 0.53 + 0.052 * clipped(body["z"])}


def _let_air_in(body: Latents) -> Latents:
    return {
        "collapse": 0.155 * float(np.exp(0.5 * clipped(body["z"], 2.6))),
        "side": 1.0 if body["left"] else -1.0,
    }


CHEST_PACEMAKER = Study(
    name="chest-pacemaker",
    channels=1,
    task="cardiomegaly",
    task_latent="ctr",
    shortcut="pacemaker",
    placebo="letter",
    body_draws=chest.BODY,
    shortcut_draws=PACEMAKER_DRAWS,
    placebo_draws=MARKER_DRAWS,
    show_task=_enlarge_heart,
    scene=partial(scene, pacemaker),
)
CHEST_DRAIN = Study(
    name="chest-drain",
    channels=1,
    task="pneumothorax",
    task_latent="collapse",
    shortcut="chest drain",
    placebo="letter",
    body_draws={**chest.BODY, "ctr": Normal(0.035, mean=0.47), "left": Coin(0.5)},
    shortcut_draws=DRAIN_DRAWS,
    placebo_draws=MARKER_DRAWS,
    show_task=_let_air_in,
    scene=partial(scene, drain),
)
