"""The published main program on a small data set: every method in end_to_end.npz."""

import pytest

from fastdime.counterfactuals.methods import settings_for
from fastdime.counterfactuals.settings import GuidedSettings
from support.recordings import METHODS, Recording, celeba_orders, known
from support.retries import check_retries

RECORDING = Recording("end_to_end")


def settings_of(method: str) -> GuidedSettings:
    tau = int(RECORDING.number("tau"))
    settings = settings_for(
        METHODS[method],
        "celeba",
        steps=int(RECORDING.number("respaced")),
        tau=tau,
        mask_from=tau - 1 - int(RECORDING.number("warmup")),
        dilation=int(RECORDING.number("dilation")),
        threshold=RECORDING.number("thr"),
        l1=RECORDING.number("l1"),
        perceptual=RECORDING.number("lperc"),
    )
    assert isinstance(settings, GuidedSettings)
    return settings


def test_every_method_and_array_of_the_file_is_known() -> None:
    known(RECORDING.groups(), "|".join(METHODS))
    names = "x0 label batch_size scales T respaced tau warmup dilation thr l1 lperc"
    assert not RECORDING.left_over(names)


@pytest.mark.parametrize("method", RECORDING.groups())
def test_method(method: str) -> None:
    check_retries(RECORDING, method, settings_of(method), celeba_orders)
    assert not RECORDING.unseen(f"{method}/")
