import json
from typing import Any

import pytest
from pydantic import ValidationError

from fastdime.audit.schema import (
    Areas,
    Audit,
    Compliance,
    Flips,
    Generator,
    Interval,
    Row,
    SelfTest,
    Stratum,
    Truth,
)
from fastdime.metrics.statistics import Estimate, mean_interval

SOME = Interval.of(mean_interval([0.1, 0.2, 0.4], ["p", "p", "q"]))
NONE = Interval.of(mean_interval([]))


def row(**changes: Any) -> Row:
    intervals = dict.fromkeys(
        ("effect", "mad", "md_with", "md_without", "logit", "logit_with", "logit_without", "placebo", "null"),
        SOME,
    )
    told = {
        "shortcut": "drain",
        "model": "net <1>",
        "output": "Größe",
        "verdict": "cannot tell",
        "reason": 'there are 3 images, "and" at least 10 are needed',
        "reseed": NONE,
        "complier": NONE,
        "p": 0.25,
        "p_adjusted": 1.0,
        "p_equivalence": None,
        "size": 1.5,
        "detectable": None,
        "flips": Flips(to_one=1, to_zero=0, p=1.0),
        "auroc": Areas(before=0.8, after=0.75, change=SOME, p=None),
        "truth": Truth(mad=SOME, md_with=SOME, md_without=NONE, placebo=SOME, effect=SOME),
        "strata": (Stratum(by="sex", value="f", mad=SOME, md=SOME, effect=NONE),),
    }
    return Row(**intervals | told | changes)


def audit(**changes: Any) -> Audit:
    generator = Generator(
        shortcut="drain",
        bundle="chest",
        method="fastdime",
        settings={"tau": 60, "scales": [0.1, 1.0], "mask_from": None},
        folder="drain",
        images=3,
        removals=2,
        additions=1,
        failed=0,
        compliance=Compliance(oracle="chest/shortcut", independent=True, removed=SOME, added=NONE),
        collateral={"change": SOME},
        self_tests=(SelfTest(name="null edit", passed=True, value=0.01, limit=0.03, text="it stays"),),
    )
    told = {
        "versions": {"fastdime": "0.1.0"},
        "data": "table.csv",
        "images": 3,
        "task": None,
        "group": "patient",
        "by": ("sex",),
        "margin": 0.05,
        "alpha": 0.05,
        "seed": 0,
        "generators": (generator,),
        "rows": (row(), row(auroc=None, truth=None, strata=())),
        "warnings": ("drain: no label of 2 images",),
    }
    return Audit(**told | changes)


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def test_through_json_and_back() -> None:
    whole = audit()
    text = whole.model_dump_json(indent=2)
    json.loads(text, parse_constant=no_constant)
    assert Audit.model_validate_json(text) == whole
    assert json.loads(text)["format"] == 1


def test_an_interval_of_an_estimate() -> None:
    found = Interval.of(Estimate(0.12345678, -0.5, 1.0, 7, 3))
    assert found == Interval(value=0.123457, low=-0.5, high=1.0, n=7, clusters=3)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([], {"value": None, "low": None, "high": None, "n": 0, "clusters": 0}),
        ([0.5], {"value": 0.5, "low": None, "high": None, "n": 1, "clusters": 1}),
    ],
)
def test_what_there_is_not_is_null(values: list[float], wanted: dict[str, Any]) -> None:
    found = Interval.of(mean_interval(values))
    assert json.loads(found.model_dump_json(), parse_constant=no_constant) == wanted
    assert Interval.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize(
    "change",
    [{"format": 2}, {"rows": None}, {"unknown": 1}, {"rows": [{"shortcut": "drain"}]}, {"margin": "wide"}],
)
def test_other_files_are_refused(change: dict[str, Any]) -> None:
    content = json.loads(audit().model_dump_json()) | change
    with pytest.raises(ValidationError):
        Audit.model_validate_json(json.dumps(content))


def test_a_verdict_is_one_of_three() -> None:
    with pytest.raises(ValidationError, match="verdict"):
        row(verdict="perhaps")


def test_nothing_can_be_changed_afterwards() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        audit().margin = 0.5  # type: ignore[misc]
