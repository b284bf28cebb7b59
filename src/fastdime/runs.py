"""The run folder: what a command has done so far, safe against being killed at any moment.

config.json           the settings; a run goes on only with the same ones
records.jsonl         one line an image id, in the order of the table
timing.jsonl          one line a batch with wall times, kept apart so that records are the same in every run
images/ID.png         the counterfactual, and ID.mask.png where it was allowed to change
.lock                 held while a process writes

A record is written after its images, so an id that has one is complete. A record with an `error` field is
just as final: a run that was interrupted must end like one that was not, so the image is not tried again.
"""

import errno
import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from fastdime.errors import DataError, InputError, expected
from fastdime.files import not_writable, write_atomically

CONFIG, RECORDS, TIMING, IMAGES, LOCK = "config.json", "records.jsonl", "timing.jsonl", "images", ".lock"
LONGEST_STEM = 180  # file systems allow 255 bytes; this leaves room for the suffix
DIFFERENCES_SHOWN = 3

Record = dict[str, Any]


class Run:
    """A run folder that this process may write to; close it, or use it in a `with` statement.

    Attributes:
        path: the folder.
        done: ids that have their final record.
    """

    def __init__(self, path: Path, lock: int, done: set[str]) -> None:
        """Take over an open folder; use `Run.open`."""
        self.path = path
        self.done = done
        self._lock = lock

    @classmethod
    def open(
        cls, path: str | Path, config: Mapping[str, Any], *, inputs: Iterable[str] | None = None
    ) -> Self:
        """Start a run, or go on with one that has the same settings.

        Args:
            inputs: every id of the table; a run that has records of other ids is refused.

        Raises:
            InputError: the folder holds something else, has other settings or is in use.
            DataError: a file of the run is broken in a way that a killed process cannot cause.
        """
        folder = Path(path)
        _make_folder(folder)
        lock = _take_lock(folder)
        try:
            _settle_config(folder, config)
            _sweep(folder)
            done = _resume(folder)
            _check_inputs(folder, done, inputs)
        except BaseException:
            os.close(lock)
            raise
        return cls(folder, lock, done)

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Add the final records of some images, whose files must be written by then; NaN becomes null."""
        ids = [str(record["id"]) for record in records]
        if len(set(ids)) < len(ids) or not self.done.isdisjoint(ids):
            doubled = next(name for name in ids if name in self.done or ids.count(name) > 1)
            raise InputError(expected(f"records of {self.path}", "one record an id", f"a second {doubled!r}"))
        _sync_folder(self.path / IMAGES)
        _append_lines(self.path / RECORDS, records)
        self.done.update(ids)

    def append_timing(self, entry: Mapping[str, Any]) -> None:
        """Add what one batch took."""
        _append_lines(self.path / TIMING, [entry])

    def image_path(self, image_id: str) -> Path:
        """Return where the counterfactual of an image is."""
        return image_path(self.path, image_id)

    def mask_path(self, image_id: str) -> Path:
        """Return where the mask of an image is."""
        return mask_path(self.path, image_id)

    def close(self) -> None:
        """Let other processes write to the folder."""
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1

    def __enter__(self) -> Self:
        """Return the run."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the run."""
        self.close()


def read_run(path: str | Path) -> tuple[dict[str, Any], list[Record]]:
    """Read the settings and records of a run, also while another process writes to it."""
    folder = Path(path)
    missing = [name for name in (CONFIG, RECORDS) if not os.path.isfile(folder / name)]
    if missing:
        raise InputError(expected(str(folder), "a run folder", f"no {missing[0]} in it", "check the path"))
    return _read_config(folder), [record for record, _ in _records(folder)]


def image_path(run: str | Path, image_id: str) -> Path:
    """Return where a run keeps the counterfactual of an image."""
    return Path(run) / IMAGES / f"{file_stem(image_id)}.png"


def mask_path(run: str | Path, image_id: str) -> Path:
    """Return where a run keeps the mask of an image."""
    return Path(run) / IMAGES / f"{file_stem(image_id)}.mask.png"


def file_stem(image_id: str) -> str:
    """Turn any id into a file name that no other id has and that stays in its folder.

    >>> file_stem("patient 1/../view.1")
    'patient 1%2F%2E%2E%2Fview%2E1'
    """
    if not image_id:
        raise InputError(expected("id", "a text that is not empty", repr(image_id)))
    # Dots are quoted too: the id "a.mask" must not take the mask of "a", and no name may begin with a dot.
    stem = quote(image_id, safe=" ", errors="surrogatepass").replace(".", "%2E")
    if len(stem) <= LONGEST_STEM:
        return stem
    mark = hashlib.blake2b(stem.encode(), digest_size=16).hexdigest()
    # "+" is always quoted, so no short id can have the name of a long one.
    return f"{stem[: LONGEST_STEM - len(mark) - 1]}+{mark}"


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = {entry.name for entry in folder.iterdir()}
    except OSError as error:
        raise not_writable(folder, error) from error
    foreign = sorted(name for name in names if name not in (CONFIG, LOCK) and not name.endswith(".tmp"))
    if foreign and not {CONFIG, RECORDS} <= names:  # other programs have a config.json too
        got = f"one with {foreign[0]!r} in it"
        raise InputError(expected(str(folder), "a run folder or an empty one", got, "choose another --out"))


def _take_lock(folder: Path) -> int:
    import fcntl  # here, so that runs can be read on systems without it

    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise not_writable(folder / LOCK, error) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        got = "one that another process is writing to"
        remedy = "wait until it ends or choose another --out"
        raise InputError(expected(str(folder), "a run folder not in use", got, remedy)) from error
    except OSError as error:
        os.close(lock)
        raise not_writable(folder / LOCK, error) from error
    return lock


def _settle_config(folder: Path, config: Mapping[str, Any]) -> None:
    wanted = json.loads(_dump(config))
    text = (json.dumps(wanted, indent=2) + "\n").encode()
    if not (folder / CONFIG).exists():
        write_atomically(folder / CONFIG, text)
    differences = _differences(_read_config(folder), wanted)
    if differences and _is_blank(folder):
        for orphan in (folder / IMAGES).glob("*.png"):
            orphan.unlink()
        write_atomically(folder / CONFIG, text)
    elif differences:
        shown = ", ".join(differences[:DIFFERENCES_SHOWN])
        more = len(differences) - DIFFERENCES_SHOWN
        rest = f", and {more} more" if more > 0 else ""
        raise InputError(f"{folder}: {shown}{rest}; choose another --out or the same settings")


def _is_blank(folder: Path) -> bool:
    """Tell whether a run stopped before its first record, say over a wrong setting: it binds nobody."""
    return (folder / RECORDS).exists() and next(_scan(folder / RECORDS), None) is None


def _read_config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / CONFIG).read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(expected(str(folder / CONFIG), "JSON", str(error), "choose another run")) from error
    if not isinstance(config, dict):
        raise DataError(expected(str(folder / CONFIG), "a JSON object", type(config).__name__))
    return config


def _differences(old: Record, new: Record) -> list[str]:
    before, after = _flat(old), _flat(new)
    pairs = [(name, before.get(name, "nothing"), after.get(name, "nothing")) for name in {**before, **after}]
    return [f"{name}: the run has {a}, you ask for {b}" for name, a, b in pairs if a != b]


def _flat(value: Any, name: str = "") -> dict[str, str]:
    """List the leaves of a config by dotted name, as short JSON text."""
    if isinstance(value, dict) and value:
        parts = [_flat(part, f"{name}.{key}" if name else key) for key, part in value.items()]
        return {key: text for part in parts for key, text in part.items()}
    text = json.dumps(value)
    if len(text) > 60:  # shown shortened, but compared in full
        text = f"{text[:40]}... ({hashlib.blake2b(text.encode(), digest_size=4).hexdigest()})"
    return {name: text}


def _sweep(folder: Path) -> None:
    for name in (RECORDS, TIMING):  # before images/: with its records.jsonl the folder is known as a run
        (folder / name).touch()
    (folder / IMAGES).mkdir(exist_ok=True)
    for place in (folder, folder / IMAGES):
        for orphan in place.glob(".*.tmp"):
            orphan.unlink()


def _check_inputs(folder: Path, done: set[str], inputs: Iterable[str] | None) -> None:
    strangers = sorted(done.difference(inputs)) if inputs is not None else []
    if strangers:
        got = f"{len(strangers)} records of other images, such as {strangers[0]!r}"
        remedy = "choose another --out or the same data"
        raise InputError(expected(str(folder), "a run over the same images", got, remedy))


def _scan(path: Path) -> Iterator[tuple[Record, int]]:
    """Yield each line with the place where it ends; a broken tail is left out, a broken middle refused."""
    end = broken = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            record = _parse(line)
            if record is None:
                broken = broken or number
            elif broken:
                remedy = "remove that line to have its image made again"
                raise DataError(expected(f"{path} line {broken}", "a JSON object", "something else", remedy))
            else:
                end += len(line)
                yield record, end


def _parse(line: bytes) -> Record | None:
    try:
        value = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _records(folder: Path) -> Iterator[tuple[Record, int]]:
    seen: set[str] = set()
    for number, (record, end) in enumerate(_scan(folder / RECORDS), 1):
        name = record.get("id")
        if not isinstance(name, str) or name in seen:
            got = f"a second {name!r}" if isinstance(name, str) else "none"
            raise DataError(expected(f"{folder / RECORDS} line {number}", "an id of its own", got))
        seen.add(name)
        yield record, end


def _resume(folder: Path) -> set[str]:
    """Return the ids that have a record, after cutting off what a killed process left half-written."""
    done: set[str] = set()
    end = 0
    for record, place in _records(folder):
        done.add(record["id"])
        end = place
    os.truncate(folder / RECORDS, end)
    os.truncate(folder / TIMING, (folder / TIMING).read_bytes().rfind(b"\n") + 1)
    return done


def _append_lines(path: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    data = "".join(f"{_dump(entry)}\n" for entry in entries).encode()
    try:
        with path.open("ab", buffering=0) as file:
            start = file.tell()
            if file.write(data) != len(data):
                file.truncate(start)  # or the next line would be glued to half of this one
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
    except OSError as error:
        raise not_writable(path, error) from error


def _dump(value: Mapping[str, Any]) -> str:
    return json.dumps(_finite(value), allow_nan=False)


def _finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
