"""Train from a table of images to a folder that the rest of the library opens."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fastdime.classifiers.load import save_classifier
from fastdime.diffusion.folders import write_folder
from fastdime.training.classifying import Classifying
from fastdime.training.denoising import Denoising
from fastdime.training.loop import Note, Progress, Trainer
from fastdime.training.settings import TrainSettings
from fastdime.training.start import start_from


@dataclass(frozen=True)
class Trained:
    """What came of a training run.

    Attributes:
        folder: opens with load_denoiser or load_classifier.
        scores: of the weights that were kept, on the validation images.
        parameters: number of weights.
        leads: whether this process is the one that writes and speaks.
    """

    folder: Path
    step: int
    best_step: int
    images_seen: int
    hours: float
    scores: dict[str, float]
    parameters: int = 0
    processes: int = 1
    leads: bool = True


def train(
    task: Denoising | Classifying,
    settings: TrainSettings,
    out: Path,
    progress: Progress | None = None,
    *,
    note: Note | None = None,
    start: Path | None = None,
    device: str = "auto",
) -> Trained:
    """Train to the end, or go on where a run stopped, and write the best averaged weights.

    Args:
        progress, note: as for `Trainer.run`.
        start: folder or file with weights to begin with.
        device: "auto", "cpu", "cuda" or "mps".
    """
    began = None if start is None else start_from(task, start)
    trainer = Trainer(task, settings, out, start=began, device=device)
    end = trainer.run(progress, note)
    folder = out / ("denoiser" if isinstance(task, Denoising) else "classifier")
    scores = end.scores
    if trainer.leads:
        with torch.random.fork_rng():
            network = task.build()
        network.load_state_dict(_best(trainer))
        _write(task, network.eval(), folder)
        scores = task.validate(network.to(trainer.accelerator.device))
    trainer.accelerator.wait_for_everyone()
    world = trainer.accelerator.num_processes
    return Trained(
        folder,
        end.step,
        end.best_step,
        end.step * settings.batch_size * world,
        round(end.seconds / 3600, 3),
        scores,
        sum(weight.numel() for weight in trainer.network.parameters()),
        world,
        trainer.leads,
    )


def _best(trainer: Trainer) -> dict[str, Tensor]:
    assert trainer.best is not None, "the last update is always validated"
    return trainer.best


def _write(task: Denoising | Classifying, network: nn.Module, folder: Path) -> None:
    if folder.exists():  # of an earlier end of the same run
        shutil.rmtree(folder)
    if isinstance(task, Denoising):
        write_folder(task.denoiser(network), folder)
    else:
        save_classifier(folder, network, task.spec)


def card(trained: Trained, settings: TrainSettings, command: str) -> dict[str, Any]:
    """What a model card says about a training run."""
    return {
        "command": command,
        "seed": settings.seed,
        "parameters": trained.parameters,
        "updates": trained.step,
        "best_update": trained.best_step,
        "images_seen": trained.images_seen,
        "processes": trained.processes,
        "hours": trained.hours,
        "validation": trained.scores,
    }
