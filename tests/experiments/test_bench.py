"""The overhead bench measures what it says; how much is for a quiet machine to tell."""

import pytest

from fastdime.experiments.bench import overhead, peak_memory, training_speed


def test_overhead() -> None:
    result = overhead(steps=2, repeats=1, memory=False)
    assert 1.5e6 < result["parameters"] < 2.5e6
    assert 0.5 < result["overhead"] < 3
    assert result["seconds_bare"] > 0


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
