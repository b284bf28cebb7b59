"""Time one call of a bundle's denoiser in several ways; numbers of docs/results/speed.md.

python tools/denoiser_speed.py chest-pacemaker

Milliseconds that the process had a core, the least of some rounds, so other work matters little.
openvino is tried if it is installed.
"""

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnxruntime
import torch
from torch import Tensor, nn

from fastdime.bundles import load_bundle

BATCHES, ROUNDS = (1, 4, 8, 32), 10
Call = Callable[[], Any]


def ways(network: Any, x: Tensor, t: Tensor, folder: Path) -> Iterator[tuple[str, Call]]:
    for name, layout in (("contiguous", torch.contiguous_format), ("channels_last", torch.channels_last)):
        network.unet.to(memory_format=layout)
        yield name, lambda: network(x, t)
    traced = torch.jit.freeze(torch.jit.trace(network, (x, t)))
    yield "channels_last, traced and frozen", lambda: traced(x, t)
    compiled = torch.compile(network)
    yield "channels_last, torch.compile", lambda: compiled(x, t)
    feed = {"x": x.numpy(), "t": t.numpy()}
    file = exported(network, (x, t), folder / "denoiser.onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    yield "ONNX Runtime", lambda: session.run(None, feed)
    with suppress(ImportError):
        import openvino

        wanted = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "INFERENCE_PRECISION_HINT": "f32"}
        model = openvino.Core().compile_model(str(file), "CPU", wanted)
        yield "OpenVINO", lambda: model(list(feed.values()))


def exported(network: nn.Module, inputs: tuple[Tensor, Tensor], file: Path) -> Path:
    torch.onnx.export(network, inputs, file, input_names=["x", "t"], opset_version=17, dynamo=False)
    return file


def milliseconds(call: Call) -> float:
    call(), call()
    spent = []
    for _ in range(ROUNDS):
        began = time.process_time()
        call()
        spent.append(time.process_time() - began)
    return 1000 * min(spent)


def main(name: str) -> None:
    torch.set_num_threads(1)
    network = load_bundle(name).denoiser.network
    for batch in BATCHES:
        x, t = torch.randn(batch, network.in_channels, 64, 64), torch.full((batch,), 100)
        with TemporaryDirectory() as folder, torch.no_grad():
            for way, call in ways(network, x, t, Path(folder)):
                print(f"batch {batch}: {way}: {milliseconds(call) / batch:.2f} ms an image", flush=True)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    main(sys.argv[1])
