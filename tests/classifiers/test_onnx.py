import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fastdime.classifiers.load import load_classifier
from fastdime.classifiers.onnx import OnnxNetwork, is_onnx
from fastdime.counterfactuals.explainer import Explainer
from fastdime.errors import CheckpointError, FastdimeError, InputError, MissingExtra
from fastdime.weights import weights_hash
from support import onnx_files, tiny

TIME = torch.zeros(5, dtype=torch.int64)


@pytest.fixture(autouse=True)
def _installed() -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime runs ONNX files")


@pytest.fixture
def x() -> Tensor:
    return torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(0)) * 2 - 1


def one_line(error: pytest.ExceptionInfo[FastdimeError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("batch", ["n", 1, 2, 5, 8])
@pytest.mark.parametrize("sides", [("h", "w"), (8, 8)])
def test_it_computes_what_torch_does(batch: int | str, sides: Any, tmp_path: Path, x: Tensor) -> None:
    module = onnx_files.network()
    path = onnx_files.write(tmp_path / "net.onnx", module, batch=batch, sides=sides)
    classifier = load_classifier(path, kind="multiclass")
    with torch.no_grad():
        wanted = module(x)
    torch.testing.assert_close(classifier.logits(x, TIME), wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(classifier.logits(x[3:4], TIME[:1]), wanted[3:4], rtol=1e-5, atol=1e-5)
    assert classifier.module(x[:0]).shape == (0, 2)


def test_half_precision(tmp_path: Path, x: Tensor) -> None:
    module = onnx_files.network()
    path = onnx_files.write(tmp_path / "net.onnx", module, kind="FLOAT16")
    found = load_classifier(path, kind="multiclass").logits(x, TIME)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, module(x).detach(), rtol=0, atol=1e-2)


def test_the_first_output_of_floats_is_taken(tmp_path: Path, x: Tensor) -> None:
    module = onnx_files.network()
    path = onnx_files.write(tmp_path / "net.onnx", module, label_first=True)
    torch.testing.assert_close(load_classifier(path, kind="multiclass").module(x), module(x).detach())


@pytest.mark.parametrize("beside", ["net.onnx.json", "net.json"])
def test_settings_beside_the_file(beside: str, tmp_path: Path, x: Tensor) -> None:
    module = onnx_files.network(channels=1, outputs=3)
    path = onnx_files.write(tmp_path / "net.onnx", module, sides=(4, 4))
    told = {"kind": "multilabel", "column": 2, "size": 4, "channels": 1, "low": 0}
    (tmp_path / beside).write_text(json.dumps(told))
    classifier = load_classifier(path, column=1)
    wanted = module(classifier.prepare(x)).detach()[:, 1:2]
    torch.testing.assert_close(classifier.logits(x, TIME), wanted, rtol=1e-5, atol=1e-5)
    with pytest.raises(InputError, match="leave architecture and arguments out"):
        load_classifier(path, architecture="resnet18")


def test_a_file_is_known_by_its_first_bytes(tmp_path: Path, x: Tensor) -> None:
    path = onnx_files.write(tmp_path / "net.onnx", onnx_files.network())
    other = path.rename(tmp_path / "net.model")
    assert load_classifier(other, kind="multiclass").logits(x, TIME).shape == (5, 2)
    for name, start in [("net.txt", b"hello"), ("short", b"\x08\x07"), ("long.safetensors", b"\x08\x07\x12")]:
        (tmp_path / name).write_bytes(start)
        assert not is_onnx(tmp_path / name)


def test_weights_in_a_second_file(tmp_path: Path, x: Tensor) -> None:
    onnx = pytest.importorskip("onnx", reason="ONNX files are made with the package onnx")
    module, path = onnx_files.network(), tmp_path / "net.onnx"
    onnx.save_model(
        onnx_files.model(module),
        str(path),
        save_as_external_data=True,
        location="net.onnx.data",
        size_threshold=0,
    )
    torch.testing.assert_close(load_classifier(path, kind="multiclass").module(x), module(x).detach())
    (tmp_path / "net.onnx.data").unlink()
    with pytest.raises(
        CheckpointError, match=r"whole ONNX file.*put the files with its weights beside"
    ) as error:
        load_classifier(path, kind="multiclass")
    one_line(error)


@pytest.mark.parametrize("content", [b"", b"hello", None])
def test_a_broken_file(content: bytes | None, tmp_path: Path) -> None:
    path = onnx_files.write(tmp_path / "net.onnx", onnx_files.network())
    path.write_bytes(path.read_bytes()[:100] if content is None else content)
    with pytest.raises(
        CheckpointError, match=r"net.onnx: expected a whole ONNX file, got one .*cannot open"
    ) as error:
        load_classifier(path)
    assert "ONNXRuntimeError" not in one_line(error)


def test_an_input_that_is_no_image(tmp_path: Path) -> None:
    path = onnx_files.write(tmp_path / "net.onnx", onnx_files.network(), extra_input=True)
    with pytest.raises(
        CheckpointError, match=r"one input of floats, .*, got x tensor\(float\).*, time"
    ) as error:
        load_classifier(path)
    one_line(error)


@pytest.mark.parametrize(
    ("sides", "shape", "sentence"),
    [
        (
            (8, 8),
            (2, 3, 16, 16),
            r"images for net.onnx: expected shape \(any, 3, 8, 8\), got \(2, 3, 16, 16\)",
        ),
        (("h", "w"), (2, 1, 8, 8), r"shape \(any, 3, any, any\), got \(2, 1, 8, 8\); set size and channels"),
    ],
)
def test_another_size_or_channel_count(sides: Any, shape: Any, sentence: str, tmp_path: Path) -> None:
    path = onnx_files.write(tmp_path / "net.onnx", onnx_files.network(), sides=sides)
    with pytest.raises(InputError, match=sentence) as error:
        load_classifier(path, kind="multiclass").logits(torch.zeros(shape), TIME[:2])
    one_line(error)


def test_what_fails_inside_is_one_line(tmp_path: Path, x: Tensor) -> None:
    class Refusing:
        def run(self, *_: object) -> None:
            raise Exception("[ONNXRuntimeError] : 1 : FAIL : first\nsecond")

    classifier = load_classifier(onnx_files.write(tmp_path / "net.onnx", onnx_files.network()))
    classifier.module.session = Refusing()
    with pytest.raises(InputError, match=r"takes images of shape .* RuntimeError: first second") as error:
        classifier.logits(x, TIME)
    one_line(error)


def test_it_cannot_guide(tmp_path: Path, x: Tensor) -> None:
    path = onnx_files.write(tmp_path / "net.onnx", onnx_files.network(channels=1, outputs=1))
    classifier, gray = load_classifier(path), x[:, :1]
    with torch.no_grad():
        classifier.logits(gray.clone().requires_grad_(), TIME)
    sentence = r"classifier net.onnx: expected a network with a gradient, got an ONNX file, .* guide with"
    with pytest.raises(InputError, match=sentence) as error:
        Explainer(tiny.denoiser(), classifier, tiny.small("fastdime"))(tiny.images())
    one_line(error)


def test_threads_mode_and_mark(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        first, again, other = (
            load_classifier(onnx_files.write(tmp_path / f"{name}.onnx", onnx_files.network(seed=seed))).module
            for name, seed in (("a", 0), ("b", 0), ("c", 1))
        )
    finally:
        torch.set_num_threads(threads)
    assert isinstance(first, OnnxNetwork)
    assert first.session.get_session_options().intra_op_num_threads == 1
    assert not first.training
    assert weights_hash(first) == weights_hash(again) != weights_hash(other)


def test_without_onnxruntime_one_line_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net.onnx").write_bytes(b"anything")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(
        MissingExtra, match=r"net.onnx needs the package onnxruntime: pip .*fastdime\[onnx\]'"
    ):
        load_classifier(tmp_path / "net.onnx")
