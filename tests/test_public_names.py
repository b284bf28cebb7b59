"""What the package shows to the outside, and what it must not need."""

import ast
import doctest
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import fastdime

SOURCE = Path(fastdime.__file__).parent
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages([str(SOURCE)], "fastdime.")
    if module.name != "fastdime.__main__"  # which runs the command line
)
# Not every machine that has torch can import these beside it.
UNWANTED = {"torchvision", "timm", "torch_fidelity"}
CONSTANTS = {"METHODS", "PRESETS"}


def test_all_is_the_list_of_homes() -> None:
    assert sorted(fastdime.__all__) == sorted(fastdime._HOME)
    assert len(set(fastdime.__all__)) == len(fastdime.__all__)
    assert set(fastdime.__all__) <= set(dir(fastdime))


@pytest.mark.parametrize("name", fastdime.__all__)
def test_every_public_name_is_there_and_says_what_it_is(name: str) -> None:
    home = importlib.import_module(f"fastdime.{fastdime._HOME[name]}")
    value = getattr(fastdime, name)
    assert value is getattr(home, name)
    if name not in CONSTANTS:
        assert inspect.getdoc(value)
        assert value.__module__ == home.__name__  # told by its home, not by where it is used


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    homes = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert homes == {name: f"fastdime.{home}" for name, home in fastdime._HOME.items()}


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="'fastdime' has no attribute 'explian'"):
        _ = fastdime.explian


def public_parts(module: ModuleType) -> Iterator[tuple[str, object]]:
    """Yield the functions, classes and methods that a module defines for others."""
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", "") != module.__name__:
            continue
        if inspect.isfunction(value):
            yield name, value
        if inspect.isclass(value):
            yield name, value
            for inner, method in vars(value).items():
                if not inner.startswith("_") and (inspect.isfunction(method) or isinstance(method, property)):
                    yield f"{name}.{inner}", method


@pytest.mark.parametrize("name", MODULES)
def test_everything_public_has_a_docstring(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    bare = [part for part, value in public_parts(module) if not (getattr(value, "__doc__", "") or "").strip()]
    assert not bare


@pytest.mark.parametrize("name", ["fastdime", *MODULES])
def test_examples_in_docstrings_are_true(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for example in doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name)):
        runner.run(example, out=report.append)
    assert not report, "".join(report)


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_nothing_needs_what_cannot_be_imported_everywhere() -> None:
    for path in SOURCE.rglob("*.py"):
        assert not {name.partition(".")[0] for name in imports(path)} & UNWANTED, path


def test_the_modules_were_found() -> None:
    assert {"fastdime.cli", "fastdime.pipeline.explain", "fastdime.counterfactuals.loop"} <= set(MODULES)
    assert any(">>>" in path.read_text(encoding="utf8") for path in SOURCE.rglob("*.py"))
