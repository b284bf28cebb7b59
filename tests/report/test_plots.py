import re
from pathlib import Path

import pytest

from fastdime.audit.schema import Audit
from fastdime.report.dose import Dose, DoseRow
from fastdime.report.plots import Axis, Forest, dose_plot, forests, overview
from fastdime.report.tables import Cell, effects_table, matrix, strata_table
from fastdime.report.words import MINUS
from support.audits import Plan, make_audit

STYLE = Path(__file__).parents[2] / "src" / "fastdime" / "report" / "templates" / "style.css"


def made(folder: Path, plan: Plan) -> Audit:
    return Audit.model_validate_json((make_audit(folder, plan) / "audit.json").read_bytes())


@pytest.mark.parametrize(
    ("values", "low", "high", "labels"),
    [
        ([-0.05, 0.05], -0.06, 0.06, ["-0.06", "-0.04", "-0.02", "0.00", "0.02", "0.04", "0.06"]),
        ([0.42], 0, 0.5, ["0.0", "0.1", "0.2", "0.3", "0.4", "0.5"]),
        ([-0.9, 1.0], -1, 1, ["-1.0", "-0.5", "0.0", "0.5", "1.0"]),
        ([0.0], 0, 0.01, ["0.00", "0.01"]),
        ([float("nan"), 0.005], 0, 0.01, ["0.00", "0.01"]),
        ([-0.25, 1.0], -0.25, 1, ["-0.25", "0.00", "0.25", "0.50", "0.75", "1.00"]),
        ([], 0, 0.01, ["0.00", "0.01"]),
    ],
)
def test_axes_end_at_round_numbers(values: list[float], low: float, high: float, labels: list[str]) -> None:
    axis = Axis.over(values)
    assert (axis.low, axis.high) == pytest.approx((low, high))
    assert [tick.text.replace(MINUS, "-") for tick in axis.ticks] == labels
    assert axis.at(low) == 2
    assert axis.at(high) == 98


def places(plot: Forest) -> dict[str, tuple[float, float | None, float | None]]:
    return {line.label: (line.at, line.low, line.high) for line in plot.lines}


def test_marks_stand_where_the_numbers_are(tmp_path: Path) -> None:
    audit = made(tmp_path, Plan(models=("a", "b", "c")))
    plots = forests(audit)
    axis = plots[0].axis
    assert {plot.axis for plot in plots} == {axis}
    assert places(plots[0])["Effect above placebo"] == (axis.at(0.31), axis.at(0.28), axis.at(0.34))
    assert places(plots[0])["MD (s=0): added"] == (axis.at(-0.35), axis.at(-0.38), axis.at(-0.32))
    left, width = plots[0].band
    assert left == axis.at(-0.05)
    assert left + width == pytest.approx(axis.at(0.05))
    every = [end for plot in plots for line in plot.lines for end in (line.low, line.at, line.high)]
    assert all(end is not None and 2 <= end <= 98 for end in every)
    whole = overview(audit)
    assert whole is not None
    assert [line.label for line in whole.lines] == ["a: pacemaker", "b: pacemaker", "c: pacemaker"]
    assert overview(made(tmp_path / "two", Plan(models=("a", "b")))) is None


def test_doses_from_left_to_right() -> None:
    rows = [
        DoseRow(k=100, mad=0.4, mad_sd=0.1, ideal_mad=0.5),
        DoseRow(k=50, mad=0.1),
        DoseRow(k=75, mad=0.2),
    ]
    plot = dose_plot(Dose(rows=tuple(rows)))
    assert [(tick.at, tick.text) for tick in plot.across] == [(5, "50"), (50, "75"), (95, "100")]
    assert plot.legend == (("effect", "MAD by the edits"), ("control", "Ideal observer"))
    first, _, last = plot.curves[0].points
    assert (first.x, last.x) == (5, 95)
    assert first.y > last.y  # more is higher up
    assert (first.low, first.high) == (None, None)
    assert last.high is not None
    assert last.high < last.y < (last.low or 0)
    assert dose_plot(Dose(rows=(DoseRow(k=50, mad=0.1),))).curves[0].points[0].x == 50


def test_tables_leave_out_what_says_nothing(tmp_path: Path) -> None:
    one = made(tmp_path / "one", Plan(extras=False, by=()))
    assert effects_table(one).titles[:4] == ("Shortcut", "Model", "Output", "Verdict")
    assert "True effect" not in effects_table(one).titles
    assert "Patients" in effects_table(one).titles
    strata = strata_table(one)
    assert strata is not None
    assert strata.titles == ("By", "Value", "Images", "Effect", "MAD", "MD")
    assert strata.numeric == (False, False, True, True, True, True)
    assert matrix(one) is None
    many = made(tmp_path / "many", Plan(models=("a", "b"), shortcuts=("s", "t")))
    table = effects_table(many)
    assert table.titles[:3] == ("Shortcut", "Model", "Verdict")
    assert table.rows[0][3] == Cell("0.310", "0.280 to 0.340", 0.31, "strong")
    found = matrix(many)
    assert found is not None
    assert found.shortcuts == ("s", "t")
    kinds = [(name, [cell.style if cell else "" for cell in cells]) for name, cells in found.rows]
    assert kinds == [("a", ["relies", "unknown"]), ("b", ["none", "relies"])]


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_text_can_be_read_in_light_and_dark() -> None:
    light, dark = (
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", part))
        for part in re.findall(r":root \{(.*?)\}", STYLE.read_text(encoding="utf8"), flags=re.DOTALL)
    )
    assert light.keys() == dark.keys()
    for colours in (light, dark):
        for name in ("ink", "quiet", "blue", "orange", "grey"):
            for ground in ("paper", "panel"):
                assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
        for name in ("blue", "orange", "grey"):
            assert contrast(colours["on-colour"], colours[name]) >= 4.5, name
