from pathlib import Path

import numpy as np
import pytest

from fastdime.audit.answers import Answers, read_answers, write_answers
from fastdime.errors import DataError, InputError

IDS = ("a", "b", "c")
LONG = """id,picture,path,pneumonia,effusion
b,original,b.png,0.5,0.25
a,original,a.png,0.1,0.9
c,original,c.png,0,1
a,edit,a2.png,0.2,0.8
c,counterfactual,c2.png,0.3,0.7
b,placebo,b3.png,0.5,0.5
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "answers.csv"
    path.write_text(LONG)
    return path


def logit(p: float) -> float:
    return float(np.log(p / (1 - p)))


def test_the_long_form(table: Path) -> None:
    found = read_answers(table, IDS)
    assert found.ids == IDS
    assert found.outputs == ("pneumonia", "effusion")
    assert set(found.logits) == {"original", "edit", "placebo"}
    np.testing.assert_allclose(found.logits["original"][0], [logit(0.1), logit(0.9)], rtol=1e-12)
    np.testing.assert_allclose(found.logits["original"][2], [logit(1e-6), logit(1 - 1e-6)], rtol=1e-9)
    np.testing.assert_allclose(
        found.probabilities("edit"), [[0.2, 0.8], [np.nan, np.nan], [0.3, 0.7]], rtol=1e-12
    )
    np.testing.assert_array_equal(np.isnan(found.logits["placebo"][:, 0]), [True, False, True])


def test_the_order_of_rows_does_not_matter(table: Path) -> None:
    found = read_answers(table, IDS)
    header, *lines = LONG.splitlines()
    table.write_text("\n".join([header, *reversed(lines)]))
    again = read_answers(table, IDS)
    for kind in found.logits:
        np.testing.assert_array_equal(found.logits[kind], again.logits[kind])
    turned = read_answers(table, IDS[::-1])
    np.testing.assert_array_equal(turned.logits["original"], found.logits["original"][::-1])


def test_the_short_form(table: Path) -> None:
    table.write_text("file,id,before,after,placebo\nx,a,0.1,0.2,\nx,b,0.5,,NA\nx,c,0.9,0.8,0.7\n")
    found = read_answers(table, IDS)
    assert found.outputs == ("class 1",)
    assert set(found.logits) == {"original", "edit", "placebo"}
    np.testing.assert_allclose(found.probabilities("original")[:, 0], [0.1, 0.5, 0.9])
    np.testing.assert_allclose(found.probabilities("edit")[:, 0], [0.2, np.nan, 0.8])
    np.testing.assert_allclose(found.probabilities("placebo")[:, 0], [np.nan, np.nan, 0.7])


def test_log_odds_are_taken_as_they_are(table: Path) -> None:
    table.write_text("id\tbefore\tafter\na\t-30\t2.5\n")
    tabbed = table.rename(table.with_suffix(".tsv"))
    found = read_answers(tabbed, ["a"], logits=True)
    assert found.logits["original"].tolist() == [[-30.0]]
    np.testing.assert_allclose(found.probabilities("original"), np.exp(-30.0), rtol=1e-9)
    with pytest.raises(
        DataError, match=r"line 2 column 'before': expected a probability in \[0, 1\], got '-30'"
    ):
        read_answers(tabbed, ["a"])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("a,edit", "q,edit"), r"answers.csv line 5 column 'id': expected one of a, b, c, got 'q'"),
        (
            ("a,edit", "a,original"),
            r"line 5: expected one answer for the 'original' .* 'a' again, after line 3",
        ),
        (("a,edit", "c,edit"), r"line 6: expected one answer for the 'edit' .* 'c' again, after line 5"),
        (("b,original", "b,edit"), r"with picture 'original', got none of 'b'; ask"),
        (("a,edit", "a,edti"), r"line 5 column 'picture': .* got 'edti'; did you mean 'edit'?"),
        (("0.25", "1.25"), r"line 2 column 'effusion': expected a probability in \[0, 1\], got '1.25'"),
        (("0.25", "-0.1"), r"line 2 column 'effusion': .* got '-0.1'; log-odds are read with"),
        (("0.25", "high"), r"line 2 column 'effusion': .* got 'high'"),
        (("0.25", "inf"), r"line 2 column 'effusion': .* got 'inf'"),
        (("0.25", ""), r"line 2: expected numbers for all outputs, .* got a blank cell in 'effusion'"),
        (("0.5,0.25", ","), r"with picture 'original', got none of 'b'"),
        (("0.5,0.25", "0.5"), r"line 2: expected 5 cells, got 4"),
        (("id,picture", "image,picture"), r"expected columns id, picture .*, got image, picture"),
        (("id,picture", "id,kind"), r"expected columns id, picture .*, got id, kind"),
        (("pneumonia,effusion", "file,"), r"a column for each output beside id and picture, got id, picture"),
        ((LONG, ""), r"got an empty file"),
        ((LONG, "id,picture,p\n"), r"expected a row for each picture, got no rows"),
        ((LONG, "id,before,after,patient\na,0,0,3\n"), r"column: expected one of .*, got 'patient'"),
        ((LONG, "id,before,after\na,0,0\nb,0,0\na,1,1\nc,0,0\n"), r"line 4: .* 'a' again, after line 2"),
        ((LONG, "id,before,after\na,0,0\n"), r"in column before, got none of 'b' and 1 more"),
    ],
)
def test_what_is_wrong_is_one_line(change: tuple[str, str], sentence: str, table: Path) -> None:
    table.write_text(LONG.replace(*change, 1))
    with pytest.raises(DataError, match=sentence) as error:
        read_answers(table, IDS)
    assert "\n" not in str(error.value)


def test_a_file_that_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a table of answers .*, got nothing there"):
        read_answers(tmp_path / "none.csv", IDS)
    (tmp_path / "answers.txt").write_text(LONG)
    with pytest.raises(DataError, match=r"a table of answers .*, got '.txt'"):
        read_answers(tmp_path / "answers.txt", IDS)


def made() -> Answers:
    rng = np.random.default_rng(0)
    logits = {kind: rng.normal(0, 3, (3, 2)) for kind in ("truth", "null", "original", "edit")}
    logits["edit"][1] = np.nan
    logits["original"][0, 0] = 40.0
    return Answers(("a", 'b,"x"', "ü"), ("pneumonia", "fluid, left"), logits)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    answers = made()
    path = write_answers(tmp_path / "answers.csv", answers)
    found = read_answers(path, answers.ids)
    assert (found.ids, found.outputs) == (answers.ids, answers.outputs)
    assert set(found.logits) == set(answers.logits)
    for kind in answers.logits:
        wanted = np.clip(answers.probabilities(kind), 1e-6, 1 - 1e-6)
        np.testing.assert_allclose(found.probabilities(kind), wanted, rtol=1e-8)
    again = write_answers(tmp_path / "again.csv", found)
    changed = path.read_text().replace("original,1,", "original,0.999999,")
    assert again.read_text() == changed


def test_log_odds_are_written_with_all_digits(tmp_path: Path) -> None:
    answers = made()
    path = write_answers(tmp_path / "answers.csv", answers, logits=True)
    found = read_answers(path, answers.ids, logits=True)
    for kind in answers.logits:
        np.testing.assert_array_equal(found.logits[kind], answers.logits[kind])


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="table to write"):
        write_answers(tmp_path / "answers.txt", made())
    odd = Answers(("\udcff",), ("p",), {"original": np.zeros((1, 1))})
    with pytest.raises(DataError, match=r"expected ids in UTF-8, got '.udcff'"):
        write_answers(tmp_path / "answers.csv", odd)
    assert not (tmp_path / "answers.csv").exists()


@pytest.mark.parametrize(
    ("ids", "outputs", "kind", "values", "sentence"),
    [
        (("a", "a"), ("p",), "edit", np.zeros((2, 1)), "ids of the images: .*'a' twice"),
        ((), ("p",), "edit", np.zeros((0, 1)), "ids of the images: .*got none"),
        (
            ("a",),
            ("p", "p"),
            "edit",
            np.zeros((1, 2)),
            "outputs of the answers: expected different names.*'p'",
        ),
        (
            ("a",),
            ("path",),
            "edit",
            np.zeros((1, 1)),
            "other than id, picture, shortcut, path, file, got 'path'",
        ),
        (("a",), (), "edit", np.zeros((1, 0)), "outputs of the answers: .*got none"),
        (("a",), ("p",), "edited", np.zeros((1, 1)), "kind of picture: .*did you mean 'edit'"),
        (("a",), ("p",), "edit", np.zeros((2, 1)), r"finite float64 \(1, 1\), got float64 \(2, 1\)"),
        (("a",), ("p",), "edit", np.full((1, 1), np.inf), "with infinity"),
        (("a",), ("p",), "edit", np.zeros((1, 1), np.float32), "got float32"),
    ],
)
def test_answers_that_do_not_belong_together(
    ids: tuple[str, ...], outputs: tuple[str, ...], kind: str, values: np.ndarray, sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        Answers(ids, outputs, {kind: values})


def test_a_kind_that_is_not_there() -> None:
    with pytest.raises(InputError, match=r"kind of picture: expected one of .*, got 'reseed'"):
        made().probabilities("reseed")
