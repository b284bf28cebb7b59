"""The overhead bench measures what it says; how much is for a quiet machine to tell."""

from dataclasses import dataclass
from typing import Any

import pytest
from torch import Tensor

from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.methods import settings_for
from fastdime.experiments.bench import Tape, overhead, peak_memory, training_speed
from support import tiny


def test_overhead() -> None:
    result = overhead(steps=2, repeats=1, memory=False)
    assert 1.5e6 < result["parameters"] < 2.5e6
    assert 0.5 < result["overhead"] < 3
    assert result["seconds_bare"] > 0
    assert 0.5 < result["overhead_turbo"] < 10
    assert result["seconds_bare_turbo"] > 0


@pytest.mark.parametrize("method", ["fastdime", "turbo"])
def test_the_bare_calls_are_those_of_the_method(method: str) -> None:
    few = {"steps": 20, "tau": 3} if method == "fastdime" else {}
    explainer = Explainer(tiny.denoiser(), tiny.classifier(), settings_for(method, **few))
    x = tiny.images(3, height=32, width=32)
    result, tape = explainer(x), Tape.of(explainer, x)
    assert tape.images("denoiser") == result.denoiser_calls.sum() > 0
    assert tape.images("gradient") == result.gradient_calls.sum() > 0
    again = Tape.of(Replayed(explainer, tape), x)
    assert [(kind, len(times)) for kind, times in again.calls] == [
        (kind, len(times)) for kind, times in tape.calls
    ]


@dataclass(frozen=True)
class Replayed:
    """An explainer that does nothing but the calls of a tape."""

    explainer: Explainer
    tape: Tape
    denoiser: Any = None
    classifier: Any = None

    def __post_init__(self) -> None:
        for name in ("denoiser", "classifier"):
            object.__setattr__(self, name, getattr(self, name) or getattr(self.explainer, name))

    def __call__(self, x: Tensor) -> None:
        self.tape.replay(self, x)


def test_peak_memory_is_that_of_a_process_of_its_own() -> None:
    assert 100 < peak_memory(1) < 4000


def test_training_speed() -> None:
    found = training_speed(1)
    assert 1.5e6 < found["parameters"] < 2.5e6
    assert found["seconds"] >= 1
    assert found["images_per_second_per_core"] * found["threads"] == pytest.approx(
        found["images_per_second"], abs=0.1
    )
    assert found["images_per_cpu_second"] > 0
