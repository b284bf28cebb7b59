"""Read a face: its age, its smile and its colours, after turning and shifting it onto the mean face."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from fastdime.data.phantoms.draw import Pose
from fastdime.data.phantoms.measure_tools import blur, sample

SIZE = 64  # of a registered face
TURNS = torch.linspace(-0.18, 0.18, 9)
REACH = 4  # pixels by which a face may be shifted
SKIN = (slice(34, 41), slice(23, 41))  # cheeks and nose
AGED = (slice(16, 50), slice(17, 47))  # forehead to mouth
HAIR = (slice(4, 24), slice(12, 52))
LOWER = (slice(24, 53), slice(16, 48))  # eyes to chin
Faces = Float[Tensor, "b 3 h w"]
Registered = Float[Tensor, "b 3 64 64"]
Features = Float[Tensor, "b f"]


def warp(x: Faces, turn: Tensor, shift: Float[Tensor, "b 2"]) -> Float[Tensor, "b 3 64 64"]:
    """Return faces of 64 pixels, turned back by an angle and shifted back."""
    place = (torch.arange(SIZE) + 0.5) / SIZE * 2 - 1
    y, x0 = torch.meshgrid(place, place, indexing="ij")
    cosine, sine = torch.cos(turn).view(-1, 1, 1), torch.sin(turn).view(-1, 1, 1)
    points = torch.stack([cosine * x0 - sine * y, sine * x0 + cosine * y], -1) + shift.view(-1, 1, 1, 2)
    return sample(x, points)


def _edges(x: Float[Tensor, "b 3 64 64"]) -> Float[Tensor, "b 64 64"]:
    """Return the strength of edges, with mean 0 and length 1."""
    grey = blur(x.mean(1), 0.8)
    down, across = torch.gradient(grey, dim=(1, 2))
    strength = torch.sqrt(down**2 + across**2)
    centred = strength - strength.mean((1, 2), keepdim=True)
    length: Tensor = centred.square().sum((1, 2), keepdim=True).sqrt()
    return centred / length


@dataclass(frozen=True)
class FaceReader:
    """Knows the edges of the mean face."""

    mean: Float[Tensor, "64 64"]

    @classmethod
    def from_poses(cls, x: Faces, poses: list[Pose]) -> "FaceReader":
        """Learn the mean face from faces whose poses are known."""
        turn = torch.tensor([pose.rotation for pose in poses], dtype=x.dtype)
        shift = torch.tensor([(pose.dx, pose.dy) for pose in poses], dtype=x.dtype)
        return cls(_edges(warp(x, turn, shift)).mean(0))

    def register(self, x: Faces) -> Float[Tensor, "b 3 64 64"]:
        """Turn and shift each face to where its edges fit the mean face best."""
        still = torch.zeros(len(x), 2)
        fits = [self._fits(_edges(warp(x, turn.expand(len(x)), still))) for turn in TURNS]
        best = torch.stack(fits, 1).flatten(1).argmax(1)
        width = 2 * REACH + 1
        turn = TURNS[best // width**2]
        down, across = best % width**2 // width - REACH, best % width - REACH
        moved = torch.stack([across, down], 1) * (2 / SIZE)
        cosine, sine = torch.cos(turn), torch.sin(turn)
        shift = torch.stack(
            [cosine * moved[:, 0] - sine * moved[:, 1], sine * moved[:, 0] + cosine * moved[:, 1]], 1
        )
        return warp(x, turn, shift)

    def _fits(self, edges: Float[Tensor, "b 64 64"]) -> Float[Tensor, "b s s"]:
        """Return the correlation with the mean face for every shift."""
        padded = functional.pad(edges[:, None], [REACH] * 4)
        return functional.conv2d(padded, self.mean[None, None])[:, 0]


def age(registered: Registered) -> Features:
    """Return a map of dark lines, and the colours of the hair."""
    grey = _over_skin(registered).mean(1)
    lines = (grey - blur(grey, 2.0))[:, AGED[0], AGED[1]]
    hair = functional.avg_pool2d(registered[:, :, HAIR[0], HAIR[1]], 4)
    return torch.cat([lines.flatten(1), hair.flatten(1)], 1)


def smile(registered: Registered) -> Features:
    """Return the lower face in grey and in red against green."""
    skin = _over_skin(registered)[:, :, LOWER[0], LOWER[1]]
    return torch.cat([skin.mean(1).flatten(1), (skin[:, 0] - skin[:, 1]).flatten(1)], 1)


def colours(registered: Registered) -> Features:
    """Return the colours of all parts of the picture, coarsely."""
    return functional.avg_pool2d(registered, 4).flatten(1)


def _over_skin(registered: Registered) -> Registered:
    """Return faces relative to the colour of their skin."""
    light = (registered + 1) / 2
    skin = light[:, :, SKIN[0], SKIN[1]].flatten(2).median(2).values
    return (light / (skin[..., None, None] + 0.08)).clamp(0, 2)
