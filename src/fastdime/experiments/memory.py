"""Peak memory, of this process and of others that are started to be measured."""

import resource
import subprocess
import sys
from pathlib import Path

STATUS = Path("/proc/self/status")


def own_peak() -> float:
    """Return the most memory that this process has held, in MB."""
    # Linux hands ru_maxrss down to what a process starts, so a child of a large one would look large.
    if STATUS.exists():
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return round(int(line.split()[1]) / 1024, 1)
    unit = 1024**2 if sys.platform == "darwin" else 1024
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1)


def peak_of(module: str, *arguments: str) -> float:
    """Run a module that prints its own peak, in a process of its own; returns what it prints."""
    command = [sys.executable, "-m", module, *arguments]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
