import pickle
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from fastdime.errors import CheckpointError
from fastdime.weights import load_into, read_weights, save_weights, weights_hash


def tensors():
    return {"a.weight": torch.arange(600.0).reshape(30, 20), "a.bias": torch.arange(30.0)}


def same(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.fixture(params=["new", "old", "safe"])
def checkpoint(request, tmp_path):
    path = tmp_path / ("model.safetensors" if request.param == "safe" else "model.pt")
    if request.param == "safe":
        save_weights(path, tensors())
    else:
        torch.save(tensors(), path, _use_new_zipfile_serialization=request.param == "new")
    return path


def refused(path):
    with pytest.raises(CheckpointError) as caught:
        read_weights(path)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert Path(path).name in sentence
    return sentence


def test_reads_every_format(checkpoint):
    assert same(read_weights(checkpoint), tensors())


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.9, 0.999])
def test_a_file_that_is_cut_off(checkpoint, share):
    content = checkpoint.read_bytes()
    checkpoint.write_bytes(content[: int(len(content) * share)])
    assert "damaged" in refused(checkpoint)


@pytest.mark.parametrize("nest", ["state_dict", "model", "ema", "model_state_dict"])
def test_takes_the_usual_wrapping_off(tmp_path, nest):
    torch.save({nest: tensors(), "epoch": 3, "optimizer": {"state": {}}}, tmp_path / "m.ckpt")
    assert same(read_weights(tmp_path / "m.ckpt"), tensors())


@pytest.mark.parametrize("prefix", ["module.", "model.", "module.model.", "_orig_mod."])
def test_takes_a_shared_prefix_off(tmp_path, prefix):
    torch.save(
        {"state_dict": {prefix + name: value for name, value in tensors().items()}}, tmp_path / "m.pth"
    )
    assert same(read_weights(tmp_path / "m.pth"), tensors())


def test_keeps_a_prefix_that_only_some_names_have(tmp_path):
    mixed = {"model.w": torch.ones(1), "head.w": torch.ones(1)}
    torch.save(mixed, tmp_path / "m.pt")
    assert same(read_weights(tmp_path / "m.pt"), mixed)


def test_averaged_weights_come_first(tmp_path):
    torch.save({"model": {"w": torch.zeros(1)}, "ema": {"w": torch.ones(1)}}, tmp_path / "m.pt")
    assert read_weights(tmp_path / "m.pt")["w"] == 1


def test_several_state_dicts_are_joined(tmp_path):
    torch.save({"trunk": {"w": torch.ones(1)}, "head": {"w": torch.zeros(2)}, "step": 7}, tmp_path / "m.pt")
    assert {name: len(value) for name, value in read_weights(tmp_path / "m.pt").items()} == {
        "trunk.w": 1,
        "head.w": 2,
    }


class Hostile:
    """A pickle of this creates a file when something unpickles it."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


@pytest.mark.parametrize("how", ["new", "old", "plain"])
@pytest.mark.parametrize("suffix", [".pt", ".bin"])
def test_code_in_a_pickle_is_not_run(tmp_path, how, suffix):
    path, marker = tmp_path / f"hostile{suffix}", tmp_path / "marker"
    content = {"a.weight": torch.ones(1), "b": Hostile(marker)}
    if how == "plain":
        path.write_bytes(pickle.dumps({"b": Hostile(marker)}))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=how == "new")
    assert "a pickle with code or Python objects; it was not run" in refused(path)
    assert not marker.exists()
    pickle.loads(pickle.dumps(Hostile(marker)))
    assert marker.exists(), "the pickle is not hostile: the test proves nothing"


def test_hostile_pickle_named_safetensors(tmp_path):
    path, marker = tmp_path / "hostile.safetensors", tmp_path / "marker"
    path.write_bytes(pickle.dumps(Hostile(marker)))
    refused(path)
    assert not marker.exists()


def test_a_whole_module_is_refused(tmp_path):
    torch.save(nn.Linear(2, 2), tmp_path / "module.pt")
    assert "Python objects" in refused(tmp_path / "module.pt")


def test_a_torchscript_program_is_refused(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is on its way out
        torch.jit.save(torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2)), tmp_path / "program.pt")
    assert "a TorchScript program; save its state_dict()" in refused(tmp_path / "program.pt")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.pt", b"<!DOCTYPE html><html>", "a file of another kind"),
        ("a.pt", b"hello world, no checkpoint", "a file of another kind"),
        ("a.safetensors", b"hello world, no checkpoint", "a damaged one"),
        ("a.pt", b"", "an empty file"),
        ("a.onnx", b"x", "expected a file that ends in .safetensors, .pt"),
    ],
)
def test_a_file_that_is_no_checkpoint(tmp_path, name, content, sentence):
    (tmp_path / name).write_bytes(content)
    assert sentence in refused(tmp_path / name)


@pytest.mark.parametrize("content", [{}, {"state_dict": {}}, {"epoch": 3}, [1, 2], torch.ones(2)])
def test_a_checkpoint_without_weights(tmp_path, content):
    torch.save(content, tmp_path / "a.pt")
    assert "one without any tensor" in refused(tmp_path / "a.pt")


def test_missing_file_and_folder(tmp_path):
    assert "nothing there" in refused(tmp_path / "no.pt")
    assert "a folder" in refused(tmp_path)


def test_load_into_is_strict(tmp_path):
    module = nn.Linear(20, 30)
    load_into(module, {"weight": tensors()["a.weight"], "bias": tensors()["a.bias"].half()}, "m.pt")
    assert torch.equal(module.weight, tensors()["a.weight"])
    assert module.bias.dtype == torch.float32
    with pytest.raises(CheckpointError) as caught:
        load_into(module, {"weight": torch.ones(3, 20), "x": torch.ones(1), "y": torch.ones(1)}, "dir/m.pt")
    assert str(caught.value) == (
        "m.pt: expected weights that fit the network, got 1 missing (bias), 2 surplus (x, y), "
        "1 of another shape (weight: (3, 20) instead of (30, 20)); is this the right architecture?"
    )
    assert torch.equal(module.weight, tensors()["a.weight"])


def test_load_into_names_only_the_first(tmp_path):
    with pytest.raises(CheckpointError, match=r"5 surplus \(0, 1, 2, \.\.\.\)"):
        load_into(nn.Identity(), {str(number): torch.ones(1) for number in range(5)}, "m.pt")


def test_load_into_a_module_without_memory():
    with torch.device("meta"):
        module = nn.Linear(20, 30)
    module.bias.requires_grad_(False)
    load_into(module, {"weight": tensors()["a.weight"], "bias": tensors()["a.bias"]}, "m.pt")
    assert torch.equal(module(torch.zeros(1, 20))[0], tensors()["a.bias"])
    assert (module.weight.requires_grad, module.bias.requires_grad) == (True, False)


def test_save_is_whole_or_nothing(tmp_path):
    path = tmp_path / "new" / "m.safetensors"
    joint = torch.arange(6.0)
    save_weights(path, {"a": joint, "b": joint[:2], "c": joint.reshape(2, 3).T})
    assert same(read_weights(path), {"a": joint, "b": joint[:2], "c": joint.reshape(2, 3).T})
    before = path.read_bytes()
    with pytest.raises(TypeError):
        save_weights(path, {"a": torch.ones(1), 3: torch.ones(1)})
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["m.safetensors"]


def test_hash_sees_names_numbers_shapes_and_types(tmp_path):
    torch.save(tensors(), tmp_path / "m.pt")
    digest = weights_hash(tmp_path / "m.pt")
    assert digest == weights_hash(dict(reversed(tensors().items())))
    assert len(digest) == 16
    changed = [
        tensors() | {"a.bias": tensors()["a.bias"] + 1},
        tensors() | {"a.bias": tensors()["a.bias"].reshape(5, 6)},
        tensors() | {"a.bias": tensors()["a.bias"].double()},
        {name.upper(): value for name, value in tensors().items()},
    ]
    assert len({digest, *map(weights_hash, changed)}) == 5


def test_hash_of_a_module_is_that_of_its_weights():
    module = nn.BatchNorm1d(3)
    assert weights_hash(module) == weights_hash(module.state_dict())
    assert weights_hash({"w": torch.ones(2, dtype=torch.bfloat16)})
