import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastdime import toy
from fastdime.runs import read_run
from support.commands import TOY, Done, complaint, explain_toy, files, finish, start

IMAGES = 24
# Slow enough for a process to be killed in a batch, quick enough for a test.
SETTINGS = ("--set", "tau=30", "--set", "steps=50", "--batch-size", 6)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of 8 and 16 bits, one of them broken."""
    folder = tmp_path_factory.mktemp("data")
    path = toy.write(folder, IMAGES)
    (folder / "0009.png").write_bytes(b"\x89PNG")
    with Image.open(folder / "0006.png") as image:
        deep = np.asarray(image).astype(np.uint16) * 257
    Image.fromarray(deep).save(folder / "0006.png")
    return path


def words(table: Path, out: Path) -> list[object]:
    return ["explain", *TOY, *SETTINGS, "--data", table, "--out", out]


@pytest.fixture(scope="module")
def calm(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nothing disturbed."""
    out = tmp_path_factory.mktemp("runs") / "calm"
    assert finish(start(*words(table, out))).code == 3
    return out


def images_of(run: Path) -> int:
    return len(os.listdir(run / "images")) if (run / "images").is_dir() else 0


def records_of(run: Path) -> int:
    path = run / "records.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def ended_at(command: list[object], moment: Callable[[], bool], number: signal.Signals) -> Done:
    """Run a command until a moment comes, then send it a signal."""
    process = start(*command)
    while not moment() and process.poll() is None:
        time.sleep(0.0005)  # the moment between an image and its record is short
    process.send_signal(number)
    return finish(process)


def check_what_is_there(run: Path) -> bool:
    """A record is there only after its files; tell whether there are files without a record."""
    records = read_run(run)[1] if (run / "records.jsonl").exists() else []
    assert [record["id"] for record in records] == [f"{i:04d}" for i in range(len(records))]
    recorded = {record[kind] for record in records for kind in ("image", "mask") if kind in record}
    names = set(os.listdir(run / "images")) if (run / "images").is_dir() else set()
    assert recorded <= names
    return recorded < names


def test_a_run_killed_at_many_moments_ends_like_an_undisturbed_one(
    table: Path, calm: Path, tmp_path: Path
) -> None:
    out = tmp_path / "wild"
    began = time.monotonic()
    moments: list[Callable[[int], bool]] = [
        lambda left: time.monotonic() > began + 0.5,  # while Python starts
        lambda left: (out / "config.json").exists(),
        lambda left: images_of(out) > left,
        lambda left: images_of(out) > left + 4,
        lambda left: images_of(out) > left + 1,
        lambda left: records_of(out) >= 12,
    ]
    killed = between = 0
    for moment in moments:
        reached = partial(moment, images_of(out))
        killed += ended_at(words(table, out), reached, signal.SIGKILL).code == -signal.SIGKILL
        between += out.exists() and check_what_is_there(out)
    assert killed >= 4  # a busy machine may miss one: then the run had ended
    assert between >= 1  # killed with pictures that had no record yet
    assert finish(start(*words(table, out))).code == 3
    assert files(out) == files(calm)
    assert len(read_run(out)[1]) == IMAGES


def test_an_interrupt_is_one_line_and_the_run_goes_on(table: Path, calm: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = ended_at(words(table, out), lambda: records_of(out) >= 6, signal.SIGINT)
    assert (done.code, done.out) == (130, "")
    assert done.err == "fastdime: interrupted; run the same command again to go on\n"
    assert 6 <= records_of(out) < IMAGES
    assert finish(start(*words(table, out))).code == 3
    assert files(out) == files(calm)


def test_another_setting_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    table, out = toy.write(tmp_path / "data", 3), tmp_path / "run"
    assert explain_toy(table, out, "--batch-size", 2).code == 0
    before = files(out) | {"timing": (out / "timing.jsonl").read_bytes()}
    for more, difference in [
        (["--set", "tau=7"], "settings.tau: the run has 6, you ask for 7; choose another --out"),
        (["--method", "dime"], 'method: the run has "fastdime", you ask for "dime"'),
        (["--seed", 1], "seed: the run has 0, you ask for 1"),
        (["--batch-size", 3], "batch_size: the run has 2, you ask for 3"),
        (["--target", 1], 'target: the run has "flip", you ask for "1"'),
        (["--limit", 2], "data.images: the run has 3, you ask for 2"),
        (["--forbid", tmp_path / "data" / "0000.png"], "forbid: the run has null, you ask for"),
    ]:
        assert difference in complaint(explain_toy(table, out, *more))
    assert files(out) | {"timing": (out / "timing.jsonl").read_bytes()} == before
    assert explain_toy(table, out).code == 0  # an automatic batch size is that of the run
    assert files(out) | {"timing": (out / "timing.jsonl").read_bytes()} == before


def test_a_changed_table_or_mask_is_another_setting(tmp_path: Path) -> None:
    table, out = toy.write(tmp_path / "data", 3), tmp_path / "run"
    mask = tmp_path / "mask.png"
    Image.new("L", (toy.SIZE, toy.SIZE), 255).save(mask)
    more = ["--target", "flip:ring", "--allow", mask]
    assert explain_toy(table, out, *more).code == 0
    text = table.read_text()
    table.write_text(text.replace("0001.png,1", "0001.png,0"))
    assert complaint(explain_toy(table, out, *more)).startswith(f"{out}: data.used.ring: the run has")
    table.write_text(text)
    Image.new("L", (toy.SIZE, toy.SIZE), 0).save(mask)
    assert f"data.used.{mask}: the run has" in complaint(explain_toy(table, out, *more))


def test_a_wrong_setting_does_not_spoil_the_folder(tmp_path: Path) -> None:
    table, out = toy.write(tmp_path / "data", 2), tmp_path / "run"
    assert "tau: expected at most 50" in complaint(explain_toy(table, out, "--set", "tau=60"))
    assert explain_toy(table, out).code == 0


def test_a_run_that_lost_its_last_record_makes_that_image_again(tmp_path: Path) -> None:
    table, out = toy.write(tmp_path / "data", 3), tmp_path / "run"
    assert explain_toy(table, out).code == 0
    before = files(out)
    lines = before["records.jsonl"].splitlines(keepends=True)
    (out / "records.jsonl").write_bytes(b"".join(lines[:2]) + lines[2][:40])
    (out / "images" / "0002.png").write_bytes(b"")
    assert explain_toy(table, out).code == 0
    assert files(out) == before
