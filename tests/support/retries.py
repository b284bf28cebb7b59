"""The published main program: batches, a ladder of strengths, 8-bit images, statistics."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fastdime.counterfactuals import ladder
from fastdime.counterfactuals.loop import Edit, guided
from fastdime.counterfactuals.problem import Problem
from fastdime.counterfactuals.settings import GuidedSettings
from fastdime.counterfactuals.targets import choose_target
from fastdime.noise import Key
from fastdime.pixels import to_integers
from fastdime.scores import probabilities
from fastdime.types import Counterfactuals
from support.recordings import (
    TOLERANCE,
    Recording,
    Replay,
    TinyClassifier,
    celeba_problem,
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


@dataclass
class Attempt:
    """One attempt of the ladder: rows of the batch, strength, result."""

    rows: Tensor
    scale: float
    edit: Edit


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
    settings = settings.model_copy(update={"scales": tuple(recording.array(f"{top}scales").tolist())})
    draws, calls = Draws(recording, place, tuple(x.shape[1:])), recorded_calls(recording, place)
    parts: list[Counterfactuals] = []
    for rows in torch.arange(len(x)).split(size):
        mine = [call for call in calls if call.rows[0] in rows]
        parts.append(check_batch(recording, x[rows], settings, take_all(draws, settings, orders, mine), mine))
    assert not draws.draws
    final = x.clone()
    for call in calls:
        final[call.rows] = call.output
    check_images(recording, place, x, final, parts)
    check_statistics(recording, place, parts, recording.tensor(f"{top}label"))


def take_all(draws: Draws, settings: GuidedSettings, orders: Orders, calls: list[Call]) -> Replay:
    """The draws of a batch: one start for all, then those of every attempt."""
    table = draws.take([("start",)])
    for attempt in range(len(calls) // len(orders(settings, 0))):
        for order in orders(settings, attempt):
            table |= draws.take(order)
    return Replay(table)


@torch.no_grad()
def check_batch(
    recording: Recording, x: Tensor, settings: GuidedSettings, noise: Replay, calls: list[Call]
) -> Counterfactuals:
    first = calls[0].rows[0]  # the first call is on the whole batch
    before = probabilities(TinyClassifier(recording).logits(x, torch.zeros(len(x))))
    problem = celeba_problem(recording, x, choose_target("flip", before), noise)
    attempts: list[Attempt] = []
    result = ladder.climb(
        problem, settings, record=[0], inspect=lambda *seen: attempts.append(Attempt(*seen))
    )
    for number, attempt in enumerate(attempts):
        part = replace(problem.rows(attempt.rows), attempt=number)
        for output in outputs_of(part, settings, attempt):
            call = calls.pop(0)
            assert [row - first for row in call.rows] == attempt.rows.tolist()
            assert call.scale == attempt.scale
            close(output, call.output)
    assert not calls
    assert noise.left == thrown_away(noise.left)
    return result


def outputs_of(part: Problem, settings: GuidedSettings, attempt: Attempt) -> list[Tensor]:
    """What each sampler call of an attempt returned; the first of two is made again, alone."""
    if settings.second_pass == "none":
        return [attempt.edit.x_cf]
    alone = settings.model_copy(update={"second_pass": "none"})
    return [guided(part, alone, attempt.scale).x_cf, attempt.edit.x_cf]


def eight_bit(x: Tensor, *, truncate: bool = True) -> Tensor:
    return to_integers(x, truncate=truncate).permute(0, 2, 3, 1)


def joined(parts: list[Counterfactuals], name: str) -> Tensor:
    return torch.cat([getattr(part, name) for part in parts])


def check_images(
    recording: Recording, place: str, x: Tensor, final: Tensor, parts: list[Counterfactuals]
) -> None:
    """8-bit images; `final` are the floats that the published program made its images from."""
    levels = {name: recording.tensor(f"{place}/{name}_uint8").int() for name in ("orig", "cf", "noisy")}
    start = torch.cat([part.trajectory[0].x_t for part in parts])
    assert torch.equal(eight_bit(x), levels["orig"])
    assert torch.equal(eight_bit(start), levels["noisy"])
    assert torch.equal(eight_bit(final), levels["cf"])
    # The saved images are on the 8-bit grid already: rounding gives the integers back.
    saved = eight_bit(joined(parts, "x_cf"), truncate=False)
    apart = saved != levels["cf"]
    # Truncation is a decision too: a float that lies on a level to the tolerance may fall to either side.
    position = ((final + 1) * 127.5).permute(0, 2, 3, 1)[apart]
    assert ((position - position.round()).abs() < 127.5 * TOLERANCE).all()
    assert ((saved - levels["cf"]).abs() <= 1).all()


def check_statistics(recording: Recording, place: str, parts: list[Counterfactuals], label: Tensor) -> None:
    target, predicted, valid = (joined(parts, name) for name in ("target", "predicted", "valid"))
    assert torch.equal(target, recording.tensor(f"{place}/target"))
    assert torch.equal(predicted, recording.tensor(f"{place}/pred"))
    assert torch.equal(torch.where(valid, target, 1 - target), recording.tensor(f"{place}/pred_cf"))
    if f"{place}/label" in recording:
        assert torch.equal(label, recording.tensor(f"{place}/label"))
    for name, values in numbers_of(recording, place, parts).items():
        close(values, recording.tensor(f"{place}/{name}"))
        close(values.mean(), torch.tensor(recording.number(f"{place}/mean_{name}")))
        close(values[valid].mean(), torch.tensor(recording.number(f"{place}/mean_{name}_valid")))
    if f"{place}/cf_conf" in recording:
        close(class_one(joined(parts, "p_after"), target), recording.tensor(f"{place}/cf_conf"))
        close(class_one(joined(parts, "p_before"), target), recording.tensor(f"{place}/orig_conf"))
    assert abs(valid.float().mean().item() - recording.number(f"{place}/FR")) < 1e-6
    accuracy = 100 * (predicted == label).float().mean().item()
    assert abs(accuracy - recording.number(f"{place}/clean_acc_percent")) < 1e-4


def numbers_of(recording: Recording, place: str, parts: list[Counterfactuals]) -> dict[str, Tensor]:
    """The numbers of each image that the program averages."""
    saved = eight_bit(joined(parts, "x_cf"), truncate=False)
    change = (saved - recording.tensor(f"{place}/orig_uint8").int()).abs().float()
    numbers = {"bkl": 1 - joined(parts, "p_after"), "l_1": change.mean((1, 2, 3)) / 255}
    if f"{place}/mad" in recording:
        numbers["mad"] = (joined(parts, "p_after") - joined(parts, "p_before")).abs()
    return numbers


def class_one(p_target: Tensor, target: Tensor) -> Tensor:
    """The published confidence is the probability of class 1."""
    return torch.where(target == 1, p_target, 1 - p_target)
