"""The overhead bench measures what it says; how much is for a quiet machine to tell."""

from fastdime.experiments.bench import overhead, peak_memory


def test_overhead() -> None:
    result = overhead(steps=2, repeats=1, memory=False)
    assert 1.5e6 < result["parameters"] < 2.5e6
    assert 0.5 < result["overhead"] < 3
    assert result["seconds_bare"] > 0


def test_peak_memory_is_that_of_a_process_of_its_own() -> None:
    assert 100 < peak_memory(1) < 4000
