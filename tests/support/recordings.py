"""Recorded numbers of the published programs: files, tiny networks, and replay of their noise."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from fastdime.counterfactuals.problem import Problem
from fastdime.counterfactuals.settings import GuidedSettings
from fastdime.diffusion import schedule as sch
from fastdime.diffusion.denoiser import Denoiser
from fastdime.noise import Key, Noise

DIRECTORY = Path(os.environ.get("FASTDIME_REFERENCE", Path(__file__).parents[1] / "reference" / "data"))
TOLERANCE = 1e-4  # of images
DERIVED = 1e-3  # of logits and losses, which magnify the error of an image

# The published names of the methods.
METHODS = {
    "dime": "dime",
    "fastdime": "fastdime",
    "fastdime_nomask": "fastdime-nomask",
    "fastdime2": "fastdime-2",
    "fastdime2plus": "fastdime-2+",
    "gmd": "gmd",
    "gmd_nomask": "gmd-nomask",
}
NETWORK_ARRAYS = {f"den_{name}" for name in ("conv1_w", "conv1_b", "tvec", "conv2_w", "conv2_b", "T")}
NETWORK_ARRAYS |= {
    f"{kind}_{name}" for kind in ("clf", "tclf") for name in ("conv_w", "conv_b", "lin_w", "lin_b")
}
NETWORK_ARRAYS |= {"tclf_tvec", "feat_conv_w", "feat_conv_b"}


def close(actual: Tensor, recorded: Tensor, tolerance: float = TOLERANCE) -> None:
    """Absolute, and for large numbers (logits) relative, error below the tolerance; NaN equals NaN only."""
    torch.testing.assert_close(
        actual.double(), recorded.double(), atol=tolerance, rtol=tolerance / 10, equal_nan=True
    )


def known(names: list[str], pattern: str) -> None:
    """There are names, and each is one that the tests know how to run."""
    assert names
    assert not [name for name in names if not re.fullmatch(pattern, name)]


class Recording:
    """One file; remembers which arrays a test has looked at, so that none is skipped silently."""

    def __init__(self, name: str) -> None:
        with np.load(DIRECTORY / f"{name}.npz", allow_pickle=False) as file:
            self.arrays = {key: file[key] for key in file}
        self.seen: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self.arrays

    def array(self, key: str) -> np.ndarray:
        self.seen.add(key)
        return self.arrays[key]

    def tensor(self, key: str) -> Tensor:
        return torch.from_numpy(np.array(self.array(key)))

    def number(self, key: str) -> float:
        return self.array(key).item()

    def groups(self) -> list[str]:
        return list(dict.fromkeys(key.split("/")[0] for key in self.arrays if "/" in key))

    def unseen(self, prefix: str) -> set[str]:
        return {key for key in self.arrays if key.startswith(prefix)} - self.seen

    def left_over(self, known: str) -> set[str]:
        """Arrays outside the groups that are neither a weight nor one of the known (by name, with spaces)."""
        return {key for key in self.arrays if "/" not in key} - NETWORK_ARRAYS - set(known.split())


class TinyDenoiser(nn.Module):
    """conv, + time, swish, conv."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        for name in ("conv1_w", "conv1_b", "tvec", "conv2_w", "conv2_b"):
            self.register_parameter(name, nn.Parameter(recording.tensor(f"den_{name}")))
        self.length = recording.number("den_T")

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        share = (times.float() / self.length).view(-1, 1, 1, 1)
        a = conv2d(x, self.conv1_w, self.conv1_b, padding=1) + share * self.tvec.view(1, -1, 1, 1)
        return conv2d(a * a.sigmoid(), self.conv2_w, self.conv2_b, padding=1)


class TinyClassifier(nn.Module):
    """conv, (+ time), swish, mean, linear: one logit."""

    def __init__(self, recording: Recording, prefix: str = "clf_") -> None:
        super().__init__()
        for name in ("conv_w", "conv_b", "lin_w", "lin_b"):
            self.register_parameter(name, nn.Parameter(recording.tensor(prefix + name)))
        timed = f"{prefix}tvec" in recording
        self.tvec = nn.Parameter(recording.tensor(f"{prefix}tvec")) if timed else None

    def logits(self, x: Tensor, time: Tensor) -> Tensor:
        a = conv2d(x, self.conv_w, self.conv_b, padding=1)
        if self.tvec is not None:
            a = a + (time.float() / 1000).view(-1, 1, 1, 1) * self.tvec.view(1, -1, 1, 1)
        return (a * a.sigmoid()).mean((2, 3)) @ self.lin_w.T + self.lin_b


class TinyFeatures(nn.Module):
    """conv, relu on ImageNet-normalised images: stands where the truncated VGG does."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self.w = nn.Parameter(recording.tensor("feat_conv_w"))
        self.b = nn.Parameter(recording.tensor("feat_conv_b"))

    def forward(self, x: Tensor) -> Tensor:
        mean = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
        std = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)
        return conv2d(((x.clamp(-1, 1) + 1) / 2 - mean) / std, self.w, self.b, padding=1).relu()


def celeba_denoiser(recording: Recording) -> Denoiser:
    """The tiny denoiser on its full chain, with learned variance."""
    return Denoiser(TinyDenoiser(recording), sch.linear(int(recording.number("T"))), variance="learned_range")


def celeba_problem(recording: Recording, x: Tensor, target: Tensor, noise: Noise) -> Problem:
    """What every method of the CelebA program works on."""
    return Problem(
        x,
        target,
        celeba_denoiser(recording),
        TinyClassifier(recording),
        noise,
        features=TinyFeatures(recording),
    )


def logits_of(recording: Recording, image: Tensor) -> Tensor:
    return TinyClassifier(recording).logits(image, torch.zeros(len(image)))[:, 0]


def check_inputs(recording: Recording) -> None:
    """Prediction, target and levels, as the CelebA files hold them."""
    logits = logits_of(recording, recording.tensor("x0"))
    close(logits, recording.tensor("logits_x0"), DERIVED)
    assert torch.equal((logits > 0).long(), recording.tensor("pred"))
    assert torch.equal(1 - recording.tensor("pred"), recording.tensor("target"))
    kept = sch.respaced_indices(int(recording.number("T")), int(recording.number("respaced")))
    assert kept == recording.array("timestep_map").tolist()


@dataclass(frozen=True)
class Replay:
    """Recorded draws by key; a key that was not recorded fails the test."""

    draws: dict[Key, Tensor]
    key: Key = ()
    index: Tensor | None = None
    used: set[Key] = field(default_factory=set)

    def draw(self, like: Tensor, *key: str | int) -> Tensor:
        name = self.key + key
        name = name[-1:] if name[-1] == "start" and name not in self.draws else name
        self.used.add(name)
        draw = self.draws[name]
        if len(draw) != len(like):
            assert self.index is not None
            draw = draw[self.index]
        assert draw.shape == like.shape
        return draw

    def at(self, *key: str | int) -> Self:
        return replace(self, key=self.key + key)

    def rows(self, index: Tensor) -> Self:
        return replace(self, index=index)

    @property
    def left(self) -> set[Key]:
        return set(self.draws) - self.used


def replay(order: Iterable[Key], noise: Iterable[Tensor]) -> Replay:
    """Pair the documented order of draws with the recorded ones; both must have the same length."""
    return Replay(dict(zip(order, noise, strict=True)))


def guided_order(tau: int, masked: range, *, number: int = 1, attempt: int = 0) -> list[Key]:
    """CelebA program: step noise at every level (also at 0), then paste noise where a mask is applied."""
    order: list[Key] = []
    place = ("attempt", attempt, "pass", number)
    for t in range(tau - 1, -1, -1):
        order.append((*place, "step", t))
        if t in masked:
            order.append((*place, "paste", t))
    return order


def nested_order(tau: int, *, stochastic: bool = True, attempt: int = 0) -> list[Key]:
    """DiME: step noise, then the inner chain's noise for the next step (also at its level 0)."""
    order: list[Key] = []
    place = ("attempt", attempt, "pass", 1)
    for t in range(tau - 1, -1, -1):
        order.append((*place, "step", t))
        if stochastic:
            order += [(*place, "nested", t - 1, "step", s) for s in range(t - 1, -1, -1)]
    return order


def celeba_orders(settings: GuidedSettings, attempt: int = 0) -> list[list[Key]]:
    """The draws of each sampler call of one attempt, without the start."""
    if settings.gradient == "nested":
        return [nested_order(settings.tau, stochastic=settings.nested_noise, attempt=attempt)]
    masked = range(settings.mask_from + 1 if settings.mask == "difference" else 0)
    calls = [guided_order(settings.tau, masked, attempt=attempt)]
    if settings.second_pass == "fixed":
        calls.append(guided_order(settings.tau, range(settings.tau), number=2, attempt=attempt))
    return calls


def thrown_away(keys: set[Key]) -> set[Key]:
    """Draws that the CelebA program makes and multiplies by 0."""
    return {key for key in keys if key[-2:] == ("step", 0)}
