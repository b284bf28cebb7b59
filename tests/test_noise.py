"""Noise depends on seed, id and key alone."""

import torch

from fastdime.noise import SeededNoise

LIKE = torch.zeros(2, 1, 50, 50)


def test_it_is_standard_normal() -> None:
    draw = SeededNoise(1, ["a", "b"]).draw(LIKE, "step", 3)
    assert draw.dtype == LIKE.dtype
    assert abs(draw.mean().item()) < 0.05
    assert abs(draw.std().item() - 1) < 0.05
    assert abs((draw[0] * draw[1]).mean().item()) < 0.05


def test_what_changes_a_draw_and_what_does_not() -> None:
    noise = SeededNoise(1, ["a", "b"])
    draw = noise.draw(LIKE, "step", 3)
    assert torch.equal(draw, noise.draw(LIKE, "step", 3))
    assert torch.equal(draw[1:], noise.rows(torch.tensor([1])).draw(LIKE[:1], "step", 3))
    assert torch.equal(draw, SeededNoise(1, ["a", "b"]).at("step").draw(LIKE, 3))
    others = [
        noise.draw(LIKE, "step", 4),
        noise.draw(LIKE, "paste", 3),
        noise.at("attempt", 1).draw(LIKE, "step", 3),
        SeededNoise(2, ["a", "b"]).draw(LIKE, "step", 3),
        SeededNoise(1, ["b", "a"]).draw(LIKE, "step", 3),
    ]
    assert all(not torch.equal(draw, other) for other in others)


def test_the_numbers_are_the_same_on_every_machine() -> None:
    draw = SeededNoise(0, ["image"]).draw(torch.zeros(1, 1, 1, 4), "start")
    assert [round(value, 5) for value in draw.flatten().tolist()] == [-0.09834, -0.20914, -1.23641, 0.43458]
