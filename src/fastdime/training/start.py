"""Weights to begin with: of an earlier training, or of somebody else's."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from fastdime.classifiers.load import WEIGHTS_FILE
from fastdime.classifiers.spec import architecture
from fastdime.diffusion.checkpoints import load_denoiser
from fastdime.errors import CheckpointError, expected
from fastdime.training.classifying import Classifying
from fastdime.training.denoising import Denoising
from fastdime.weights import read_weights

MOST_FRESH = 3  # weights of another shape: a first convolution for other channels, and the head


@dataclass(frozen=True)
class Start:
    """Weights to begin with; those of the network that are not among them begin at random."""

    source: Path
    weights: dict[str, Tensor]


def start_from(task: Denoising | Classifying, source: Path) -> Start:
    """Read weights to begin with: those that fit.

    The first and the last layer may be of another shape (other channels, other classes); they then begin at
    random. Everything else must be there.

    Raises:
        CheckpointError: they are weights of another network.
    """
    if not source.exists():
        raise CheckpointError(expected(f"--from {source}", "a folder or file with weights", "nothing there"))
    found = _found(task, source)
    with torch.random.fork_rng():
        own = task.build().state_dict()
    counters = {name for name in own if name.endswith("num_batches_tracked")}
    missing = sorted(own.keys() - found.keys() - counters)
    fitting = {name: found[name] for name in own if name in found and found[name].shape == own[name].shape}
    fresh = sorted(own.keys() - fitting.keys() - counters)
    if missing or len(fresh) > MOST_FRESH:
        got = f"no {missing[0]}" if missing else f"{fresh[0]} of shape {tuple(found[fresh[0]].shape)}"
        wanted = "weights of the network that is to be trained"
        raise CheckpointError(expected(f"--from {source}", wanted, got, "choose the same architecture"))
    return Start(source, fitting)


def _found(task: Denoising | Classifying, source: Path) -> dict[str, Tensor]:
    inside = source / ("denoiser" if isinstance(task, Denoising) else "classifier")
    source = inside if inside.is_dir() else source
    if isinstance(task, Denoising):
        network = load_denoiser(source).network
        assert isinstance(network, nn.Module)
        return network.state_dict()
    assert task.spec.architecture is not None
    file = source / WEIGHTS_FILE if source.is_dir() else source
    return architecture(task.spec.architecture).rename(dict(read_weights(file)))
