"""Inception v3 as FID is defined on it: TensorFlow's network of 2015-12-05, up to its last pooling.

The names of the weights are torchvision's, as in pytorch-fid's file `pt_inception-2015-12-05-6726825d.pth`.
It differs from torchvision's network in its pooling: averages leave the padding out, and Mixed_7c takes the
maximum.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import interpolate

from fastdime.errors import CheckpointError, expected
from fastdime.features.network import three_channels
from fastdime.weights import load_into, read_weights

DIM, SIZE, CLASSES = 2048, 299, 1008
FILE = "pt_inception-2015-12-05-6726825d.pth"
FIDELITY = "inception-v3-compat"  # the name of the same weights in torch-fidelity
Side = int | tuple[int, int]
Step = tuple[int, Side, int]  # channels that come out, sides of the kernel, stride
# Where each step of a branch ends, by name; the branches of a block are joined in this order.
Branch = dict[str, Step]
POOLS: dict[str, Callable[[], nn.Module]] = {
    "average": lambda: nn.AvgPool2d(3, 1, 1, count_include_pad=False),
    "maximum": lambda: nn.MaxPool2d(3, 1, 1),
    "halve": lambda: nn.MaxPool2d(3, 2),
}


class Conv(nn.Module):
    """Convolution without bias, batch norm, ReLU."""

    def __init__(self, inside: int, step: Step, padded: bool = True) -> None:
        """Keep the size of the picture, but for the stride, if padded."""
        super().__init__()
        outside, side, stride = step
        sides = (side, side) if isinstance(side, int) else side
        padding = (sides[0] // 2, sides[1] // 2) if padded and stride == 1 else (0, 0)
        self.conv = nn.Conv2d(inside, outside, sides, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(outside, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the three."""
        out: Tensor = self.bn(self.conv(x)).relu()
        return out


class Block(nn.Module):
    """Branches beside each other, and a pooling.

    A branch is a chain of convolutions; steps whose names end in a and b both follow the step before them.
    """

    def __init__(self, inside: int, branches: tuple[Branch, ...], pool: str, pooled: int = 0) -> None:
        """Build the convolutions.

        Args:
            pool: a name of POOLS.
            pooled: channels of the convolution after the pooling; 0 = there is none.
        """
        super().__init__()
        self.chains = [list(branch) for branch in branches]
        for branch in branches:
            before = inside
            for name, step in branch.items():
                self.add_module(name, Conv(before, step))
                before = before if name.endswith("a") else step[0]
        self.pool = POOLS[pool]()
        self.branch_pool = Conv(inside, (pooled, 1, 1)) if pooled else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Join the branches."""
        ends = [end for chain in self.chains for end in self._ends(chain, x)]
        return torch.cat([*ends, self.branch_pool(self.pool(x))], 1)

    def _ends(self, chain: list[str], x: Tensor) -> list[Tensor]:
        fork = [name for name in chain if name[-1] in "ab"]
        for name in chain[: len(chain) - len(fork)]:
            x = self.get_submodule(name)(x)
        return [self.get_submodule(name)(x) for name in fork] or [x]


def _block_a(inside: int, pooled: int) -> Block:
    five: Branch = {"branch5x5_1": (48, 1, 1), "branch5x5_2": (64, 5, 1)}
    double: Branch = {
        "branch3x3dbl_1": (64, 1, 1),
        "branch3x3dbl_2": (96, 3, 1),
        "branch3x3dbl_3": (96, 3, 1),
    }
    return Block(inside, ({"branch1x1": (64, 1, 1)}, five, double), "average", pooled)


def _block_b(inside: int) -> Block:
    double: Branch = {
        "branch3x3dbl_1": (64, 1, 1),
        "branch3x3dbl_2": (96, 3, 1),
        "branch3x3dbl_3": (96, 3, 2),
    }
    return Block(inside, ({"branch3x3": (384, 3, 2)}, double), "halve")


def _block_c(inside: int, width: int) -> Block:
    wide, tall = (1, 7), (7, 1)
    single: Branch = {"branch7x7_1": (width, 1, 1), "branch7x7_2": (width, wide, 1)}
    single["branch7x7_3"] = (192, tall, 1)
    double: Branch = {"branch7x7dbl_1": (width, 1, 1)}
    for number, side in enumerate((tall, wide, tall), start=2):
        double[f"branch7x7dbl_{number}"] = (width, side, 1)
    double["branch7x7dbl_5"] = (192, wide, 1)
    return Block(inside, ({"branch1x1": (192, 1, 1)}, single, double), "average", 192)


def _block_d(inside: int) -> Block:
    three: Branch = {"branch3x3_1": (192, 1, 1), "branch3x3_2": (320, 3, 2)}
    seven: Branch = {"branch7x7x3_1": (192, 1, 1), "branch7x7x3_2": (192, (1, 7), 1)}
    seven |= {"branch7x7x3_3": (192, (7, 1), 1), "branch7x7x3_4": (192, 3, 2)}
    return Block(inside, (three, seven), "halve")


def _block_e(inside: int, pool: str) -> Block:
    wide, tall = (384, (1, 3), 1), (384, (3, 1), 1)
    single: Branch = {"branch3x3_1": (384, 1, 1), "branch3x3_2a": wide, "branch3x3_2b": tall}
    double: Branch = {"branch3x3dbl_1": (448, 1, 1), "branch3x3dbl_2": (384, 3, 1)}
    double |= {"branch3x3dbl_3a": wide, "branch3x3dbl_3b": tall}
    return Block(inside, ({"branch1x1": (320, 1, 1)}, single, double), pool, 192)


class Inception(nn.Sequential):
    """The layers in order; their last average is the feature."""

    def __init__(self) -> None:
        """Build it with weights at random."""
        super().__init__()
        # The first convolutions shrink the picture by their kernels, but for the third.
        stem = {"1a_3x3": (3, 32, 3, 2), "2a_3x3": (32, 32, 3, 1), "2b_3x3": (32, 64, 3, 1)}
        for name, (inside, outside, side, stride) in stem.items():
            self.add_module(f"Conv2d_{name}", Conv(inside, (outside, side, stride), padded=name == "2b_3x3"))
        self.add_module("pool_1", nn.MaxPool2d(3, 2))
        self.add_module("Conv2d_3b_1x1", Conv(64, (80, 1, 1)))
        self.add_module("Conv2d_4a_3x3", Conv(80, (192, 3, 1), padded=False))
        self.add_module("pool_2", nn.MaxPool2d(3, 2))
        blocks = {"5b": _block_a(192, 32), "5c": _block_a(256, 64), "5d": _block_a(288, 64)}
        blocks["6a"] = _block_b(288)
        for name, width in zip("bcde", (128, 160, 160, 192), strict=True):
            blocks[f"6{name}"] = _block_c(768, width)
        blocks |= {"7a": _block_d(768), "7b": _block_e(1280, "average"), "7c": _block_e(2048, "maximum")}
        for name, block in blocks.items():
            self.add_module(f"Mixed_{name}", block)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d"]:
        """Return the features of images in [-1, 1], resized as pytorch-fid does."""
        # Without antialiasing: numbers in papers were made so.
        shown = interpolate(three_channels(x), (SIZE, SIZE), mode="bilinear", align_corners=False)
        for layer in self:
            shown = layer(shown)
        return shown.mean((2, 3))


def load_inception(path: str | Path) -> Inception:
    """Load the network from the file of pytorch-fid, or one of the same layout.

    Raises:
        CheckpointError: the file cannot be read, or holds another network, for example torchvision's.
    """
    return from_weights(read_weights(path), path)


def from_weights(weights: Mapping[str, Tensor], path: str | Path) -> Inception:
    """Make the network of weights in the layout of pytorch-fid.

    Args:
        path: where they come from, for the error sentence.
    """
    head = weights.get("fc.weight")
    if head is not None and len(head) != CLASSES:
        # torchvision's would load, and give an FID that no paper knows.
        got = f"one with {len(head)}"
        raise CheckpointError(
            expected(Path(path).name, f"the Inception of FID ({CLASSES} classes)", got, f"get {FILE}")
        )
    with torch.device("meta"):
        network = Inception()
    counters = {
        name: torch.tensor(0) for name in network.state_dict() if name.endswith("num_batches_tracked")
    }
    kept = {name: value for name, value in weights.items() if not name.startswith("fc.")}
    load_into(network, {**counters, **kept}, path)
    return network.eval()
