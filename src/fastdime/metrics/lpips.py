"""LPIPS version 0.1 (Zhang et al. 2018), from files with weights that the user has.

The trunk is torchvision's `alexnet` or `vgg16`; the linear weights are the files `weights/v0.1/alex.pth` or
`vgg.pth` of the package lpips (torchmetrics carries the same).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fastdime.errors import CheckpointError, InputError, expected
from fastdime.metrics.closeness import check_pair
from fastdime.types import Images
from fastdime.weights import Weights, load_into, read_weights

SHIFT, SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)
SMALLEST = 1e-10  # added to the length of a feature vector, which can be 0
FIRST = "0.weight"


@dataclass(frozen=True)
class Plan:
    """A trunk as torchvision numbers its modules.

    Attributes:
        layers: (channels, kernel, stride, padding) of a convolution with its ReLU, or (kernel, stride) of a
            max-pooling.
        taps: modules whose outputs are compared.
        widths: their channels.
        least: the smallest image that leaves something at the last tap.
    """

    layers: tuple[tuple[int, ...], ...]
    taps: tuple[int, ...]
    widths: tuple[int, ...]
    least: int


POOL2, POOL3 = (2, 2), (3, 2)
ALEX = Plan(
    ((64, 11, 4, 2), POOL3, (192, 5, 1, 2), POOL3, (384, 3, 1, 1), (256, 3, 1, 1), (256, 3, 1, 1)),
    taps=(1, 4, 7, 9, 11),
    widths=(64, 192, 384, 256, 256),
    least=31,
)


def _vgg_layers() -> Iterator[tuple[int, ...]]:
    for stage, (width, count) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))):
        yield from [POOL2] * (stage > 0) + [(width, 3, 1, 1)] * count


VGG = Plan(tuple(_vgg_layers()), (3, 8, 15, 22, 29), (64, 128, 256, 512, 512), least=16)
PLANS = {(64, 3, 11, 11): ALEX, (64, 3, 3, 3): VGG}  # by the shape of the first weight


def trunk_of(plan: Plan) -> nn.Sequential:
    """Build the convolutions of a plan, with random weights."""
    modules: list[nn.Module] = []
    before = 3
    for layer in plan.layers:
        if len(layer) == 2:
            modules.append(nn.MaxPool2d(*layer))
        else:
            channels, kernel, stride, padding = layer
            modules += [nn.Conv2d(before, channels, kernel, stride, padding), nn.ReLU()]
            before = channels
    return nn.Sequential(*modules)


class Lpips(nn.Module):
    """Perceptual distance of two batches of images: 0 = equal."""

    shift: Tensor
    scale: Tensor

    def __init__(self, plan: Plan) -> None:
        """Build the network of a plan, with random weights."""
        super().__init__()
        self.plan = plan
        self.trunk = trunk_of(plan)
        self.lins = nn.ModuleList(nn.Conv2d(width, 1, 1, bias=False) for width in plan.widths)
        self.register_buffer("shift", torch.tensor(SHIFT).view(1, 3, 1, 1))
        self.register_buffer("scale", torch.tensor(SCALE).view(1, 3, 1, 1))

    @torch.no_grad()
    def forward(self, x: Tensor, x_cf: Tensor) -> Float[Tensor, " b"]:
        """Compare images in [-1, 1]; gray counts as three equal channels."""
        check_pair(x, x_cf)
        least = self.plan.least
        if x.shape[1] not in (1, 3) or min(x.shape[2:]) < least:
            wanted = f"1 or 3 channels and at least {least}x{least} pixels"
            raise InputError(expected("images for LPIPS", wanted, tuple(x.shape)))
        parts = [
            lin((a - b).square()).mean((1, 2, 3))
            for lin, a, b in zip(self.lins, self._features(x), self._features(x_cf), strict=True)
        ]
        return torch.stack(parts).sum(0)

    def _features(self, x: Images) -> Iterator[Images]:
        """Yield the outputs of the taps, of length 1 at each pixel."""
        out = (x.to(self.shift).expand(-1, 3, -1, -1) - self.shift) / self.scale
        for number, module in enumerate(self.trunk):
            out = module(out)
            if number in self.plan.taps:
                yield out / (out.square().sum(1, keepdim=True).sqrt() + SMALLEST)


def load_lpips(trunk_file: str | Path, lin_file: str | Path) -> Lpips:
    """Load LPIPS; the shape of the first weight tells AlexNet from VGG-16.

    Args:
        trunk_file: torchvision's `alexnet` or `vgg16` weights, whole or only `features`.
        lin_file: the linear weights of version 0.1 for the same network.

    Raises:
        CheckpointError: a file cannot be read or holds another network.
    """
    trunk = {name.removeprefix("features."): value for name, value in read_weights(trunk_file).items()}
    plan = _plan_of(trunk, trunk_file)
    # Random weights come first, and are no reason to move the random numbers of the user.
    with torch.random.fork_rng(devices=[]):
        metric = Lpips(plan)
    # A whole network has a classifier too; only what the trunk needs is taken.
    own = metric.trunk.state_dict()
    load_into(metric.trunk, {name: trunk[name] for name in own if name in trunk}, trunk_file)
    load_into(metric.lins, _lin_weights(lin_file), lin_file)
    return metric.eval().requires_grad_(False)


def _plan_of(trunk: Weights, path: str | Path) -> Plan:
    shape = tuple(trunk[FIRST].shape) if FIRST in trunk else ()
    if shape not in PLANS:
        got = f"a first weight of shape {shape}" if shape else "no features.0.weight"
        raise CheckpointError(
            expected(Path(path).name, "torchvision's alexnet or vgg16", got, "give its state_dict()")
        )
    return PLANS[shape]


def _lin_weights(path: str | Path) -> Weights:
    """Name the weights `lin3.model.1.weight` as a list of modules does: `3.weight`."""
    return {
        name.removeprefix("lin").replace(".model.1.", "."): value
        for name, value in read_weights(path).items()
    }
