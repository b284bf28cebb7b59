import tracemalloc

import numpy as np
import pytest

from fastdime.errors import InputError
from fastdime.metrics.bank import FeatureBank
from fastdime.metrics.frechet import fid
from fastdime.metrics.kernel import kid
from fastdime.metrics.realism import Spread, floor, sfid


def pairs(n: int, d: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return x, x + 0.1 * rng.normal(size=(n, d)) + 0.3


@pytest.mark.parametrize("n", [40, 41])
def test_sfid_is_the_mean_of_fid_across_halves(n: int) -> None:
    real, fake = pairs(n)
    valid = np.arange(n) % 3 > 0
    found = sfid(real, fake, valid, repeats=3, seed=5)
    rng = np.random.default_rng(5)
    for value in found.values:
        order = rng.permutation(n)
        one, other = order[-(n // 2) :], order[: n // 2]
        there = fid(real[one], fake[other[valid[other]]])
        back = fid(real[other], fake[one[valid[one]]])
        assert value == pytest.approx((there + back) / 2)
    assert found.mean == pytest.approx(np.mean(found.values))
    assert found.spread == pytest.approx(np.std(found.values, ddof=1))


def test_sfid_takes_away_the_gain_of_the_same_picture() -> None:
    real, fake = pairs(60)
    assert sfid(real, fake).mean > fid(real, fake)
    assert sfid(real, real).mean > 100 * abs(fid(real, real))


def test_sfid_is_seeded() -> None:
    real, fake = pairs(30)
    assert sfid(real, fake, seed=1) == sfid(real, fake, seed=1)
    assert sfid(real, fake, seed=1) != sfid(real, fake, seed=2)
    assert len(set(sfid(real, fake).values)) == 10


def test_a_half_without_valid_counterfactuals_has_no_sfid() -> None:
    real, fake = pairs(10)
    assert np.isnan(sfid(real, fake, np.arange(10) < 2).mean)
    assert np.isnan(sfid(real[:3], fake[:3]).mean)


def test_one_repetition_has_no_spread() -> None:
    assert np.isnan(Spread((1.0,)).spread)
    assert Spread((1.0, 3.0)).spread == pytest.approx(np.sqrt(2))


def test_floor_is_of_disjoint_sets_of_the_size_asked_for() -> None:
    real, _ = pairs(100)
    found = floor(real, 30, repeats=2, seed=4)
    order = np.random.default_rng(4).permutation(100)
    one, other = real[order[:30]], real[order[30:60]]
    assert found.size == 30
    assert found.fid.values[0] == pytest.approx(fid(one, other))
    assert found.kid.values[0] == pytest.approx(kid(one, other).value)
    assert found == floor(real, 30, repeats=2, seed=4)


def test_floor_takes_half_of_the_pictures_at_most() -> None:
    real, _ = pairs(21)
    assert floor(real, 500, repeats=1).size == 10
    assert np.isnan(floor(real[:3], 500, repeats=1).fid.mean)


def test_fewer_pictures_have_a_higher_floor_of_fid_but_not_of_kid() -> None:
    real, _ = pairs(400, d=20)
    few, many = floor(real, 25, repeats=20), floor(real, 200, repeats=20)
    assert few.fid.mean > 3 * many.fid.mean
    assert abs(few.kid.mean) < 3 * few.kid.spread / np.sqrt(20)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"repeats": 0}, "repeats: expected a number >= 1, got 0"),
        ({"valid": np.ones(9, dtype=bool)}, r"valid: expected true or false for each of 10 .*\(9,\)"),
        ({"valid": np.ones(10)}, "valid: expected true or false .* got float64"),
        ({"fake": np.zeros((9, 4))}, "fake features: expected 10 rows, one for each real picture, got 9"),
    ],
)
def test_bad_input_is_one_clear_line(changes: dict[str, object], sentence: str) -> None:
    real, fake = pairs(10)
    given: dict[str, object] = {"fake": fake, **changes}
    with pytest.raises(InputError, match=sentence):
        sfid(real, **given)  # type: ignore[arg-type]


def test_a_floor_needs_rows() -> None:
    with pytest.raises(InputError, match="n of the floor: expected a number >= 1, got 0"):
        floor(pairs(10)[0], 0)


def test_features_in_a_file_score_the_same() -> None:
    real, fake = (x.astype(np.float32) for x in pairs(50))
    with FeatureBank() as one, FeatureBank() as other:
        for bank, features in ((one, real), (other, fake)):
            for part in np.array_split(features, 7):
                bank.update(part)
        held = one.array(), other.array()
        assert fid(*held) == fid(real, fake)
        assert kid(*held, paired=True) == kid(real, fake, paired=True)
        assert sfid(*held) == sfid(real, fake)
        assert floor(held[0], 9) == floor(real, 9)


def test_memory_does_not_grow_with_the_rows() -> None:
    rng = np.random.default_rng(0)
    with FeatureBank() as bank:
        for _ in range(40):
            bank.update(rng.normal(size=(1000, 256)).astype(np.float32))
        features = bank.array()
        tracemalloc.start()
        try:
            fid(features, features)
            sfid(features, features, repeats=1)
            kid(features, features, paired=True, most=1000)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    # One float64 copy of all rows is 82 MB.
    assert peak < 30e6
