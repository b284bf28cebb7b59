"""The task of a denoiser: predict the noise."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fastdime.diffusion.denoiser import Denoiser
from fastdime.diffusion.losses import training_loss
from fastdime.diffusion.patched import PatchedUNet
from fastdime.diffusion.schedule import linear
from fastdime.training.order import generator
from fastdime.training.pictures import Pictures

VALIDATION_BATCH = 64


@dataclass(frozen=True)
class UNetShape:
    """A U-Net small enough for a machine without a GPU."""

    widths: tuple[int, ...] = (48, 72, 96)
    layers: int = 1
    patch: int = 4
    groups: int = 8

    def build(self, channels: int, size: int) -> PatchedUNet:
        """Make the network, with weights at random."""
        from diffusers import UNet2DModel

        folded = channels * self.patch**2
        unet = UNet2DModel(
            sample_size=size // self.patch,
            in_channels=folded,
            out_channels=folded,
            block_out_channels=self.widths,
            layers_per_block=self.layers,
            down_block_types=("DownBlock2D",) * len(self.widths),
            up_block_types=("UpBlock2D",) * len(self.widths),
            norm_num_groups=self.groups,
            attn_norm_num_groups=self.groups,
            attention_head_dim=self.widths[-1] // 4,
            resnet_time_scale_shift="scale_shift",
        )
        return PatchedUNet(unet.to(memory_format=torch.channels_last), self.patch)


@dataclass(frozen=True)
class Denoising:
    """Learn to predict the noise in images at all levels of a linear chain of 1000."""

    train: Pictures
    valid: Pictures
    shape: UNetShape = UNetShape()
    flip: bool = False

    @property
    def images(self) -> int:
        """How many images there are to learn from."""
        return len(self.train)

    def describe(self) -> dict[str, Any]:
        """What is written down about the task."""
        return {
            "kind": "denoiser",
            "images": len(self.train),
            "size": list(self.train.levels.shape[1:]),
            "widths": list(self.shape.widths),
            "layers": self.shape.layers,
            "patch": self.shape.patch,
            "flip": self.flip,
        }

    def build(self) -> nn.Module:
        """Make the network."""
        channels, size, _ = self.train.levels.shape[1:]
        return self.shape.build(channels, size)

    def denoiser(self, model: nn.Module) -> Denoiser:
        """Put a network on the chain."""
        channels, size, _ = self.train.levels.shape[1:]
        return Denoiser(model, linear(1000), size=size, channels=channels)

    def loss(self, model: nn.Module, rows: Tensor, random: torch.Generator) -> Tensor:
        """Squared error of the noise, for each image."""
        x = self.train.x(rows)
        if self.flip:
            turned = torch.rand(len(x), generator=random) < 0.5
            x = torch.where(turned.view(-1, 1, 1, 1), x.flip(3), x)
        return self._loss(model, x, random)

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Mean loss on the validation images, always with the same noise."""
        random, losses = generator(0, 0), []
        for first in range(0, len(self.valid), VALIDATION_BATCH):
            rows = torch.arange(first, min(first + VALIDATION_BATCH, len(self.valid)))
            losses.append(self._loss(model, self.valid.x(rows), random))
        return {"loss": float(torch.cat(losses).mean())}

    def _loss(self, model: nn.Module, x: Tensor, random: torch.Generator) -> Tensor:
        denoiser = self.denoiser(model)
        t = torch.randint(len(denoiser.schedule), (len(x),), generator=random)
        noise = torch.randn(x.shape, generator=random)
        device = next(model.parameters()).device
        return training_loss(denoiser, x.to(device), t.to(device), noise.to(device)).total
