"""Features that need not fit in memory."""

from tempfile import TemporaryFile

import numpy as np
from jaxtyping import Float32

from fastdime.errors import InputError, expected
from fastdime.metrics.rows import CHUNK, Features, shaped


class FeatureBank:
    """Rows of features in a temporary file, in float32; the file is gone when the bank is closed.

    >>> with FeatureBank() as bank:
    ...     bank.update(np.zeros((2, 3)))
    ...     bank.array().shape
    (2, 3)
    """

    def __init__(self, folder: str | None = None) -> None:
        """Start an empty bank.

        Args:
            folder: where the file is; None = where temporary files are on this machine.
        """
        # Without a name, so that it is gone even when the program is killed.
        self._file = TemporaryFile(dir=folder)  # noqa: SIM115 (open as long as the bank)
        self._rows, self._dim = 0, 0

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._rows

    def update(self, features: Features) -> None:
        """Add rows at the end."""
        found = shaped(features, "features of the bank")
        if self._rows and found.shape[1] != self._dim:
            wanted = f"{self._dim} columns, as before"
            raise InputError(expected("features of the bank", wanted, found.shape[1]))
        if len(found) == 0:
            return
        self._file.seek(0, 2)
        self._file.write(np.ascontiguousarray(found, dtype=np.float32).data)
        self._rows, self._dim = self._rows + len(found), found.shape[1]

    def merge(self, other: "FeatureBank") -> None:
        """Add the rows of another bank at the end."""
        theirs = other.array()
        for first in range(0, len(theirs), CHUNK):
            self.update(theirs[first : first + CHUNK])

    def array(self) -> Float32[np.ndarray, "n d"]:
        """Return all rows so far, to read; they are fetched from the file when they are looked at."""
        if self._rows == 0:
            return np.empty((0, self._dim), dtype=np.float32)
        self._file.flush()
        return np.memmap(self._file, np.float32, mode="r", shape=(self._rows, self._dim))

    def close(self) -> None:
        """Delete the file; arrays that were handed out stay readable."""
        self._file.close()

    def __enter__(self) -> "FeatureBank":
        """Use the bank in a with statement."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the bank."""
        self.close()
