"""Pixels of DICOM files."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdime.data.levels import LEFT_OUT, Levels, check_pixels
from fastdime.errors import DataError, expected


def decode_dicom(file: Path) -> Levels:
    """Return the pixels as the file wants them shown, with white as the greatest value, in 16 bits."""
    import pydicom
    from pydicom.pixels import apply_modality_lut

    data = pydicom.dcmread(file)
    frames, meaning = int(data.get("NumberOfFrames") or 1), str(data.PhotometricInterpretation)
    if frames > 1:
        raise DataError(expected(str(file), "one frame", f"{frames} frames", "save them one by one"))
    if meaning not in ("MONOCHROME1", "MONOCHROME2"):
        raise DataError(expected(str(file), "MONOCHROME1 or MONOCHROME2", meaning, "save it as PNG"))
    check_pixels(file, data.Rows, data.Columns)
    values = np.asarray(apply_modality_lut(data.pixel_array, data), dtype=np.float64)
    if values.shape != (data.Rows, data.Columns):  # more pixels than the header tells of
        raise DataError(expected(str(file), "one frame", f"pixels of shape {values.shape}", LEFT_OUT))
    shown = _windowed(file, values, data)
    if not (np.isfinite(values) & np.isfinite(shown)).all():
        raise DataError(expected(str(file), "finite numbers", "NaN or infinity", LEFT_OUT))
    light = 1 - shown if meaning == "MONOCHROME1" else shown
    return np.rint(light * 65535).astype(np.uint16)[..., None]


def _windowed(file: Path, values: NDArray[np.float64], data: Any) -> NDArray[np.float64]:
    """Map to [0, 1] by the first window or table of the file (DICOM PS3.3 C.11.2), or least to greatest."""
    centre, width = (_first(data.get(name)) for name in ("WindowCenter", "WindowWidth"))
    if centre is None or width is None:
        if data.get("VOILUTSequence"):
            return _looked_up(values, data)
        low, high = float(values.min()), float(values.max())
        return (values - low) / (high - low or 1)
    function = str(data.get("VOILUTFunction") or "LINEAR")
    if not width >= (1 if function == "LINEAR" else 1e-9):
        raise DataError(expected(f"{file} WindowWidth", "1 or more", width, LEFT_OUT))
    if function == "SIGMOID":
        return 1 / (1 + np.exp(np.clip(-4 * (values - centre) / width, -700, 700)))
    if function == "LINEAR":  # for whole numbers: the window ends in the middle of its last values
        centre, width = centre - 0.5, max(width - 1, 1e-9)
    return np.clip((values - centre) / width + 0.5, 0, 1)


def _looked_up(values: NDArray[np.float64], data: Any) -> NDArray[np.float64]:
    from pydicom.pixels import apply_voi

    bits = int(data.VOILUTSequence[0].LUTDescriptor[2])
    shown = apply_voi(np.rint(values).astype(np.int64), data, index=0)
    scaled: NDArray[np.float64] = np.asarray(shown, dtype=np.float64) / (2**bits - 1)
    return scaled


def _first(value: Any) -> float | None:
    if value is None or value == "":
        return None
    return float(value if isinstance(value, int | float | str) else value[0])
