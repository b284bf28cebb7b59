"""The published main program: batches, a ladder of strengths, 8-bit images, statistics."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fastdime.counterfactuals import ladder
from fastdime.counterfactuals.loop import Edit
from fastdime.counterfactuals.problem import Problem
from fastdime.counterfactuals.settings import GuidedSettings
from fastdime.counterfactuals.targets import choose_target
from fastdime.noise import Key
from fastdime.pixels import to_integers
from fastdime.scores import probabilities
from fastdime.types import Counterfactuals, Meter
from support.recordings import (
    Recording,
    Replay,
    TinyClassifier,
    TinyFeatures,
    celeba_denoiser,
    close,
    thrown_away,
)

Orders = Callable[[GuidedSettings, int], list[list[Key]]]


@dataclass
class Call:
    """One call of the published sampler."""

    rows: list[int]
    scale: float
    output: Tensor


def recorded_calls(recording: Recording, place: str) -> list[Call]:
    sizes = recording.array(f"{place}/call_sizes").tolist()
    rows = recording.tensor(f"{place}/call_image_index").split(sizes)
    outputs = recording.tensor(f"{place}/call_output").split(sizes)
    scales = recording.array(f"{place}/call_scale").tolist()
    return [Call(r.tolist(), s, o) for r, s, o in zip(rows, scales, outputs, strict=True)]


class Draws:
    """All recorded draws of a run, taken one after the other."""

    def __init__(self, recording: Recording, place: str, shape: tuple[int, ...]) -> None:
        sizes = recording.array(f"{place}/noise_batch").tolist()
        pixels = torch.tensor(shape).prod().item()
        flat = recording.tensor(f"{place}/noise_flat").split([size * pixels for size in sizes])
        self.draws = [part.view(size, *shape) for part, size in zip(flat, sizes, strict=True)]

    def take(self, order: list[Key]) -> dict[Key, Tensor]:
        return {key: self.draws.pop(0) for key in order}


def check_retries(
    recording: Recording, place: str, settings: GuidedSettings, orders: Orders, top: str = ""
) -> None:
    """Run the ladder batch by batch and compare every recorded array.

    Args:
        orders: for an attempt, the order of draws of each of its sampler calls.
        top: prefix of the arrays that all methods of the file share.
    """
    x = recording.tensor(f"{top}x0")
    size = int(recording.number(f"{top}batch_size"))
    scales = tuple(recording.array(f"{top}scales").tolist())
    settings = settings.model_copy(update={"scales": scales})
    draws, calls = Draws(recording, place, tuple(x.shape[1:])), recorded_calls(recording, place)
    parts: list[Counterfactuals] = []
    starts: list[Tensor] = []
    for first in range(0, len(x), size):
        batch = list(range(first, min(first + size, len(x))))
        mine = [calls.pop(0) for _ in range(sum(call.rows[0] in batch for call in calls))]
        result, start = run_batch(recording, x[batch], settings, orders, draws, mine, first)
        parts.append(result)
        starts.append(start)
    assert not calls
    assert not draws.draws
    check_statistics(recording, place, x, parts, torch.cat(starts), recording.tensor(f"{top}label"))


@torch.no_grad()
def run_batch(
    recording: Recording,
    x: Tensor,
    settings: GuidedSettings,
    orders: Orders,
    draws: Draws,
    calls: list[Call],
    first: int,
) -> tuple[Counterfactuals, Tensor]:
    table = draws.take([("start",)])
    per_attempt = len(orders(settings, 0))
    for attempt in range(len(calls) // per_attempt):
        for order in orders(settings, attempt):
            table |= draws.take(order)
    noise = Replay(table)
    classifier = TinyClassifier(recording)
    target = choose_target("flip", probabilities(classifier.logits(x, torch.zeros(len(x)))))
    features, meter = TinyFeatures(recording), Meter()
    problem = Problem(
        x, target, celeba_denoiser(recording), classifier, noise, features=features, meter=meter
    )
    attempts: list[tuple[list[int], float, Edit]] = []
    result = ladder.climb(
        problem, settings, record=[0], inspect=lambda r, s, e: attempts.append((r.tolist(), s, e))
    )
    assert noise.left == thrown_away(noise.left)
    last_calls = calls[per_attempt - 1 :: per_attempt]
    assert [rows for rows, _, _ in attempts] == [[row - first for row in call.rows] for call in last_calls]
    assert [scale for _, scale, _ in attempts] == [call.scale for call in last_calls]
    for (_, _, edit), call in zip(attempts, last_calls, strict=True):
        close(edit.x_cf, call.output)
    return result, result.trajectory[0].x_t


def eight_bit(x: Tensor) -> Tensor:
    return to_integers(x, truncate=True).to(torch.uint8).permute(0, 2, 3, 1)


def check_statistics(
    recording: Recording, place: str, x: Tensor, parts: list[Counterfactuals], starts: Tensor, label: Tensor
) -> None:
    def joined(name: str) -> Tensor:
        return torch.cat([getattr(part, name) for part in parts])

    target, predicted, valid = joined("target"), joined("predicted"), joined("valid")
    # The saved images are on the 8-bit grid already: rounding gives the integers back.
    saved = to_integers(joined("x_cf")).to(torch.uint8).permute(0, 2, 3, 1)
    original = recording.tensor(f"{place}/orig_uint8")
    assert torch.equal(saved, recording.tensor(f"{place}/cf_uint8"))
    assert torch.equal(eight_bit(x), original)
    assert torch.equal(eight_bit(starts), recording.tensor(f"{place}/noisy_uint8"))
    assert torch.equal(target, recording.tensor(f"{place}/target"))
    assert torch.equal(predicted, recording.tensor(f"{place}/pred"))
    assert torch.equal(torch.where(valid, target, 1 - target), recording.tensor(f"{place}/pred_cf"))
    if f"{place}/label" in recording:
        assert torch.equal(label, recording.tensor(f"{place}/label"))
    numbers = {
        "bkl": 1 - joined("p_after"),
        "l_1": (saved.float() - original.float()).abs().mean((1, 2, 3)) / 255,
    }
    if f"{place}/mad" in recording:
        numbers["mad"] = (joined("p_after") - joined("p_before")).abs()
        numbers["cf_conf"] = recorded_confidence(joined("p_after"), target)
        numbers["orig_conf"] = recorded_confidence(joined("p_before"), target)
    for name, values in numbers.items():
        close(values, recording.tensor(f"{place}/{name}"))
        if name not in ("cf_conf", "orig_conf"):
            close(values.mean(), torch.tensor(recording.number(f"{place}/mean_{name}")))
            close(values[valid].mean(), torch.tensor(recording.number(f"{place}/mean_{name}_valid")))
    assert abs(valid.float().mean().item() - recording.number(f"{place}/FR")) < 1e-6
    accuracy = 100 * (predicted == label).float().mean().item()
    assert abs(accuracy - recording.number(f"{place}/clean_acc_percent")) < 1e-4


def recorded_confidence(p_target: Tensor, target: Tensor) -> Tensor:
    """The published confidence is the probability of class 1."""
    return torch.where(target == 1, p_target, 1 - p_target)
