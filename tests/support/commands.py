"""Run the command line, in this process or in one of its own, on the made-up world."""

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import fastdime
from fastdime.cli import main

TOY = ("--denoiser", "fastdime.toy:denoiser", "--classifier", "fastdime.toy:classifier")
QUICK = ("--set", "tau=6", "--set", "steps=50")


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str


def fastdime_command(*words: object) -> Done:
    """Run a command in this process: torch takes seconds to load."""
    out, err = io.StringIO(), io.StringIO()
    arguments = ["fastdime", *map(str, words)]
    with patch.object(sys, "argv", arguments), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code
    assert isinstance(code, int)
    return Done(code, out.getvalue(), err.getvalue())


def explain_toy(data: Path, out: Path, *more: object) -> Done:
    """Explain images with the exact models, in a few steps."""
    return fastdime_command("explain", *TOY, *QUICK, "--data", data, "--out", out, *more)


def complaint(done: Done) -> str:
    """Return the one line that a user error is."""
    assert done.code == 2, done
    assert done.out == ""
    assert done.err.startswith("fastdime: "), done.err
    assert done.err.count("\n") == 1, done.err
    assert done.err.endswith("\n")
    return done.err.removeprefix("fastdime: ").strip()


def start(*words: object) -> "subprocess.Popen[str]":
    """Start a command in a process of its own."""
    return start_python("-m", "fastdime", *words)


def start_python(*words: object, cwd: Path | None = None) -> "subprocess.Popen[str]":
    """Start Python with this package, on one thread."""
    source = str(Path(fastdime.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=cwd,
    )


def finish(process: "subprocess.Popen[str]") -> Done:
    """Wait for the end of a command."""
    out, err = process.communicate()
    return Done(process.returncode, out, err)


def files(run: Path) -> dict[str, bytes]:
    """Return every file of a run by name; wall times differ between runs and are left out."""
    paths = [path for path in run.rglob("*") if path.is_file() and path.name != "timing.jsonl"]
    return {str(path.relative_to(run)): path.read_bytes() for path in paths}
