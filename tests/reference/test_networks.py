"""Guided-diffusion networks: recorded numbers, and a second implementation written from the description."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fastdime.classifiers.encoder import encoder_from_weights
from fastdime.diffusion.checkpoints import convert, load_denoiser
from fastdime.diffusion.guided_unet import guided_layout, unet_from_guided
from fastdime.diffusion.unet import Heads
from fastdime.errors import CheckpointError
from fastdime.weights import save_weights
from support.recordings import DIRECTORY, TOLERANCE

LISTS = {"channel_mult", "attention_resolutions"}
KNOWN = {
    *("image_size", "in_channels", "model_channels", "out_channels", "num_res_blocks", "channel_mult"),
    *("attention_resolutions", "num_heads", "num_head_channels", "use_new_attention_order"),
    *("use_scale_shift_norm", "resblock_updown", "pool", "dropout"),
}


def read(name):
    with np.load(DIRECTORY / f"{name}.npz") as file:
        arrays = {key: torch.from_numpy(np.atleast_1d(file[key])) for key in file.files}
    weights = {key[3:]: arrays.pop(key) for key in list(arrays) if key.startswith("sd/")}
    settings = {key[3:]: arrays.pop(key).tolist() for key in list(arrays) if key.startswith("hp_")}
    assert settings.keys() <= KNOWN, (
        f"hyper-parameters that this test does not know: {settings.keys() - KNOWN}"
    )
    return weights, {key: value if key in LISTS else value[0] for key, value in settings.items()}, arrays


def told_heads(hp):
    width = hp.get("num_head_channels", -1)
    return Heads(width=width) if width != -1 else Heads(number=hp["num_heads"])


def check_layout(layout, hp):
    assert layout.in_channels == hp["in_channels"]
    assert layout.widths == tuple(factor * hp["model_channels"] for factor in hp["channel_mult"])
    assert layout.res_blocks == hp["num_res_blocks"]
    places = tuple(2**level in hp["attention_resolutions"] for level in range(len(hp["channel_mult"])))
    assert layout.attention == places
    assert layout.scale_shift == hp["use_scale_shift_norm"]
    assert layout.updown == (hp["resblock_updown"] and len(places) > 1)


def largest(a, b):
    assert a.shape == b.shape
    return (a - b).abs().max().item()


def test_unet_equals_the_recorded_one():
    weights, hp, arrays = read("unet")
    assert arrays.keys() == {"x", "t", "y", "probe", "grad_x"}
    layout = guided_layout(weights, "unet.npz")
    check_layout(layout, hp)
    assert layout.out_channels == hp["out_channels"]
    new_order = hp.get("use_new_attention_order", False)
    unet = unet_from_guided(weights, told_heads(hp), new_order=new_order, image_size=hp["image_size"]).eval()
    x = arrays["x"].requires_grad_()
    y = unet(x, arrays["t"]).sample
    (gradient,) = torch.autograd.grad((y * arrays["probe"]).sum(), x)
    assert largest(y, arrays["y"]) < TOLERANCE
    assert largest(gradient, arrays["grad_x"]) < TOLERANCE


def test_encoder_equals_the_recorded_one():
    weights, hp, arrays = read("encoder_unet")
    assert arrays.keys() == {"x", "t", "y", "grad_x"}
    assert hp["pool"] == 0  # attention
    check_layout(guided_layout(weights, "encoder_unet.npz", hp["num_res_blocks"]), hp)
    new_order = hp.get("use_new_attention_order", False)
    width, size = hp["num_head_channels"], hp["image_size"]
    encoder = encoder_from_weights(weights, head_width=width, image_size=size, new_order=new_order)
    x = arrays["x"].requires_grad_()
    y = encoder(x, arrays["t"])
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert y.shape[1] == hp["out_channels"]
    assert largest(y, arrays["y"]) < TOLERANCE
    assert largest(gradient, arrays["grad_x"]) < TOLERANCE


halve, double = nn.AvgPool2d(2), nn.Upsample(scale_factor=2, mode="nearest")


class Residual(nn.Module):
    def __init__(self, inside, outside, hp, resample=None):
        super().__init__()
        time = 4 * hp["model_channels"]
        self.scale_shift, self.resample = hp["use_scale_shift_norm"], resample
        self.in_layers = nn.Sequential(
            nn.GroupNorm(32, inside), nn.SiLU(), nn.Conv2d(inside, outside, 3, 1, 1)
        )
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(time, outside * (1 + self.scale_shift)))
        norm, conv = nn.GroupNorm(32, outside), nn.Conv2d(outside, outside, 3, 1, 1)
        self.out_layers = nn.Sequential(norm, nn.SiLU(), nn.Dropout(0), conv)
        self.skip_connection = nn.Identity() if inside == outside else nn.Conv2d(inside, outside, 1)

    def forward(self, x, emb):
        h = self.in_layers[1](self.in_layers[0](x))
        if self.resample is not None:
            x, h = self.resample(x), self.resample(h)
        h, time = self.in_layers[2](h), self.emb_layers(emb)[:, :, None, None]
        if self.scale_shift:
            scale, shift = time.chunk(2, dim=1)
            h = self.out_layers[0](h) * (1 + scale) + shift
            return self.skip_connection(x) + self.out_layers[3](self.out_layers[1](h))
        return self.skip_connection(x) + self.out_layers(h + time)


class SelfAttention(nn.Module):
    def __init__(self, channels, hp):
        super().__init__()
        self.heads, self.new_order = told_heads(hp).at(channels), hp["use_new_attention_order"]
        self.norm, self.qkv = nn.GroupNorm(32, channels), nn.Conv1d(channels, 3 * channels, 1)
        self.proj_out = nn.Conv1d(channels, channels, 1)

    def forward(self, x, emb):
        flat = x.flatten(2)
        qkv, (b, c, n) = self.qkv(self.norm(flat)), flat.shape
        if self.new_order:
            q, k, v = (part.reshape(b * self.heads, -1, n) for part in qkv.chunk(3, dim=1))
        else:
            q, k, v = qkv.reshape(b * self.heads, -1, n).chunk(3, dim=1)
        scale = (c // self.heads) ** -0.25
        weight = torch.softmax((q * scale).transpose(1, 2) @ (k * scale), dim=-1)
        mixed = (v @ weight.transpose(1, 2)).reshape(b, c, n)
        return (flat + self.proj_out(mixed)).reshape(x.shape)


class Down(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.op = nn.Conv2d(channels, channels, 3, 2, 1)

    def forward(self, x, emb):
        return self.op(x)


class Up(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, 1, 1)

    def forward(self, x, emb):
        return self.conv(double(x))


class Reference(nn.Module):
    """The guided-diffusion U-Net with its original names."""

    def __init__(self, hp):
        super().__init__()
        self.base = hp["model_channels"]
        widths, updown = [factor * self.base for factor in hp["channel_mult"]], hp["resblock_updown"]
        attention = [2**level in hp["attention_resolutions"] for level in range(len(widths))]
        self.time_embed = nn.Sequential(
            nn.Linear(self.base, 4 * self.base), nn.SiLU(), nn.Linear(4 * self.base, 4 * self.base)
        )
        inside = widths[0]
        inputs, skips = [[nn.Conv2d(hp["in_channels"], inside, 3, 1, 1)]], [inside]
        for level, width in enumerate(widths):
            for _ in range(hp["num_res_blocks"]):
                inputs.append([Residual(inside, width, hp), *self.attend(attention[level], width, hp)])
                inside = width
                skips.append(inside)
            if level < len(widths) - 1:
                inputs.append([Residual(inside, inside, hp, halve) if updown else Down(inside)])
                skips.append(inside)
        middle = [Residual(inside, inside, hp), SelfAttention(inside, hp), Residual(inside, inside, hp)]
        outputs = []
        for level, width in reversed(list(enumerate(widths))):
            for block in range(hp["num_res_blocks"] + 1):
                layers = [
                    Residual(inside + skips.pop(), width, hp),
                    *self.attend(attention[level], width, hp),
                ]
                inside = width
                if level and block == hp["num_res_blocks"]:
                    layers.append(Residual(inside, inside, hp, double) if updown else Up(inside))
                outputs.append(layers)
        self.input_blocks = nn.ModuleList(nn.ModuleList(layers) for layers in inputs)
        self.middle_block = nn.ModuleList(middle)
        self.output_blocks = nn.ModuleList(nn.ModuleList(layers) for layers in outputs)
        last = nn.Conv2d(inside, hp["out_channels"], 3, 1, 1)
        self.out = nn.Sequential(nn.GroupNorm(32, inside), nn.SiLU(), last)

    @staticmethod
    def attend(wanted, width, hp):
        return [SelfAttention(width, hp)] if wanted else []

    def encode(self, x, t):
        half = self.base // 2
        angle = t[:, None].float() * torch.exp(-math.log(10000) * torch.arange(half) / half)
        emb, skips = self.time_embed(torch.cat([angle.cos(), angle.sin()], dim=1)), []
        for block in self.input_blocks:
            x = self.run(block, x, emb)
            skips.append(x)
        return self.run(self.middle_block, x, emb), emb, skips

    def forward(self, x, t):
        x, emb, skips = self.encode(x, t)
        for block in self.output_blocks:
            x = self.run(block, torch.cat([x, skips.pop()], dim=1), emb)
        return self.out(x)

    @staticmethod
    def run(layers, x, emb):
        for layer in layers:
            x = layer(x) if isinstance(layer, nn.Conv2d) else layer(x, emb)
        return x


USUAL = {
    **{
        "in_channels": 3,
        "out_channels": 6,
        "model_channels": 32,
        "channel_mult": [1, 2],
        "num_res_blocks": 1,
    },
    **{"attention_resolutions": [2], "num_heads": 4, "use_new_attention_order": False},
    **{"use_scale_shift_norm": True, "resblock_updown": True},
}
# The CelebA model of DiME with a quarter of its width and its last three levels.
DIME = USUAL | {"channel_mult": [1, 2, 3], "attention_resolutions": [2, 4], "num_res_blocks": 2}


def reference(hp, seed=0):
    torch.manual_seed(seed)
    network = Reference(hp).eval()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.add_(0.1 * torch.randn_like(parameter) if "bias" in name or parameter.ndim == 1 else 0)
    return network


def outputs_and_gradients(network, channels, size):
    x = torch.randn(2, channels, size, size, generator=torch.Generator().manual_seed(1)).requires_grad_()
    y = network(x, torch.tensor([7, 431]))
    y = getattr(y, "sample", y)
    probe = torch.randn(y.shape, generator=torch.Generator().manual_seed(2))
    return y, torch.autograd.grad((y * probe).sum(), x)[0]


CASES = {
    "legacy order, heads by number, several widths": DIME,
    "new order, heads by number, several widths": DIME | {"use_new_attention_order": True},
    "new order, heads by width": DIME | {"use_new_attention_order": True, "num_head_channels": 16},
    "conv resampling": DIME | {"resblock_updown": False, "num_head_channels": 32},
    "time is added": USUAL | {"use_scale_shift_norm": False, "resblock_updown": False, "out_channels": 3},
    "attention everywhere, one channel": USUAL
    | {"attention_resolutions": [1, 2], "in_channels": 1, "out_channels": 1},
    "no attention in the levels": USUAL | {"attention_resolutions": [], "num_res_blocks": 3},
    "first multiplier 2": USUAL | {"channel_mult": [2, 3]},
    "one level": USUAL | {"channel_mult": [1], "attention_resolutions": [1]},
}


@pytest.mark.parametrize("hp", CASES.values(), ids=CASES.keys())
def test_unet_equals_the_second_implementation(hp):
    network = reference(hp)
    weights = network.state_dict()
    check_layout(guided_layout(weights, "reference"), hp)
    unet = unet_from_guided(weights, told_heads(hp), new_order=hp["use_new_attention_order"]).eval()
    wanted, wanted_gradient = outputs_and_gradients(network, hp["in_channels"], 16)
    got, gradient = outputs_and_gradients(unet, hp["in_channels"], 16)
    assert wanted.std() > 0.1
    assert largest(got, wanted) < TOLERANCE
    assert largest(gradient, wanted_gradient) < TOLERANCE


def test_the_order_and_the_heads_matter():
    """A wrong guess must show, or the comparisons above would prove nothing."""
    network = reference(DIME)
    wanted, _ = outputs_and_gradients(network, 3, 16)
    for heads, new_order in ((Heads(number=4), True), (Heads(number=2), False), (Heads(width=32), False)):
        unet = unet_from_guided(network.state_dict(), heads, new_order=new_order).eval()
        assert largest(outputs_and_gradients(unet, 3, 16)[0], wanted) > 100 * TOLERANCE


def test_a_first_multiplier_of_a_half_is_refused():
    weights = reference(USUAL | {"model_channels": 64, "channel_mult": [1]}).state_dict()
    weights["time_embed.0.weight"] = torch.zeros(512, 128)
    with pytest.raises(CheckpointError, match="expected an even time width that divides the 64 channels"):
        unet_from_guided(weights, Heads(number=4))


def test_heads_by_number_survive_conversion(tmp_path):
    from diffusers import UNet2DModel

    network = reference(DIME)
    save_weights(tmp_path / "model.safetensors", network.state_dict())
    (tmp_path / "model.json").write_text('{"num_heads": 4, "diffusion_steps": 500, "image_size": 16}')
    converted = convert(tmp_path / "model.safetensors", tmp_path / "out")
    denoiser = load_denoiser(tmp_path / "out")
    wanted, wanted_gradient = outputs_and_gradients(network, 3, 16)
    got, gradient = outputs_and_gradients(denoiser.network, 3, 16)
    assert largest(got, wanted) < TOLERANCE
    assert largest(gradient, wanted_gradient) < TOLERANCE
    assert (denoiser.variance, denoiser.size, denoiser.schedule.kind) == ("learned_range", 16, "linear")
    assert "only fastdime opens it" in str(converted)
    with pytest.raises(TypeError):
        UNet2DModel.from_pretrained(tmp_path / "out")


def test_encoder_equals_the_second_implementation():
    """Four levels, of which two have one width, and attention in the middle only, as the published one."""
    hp = USUAL | {"channel_mult": [1, 2, 3, 3], "attention_resolutions": [], "num_res_blocks": 2}
    network, c, width = reference(hp | {"num_head_channels": 32}), 96, 32
    shapes = {
        "0.weight": (c,),
        "0.bias": (c,),
        "2.positional_embedding": (c, 5),
        "2.qkv_proj.weight": (3 * c, c, 1),
    }
    shapes |= {"2.qkv_proj.bias": (3 * c,), "2.c_proj.weight": (2, c, 1), "2.c_proj.bias": (2,)}
    top = {name: 0.3 * torch.randn(shape) for name, shape in shapes.items()}
    x, t = torch.randn(2, 3, 16, 16), torch.tensor([0, 300])
    h = functional.group_norm(network.encode(x, t)[0], 32, top["0.weight"], top["0.bias"]).flatten(2)
    h = (
        torch.cat([functional.silu(h).mean(2, keepdim=True), functional.silu(h)], dim=2)
        + top["2.positional_embedding"]
    )
    qkv = functional.conv1d(h, top["2.qkv_proj.weight"], top["2.qkv_proj.bias"])
    q, k, v = (part.reshape(2 * c // width, width, 5) for part in qkv.chunk(3, dim=1))
    weight = torch.softmax(q.transpose(1, 2) @ k / width**0.5, dim=-1)
    h = (v @ weight.transpose(1, 2)).reshape(2, c, 5)
    wanted = functional.conv1d(h, top["2.c_proj.weight"], top["2.c_proj.bias"])[:, :, 0]
    weights = {name: w for name, w in network.state_dict().items() if not name.startswith("out")}
    weights |= {f"out.{name}": tensor for name, tensor in top.items()}
    encoder = encoder_from_weights(weights, head_width=width, image_size=16)
    assert largest(encoder(x, t), wanted) < TOLERANCE


def test_encoder_needs_its_image_size():
    weights, hp, _ = read("encoder_unet")
    with pytest.raises(CheckpointError, match=r"expected weights for images of \d+ pixels"):
        encoder_from_weights(weights, head_width=hp["num_head_channels"], image_size=hp["image_size"] + 1)
