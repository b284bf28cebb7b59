"""The page as a browser shows it: sorting, filters, and that nothing runs into anything else."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fastdime.report.page import write_report
from support.audits import Plan, make_audit
from support.browser import Page, browser, find_browser

pytestmark = pytest.mark.skipif(find_browser() is None, reason="needs Chromium; Debian: apt install chromium")

IDS = ("<script>window.hacked=1</script>", "\"><img src=x onerror='window.hacked=1'>", *"abcdef")
PLAN = Plan(
    ids=IDS,
    models=("a model with a name that goes on and on", "resnet"),
    shortcuts=("pacemaker", "averyveryverylongnameofashortcutthatcannotbebroken"),
)

# Boxes of all lines of text that can be seen; those in a part that scrolls count as far as it shows them.
OVERLAPS = """(() => {
  const boxes = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement;
    if (!node.data.trim() || !parent.checkVisibility() || parent.closest("script, select, .skip")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const frame = parent.closest(".scroll")?.getBoundingClientRect();
    for (const box of range.getClientRects()) {
      const right = Math.min(box.right, frame ? frame.right : Infinity);
      if (right - box.left > 1) boxes.push([box.left, box.top, right, box.bottom, node.data.trim()]);
    }
  }
  boxes.sort((a, b) => a[1] - b[1]);
  const found = [];
  boxes.forEach((a, i) => {
    for (let j = i + 1; j < boxes.length && boxes[j][1] < a[3] - 2; j++) {
      const b = boxes[j];
      if (Math.min(a[2], b[2]) - Math.max(a[0], b[0]) > 2) found.push(`${a[4]} | ${b[4]}`);
    }
  });
  const outside = boxes.filter((box) => box[0] < 0 || box[2] > innerWidth + 1);
  return [boxes.length, found, outside.map((box) => box[4])];
})()"""
SHOWN = "[...document.querySelectorAll('.card')].filter(c => c.checkVisibility()).map(c => c.dataset.id)"
TABLE = "document.querySelector('#numbers .sortable')"
COLUMN = f"[...{TABLE}.tBodies[0].rows].map(r => r.cells[{{}}].textContent)"
HEADS = f"{TABLE}.tHead.rows[0].cells"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = make_audit(tmp_path_factory.mktemp("audit"), PLAN)
    (run / "pacemaker" / "placebo" / "a.png").write_bytes(b"broken")
    return write_report(run).path


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


def choose(page: Page, name: str, value: str) -> list[str]:
    """Set a field of the tools, as a person does; returns the ids that are still shown."""
    page.run(
        f"(f => {{ f.value = {value!r}; f.dispatchEvent(new Event('input', {{bubbles: true}})); }})"
        f"(document.getElementById('tools').elements.{name})"
    )
    shown: list[str] = page.run(SHOWN)
    return shown


def test_nothing_is_asked_for_and_nothing_fails(page: Page, report: Path) -> None:
    page.requests.clear()
    page.open(report, 1280)
    outside = [address for address in page.requests if not address.startswith("data:image/png;base64,")]
    assert outside == [report.as_uri()]
    assert page.faults == []
    assert page.run("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
    assert page.run("typeof window.hacked") == "undefined"
    assert sorted(page.run(SHOWN)) == sorted(IDS * 2)


def test_columns_are_sorted_by_mouse_and_keyboard(page: Page, report: Path) -> None:
    page.open(report, 1280)
    titles = page.run(f"[...{HEADS}].map(h => h.textContent)")
    effect = titles.index("Effect")
    cells = COLUMN.format(effect)
    before = page.run(cells)
    assert len(before) == 4
    page.run(f"{HEADS}[{effect}].querySelector('button').click()")
    rising = page.run(cells)
    assert rising == sorted(before)
    assert rising != before
    page.run(f"{HEADS}[{effect}].querySelector('button').focus()")
    page.press("Enter")
    assert page.run(cells) == rising[::-1]
    assert page.run(f"[...{HEADS}].map(h => h.getAttribute('aria-sort'))") == [
        "descending" if title == "Effect" else None for title in titles
    ]
    page.press("Tab")
    assert page.run("document.activeElement.textContent") == titles[effect + 1]
    assert page.run("parseFloat(getComputedStyle(document.activeElement).outlineWidth)") >= 2


def test_images_are_filtered_and_sorted(page: Page, report: Path) -> None:
    page.open(report, 1280)
    count = "document.getElementById('count').textContent"
    every = page.run(SHOWN)
    assert page.run(count) == "16 of 16 images below are shown"
    assert choose(page, "wanted_id", " <SCRIPT") == [IDS[0]] * 2
    assert page.run(count) == "2 of 16 images below are shown"
    choose(page, "wanted_id", "")
    assert sorted(choose(page, "wanted_group", "patient-1")) == ["a", "a", "b", "b"]
    assert choose(page, "direction", "added") == ["b", "b"]
    choose(page, "wanted_group", "")
    assert sorted(set(choose(page, "direction", "removed"))) == sorted(IDS[::2])
    assert choose(page, "direction", "") == every
    half = len(IDS)
    moved = "[...document.querySelectorAll('.card')].map(c => Number(c.dataset.{}))"
    choose(page, "sort", "+moved")
    numbers = page.run(moved.format("moved"))
    assert numbers[:half] == sorted(numbers[:half])
    choose(page, "sort", "-effect")
    numbers = page.run(moved.format("effect"))
    assert numbers[:half] == sorted(numbers[:half], reverse=True)
    assert choose(page, "sort", "id")[2:half] == list("abcdef")
    assert choose(page, "sort", "") == every
    wide = "document.querySelector('.pictures img').clientWidth"
    before = page.run(wide)
    choose(page, "size", "256")
    assert page.run(wide) > before


@pytest.mark.parametrize(
    ("width", "media", "dark"),
    [(1280, "screen", True), (820, "screen", False), (360, "screen", False), (700, "print", True)],
)
def test_no_text_lies_on_another_and_all_fits(
    page: Page, report: Path, width: int, media: str, dark: bool
) -> None:
    page.open(report, width, media=media, dark=dark)
    lines, overlaps, outside = page.run(OVERLAPS)
    assert lines > 500
    assert overlaps == []
    assert outside == []
    assert page.run("document.documentElement.scrollWidth") <= width
    ground = page.run("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(20, 24, 29)" if dark and media == "screen" else "rgb(255, 255, 255)")


def test_every_field_and_scrolling_part_has_a_name(page: Page, report: Path) -> None:
    page.open(report, 1280)
    assert page.run("[...document.querySelectorAll('input, select')].every(f => f.labels.length === 1)")
    assert page.run(
        "[...document.querySelectorAll('.scroll')].every(s => s.tabIndex === 0 && (s.ariaLabel || "
        "document.getElementById(s.getAttribute('aria-labelledby')).textContent))"
    )
    assert page.run("[...document.querySelectorAll('img')].every(i => i.alt)")
    ids = page.run("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
