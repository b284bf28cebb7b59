"""What the phantoms have in common: a study says what is drawn, a subject is one draw of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from fastdime.data.phantoms import streams
from fastdime.data.phantoms.design import Dials
from fastdime.data.phantoms.draw import Picture
from fastdime.data.phantoms.streams import Draw, Latents, draw_latents, stream

Z_REACH = 3.2  # beyond this the picture shows no more of z


@dataclass(frozen=True)
class Subject:
    """All that is random about an image, but whether it shows the shortcut and the placebo.

    Attributes:
        body: z, the physical task latent and every nuisance.
        shortcut, placebo: geometry of the two objects; never a function of y or z.
    """

    seed: int
    index: int
    body: Latents
    shortcut: Latents
    placebo: Latents

    def latents(self) -> Latents:
        """Return all latents under different names."""
        return {
            **self.body,
            **{f"shortcut_{name}": value for name, value in self.shortcut.items()},
            **{f"placebo_{name}": value for name, value in self.placebo.items()},
        }


class Scene(Protocol):
    """A subject that can be drawn with and without each object."""

    def picture(self, shortcut: bool, placebo: bool) -> Picture:
        """Return the picture, (c, h, w) in [-1, 1]."""


@dataclass(frozen=True)
class Study:
    """One phantom.

    Attributes:
        task, shortcut, placebo: what the labels mean.
        task_latent: the physical latent that shows the task; a monotone function of z.
        body_draws, shortcut_draws, placebo_draws: the latents in the order in which they are drawn.
        show_task: returns the latents that depend on z.
        scene: makes the drawing of a subject.
    """

    name: str
    channels: int
    task: str
    task_latent: str
    shortcut: str
    placebo: str
    body_draws: Mapping[str, Draw]
    shortcut_draws: Mapping[str, Draw]
    placebo_draws: Mapping[str, Draw]
    show_task: Callable[[Latents], Latents]
    scene: Callable[[Subject, Dials, int], Scene]

    def subject(self, seed: int, index: int, dials: Dials) -> Subject:
        """Draw the subject of an index."""
        rng = stream(seed, streams.SUBJECT, index)
        z = float(rng.standard_normal()) + dials.d_prime * (index % 2 - 0.5)
        body = {"z": z, **draw_latents(rng, self.body_draws, dials.nuisance)}
        shortcut = draw_latents(stream(seed, streams.SHORTCUT, index), self.shortcut_draws)
        placebo = draw_latents(stream(seed, streams.PLACEBO, index), self.placebo_draws)
        return Subject(seed, index, {**body, **self.show_task(body)}, shortcut, placebo)


def clipped(z: float, highest: float = Z_REACH) -> float:
    """Return z within what a picture can show."""
    return min(max(z, -Z_REACH), highest)
