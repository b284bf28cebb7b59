"""A denoiser that onnxruntime runs: the same numbers to rounding, faster on a CPU with small batches."""

import warnings
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from fastdime.diffusion.denoiser import Denoiser, answer_of
from fastdime.errors import InputError, MissingExtra, expected
from fastdime.sessions import EXTRA, open_session

OPSET = 17
CLOSE = 1e-3  # a larger difference to torch is not rounding
REMEDY = "leave --engine out"


class OnnxUNet(nn.Module):
    """A network and the same as an ONNX model, which answers in its place."""

    def __init__(self, network: nn.Module, channels: int, size: int) -> None:
        """Export the network for images of its size, in batches of any length."""
        super().__init__()
        self.network = network  # its weights tell one model from another
        self.shape = (channels, size, size)
        model = exported(network, self.shape)
        try:
            self.session: Any = open_session(model, "--engine onnx")
        except ValueError as error:
            raise _not_exported(str(error)) from None
        self.given = {one.name for one in self.session.get_inputs()}  # a network may do without times

    def forward(self, x_t: Float[Tensor, "b c h w"], times: Int[Tensor, " b"]) -> Tensor:
        """Predict from a noisy image and its times."""
        if x_t.requires_grad and torch.is_grad_enabled():
            raise no_gradients()
        if tuple(x_t.shape[1:]) != self.shape or x_t.device.type != "cpu":
            got = f"{tuple(x_t.shape[1:])} on {x_t.device.type}"
            raise InputError(
                expected("--engine onnx", f"images of shape {self.shape} on the CPU", got, REMEDY)
            )
        given = {"x_t": x_t.contiguous().numpy(), "times": times.numpy()}
        return torch.from_numpy(self.session.run(None, {name: given[name] for name in self.given})[0])


def exported(network: nn.Module, shape: tuple[int, int, int]) -> bytes:
    """Return a network of noisy images and times as an ONNX model."""
    given = torch.zeros(2, *shape), torch.zeros(2, dtype=torch.int64)
    any_length = {name: {0: "images"} for name in ("x_t", "times", "answer")}
    # The exporter warns of itself, and prints what it cannot do.
    with TemporaryDirectory() as folder, warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        file = Path(folder) / "denoiser.onnx"
        try:
            torch.onnx.export(
                _Plain(network).eval(),
                given,
                file,
                input_names=["x_t", "times"],
                output_names=["answer"],
                dynamic_axes=any_length,
                opset_version=OPSET,
                dynamo=False,
            )
        except ModuleNotFoundError:
            raise MissingExtra("onnx", "--engine onnx", EXTRA) from None
        except Exception as error:  # of the exporter, or of the network in it
            raise _not_exported(str(error).strip().splitlines()[0]) from None
        return file.read_bytes()


def no_gradients() -> InputError:
    """Return the refusal of a method that takes gradients through the denoiser: onnxruntime has none."""
    wanted, got = "a method without gradients through the denoiser", "one that needs them"
    return InputError(expected("--engine onnx", wanted, got, REMEDY))


def _not_exported(reason: str) -> InputError:
    return InputError(expected("--engine onnx", "a network that can be exported", reason, REMEDY))


class _Plain(nn.Module):
    """A network that answers with a tensor."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x_t: Tensor, times: Tensor) -> Tensor:
        return answer_of(self.network(x_t, times))


def on_onnx(denoiser: Denoiser) -> Denoiser:
    """Return the same denoiser run by onnxruntime."""
    network = denoiser.network
    if not isinstance(network, nn.Module) or denoiser.channels is None or denoiser.size is None:
        wanted = "a network that tells its channels and size"
        raise InputError(expected("--engine onnx", wanted, type(network).__name__, REMEDY))
    fast = replace(denoiser, network=OnnxUNet(network, denoiser.channels, denoiser.size))
    _check_same(denoiser, fast, (denoiser.channels, denoiser.size, denoiser.size))
    return fast


@torch.no_grad()
def _check_same(denoiser: Denoiser, fast: Denoiser, shape: tuple[int, int, int]) -> None:
    """Refuse an export that is another function: what depends on the values of its input is lost in it."""
    last = len(denoiser.schedule) - 1
    for batch, level in ((1, 0), (3, last // 2), (2, last)):
        x_t = torch.randn(batch, *shape, generator=torch.Generator().manual_seed(level))
        wanted, found = (each.output(x_t, level)[0] for each in (denoiser, fast))
        off = float((wanted - found).abs().max() / wanted.abs().max().clamp(min=1))
        if off > CLOSE:
            raise _not_exported(f"one that answers otherwise when exported (by {off:.2g} at level {level})")
