"""A U-Net on patches: pixels are folded into channels first, which makes small networks many times faster."""

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pixel_shuffle, pixel_unshuffle

from fastdime.diffusion.unet import UNet


class PatchedUNet(nn.Module):
    """A `UNet2DModel` that sees each patch x patch square of pixels as one point with more channels.

    Attributes:
        unet: works at size / patch, with channels x patch^2 inputs and outputs.
        in_channels, out_channels, size: of the whole, as the rest of the library sees it.
    """

    def __init__(self, unet: UNet, patch: int) -> None:
        """Keep the network; the configuration of the U-Net tells the rest."""
        super().__init__()
        self.unet = unet
        self.patch = patch
        self.in_channels = unet.config.in_channels // patch**2
        self.out_channels = unet.config.out_channels // patch**2
        self.sample_size = unet.config.sample_size * patch

    def forward(self, x_t: Float[Tensor, "b c h w"], times: Int[Tensor, " b"]) -> Float[Tensor, "b k h w"]:
        """Predict from a noisy image and its times."""
        out: Tensor = self.unet(pixel_unshuffle(x_t, self.patch), times, return_dict=False)[0]
        return pixel_shuffle(out, self.patch)
