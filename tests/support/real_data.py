"""Real images and published annotations, where a machine has them; they are not part of the repository."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def real(name: str) -> Path:
    """Return a file or folder of real data, in FASTDIME_REAL_DATA or a folder beside this one, or skip."""
    named = os.environ.get("FASTDIME_REAL_DATA")
    places = [Path(named) / name] if named else sorted(ROOT.parent.glob(f"*/{name}"))
    found = next((place for place in places if place.exists()), None)
    if found is None:
        pytest.skip(f"no {name}: set FASTDIME_REAL_DATA to the folder that has it")
    return found
