from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fastdime.audit.answers import KINDS, Answers
from fastdime.audit.effects import Effects

IDS = ("a", "b", "c")
NAN = float("nan")


def logit(*p: float) -> Any:
    chances = np.array(p)
    return np.log(chances / (1 - chances))


def answers(**kinds: tuple[float, ...]) -> Answers:
    """Answers of a model with two outputs; the first is of no interest."""
    columns = {kind: logit(*chances) for kind, chances in kinds.items()}
    return Answers(
        IDS, ("other", "class 1"), {kind: np.stack([0 * odds, odds], 1) for kind, odds in columns.items()}
    )


def made(shortcut: Any = (1, 0, 1), **kinds: tuple[float, ...]) -> Effects:
    pictures = {"original": (0.9, 0.2, 0.5), "edit": (0.4, 0.7, 0.6)} | kinds
    return Effects.of(answers(**pictures), 1, shortcut)


def test_change_is_before_minus_after() -> None:
    found = made()
    assert_allclose(found.change, [0.5, -0.5, -0.1])
    assert_allclose(found.size, [0.5, 0.5, 0.1])
    assert_allclose(found.logit_change, logit(0.9, 0.2, 0.5) - logit(0.4, 0.7, 0.6))
    assert_array_equal(found.has, [True, False, True])


def test_one_output_is_taken() -> None:
    pictures = answers(original=(0.9, 0.2, 0.5), edit=(0.4, 0.7, 0.6))
    assert_allclose(Effects.of(pictures, 0, (1, 0, 1)).change, [0, 0, 0])


def test_every_kind_goes_where_it_belongs() -> None:
    chances = {kind: (number / 10, 0.5, 0.5) for number, kind in enumerate(KINDS, 1)}
    found = Effects.of(answers(**chances), 1, (1, 0, 1))
    names = {"original": "before", "edit": "after"}
    for kind, (chance, *_) in chances.items():
        assert_allclose(getattr(found, names.get(kind, kind))[0], chance)


def test_the_effect_is_above_that_of_the_placebo() -> None:
    found = made(placebo=(0.8, 0.5, 0.5))
    assert_allclose(found.placebo_size, [0.1, 0.3, 0])
    assert_allclose(found.effect, [0.4, 0.2, 0.1])


def test_a_placebo_that_moves_more_gives_a_negative_effect() -> None:
    assert_allclose(made(placebo=(0.1, 0.9, 0.9)).effect, [-0.3, -0.2, -0.3])


def test_direction_of_the_placebo_does_not_matter() -> None:
    up, down = made(placebo=(0.95, 0.3, 0.7)), made(placebo=(0.85, 0.1, 0.3))
    assert_allclose(up.effect, down.effect)


def test_without_a_placebo_the_effect_is_the_whole_change() -> None:
    found = made()
    assert np.isnan(found.placebo).all()
    assert_allclose(found.effect, found.size)


def test_an_image_without_placebo_has_no_effect_where_others_have() -> None:
    found = made(placebo=(0.8, NAN, 0.5))
    assert_allclose(found.effect, [0.4, NAN, 0.1])
    assert_allclose(found.size, [0.5, 0.5, 0.1])


def test_an_image_without_edit_has_no_numbers() -> None:
    found = made(edit=(0.4, NAN, 0.6), placebo=(0.8, 0.5, 0.5))
    for numbers in (found.change, found.size, found.logit_change, found.effect):
        assert_array_equal(np.isnan(numbers), [False, True, False])


def test_controls_that_were_not_made_are_missing() -> None:
    found = made()
    for numbers in (found.null, found.reseed, found.truth):
        assert np.isnan(numbers).all()
        assert numbers.shape == (3,)


def test_what_two_edits_have_in_common() -> None:
    found = made(edit=(0.4, 0.4, 0.4), reseed=(0.6, 0.1, NAN))  # from .9, .2 and .5
    assert_allclose(found.crossed, [0.4, -0.15, 0.1])
    assert_allclose(found.agreed, [0.3, 0, 0.1])
    assert_allclose(found.least, [0.3, -0.15, 0.1])
    assert_allclose(found.effect, found.crossed)


def test_the_placebo_comes_off_what_two_edits_have_in_common() -> None:
    found = made(reseed=(0.5, 0.1, 0.5), placebo=(0.8, 0.2, 0.5))
    assert_allclose(found.effect, [0.35, -0.3, 0], atol=1e-12)  # -0.1 and nothing have nothing in common
    assert_allclose(found.least, [0.3, -0.3, 0], atol=1e-12)


def test_equal_edits_have_everything_in_common() -> None:
    found = made(reseed=(0.4, 0.7, 0.6))
    for numbers in (found.crossed, found.agreed, found.least):
        assert_allclose(numbers, found.size)


def test_an_image_with_one_edit_counts_as_it_is() -> None:
    found = made(reseed=(0.5, NAN, 0.5), edit=(0.4, 0.7, NAN))
    assert_allclose(found.effect, [0.45, 0.5, NAN])
    assert_allclose(found.least, [0.4, 0.5, NAN])


def test_moves_by_chance_cancel() -> None:
    moves = 0.1 * np.random.default_rng(0).standard_normal((2, 2000))
    nothing, half = np.full(2000, NAN), np.full(2000, 0.5)
    found = Effects(half, half - moves[0], half, half, nothing, nothing, half - moves[1], half > 0, nothing)
    assert found.size.mean() > 0.07
    assert abs(found.effect.mean()) < 0.006
    assert (found.least <= found.effect + 1e-12).all()


def test_exact_counterfactuals_in_place_of_edits() -> None:
    found = made(
        placebo=(0.8, 0.5, 0.5),
        null=(0.5, 0.5, 0.5),
        reseed=(0.5, 0.5, 0.5),
        truth=(0.1, 0.8, 0.5),
    )
    exact = found.exact
    assert_allclose(exact.change, [0.8, -0.6, 0])
    assert_allclose(exact.placebo_size, found.placebo_size)  # the same control
    assert_allclose(exact.effect, np.abs(exact.change) - found.placebo_size)
    assert_array_equal(exact.has, found.has)
    for numbers in (exact.null, exact.reseed, exact.logit_change):
        assert np.isnan(numbers).all()
    assert_allclose(found.change, [0.5, -0.5, -0.1])  # the edits are left as they were


def test_exact_counterfactuals_that_nobody_has() -> None:
    assert np.isnan(made().exact.effect).all()


@pytest.mark.parametrize("shortcut", [(1, 0, 1), (1.0, 0.0, 1.0), np.array([1.0, 0.0, 1.0])])
def test_labels_of_the_shortcut(shortcut: Any) -> None:
    assert_array_equal(made(shortcut).has, [True, False, True])


def test_sure_models_keep_their_log_odds() -> None:
    odds = {"original": np.full((1, 1), 40.0), "edit": np.full((1, 1), 60.0)}
    found = Effects.of(Answers(("a",), ("class 1",), odds), 0, [1])
    assert found.change[0] == 0
    assert found.logit_change[0] == -20
