"""A made-up world whose denoiser and classifier are known exactly: no training, no download.

An image is a smooth random background; half of the images carry a bright ring at one of sixteen places.
That is a mixture of Gaussians with one covariance: the best denoiser and classifier have a formula.
"""

from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from fastdime.classifiers.wrapper import ImageClassifier
from fastdime.diffusion.denoiser import Denoiser
from fastdime.diffusion.schedule import linear
from fastdime.noise import SeededNoise
from fastdime.pixels import to_grid

SIZE = 32
PLACES = 4  # rings stand on a PLACES x PLACES grid
BACKGROUND = -0.3
RING = 0.7
TEMPERATURE = 150.0  # the exact classifier is surer than any network would be


def _cosines() -> Tensor:
    """Orthonormal cosine basis: row k is wave k."""
    k, i = np.arange(SIZE)[:, None], np.arange(SIZE)[None]
    basis = np.sqrt(2 / SIZE) * np.cos(np.pi * (2 * i + 1) * k / (2 * SIZE))
    basis[0] /= np.sqrt(2)
    return torch.from_numpy(basis)


def _spectrum() -> Tensor:
    """Variance of each wave of the background: large for long waves."""
    k = torch.arange(SIZE, dtype=torch.float64)
    frequency = (k[:, None] ** 2 + k[None] ** 2).sqrt()
    power = 1 / (1 + frequency) ** 4
    return power * (0.2**2 * SIZE**2 / power.sum()) + 1e-4


def _rings() -> Tensor:
    """One image of a ring at each place, and an empty one first."""
    y, x = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    step = SIZE // PLACES
    pictures = [torch.zeros(SIZE, SIZE, dtype=torch.float64)]
    for place in range(PLACES**2):
        row, column = divmod(place, PLACES)
        radius = ((y - step * (row + 0.5) + 0.5) ** 2 + (x - step * (column + 0.5) + 0.5) ** 2).sqrt()
        pictures.append(RING * torch.exp(-((radius - 2) ** 2)).to(torch.float64))
    return torch.stack(pictures)


class World(nn.Module):
    """The mixture: component 0 has no ring, component k has it at place k - 1."""

    basis: Tensor
    variance: Tensor
    means: Tensor
    prior: Tensor

    def __init__(self) -> None:
        """Lay the tables out; there is nothing to load."""
        super().__init__()
        share = torch.full((PLACES**2 + 1,), 0.5 / PLACES**2)
        share[0] = 0.5
        self.register_buffer("basis", _cosines().float())
        self.register_buffer("variance", _spectrum().float())
        self.register_buffer("means", self.waves((BACKGROUND + _rings()).float()))
        self.register_buffer("prior", share.log())

    def waves(self, x: Tensor) -> Tensor:
        """Transform images to waves."""
        return self.basis @ x @ self.basis.T

    def pixels(self, waves: Tensor) -> Tensor:
        """Transform waves to images."""
        return self.basis.T @ waves @ self.basis

    def scores(self, x_t: Tensor, alpha_bar: Tensor) -> Tensor:
        """Log-probability of each component, up to a constant, given images noised to alpha-bar."""
        difference = self.waves(x_t) - alpha_bar.sqrt() * self.means
        return self.prior - (difference**2 / self.spread(alpha_bar)).sum((2, 3)) / 2

    def spread(self, alpha_bar: Tensor) -> Tensor:
        """Variance of the waves of a noised image."""
        return alpha_bar * self.variance + 1 - alpha_bar

    def expected(self, x_t: Tensor, alpha_bar: Tensor) -> Tensor:
        """The clean image one expects behind x_t."""
        weight = self.scores(x_t, alpha_bar).softmax(1)[:, :, None, None]
        mean = (weight * self.means).sum(1, keepdim=True)
        shrink = alpha_bar.sqrt() * self.variance / self.spread(alpha_bar)
        return self.pixels(mean + shrink * (self.waves(x_t) - alpha_bar.sqrt() * mean))


class ExactNoise(nn.Module):
    """Predicts the noise in x_t exactly, on the linear chain of 1000 steps."""

    alpha_bar: Tensor

    def __init__(self) -> None:
        """Keep the table of noise levels."""
        super().__init__()
        self.world = World()
        self.register_buffer("alpha_bar", torch.from_numpy(linear(1000).alpha_bar).float())

    def forward(self, x_t: Tensor, times: Tensor) -> Tensor:
        """Return the expected noise."""
        alpha_bar = self.alpha_bar[times].view(-1, 1, 1, 1)
        clean = self.world.expected(x_t, alpha_bar)
        return (x_t - alpha_bar.sqrt() * clean) / (1 - alpha_bar).sqrt()


class RingClassifier(nn.Module):
    """Log-odds that there is a ring, tempered."""

    def __init__(self) -> None:
        """Make the world."""
        super().__init__()
        self.world = World()

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b 1"]:
        """Score images."""
        # Alpha-bar just below 1 stands for the 8-bit rounding of the images.
        scores = self.world.scores(x, x.new_tensor(0.999))
        return (scores[:, 1:].logsumexp(1) - scores[:, 0])[:, None] / TEMPERATURE


def denoiser() -> Denoiser:
    """Return the exact denoiser."""
    return Denoiser(ExactNoise().eval(), linear(1000), size=SIZE, channels=1)


def classifier() -> ImageClassifier:
    """Return the exact classifier of "there is a ring"."""
    return ImageClassifier(RingClassifier().eval())


@dataclass(frozen=True)
class Pictures:
    """Images, whether each has a ring, and the same images the other way round: the exact counterfactuals."""

    x: Float[Tensor, "b 1 h w"]
    ring: Int[Tensor, " b"]
    other: Float[Tensor, "b 1 h w"]


def pictures(n: int, seed: int = 0) -> Pictures:
    """Draw n images; every second one has a ring.

    >>> pictures(4).ring.tolist()
    [0, 1, 0, 1]
    """
    world = World()
    noise = SeededNoise(seed, [str(i) for i in range(n)]).draw(torch.zeros(n, 1, SIZE, SIZE), "background")
    background = BACKGROUND + world.pixels(noise * world.variance.sqrt())
    place = torch.from_numpy(np.random.default_rng(seed).integers(PLACES**2, size=n))
    ring = torch.arange(n) % 2
    shape = _rings().float()[1 + place][:, None]
    with_ring, without = to_grid(background + shape), to_grid(background)
    has = (ring == 1).view(-1, 1, 1, 1)
    return Pictures(torch.where(has, with_ring, without), ring, torch.where(has, without, with_ring))


def write(out: Path, n: int, seed: int = 0) -> Path:
    """Write n images as PNG with a table.csv; returns the table's path."""
    from fastdime.data.io import write_image

    drawn = pictures(n, seed)
    out.mkdir(parents=True, exist_ok=True)
    lines = ["id,path,ring"]
    for i in range(n):
        write_image(out / f"{i:04d}.png", drawn.x[i], 8)
        lines.append(f"{i:04d},{i:04d}.png,{int(drawn.ring[i])}")
    table = out / "table.csv"
    table.write_text("\n".join(lines) + "\n", encoding="utf8")
    return table


def main() -> None:
    """Write made-up images with and without a ring."""
    parser = ArgumentParser(prog="python -m fastdime.toy", description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the images and table.csv")
    parser.add_argument("--n", type=int, default=12, help="how many images")
    parser.add_argument("--seed", type=int, default=0)
    wanted = parser.parse_args()
    print(write(wanted.out, wanted.n, wanted.seed))


if __name__ == "__main__":
    main()
