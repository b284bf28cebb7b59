"""The skin study: is a mole malignant (ragged and many-coloured), with a ruler as the shortcut."""

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
    bezier,
    edge,
    norm,
    paint_paths,
    soft,
    stroke,
    turned,
    unit,
)
from fastdime.data.phantoms.streams import (
    SENSOR,
    TEXTURE,
    Choice,
    Draw,
    Latents,
    Normal,
    Palette,
    Uniform,
    colour,
    stream,
)
from fastdime.data.phantoms.study import Study, Subject, clipped

TONES = ((0.93, 0.76, 0.68), (0.88, 0.68, 0.58), (0.80, 0.58, 0.46), (0.95, 0.80, 0.74))
HARMONICS = {2: 1.0, 3: 1.0, 4: 0.85, 5: 0.7, 6: 0.6, 7: 0.5}  # waves around the outline, and their weight
SKIN_DRAWS: dict[str, Draw] = {
    "tone": Palette(TONES),
    "brightness": Uniform(0.88, 1.04),
    "shift_x": Normal(0.08),
    "shift_y": Normal(0.08),
    "radius": Uniform(0.34, 0.52),
    "aspect": Uniform(0.75, 1),
    "rotation": Uniform(0, 2 * np.pi),
    "vignette": Uniform(0.10, 0.38),
    "balance_red": Normal(0.03),
    "balance_green": Normal(0.03),
    "balance_blue": Normal(0.03),
    "gain": Uniform(0.88, 1.08),
    "grain": Uniform(0.012, 0.03),
    "edge": Uniform(0.08, 0.16),
    "darkness": Uniform(0.45, 0.75),
    "hue": Uniform(0, 1),
    "network": Uniform(0.02, 0.09),
    "light_x": Normal(0.06),
    "light_y": Normal(0.06),
    **{f"phase_{wave}": Uniform(0, 2 * np.pi) for wave in HARMONICS},
    **{f"wave_{wave}": Normal(1.0) for wave in HARMONICS},
}
RULER_DRAWS: dict[str, Draw] = {
    "side": Choice(4),
    "distance": Uniform(0.80, 0.93),
    "tilt": Uniform(-0.12, 0.12),
    "period": Uniform(0.105, 0.15),
    "phase": Uniform(0, 1),
    "length": Uniform(0.13, 0.19),
    "half": Uniform(0.012, 0.017),
    "level": Uniform(0.45, 0.9),
    "major": Choice(2),
}
HAIRS = 4
ONE_HAIR: dict[str, Draw] = {
    "angle": Uniform(0, 2 * np.pi),
    "end_x": Uniform(-0.8, 0.8),
    "end_y": Uniform(-0.8, 0.8),
    "bend_x": Normal(0.25),
    "bend_y": Normal(0.25),
}
HAIR_DRAWS: dict[str, Draw] = {
    "fewer": Choice(3),
    "half": Uniform(0.010, 0.015),
    "level": Uniform(0.5, 0.8),
    **{f"{part}_{hair}": draw for hair in range(HAIRS) for part, draw in ONE_HAIR.items()},
}
INK, HAIR = np.array([0.12, 0.11, 0.14]), np.array([0.16, 0.10, 0.07])


@dataclass(frozen=True)
class Photograph:
    """Skin with a mole; what may lie on it is painted when first asked for."""

    subject: Subject
    dials: Dials
    canvas: Canvas
    skin: Picture
    noise: Picture

    @cached_property
    def ruler(self) -> Plane:
        """Ink of the ruler."""
        return ruler(self.canvas, self.subject.shortcut, self.dials)

    @cached_property
    def hairs(self) -> Plane:
        """Cover by hairs."""
        return hairs(self.subject.placebo, self.canvas.size)

    def picture(self, shortcut: bool, placebo: bool) -> Picture:
        """Take the photograph with the objects that are there."""
        light = self.skin
        if shortcut:
            light = light + self.ruler * (INK[:, None, None] - light)
        if placebo:
            light = light + self.hairs * (HAIR[:, None, None] - light)
        return np.clip(light + self.noise, 0, 1) * 2 - 1


def scene(subject: Subject, dials: Dials, size: int) -> Photograph:
    """Draw skin with a mole, and the ruler and the hairs apart."""
    body, canvas = subject.body, Pose().canvas(size)
    textures = Textures(stream(subject.seed, TEXTURE, subject.index), size)
    sensor = Textures(stream(subject.seed, SENSOR, subject.index), size)
    light = skin_light(canvas, body, textures)
    light *= np.exp(-1.25 * pigment(canvas, body, textures))
    light *= exposure(canvas, body)
    noise = body["grain"] * dials.noise * (0.7 * sensor(64) + 0.6 * sensor.white(3))
    return Photograph(subject, dials, canvas, light, noise)


def skin_light(canvas: Canvas, body: Latents, textures: Textures) -> Picture:
    """Return bare skin: its tone, blotches and the slope of the light."""
    even = 1 + 0.035 * textures(8) + 0.02 * textures(20)
    even += body["light_x"] * canvas.x + body["light_y"] * canvas.y
    light = colour(body, "tone")[:, None, None] * body["brightness"] * even
    light[0] += body["tone_red"] * body["brightness"] * 0.02 * textures(6)
    return light


def outline_distance(canvas: Canvas, body: Latents) -> Plane:
    """Return the distance to a ragged outline: a turned ellipse with waves around it."""
    x, y = turned(canvas.x, canvas.y, (body["shift_x"], body["shift_y"]), body["rotation"])
    y = y * (1 / body["aspect"])
    radius = norm(x, y) + 1e-6
    cosine, sine = x / radius, y / radius
    waves = np.zeros_like(radius)
    c, s = cosine, sine
    for wave, height in _wave_heights(body).items():  # angle sums: no cosine of an angle is needed
        c, s = c * cosine - s * sine, s * cosine + c * sine
        waves += height * (np.cos(body[f"phase_{wave}"]) * c + np.sin(body[f"phase_{wave}"]) * s)
    return radius - body["radius"] * (1 + 1.1 * body["irregularity"] * waves)


def _wave_heights(body: Latents) -> dict[int, float]:
    heights = {wave: (abs(body[f"wave_{wave}"]) + 0.25) * weight for wave, weight in HARMONICS.items()}
    norm = sum(height**2 for height in heights.values()) ** 0.5
    return {wave: height / norm for wave, height in heights.items()}


def pigment(canvas: Canvas, body: Latents, textures: Textures) -> Picture:
    """Return what the mole absorbs of red, green and blue."""
    distance, varied = outline_distance(canvas, body), body["variegation"]
    depth = body["darkness"] * (0.75 + 0.25 * unit(distance * (-1 / 0.25))) + varied * textures(7)
    hue = 0.3 * body["hue"] + 1.2 * varied * textures(11)
    depth -= body["network"] * (np.abs(textures(26)) - 0.8)
    density = np.clip(depth, 0.12, 1.15) * soft(distance, max(body["edge"], canvas.pixel))
    return np.stack([0.55 - 0.15 * hue, 0.95 + 0.10 * hue, 1.15 - 0.40 * hue]) * density


def exposure(canvas: Canvas, body: Latents) -> Picture:
    """Return vignette and white balance."""
    vignette = np.clip(0.62 * (np.square(canvas.x) + np.square(canvas.y)) - 0.12, 0, 2)
    return (body["gain"] * (1 + colour(body, "balance")))[:, None, None] * (1 - body["vignette"] * vignette)


def ruler(canvas: Canvas, geometry: Latents, dials: Dials) -> Plane:
    """Return how much ink of a ruler each pixel has: a line along one side, with ticks inwards."""
    x, y, scale = canvas.x, canvas.y, dials.shortcut_size
    along, out = [(x, y), (y, x), (x, -y), (y, -x)][int(geometry["side"])]
    along, out = turned(along, out, (0, 0), geometry["tilt"])
    phase = along * (1 / geometry["period"]) + geometry["phase"]
    nearest = np.floor(phase + 0.5)
    major = np.mod(nearest, 4 + geometry["major"]) == 0
    half, inner = geometry["half"] * scale, geometry["distance"] - out
    length = geometry["length"] * scale * (0.55 + 0.45 * major)
    tick = stroke(np.abs(phase - nearest) * geometry["period"], half, canvas.pixel)
    tick *= edge(-inner, canvas.pixel) * edge(inner - length, canvas.pixel)
    line = stroke(np.abs(inner), half, canvas.pixel)
    return unit(np.maximum(tick, line) * geometry["level"] * dials.contrast)


def hairs(geometry: Latents, size: int) -> Plane:
    """Return how much hair covers each pixel: two to four hairs that come in from the rim."""
    paths = []
    for hair in range(HAIRS - int(geometry["fewer"])):
        angle = geometry[f"angle_{hair}"]
        start = 1.21 * np.array([np.cos(angle), np.sin(angle)])
        end = -0.2 * start + np.array([geometry[f"end_x_{hair}"], geometry[f"end_y_{hair}"]])
        bend = np.array([geometry[f"bend_x_{hair}"], geometry[f"bend_y_{hair}"]])
        paths.append(bezier(np.stack([start, (start + end) / 2 + bend, end]), size))
    return paint_paths(size, paths, geometry["half"]) * geometry["level"]


def _make_atypical(body: Latents) -> Latents:
    growth = float(np.exp(0.42 * clipped(body["z"])))
    return {"irregularity": 0.085 * growth, "variegation": 0.11 * growth}


SKIN_RULER = Study(
    name="skin-ruler",
    channels=3,
    task="malignant",
    task_latent="irregularity",
    shortcut="ruler",
    placebo="hairs",
    body_draws=SKIN_DRAWS,
    shortcut_draws=RULER_DRAWS,
    placebo_draws=HAIR_DRAWS,
    show_task=_make_atypical,
    scene=scene,
)
