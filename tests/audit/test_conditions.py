import pytest

from fastdime.audit.conditions import INTERVALS, NAMES, NUMBERS, failures, parse_condition
from fastdime.audit.schema import Row
from fastdime.errors import InputError
from support.audits import Plan, interval, row

RELIES, NONE, OPEN = (row(Plan(), number, ("drain", f"net-{number}", "sick")) for number in range(3))


def met(text: str, *rows: Row) -> list[str]:
    return [sentence.split(",")[0] for sentence in failures([parse_condition(text)], rows)]


@pytest.mark.parametrize(
    ("text", "models"),
    [
        ("effect>0.1", ["net-0"]),
        ("effect > 0.05", ["net-0", "net-2"]),
        (" effect>=0.06 ", ["net-0", "net-2"]),
        ("effect<0.06", ["net-1"]),
        ("effect<=0.06", ["net-1", "net-2"]),
        ("effect_low>0.27", ["net-0"]),
        ("effect_high<0.05", ["net-1"]),
        ("md_without<-0.3", ["net-0"]),
        ("md_with_low>0.1", ["net-0"]),
        ("p_adjusted<1e-3", ["net-0"]),
        ("detectable>0.01", ["net-0", "net-1", "net-2"]),
        ("verdict==relies", ["net-0"]),
        ("verdict == no-reliance", ["net-1"]),
        ("verdict==cannot-tell", ["net-2"]),
    ],
)
def test_which_rows_meet_a_condition(text: str, models: list[str]) -> None:
    assert met(text, RELIES, NONE, OPEN) == models


def test_all_conditions_count_and_the_sentence_says_which() -> None:
    conditions = [parse_condition("effect>0.1"), parse_condition("verdict==cannot-tell")]
    assert failures(conditions, [RELIES, NONE, OPEN]) == [
        "net-0, sick, drain: effect>0.1",
        "net-2, sick, drain: verdict==cannot-tell",
    ]
    assert failures([], [RELIES]) == []


def test_a_number_that_is_not_there_meets_nothing() -> None:
    bare = RELIES.model_copy(update={"effect": interval(None), "size": None})
    for text in ("effect>-9", "effect<9", "effect_low>-9", "size>-9", "p_equivalence<9"):
        assert met(text, bare) == []


@pytest.mark.parametrize("name", NAMES)
def test_every_name_can_be_compared(name: str) -> None:
    there = RELIES.model_copy(update={"p_equivalence": 0.5})
    assert met(f"{name}>-99", there) == ["net-0"]
    assert met(f"{name}>99", there) == []


def test_the_names_are_fields_of_a_row() -> None:
    assert {*INTERVALS, *NUMBERS} <= Row.model_fields.keys()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "--fail-if: expected a condition such as effect>0.1 or verdict==relies, got ''"),
        ("effect", "expected a condition such as"),
        ("effect>0.1>0.2", "expected a number after the sign, got '0.1>0.2'"),
        ("efect>0.1", "got 'efect'; did you mean 'effect'?"),
        ("effect==0.1", "expected effect with one of >=, <=, >, <, got 'effect==0.1'"),
        ("effect>much", "expected a number after the sign, got 'much'"),
        ("effect>nan", "expected a number after the sign, got 'nan'"),
        ("verdict>relies", "expected verdict==relies or verdict==no-reliance or verdict==cannot-tell"),
        ("verdict==perhaps", "got 'verdict==perhaps'"),
        ("truth>0.1", "--fail-if: expected one of "),
    ],
)
def test_what_is_no_condition_is_one_line(text: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        parse_condition(text)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)
