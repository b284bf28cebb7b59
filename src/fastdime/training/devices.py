"""Where a training runs: one device or many processes, and in which precision."""

import os

import torch
from accelerate import Accelerator

from fastdime.errors import InputError, expected, unknown

DEVICES = ("auto", "cpu", "cuda", "mps")


def accelerator_for(device: str, precision: str) -> Accelerator:
    """Return what runs the training; "auto" takes a GPU when there is one."""
    if device not in DEVICES:
        raise InputError(unknown("--device", device, DEVICES))
    found = _there()
    if device not in ("auto", "cpu", found):
        raise InputError(expected("--device", f"a device of this machine ({found})", repr(device)))
    on_cpu = device == "cpu" or found == "cpu"
    if precision == "fp16" and on_cpu:
        raise InputError(expected("precision", "no or bf16 on a CPU", "fp16", "use --set precision=no"))
    try:
        return Accelerator(mixed_precision=precision, cpu=on_cpu)
    except ValueError as error:
        if "already been initialized" not in str(error):
            raise
        wanted = "the device and precision of the first training in this process"
        raise InputError(
            expected("training", wanted, f"{device} and {precision}", "start another process")
        ) from None


def _there() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def processes() -> int:
    """Return how many processes torchrun started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Tell whether this process is the first of those that torchrun started."""
    return os.environ.get("RANK", "0") == "0"
