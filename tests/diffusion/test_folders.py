import json

import numpy as np
import pytest
import torch
from diffusers import DDIMScheduler, DDPMScheduler, UNet2DModel

from fastdime.diffusion.checkpoints import load_denoiser
from fastdime.errors import CheckpointError


def refused(source):
    with pytest.raises(CheckpointError) as caught:
        load_denoiser(source)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def small_unet(**changes):
    usual = {"block_out_channels": (8, 16), "layers_per_block": 1, "norm_num_groups": 4, "sample_size": 8}
    usual |= {"down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "attention_head_dim": 4}
    usual |= {"up_block_types": ("AttnUpBlock2D", "UpBlock2D")}
    torch.manual_seed(0)
    return UNet2DModel(**(usual | changes)).eval()


@pytest.mark.parametrize("places", [("", ""), ("unet", "scheduler")])
@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ({"beta_schedule": "linear"}, "linear"),
        ({"beta_schedule": "linear", "num_train_timesteps": 100}, "table"),
        (
            {"beta_schedule": "linear", "num_train_timesteps": 500, "beta_start": 2e-4, "beta_end": 0.04},
            "linear",
        ),
        ({"beta_schedule": "scaled_linear", "beta_start": 0.001, "beta_end": 0.01}, "scaled_linear"),
        ({"beta_schedule": "squaredcos_cap_v2"}, "cosine"),
        ({"trained_betas": [0.1, 0.2, 0.3], "num_train_timesteps": 3}, "table"),
    ],
)
def test_folder_has_the_betas_of_diffusers(tmp_path, places, told, kind):
    scheduler, unet = DDPMScheduler(**told), small_unet()
    unet.save_pretrained(tmp_path / places[0])
    scheduler.save_pretrained(tmp_path / places[1])
    denoiser = load_denoiser(tmp_path)
    assert np.allclose(denoiser.schedule.betas, scheduler.betas.double(), rtol=1e-4)
    assert (denoiser.schedule.kind, denoiser.size, denoiser.channels) == (kind, 8, 3)
    x, t = torch.randn(2, 3, 8, 8), torch.tensor([1, 2])
    assert torch.equal(denoiser.network(x, t).sample, unet(x, t).sample)


@pytest.mark.parametrize(
    ("prediction", "variance", "ours"),
    [
        ("epsilon", "fixed_small", ("epsilon", "fixed_small")),
        ("v_prediction", "fixed_large_log", ("v", "fixed_large")),
        ("sample", "learned_range", ("sample", "learned_range")),
        ("edm", "fixed_small", ("edm", "fixed_small")),
    ],
)
def test_folder_tells_prediction_and_variance(tmp_path, prediction, variance, ours):
    small_unet(out_channels=6 if variance == "learned_range" else 3).save_pretrained(tmp_path)
    DDPMScheduler(prediction_type=prediction, variance_type=variance).save_pretrained(tmp_path)
    denoiser = load_denoiser(tmp_path)
    assert (denoiser.prediction, denoiser.variance) == ours


def test_one_step_equals_the_step_of_diffusers(tmp_path):
    scheduler = DDPMScheduler(variance_type="fixed_small", clip_sample=True)
    small_unet().save_pretrained(tmp_path)
    scheduler.save_pretrained(tmp_path)
    denoiser = load_denoiser(tmp_path)
    x = torch.randn(1, 3, 8, 8)
    with torch.no_grad():
        posterior = denoiser.posterior(x, 400)
        prediction = denoiser.network(x, 400).sample
    step = scheduler.step(prediction, 400, x, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(posterior.mean + posterior.variance.sqrt() * noise, step.prev_sample, atol=1e-4)


def test_folder_with_a_scheduler_that_has_no_variance(tmp_path):
    small_unet(out_channels=6).save_pretrained(tmp_path)
    DDIMScheduler().save_pretrained(tmp_path)
    assert load_denoiser(tmp_path).variance == "learned_range"


def test_folder_with_old_attention_names_and_a_pickle(tmp_path):
    unet = small_unet()
    unet.save_config(tmp_path)
    DDPMScheduler().save_pretrained(tmp_path)
    older = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}
    weights = dict(unet.state_dict())
    for new, old in older.items():
        weights = {name.replace(f".{new}.", f".{old}."): value for name, value in weights.items()}
    torch.save(weights, tmp_path / "diffusion_pytorch_model.bin")
    x, t = torch.randn(1, 3, 8, 8), torch.tensor([1])
    assert torch.equal(load_denoiser(tmp_path).network(x, t).sample, unet(x, t).sample)


def change(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("file", "changes", "sentence"),
    [
        ("config.json", {"_class_name": "UNet2DConditionModel"}, "a UNet2DModel, got UNet2DConditionModel"),
        ("config.json", {"num_class_embeds": 3}, "a model without class labels"),
        ("config.json", {"layers_per_block": 2}, "expected weights that fit the network, got 64 missing"),
        (
            "config.json",
            {"attention_head_dim": "four"},
            "expected a number, or a text like '4 heads', got 'four'",
        ),
        ("config.json", {"down_block_types": ["DownBlock2D"]}, "expected the configuration of a UNet2DModel"),
        ("scheduler_config.json", {"beta_schedule": "laplace"}, "got 'laplace'"),
        (
            "scheduler_config.json",
            {"prediction_type": "flow"},
            "one of epsilon, v_prediction, sample, edm, got 'flow'",
        ),
        ("scheduler_config.json", {"variance_type": "learned"}, "got 'learned'"),
        ("scheduler_config.json", {"variance_type": "learned_range"}, "expected 6 output channels"),
        (
            "scheduler_config.json",
            {"rescale_betas_zero_snr": True},
            "a chain that does not end in pure noise",
        ),
        ("scheduler_config.json", {"trained_betas": [3]}, "numbers that make a chain"),
        ("scheduler_config.json", {"num_train_timesteps": "many"}, "numbers that make a chain"),
    ],
)
def test_folders_that_cannot_be_used(tmp_path, file, changes, sentence):
    small_unet().save_pretrained(tmp_path)
    DDPMScheduler().save_pretrained(tmp_path)
    change(tmp_path / file, **changes)
    assert sentence in refused(tmp_path)


def test_folders_that_lack_a_file(tmp_path):
    assert "a diffusers folder with a UNet2DModel" in refused(tmp_path)
    small_unet().save_pretrained(tmp_path)
    assert "scheduler_config.json, here or in scheduler/" in refused(tmp_path)
    (tmp_path / "scheduler_config.json").write_text("[1]")
    assert "a JSON object {...}, got list" in refused(tmp_path)
    (tmp_path / "scheduler_config.json").write_text("{")
    assert "expected a JSON file" in refused(tmp_path)
    (tmp_path / "scheduler_config.json").write_text("{}")
    (tmp_path / "diffusion_pytorch_model.safetensors").unlink()
    assert "nothing there" in refused(tmp_path)
