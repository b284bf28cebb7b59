"""Settings of the paper, scaled to the images and chains at hand."""

import pytest

from fastdime.bundles import BundleInfo
from fastdime.counterfactuals.settings import GuidedSettings
from fastdime.errors import InputError
from fastdime.experiments.paper.variants import Below, Pixels, Variant

INFO = BundleInfo(
    name="some",
    size=64,
    channels=1,
    settings={"fastdime": {"steps": 50, "tau": 30, "dilation": 3}, "fastdime-2+": {"steps": 50, "tau": 20}},
)


@pytest.mark.parametrize(
    ("number", "of", "size", "here"),
    [
        # 64 / 224 of the pixels: 1.4, 3.1, 6.0, 8.9 and 15.7
        (5, 224, 64, 1),
        (11, 224, 64, 3),
        (21, 224, 64, 7),
        (31, 224, 64, 9),
        (55, 224, 64, 15),
        # half of the pixels: 2.5 and 7.5
        (5, 128, 64, 3),
        (15, 128, 64, 7),
        (21, 224, 224, 21),
        (5, 128, 128, 5),
        (5, 128, 224, 9),
    ],
)
def test_a_dilation_is_the_nearest_odd_number_of_the_same_share(
    number: int, of: int, size: int, here: int
) -> None:
    assert Pixels(number, of).here(size, tau=30) == here


@pytest.mark.parametrize(
    ("number", "of", "tau", "highest"),
    [
        (80, 160, 30, 14),  # half of 30 levels: 0 to 14
        (160, 160, 30, 29),
        (40, 160, 30, 7),  # 7.5 levels, rounded up
        (10, 160, 30, 1),  # 1.9 levels
        (1, 160, 30, 0),  # never none
        (45, 60, 30, 22),
        (60, 60, 60, 59),
        (80, 160, 160, 79),
    ],
)
def test_tau_w_is_the_same_share_of_the_levels(number: int, of: int, tau: int, highest: int) -> None:
    assert Below(number, of).here(size=64, tau=tau) == highest


def test_half_of_tau_is_the_usual_first_level_of_the_mask() -> None:
    """`mask_from` None means tau // 2 - 1 in the loop."""
    assert Below(80, 160).here(64, 30) == 30 // 2 - 1


def test_changes_go_on_top_of_what_works_for_the_bundle() -> None:
    variant = Variant("some", "fastdime", {"dilation": Pixels(55, 224), "threshold": 0.3})
    settings = variant.settings(INFO)
    assert isinstance(settings, GuidedSettings)
    assert (settings.tau, settings.steps, settings.dilation, settings.threshold) == (30, 50, 15, 0.3)
    assert variant.changed(INFO) == {"dilation": 15, "threshold": 0.3}


def test_levels_are_those_of_the_method() -> None:
    changes = {"mask_from": Below(30, 60)}
    assert Variant("one", "fastdime", changes).changed(INFO) == {"mask_from": 14}
    assert Variant("other", "fastdime-2+", changes).changed(INFO) == {"mask_from": 9}
    shorter = Variant("third", "fastdime", {**changes, "tau": 10})
    assert shorter.changed(INFO) == {"mask_from": 4, "tau": 10}


def test_a_setting_that_is_not_there() -> None:
    with pytest.raises(InputError, match="dilatoin"):
        Variant("some", "fastdime", {"dilatoin": 3}).settings(INFO)
