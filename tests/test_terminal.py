import io
import signal
import time

import pytest

from fastdime import terminal
from fastdime.terminal import Pace, clock, interrupt_later, progress_of


class Clock:
    """Time that passes only when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture
def clock_(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_pace_counts_only_what_this_process_did(clock_: Clock) -> None:
    pace = Pace()
    clock_.now += 50  # loading models is not working on images
    pace.see(1000)
    assert pace.seconds_each() is None
    assert pace.rate() == ""
    clock_.now += 8
    pace.see(1004)
    assert pace.seconds_each() == 2
    assert pace.rate() == "2.00 s each"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00:00"), (59.6, "0:01:00"), (3725, "1:02:05"), (360000, "100:00:00")]
)
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_plain_lines_now_and_then(clock_: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress_of("images") as show:
        show(20, 100)
        for done in range(21, 61):  # one image a second
            clock_.now += 1
            show(done, 100)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "images: 30 of 100, 1.00 s each, 0:01:10 left",
        "images: 40 of 100, 1.00 s each, 0:01:00 left",
        "images: 50 of 100, 1.00 s each, 0:00:50 left",
        "images: 60 of 100, 1.00 s each, 0:00:40 left",
    ]


def test_a_part_of_an_image_is_told(clock_: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress_of("images") as show:
        for done in (0.0, 0.46, 1000000.0):
            clock_.now += 11
            show(done, 2000000)
    shown = [line.split(",")[0] for line in capsys.readouterr().err.splitlines()]
    assert shown == ["images: 0 of 2000000", "images: 0.5 of 2000000", "images: 1000000 of 2000000"]


def test_short_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_of("images") as show:
        for done in range(5):
            show(done, 4)
    assert capsys.readouterr() == ("", "")


class Screen(io.StringIO):
    """A terminal that remembers what it showed."""

    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    monkeypatch.setattr(terminal.sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with progress_of("images") as show:
        show(0, 8)
        time.sleep(0.05)
        show(3.5, 8)
        show(8, 8)
    shown = screen.getvalue()
    assert "images" in shown
    assert "8/8" in shown
    assert "s each" in shown
    assert capsys.readouterr().out == ""


def test_a_bar_gives_the_terminal_back_when_the_work_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(terminal.sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")

    def interrupted() -> None:
        with progress_of("images") as show:
            show(1, 8)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert screen.getvalue().endswith("\x1b[?25h")  # the cursor is there again


def test_an_interrupt_waits_for_its_moment() -> None:
    steps = []

    def work() -> None:
        with interrupt_later():
            signal.raise_signal(signal.SIGINT)
            steps.append("loaded")
        steps.append("never")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert steps == ["loaded"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_that_is_ignored_stays_ignored() -> None:
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupt_later():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, usual)
