"""Images below a folder, and the patients that DICOM files name."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fastdime.errors import DataError, expected

DICOM_SUFFIXES = (".dcm", ".dicom")
SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".npy", *DICOM_SUFFIXES)
INDEX = "DICOMDIR"  # a DICOM file that lists others


def image_names(folder: Path) -> list[str]:
    """List the images below a folder, sorted, as paths below it.

    Files with the suffix of an image, and DICOM files of any name; also through links, not in hidden folders.
    """
    return sorted(_walk(folder, lambda path: has_image_suffix(path) or is_dicom(path)))


def names_with_suffix(folder: Path) -> list[str]:
    """List the files below a folder that have the suffix of an image, without a look at any other."""
    return sorted(_walk(folder, has_image_suffix))


def has_image_suffix(path: str) -> bool:
    """Tell by its name whether a file is an image."""
    return os.path.splitext(path)[1].lower() in SUFFIXES


def is_dicom(path: str | Path) -> bool:
    """Tell by its preamble whether a file is a DICOM image."""
    if os.path.basename(path) == INDEX or not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            return file.read(132)[128:] == b"DICM"
    except OSError as error:
        raise DataError(expected(str(path), "a file that can be read", error.strerror)) from error


def dicom_patients(paths: Sequence[Path]) -> tuple[str, ...] | None:
    """Return the patient of each DICOM file, blank where none is named; None if no file can be DICOM."""
    maybe = [path.suffix.lower() in DICOM_SUFFIXES or not has_image_suffix(path.name) for path in paths]
    if not any(maybe):
        return None
    return tuple(_patient(path) if look else "" for path, look in zip(paths, maybe, strict=True))


def _patient(path: Path) -> str:
    import pydicom

    try:
        header = pydicom.dcmread(path, stop_before_pixels=True, specific_tags=["PatientID"])
    except Exception:  # a broken file is told of when its pixels are read
        return ""
    return str(header.get("PatientID") or "").strip()


def _walk(folder: Path, wanted: Callable[[str], bool]) -> Iterator[str]:
    for place, folders, files in os.walk(folder, followlinks=True, onerror=_unreadable):
        folders[:] = [name for name in folders if name[0] != "." and not _loops(place, name)]
        prefix = Path(place).relative_to(folder).as_posix()
        for name in files:
            if name[0] != "." and wanted(os.path.join(place, name)):
                yield name if prefix == "." else f"{prefix}/{name}"


def _loops(place: str, name: str) -> bool:
    """Tell whether a link leads back to a folder that it lies in."""
    path = os.path.join(place, name)
    return os.path.islink(path) and Path(os.path.realpath(place)).is_relative_to(os.path.realpath(path))


def _unreadable(error: OSError) -> None:
    raise DataError(expected(str(error.filename), "a folder that can be read", error.strerror)) from error
