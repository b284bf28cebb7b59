"""Tiny ONNX files, and the same networks in torch."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn


def network(channels: int = 3, outputs: int = 2, *, seed: int = 0) -> nn.Sequential:
    """What the file computes: a convolution, a mean over the image and a linear layer."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        pool = [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        return nn.Sequential(nn.Conv2d(channels, 4, 3, padding=1), *pool, nn.Linear(4, outputs)).eval()


def write(path: Path, module: nn.Sequential, **changes: Any) -> Path:
    """Write the network as an ONNX file; `changes` are those of `model`."""
    onnx = pytest.importorskip("onnx", reason="ONNX files are made with the package onnx")
    onnx.save_model(model(module, **changes), str(path))
    return path


def model(
    module: nn.Sequential,
    *,
    batch: int | str = "n",
    sides: tuple[int | str, ...] = ("h", "w"),
    kind: str = "FLOAT",
    extra_input: bool = False,
    label_first: bool = False,
) -> Any:
    """Build the message: a fixed `batch` or `sides`, floats of another `kind`, more inputs or outputs."""
    from onnx import TensorProto, helper, numpy_helper

    number = TensorProto.DataType.Value(kind)
    dtype = helper.tensor_dtype_to_np_dtype(number)
    weights = [
        numpy_helper.from_array(value.numpy().astype(dtype), name)
        for name, value in module.state_dict().items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "0.weight", "0.bias"], ["map"], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["map"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["flat"]),
        helper.make_node("Gemm", ["flat", "3.weight", "3.bias"], ["y"], transB=1),
    ]
    channels, outputs = module[0].in_channels, module[3].out_features
    inputs = [helper.make_tensor_value_info("x", number, [batch, channels, *sides])]
    answers = [helper.make_tensor_value_info("y", number, [batch, outputs])]
    if extra_input:
        inputs.append(helper.make_tensor_value_info("time", TensorProto.INT64, [batch]))
    if label_first:
        nodes.append(helper.make_node("ArgMax", ["y"], ["label"], axis=1, keepdims=0))
        answers.insert(0, helper.make_tensor_value_info("label", TensorProto.INT64, [batch]))
    graph = helper.make_graph(nodes, "tiny", inputs, answers, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
