"""The chest: tissue adds density, air takes it away, and a tone curve makes the film."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fastdime.data.phantoms.draw import (
    Canvas,
    Picture,
    Plane,
    Textures,
    box,
    edge,
    ellipse,
    norm,
    segment,
    soft,
    unit,
)
from fastdime.data.phantoms.streams import Draw, Latents, Normal, Uniform

BODY: dict[str, Draw] = {
    "shift_x": Normal(0.03),
    "shift_y": Normal(0.03),
    "rotation": Normal(0.03),
    "scale": Normal(0.04, mean=1),
    "body_width": Uniform(0.90, 1.06),
    "shoulder": Uniform(-0.86, -0.72),
    "tissue": Uniform(0.42, 0.60),
    "lung_width": Uniform(0.30, 0.36),
    "lung_height": Uniform(0.68, 0.80),
    "lung_side": Uniform(0.39, 0.43),
    "lung_y": Uniform(-0.12, -0.04),
    "diaphragm": Uniform(0.40, 0.54),
    "right_raised": Uniform(0.02, 0.10),
    "lung_air": Uniform(0.34, 0.46),
    "rib": Uniform(0.05, 0.11),
    "rib_spacing": Uniform(0.165, 0.20),
    "rib_offset": Uniform(0, 0.17),
    "rib_bend": Uniform(0.25, 0.5),
    "clavicle": Uniform(0.06, 0.14),
    "spine": Uniform(0.03, 0.09),
    "heart_density": Uniform(0.06, 0.14),
    "heart_rotation": Uniform(0.35, 0.75),
    "heart_aspect": Uniform(0.68, 0.82),
    "heart_offset": Uniform(0.20, 0.30),
    "heart_y": Uniform(-0.02, 0.04),
    "mediastinum": Uniform(0.13, 0.18),
    "knob": Uniform(0.06, 0.11),
    "gain": Uniform(1.7, 2.5),
    "exposure": Normal(0.07),
    "grain": Uniform(0.018, 0.045),
    "vessels": Uniform(0.02, 0.055),
    "breast": Uniform(0, 0.10),
    "haze": Normal(0.03),
}
MIDDLE_TONE = 0.42
HILUM = (0.12, 0.08)  # a collapsing lung shrinks towards it


@dataclass(frozen=True)
class Film:
    """A chest ready to be exposed; the objects are painted when first asked for."""

    body: Plane
    noise: Plane
    gain: float
    exposure: float
    paint_shortcut: Callable[[], Plane]
    paint_placebo: Callable[[], Plane]

    @cached_property
    def shortcut(self) -> Plane:
        """Density that the shortcut adds."""
        return self.paint_shortcut()

    @cached_property
    def placebo(self) -> Plane:
        """Density that the placebo adds."""
        return self.paint_placebo()

    def picture(self, shortcut: bool, placebo: bool) -> Picture:
        """Expose the film with the objects that are there."""
        density = self.body
        if shortcut:
            density = density + self.shortcut
        if placebo:
            density = density + self.placebo
        seen = (density + self.noise - MIDDLE_TONE) * self.gain + self.exposure
        return np.asarray(np.tanh(seen)[None])


def body_density(canvas: Canvas, body: Latents, textures: Textures) -> Plane:
    """Return the density of a chest; with a latent `collapse`, of one with a pneumothorax."""
    thick = thickness(canvas, body)
    dome = diaphragm(canvas.side, canvas.x, body)
    depth = lung_distance(canvas.side, canvas.y, dome, body)
    lung = soft(depth, max(0.05, canvas.pixel))
    air = lung * (0.72 + 0.28 * unit(depth * (-1 / 0.18))) * body["lung_air"]
    inside = lung * lung_markings(canvas, body, textures)
    if "collapse" in body:
        inside = collapse_lung(canvas, inside, lung, body)
    density = thick * (body["tissue"] - air) + inside
    density += 0.16 * edge(dome - canvas.y, 0.10) * thick - 0.30 * np.square(1 - thick)
    density += (ribs(canvas, body) + clavicles(canvas, body) + spine(canvas, body)) * thick
    density += silhouette(canvas, body) * (body["heart_density"] * thick + 0.70 * air)
    breast = ellipse(canvas.side, canvas.y, (0.50, 0.30), (0.34, 0.26))
    uneven = 0.022 * textures(3) + 0.012 * textures(32)
    return density + thick * (body["breast"] * soft(breast, 0.12) + uneven)


def film_noise(density: Plane, body: Latents, textures: Textures, white: Plane, strength: float) -> Plane:
    """Return sensor noise, stronger where more is in the way of the rays."""
    return body["grain"] * strength * (0.8 * textures(64) + 0.6 * white) * (0.5 + density)


def thickness(canvas: Canvas, body: Latents) -> Plane:
    """Return how much body the rays pass: a trunk with round shoulders and a neck, joined smoothly."""
    trunk = box(canvas.x, canvas.y, (0, body["shoulder"] + 1.4), (body["body_width"], 1.4), 0.42)
    neck = box(canvas.x, canvas.y, (0, -1), (0.21, 0.6), 0.15)
    share = unit(0.5 + (neck - trunk) * (0.5 / 0.18))
    distance = neck * (1 - share) + trunk * share - 0.18 * share * (1 - share)
    depth = unit(distance * (-1 / 0.42))
    return np.sqrt(depth * (2 - depth))


def diaphragm(side: Plane, x: Plane, body: Latents) -> Plane:
    """Return the height of the dome; the right half, at x < 0, stands higher."""
    arch = 0.9 * np.square(side - (body["lung_side"] - 0.08))
    return body["diaphragm"] - 0.05 - body["right_raised"] * soft(x, 0.2) + arch


def lung_distance(side: Plane, y: Plane, dome: Plane, body: Latents) -> Plane:
    """Return the signed distance to the lungs: eggs that the dome and the mediastinum cut."""
    v = (y - body["lung_y"]) * (1 / body["lung_height"])
    up = unit(-v)
    u = (side - (body["lung_side"] - 0.05 * up)) / (body["lung_width"] * (1 - 0.30 * up * up))
    egg = (norm(u, v) - 1) * body["lung_width"]
    return np.maximum(np.maximum(egg, (y - dome) * 0.9), 0.10 - side)


def lung_markings(canvas: Canvas, body: Latents, textures: Textures) -> Plane:
    """Return vessels, denser near the hilum, and haze."""
    hilum = np.exp(np.square(canvas.side - 0.22) * (-1 / 0.045) - np.square(canvas.y) * (1 / 0.10))
    vessels = 0.6 * textures(20) + 0.5 * textures(10)
    return np.asarray(body["vessels"] * vessels * (0.45 + hilum) + 0.16 * hilum + body["haze"])


def collapse_lung(canvas: Canvas, inside: Plane, lung: Plane, body: Latents) -> Plane:
    """Shrink one lung towards its hilum: no markings in the gap, and a fine line at the lung's border."""
    collapse, pixel = body["collapse"], canvas.pixel
    side = HILUM[0] + (canvas.side - HILUM[0]) * (1 / (1 - collapse))
    below = canvas.y - HILUM[1]
    y = HILUM[1] + below * np.where(below < 0, 1 / (1 - 0.75 * collapse), 1 / (1 - 0.25 * collapse))
    visceral = lung_distance(side, y, diaphragm(side, canvas.x, body), body) * (1 - collapse)
    here = lung * (canvas.x * body["side"] > 0)
    gap = edge(-visceral, max(0.03, pixel)) * here
    width = max(0.018, 0.6 * pixel)
    weight = min(1.0, collapse / 0.06) * min(1.0, 0.018 / width)
    line = unit(1 - np.abs(visceral) * (1 / width)) * here * weight
    return inside * (1 - gap) - 0.15 * gap + 0.12 * line


def ribs(canvas: Canvas, body: Latents) -> Plane:
    """Return the ribs: strong at the back, faint and steeper at the front."""
    side, y = canvas.side, canvas.y
    cage = np.minimum(unit(1 - np.abs(side - 0.44) * (1 / 0.40)) * 3, 1)
    cage = cage * edge(y - 0.62, 0.3) * edge(-(y + 0.72), 0.2)
    bend = body["rib_bend"] * 1.6 * np.square(side - 0.36)
    back = (y + bend - 0.10 * side - body["rib_offset"]) * (1 / body["rib_spacing"])
    front = (y - 0.55 * side - 0.5 * body["rib_offset"]) * (1 / (body["rib_spacing"] * 1.15))
    pulses = _pulse(back, 0.24) + 0.4 * _pulse(front, 0.26) * edge(0.30 - side, 0.2)
    return body["rib"] * cage * pulses


def _pulse(phase: Plane, half_width: float) -> Plane:
    return unit(1 - np.abs(phase - np.floor(phase) - 0.5) * (1 / half_width))


def clavicles(canvas: Canvas, body: Latents) -> Plane:
    """Return the collar bones."""
    distance = segment(canvas.side, canvas.y, (0.07, -0.56), (0.66, -0.68))
    return body["clavicle"] * soft(distance - 0.035, 0.05)


def spine(canvas: Canvas, body: Latents) -> Plane:
    """Return the vertebrae."""
    vertebrae = 0.75 + 0.25 * np.cos(canvas.y * (2 * np.pi / 0.17))
    fade = 0.55 + 0.45 * edge(-(canvas.y + 0.75), 0.5)
    return np.asarray(body["spine"] * soft(canvas.side - 0.085, 0.06) * vertebrae * fade)


def silhouette(canvas: Canvas, body: Latents) -> Plane:
    """Return mediastinum, aortic knob and a heart that is exactly `ctr` times as wide as the chest."""
    middle = soft(box(canvas.x, canvas.y, (0.01, -0.35), (body["mediastinum"], 0.62), 0.10), 0.07)
    knob = soft(ellipse(canvas.x, canvas.y, (0.13, -0.27), (0.05 + body["knob"], 0.10)), 0.06)
    half = body["ctr"] * (body["lung_side"] + body["lung_width"])
    turn, aspect = body["heart_rotation"], body["heart_aspect"]
    long = half / float(np.sqrt(np.cos(turn) ** 2 + (aspect * np.sin(turn)) ** 2))
    short = aspect * long
    centre = 1.44 * body["heart_offset"] * half, body["diaphragm"] - 0.03 - 0.8 * short + body["heart_y"]
    distance = ellipse(canvas.x, canvas.y, centre, (long, short), turn)
    heart = soft(distance, 0.055) * (0.80 + 0.20 * unit(distance * (-1 / 0.2)))
    return np.maximum(np.maximum(0.8 * middle, 0.75 * knob), heart)
