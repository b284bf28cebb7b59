"""One self-contained HTML file about the folder of an audit, or about a plain run."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from shlex import quote
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fastdime import __version__
from fastdime.audit.schema import AUDIT_FILE
from fastdime.errors import InputError, expected
from fastdime.files import not_writable, write_atomically
from fastdime.pipeline.pairs import Pairs, pairs_of_run
from fastdime.pipeline.summary import summarise
from fastdime.report import tables, words
from fastdime.report.cards import Desk, Gallery, audit_gallery, run_gallery
from fastdime.report.folder import AuditFolder, read_folder
from fastdime.report.pictures import PageTooLarge, Shelf
from fastdime.report.plots import dose_plot, forests, overview
from fastdime.runs import CONFIG

REPORT_FILE = "report.html"
LARGEST_PAGE = 15_000_000  # bytes
TEXT_ROOM = 1_500_000  # of them, left for everything but pictures
SIDES = (256, 192, 128, 96)  # pixels that pictures are made smaller to, until they fit
Progress = Callable[[float, int], None]
Parts = dict[str, Any]


@dataclass(frozen=True)
class Written:
    """A page that was written.

    Attributes:
        shown, images: images on the page, and images that there are, over all shortcuts.
        missing: pictures that were moved or deleted since.
    """

    path: Path
    bytes: int
    shown: int
    images: int
    missing: int


def write_report(
    run: str | Path, out: str | Path | None = None, limit: int = 12, progress: Progress | None = None
) -> Written:
    """Write the report of an audit, or a smaller one of a run of `explain`.

    Args:
        out: where; report.html in the folder unless given.
        limit: images shown for each shortcut, half of them those that moved most.
        progress: called with (images done, images in all).

    Raises:
        InputError: the folder is neither of the two.
        DataError: a file of it is broken.
    """
    if limit < 1:
        raise InputError(expected("limit", "1 or more", limit))
    folder = Path(run)
    file = _checked_out(folder / REPORT_FILE if out is None else Path(out))
    make = _maker(folder, progress or (lambda done, of: None))
    for side, most in _attempts(limit):
        shelf = Shelf(side, LARGEST_PAGE - TEXT_ROOM)
        try:
            text, galleries = make(shelf, most, limit)
        except PageTooLarge:
            continue
        if len(text) <= LARGEST_PAGE:
            break
    _write(file, text)
    shown, images = (sum(map(count, galleries)) for count in (lambda g: len(g.cards), lambda g: g.of))
    return Written(file, len(text), shown, images, shelf.missing)


def _attempts(limit: int) -> Iterator[tuple[int, int]]:
    """Yield smaller and smaller pictures, then fewer and fewer."""
    yield from ((side, limit) for side in SIDES)
    while limit > 0:
        limit //= 2
        yield SIDES[-1], limit


def _checked_out(file: Path) -> Path:
    if file.suffix.lower() not in (".html", ".htm"):
        raise InputError(expected(str(file), "a name that ends in .html", repr(file.suffix)))
    return file


def _write(file: Path, text: bytes) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(file, error) from None
    write_atomically(file, text)


Made = tuple[bytes, list[Gallery]]


def _maker(run: Path, progress: Progress) -> Callable[[Shelf, int, int], Made]:
    """Read a folder, and return what makes its page with a shelf for so many images of those asked for."""
    if (run / CONFIG).is_file() and not (run / AUDIT_FILE).is_file():
        pairs = pairs_of_run(run)
        return lambda shelf, most, asked: _run_page(run, pairs, _Counter(progress, shelf, most, asked))
    folder = read_folder(run)
    return lambda shelf, most, asked: _audit_page(folder, _Counter(progress, shelf, most, asked))


@dataclass
class _Counter:
    """Counts the images of one attempt."""

    progress: Progress
    shelf: Shelf
    most: int
    asked: int
    total: int = 0
    done: int = 0

    def desk(self, available: list[int]) -> Desk:
        self.total = sum(min(self.most, count) for count in available)
        return Desk(self.shelf, self.most, self.tell)

    def tell(self) -> None:
        self.done += 1
        self.progress(self.done, self.total)

    @property
    def size_note(self) -> str:
        """Say what was done to keep the page small; empty if nothing was."""
        if self.shelf.longest == SIDES[0]:
            return ""
        limit = f"{LARGEST_PAGE // 1_000_000} MB"
        fewer = "" if self.most == self.asked else f", and at most {self.most} images for each shortcut"
        return f"To keep this file below {limit}, pictures have up to {self.shelf.longest} pixels{fewer}."


def _audit_page(folder: AuditFolder, counter: _Counter) -> Made:
    audit = folder.audit
    desk = counter.desk([len(found) for found in folder.subjects.values()])
    galleries = [audit_gallery(folder, generator, desk) for generator in audit.generators]
    rows = sorted(audit.rows, key=lambda row: words.ORDER.index(row.verdict))
    parts: Parts = {
        "audit": audit,
        "answers": [words.answer(row, audit) for row in rows],
        "tally": words.tally(audit),
        "overview": overview(audit),
        "forests": forests(audit),
        "matrix": tables.matrix(audit),
        "tables": [tables.effects_table(audit), tables.tests_table(audit)] if audit.rows else [],
        "strata": tables.strata_table(audit),
        "dose": folder.dose,
        "dose_plot": None if folder.dose is None else dose_plot(folder.dose),
        "trust": [
            (generator, tables.trust_table(generator), tables.self_test_table(generator))
            for generator in audit.generators
        ],
        "galleries": galleries,
        "notes": (*folder.notes, *([counter.size_note] if counter.size_note else [])),
        "run": folder.path.absolute().name,
        "record": audit.model_dump(mode="json"),
    }
    return _rendered("audit.html", parts), galleries


SUMMARY = {
    "images": "Images",
    "errors": "Could not be used",
    "flip_rate": "Reached their target",
    "mean_change": "Mean change of a pixel, 0 to 1",
    "changed_area": "Changed area",
    "seconds_per_image": "Seconds for an image",
    "denoiser_calls": "Denoiser calls for an image",
    "gradient_calls": "Gradient calls for an image",
}


def _run_page(run: Path, pairs: Pairs, counter: _Counter) -> Made:
    found = asdict(summarise(run))
    gallery = run_gallery(pairs, counter.desk([len(pairs)]))
    parts: Parts = {
        "summary": tables.summary_table({title: found[name] for name, title in SUMMARY.items()}),
        "galleries": [gallery],
        "notes": [counter.size_note] if counter.size_note else [],
        "failed": pairs.failed,
        "config": pairs.config,
        "run": run.absolute().name,
    }
    return _rendered("run.html", parts), [gallery]


@cache
def _environment() -> Environment:
    environment = Environment(
        autoescape=True,
        loader=PackageLoader("fastdime.report"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "source": _source,
        "version": __version__,
        "settings_rows": tables.settings_rows,
        "counted": words.counted,
    }
    environment.filters |= {"decimal": words.decimal, "chance": words.chance, "quoted": quote}
    return environment


def _source(name: str) -> Markup:
    """Return a style sheet or script of the package as it is."""
    return Markup((Path(__file__).parent / "templates" / name).read_text(encoding="utf8"))


def _rendered(template: str, parts: Parts) -> bytes:
    # An id may hold bytes that are no text; they are shown as codes.
    text = _environment().get_template(template).render(parts)
    return text.encode("utf-8", "backslashreplace")
