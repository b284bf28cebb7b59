"""What the library costs: the guided loop on top of its network calls, its memory, and training."""

import resource
import statistics
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from fastdime.classifiers.networks import small_cnn
from fastdime.classifiers.wrapper import ImageClassifier
from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.methods import settings_for
from fastdime.diffusion.denoiser import as_denoiser
from fastdime.training.denoising import Denoising
from fastdime.training.loop import Trainer
from fastdime.training.pictures import Pictures
from fastdime.training.settings import TrainSettings

BATCH, SIZE = 8, 64
SHORT, LONG = 20, 200  # steps between which memory is compared


def overhead(steps: int = 20, repeats: int = 5, *, memory: bool = True) -> dict[str, Any]:
    """Time FastDiME and its bare network calls in turn, in one process."""
    explainer, x = _subject(steps)
    network = explainer.denoiser.network
    assert isinstance(network, nn.Module)
    guided, bare = _guided(explainer, x), _bare(explainer, x, steps)
    guided(), bare()  # the first calls allocate
    rounds = [(_seconds(guided), _seconds(bare)) for _ in range(repeats)]
    ratio = statistics.median(ours / theirs for ours, theirs in rounds)
    result: dict[str, Any] = {
        "overhead": round(ratio, 4),
        "seconds_fastdime": round(statistics.median(ours for ours, _ in rounds), 4),
        "seconds_bare": round(statistics.median(theirs for _, theirs in rounds), 4),
        "parameters": sum(weight.numel() for weight in network.parameters()),
        "batch": BATCH,
        "steps": steps,
        "repeats": repeats,
    }
    if memory:
        short, long = peak_memory(SHORT), peak_memory(LONG)
        result |= {"peak_mb_short": short, "peak_mb_long": long, "memory_growth": round(long / short - 1, 4)}
    return result


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


def _guided(explainer: Explainer, x: Tensor) -> Callable[[], object]:
    return lambda: explainer(x)


def _bare(explainer: Explainer, x: Tensor, steps: int) -> Callable[[], object]:
    chain = explainer.denoiser.respaced(max(200, steps))

    def calls() -> None:
        for t in range(steps - 1, -1, -1):
            times = chain.times(t, x)
            with torch.no_grad():
                chain.network(x, times)
            leaf = x.clone().requires_grad_()
            torch.autograd.grad(explainer.classifier.logits(leaf, times).sum(), leaf)

    return calls


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def peak_memory(steps: int) -> float:
    """Run FastDiME in a process of its own; returns its peak memory in MB."""
    command = [sys.executable, "-m", "fastdime.experiments.bench", "--steps", str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


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
    unit = 1024**2 if sys.platform == "darwin" else 1024
    print(round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1))


if __name__ == "__main__":
    _report_peak()
