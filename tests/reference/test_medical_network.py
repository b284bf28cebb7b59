"""The medical U-Net: recorded numbers, and a second implementation for attention in the levels."""

import numpy as np
import pytest
import torch
from torch import nn

from fastdime.diffusion.medical_unet import medical_layout, unet_from_medical
from fastdime.errors import CheckpointError
from support.recordings import DIRECTORY, TOLERANCE

KNOWN = {
    *("input_channels", "output_channels", "num_res_blocks", "base_channels", "base_channels_multiples"),
    *("apply_attention", "dropout_rate", "time_multiple", "total_time_steps"),
}


def read():
    with np.load(DIRECTORY / "medical_unet.npz") as file:
        arrays = {key: torch.from_numpy(np.atleast_1d(file[key])) for key in file.files}
    weights = {key[3:]: arrays.pop(key) for key in list(arrays) if key.startswith("sd/")}
    hp = {key[3:]: arrays.pop(key).tolist() for key in list(arrays) if key.startswith("hp_")}
    assert hp.keys() <= KNOWN, f"hyper-parameters that this test does not know: {hp.keys() - KNOWN}"
    assert arrays.keys() == {"x", "t", "y"}
    return weights, hp, arrays


def test_unet_equals_the_recorded_one():
    weights, hp, arrays = read()
    layout, base = medical_layout(weights, "medical_unet.npz"), hp["base_channels"][0]
    assert [layout.in_channels, layout.out_channels] == [*hp["input_channels"], *hp["output_channels"]]
    assert list(layout.widths) == [base * factor for factor in hp["base_channels_multiples"]]
    assert [layout.res_blocks] == hp["num_res_blocks"]
    assert list(layout.attention) == hp["apply_attention"]
    assert layout.time_width == base * hp["time_multiple"][0]
    y = unet_from_medical(weights).eval()(arrays["x"], arrays["t"]).sample
    assert y.shape == arrays["y"].shape
    assert (y - arrays["y"]).abs().max() < TOLERANCE


class Attention(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.group_norm = nn.GroupNorm(8, channels)
        self.mhsa = nn.MultiheadAttention(channels, 4, batch_first=True)

    def forward(self, x):
        tokens = self.group_norm(x).flatten(2).transpose(1, 2)
        return x + self.mhsa(tokens, tokens, tokens)[0].transpose(1, 2).reshape(x.shape)


class Block(nn.Module):
    def __init__(self, inside, outside, time, attention):
        super().__init__()
        self.normlize_1, self.conv_1 = nn.GroupNorm(8, inside), nn.Conv2d(inside, outside, 3, 1, 1)
        self.normlize_2, self.conv_2 = nn.GroupNorm(8, outside), nn.Conv2d(outside, outside, 3, 1, 1)
        self.dense_1 = nn.Linear(time, outside)
        self.match_input = nn.Identity() if inside == outside else nn.Conv2d(inside, outside, 1)
        self.attention = Attention(outside) if attention else nn.Identity()

    def forward(self, x, time):
        act = nn.functional.silu
        h = self.conv_1(act(self.normlize_1(x))) + self.dense_1(act(time))[:, :, None, None]
        return self.attention(self.match_input(x) + self.conv_2(act(self.normlize_2(h))))


class Down(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.downsample = nn.Conv2d(channels, channels, 3, 2, 1)

    def forward(self, x, time):
        return self.downsample(x)


class Up(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.upsample = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(channels, channels, 3, 1, 1))

    def forward(self, x, time):
        return self.upsample(x)


class Reference(nn.Module):
    """The medical U-Net with its original names."""

    def __init__(self, widths, attention, blocks, rows):
        super().__init__()
        inside, time = widths[0], 2 * widths[0]
        layers = nn.Embedding(rows, inside), nn.Linear(inside, time), nn.SiLU(), nn.Linear(time, time)
        self.time_embeddings = nn.ModuleDict({"time_blocks": nn.Sequential(*layers)})
        self.first = nn.Conv2d(3, inside, 3, 1, 1)
        self.encoder_blocks, self.decoder_blocks, skips = nn.ModuleList(), nn.ModuleList(), [inside]
        for level, width in enumerate(widths):
            for _ in range(blocks):
                self.encoder_blocks.append(Block(inside, width, time, attention[level]))
                inside = width
                skips.append(inside)
            if level < len(widths) - 1:
                self.encoder_blocks.append(Down(inside))
                skips.append(inside)
        self.bottleneck_blocks = nn.ModuleList(Block(inside, inside, time, has) for has in (True, False))
        for level, width in reversed(list(enumerate(widths))):
            for _ in range(blocks + 1):
                self.decoder_blocks.append(Block(inside + skips.pop(), width, time, attention[level]))
                inside = width
            if level:
                self.decoder_blocks.append(Up(inside))
        self.final = nn.Sequential(nn.GroupNorm(8, inside), nn.SiLU(), nn.Conv2d(inside, 3, 3, 1, 1))

    def forward(self, x, t):
        time = self.time_embeddings["time_blocks"](t)
        x = self.first(x)
        skips = [x]
        for block in self.encoder_blocks:
            x = block(x, time)
            skips.append(x)
        for block in self.bottleneck_blocks:
            x = block(x, time)
        for block in self.decoder_blocks:
            x = block(x if isinstance(block, Up) else torch.cat([x, skips.pop()], dim=1), time)
        return self.final(x)


@pytest.mark.parametrize("attention", [(False, True, True), (True, False, False)])
def test_attention_in_the_levels(attention):
    torch.manual_seed(0)
    network = Reference(widths=(16, 32, 32), attention=attention, blocks=1, rows=50).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    x, t = torch.randn(2, 3, 16, 16, requires_grad=True), torch.tensor([3, 49])
    unet = unet_from_medical(network.state_dict()).eval()
    wanted, got = network(x, t), unet(x, t).sample
    assert (got - wanted).abs().max() < TOLERANCE
    gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in (wanted, got)]
    assert (gradients[0] - gradients[1]).abs().max() < TOLERANCE


def test_a_first_multiplier_other_than_one_is_refused():
    weights, _, _ = read()
    weights["first.weight"] = torch.cat([weights["first.weight"]] * 2)
    with pytest.raises(CheckpointError, match=r"a\.pt: expected a first level of \d+ channels"):
        unet_from_medical(weights, path="a.pt")
