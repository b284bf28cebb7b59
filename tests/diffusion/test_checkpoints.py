import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import DDPMScheduler, UNet2DModel

from fastdime.diffusion import schedule as sch
from fastdime.diffusion.checkpoints import convert, load_denoiser
from fastdime.diffusion.denoiser import Denoiser, as_denoiser
from fastdime.diffusion.sidecar import ARCHITECTURES
from fastdime.errors import CheckpointError, FastdimeError, InputError
from fastdime.weights import save_weights

REFERENCE = Path(__file__).parents[1] / "reference" / "data"


def recorded(name):
    with np.load(REFERENCE / f"{name}.npz") as file:
        arrays = {key: torch.from_numpy(np.atleast_1d(file[key])) for key in file.files}
    return {key[3:]: value for key, value in arrays.items() if key.startswith("sd/")}, arrays


@pytest.fixture
def guided(tmp_path):
    """A guided-diffusion checkpoint with its JSON, and what it must compute."""
    weights, arrays = recorded("unet")
    torch.save(weights, tmp_path / "guided.pt")
    known = {"diffusion_steps": 500, "image_size": arrays["hp_image_size"].item()}
    for name in ("num_heads", "num_head_channels"):
        known |= {name: arrays[f"hp_{name}"].item()} if f"hp_{name}" in arrays else {}
    write(tmp_path / "guided.json", known)
    return tmp_path / "guided.pt", arrays


@pytest.fixture
def medical(tmp_path):
    """A checkpoint of the medical program, and what it must compute."""
    weights, arrays = recorded("medical_unet")
    torch.save(
        {"state_dict": {f"model.{name}": value for name, value in weights.items()}}, tmp_path / "med.ckpt"
    )
    return tmp_path / "med.ckpt", arrays


def write(path, content):
    path.write_text(json.dumps(content))


def error(network, arrays):
    with torch.no_grad():
        return (network(arrays["x"], arrays["t"]).sample - arrays["y"]).abs().max().item()


def refused(kind, source, **told):
    with pytest.raises(kind) as caught:
        load_denoiser(source, **told)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_guided(guided):
    path, arrays = guided
    denoiser = load_denoiser(path)
    assert error(denoiser.network, arrays) < 1e-4
    assert not denoiser.network.training
    assert all(parameter.requires_grad for parameter in denoiser.network.parameters())
    assert (denoiser.prediction, denoiser.variance) == ("epsilon", "learned_range")
    assert (denoiser.size, denoiser.channels) == (arrays["hp_image_size"].item(), arrays["x"].shape[1])
    assert np.array_equal(denoiser.schedule.betas, sch.linear(500).betas)
    posterior = denoiser.posterior(arrays["x"], 3)
    assert posterior.mean.shape == arrays["x"].shape


def test_medical(medical):
    path, arrays = medical
    denoiser = load_denoiser(path)
    assert error(denoiser.network, arrays) < 1e-4
    assert not denoiser.network.training
    assert (denoiser.prediction, denoiser.variance, denoiser.schedule.kind) == (
        "epsilon",
        "fixed_large",
        "linear",
    )
    assert len(denoiser.schedule) == len(denoiser.network.time_proj.weight)


def test_guided_without_learned_variance(guided):
    path, _ = guided
    weights = torch.load(path)
    half = len(weights["out.2.weight"]) // 2
    weights |= {name: weights[name][:half] for name in ("out.2.weight", "out.2.bias")}
    torch.save(weights, path)
    assert load_denoiser(path).variance == "fixed_large"
    write(
        path.with_suffix(".json"),
        json.loads(path.with_suffix(".json").read_text()) | {"variance": "learned_range"},
    )
    assert "expected 6 output channels for 3 inputs and variance learned_range" in refused(
        CheckpointError, path
    )


@pytest.mark.parametrize("which", ["guided", "medical"])
def test_convert_opens_with_plain_diffusers(which, tmp_path, request):
    path, arrays = request.getfixturevalue(which)
    converted = convert(path, tmp_path / "out")
    plain = UNet2DModel.from_pretrained(tmp_path / "out").eval()
    again, before = load_denoiser(tmp_path / "out"), load_denoiser(path)
    assert converted.plain
    assert "diffusers and fastdime open it" in str(converted)
    assert converted.parameters == sum(parameter.numel() for parameter in plain.parameters())
    assert error(plain, arrays) < 1e-4
    assert error(again.network, arrays) == error(before.network, arrays)
    assert np.allclose(again.schedule.betas, before.schedule.betas, rtol=1e-12)
    assert np.array_equal(again.schedule.network_times, before.schedule.network_times)
    for name in ("prediction", "variance", "size", "channels"):
        assert getattr(again, name) == getattr(before, name)
    assert again.schedule.kind == before.schedule.kind == "linear"
    scheduler = DDPMScheduler.from_pretrained(tmp_path / "out")
    assert np.allclose(scheduler.betas, before.schedule.betas, rtol=1e-5)
    assert sorted(file.name for file in tmp_path.iterdir() if file.name.startswith(".")) == []


def test_convert_does_not_overwrite(guided, tmp_path):
    (tmp_path / "out").mkdir()
    convert(guided[0], tmp_path / "out")
    before = sorted((tmp_path / "out").iterdir())
    with pytest.raises(InputError, match="expected a new or empty folder, got one that is in use"):
        convert(guided[0], tmp_path / "out")
    assert sorted((tmp_path / "out").iterdir()) == before


def test_convert_leaves_nothing_behind_when_it_fails(guided, tmp_path, monkeypatch):
    monkeypatch.setattr(DDPMScheduler, "save_pretrained", lambda *_: 1 / 0)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ZeroDivisionError):
        convert(guided[0], tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "told",
    [
        {"noise_schedule": "cosine", "prediction": "v"},
        {"noise_schedule": "scaled_linear", "beta_start": 0.0005, "beta_end": 0.0195},
        {"beta_start": 0.0001, "beta_end": 0.02, "prediction": "sample"},
    ],
)
def test_schedules_of_the_json_survive_conversion(guided, tmp_path, told):
    path, _ = guided
    write(tmp_path / "guided.pt.json", json.loads((tmp_path / "guided.json").read_text()) | told)
    before = load_denoiser(path)
    convert(path, tmp_path / "out")
    again = load_denoiser(tmp_path / "out")
    assert before.schedule.kind == told.get("noise_schedule", "table")
    assert again.schedule.kind == before.schedule.kind
    assert np.allclose(again.schedule.betas, before.schedule.betas, rtol=1e-12)
    assert again.prediction == before.prediction == told.get("prediction", "epsilon")


def test_what_the_weights_do_not_tell_is_asked_for(guided):
    path, _ = guided
    path.with_suffix(".json").unlink()
    assert refused(CheckpointError, path) == (
        "guided.pt: expected num_heads and diffusion_steps, which the weights do not tell, got nothing; "
        'write for example {"num_heads": 4, "diffusion_steps": 1000} to guided.json beside it, '
        "or name an architecture"
    )


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"heads": 4}, "guided.json, field: expected one of num_heads,"),
        ({"num_heads": 0}, "guided.json, field: num_heads: expected greater than 0, got 0"),
        ({"num_heads": 4, "num_head_channels": 8, "diffusion_steps": 9}, "got both; take one of them out"),
        ({"num_heads": -1, "num_head_channels": -1, "diffusion_steps": 9}, "expected num_heads, which"),
        ({"num_heads": 5, "diffusion_steps": 9}, "expected heads that divide"),
        ({"num_head_channels": [8], "diffusion_steps": 9}, "expected one number, got a list"),
        ({"architecture": "dime"}, "architecture: expected one of dime-celeba, medical, got 'dime'"),
    ],
)
def test_a_json_that_cannot_be_used(guided, content, sentence):
    path, _ = guided
    write(path.with_suffix(".json"), content)
    assert sentence in refused(FastdimeError, path)


def test_wrong_architecture(guided, medical):
    sentence = refused(CheckpointError, guided[0], architecture="dime-celeba")
    assert "as dime-celeba has, got widths (" in sentence
    assert "medical weights, as medical has, got guided-diffusion weights" in refused(
        CheckpointError, guided[0], architecture="medical"
    )
    assert "got medical weights" in refused(CheckpointError, medical[0], architecture="dime-celeba")
    write(medical[0].with_suffix(".json"), {"diffusion_steps": 400})
    assert "expected a time table of 400 rows, got 1000" in refused(CheckpointError, medical[0])
    assert "expected diffusion_steps 1000, as the architecture has it, got 400" in refused(
        CheckpointError, medical[0], architecture="medical"
    )
    assert "expected a checkpoint file to go with" in refused(InputError, print, architecture="medical")


def test_named_architecture(guided, monkeypatch):
    """The known values of a name are used; the real network is too large for a test."""
    path, arrays = guided
    path.with_suffix(".json").unlink()
    known = ARCHITECTURES["dime-celeba"]
    small = known.known.model_copy(update={"num_heads": arrays["x"].shape[1] - 1, "image_size": 16})
    monkeypatch.setitem(ARCHITECTURES, "small", type(known)("guided-diffusion", small))
    denoiser = load_denoiser(path, architecture="small")
    assert (len(denoiser.schedule), denoiser.schedule.kind, denoiser.size) == (500, "linear", 16)
    assert known.layout.attention_widths == [256, 384, 512, 512]


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["conv.weight", "fc.weight"], "got names like conv.weight, fc.weight; convert it"),
        (["conv_in.weight"], "weights of a diffusers network alone; give the folder with config.json"),
        (["input_blocks.0.0.weight"], "this is a classifier, not a denoiser"),
    ],
)
def test_weights_of_something_else(tmp_path, names, sentence):
    save_weights(tmp_path / "m.safetensors", {name: torch.ones(1) for name in names})
    assert sentence in refused(CheckpointError, tmp_path / "m.safetensors")


def test_missing_and_surplus_weights_have_their_own_names(guided):
    path, _ = guided
    weights = torch.load(path)
    del weights["middle_block.1.qkv.bias"]
    torch.save(weights | {"extra.w": torch.ones(1)}, path)
    assert "1 missing (middle_block.1.qkv.bias), 1 surplus (extra.w)" in refused(CheckpointError, path)
    weights["middle_block.1.qkv.bias"] = torch.zeros(5)
    torch.save(weights, path)
    assert "of another shape (middle_block.1.qkv.bias: (5,) instead of (32,)" in refused(
        CheckpointError, path
    )
    torch.save(weights | {"label_emb.weight": torch.ones(1)}, path)
    assert "a model without class labels" in refused(CheckpointError, path)


def test_nothing_there(tmp_path):
    assert "package.module:function, got nothing there" in refused(CheckpointError, tmp_path / "no.pt")


MODULE = """
import torch
from fastdime.diffusion.denoiser import as_denoiser
from fastdime.diffusion.schedule import cosine

def whole(): return as_denoiser(lambda x, t: 0 * x, cosine(7))
def network(): return torch.nn.Conv2d(3, 3, 1)
def eps(x_t, t): return 2 * x_t
number = 3
"""


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    (tmp_path / "own_models.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    yield "own_models"
    assert sys.path == before
    sys.modules.pop("own_models", None)


def test_function_of_the_user(own_module):
    assert len(load_denoiser("own_models:whole").schedule) == 7
    assert not load_denoiser("own_models:network").network.training
    x = torch.ones(1, 1, 2, 2)
    assert torch.equal(load_denoiser("own_models:eps").output(x, 3)[0], 2 * x)


def test_function_of_the_user_that_cannot_be_used(own_module):
    assert "got no module own_model; install it" in refused(InputError, "own_model:eps")
    assert "got 'epsilon'; did you mean 'eps'?" in refused(InputError, "own_models:epsilon")
    assert "a callable eps(x_t, t), got int" in refused(InputError, "own_models:number")


def test_objects_are_left_as_they_are():
    network = torch.nn.Conv2d(3, 3, 1)
    assert load_denoiser(network).network is network
    assert network.training
    denoiser = as_denoiser(lambda x, t: x)
    assert load_denoiser(denoiser) is denoiser
    assert isinstance(load_denoiser(lambda x, t: x), Denoiser)


def test_monai_needs_what_its_weights_do_not_tell(tmp_path):
    save_weights(
        tmp_path / "m.safetensors",
        {"conv_in.conv.weight": torch.ones(1), "time_embed.0.weight": torch.ones(1)},
    )
    sentence = refused(CheckpointError, tmp_path / "m.safetensors")
    assert '{"num_head_channels": 64, "norm_num_groups": 32, "diffusion_steps": 1000} to m.json' in sentence
