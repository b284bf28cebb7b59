"""MONAI's DiffusionModelUNet, run live beside its diffusers form."""

import json
import re

import pytest
import torch
from torch import nn

from fastdime.diffusion.checkpoints import convert, load_denoiser
from fastdime.diffusion.monai_unet import unet_from_monai
from fastdime.errors import CheckpointError


class Rearrange(nn.Module):
    """The three einops patterns of MONAI's attention, so that einops need not be installed."""

    def __init__(self, pattern, **sizes):
        super().__init__()
        self.pattern, self.heads = pattern, sizes.get("l")

    def forward(self, x):
        if self.pattern == "b h (l d) -> b l h d":
            return x.unflatten(2, (self.heads, -1)).transpose(1, 2)
        if self.pattern == "b l h d -> b h (l d)":
            return x.transpose(1, 2).flatten(2)
        assert self.pattern == "b h (qkv l d) -> qkv b l h d"
        return x.unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)


@pytest.fixture
def monai_net(monkeypatch):
    from monai.networks.blocks import selfattention
    from monai.networks.nets import DiffusionModelUNet

    monkeypatch.setattr(selfattention, "Rearrange", Rearrange)

    def make(**changes):
        torch.manual_seed(0)
        usual = {"channels": (8, 16), "attention_levels": (False, True), "norm_num_groups": 4}
        usual |= {"num_res_blocks": 1, "num_head_channels": 4, "in_channels": 1, "out_channels": 1}
        net = DiffusionModelUNet(spatial_dims=2, **(usual | changes)).eval()
        with torch.no_grad():  # its last convolutions are zero
            for parameter in net.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        return net

    return make


CASES = {
    "usual": {},
    "residual resampling": {"resblock_updown": True, "num_res_blocks": 2, "out_channels": 2},
    "joint projection": {"use_combined_linear": True},
    "no last projection": {"include_fc": False},
    "one number of heads at several widths": {"attention_levels": (True, True), "num_head_channels": (4, 8)},
    "width of the level without attention": {"num_head_channels": (2, 8)},
    "other norm": {"norm_num_groups": 8, "norm_eps": 0.01},
}


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES.keys())
def test_the_diffusers_form_computes_the_same(monai_net, changes):
    net = monai_net(**changes)
    told = {"head_widths": changes.get("num_head_channels", 4), "groups": changes.get("norm_num_groups", 4)}
    unet = unet_from_monai(net.state_dict(), **told, eps=changes.get("norm_eps", 1e-6)).eval()
    x, t = torch.randn(2, 1, 8, 8, requires_grad=True), torch.tensor([0, 731])
    wanted, got = net(x, t), unet(x, t).sample
    assert (wanted - got).abs().max() < 1e-4
    gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in (wanted, got)]
    assert (gradients[0] - gradients[1]).abs().max() < 1e-4


def test_checkpoint_with_its_json(monai_net, tmp_path):
    net = monai_net(num_head_channels=(4, 8), attention_levels=(True, True))
    torch.save({"model": net.state_dict()}, tmp_path / "net.pt")
    known = {
        "num_head_channels": [4, 8],
        "norm_num_groups": 4,
        "diffusion_steps": 1000,
        "noise_schedule": "cosine",
    }
    (tmp_path / "net.json").write_text(json.dumps(known))
    convert(tmp_path / "net.pt", tmp_path / "out")
    x, t = torch.randn(1, 1, 8, 8), torch.tensor([5])
    for source in ("net.pt", "out"):
        denoiser = load_denoiser(tmp_path / source)
        assert torch.allclose(denoiser.network(x, t).sample, net(x, t), atol=1e-5)
        assert (denoiser.variance, denoiser.schedule.kind, denoiser.channels) == ("fixed_small", "cosine", 1)


def test_names_of_the_older_package(monai_net):
    net = monai_net()
    older = {}
    for name, tensor in net.state_dict().items():
        name = re.sub(r"\.attn\.(to_[qkv])\.", r".\1.", name).replace(".attn.out_proj.", ".proj_attn.")
        older[name.replace("upsampler.postconv.", "upsampler.conv.")] = tensor
    assert older.keys() != net.state_dict().keys()
    unet = unet_from_monai(older, 4, 4).eval()
    x, t = torch.randn(1, 1, 8, 8), torch.tensor([5])
    assert torch.allclose(unet(x, t).sample, net(x, t), atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "heads", "sentence"),
    [
        ({"num_res_blocks": (1, 2)}, 4, "the same number of residual blocks in all levels, got [1, 2]"),
        ({"num_class_embeds": 3}, 4, "a network without conditioning"),
        ({"attention_levels": (True, True)}, (8, 4), "one head width, or one number of heads, in all levels"),
        ({}, (4, 4, 4), "expected 2 numbers, got 3"),
        ({}, 3, "expected heads that divide 16 channels"),
    ],
)
def test_what_has_no_diffusers_form_is_refused(monai_net, changes, heads, sentence):
    with pytest.raises(CheckpointError, match=re.escape(sentence)):
        unet_from_monai(monai_net(**changes).state_dict(), heads, 4, path="m.pt")


def test_three_dimensions_are_refused(monai_net):
    weights = monai_net().state_dict()
    weights["conv_in.conv.weight"] = torch.zeros(8, 1, 3, 3, 3)
    with pytest.raises(
        CheckpointError, match="expected a network for two-dimensional images, got 3 dimensions"
    ):
        unet_from_monai(weights, 4, 4)
