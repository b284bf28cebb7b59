"""Make a bundle that comes with the package, from nothing: data, denoiser, guide, oracles, settings, card.

    python tools/make_bundle.py chest-pacemaker --work WORK

Every step is a command of fastdime or a function of fastdime.experiments, and goes on where it was stopped.
The result is WORK/NAME/bundle/NAME, to be copied to src/fastdime/shipped. On one core it takes some hours.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fastdime.bundles import load_bundle
from fastdime.experiments import tune
from fastdime.experiments.oracles import ORACLES, SUBJECTS, train_oracle
from fastdime.experiments.truth import truth

IMAGES, PILOT, SCORED = 20_000, 24, 128
MASKED = {
    "steps": [50],
    "tau": [20, 30],
    "scales": [[10.0, 20.0, 40.0], [20.0, 40.0]],
    "l1": [0.2, 0.4, 0.6],
    "dilation": [3],
}
# A faint change of a whole face: from the noise that is in the image, so that what is around it stays.
INVERTED = {
    "steps": [50],
    "tau": [14, 20],
    "scales": [[3.0, 6.0], [4.0, 8.0]],
    "l1": [0.0],
    "dilation": [3],
    "threshold": [0.1, 0.15],
    "inversion": [True],
}
# The chains have no mask, so the distance holds them: more where the shortcut goes than where it comes.
NULL = {
    "steps": [50],
    "tau": [30],
    "scales": [[10.0, 20.0, 40.0], [20.0, 40.0]],
    "l1": [[0.4, 0.1], [0.6, 0.2], [0.3, 0.1]],
}
TUNED = ("fastdime", "fastdime-2+", "fastdime-null")
# Methods that walk the same chain take the start level and strength that were found for fastdime.
ALIKE = ("fastdime-nomask", "fastdime-2", "fastdime-repaint", "dime", "gmd", "gmd-nomask")
CHAIN = ("steps", "tau", "scales", "l1", "inversion")


@dataclass(frozen=True)
class Plan:
    """What differs between the bundles.

    Attributes:
        denoiser: options of its training.
        masked, null: settings to choose from, for the methods with a mask and for fastdime-null.
        steered: options of a second guide, which is trained to steer the denoiser; none: the first one does.
    """

    seed: int
    denoiser: str
    classes: str
    description: str
    masked: Mapping[str, list[Any]] = field(default_factory=lambda: MASKED)
    null: Mapping[str, list[Any]] = field(default_factory=lambda: NULL)
    steered: str = ""

    @property
    def grids(self) -> dict[str, Mapping[str, list[Any]]]:
        """Settings to choose from, by method."""
        return {method: self.null if method == "fastdime-null" else self.masked for method in TUNED}


PLANS = {
    "chest-pacemaker": Plan(
        21_000, "--widths 40,64,80", "no pacemaker,pacemaker", "chest X-ray phantom: is there a pacemaker?"
    ),
    "chest-drain": Plan(
        21_001, "--widths 40,64,80", "no drain,drain", "chest X-ray phantom: is there a chest drain?"
    ),
    "skin-ruler": Plan(21_002, "--widths 64,64,64", "no ruler,ruler", "skin phantom: are there ruler marks?"),
    "face-smile": Plan(
        21_003,
        "--widths 24,40,64,88 --patch 2 --batch-size 16 --learning-rate 4e-4 --set optimizer=muon "
        "--focus 0.42 --emphasis guide-before",
        "no smile,smile",
        "face phantom: does the face smile?",
        INVERTED,
        INVERTED,
        "--architecture placed-cnn --steps 4000 --batch-size 32 --learning-rate 1e-3 --set optimizer=muon "
        "--set ema=0.995 --set validate_every=500 --augment shift=0 --augment erase=0 --augment blur=0 "
        "--augment noise=0.1",
    ),
}


def main() -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=PLANS)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--start", type=Path, help="denoiser to begin with")
    parser.add_argument("--updates", type=int, default=16_000, help="of the denoiser")
    wanted = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    folder = wanted.work / wanted.name
    folder.mkdir(parents=True, exist_ok=True)
    more: list[Any] = ["--steps", wanted.updates]
    if wanted.start:
        shutil.copytree(wanted.start, folder / "start", dirs_exist_ok=True)
        more += ["--from", "start"]
    os.chdir(folder)
    make(wanted.name, PLANS[wanted.name], more)


def make(name: str, plan: Plan, more: list[Any]) -> None:
    """Do everything, in the folder one is in."""
    commands = [run(*words) for words in trainings(name, plan, more)]
    oracles = {oracle: oracle_of(name, oracle, plan.seed) for oracle in ORACLES}
    if not Path("settings.json").exists():
        write_settings(name, plan, pack(name, plan, "untuned"))
    settings = ["--settings", "settings.json"]
    rows = truth([pack(name, plan, "scored", *settings)], list(TUNED), SCORED)
    cards = {part: json.loads((Path(part) / "card.json").read_text()) for part in ("denoiser", "guide")}
    text = card(name, plan, commands, cards, oracles, rows)
    Path("card.md").write_text(text)
    print(pack(name, plan, "bundle", *settings, "--card", "card.md"))


def trainings(name: str, plan: Plan, more: list[Any]) -> Iterator[list[Any]]:
    """Yield the commands that draw the images and train guide and denoiser."""
    drawn = ["--n", IMAGES, "--seed", plan.seed, "--split", "train=1", "--no-truth", "--out", "data"]
    yield ["data", "phantom", name, *drawn]
    table = ["--data", "data/table.csv"]
    guide = ["train", "guide", *table, "--valid-share", 0.05]
    first = ["--width", 16, "--set", "ema=0.995", "--steps", 2500, "--batch-size", 64]
    yield [*guide, *first, "--out", "guide-before" if plan.steered else "guide"]
    shape = [*shlex.split(plan.denoiser), "--set", "log_every=50"]
    yield ["train", "denoiser", *table, "--out", "denoiser", *shape, *more]
    if plan.steered:
        yield [*guide, "--steer", "denoiser", *shlex.split(plan.steered), "--out", "guide"]


def run(*words: object) -> str:
    """Run a command of fastdime, and return it as one would type it."""
    command = ["fastdime", *map(str, words)]
    print("$", shlex.join(command), flush=True)
    subprocess.run([sys.executable, "-m", *command], check=True)
    return shlex.join(command)


def oracle_of(name: str, oracle: str, seed: int) -> dict[str, Any]:
    """Train an oracle, with a seed of its own."""
    own = seed + 3000 + 10 * list(ORACLES).index(oracle)
    trained = train_oracle(name, oracle, Path("oracles") / oracle, own)
    return {"seed": own, "subjects": SUBJECTS[oracle], "images_seen": trained.images_seen, **trained.scores}


def pack(name: str, plan: Plan, place: str, *more: object) -> Path:
    """Put everything into one folder."""
    out = Path(place) / name
    shutil.rmtree(out, ignore_errors=True)
    words = [out, "--denoiser", "denoiser/denoiser", "--classifier", "guide/classifier", "--half"]
    words += ["--classes", plan.classes, "--description", plan.description, *more]
    for oracle in ORACLES:
        words += ["--oracle", f"{oracle}=oracles/{oracle}/classifier"]
    run("bundle", "pack", *words)
    return out


def write_settings(name: str, plan: Plan, packed: Path) -> None:
    """Choose the settings of each method on pilot subjects."""
    bundle, chosen, tried = load_bundle(packed), {}, {}
    for method, grid in plan.grids.items():
        rows = tune.tune(bundle, name, method, grid, PILOT, lambda done, of: print(done, of, flush=True))
        chosen[method], tried[method] = rows[0]["settings"], rows
    for method in ALIKE:
        chosen[method] = {field: chosen["fastdime"][field] for field in CHAIN if field in chosen["fastdime"]}
    Path("sweep.json").write_text(json.dumps(tried, indent=1) + "\n")
    Path("settings.json").write_text(json.dumps(chosen, indent=1) + "\n")


def card(
    name: str,
    plan: Plan,
    commands: list[str],
    cards: dict[str, Any],
    oracles: dict[str, Any],
    rows: list[Any],
) -> str:
    """Write the model card, with scores on subjects that nothing was trained or tuned on."""
    parts = [
        f"# {name}",
        f"Denoiser, guide and oracles for the phantom `{name}`, made by `python tools/make_bundle.py {name} "
        "--work WORK` (with --updates and --start as in its second line), which ran:",
        "```sh\n" + "\n".join(commands) + "\n```",
        table([{"part": part, **trained(told)} for part, told in cards.items()]),
        "Oracles (`fastdime.experiments.oracles.train_oracle`, architecture small-resnet):",
        table([{"oracle": oracle, **told} for oracle, told in oracles.items()]),
        f"Settings: chosen from {tries(plan)} combinations on {PILOT} pilot subjects (seed {tune.SEED}, "
        "`fastdime.experiments.tune`), each with the shortcut and without. Scores on "
        f"{SCORED} other subjects (`fastdime bench truth --phantom {name} --methods {','.join(TUNED)} "
        f"--n {SCORED}`):",
        table([{key: row[key] for key in row if key != "phantom"} for row in rows]),
        "Made for tests, demonstrations and studies with exact truth. The images are synthetic: nothing here "
        "is for use on patients.",
    ]
    return "\n\n".join(parts) + "\n"


def tries(plan: Plan) -> str:
    """Say how many combinations were tried for each method."""
    counts = {method: len(list(tune.combinations(grid))) for method, grid in plan.grids.items()}
    return ", ".join(f"{count} ({method})" for method, count in counts.items())


def trained(told: dict[str, Any]) -> dict[str, Any]:
    names = ("parameters", "seed", "images", "updates", "images_seen", "hours")
    scores = {f"validation {name}": value for name, value in told["validation"].items()}
    return {name: told[name] for name in names} | scores


def table(rows: list[dict[str, Any]]) -> str:
    """Write rows as Markdown; what a row does not have stays blank."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [names, ["---"] * len(names), *([shown(row.get(name, "")) for name in names] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
