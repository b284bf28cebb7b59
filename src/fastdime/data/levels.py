"""What decoders of images hand over, and what they must not be asked for."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdime.errors import DataError, expected

MOST_PIXELS = 2**28 // 3  # what Pillow calls a decompression bomb
LEFT_OUT = "mend the file or leave it out of the table"
Levels = NDArray[np.unsignedinteger[Any]]  # (h, w, c), uint8 or uint16 as in the file


def check_pixels(file: Path, height: int, width: int) -> None:
    """Refuse an image that is empty or endless, before memory is asked for."""
    if not 0 < height * width <= MOST_PIXELS:
        raise DataError(expected(str(file), f"1 to {MOST_PIXELS} pixels", f"{height} x {width}", LEFT_OUT))
