"""The page about audits explains everything that audit.json says."""

import re

import pytest
from pydantic import BaseModel

from fastdime.audit import schema
from fastdime.audit.answers import KINDS, SHORT
from fastdime.audit.conditions import INTERVALS, NUMBERS, VERDICTS
from fastdime.audit.output import EFFECT_COLUMNS
from fastdime.validation.mitigate import WAYS
from support.pages import ROOT, codes, text_of

PAGE = ROOT / "docs" / "audit.md"
PARTS = [
    part
    for name, part in vars(schema).items()
    if isinstance(part, type)
    and issubclass(part, BaseModel)
    and not name.startswith("_")
    and part is not BaseModel
]


def test_the_parts_were_found() -> None:
    assert {part.__name__ for part in PARTS} >= {"Audit", "Row", "Interval", "Generator", "SelfTest"}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_every_field_is_explained(part: type[BaseModel]) -> None:
    assert sorted(part.model_fields.keys() - codes(text_of(PAGE))) == []


def test_every_word_that_a_user_may_write_is_there() -> None:
    words = {*KINDS, *SHORT, *INTERVALS, *NUMBERS, *(f"verdict=={word}" for word in VERDICTS), *WAYS}
    assert sorted(words - codes(text_of(PAGE))) == []


def test_columns_of_the_table_of_effects() -> None:
    assert sorted(set(EFFECT_COLUMNS) - codes(text_of(PAGE))) == []


def test_files_are_named() -> None:
    for name in (schema.AUDIT_FILE, schema.EFFECTS_FILE, schema.PICTURES_FILE):
        assert re.search(rf"\b{re.escape(name)}", text_of(PAGE))


def test_collateral_changes_are_explained() -> None:
    names = {"change", "changed_area", "change_outside_mask", "change_outside_truth"}
    assert sorted(names - codes(text_of(PAGE))) == []
