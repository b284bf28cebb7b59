"""Task models on counterfactuals and on the exact ones."""

import pytest
import torch

from fastdime.experiments import response
from fastdime.experiments.truth import Pairs


def test_exact_counterfactuals_have_no_error_and_doing_nothing_has_no_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def made(explainer: object, drawn: Pairs, show: object) -> tuple[torch.Tensor, float]:
        asked.append(type(explainer).__name__)
        return (drawn.truth if len(asked) <= 2 else drawn.x), 0.0

    monkeypatch.setattr(response, "counterfactuals", made)
    rows = response.responses("chest-pacemaker", ["fastdime", "turbo"], 6)
    assert len(rows) == 2 * 2 * 3
    exact, nothing = rows[:6], rows[6:]
    assert all(row["error"] == 0 and row["mad"] == row["mad_true"] for row in exact)
    assert all(row["mad"] == 0 and row["error"] == row["mad_true"] for row in nothing)
    biased = {row["direction"]: row for row in exact if row["model"] == "k100"}
    assert biased["remove"]["md"] < -0.5
    assert biased["add"]["md"] > 0.5
