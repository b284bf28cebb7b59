"""A feature network as the rest of the library sees it: images in [-1, 1] go in, rows of numbers come out."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fastdime.errors import InputError, expected

SLACK = 1e-3  # by which rounding may leave [-1, 1]
Extract = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class FeatureNetwork:
    """A function of images, with a name.

    Attributes:
        name: for tables.
        extract: images in [-1, 1] -> (images, features); resizing and channels are its own business.
        dim: number of features; None = not known before use.
        device: where `extract` wants the images.
        same_within: distance below which two faces are one person, for a network that has such a rule.
    """

    name: str
    extract: Extract
    dim: int | None = None
    device: str = "cpu"
    same_within: float | None = None

    @torch.no_grad()
    def __call__(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d"]:
        """Return the features of images in [-1, 1], in float32.

        >>> FeatureNetwork("mean", lambda x: x.mean((2, 3)))(torch.zeros(2, 3, 8, 8)).shape
        torch.Size([2, 3])
        """
        _check(x)
        try:
            out = self.extract(x.to(self.device))
        except (RuntimeError, TypeError, ValueError, AttributeError) as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            wanted = f"one that takes images of shape {tuple(x.shape)}"
            raise InputError(expected(f"feature network {self.name}", wanted, reason)) from error
        if not isinstance(out, Tensor) or out.ndim != 2 or len(out) != len(x):
            got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
            wanted = f"shape ({len(x)}, features)"
            raise InputError(expected(f"output of feature network {self.name}", wanted, got))
        return out.float()


def of_module(name: str, module: nn.Module, dim: int | None = None, device: str = "cpu") -> FeatureNetwork:
    """Make a feature network of a module, in evaluation mode and without gradients."""
    ready: nn.Module = module.eval().requires_grad_(False).to(device)
    return FeatureNetwork(name, ready, dim, device)


def three_channels(x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b 3 h w"]:
    """Repeat gray; leave colour."""
    return x.expand(-1, 3, -1, -1)


def _check(x: Tensor) -> None:
    if x.ndim != 4 or x.shape[1] not in (1, 3) or not x.is_floating_point() or x.numel() == 0:
        wanted = "floats of shape (images, 1 or 3 channels, height, width)"
        raise InputError(expected("images", wanted, f"{x.dtype} of shape {tuple(x.shape)}"))
    low, high = x.aminmax()
    if not (low >= -1 - SLACK and high <= 1 + SLACK):  # so that NaN is refused too
        raise InputError(
            expected("images", "values in [-1, 1]", f"{low:g} to {high:g}", "scale or clip them")
        )
