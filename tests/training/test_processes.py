"""Many processes: `torchrun` with two of them trains as one process with twice the batch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fastdime
from fastdime import toy
from support.commands import fastdime_command

WORDS = ("--steps", 12, "--widths", "16,16", "--set", "log_every=1", "--set", "validate_every=4")


def run(*words: object, data: Path, out: Path, python: tuple[str, ...] = ("-m", "fastdime")) -> str:
    command = [sys.executable, *python, "train", *map(str, words), "--data", str(data), "--out", str(out)]
    source = str(Path(fastdime.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def log(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


TWO = ("-m", "torch.distributed.run", "--nproc_per_node", "2", "--module", "fastdime")


def test_two_processes_are_one_with_twice_the_batch(tmp_path: Path) -> None:
    table = toy.write(tmp_path / "toy", 40)
    words = ("denoiser", *WORDS, "--set", "patience=1", "--learning-rate", "1e-7", "--json", "--batch-size")
    run(*words, 8, data=table, out=tmp_path / "one")
    printed = run(*words, 4, data=table, out=tmp_path / "two", python=TWO)
    told = json.loads(printed)  # one object: only one process speaks
    assert told["processes"] == 2
    one, two = log(tmp_path / "one"), log(tmp_path / "two")
    assert len(one) > 8
    assert len(one) == len(two)
    for alone, together in zip(one, two, strict=True):
        assert together == pytest.approx(alone, rel=1e-4)
    assert (tmp_path / "two" / "denoiser" / "config.json").is_file()


def test_mixed_precision_on_a_cpu(tmp_path: Path) -> None:
    table = toy.write(tmp_path / "toy", 40)
    words = ("guide", "--shortcut", "ring", "--steps", 4, "--batch-size", 4, "--set", "log_every=1")
    assert fastdime_command("train", *words, "--data", table, "--out", tmp_path / "full").code == 0
    run(*words, "--set", "precision=bf16", data=table, out=tmp_path / "half")
    full, half = log(tmp_path / "full"), log(tmp_path / "half")
    assert [entry.get("loss") for entry in half] != [entry.get("loss") for entry in full]
    assert half[0]["loss"] == pytest.approx(full[0]["loss"], rel=0.05)
