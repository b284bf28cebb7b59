"""Make up the folder of an audit: small pictures and numbers, no model and no diffusion."""

import csv
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

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
from fastdime.data.io import write_image, write_mask
from fastdime.runs import file_stem, image_path, mask_path

NUMBERS = ("p_before", "p_after", "p_placebo", "p_null", "p_reseed", "p_truth", "change", "effect")
COLUMNS = ("shortcut", "model", "output", "id", "has", "task", "group", *NUMBERS, "complied")
KINDS = ("relies", "no reliance above m", "cannot tell")
SIZES = (0.31, 0.006, 0.06)  # effect of each kind of verdict
Draw = Callable[[int], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Plan:
    """What to make up; the verdicts of the rows go round through all three."""

    ids: tuple[str, ...] = tuple(f"image-{i}" for i in range(8))
    shortcuts: tuple[str, ...] = ("pacemaker",)
    models: tuple[str, ...] = ("resnet",)
    outputs: tuple[str, ...] = ("effusion",)
    by: tuple[str, ...] = ("sex",)
    extras: bool = True
    warnings: tuple[str, ...] = ("pacemaker: the oracle sees the shortcut added in only 71% of the images",)


def noise(size: int = 16, channels: int = 1) -> Draw:
    """Draw gray noise, and a counterfactual that is lighter in one square and darker in another."""

    def draw(number: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(number)
        x = torch.rand(channels, size, size, generator=generator) - 0.5
        after = x.clone()
        after[:, 2:5, 2:5] += 0.4
        after[:, 8:10, 8:12] -= 0.3
        return x, after

    return draw


def interval(value: float | None, reach: float = 0.03, n: int = 40, clusters: int = 25) -> Interval:
    ends = (None, None) if value is None else (round(value - reach, 6), round(value + reach, 6))
    return Interval(value=value, low=ends[0], high=ends[1], n=n, clusters=clusters)


def row(plan: Plan, number: int, names: tuple[str, str, str]) -> Row:
    kind, size = KINDS[number % 3], SIZES[number % 3]
    strata = [("shortcut x task", f"shortcut {s}, task {t}") for s in (0, 1) for t in (0, 1)]
    strata += [(name, value) for name in plan.by for value in ("a", "b")]
    return Row(
        shortcut=names[0],
        model=names[1],
        output=names[2],
        verdict=kind,
        reason=f"the effect above placebo is {size} in 40 images of 25 patients, and its 90 % interval is so",
        effect=interval(size),
        mad=interval(size + 0.03),
        md_with=interval(size + 0.02),
        md_without=interval(-size - 0.04),
        logit=interval(4 * size, 0.3),
        logit_with=interval(4 * size, 0.3),
        logit_without=interval(-4 * size, 0.3),
        placebo=interval(0.03, 0.01),
        null=interval(0.012, 0.004),
        reseed=interval(0.02, 0.008),
        complier=interval(size + 0.05),
        p=0.00002 if kind == "relies" else 0.4,
        p_adjusted=0.00004 if kind == "relies" else 0.8,
        p_equivalence=0.002 if kind == "no reliance above m" else None,
        size=round(size * 4, 3),
        detectable=0.04,
        flips=Flips(to_one=3, to_zero=round(40 * size), p=0.04),
        auroc=Areas(before=0.91, after=0.84, change=interval(-0.07), p=0.01),
        truth=_truth(size) if plan.extras else None,
        strata=tuple(
            Stratum(
                by=by, value=value, mad=interval(size + i / 100), md=interval(size), effect=interval(size)
            )
            for i, (by, value) in enumerate(strata)
        ),
    )


def _truth(size: float) -> Truth:
    values = {
        "mad": size + 0.04,
        "md_with": size,
        "md_without": -size,
        "placebo": 0.02,
        "effect": size + 0.01,
    }
    return Truth(**{name: interval(value) for name, value in values.items()})


def generator(name: str, images: int) -> Generator:
    return Generator(
        shortcut=name,
        bundle="chest-pacemaker",
        method="fastdime-null",
        settings={"tau": 60, "scales": [8, 10], "l1": 0.05, "second_pass": "null"},
        folder=file_stem(name),
        images=images,
        removals=(images + 1) // 2,
        additions=images // 2,
        failed=1,
        compliance=Compliance(
            oracle="chest-pacemaker/shortcut",
            independent=True,
            removed=interval(0.97),
            added=interval(0.71, 0.1),
        ),
        collateral={"change": interval(0.011, 0.002), "changed_area": interval(0.06, 0.01)},
        self_tests=(
            SelfTest(name="null edit", passed=True, value=0.011, limit=0.03, text="returns the image"),
            SelfTest(name="there and back", passed=False, value=0.04, limit=0.02, text="returns nearer"),
        ),
    )


def make_audit(out: Path, plan: Plan | None = None, draw: Draw | None = None) -> Path:
    """Write the folder of an audit; returns its path."""
    plan, draw = plan or Plan(), draw or noise()
    names = [(s, m, o) for s in plan.shortcuts for m in plan.models for o in plan.outputs]
    rows = [row(plan, number, name) for number, name in enumerate(names)]
    audit = Audit(
        versions={"fastdime": "0.1.0", "torch": "2.13.0"},
        data="images/table.csv",
        images=len(plan.ids),
        task="effusion",
        group="patient",
        by=plan.by,
        margin=0.05,
        alpha=0.05,
        seed=7,
        generators=tuple(generator(name, len(plan.ids)) for name in plan.shortcuts),
        rows=tuple(rows),
        warnings=plan.warnings,
    )
    run = out / "audit"
    run.mkdir(parents=True)
    (run / "audit.json").write_text(audit.model_dump_json(indent=1), encoding="utf8")
    for name in plan.shortcuts:
        make_pictures(out, run / file_stem(name), plan, draw)
    _write_effects(run / "effects.csv", plan, rows)
    if plan.extras:
        doses = [
            {"k": k, "mad": k / 250, "mad_sd": 0.02, "mad_true": k / 230, "ideal_mad": (k - 50) / 120}
            for k in (100, 75, 50)
        ]
        (run / "dose.json").write_text(json.dumps({"rows": doses, "trend_p": 0.0004}), encoding="utf8")
    return run


def _write_effects(path: Path, plan: Plan, rows: Sequence[Row]) -> None:
    with path.open("w", encoding="utf8", errors="surrogateescape", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*COLUMNS, *plan.by])
        for given in rows:
            for i, name in enumerate(plan.ids):
                writer.writerow([given.shortcut, given.model, given.output, name, *_numbers(given, i, plan)])


def _numbers(given: Row, i: int, plan: Plan) -> list[object]:
    """Image i moves by a share of the effect of its row: most in the middle of the list."""
    has, share = 1 - i % 2, math.sin(math.pi * (i + 1) / (len(plan.ids) + 1))
    moved = (given.mad.value or 0) * share * (1 if has else -1)
    before = 0.8 if has else 0.2
    placebo = 0.02 * (i % 3)
    controls = [before - placebo, before - 0.01, before - moved * 0.9, before - moved * 1.1]
    facts = [f"patient-{i // 2}", *(f"{number:.6f}" for number in (before, before - moved, *controls))]
    changes = [f"{moved:.6f}", f"{abs(moved) - placebo:.6f}", int(i % 5 > 0)]
    return [has, i % 2, *facts, *changes, *("ab"[i % 2] for _ in plan.by)]


def make_pictures(data: Path, home: Path, plan: Plan, draw: Draw) -> None:
    """Write originals, and everything that the folder of a shortcut has."""
    edit = home / "edit"
    (edit / "images").mkdir(parents=True)
    (data / "images").mkdir(exist_ok=True)
    records = []
    for i, name in enumerate(plan.ids):
        x, after = draw(i)
        original = data / "images" / f"{i}.png"
        write_image(original, x, durable=False)
        write_image(image_path(edit, name), after, durable=False)
        mask = (after - x).abs().amax(0, keepdim=True) > 0
        write_mask(mask_path(edit, name), mask, durable=False)
        records.append(_record(name, original, i))
        for kind in ("placebo", *(["truth"] if plan.extras else [])):
            (home / kind).mkdir(exist_ok=True)
            shifted = x + (after - x).roll(x.shape[-1] // 2, -1) if kind == "placebo" else after
            write_image(home / kind / f"{file_stem(name)}.png", shifted.clamp(-1, 1), durable=False)
        if plan.extras and i < 6:
            _write_more(home, name, plan, x, after)
    config = {"kind": "explain", "method": "fastdime-null", "seed": 7, "size": None, "convert": False}
    (edit / "config.json").write_text(json.dumps(config), encoding="utf8")
    (edit / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in records), encoding="utf8")


def _record(name: str, original: Path, i: int) -> dict[str, object]:
    numbers = {"predicted": i % 2, "target": 1 - i % 2, "p_before": 0.1, "p_after": round(0.9 - i / 50, 6)}
    costs = {"change": 0.02, "changed_area": 0.1, "denoiser_calls": 60, "gradient_calls": 60}
    return {
        "id": name,
        "path": str(original.absolute()),
        "valid": i % 4 > 0,
        "scale": 8.0,
        **numbers,
        **costs,
    }


def _write_more(home: Path, name: str, plan: Plan, x: Tensor, after: Tensor) -> None:
    """SmoothGrad, and the path."""
    stem = file_stem(name)
    for model in plan.models:
        folder = home / "smoothgrad" / file_stem(model)
        folder.mkdir(parents=True, exist_ok=True)
        heat = (after - x).abs().mean(0, keepdim=True)
        write_image(folder / f"{stem}.png", (2 * heat / heat.max().clamp(min=1e-6) - 1), durable=False)
    (home / "path" / stem).mkdir(parents=True)
    for step, share in enumerate(np.linspace(0, 1, 10)):
        write_image(home / "path" / stem / f"{step}.png", (x + (after - x) * float(share)), durable=False)
