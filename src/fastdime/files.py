"""Files and folders that are there completely or not at all."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from fastdime.errors import InputError, expected


def write_atomically(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a file so that it is there completely or not at all.

    Args:
        durable: also after a loss of power; False saves the wait for the disk, which takes longer than
            everything else when files are many and small.
    """
    mark = hashlib.blake2b(path.name.encode(errors="surrogatepass"), digest_size=8).hexdigest()
    temporary = path.parent / f".{os.getpid()}-{mark}.tmp"
    try:
        with temporary.open("wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise not_writable(path, error) from error


def not_writable(path: Path, error: OSError) -> InputError:
    """Say that a place cannot be written to."""
    # Not a DataError: a full disk says nothing about the image, so it must not become its final record.
    return InputError(
        expected(str(path), "a place that can be written", error.strerror, "choose another place")
    )


def check_free(path: Path) -> None:
    """Refuse a place where something is already."""
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise InputError(expected(str(path), "a new or empty folder", "one that is in use", "name another"))


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give a folder to fill; it takes its place only when everything was written."""
    check_free(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent)
    except OSError as error:
        raise not_writable(path, error) from None
    with temporary as name:
        folder = Path(name) / path.name
        folder.mkdir()
        yield folder
        folder.replace(path)
