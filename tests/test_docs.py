"""The documentation is run, and compared with the code it speaks of."""

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from torch import nn

import fastdime
from fastdime import toy
from fastdime.classifiers.networks import ARCHITECTURES as CLASSIFIERS
from fastdime.cli import app
from fastdime.counterfactuals.methods import METHODS, PRESETS, cost, settings_for
from fastdime.counterfactuals.settings import AceSettings, GuidedSettings, Settings, TurboSettings
from fastdime.diffusion.guided_unet import guided_config, guided_names
from fastdime.diffusion.monai_unet import monai_name
from fastdime.diffusion.sidecar import ARCHITECTURES as DENOISERS
from fastdime.diffusion.sidecar import Sidecar
from fastdime.diffusion.unet import Heads, Layout, build_unet, unet_config
from fastdime.pipeline.summary import Summary
from support.pages import (
    ROOT,
    anchors,
    apply,
    assert_same_output,
    blocks,
    codes,
    commands,
    links,
    rows,
    run_in_shell,
    text_of,
)
from support.recordings import DIRECTORY

README, CONTRIBUTING, CHANGELOG = (ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG"))
PAGES = [README, CONTRIBUTING, CHANGELOG, *sorted((ROOT / "docs").glob("*.md"))]
METHODS_PAGE, MODELS_PAGE, RUNNING_PAGE, ARCHITECTURE_PAGE = (
    ROOT / "docs" / f"{name}.md" for name in ("methods", "models", "running", "architecture")
)
PARTS = {"gradient", "mask", "second_pass"}  # what the table of recipes shows


def of_pages(pages: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", pages, ids=lambda page: page.stem)


# --- programs and commands -------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """The images are tiny: threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def theirs(unet: nn.Module, name_of: Callable[[str], str]) -> dict[str, torch.Tensor]:
    """Return the weights of a network under the names of another program; equal names are joined."""
    weights: dict[str, torch.Tensor] = {}
    for name, tensor in unet.state_dict().items():
        layer, _, kind = name.rpartition(".")
        old = f"{name_of(layer)}.{kind}"
        weights[old] = torch.cat([weights[old], tensor]) if old in weights else tensor
    return weights


def write_models(folder: Path) -> None:
    """Write the models that the pages take for given."""
    layout = Layout(3, 6, (32, 64), 1, (False, True), updown=True, scale_shift=True, time_width=128)
    guided = build_unet(guided_config(layout, Heads(number=2), 32))
    torch.save(theirs(guided, guided_names(layout).__getitem__), folder / "model.pt")
    told = {"num_heads": 2, "diffusion_steps": 500, "image_size": 32}
    (folder / "model.json").write_text(json.dumps(told))
    layout = Layout(1, 1, (16, 32), 1, (False, True), updown=False, scale_shift=False, time_width=64)
    monai = build_unet(unet_config(layout, Heads(width=16), groups=8, eps=1e-6, image_size=None))
    torch.save(theirs(monai, lambda layer: monai_name(layer, joint=False)), folder / "monai.pt")
    with np.load(DIRECTORY / "medical_unet.npz") as file:
        medical = {key[3:]: torch.from_numpy(file[key]) for key in file if key.startswith("sd/")}
    torch.save(medical, folder / "chest.ckpt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # TorchScript is old; its files are still around
        torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(1024, 3))).save(folder / "scripted.pt")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder as the pages expect it."""
    write_models(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@of_pages([page for page in PAGES if blocks(page, "python")])
def test_programs_run(page: Path, folder: Path) -> None:
    """In order, in one namespace; what they print is what the page shows."""
    names: dict[str, Any] = {"__name__": page.stem}
    for block in blocks(page, "python"):
        program = compile("\n" * block.line + block.text, str(page), "exec")
        if block.not_run:
            continue
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(program, names)
        assert_same_output(printed.getvalue(), block.shown)


def test_the_first_example_is_short() -> None:
    example = blocks(README, "python")[0]
    assert len(example.text.splitlines()) <= 12
    assert example.shown


@of_pages([page for page in PAGES if blocks(page, "console")])
def test_commands_run(page: Path, folder: Path) -> None:
    pairs = commands(page)
    for (command, shown), got in zip(pairs, run_in_shell([c for c, _ in pairs], folder), strict=True):
        try:
            assert_same_output(got, shown)
        except AssertionError as error:
            raise AssertionError(f"{page.name}: {command}\n{error}") from None


def test_a_new_method_is_one_class_one_line_one_test(tmp_path: Path) -> None:
    """The changes that CONTRIBUTING shows are made in a copy, and the battery is run on the new method."""
    for name in ("src/fastdime", "tests/battery", "tests/support"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for block in blocks(CONTRIBUTING, "diff"):
        apply(block.text, tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", "growing"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 20


# --- what the pages must mention -------------------------------------------------------------------------


def command_line() -> Iterator[str]:
    """Yield every command, argument and option."""
    waiting: list[tuple[str, Any]] = [("fastdime", typer.main.get_command(app))]
    while waiting:
        name, command = waiting.pop()
        yield name
        options = [max(parameter.opts, key=len) for parameter in command.params]
        yield from (option if option.startswith("-") else option.upper() for option in options)
        waiting += [(f"{name} {inner}", part) for inner, part in getattr(command, "commands", {}).items()]


@pytest.mark.parametrize("name", sorted(set(command_line())))
def test_every_command_and_option_is_described(name: str) -> None:
    assert re.search(rf"{re.escape(name)}\b", text_of(README) + text_of(RUNNING_PAGE))


@of_pages([README, METHODS_PAGE])
def test_every_method_is_described(page: Path) -> None:
    assert METHODS.keys() <= codes(text_of(page))


@pytest.mark.parametrize(
    ("page", "names"),
    [
        (
            METHODS_PAGE,
            {
                *GuidedSettings.model_fields,
                *AceSettings.model_fields,
                *TurboSettings.model_fields,
                *PRESETS,
            },
        ),
        (MODELS_PAGE, {*Sidecar.model_fields, *DENOISERS}),
        (MODELS_PAGE, {*fastdime.ClassifierSpec.model_fields, *CLASSIFIERS}),
        (RUNNING_PAGE, {*fastdime.RunOptions.model_fields, *Summary.__dataclass_fields__}),
    ],
    ids=["settings", "denoisers", "classifiers", "runs"],
)
def test_every_name_is_described(page: Path, names: set[str]) -> None:
    assert sorted(names - codes(text_of(page))) == []


def test_what_a_run_writes_is_described(tmp_path: Path) -> None:
    table = toy.write(tmp_path / "toy", 2)
    table.write_text(table.read_text() + "broken,nowhere.png,0\n")
    explainer = fastdime.Explainer(toy.denoiser(), toy.classifier(), settings_for("fastdime", tau=2))
    fastdime.explain(table, explainer, tmp_path / "run")
    config, records = fastdime.read_run(tmp_path / "run")
    names = {name for record in records for name in record} | config.keys()
    names |= {path.name for path in (tmp_path / "run").iterdir() if path.is_file()}
    assert sorted(names - codes(text_of(RUNNING_PAGE))) == []


# --- tables ----------------------------------------------------------------------------------------------


def spelled(value: Any) -> str:
    """Write a setting as after --set."""
    if isinstance(value, tuple):
        return ",".join(f"{part:g}" for part in value)
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


Deviations = dict[tuple[str, str], tuple[str, ...]]


def deviations() -> Deviations:
    """Read the table: (field, method or "") to the values of the presets."""
    found: Deviations = {}
    for name, *values, why in rows(METHODS_PAGE, "field", *PRESETS):
        field, method = re.fullmatch(r"`(\w+)`(?: \(([\w-]+)\))?", name).groups()
        assert (field, method or "") not in found
        assert why
        found[field, method or ""] = tuple(values)
    return found


def differing(method: str) -> dict[str, tuple[str, ...]]:
    """Return the fields that are not the same in all presets, with their values."""
    settings = [settings_for(method, preset) for preset in PRESETS]
    values = {
        name: tuple(spelled(getattr(one, name)) for one in settings)
        for name in type(settings[0]).model_fields
    }
    return {name: row for name, row in values.items() if len(set(row)) > 1}


def row_for(table: Deviations, field: str, method: str) -> tuple[str, str]:
    """Return the row that speaks of a field of a method: the most special one."""
    program = "ace" if METHODS[method].program is AceSettings else ""
    return next(((field, name) for name in (method, program) if (field, name) in table), (field, ""))


@pytest.mark.parametrize("method", METHODS)
def test_every_deviation_is_in_the_table(method: str) -> None:
    table = deviations()
    for field, values in differing(method).items():
        assert table.get(row_for(table, field, method)) == values, field


def test_every_row_of_the_table_is_needed() -> None:
    table = deviations()
    used = {row_for(table, field, method) for method in METHODS for field in differing(method)}
    assert used == table.keys()


def test_the_other_defaults() -> None:
    shown = {name: value for name, value, _ in rows(METHODS_PAGE, "field", "default", "what")}
    known = {field for field, _ in deviations()} | PARTS
    for suffix, program in (("", GuidedSettings), (" (ace)", AceSettings)):
        for field, info in program.model_fields.items():
            if field not in known:
                value = shown.get(f"`{field}`{suffix}") or shown[f"`{field}`"]
                assert value.replace("1/255", f"{1 / 255:g}") == spelled(info.default), field


def test_the_settings_of_turbo() -> None:
    page = text_of(METHODS_PAGE)
    found = re.findall(
        r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \|$", page[page.index("## Turbo") :], flags=re.MULTILINE
    )
    shown = {name: (value, what) for name, value, what in found}
    own = TurboSettings.model_fields.keys() - Settings.model_fields.keys() | {"scales"}
    assert own <= shown.keys()
    for name in own:
        field = TurboSettings.model_fields[name]
        values = field.default if isinstance(field.default, tuple) else (field.default,)
        assert shown[name] == (", ".join(f"{value:g}" for value in values), field.description), name


def test_what_ace_has_of_its_own() -> None:
    sentence = re.search(r"^ACE has its own defaults .*$", text_of(METHODS_PAGE), flags=re.MULTILINE)[0]
    guided, ace = GuidedSettings.model_fields, AceSettings.model_fields
    own = {name for name in guided.keys() & ace.keys() if guided[name].default != ace[name].default}
    assert codes(sentence) == own
    for name in own:
        assert f"`{name}` {spelled(ace[name].default)}" in sentence


def test_recipes_and_costs() -> None:
    recipes = {name.strip("`"): row for name, *row in rows(METHODS_PAGE, "method", "gradient")}
    costs = {name.strip("`"): row for name, *row in rows(METHODS_PAGE, "method", *PRESETS)}
    assert recipes.keys() == costs.keys() == METHODS.keys()
    for name, method in METHODS.items():
        calls = [cost(settings_for(name, preset)) for preset in PRESETS]
        assert costs[name] == [f"{denoiser} + {gradient}" for denoiser, gradient in calls]
        settings = settings_for(name)
        if isinstance(settings, GuidedSettings):
            assert recipes[name][:3] == [settings.gradient, settings.mask, settings.second_pass]
        assert method.recipe.keys() - PARTS <= codes(recipes[name][3])


def test_layers() -> None:
    settings = tomllib.loads(text_of(ROOT / "pyproject.toml"))["tool"]["importlinter"]
    layers = [set(layer.split(" | ")) for layer in settings["contracts"][0]["layers"]]
    assert [codes(names) for names, _ in rows(ARCHITECTURE_PAGE, "layer")] == layers


# --- links and files -------------------------------------------------------------------------------------


@of_pages(PAGES)
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        place = (page.parent / name).resolve() if name else page
        assert place.is_relative_to(ROOT)
        assert place.exists(), target
        assert not anchor or anchor in anchors(place), target


@of_pages(PAGES)
def test_files_that_are_named_exist(page: Path) -> None:
    for name, _, test in re.findall(r"`((?:tests|src|docs|tools)/[\w./]*)(::(\w+))?`", text_of(page)):
        assert (ROOT / name).exists(), name
        assert not test or f"def {test}(" in text_of(ROOT / name), test


def test_the_picture_is_small() -> None:
    assert (ROOT / "docs" / "images" / "demo.png").stat().st_size < 150_000


def test_the_demo_is_as_described() -> None:
    assert "fastdime demo --out demo" in text_of(ROOT / "Makefile")


def test_citation_and_changelog() -> None:
    yaml = pytest.importorskip("yaml", reason="CITATION.cff is read with PyYAML")
    citation = yaml.safe_load(text_of(ROOT / "CITATION.cff"))
    paper = citation["preferred-citation"]
    assert citation.keys() >= {"message", "title", "authors"}
    assert (citation["cff-version"], citation["version"]) == ("1.2.0", fastdime.__version__)
    assert (paper["type"], paper["year"]) == ("conference-paper", 2024)
    for author in paper["authors"]:
        assert f"{author['given-names']} {author['family-names']}" in text_of(README)
    assert paper["title"] in text_of(README)
    assert f"\n## {fastdime.__version__}" in text_of(CHANGELOG)
