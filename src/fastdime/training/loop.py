"""The one training loop. Everything random depends on (seed, update), so a killed run goes on exactly."""

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from accelerate import Accelerator
from diffusers.training_utils import EMAModel
from torch import Tensor, nn

from fastdime.errors import CheckpointError, InputError, expected
from fastdime.training.order import batch_rows, generator
from fastdime.training.settings import TrainSettings

CHECKPOINT, LOG, CONFIG = "checkpoint.pt", "log.jsonl", "config.json"
Progress = Callable[[float, int], None]


class Task(Protocol):
    """What is learned."""

    @property
    def images(self) -> int:
        """How many images there are to learn from."""

    def describe(self) -> dict[str, Any]:
        """What is written down about the task; a run goes on only with the same."""

    def build(self) -> nn.Module:
        """Make the network, with weights from the global random numbers."""

    def loss(self, model: nn.Module, rows: Tensor, random: torch.Generator) -> Tensor:
        """Loss of each image of a batch."""

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Scores on images that are not trained on; the lowest `loss` wins."""


@dataclass
class Progressed:
    """What a checkpoint holds besides weights."""

    step: int = 0
    best: float = math.inf
    best_step: int = 0
    waited: int = 0
    stopped: bool = False
    seconds: float = 0.0
    scores: dict[str, float] = field(default_factory=dict)


class Trainer:
    """One training run in one folder."""

    def __init__(self, task: Task, settings: TrainSettings, out: Path) -> None:
        """Make the network and go on from the checkpoint, if there is one."""
        self.task, self.settings, self.out = task, settings, out
        self.accelerator = Accelerator(mixed_precision=settings.precision)
        self.state = Progressed()
        with torch.random.fork_rng():
            torch.manual_seed(settings.seed)
            model = task.build()
        self.ema = EMAModel(model.parameters(), decay=settings.ema)
        self.best: dict[str, Tensor] | None = None
        optimizer = torch.optim.AdamW(
            model.parameters(), settings.learning_rate, weight_decay=settings.weight_decay
        )
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        self.ema.to(self.accelerator.device)
        self._settle_config()
        if (out / CHECKPOINT).is_file():
            self._load()

    @property
    def network(self) -> nn.Module:
        """The network itself, without what accelerate wraps around it."""
        network: nn.Module = self.accelerator.unwrap_model(self.model)
        return network

    def run(self, progress: Progress | None = None) -> Progressed:
        """Train to the end; returns where it ended. The best averaged weights are in `best`."""
        saved = began = time.monotonic()
        before = self.state.seconds
        while self.state.step < self.settings.steps and not self.state.stopped:
            self._update()
            self.state.seconds = before + time.monotonic() - began
            if self.state.step % self.settings.validate_every == 0 or self.state.step == self.settings.steps:
                self._validate()
            if time.monotonic() - saved > self.settings.checkpoint_seconds:
                self._save()
                saved = time.monotonic()
            if progress is not None:
                progress(self.state.step, self.settings.steps)
        self._save()
        return self.state

    def _update(self) -> None:
        step, world = self.state.step, self.accelerator.num_processes
        rows = batch_rows(self.task.images, self.settings.batch_size * world, step, self.settings.seed)
        rate = self.rate(step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.model.train()
        mine = rows.chunk(world)[self.accelerator.process_index]
        random = generator(self.settings.seed, step, self.accelerator.process_index)
        with torch.random.fork_rng(), self.accelerator.autocast():
            torch.manual_seed(random.initial_seed())  # dropout
            loss = self.task.loss(self.model, mine, random).mean()
        self.accelerator.backward(loss)
        norm = self.accelerator.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.ema.step(self.network.parameters())
        self.state.step += 1
        if self.state.step % self.settings.log_every == 0:
            mean = self.accelerator.reduce(loss.detach(), "mean")
            self._log({"step": self.state.step, "loss": float(mean), "rate": rate, "norm": float(norm)})

    def rate(self, step: int) -> float:
        """Learning rate: a straight warm-up, then half a cosine."""
        settings = self.settings
        if step < settings.warmup:
            return settings.learning_rate * (step + 1) / settings.warmup
        share = (step - settings.warmup) / max(1, settings.steps - settings.warmup)
        fall = 0.5 * (1 + math.cos(math.pi * share))
        return settings.learning_rate * (settings.decay_to + (1 - settings.decay_to) * fall)

    def _validate(self) -> None:
        network = self.network
        self.ema.store(network.parameters())
        self.ema.copy_to(network.parameters())
        network.eval()
        with torch.no_grad():
            scores = self.task.validate(network)
        self.state.scores = scores
        self._log({"step": self.state.step, **{f"valid_{name}": value for name, value in scores.items()}})
        if scores["loss"] < self.state.best:
            self.state.best, self.state.best_step, self.state.waited = scores["loss"], self.state.step, 0
            self.best = {name: value.detach().cpu().clone() for name, value in network.state_dict().items()}
        else:
            self.state.waited += 1
            self.state.stopped = (
                self.settings.patience is not None and self.state.waited >= self.settings.patience
            )
        self.ema.restore(network.parameters())

    def _settle_config(self) -> None:
        config = {"task": self.task.describe(), "settings": self.settings.model_dump(mode="json")}
        config["settings"].pop("checkpoint_seconds")
        config["processes"] = self.accelerator.num_processes
        path = self.out / CONFIG
        if path.is_file():
            old = json.loads(path.read_text(encoding="utf8"))
            changed = [name for name in _flat(config) if _flat(config)[name] != _flat(old).get(name)]
            if changed:
                name = changed[0]
                got = f"{name} = {_flat(config)[name]!r}, where the run has {_flat(old).get(name)!r}"
                raise InputError(
                    expected(str(self.out), "the settings it was begun with", got, "choose another --out")
                )
        elif self.accelerator.is_main_process:
            self.out.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf8")
        self.accelerator.wait_for_everyone()

    def _save(self) -> None:
        if self.accelerator.is_main_process:
            content = {
                "model": self.network.state_dict(),
                "ema": self.ema.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "best": self.best,
                "state": vars(self.state),
            }
            partial = self.out / f".{CHECKPOINT}"
            torch.save(content, partial)
            os.replace(partial, self.out / CHECKPOINT)
        self.accelerator.wait_for_everyone()

    def _load(self) -> None:
        path = self.out / CHECKPOINT
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            raise CheckpointError(
                expected(str(path), "a checkpoint of this run", type(error).__name__)
            ) from error
        self.network.load_state_dict(content["model"])
        self.optimizer.load_state_dict(content["optimizer"])
        self.ema.load_state_dict(content["ema"])
        self.ema.to(self.accelerator.device)
        self.best, self.state = content["best"], Progressed(**content["state"])
        self._cut_log()

    def _log(self, entry: Mapping[str, Any]) -> None:
        if self.accelerator.is_main_process:
            with (self.out / LOG).open("a", encoding="utf8") as file:
                file.write(json.dumps(entry) + "\n")

    def _cut_log(self) -> None:
        """Forget what was logged after the checkpoint: it is done again."""
        path = self.out / LOG
        if not self.accelerator.is_main_process or not path.is_file():
            return
        lines = [line for line in path.read_text(encoding="utf8").splitlines() if line.endswith("}")]
        kept = [line for line in lines if json.loads(line)["step"] <= self.state.step]
        path.write_text("".join(f"{line}\n" for line in kept), encoding="utf8")


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {name: value}
    parts = [_flat(part, f"{name}.{key}" if name else str(key)) for key, part in value.items()]
    return {key: leaf for part in parts for key, leaf in part.items()}
