import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fastdime import runs
from fastdime.errors import DataError, InputError
from fastdime.runs import Run, file_stem, image_path, mask_path, read_run, write_atomically

CONFIG = {"method": "fastdime", "scales": [8, 10], "denoiser": {"steps": 60, "hash": "ab"}}

WRITER = """
import sys
from fastdime.runs import Run, write_atomically
folder, count = sys.argv[1], int(sys.argv[2])
ids = [f"image {i}" for i in range(count)]
with Run.open(folder, {"a": 1}, inputs=ids) as run:
    print("open", flush=True)
    for start in range(0, count, 4):
        batch = [name for name in ids[start : start + 4]]
        for name in batch:
            write_atomically(run.image_path(name), name.encode() * 2000)
        missing = [name for name in batch if name not in run.done]
        run.append([{"id": name, "p": float(len(name)), "pad": "x" * 3000} for name in missing])
        run.append_timing({"batch": start, "seconds": 0.1})
"""


def start_writer(folder: Path, count: int) -> "subprocess.Popen[str]":
    source = str(Path(runs.__file__).parents[1])
    command = [sys.executable, "-c", WRITER, str(folder), str(count)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": source}
    )


def files(folder: Path) -> dict[str, bytes]:
    names = [path for path in folder.rglob("*") if path.is_file() and path.name != "timing.jsonl"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in names}


def test_a_run_killed_again_and_again_ends_like_an_undisturbed_one(tmp_path: Path) -> None:
    count, kills = 240, 0
    calm, wild = tmp_path / "calm", tmp_path / "wild"
    with start_writer(calm, count) as process:
        assert process.wait() == 0
    rng = random.Random(0)
    for _ in range(200):
        with start_writer(wild, count) as process:
            assert process.stdout is not None
            if rng.random() < 0.8:  # else: killed while python starts, or in Run.open
                process.stdout.readline()
            time.sleep(rng.uniform(0, 0.03))
            process.send_signal(signal.SIGKILL)
            kills += process.wait() == -signal.SIGKILL
        if wild.exists() and (wild / "records.jsonl").exists():
            _, records = read_run(wild)  # readable at any moment, complete in any prefix
            assert [record["id"] for record in records] == [f"image {i}" for i in range(len(records))]
            assert all(image_path(wild, record["id"]).stat().st_size > 10_000 for record in records)
            if len(records) == count or kills >= 12:
                break
    assert kills >= 3
    with start_writer(wild, count) as process:
        assert process.wait() == 0
    assert files(wild) == files(calm)
    batches = [json.loads(line)["batch"] for line in (wild / "timing.jsonl").read_text().splitlines()]
    assert set(batches) == set(range(0, count, 4))


@pytest.mark.parametrize("tail", [b'{"id": "c", "p":', b"\0\0\0", b'{"id": "c"}', b"{bad}\n", b"\n\n"])
def test_a_half_written_tail_is_cut_off(tmp_path: Path, tail: bytes) -> None:
    with Run.open(tmp_path, CONFIG) as run:
        run.append([{"id": "a", "p": 1.0}, {"id": "b", "error": "broken"}])
    path = tmp_path / "records.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    (tmp_path / "timing.jsonl").write_bytes(b'{"s": 1}\n{"s"')
    assert [record["id"] for record in read_run(tmp_path)[1]] == ["a", "b"]
    with Run.open(tmp_path, CONFIG) as run:
        assert run.done == {"a", "b"}  # an error is final as well
        assert path.read_bytes() == whole
        assert (tmp_path / "timing.jsonl").read_bytes() == b'{"s": 1}\n'
        run.append([{"id": "c"}])
    assert len(read_run(tmp_path)[1]) == 3


@pytest.mark.parametrize("line", ["{bad}", "[1]", '{"p": 1}', '{"id": "a"}'])
def test_a_broken_middle_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    Run.open(tmp_path, CONFIG).close()
    (tmp_path / "records.jsonl").write_text(f'{{"id": "a"}}\n{line}\n{{"id": "b"}}\n')
    with pytest.raises(DataError, match=r"records\.jsonl line 2: expected"):
        Run.open(tmp_path, CONFIG)
    with pytest.raises(DataError, match=r"records\.jsonl line 2: expected"):
        read_run(tmp_path)


def test_records_are_plain_json_in_the_given_order(tmp_path: Path) -> None:
    with Run.open(tmp_path, CONFIG) as run:
        run.append(
            [{"id": "ü\u2028\ud800", "z": float("nan"), "a": [float("inf"), (1, 0.5)], "n": {"v": None}}]
        )
        run.append_timing({"seconds": 1.5})
    line = (tmp_path / "records.jsonl").read_text()
    assert line == '{"id": "\\u00fc\\u2028\\ud800", "z": null, "a": [null, [1, 0.5]], "n": {"v": null}}\n'
    config, records = read_run(tmp_path)
    assert config == CONFIG
    assert records[0]["id"] == "ü\u2028\ud800"


def test_an_id_has_one_record(tmp_path: Path) -> None:
    with Run.open(tmp_path, CONFIG) as run:
        run.append([{"id": "a"}])
        for batch in ([{"id": "a"}], [{"id": "b"}, {"id": "b"}]):
            with pytest.raises(InputError, match="one record an id, got a second"):
                run.append(batch)
    assert len(read_run(tmp_path)[1]) == 1


def begun(folder: Path, config: dict[str, object]) -> None:
    with Run.open(folder, config) as run:
        run.append([{"id": "a"}])


def test_a_run_without_a_record_takes_other_settings(tmp_path: Path) -> None:
    with Run.open(tmp_path, {"tau": 900}) as run:
        write_atomically(run.image_path("a"), b"of a batch that was not finished")
    Run.open(tmp_path, CONFIG).close()
    assert read_run(tmp_path) == (CONFIG, [])
    assert not image_path(tmp_path, "a").exists()
    (tmp_path / "records.jsonl").unlink()
    with pytest.raises(InputError, match="images"):  # no run any more: left alone
        Run.open(tmp_path, {"tau": 900})
    assert json.loads((tmp_path / "config.json").read_text()) == CONFIG


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    begun(tmp_path, CONFIG)
    Run.open(tmp_path, {**CONFIG, "scales": (8, 10)}).close()  # a tuple is the same list
    other = {"method": "fastdime", "scales": [15], "denoiser": {"steps": 30, "hash": "ab"}, "new": True}
    with pytest.raises(InputError) as caught:
        Run.open(tmp_path, other)
    text = str(caught.value)
    assert "scales: the run has [8, 10], you ask for [15]" in text
    assert "denoiser.steps: the run has 60, you ask for 30" in text
    assert "new: the run has nothing, you ask for true; choose another --out or the same settings" in text
    assert "hash" not in text
    with pytest.raises(InputError, match="and 3 more; choose"):
        Run.open(tmp_path, {"a": 1, "b": 2})
    assert read_run(tmp_path)[0] == CONFIG


def test_long_values_are_compared_in_full_and_shown_short(tmp_path: Path) -> None:
    begun(tmp_path, {"a": list(range(100))})
    with pytest.raises(InputError) as caught:
        Run.open(tmp_path, {"a": [*range(99), 0]})
    assert len(str(caught.value)) < 300 + len(str(tmp_path))


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with Run.open(tmp_path, CONFIG) as run:
        with pytest.raises(InputError, match="not in use, got one that another process is writing to"):
            Run.open(tmp_path, CONFIG)
        assert read_run(tmp_path) == (CONFIG, [])
        run.close()
        run.close()
    begun(tmp_path, CONFIG)
    with pytest.raises(InputError, match="scales"):  # a refused opening lets go of the lock
        Run.open(tmp_path, {**CONFIG, "scales": []})
    Run.open(tmp_path, CONFIG).close()


@pytest.mark.parametrize("name", ["photo.png", "config.json", "images"])
def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}")
    (tmp_path / "weights.bin").write_text("")
    with pytest.raises(InputError, match=r"a run folder or an empty one, got one with '.*' in it"):
        Run.open(tmp_path, CONFIG)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted({name, "weights.bin"})


def test_what_an_early_kill_leaves_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / ".7-ab.tmp").write_text("{")
    with Run.open(tmp_path, CONFIG) as run:
        orphan = run.path / "images" / ".7-ab.tmp"
        orphan.touch()
    (tmp_path / "records.jsonl").unlink()
    (tmp_path / "timing.jsonl").unlink()
    orphan.unlink()
    (tmp_path / "images").rmdir()
    with Run.open(tmp_path, CONFIG) as run:
        orphan.touch()
    Run.open(tmp_path, CONFIG).close()
    assert not orphan.exists()
    assert not (tmp_path / ".7-ab.tmp").exists()


def test_a_run_over_other_images_is_refused(tmp_path: Path) -> None:
    with Run.open(tmp_path, CONFIG, inputs=["a", "b"]) as run:
        run.append([{"id": "a"}, {"id": "b"}])
    Run.open(tmp_path, CONFIG, inputs=["c", "b", "a"]).close()
    with pytest.raises(InputError, match="1 records of other images, such as 'b'"):
        Run.open(tmp_path, CONFIG, inputs=["a", "c"])


def test_paths_that_cannot_be_runs(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(InputError, match="a place that can be written, got"):
            Run.open(path, CONFIG)
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(InputError, match=r"a run folder, got no config\.json in it"):
            read_run(path)
    Run.open(tmp_path / "run", CONFIG).close()
    for text in ("{", "[]"):
        (tmp_path / "run" / "config.json").write_text(text)
        with pytest.raises(DataError, match=r"config\.json: expected"):
            Run.open(tmp_path / "run", CONFIG)


def test_every_id_has_a_file_name_of_its_own(tmp_path: Path) -> None:
    ids = ["a", "a.mask", "a.png", "..", ".", "../a", "a/b", "a%2Fb", "a b", "a+b", "é", "e\u0301", "\udcff"]
    ids += ["\0", "/", "-", "a" * 400, "a" * 401, "a" * 180, "a" * 181, "é" * 100]
    ids += [file_stem("a" * 400)]  # an id that looks like the shortened name of another
    paths = [path(tmp_path, name) for name in ids for path in (image_path, mask_path)]
    (tmp_path / "images").mkdir()
    for number, path in enumerate(paths):
        write_atomically(path, str(number).encode())
    assert [path.read_bytes() for path in paths] == [str(number).encode() for number in range(len(paths))]
    assert all(path.resolve().parent == (tmp_path / "images").resolve() for path in paths)
    assert len(list((tmp_path / "images").iterdir())) == len(paths)
    with pytest.raises(InputError, match="not empty"):
        image_path(tmp_path, "")


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write_atomically(tmp_path / "a", b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="can be written, got No space left"):
        write_atomically(tmp_path / "a", b"new")
    assert files(tmp_path) == {"a": b"old"}


def test_a_short_write_leaves_no_half_line(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource", reason="needs limits on the size of files")
    with Run.open(tmp_path, CONFIG) as run:
        run.append([{"id": "a"}])
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        usual = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        try:
            with pytest.raises(InputError, match=r"records\.jsonl: expected a place that can be written"):
                run.append([{"id": "b", "pad": "x" * 2000}])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, usual)
        run.append([{"id": "b"}])
    assert (tmp_path / "records.jsonl").read_text() == '{"id": "a"}\n{"id": "b"}\n'
