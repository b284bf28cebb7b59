import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from torch import Tensor, nn

from fastdime.errors import InputError
from fastdime.metrics import rows
from fastdime.metrics.frechet import Moments, fid, frechet_distance, reliable
from support.recordings import Recording


def drawn(n: int, d: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + rng.normal(size=d)


def test_fid_is_the_recorded_one() -> None:
    recording = Recording("metrics")
    full = fid(recording.array("fid/feat1"), recording.array("fid/feat2"))
    assert full == pytest.approx(recording.number("fid/value"), abs=1e-4)
    names = (f"fid/rank_deficient_feat{number}" for number in (1, 2))
    few = fid(*(recording.array(name) for name in names))
    assert few == pytest.approx(recording.number("fid/rank_deficient_value"), abs=1e-3)
    assert not recording.unseen("fid/")


@pytest.mark.parametrize(("n", "m"), [(60, 47), (12, 80), (13, 13)])
def test_fid_is_that_of_scipy(n: int, m: int) -> None:
    a, b = drawn(n, 12, 0), drawn(m, 12, 1)
    first, second = np.cov(a.T), np.cov(b.T)
    root = sqrtm(first @ second).real
    wanted = np.square(a.mean(0) - b.mean(0)).sum() + np.trace(first + second - 2 * root)
    assert fid(a, b) == pytest.approx(wanted, rel=1e-5)


class Columns(nn.Module):
    """The first pixels of an image are its features."""

    num_features = 12

    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0, 0]


def test_fid_is_that_of_torchmetrics() -> None:
    from torchmetrics.image.fid import FrechetInceptionDistance

    theirs = FrechetInceptionDistance(feature=Columns()).set_dtype(torch.float64)
    a, b = drawn(90, 12, 2), drawn(70, 12, 3)
    for features, real in ((a, True), (b, False)):
        theirs.update(torch.from_numpy(features)[:, None, None], real=real)
    assert fid(a, b) == pytest.approx(theirs.compute().item(), rel=1e-6)


@pytest.mark.parametrize(("n", "m"), [(8, 9), (5, 40), (40, 5), (19, 19)])
def test_few_rows_and_moments_give_the_same(n: int, m: int) -> None:
    a, b = drawn(n, 20, 4), drawn(m, 20, 5)
    by_moments = frechet_distance(Moments.of(a), Moments.of(b))
    assert fid(a, b) == pytest.approx(by_moments, rel=1e-6)
    assert fid(b, a) == pytest.approx(by_moments, rel=1e-6)


def test_fid_of_a_set_with_itself_is_nothing() -> None:
    a = drawn(30, 5, 6)
    assert fid(a, a) == pytest.approx(0, abs=1e-8)
    assert fid(a[:4], a[:4]) == pytest.approx(0, abs=1e-8)
    assert fid(a, a + 2) == pytest.approx(20)


def test_a_constant_column_does_no_harm() -> None:
    a, b = drawn(30, 5, 7), drawn(40, 5, 8)
    wide_a, wide_b = np.pad(a, ((0, 0), (0, 2))), np.pad(b, ((0, 0), (0, 2)))
    assert fid(wide_a, wide_b) == pytest.approx(fid(a, b))
    assert fid(np.zeros((9, 3)), np.ones((9, 3))) == 3


def test_merged_moments_equal_those_of_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    a = drawn(100, 6, 9) + 1000  # a mean far from 0 would spoil sums of squares
    whole = Moments.of(a)
    parts = Moments.none(6).update(a[:1]).update(a[1:40]).merge(Moments.of(a[40:]))
    monkeypatch.setattr(rows, "CHUNK", 7)
    for found in (parts, Moments.of(a), Moments.of(torch.from_numpy(a))):
        assert found.n == 100
        np.testing.assert_allclose(found.mean, whole.mean, rtol=1e-13)
        np.testing.assert_allclose(found.scatter, whole.scatter, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(whole.covariance, np.cov(a.T), rtol=1e-9, atol=1e-9)
    assert fid(a[:50], a[50:]) == pytest.approx(
        frechet_distance(Moments.of(a[:50]), Moments.of(a[50:])), rel=1e-9
    )


def test_nothing_added_changes_nothing() -> None:
    some = Moments.of(drawn(5, 3, 0))
    assert some.merge(Moments.none(3)) is some
    assert Moments.none(3).merge(Moments.none(3)).n == 0


def test_fewer_than_two_rows_have_no_distance() -> None:
    a = drawn(5, 3, 0)
    assert np.isnan(fid(a, a[:1]))
    assert np.isnan(fid(a[:0], a))
    assert np.isnan(frechet_distance(Moments.of(a[:1]), Moments.of(a)))
    assert np.isnan(Moments.of(a[:1]).covariance).all()


def test_fid_is_reliable_only_with_more_rows_than_columns() -> None:
    assert reliable(np.zeros((6, 5)), np.zeros((9, 5)))
    assert not reliable(np.zeros((6, 5)), np.zeros((5, 5)))


@pytest.mark.parametrize(
    ("real", "fake", "sentence"),
    [
        (np.zeros((3, 2)), np.array([[1.0, 2], [3, np.nan], [1, 1]]), "fake features.* in row 1;"),
        (np.full((3, 2), np.inf), np.zeros((3, 2)), "real features: expected finite numbers"),
        (np.zeros((3, 2)), np.zeros((3, 4)), "fake features: expected 2 columns.* got 4"),
        (np.zeros(3), np.zeros((3, 2)), r"real features: expected floats of shape .*\(3,\)"),
        (np.zeros((3, 2)), np.zeros((3, 2), dtype=int), "fake features: expected floats .* got int64"),
    ],
)
def test_bad_features_are_one_clear_line(real: np.ndarray, fake: np.ndarray, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        fid(real, fake)
    assert "\n" not in str(caught.value)


def test_moments_of_other_columns_are_refused() -> None:
    with pytest.raises(InputError, match="expected 2 columns, got 3"):
        Moments.none(2).merge(Moments.none(3))
    with pytest.raises(InputError, match="expected 2 columns in both, got 3"):
        frechet_distance(Moments.none(2), Moments.none(3))
