"""Classifiers in ONNX files, which many programs write: onnxruntime runs them, on the CPU, only forwards."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from fastdime.errors import CheckpointError, InputError, expected
from fastdime.sessions import open_session, reason_of
from fastdime.weights import PICKLED, SAFE

SUFFIX = ".onnx"
NUMBERS = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
FIRST_FIELD, NEWEST, NEXT_FIELDS = 0x08, 0x20, b"\x12\x1a\x22\x28\x32\x3a\x42"  # of the message in a file


class OnnxNetwork(nn.Module):
    """An ONNX model as a network: images go in, its first output of floats comes out; it has no gradient."""

    mark: Tensor

    def __init__(self, session: Any, path: Path) -> None:
        """Keep the session; the shape that the images must have is read from it.

        Raises:
            CheckpointError: it is no network of images.
        """
        super().__init__()
        self.session, self.name = session, path.name
        given = _only_input(session, path)
        self.given: str = given.name
        self.dtype = NUMBERS[given.type]
        self.wanted = tuple(side if isinstance(side, int) else None for side in given.shape or [None] * 4)
        self.answer = _first_output(session, path)
        # The weights are out of sight: where weights are compared, this tells one model from another.
        self.register_buffer("mark", torch.frombuffer(_digest(path), dtype=torch.uint8))

    def forward(self, x: Float[Tensor, "b c h w"]) -> Tensor:
        """Score images; a model that is made for batches of one length gets such batches."""
        self._check(x)
        length = self.wanted[0] or max(1, len(x))
        # Also without any image there is one batch, which tells the number of outputs.
        batches = [x[first : first + length] for first in range(0, max(1, len(x)), length)]
        return torch.cat([self._run(batch, self.wanted[0] or len(batch)) for batch in batches])

    def _check(self, x: Tensor) -> None:
        if x.requires_grad and torch.is_grad_enabled():
            remedy = "let it judge, and guide with a TorchScript file or package.module:function"
            wanted, got = "a network with a gradient", "an ONNX file, which has none"
            raise InputError(expected(f"classifier {self.name}", wanted, got, remedy))
        pairs = zip(self.wanted[1:], x.shape[1:], strict=True)
        if any(side not in (None, found) for side, found in pairs):
            shape = ", ".join("any" if side is None else str(side) for side in ("any", *self.wanted[1:]))
            remedy = "set size and channels of the classifier; channels come before height and width"
            message = expected(f"images for {self.name}", f"shape ({shape})", tuple(x.shape), remedy)
            raise InputError(message)

    def _run(self, batch: Tensor, length: int) -> Tensor:
        """Ask about one batch, filled up with empty images to a length."""
        empty = batch.new_zeros(length - len(batch), *batch.shape[1:])
        images = torch.cat([batch, empty]).detach().cpu().numpy().astype(self.dtype)
        try:
            [found] = self.session.run([self.answer], {self.given: images})
        except Exception as error:  # those of onnxruntime have no class in common
            raise RuntimeError(reason_of(error)) from error
        if found.shape[:1] != (length,):
            raise InputError(expected(f"output of {self.name}", f"{length} rows, one an image", found.shape))
        return torch.from_numpy(found)[: len(batch)].to(batch)


def is_onnx(path: Path) -> bool:
    """Tell whether a file is an ONNX model, by its name or its first bytes."""
    suffix = path.suffix.lower()
    if suffix == SUFFIX or suffix in (SAFE, *PICKLED):
        return suffix == SUFFIX  # the length at the start of weights may look like anything
    with path.open("rb") as file:
        start = file.read(3)
    return len(start) == 3 and start[0] == FIRST_FIELD and start[1] < NEWEST and start[2] in NEXT_FIELDS


def open_onnx(path: Path) -> OnnxNetwork:
    """Open an ONNX file; onnxruntime uses as many threads as torch does now.

    Raises:
        MissingExtra: onnxruntime is not installed.
        CheckpointError: the file is damaged, lacks its weights, or is no network of images.
    """
    try:
        session = open_session(str(path), f"opening {path}")
    except ValueError as error:
        reason = str(error)
        got = f"one that onnxruntime cannot open ({reason})"
        outside = "external data" in reason.lower()
        remedy = "put the files with its weights beside it" if outside else "export it again"
        raise CheckpointError(expected(str(path), "a whole ONNX file", got, remedy)) from None
    return OnnxNetwork(session, path).eval()


def _only_input(session: Any, path: Path) -> Any:
    inputs = session.get_inputs()
    fits = len(inputs) == 1 and inputs[0].type in NUMBERS and len(inputs[0].shape or [None] * 4) == 4
    if not fits:
        got = ", ".join(f"{one.name} {one.type} {one.shape}" for one in inputs) or "none"
        wanted = "one input of floats, (images, channels, height, width)"
        raise CheckpointError(expected(str(path), wanted, got, "export the network without other inputs"))
    return inputs[0]


def _first_output(session: Any, path: Path) -> str:
    outputs = session.get_outputs()
    names = [str(one.name) for one in outputs if one.type in NUMBERS]
    if not names:
        got = ", ".join(f"{one.name} {one.type}" for one in outputs)
        raise CheckpointError(expected(str(path), "an output of floats", got))
    return names[0]


def _digest(path: Path) -> bytearray:
    """Return a mark of the file, and of the one that exporters put the weights of large models into."""
    digest = hashlib.sha256()
    for part in (path, path.with_name(f"{path.name}.data")):
        if part.is_file():
            with part.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return bytearray(digest.digest())
