"""Read the documentation: programs, commands, tables and links; and run the commands."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from markdown_it import MarkdownIt  # comes with rich
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?!\w)%?")
TIMING = re.compile(r'(seconds.per.image"?:? +)[\d.]+')
PROGRESS = re.compile(r"^(images|updates|pairs)[^:\n]*: .* left.*\n", flags=re.MULTILINE)
MARK = "=== next command ==="
SHELL = """
exec 2>&1
fastdime() { "$PYTHON" -m fastdime "$@"; }
python() { "$PYTHON" "$@"; }
"""


@dataclass(frozen=True)
class Block:
    """A fenced block; `shown` is the text block right after it, the output of a program."""

    text: str
    line: int
    not_run: bool
    shown: str


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf8")


def tokens(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").parse(text_of(page))


def blocks(page: Path, language: str) -> list[Block]:
    """Return the fenced blocks of one language; `<!-- not run: reason -->` before one marks it."""
    found = []
    everything = [Token("start", "", 0), *tokens(page), Token("end", "", 0)]
    for before, token, after in zip(everything, everything[1:], everything[2:], strict=False):
        if token.type == "fence" and token.info == language:
            not_run = before.type == "html_block" and before.content.startswith("<!-- not run: ")
            shown = after.content if after.type == "fence" and after.info == "text" else ""
            found.append(Block(token.content, token.map[0] + 1, not_run, shown))
    return found


def rows(page: Path, *heading: str) -> list[list[str]]:
    """Return the rows of the one table with this heading, as Markdown text."""
    found = [table for head, table in _tables(page) if head[: len(heading)] == list(heading)]
    assert len(found) == 1, f"{page.name} has {len(found)} tables with heading {heading}"
    return found[0]


def _tables(page: Path) -> Iterator[tuple[list[str], list[list[str]]]]:
    for lines in re.findall(r"(?:^\|.*\n)+", text_of(page), flags=re.MULTILINE):
        head, _, *body = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in lines.splitlines()
        ]
        yield head, body


def codes(text: str) -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", text))


def links(page: Path) -> list[str]:
    parts = [part for token in tokens(page) for part in token.children or []]
    return [
        str(part.attrs.get("href") or part.attrs.get("src"))
        for part in parts
        if part.type in ("link_open", "image")
    ]


def anchors(page: Path) -> set[str]:
    """Return the names that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(page: Path) -> list[tuple[str, str]]:
    """Return the commands of the console blocks, and what they print."""
    text = "".join(block.text for block in blocks(page, "console"))
    parts = [part.partition("\n") for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]]
    return [(command, shown) for command, _, shown in parts]


def run_in_shell(lines: list[str], folder: Path) -> list[str]:
    """Run the lines in one shell, as a user would; return what each prints."""
    # What $? says in a line is what the line before left.
    script = SHELL + "".join(f"echo '{MARK}'; (exit $code); {line}\ncode=$?\n" for line in lines)
    environment = os.environ | {"PYTHON": sys.executable, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    return PROGRESS.sub("", done.stdout).split(f"{MARK}\n")[1:]


def assert_same_output(got: str, shown: str) -> None:
    """Words and whole numbers are equal; others nearly, because another processor rounds otherwise."""
    got, shown = (TIMING.sub(r"\g<1>T", text).strip() for text in (got, shown))
    told = f"got\n{got}\ninstead of\n{shown}"
    assert NUMBER.sub("N", got) == NUMBER.sub("N", shown), told
    for one, other in zip(NUMBER.findall(got), NUMBER.findall(shown), strict=True):
        if other.endswith("%"):
            assert abs(int(one[:-1]) - int(other[:-1])) <= 1, told
        elif "." in other:
            assert float(one) == pytest.approx(float(other), rel=0.02, abs=0.0011), told
        else:
            assert one == other, told


def apply(diff: str, root: Path) -> None:
    """Apply a change that is shown as a file name and lines that begin with space, - or +."""
    first, *lines = diff.splitlines()
    path = root / first.removeprefix("# ")
    old, new = (
        "".join(f"{line[1:]}\n" for line in lines if line[:1] in ("", " ", sign)) for sign in ("-", "+")
    )
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(new, encoding="utf8")
        return
    text = text_of(path)
    assert text.count(old) == 1, f"{first} has changed: the diff that is shown no longer fits"
    path.write_text(text.replace(old, new), encoding="utf8")
