from dataclasses import replace

import numpy as np
import pytest

from fastdime.audit.effects import Effects
from fastdime.audit.weighing import Rules
from fastdime.validation import reliability
from fastdime.validation.reliability import RESAMPLED, coverage, drawn, relies

N = 300
NAN = float("nan")


def effects(mean: float, off: float = 0.0, spread: float = 0.1, seed: int = 0) -> Effects:
    """Effects with a known mean; those of the exact counterfactuals are smaller by `off`."""
    moved = np.abs(mean + 0.3 + spread * np.random.default_rng(seed).standard_normal(N))
    nothing, has = np.full(N, NAN), np.arange(N) % 2 == 0
    before, placebo = np.full(N, 0.0), np.full(N, 0.3)
    return Effects(before, moved, before, moved, placebo, nothing, nothing, has, moved - off)


def test_intervals_hold_the_truth_where_there_is_no_error() -> None:
    told: list[tuple[float, int]] = []
    share = coverage([effects(0.1), effects(0.2, seed=1)], progress=lambda done, of: told.append((done, of)))
    assert 0.9 <= share <= 0.99
    assert told == [(1, 2), (2, 2)]


def test_intervals_miss_the_truth_by_a_large_error() -> None:
    assert coverage([effects(0.2, off=0.2)]) == 0
    assert coverage([effects(0.2), effects(0.2, off=0.2)]) == pytest.approx(0.5, abs=0.05)


def test_an_error_of_one_standard_error_is_missed_in_some_test_sets() -> None:
    share = coverage([effects(0.2, off=0.01)])  # 0.1 / sqrt(100 images)
    assert 0.7 <= share <= 0.93  # normal: 0.83


def test_images_without_truth_do_not_count() -> None:
    half = effects(0.2)
    truth = np.where(np.arange(N) < N // 2, half.truth, NAN)
    wild = np.where(np.arange(N) < N // 2, half.after, 5.0)
    assert coverage([replace(half, truth=truth, after=wild)]) >= 0.9


def test_strong_effects_are_found_and_none_are_not() -> None:
    rules = Rules()
    assert relies([effects(0.2)], 50, rules) == 1
    assert relies([effects(0.0, spread=0.2)], 100, rules) <= 0.1
    assert relies([effects(0.2), effects(-0.2)], 50, rules) == 0.5


def test_more_images_find_more() -> None:
    weak, rules = [effects(0.03, spread=0.12)], Rules(margin=0.01)
    assert relies(weak, 20, rules) < relies(weak, 100, rules)


def test_test_sets_are_drawn_with_replacement_and_by_the_seed() -> None:
    sets = drawn(np.arange(5), 8, 3)
    assert len(sets) == RESAMPLED
    assert {len(one) for one in sets} == {8}
    assert set(np.concatenate(sets)) == set(range(5))
    np.testing.assert_array_equal(sets, drawn(np.arange(5), 8, 3))
    assert not np.array_equal(sets, drawn(np.arange(5), 8, 4))


def test_a_seed_gives_the_same_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reliability, "RESAMPLED", 5)
    found = [effects(0.05, spread=0.3)]
    assert coverage(found, 4) == coverage(found, 4)
    assert relies(found, 20, Rules(seed=4)) == relies(found, 20, Rules(seed=4))
