from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fastdime.errors import InputError
from fastdime.metrics import kernel
from fastdime.metrics.kernel import KernelDistance, kid

Draw = tuple[np.ndarray, np.ndarray]


def sets(n: int, m: int, d: int = 6, seed: int = 0) -> Draw:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=(m, d)) + 0.5


def plain(a: np.ndarray, b: np.ndarray, paired: bool) -> float:
    """The definition, written out."""
    own, other, across = (((x @ y.T) / a.shape[1] + 1) ** 3 for x, y in ((a, a), (b, b), (a, b)))
    for square in (own, other, *([across] if paired else [])):
        np.fill_diagonal(square, 0)
    n, m = across.shape
    crossings = n * (n - 1) if paired else n * m
    return own.sum() / (n * (n - 1)) + other.sum() / (m * (m - 1)) - 2 * across.sum() / crossings


class Columns(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0, 0]


def test_kid_is_that_of_torchmetrics() -> None:
    from torchmetrics.image.kid import KernelInceptionDistance

    a, b = sets(40, 40)
    with pytest.warns(UserWarning, match="will save all extracted features"):
        theirs = KernelInceptionDistance(feature=Columns(), subsets=1, subset_size=40)
    for features, real in ((a, True), (b, False)):
        theirs.update(torch.from_numpy(features)[:, None, None], real=real)
    assert kid(a, b).value == pytest.approx(theirs.compute()[0].item(), rel=1e-6)


@pytest.mark.parametrize(("n", "m"), [(30, 30), (20, 33), (33, 20), (2, 2)])
def test_kid_is_its_definition_in_blocks_of_any_size(n: int, m: int, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = sets(n, m)
    for block in (512, 7):
        monkeypatch.setattr(kernel, "BLOCK", block)
        assert kid(a, b).value == pytest.approx(plain(a, b, paired=False))
        if n == m:
            assert kid(a, b, paired=True).value == pytest.approx(plain(a, b, paired=True))


def test_the_error_of_pairs_is_that_of_leaving_out_each() -> None:
    a, b = sets(15, 15)
    keep = ~np.eye(15, dtype=bool)
    without = np.array([plain(a[rest], b[rest], paired=True) for rest in keep])
    error = np.sqrt(np.square(without - without.mean()).sum() * 14 / 15)
    found = kid(a, b, paired=True, level=0.6826894921)
    assert found.high - found.value == pytest.approx(error)
    assert found.value - found.low == pytest.approx(error)


def test_the_error_of_two_sets_is_that_of_leaving_out_each_row() -> None:
    a, b = sets(12, 17)
    first = np.array([plain(a[rest], b, paired=False) for rest in ~np.eye(12, dtype=bool)])
    second = np.array([plain(a, b[rest], paired=False) for rest in ~np.eye(17, dtype=bool)])
    variances = [np.square(x - x.mean()).sum() * (len(x) - 1) / len(x) for x in (first, second)]
    found = kid(a, b, level=0.6826894921)
    assert found.high - found.value == pytest.approx(np.sqrt(sum(variances)))


def true_kid(shift: np.ndarray) -> float:
    """The distance of N(0, I) and N(shift, I), by the moments of Gaussians up to the third."""
    d = len(shift)
    eye = np.eye(d)

    def moments(mean: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        crossed = [
            np.einsum(f"{ab},{c}->abc", eye, mean) for ab, c in (("ab", "c"), ("ac", "b"), ("bc", "a"))
        ]
        return mean, eye + np.outer(mean, mean), np.einsum("a,b,c->abc", mean, mean, mean) + sum(crossed)

    def kernel_mean(one: np.ndarray, other: np.ndarray) -> float:
        both = zip(moments(one), moments(other), strict=True)
        powers = [(x * y).sum() / d**k for k, (x, y) in enumerate(both, start=1)]
        return 1 + 3 * powers[0] + 3 * powers[1] + powers[2]

    zero = np.zeros(d)
    return kernel_mean(zero, zero) + kernel_mean(shift, shift) - 2 * kernel_mean(zero, shift)


def independent(rng: np.random.Generator) -> Draw:
    return rng.normal(size=(60, 4)), rng.normal(size=(50, 4)) + 0.4


def counterfactual(rng: np.random.Generator) -> Draw:
    x = rng.normal(size=(60, 4))
    return x, 0.95 * x + np.sqrt(1 - 0.95**2) * rng.normal(size=x.shape) + 0.4


def inside(found: KernelDistance, truth: float) -> bool:
    return found.low <= truth <= found.high


@pytest.mark.parametrize(("draw", "paired"), [(independent, False), (counterfactual, True)])
def test_intervals_hold_the_truth_19_times_of_20(
    draw: Callable[[np.random.Generator], Draw], paired: bool
) -> None:
    rng, truth = np.random.default_rng(0), true_kid(np.full(4, 0.4))
    found = [kid(*draw(rng), paired=paired) for _ in range(300)]
    assert np.mean([inside(one, truth) for one in found]) >= 0.90
    values = np.array([one.value for one in found])
    assert abs(values.mean() - truth) < 3 * values.std() / np.sqrt(300)  # unbiased


def test_pairs_taken_for_independent_draws_look_too_near() -> None:
    rng, truth = np.random.default_rng(0), true_kid(np.full(4, 0.4))
    values = np.array([kid(*counterfactual(rng)).value for _ in range(100)])
    assert values.mean() < truth - 3 * values.std() / 10


def test_large_sets_are_represented_by_a_seeded_draw() -> None:
    a, b = sets(300, 200)
    small = kid(a, b, most=100, seed=1)
    assert small == kid(a, b, most=100, seed=1)
    assert small != kid(a, b, most=100, seed=2)
    assert inside(small, kid(a, b).value)
    a, b = sets(300, 300)
    b[:, 0] = a[:, 0]
    rows = np.sort(np.random.default_rng(3).choice(300, 100, replace=False))
    pairs = kid(a, b, paired=True, most=100, seed=3).value
    assert pairs == pytest.approx(plain(a[rows], b[rows], paired=True))


def test_tensors_and_arrays_score_the_same() -> None:
    a, b = sets(9, 8)
    assert kid(torch.from_numpy(a), torch.from_numpy(b)) == kid(a, b)


@pytest.mark.parametrize("paired", [True, False])
def test_too_few_rows_give_nan(paired: bool) -> None:
    a, b = sets(2, 2)
    assert np.isnan(kid(a[:1], b[:1], paired=paired).value)
    two = kid(a, b, paired=paired)
    assert np.isfinite(two.value)
    assert np.isnan([two.low, two.high]).all()


def test_bad_settings_are_one_clear_line() -> None:
    a, b = sets(5, 4)
    with pytest.raises(InputError, match="fake features: expected 5 rows, one for each real picture, got 4"):
        kid(a, b, paired=True)
    with pytest.raises(InputError, match="expected most >= 3 and 0 < level < 1, got 5000 and 95"):
        kid(a, b, level=95.0)
    b[2, 0] = np.nan
    with pytest.raises(
        InputError, match="fake features: expected finite numbers, got NaN or infinity in row 2"
    ):
        kid(a, b)


def without_own(a: np.ndarray, b: np.ndarray, origin: np.ndarray) -> float:
    """The distance by hand, where row i of b was made from row origin[i] of a."""
    own, other, across = (((x @ y.T) / a.shape[1] + 1) ** 3 for x, y in ((a, a), (b, b), (a, b)))
    n, m = len(a), len(b)
    across[origin, np.arange(m)] = 0
    within = (own.sum() - np.trace(own)) / (n * (n - 1)) + (other.sum() - np.trace(other)) / (m * (m - 1))
    return float(within - 2 * across.sum() / (n * m - m))


def test_counterfactuals_of_some_pictures() -> None:
    rng = np.random.default_rng(1)
    a = rng.normal(size=(30, 4))
    origin = np.sort(rng.choice(30, 12, replace=False))
    b = 0.9 * a[origin] + 0.4 * rng.normal(size=(12, 4))
    found = kid(a, b, made_from=origin, level=0.6826894921)
    assert found.value == pytest.approx(without_own(a, b, origin))
    parts = []
    for gone in range(30):
        kept, left = np.arange(30) != gone, origin != gone
        parts.append(without_own(a[kept], b[left], (np.cumsum(kept) - 1)[origin[left]]))
    error = np.sqrt(np.square(parts - np.mean(parts)).sum() * 29 / 30)
    assert found.high - found.value == pytest.approx(error, rel=1e-6)


def test_counterfactuals_of_pictures_that_are_not_there() -> None:
    a, b = np.zeros((4, 2)), np.zeros((2, 2))
    for origin in ([0, 4], [1, 1], [0]):
        with pytest.raises(InputError, match="made_from: expected another row of the 4 real ones"):
            kid(a, b, made_from=np.array(origin))
