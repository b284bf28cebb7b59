"""What a person sees while a command works: a bar on a terminal, a plain line now and then elsewhere."""

import json
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

EVERY = 10.0  # seconds between plain lines


@contextmanager
def interrupt_later() -> Iterator[None]:
    """Hold Ctrl-C back for a moment: torch dies an ugly death when it is stopped while it loads."""
    held: list[int] = []
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # otherwise someone has other plans, such as to ignore it
        signal.signal(signal.SIGINT, lambda number, frame: held.append(number))
    try:
        yield
    finally:
        if usual is signal.default_int_handler:
            signal.signal(signal.SIGINT, usual)
    if held:
        raise KeyboardInterrupt


class Shown(Protocol):
    """What a command tells while it works."""

    def __call__(self, done: float, of: int) -> None:
        """Tell how much is done."""

    def note(self, text: str) -> None:
        """Tell how it goes; shown with the next report."""


@contextmanager
def progress_of(what: str) -> Iterator[Shown]:
    """Show (done, all) with rate and time left, on standard error."""
    if sys.stderr.isatty():
        with _bar(what) as show:
            yield show
    else:
        yield _Lines(what)


@contextmanager
def silence_of(what: str) -> Iterator[Shown]:
    """Show nothing, in the place of `progress_of`."""
    yield _Bar(lambda **fields: None)


@contextmanager
def _bar(what: str) -> Iterator[Shown]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=1, rate="", note="")
        yield _Bar(lambda **fields: bar.update(task, **fields))


class _Bar:
    """Progress for a person at a terminal."""

    def __init__(self, update: Callable[..., None]) -> None:
        self.update = update
        self.pace = Pace()

    def __call__(self, done: float, of: int) -> None:
        self.pace.see(done)
        self.update(completed=done, total=of, rate=self.pace.rate())

    def note(self, text: str) -> None:
        self.update(note=text)


class Pace:
    """How fast the work goes, from what this process has done."""

    def __init__(self) -> None:
        """Start the clock with the first report."""
        self.began = time.monotonic()
        self.first: float | None = None
        self.done = 0.0

    def see(self, done: float) -> None:
        """Take note of how much is done; what was done before this process does not count."""
        if self.first is None:
            self.first, self.began = done, time.monotonic()
        self.done = done

    def seconds_each(self) -> float | None:
        """Return seconds for one unit, once there is something to tell from."""
        worked = self.done - (self.first or 0)
        return (time.monotonic() - self.began) / worked if worked > 0 else None

    def rate(self) -> str:
        """Return the pace as text."""
        each = self.seconds_each()
        return "" if each is None else f"{each:.2f} s each"


class _Lines:
    """Plain progress for logs."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.pace = Pace()
        self.last = time.monotonic()
        self.last_note = ""

    def note(self, text: str) -> None:
        self.last_note = f", {text}"

    def __call__(self, done: float, of: int) -> None:
        self.pace.see(done)
        now = time.monotonic()
        if now - self.last < EVERY:
            return
        self.last = now
        each = self.pace.seconds_each()
        left = "" if each is None else f", {each:.2f} s each, {clock(each * (of - done))} left"
        count = f"{done:.1f}".removesuffix(".0")
        print(f"{self.what}: {count} of {of}{left}{self.last_note}", file=sys.stderr, flush=True)


def print_numbers(numbers: Mapping[str, Any], as_json: bool) -> None:
    """Print a result: one name and value a line, or one JSON object."""
    if as_json:
        print(json.dumps(numbers))
        return
    width = max(len(name) for name in numbers)
    for name, value in numbers.items():
        print(f"{name.replace('_', ' '):<{width}}  {_cell(value)}")


def print_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], left: Collection[str] = ()) -> None:
    """Print a table: names above, numbers with four digits below.

    Args:
        left: columns of text, which begin at the left.
    """
    lines = [[_cell(row.get(name)) for name in columns] for row in rows]
    titles = [name.replace("_", " ") for name in columns]
    widths = [max(map(len, column)) for column in zip(titles, *lines, strict=True)]
    for line in (titles, *lines):
        cells = zip(line, widths, columns, strict=True)
        texts = [text.ljust(width) if name in left else text.rjust(width) for text, width, name in cells]
        print("  ".join(texts).rstrip())


def _cell(value: object) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def clock(seconds: float) -> str:
    """Write a duration as h:mm:ss.

    >>> clock(3725)
    '1:02:05'
    """
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}"
