"""Whole audits of a tiny world."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fastdime.audit.audit import audit
from fastdime.audit.evidence import holm
from fastdime.audit.output import write_audit
from fastdime.classifiers.wrapper import ImageClassifier
from fastdime.data import io
from fastdime.errors import DataError, InputError
from fastdime.runs import image_path
from support.commands import files
from support.shortcuts import Killed, N, World, blind, draw, killing, leaning


def means(kind: str, picture: Callable[[int], Path], model: Callable[[Tensor], Tensor]) -> np.ndarray:
    """Ask a model about the pictures of all images, without any code of the audit."""
    x = torch.stack([io.read(picture(i)).x for i in range(N)])
    return model(x).sigmoid().double().numpy()


# --- what it finds ---------------------------------------------------------------------------------------


def test_a_model_that_leans_and_one_that_cannot_see(made: Any) -> None:
    rows = {row.model: row for row in made.found.audit.rows}
    assert rows["leaning"].verdict == "relies"
    assert rows["blind"].verdict in ("no reliance above m", "cannot tell")
    assert rows["leaning"].md_with.value > 0.2
    assert rows["leaning"].md_without.value < -0.2
    assert rows["leaning"].null.n == rows["leaning"].reseed.n == 4
    assert rows["blind"].mad.value == 0
    assert made.found.audit.warnings == ()


def test_the_numbers_are_those_of_the_pictures(made: Any) -> None:
    row, home = made.found.audit.rows[0], made.out / "mark"
    before = means("original", lambda i: made.world.table.parent / f"{i}.png", leaning)
    after = means("edit", lambda i: image_path(home / "edit", f"image-{i}"), leaning)
    placebo = means("placebo", lambda i: home / "placebo" / f"image-{i}.png", leaning)
    change, has = before - after, np.arange(N) % 2 == 1
    wanted = {
        "mad": np.abs(change).mean(),
        "md_with": change[has].mean(),
        "md_without": change[~has].mean(),
        "placebo": np.abs(before - placebo).mean(),
        "effect": (np.abs(change) - np.abs(before - placebo)).mean(),
    }
    assert {name: getattr(row, name).value for name in wanted} == pytest.approx(wanted, abs=1e-5)


def test_the_card_of_the_generator(made: Any) -> None:
    [card] = made.found.audit.generators
    assert (card.bundle, card.method, card.folder) == ("squares", "fastdime-null", "mark")
    assert (card.images, card.removals, card.additions, card.failed) == (N, N // 2, N // 2, 0)
    assert (card.compliance.oracle, card.compliance.independent) == ("squares/shortcut", True)
    assert card.compliance.removed.value == card.compliance.added.value == 1
    assert [(test.name, test.passed) for test in card.self_tests] == [("null edit", True), ("way back", True)]
    assert {"change", "changed_area", "change_outside_mask", "task_oracle"} == card.collateral.keys()
    assert card.collateral["change_outside_mask"].value == 0
    assert card.settings["scales"] == [1500.0, 4000.0]


def test_strata_and_areas(made: Any) -> None:
    row = made.found.audit.rows[0]
    assert [part.value for part in row.strata if part.by == "site"] == ["north", "south"]
    assert sum(part.mad.n for part in row.strata if part.by == "shortcut x task") == N
    assert made.found.audit.rows[1].auroc.before == 1  # the blind one looks at the task


def test_patients_change_the_interval(made: Any) -> None:
    alone = made.world.audit(made.out, group="none").audit
    named = made.world.audit(made.out, group="site").audit
    patients = made.found.audit
    assert (patients.group, alone.group, named.group) == ("patient", None, "site")
    found = [each.rows[0].effect for each in (patients, alone, named)]
    assert [each.clusters for each in found] == [N // 2, N, 2]
    assert len({each.value for each in found}) == 1
    assert len({(each.low, each.high) for each in found}) == 3
    assert named.rows[0].verdict == "cannot tell"  # two places are no patients


def test_every_output_of_a_model_is_a_row(made: Any) -> None:
    def three(x: Tensor) -> Tensor:
        return torch.stack([leaning(x), blind(x), 0 * blind(x)], 1)

    models = {
        "labels": ImageClassifier(three, kind="multilabel"),
        "classes": ImageClassifier(three, kind="multiclass"),
    }
    rows = made.world.audit(made.out, models).audit.rows
    names = [("labels", f"label {i}") for i in range(3)] + [("classes", f"class {i}") for i in range(3)]
    assert [(row.model, row.output) for row in rows] == names
    assert rows[0].effect == made.found.audit.rows[0].effect
    assert rows[0].verdict == "relies"
    assert rows[2].reason.endswith("as if the predictions were constant")
    np.testing.assert_allclose([row.p_adjusted for row in rows], holm([row.p for row in rows]))


def test_shortcuts_and_models_make_a_matrix(world: World, tmp_path: Path) -> None:
    both = dict.fromkeys(("mark", "other"), str(world.bundle))
    found = world.audit(tmp_path / "out", shortcuts=both, group="none", controls=0)
    keys = [(row.shortcut, row.model) for row in found.audit.rows]
    assert keys == [(s, m) for s in ("mark", "other") for m in ("leaning", "blind")]
    assert [card.folder for card in found.audit.generators] == ["mark", "other"]
    assert found.audit.rows[0].verdict == "relies"
    assert found.audit.rows[2].mad.value < found.audit.rows[0].mad.value  # half of these edits have no work
    np.testing.assert_allclose(
        [row.p_adjusted for row in found.audit.rows], holm([row.p for row in found.audit.rows])
    )
    assert found.audit.rows[0].null.n == 0


# --- going on --------------------------------------------------------------------------------------------


def stamps(folder: Path) -> dict[str, int | bytes]:
    pictures = {str(path): path.stat().st_mtime_ns for path in folder.rglob("*.png")}
    return {**pictures, **{str(path): path.read_bytes() for path in folder.rglob("*.json*")}}


def test_a_second_call_makes_nothing_anew(made: Any) -> None:
    before = stamps(made.out)
    again = made.world.audit(made.out, task="sick", by=("site",))
    assert again.audit == made.found.audit
    assert stamps(made.out) == before


def test_killed_at_any_moment_it_ends_the_same(made: Any, tmp_path: Path) -> None:
    request, out = made.world.request(task="sick", by=("site",)), tmp_path / "out"
    models, kills = {"leaning": leaning, "blind": blind}, 0
    for reports in (1, 4, 7, 2, 9, 3):
        try:
            audit(request, models, out, killing(reports))
        except Killed:
            kills += 1
    assert kills == 6
    assert made.world.audit(out, task="sick", by=("site",)).audit == made.found.audit
    ours, theirs = files(out), files(made.out)
    assert ours.keys() == theirs.keys()
    pictures = [name for name in ours if name.endswith(".png") and not name.startswith("mark/back")]
    assert len(pictures) == 3 * N + 2 * 2 * 4  # edits with masks, placebos, and two controls with masks
    assert all(ours[name] == theirs[name] for name in pictures)


def test_the_seed_is_that_of_the_noise(made: Any, tmp_path: Path) -> None:
    made.world.audit(tmp_path, seed=5, limit=4, controls=4)
    one, other = (image_path(out / "mark" / "null", "image-0") for out in (made.out, tmp_path))
    assert one.read_bytes() != other.read_bytes()
    told = [json.loads((tmp_path / "mark" / kind / "config.json").read_text()) for kind in ("edit", "reseed")]
    assert told[0]["seed"] == 5 != told[1]["seed"]


def test_a_folder_of_another_audit_is_refused(made: Any) -> None:
    with pytest.raises(InputError, match=r"seed: the run has 0, you ask for 1; choose another --out"):
        made.world.audit(made.out, seed=1)


def test_the_batch_size_does_not_matter(world: World, tmp_path: Path) -> None:
    one, other = (
        world.audit(tmp_path / str(size), {"net": leaning}, limit=10, controls=0, batch_size=size).audit.rows[
            0
        ]
        for size in (3, 10)
    )
    assert one.verdict == other.verdict == "relies"
    assert one.effect.model_dump() == pytest.approx(other.effect.model_dump(), abs=1e-3)


# --- answers from elsewhere ------------------------------------------------------------------------------


def answered(pictures: Path, out: Path, model: Callable[[Tensor], Tensor]) -> Path:
    """Do what a user does elsewhere: read pictures.csv, and add a column with the answers."""
    with pictures.open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["sick"] = f"{float(model(io.read(row['path']).x[None]).sigmoid()):.9f}"
    with out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return out


def test_a_table_of_answers_about_our_pictures(made: Any, tmp_path: Path) -> None:
    found = made.world.audit(made.out, {})
    assert found.audit.rows == ()
    write_audit(found, tmp_path)
    table = answered(tmp_path / "pictures.csv", tmp_path / "answers.csv", leaning)
    [row] = made.world.audit(made.out, {"elsewhere": str(table)}).audit.rows
    assert (row.model, row.output, row.verdict) == ("elsewhere", "sick", "relies")
    here = made.found.audit.rows[0]
    for name in ("effect", "mad", "placebo", "null", "reseed", "complier"):
        assert getattr(row, name).model_dump() == pytest.approx(getattr(here, name).model_dump(), abs=1e-4)


def short_table(folder: Path, placebo: bool, skip: int = -1) -> Path:
    lines = [f"id,before,after{',placebo' if placebo else ''}"]
    for i in range(N):
        move = (0.3 + 0.01 * (i % 5)) * (1 if i % 2 else -1)
        after = "" if i == skip else f"{0.5 - move:.3f}"
        lines.append(f"image-{i},0.5,{after}" + (f",{0.5 + 0.002 * i:.3f}" if placebo else ""))
    path = folder / "short.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_answers_about_pictures_that_were_made_elsewhere(world: World, tmp_path: Path) -> None:
    table = short_table(tmp_path, placebo=True)
    found = world.audit(tmp_path / "out", {"elsewhere": table}, shortcuts={"mark": None}, task="sick").audit
    [row], [card] = found.rows, found.generators
    assert (row.verdict, row.output) == ("relies", "class 1")
    assert row.md_with.value == pytest.approx(0.32, abs=0.01)
    assert (card.bundle, card.method, card.compliance, card.self_tests) == (None, None, None, ())
    said = "mark: no bundle, so compliance, collateral change and self-tests are not known"
    assert found.warnings == (said,)
    assert not (tmp_path / "out").exists()  # nothing is made


def test_without_answers_about_placebos_nothing_is_claimed(world: World, tmp_path: Path) -> None:
    table = short_table(tmp_path, placebo=False, skip=3)
    found = world.audit(tmp_path / "out", {"net": table}, shortcuts={"mark": None}).audit
    assert found.rows[0].verdict == "cannot tell"
    assert found.warnings[1:] == (
        f"mark, net: 1 of {N} images have no answer about their edit and are left out",
        "mark, net: no answers about placebo edits, so the effect is the whole change",
    )


def test_answers_of_several_shortcuts_say_which(made: Any, tmp_path: Path) -> None:
    both = {"mark": None, "other": None}
    table = short_table(tmp_path, placebo=True)
    with pytest.raises(DataError, match=r"expected a column 'shortcut', because more than one is audited"):
        made.world.audit(tmp_path / "out", {"net": table}, shortcuts=both)
    head, *lines = table.read_text().splitlines()
    still = [f"{line.split(',')[0]},0.5,0.{500 + i},0.5" for i, line in enumerate(lines)]
    rows = [f"mark,{line}" for line in lines] + [f"other,{line}" for line in still]
    table.write_text("\n".join([f"shortcut,{head}", *rows]) + "\n")
    mark, other = made.world.audit(tmp_path / "out", {"net": table}, shortcuts=both).audit.rows
    assert (mark.verdict, other.verdict) == ("relies", "no reliance above m")


# --- exact counterfactuals -------------------------------------------------------------------------------


def write_phantom(folder: Path, truth: bool = True) -> Path:
    """Write what a phantom set has, with images of the tiny world."""
    for part in ("images", "truth/other"):
        (folder / part).mkdir(parents=True)
    lines = ["id,path,shortcut,task"]
    for i in range(12):
        shortcut, task = i % 2, i // 2 % 2
        io.write_image(folder / "images" / f"{i}.png", draw(i, shortcut, task))
        io.write_image(folder / "truth" / "other" / f"{i}.png", draw(i, 1 - shortcut, task))
        lines.append(f"{i},images/{i}.png,{shortcut},{task}")
    (folder / "dataset.json").write_text(json.dumps({"phantom": "tiny", "truth": truth}))
    (folder / "table.csv").write_text("\n".join(lines) + "\n")
    return folder / "table.csv"


def test_the_truth_of_phantoms_stands_beside_the_estimate(world: World, tmp_path: Path) -> None:
    table = write_phantom(tmp_path / "set")
    asked = {"data": table, "shortcuts": {"shortcut": str(world.bundle)}, "controls": 0}
    found = world.audit(tmp_path / "out", **asked).audit
    x, other = (
        torch.stack([io.read(tmp_path / "set" / part / f"{i}.png").x for i in range(12)])
        for part in ("images", "truth/other")
    )
    change = (leaning(x).sigmoid() - leaning(other).sigmoid()).numpy()
    truth = found.rows[0].truth
    assert truth.mad.value == pytest.approx(np.abs(change).mean(), abs=1e-5)
    assert truth.md_with.value == pytest.approx(change[1::2].mean(), abs=1e-5)
    assert truth.effect.value == pytest.approx(truth.mad.value - truth.placebo.value, abs=1e-5)
    assert truth.mad.n == 12
    assert 0 < found.generators[0].collateral["change_outside_truth"].value < 0.05


def test_sets_without_truth_have_none(world: World, tmp_path: Path) -> None:
    table = write_phantom(tmp_path / "set", truth=False)
    asked = {"data": table, "shortcuts": {"shortcut": str(world.bundle)}, "controls": 0, "limit": 2}
    assert world.audit(tmp_path / "out", **asked).audit.rows[0].truth is None
