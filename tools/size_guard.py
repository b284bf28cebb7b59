"""Fail when a function, a file or an argument list outgrows what one can read at a glance.

usage: size_guard.py SOURCE_FOLDER
"""

import ast
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

FILE, FUNCTION, MOST_FUNCTIONS, MEDIAN, NESTING, ARGUMENTS = 350, 60, 35, 10, 3, 7
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)


def length(function: ast.FunctionDef) -> int:
    """Count lines without the docstring."""
    lines = function.end_lineno - function.lineno + 1
    first = function.body[0]
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        lines -= first.end_lineno - first.lineno + 1
    return lines


def nesting(node: ast.AST, depth: int = 0) -> int:
    """Return how deep blocks stand in blocks; elif does not deepen."""
    deepest = depth
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
            continue
        elif_ = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        deepest = max(deepest, nesting(child, depth + (isinstance(child, BLOCKS) and not elif_)))
    return deepest


def arguments(function: ast.FunctionDef) -> int:
    """Count arguments but self and cls."""
    given = function.args.posonlyargs + function.args.args + function.args.kwonlyargs
    return len([argument for argument in given if argument.arg not in ("self", "cls")])


def complaints(path: Path, lengths: list[int]) -> Iterator[str]:
    """Yield what is too large in a file, and collect the lengths of its functions."""
    source = path.read_text(encoding="utf8")
    if (lines := source.count("\n")) > FILE:
        yield f"{path}: {lines} lines, at most {FILE}"
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, FUNCTIONS):
            continue
        lengths.append(length(function))
        place = f"{path}:{function.lineno} {function.name}"
        if lengths[-1] > FUNCTION:
            yield f"{place}: {lengths[-1]} lines, at most {FUNCTION}"
        if (deep := nesting(function)) > NESTING:
            yield f"{place}: nesting {deep}, at most {NESTING}"
        # A command's options are its arguments: the command line is declared, not called.
        if (count := arguments(function)) > ARGUMENTS and not path.name.startswith("cli"):
            yield f"{place}: {count} arguments, at most {ARGUMENTS}"


def main() -> None:
    lengths: list[int] = []
    found = [text for path in sorted(Path(sys.argv[1]).rglob("*.py")) for text in complaints(path, lengths)]
    median, most = statistics.median(lengths), sorted(lengths)[int(0.9 * len(lengths))]
    if median > MEDIAN or most > MOST_FUNCTIONS:
        found.append(f"functions: median {median}, 90 % up to {most}; wanted {MEDIAN} and {MOST_FUNCTIONS}")
    print("\n".join(found) or f"{len(lengths)} functions, median {median:g} lines, longest {max(lengths)}")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
