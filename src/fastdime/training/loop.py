"""The one training loop. Everything random depends on (seed, update), so a killed run goes on exactly."""

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from diffusers.training_utils import EMAModel
from torch import Tensor, nn

from fastdime.data.io import write_image
from fastdime.errors import CheckpointError, InputError, expected
from fastdime.training.devices import accelerator_for
from fastdime.training.journal import Journal, settle
from fastdime.training.muon import Muon
from fastdime.training.order import batch_rows, generator
from fastdime.training.settings import FREE, TrainSettings
from fastdime.training.start import Start
from fastdime.weights import weights_hash

CHECKPOINT, SAMPLES = "checkpoint.pt", "samples"
KEPT = (CHECKPOINT, "denoiser", "classifier")  # a folder without any of these has nothing to lose
OPTIMIZERS = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "muon": Muon}
Progress = Callable[[float, int], None]
Note = Callable[[str], None]


class Task(Protocol):
    """What is learned."""

    @property
    def images(self) -> int:
        """How many images there are to learn from."""

    def describe(self) -> dict[str, Any]:
        """What is written down about the task; a run goes on only with the same."""

    def build(self) -> nn.Module:
        """Make the network, with weights from the global random numbers."""

    def draw(self, rows: Tensor, random: torch.Generator) -> tuple[Tensor, ...]:
        """Make the batch of an update, with all that is random about it; row i of each belongs to image i."""

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        """Loss of each image of a batch, or of a part of it."""

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Scores on images that are not trained on; the lowest `loss` wins."""

    def picture(self, model: nn.Module) -> Tensor:
        """One image (c, h, w) that shows a person how far it is."""


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

    def ended(self, steps: int) -> bool:
        """Tell whether there is nothing left to do."""
        return self.stopped or self.step >= steps


class Trainer:
    """One training run in one folder.

    Args:
        start: weights to begin with, instead of random ones.
        device: "auto", "cpu", "cuda" or "mps".
    """

    def __init__(
        self,
        task: Task,
        settings: TrainSettings,
        out: Path,
        *,
        start: Start | None = None,
        device: str = "auto",
    ) -> None:
        """Make the network and go on from the checkpoint, if there is one."""
        self.task, self.settings, self.out = task, settings, out
        self.accelerator: Accelerator = accelerator_for(device, settings.precision)
        self.state, self.last_loss = Progressed(), math.nan
        self.journal: Journal | None = None
        self.best: dict[str, Tensor] | None = None
        with torch.random.fork_rng():
            torch.manual_seed(settings.seed)
            model = task.build()
        if start is not None:
            model.load_state_dict(start.weights, strict=False)
        self.ema = EMAModel(model.parameters(), decay=settings.ema)
        optimizer = OPTIMIZERS[settings.optimizer](
            model.parameters(), settings.learning_rate, weight_decay=settings.weight_decay
        )
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        self.ema.to(self.accelerator.device)
        self._settle(start)
        if (out / CHECKPOINT).is_file():
            self._load()
        self.accelerator.wait_for_everyone()

    @property
    def network(self) -> nn.Module:
        """The network itself, without what accelerate wraps around it."""
        network: nn.Module = self.accelerator.unwrap_model(self.model)
        return network

    @property
    def leads(self) -> bool:
        """Whether this process is the one that writes."""
        return bool(self.accelerator.is_main_process)

    def run(self, progress: Progress | None = None, note: Note | None = None) -> Progressed:
        """Train to the end, or as long as it may; returns where it ended. The best weights are in `best`.

        Args:
            progress: called with (updates done, updates).
            note: called with a word on how it goes, before `progress`.
        """
        if self._over():
            return self.state
        saved = began = time.monotonic()
        before = self.state.seconds
        self.journal = Journal(self.out, self.state.step) if self.leads else None
        while not self._over():
            self.update()
            self.state.seconds = before + time.monotonic() - began
            self._look()
            if time.monotonic() - saved > self.settings.checkpoint_seconds:
                self._save()
                saved = time.monotonic()
            if self.leads:
                self._report(progress, note)
        self._save()
        if self.journal is not None:
            self.journal.close()
        self.accelerator.wait_for_everyone()
        return self.state

    def _over(self) -> bool:
        """Tell whether there is nothing left to do, or no time; that is asked after a validation."""
        validated = self.best is not None and self.state.step % self.settings.validate_every == 0
        return self.state.ended(self.settings.steps) or (validated and self._late())

    def _late(self) -> bool:
        """Tell whether it has trained as long as it may, as the clock of the leading process says."""
        if self.settings.hours is None:
            return False
        seconds: float = broadcast_object_list([self.state.seconds])[0]
        return seconds >= 3600 * self.settings.hours

    def update(self) -> None:
        """Draw a batch and improve the weights once."""
        step, world = self.state.step, self.accelerator.num_processes
        rows = batch_rows(self.task.images, self.settings.batch_size * world, step, self.settings.seed)
        rate = self.rate(step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.model.train()
        with torch.random.fork_rng(), self.accelerator.autocast():
            place = self.accelerator.process_index
            torch.manual_seed(generator(self.settings.seed, step, place).initial_seed())  # dropout
            # Every process draws the whole batch and takes its part: so their number does not matter.
            batch = self.task.draw(rows, generator(self.settings.seed, step, 0))
            mine = [part.chunk(world)[place] for part in batch]
            loss = self._loss(mine)
        self.accelerator.backward(loss)
        clip = math.inf if self.settings.clip is None else self.settings.clip
        norm = self.accelerator.clip_grad_norm_(self.model.parameters(), clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.ema.step(self.network.parameters())
        self.state.step += 1
        self.last_loss = float(self.accelerator.reduce(loss.detach(), "mean"))
        self._check("loss", self.last_loss)
        if self.state.step % self.settings.log_every == 0:
            self._log({"loss": self.last_loss, "rate": rate, "norm": float(norm)})

    def _loss(self, batch: list[Tensor]) -> Tensor:
        try:
            return self.task.loss(self.model, *batch).mean()
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):  # what batch normalization needs
                raise
            wanted, got = "2 or more, for this architecture and size of image", self.settings.batch_size
            raise InputError(expected("--batch-size", wanted, got)) from error

    def _check(self, what: str, value: float) -> None:
        if not math.isfinite(value):
            got = f"{value} at update {self.state.step}"
            raise InputError(expected(what, "a finite number", got, "try a lower --learning-rate"))

    def rate(self, step: int) -> float:
        """Learning rate: a straight warm-up, then half a cosine."""
        settings = self.settings
        if step < settings.warmup:
            return settings.learning_rate * (step + 1) / settings.warmup
        share = (step - settings.warmup) / max(1, settings.steps - settings.warmup)
        fall = 0.5 * (1 + math.cos(math.pi * share))
        return settings.learning_rate * (settings.decay_to + (1 - settings.decay_to) * fall)

    def _look(self) -> None:
        """Validate and draw when it is time, with the averaged weights."""
        step, settings = self.state.step, self.settings
        last = step == settings.steps
        validate = step % settings.validate_every == 0 or last
        draw = last or step % (settings.sample_every or settings.validate_every) == 0
        if not validate and not draw:
            return
        network = self.network
        self.ema.store(network.parameters())
        self.ema.copy_to(network.parameters())
        network.eval()
        if validate:
            self._validate(network)
        if draw and self.leads:
            self._draw(network)
        self.ema.restore(network.parameters())

    def _validate(self, network: nn.Module) -> None:
        found = [self.task.validate(network) if self.leads else {}]
        scores = broadcast_object_list(found)[0]  # all processes must stop at the same update
        self._check("validation loss", scores["loss"])
        self.state.scores = scores
        self._log({f"valid_{name}": value for name, value in scores.items()})
        if scores["loss"] < self.state.best:
            self.state.best, self.state.best_step, self.state.waited = scores["loss"], self.state.step, 0
            self.best = {name: value.detach().cpu().clone() for name, value in network.state_dict().items()}
        else:
            self.state.waited += 1
            self.state.stopped = (
                self.settings.patience is not None and self.state.waited >= self.settings.patience
            )

    def _draw(self, network: nn.Module) -> None:
        folder = self.out / SAMPLES
        folder.mkdir(exist_ok=True)
        picture = self.task.picture(network)
        self._check("picture", float(picture.sum()))
        write_image(folder / f"{self.state.step:07d}.png", picture)

    def _report(self, progress: Progress | None, note: Note | None) -> None:
        if note is not None and self.state.step % self.settings.log_every == 0:
            best = f", best validation {self.state.best:.4g}" if self.state.best < math.inf else ""
            note(f"loss {self.last_loss:.4g}{best}")
        if progress is not None:
            progress(self.state.step, self.settings.steps)

    def _log(self, numbers: Mapping[str, float]) -> None:
        if self.journal is not None:
            self.journal.write(self.state.step, numbers)

    def _settle(self, start: Start | None) -> None:
        usual = TrainSettings().model_dump(mode="json", exclude=FREE)
        config: dict[str, Any] = {
            "task": self.task.describe(),
            "settings": self.settings.model_dump(mode="json", exclude=FREE),
            "processes": self.accelerator.num_processes,
        }
        if start is not None:
            config |= {"start": str(start.source), "start_weights": weights_hash(start.weights)}
        begun = any((self.out / name).exists() for name in KEPT)
        settle(self.out, config, {"settings": usual}, write=self.leads, begun=begun)

    def _save(self) -> None:
        if not self.leads:
            return
        if self.journal is not None:
            self.journal.flush()
        content = {
            "model": self.network.state_dict(),
            "ema": self.ema.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "best": self.best,
            "state": vars(self.state),
        }
        if self.accelerator.scaler is not None:  # of fp16
            content["scaler"] = self.accelerator.scaler.state_dict()
        partial = self.out / f".{CHECKPOINT}"
        torch.save(content, partial)
        os.replace(partial, self.out / CHECKPOINT)

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
        if self.accelerator.scaler is not None and "scaler" in content:
            self.accelerator.scaler.load_state_dict(content["scaler"])
        self.best, self.state = content["best"], Progressed(**content["state"])
