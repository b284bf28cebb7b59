"""What the library costs: the guided loop on top of its network calls, its memory, and training."""

import statistics
import time
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fastdime.classifiers.networks import small_cnn
from fastdime.classifiers.wrapper import ImageClassifier
from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.methods import settings_for
from fastdime.diffusion.denoiser import as_denoiser
from fastdime.experiments.memory import own_peak, peak_of
from fastdime.training.denoising import Denoising
from fastdime.training.loop import Trainer
from fastdime.training.pictures import Pictures
from fastdime.training.settings import TrainSettings
from fastdime.types import Classifier

BATCH, SIZE = 8, 64
SHORT, LONG = 20, 200  # steps between which memory is compared
Call = Literal["denoiser", "gradient", "look"]  # the last: the classifier without a gradient


def overhead(steps: int = 20, repeats: int = 5, *, memory: bool = True) -> dict[str, Any]:
    """Time FastDiME and turbo, and their bare network calls, in turn, in one process."""
    fastdime, x = _subject(steps)
    network = fastdime.denoiser.network
    assert isinstance(network, nn.Module)
    turbo = replace(fastdime, settings=settings_for("turbo", scales=[1.0]))
    (ratio, ours, bare), (ratio_turbo, ours_turbo, bare_turbo) = (
        _against_bare(explainer, x, repeats) for explainer in (fastdime, turbo)
    )
    result: dict[str, Any] = {
        "overhead": ratio,
        "seconds_fastdime": ours,
        "seconds_bare": bare,
        "overhead_turbo": ratio_turbo,
        "seconds_turbo": ours_turbo,
        "seconds_bare_turbo": bare_turbo,
        "parameters": sum(weight.numel() for weight in network.parameters()),
        "batch": BATCH,
        "steps": steps,
        "repeats": repeats,
    }
    if memory:
        short, long = peak_memory(SHORT), peak_memory(LONG)
        result |= {"peak_mb_short": short, "peak_mb_long": long, "memory_growth": round(long / short - 1, 4)}
    return result


def _against_bare(explainer: Explainer, x: Tensor, repeats: int) -> tuple[float, float, float]:
    """Return the time of a method over that of its bare calls, and both times; medians of all rounds."""
    tape = Tape.of(explainer, x)
    ours, bare = partial(explainer, x), partial(tape.replay, explainer, x)
    ours(), bare()  # the first calls allocate
    rounds = [(_seconds(ours), _seconds(bare)) for _ in range(repeats)]
    ratios = [one / other for one, other in rounds]
    ratio, *seconds = (round(statistics.median(values), 4) for values in (ratios, *zip(*rounds, strict=True)))
    return ratio, seconds[0], seconds[1]


@dataclass(frozen=True)
class Tape:
    """Every call of the networks that a method made, in order, and the times it was told: one an image."""

    calls: list[tuple[Call, Tensor]] = field(default_factory=list)

    @classmethod
    def of(cls, explainer: Explainer, x: Tensor) -> "Tape":
        """Run a method once and take down its calls."""
        tape = cls()

        def network(x_t: Tensor, times: Tensor) -> Any:
            tape.calls.append(("denoiser", times))
            return explainer.denoiser.network(x_t, times)

        denoiser = replace(explainer.denoiser, network=network)
        replace(explainer, denoiser=denoiser, classifier=_Listener(explainer.classifier, tape))(x)
        return tape

    def images(self, kind: Call) -> int:
        """Count the images of all calls of one kind."""
        return sum(len(times) for call, times in self.calls if call == kind)

    def replay(self, explainer: Explainer, x: Tensor) -> None:
        """Make the same calls, with batches of the same sizes, and nothing else."""
        for kind, times in self.calls:
            part = x[: len(times)]
            if kind == "gradient":
                leaf = part.clone().requires_grad_()
                torch.autograd.grad(explainer.classifier.logits(leaf, times).sum(), leaf)
            else:
                call = explainer.denoiser.network if kind == "denoiser" else explainer.classifier.logits
                with torch.no_grad():
                    call(part, times)


@dataclass(frozen=True)
class _Listener:
    """A classifier that takes down when it is asked, and whether a gradient is wanted."""

    classifier: Classifier
    tape: Tape

    def logits(self, x: Tensor, time: Tensor) -> Tensor:
        self.tape.calls.append(("gradient" if x.requires_grad else "look", time))
        return self.classifier.logits(x, time)


def _subject(steps: int) -> tuple[Explainer, Tensor]:
    """Make a U-Net of about two million parameters and a small classifier, with fixed random weights."""
    from diffusers import UNet2DModel

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        unet = UNet2DModel(
            sample_size=SIZE,
            in_channels=1,
            out_channels=1,
            block_out_channels=(32, 48, 64, 64),
            down_block_types=("DownBlock2D", "DownBlock2D", "DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D", "UpBlock2D", "UpBlock2D"),
            norm_num_groups=16,
        )
        network = small_cnn(1, 1)
        x = torch.rand(BATCH, 1, SIZE, SIZE) * 2 - 1
    # One strength, so that every run has the same steps whether the target is reached or not.
    settings = settings_for("fastdime", tau=steps, steps=max(200, steps), scales=[8.0])
    return Explainer(as_denoiser(unet.eval()), ImageClassifier(network.eval()), settings), x


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def peak_memory(steps: int) -> float:
    """Run FastDiME in a process of its own; returns its peak memory in MB."""
    return peak_of("fastdime.experiments.bench", "--steps", str(steps))


def training_speed(seconds: float = 20) -> dict[str, Any]:
    """Train the default denoiser on made-up images for a while; returns images a second."""
    random = torch.Generator().manual_seed(0)
    levels = torch.randint(256, (512, 1, SIZE, SIZE), generator=random, dtype=torch.uint8)
    pictures = Pictures(levels, 8, torch.zeros(len(levels)))
    with TemporaryDirectory() as folder:
        trainer = Trainer(Denoising(pictures, pictures), TrainSettings(), Path(folder))
        trainer.update()  # the first one allocates
        began, worked, updates = time.perf_counter(), time.process_time(), 0
        while (spent := time.perf_counter() - began) < seconds:
            trainer.update()
            updates += 1
    images, threads = updates * trainer.settings.batch_size, torch.get_num_threads()
    return {
        "images_per_second": round(images / spent, 2),
        "images_per_second_per_core": round(images / spent / threads, 2),
        # Seconds that this process had a core: near the line above on an idle machine, higher on a busy one.
        "images_per_cpu_second": round(images / (time.process_time() - worked), 2),
        "parameters": sum(weight.numel() for weight in trainer.network.parameters()),
        "threads": threads,
        "seconds": round(spent, 2),
    }


def _report_peak() -> None:
    parser = ArgumentParser(description="Run FastDiME once and print the peak memory of the process in MB.")
    parser.add_argument("--steps", type=int, required=True)
    explainer, x = _subject(parser.parse_args().steps)
    explainer(x)
    print(own_peak())


if __name__ == "__main__":
    _report_peak()
