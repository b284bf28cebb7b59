"""Read a page of HTML: tags, texts and the pictures inside."""

import base64
import io
from html.parser import HTMLParser
from pathlib import Path

from PIL import Image

from fastdime.report.words import MINUS

VOID = {"meta", "img", "input", "br", "link"}


class Reader(HTMLParser):
    """Collects tags and texts, and checks that tags are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.text += " "
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["script"], ["style"]):
            self.text += data

    def all(self, tag: str, style: str = "") -> list[dict[str, str | None]]:
        named = [given for name, given in self.tags if name == tag]
        return [given for given in named if not style or style in (given.get("class") or "").split()]


def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text(encoding="utf8"))
    assert not reader.open
    reader.text = " ".join(reader.text.replace(MINUS, "-").split())
    return reader


def pixels(source: str | None) -> Image.Image:
    assert source is not None
    head, _, data = source.partition(",")
    assert head == "data:image/png;base64"
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    image.load()
    return image


def cards(found: Reader) -> list[str | None]:
    return [card["data-id"] for card in found.all("li", "card")]
