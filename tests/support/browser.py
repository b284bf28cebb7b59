"""A headless Chromium, spoken to over the DevTools protocol through a pair of pipes."""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
TO_BROWSER, FROM_BROWSER = 3, 4  # descriptors that --remote-debugging-pipe reads and writes


def find_browser() -> str | None:
    """Return the path of a Chromium, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One page of a browser; `requests` are all addresses that it asked for."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self.to_browser, self.from_browser = to_browser, from_browser
        self.number, self.rest, self.session = 0, b"", ""
        self.requests: list[str] = []
        self.faults: list[str] = []
        self.seen: list[str] = []

    def ask(self, method: str, **options: Any) -> Any:
        """Send a command and wait for its answer."""
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": options}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        while True:
            got = self._next()
            if got.get("id") == self.number:
                assert "error" not in got, got
                return got["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            part = os.read(self.from_browser, 1 << 16)
            assert part, "the browser has ended"
            self.rest += part
        line, _, self.rest = self.rest.partition(b"\0")
        got: dict[str, Any] = json.loads(line)
        self._note(got)
        return got

    def _note(self, got: dict[str, Any]) -> None:
        method, about = got.get("method", ""), got.get("params", {})
        self.seen.append(method)
        if method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.faults.append(str(about["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.faults.append(str(about["entry"]))

    def start(self) -> None:
        """Open a tab and listen to what it does."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def open(self, path: Path, width: int, *, dark: bool = False, media: str = "screen") -> None:
        """Open a file in a window of this width."""
        shape = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.ask("Emulation.setDeviceMetricsOverride", **shape)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.ask("Emulation.setEmulatedMedia", media=media, features=scheme)
        self.seen.clear()
        self.ask("Page.navigate", url=path.absolute().as_uri())
        while "Page.loadEventFired" not in self.seen:
            self._next()

    def run(self, script: str) -> Any:
        """Return what an expression of JavaScript gives."""
        got = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in got, got
        return got["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key."""
        code = {"Enter": 13, "Tab": 9}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.ask(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text
            )

    def screenshot(self, out: Path) -> None:
        """Write a picture of the whole page."""
        got = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        out.write_bytes(base64.b64decode(got["data"]))


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """Start a browser that keeps everything in a folder."""
    path = find_browser()
    assert path is not None
    out_of_us, to_browser = os.pipe()
    from_browser, into_us = os.pipe()
    # The shell gives the pipes the numbers that the browser expects.
    words = [path, *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={folder}"]
    line = f'exec "$@" {TO_BROWSER}<&{out_of_us} {FROM_BROWSER}>&{into_us}'
    process = subprocess.Popen(
        ["bash", "-c", line, "browser", *words],
        pass_fds=(out_of_us, into_us),
        env={**os.environ, "TMPDIR": str(folder)},  # where it leaves files behind
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(out_of_us)
    os.close(into_us)
    try:
        page = Page(to_browser, from_browser)
        page.start()
        yield page
    finally:
        os.close(to_browser)
        os.close(from_browser)
        process.terminate()
        process.wait(timeout=30)
