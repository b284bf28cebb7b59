import numpy as np
import pytest
from pydantic import ValidationError

from fastdime.data.phantoms.design import Dials, draw_labels, parse_k, shares, split_of
from fastdime.errors import InputError

EVERY = range(400)


@pytest.mark.parametrize("k", [100, 90, 75, 50, 0])
@pytest.mark.parametrize("seed", [0, 1, 50])
def test_every_prefix_has_the_shares_of_the_design(k: float, seed: int) -> None:
    dials = Dials()
    labels = draw_labels(seed, EVERY, k, dials)
    for y, share in enumerate(shares(k, dials)):
        has = labels.shortcut[labels.y == y]
        count = np.arange(1, len(has) + 1)
        assert np.abs(has.cumsum() - share * count).max() <= 2


def test_shares_mix_the_design_with_the_flips() -> None:
    assert shares(100, Dials(flip=0)) == (0, 1)
    assert shares(100, Dials()) == pytest.approx((0.02, 0.98))
    assert shares(75, Dials()) == pytest.approx((0.26, 0.74))
    assert shares(50, Dials(flip=0.3)) == pytest.approx((0.5, 0.5))
    assert shares(None, Dials(shortcut_rate=0.2)) == (0.2, 0.2)


def test_classes_alternate_and_do_not_depend_on_k() -> None:
    for k in (100, 50, None):
        assert draw_labels(3, range(5), k, Dials()).y.tolist() == [0, 1, 0, 1, 0]


def test_without_a_design_the_rate_alone_decides() -> None:
    labels = draw_labels(1, EVERY, None, Dials(shortcut_rate=0.25))
    assert [labels.shortcut[labels.y == y].mean() for y in (0, 1)] == pytest.approx([0.25, 0.25], abs=0.01)
    assert draw_labels(1, EVERY, None, Dials(shortcut_rate=0)).shortcut.sum() == 0


@pytest.mark.parametrize("rho", [0, 0.5, 0.9, 1])
def test_the_placebo_follows_the_shortcut_by_rho_and_the_class_by_nothing_else(rho: float) -> None:
    labels = draw_labels(2, range(2000), 50, Dials(placebo_rho=rho))
    for has, share in ((1, rho), (0, 1 - rho)):
        for y in (0, 1):
            some = labels.placebo[(labels.shortcut == has) & (labels.y == y)]
            assert some.mean() == pytest.approx(share, abs=0.07)


def test_label_noise_changes_the_record_only() -> None:
    clean, noisy = (draw_labels(5, range(1000), 75, Dials(label_noise=e)) for e in (0, 0.1))
    assert (clean.task == clean.y).all()
    assert (noisy.task != noisy.y).mean() == pytest.approx(0.1, abs=0.03)
    for name in ("y", "shortcut", "placebo"):
        assert (getattr(clean, name) == getattr(noisy, name)).all()


def test_splits_are_balanced_and_belong_to_the_index() -> None:
    splits = {"train": 0.7, "val": 0.1, "test": 0.2}
    part = np.array([split_of(i, splits) for i in range(2000)])
    labels = draw_labels(0, range(2000), 75, Dials())
    for name, share in splits.items():
        assert (part == name).mean() == pytest.approx(share, abs=0.01)
        assert labels.y[part == name].mean() == pytest.approx(0.5, abs=0.02)
        diseased = labels.shortcut[(part == name) & (labels.y == 1)]
        assert diseased.mean() == pytest.approx(0.74, abs=0.04)


@pytest.mark.parametrize(
    ("given", "k"), [("none", None), (None, None), (" NONE ", None), ("75", 75), (62.5, 62.5)]
)
def test_k_from_a_user(given: str | float | None, k: float | None) -> None:
    assert parse_k(given) == k


@pytest.mark.parametrize("given", ["much", -1, 101, float("nan"), True, "1e9"])
def test_a_k_that_is_none_is_refused(given: str | float) -> None:
    with pytest.raises(
        InputError, match=r"^k: expected a percentage from 0 to 100, or none, got .*"
    ) as caught:
        parse_k(given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", [{"flip": 0.6}, {"contrast": -1}, {"d_prime": float("nan")}, {"size": 3}])
def test_dials_have_bounds(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Dials(**wrong)
