"""Muon: orthogonal steps for matrices, AdamW for the rest, and a run that goes on."""

from pathlib import Path

import pytest
import torch
from torch import nn

from fastdime.training.muon import FACTOR, Muon, is_large, orthogonal


@pytest.mark.parametrize("shape", [(20, 90), (90, 20), (32, 32)])
def test_steps_are_near_the_polar_factor(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    u, values, v = torch.linalg.svd(matrix, full_matrices=False)
    found = torch.linalg.svdvals(orthogonal(matrix))
    assert values.max() / values.min() > 1.5
    assert 0.6 < found.min() <= found.max() < 1.3
    cosine = (orthogonal(matrix) * (u @ v)).sum() / (orthogonal(matrix).norm() * (u @ v).norm())
    assert cosine > 0.97


def test_which_weights_are_large() -> None:
    assert is_large(torch.zeros(16, 2, 3, 3))
    assert not is_large(torch.zeros(16, 1, 3, 3))
    assert not is_large(torch.zeros(15, 64))
    assert not is_large(torch.zeros(64))


def test_the_rest_moves_as_with_adamw() -> None:
    ours, theirs = nn.Parameter(torch.ones(5)), nn.Parameter(torch.ones(5))
    kernel = nn.Parameter(torch.randn(16, 4, 3, 3, generator=torch.Generator().manual_seed(1)))
    optimizers = (
        Muon([ours, kernel], 0.1, weight_decay=0.5),
        torch.optim.AdamW([theirs], 0.1, weight_decay=0.5),
    )
    for step in range(3):
        before = kernel.detach().clone()
        for weight in (ours, theirs):
            weight.grad = torch.arange(5.0) - step
        kernel.grad = torch.randn(kernel.shape, generator=torch.Generator().manual_seed(step))
        for optimizer in optimizers:
            optimizer.step()
        move = before * (1 - 0.1 * 0.5) - kernel.detach()
        values = torch.linalg.svdvals(move.flatten(1)) / (0.1 * FACTOR)
        assert 0.6 < values.min() <= values.max() < 1.3
    assert torch.equal(ours, theirs)


def test_it_goes_on_from_its_state(tmp_path: Path) -> None:
    def run(steps: range, weight: nn.Parameter, optimizer: Muon) -> None:
        for step in steps:
            weight.grad = torch.randn(weight.shape, generator=torch.Generator().manual_seed(step))
            optimizer.step()

    whole = nn.Parameter(torch.zeros(16, 16))
    run(range(4), whole, Muon([whole], 0.01, weight_decay=0.1))
    part = nn.Parameter(torch.zeros(16, 16))
    first = Muon([part], 0.01, weight_decay=0.1)
    run(range(2), part, first)
    torch.save({"optimizer": first.state_dict(), "weight": part.detach()}, tmp_path / "state.pt")
    kept = torch.load(tmp_path / "state.pt", weights_only=True)
    again = nn.Parameter(kept["weight"])
    second = Muon([again], 0.01, weight_decay=0.1)
    second.load_state_dict(kept["optimizer"])
    run(range(2, 4), again, second)
    assert torch.equal(whole, again)
