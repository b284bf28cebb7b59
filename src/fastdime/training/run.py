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
from fastdime.training.loop import Progress, Trainer
from fastdime.training.settings import TrainSettings


@dataclass(frozen=True)
class Trained:
    """What came of a training run; `folder` opens with load_denoiser or load_classifier."""

    folder: Path
    step: int
    best_step: int
    images_seen: int
    hours: float
    scores: dict[str, float]


def train(
    task: Denoising | Classifying, settings: TrainSettings, out: Path, progress: Progress | None = None
) -> Trained:
    """Train to the end, or go on where a run stopped, and write the best averaged weights."""
    trainer = Trainer(task, settings, out)
    end = trainer.run(progress)
    folder = out / ("denoiser" if isinstance(task, Denoising) else "classifier")
    if trainer.accelerator.is_main_process:
        network = task.build()
        network.load_state_dict(_best(trainer))
        _write(task, network.eval(), folder)
        with torch.no_grad():
            scores = task.validate(network)
    else:
        scores = end.scores
    world = trainer.accelerator.num_processes
    seen = end.step * settings.batch_size * world
    return Trained(folder, end.step, end.best_step, seen, round(end.seconds / 3600, 3), scores)


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
        "updates": trained.step,
        "best_update": trained.best_step,
        "images_seen": trained.images_seen,
        "hours": trained.hours,
        "validation": trained.scores,
    }
