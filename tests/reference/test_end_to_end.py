"""The published main program on a small data set: every method in end_to_end.npz."""

import pytest

from fastdime.counterfactuals.methods import settings_for
from fastdime.counterfactuals.settings import GuidedSettings
from fastdime.noise import Key
from support.recordings import NETWORK_ARRAYS, Recording, guided_order, nested_order
from support.retries import check_retries

RECORDING = Recording("end_to_end")
METHOD = {
    "dime": "dime",
    "fastdime": "fastdime",
    "fastdime_nomask": "fastdime-nomask",
    "fastdime2": "fastdime-2",
    "fastdime2plus": "fastdime-2+",
    "gmd": "gmd",
    "gmd_nomask": "gmd-nomask",
}


def settings_of(method: str) -> GuidedSettings:
    tau = int(RECORDING.number("tau"))
    settings = settings_for(
        METHOD[method],
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


def orders(settings: GuidedSettings, attempt: int) -> list[list[Key]]:
    if settings.gradient == "nested":
        return [nested_order(settings.tau, attempt=attempt)]
    masked = range(settings.mask_from + 1) if settings.mask == "difference" else range(0)
    calls = [guided_order(settings.tau, masked, attempt=attempt)]
    if settings.second_pass == "fixed":
        calls.append(guided_order(settings.tau, range(settings.tau), number=2, attempt=attempt))
    return calls


def test_every_method_of_the_file_is_known() -> None:
    assert RECORDING.groups()
    assert set(RECORDING.groups()) <= set(METHOD)


@pytest.mark.parametrize("method", RECORDING.groups())
def test_method(method: str) -> None:
    check_retries(RECORDING, method, settings_of(method), orders)
    assert not RECORDING.unseen(f"{method}/")


def test_no_array_is_left_over() -> None:
    known = {"x0", "label", "batch_size", "scales", "T", "respaced", "tau", "warmup", "dilation"}
    known |= {"thr", "l1", "lperc"}
    assert {key for key in RECORDING.arrays if "/" not in key} <= known | NETWORK_ARRAYS
