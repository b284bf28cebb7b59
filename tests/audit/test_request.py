from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fastdime.audit.request import AuditRequest, parse_shortcuts
from fastdime.counterfactuals.methods import METHODS
from fastdime.errors import InputError


def request(**changes: Any) -> AuditRequest:
    return AuditRequest(**{"data": Path("table.csv"), "shortcuts": {"drain": "chest"}} | changes)


def test_columns_with_and_without_a_bundle_of_their_own() -> None:
    assert parse_shortcuts(["drain"], None) == {"drain": None}
    assert parse_shortcuts(["drain", "wire=wires"], "chest") == {"drain": "chest", "wire": "wires"}
    assert parse_shortcuts(["wire=runs/lr=1"], None) == {"wire": "runs/lr=1"}


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (
            ["drain", "wire", "drain"],
            "--shortcut: expected a column of the table, each once, got 'drain' twi",
        ),
        (["=chest"], "got none"),
        ([""], "got none"),
    ],
)
def test_columns_that_cannot_be_right(texts: list[str], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        parse_shortcuts(texts, None)


def test_what_is_asked_for_unless_it_is_said() -> None:
    found = request()
    assert (found.margin, found.alpha, found.seed, found.controls, found.group) == (0.05, 0.05, 0, None, None)
    assert found.method in METHODS
    assert found.batch_size is None


@pytest.mark.parametrize(
    "change",
    [
        {"shortcuts": {}},
        {"margin": 0},
        {"alpha": 0.5},
        {"alpha": 0},
        {"limit": 0},
        {"size": 4},
        {"controls": -1},
        {"seed": -1},
        {"batch_size": 0},
        {"marign": 0.1},
    ],
)
def test_what_no_audit_can_have_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        request(**change)


def test_a_request_does_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        request().margin = 0.5  # type: ignore[misc]
