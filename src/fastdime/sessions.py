"""onnxruntime, which runs ONNX models on the CPU, forwards only."""

import re
from typing import Any

import torch

from fastdime.errors import MissingExtra

EXTRA = "onnx"
SILENT = 4  # level of onnxruntime's own log: what it says of a broken file becomes our sentence
LONGEST = 200  # letters of a reason that onnxruntime gives


def open_session(model: str | bytes, purpose: str) -> Any:
    """Open a file, or what is in one, with as many threads as torch uses now.

    Args:
        purpose: what for, for the sentence if it is not installed.

    Raises:
        ValueError: onnxruntime cannot open it; with the reason.
    """
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtra("onnxruntime", purpose, EXTRA) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    options.log_severity_level = SILENT
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # those of onnxruntime have no class in common
        raise ValueError(reason_of(error)) from None


def reason_of(error: Exception) -> str:
    """Return what onnxruntime complains about, in one line of moderate length."""
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", " ".join(str(error).split()))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
