import json
import random
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastdime.errors import DataError, FastdimeError, InputError
from fastdime.report import page
from fastdime.report.page import write_report
from fastdime.runs import file_stem, image_path, mask_path
from support.audits import Plan, make_audit, noise
from support.html import cards, pixels, read

HOSTILE = (
    "<script>window.hacked=1</script>",
    "\"><img src=x onerror='window.hacked=1'>",
    "a'b&amp;c</script>",
    "two\nlines",
    "\udce9 no text",
    "{{ 7 * 7 }}",
)


def test_everything_stands_there_in_order(tmp_path: Path) -> None:
    plan = Plan(models=("resnet", "vit"), shortcuts=("pacemaker", "tube"))
    done = write_report(make_audit(tmp_path, plan))
    found = read(done.path)
    assert done.path == tmp_path / "audit" / "report.html"
    assert (done.bytes, done.shown, done.images, done.missing) == (done.path.stat().st_size, 16, 16, 0)
    order = (
        "verdict",
        "effects",
        "numbers",
        "strata",
        "dose",
        "trust",
        "images",
        "paths",
        "method",
        "meaning",
    )
    assert tuple(tag["id"] for tag in found.all("section") if tag.get("id")) == order
    linked = [link["href"] for link in found.all("a") if link["href"] not in ("#main", "#warnings")]
    assert linked == [f"#{name}" for name in order]
    for text in (
        "4 questions. Relies: 2; cannot tell: 1; no reliance above 0.05: 1.",
        "! Relies resnet relies on pacemaker: the effect above placebo is 0.31 in 40 images",
        "✓ No reliance above 0.05 vit does not rely on pacemaker by more than 0.05: the effect",
        "? Cannot tell It cannot be told whether resnet relies on tube: the effect",
        "Effect above placebo 0.310 (0.280 to 0.340)",
        "MD (s=0): added -0.350 (-0.380 to -0.320)",
        "Trend: p = 0.0004.",
        "97 % (94 % to 100 %) of 40 by chest-pacemaker/shortcut",
        "! Failed 0.04 0.02 returns nearer",
        "8 images: the shortcut removed from 4, added to 4; 1 failed.",
        "the oracle sees the shortcut added in only 71% of the images",
        "0.910 → 0.840 -0.070 (-0.100 to -0.040), p = 0.010",
        "All 8 images, ranked by the change of resnet.",
        "the whole 90 % interval of the effect lies within 0.05 of zero",
        "fastdime score audit/pacemaker/edit",
        "second_pass null",
    ):
        assert text in found.text, text
    assert found.text.index("Relies resnet") < found.text.index("Cannot tell It") < found.text.index("✓ No")


def test_numbers_of_the_page_are_those_of_the_audit(tmp_path: Path) -> None:
    run = make_audit(tmp_path)
    text = write_report(run).path.read_text(encoding="utf8")
    inside = re.search(r'<script type="application/json" id="audit">(.*?)</script>', text, flags=re.DOTALL)
    assert inside is not None
    assert json.loads(inside[1]) == json.loads((run / "audit.json").read_bytes())


def test_pictures_are_those_of_the_run(tmp_path: Path) -> None:
    run = make_audit(tmp_path, Plan(ids=("a", "b")))
    found = read(write_report(run).path)
    assert cards(found) == ["a", "b"]  # both moved as much
    shown = {picture["alt"]: pixels(picture["src"]) for picture in found.all("img")}
    assert all(picture["alt"] for picture in found.all("img"))
    edit = run / "pacemaker" / "edit"
    for alt, path in [
        ("Original of a", tmp_path / "images" / "0.png"),
        ("Counterfactual of a: pacemaker removed", image_path(edit, "a")),
        ("Counterfactual of b: pacemaker added", image_path(edit, "b")),
        ("Mask of a: 7 % of the image may change", mask_path(edit, "a")),
        ("Placebo edit of a", run / "pacemaker" / "placebo" / "a.png"),
        ("Exact counterfactual of b: pacemaker added", run / "pacemaker" / "truth" / "b.png"),
        ("SmoothGrad of resnet for a", run / "pacemaker" / "smoothgrad" / "resnet" / "a.png"),
        ("State 9 of the path of a", run / "pacemaker" / "path" / "a" / "9.png"),
    ]:
        with Image.open(path) as image:
            assert np.array_equal(np.asarray(shown[alt]), np.asarray(image)), alt
    difference = np.asarray(shown["Difference map of a: largest change 0.20 on the scale from 0 to 1"])
    assert difference[3, 3].tolist() == [200, 30, 30]
    assert difference[8, 9, 2] > difference[8, 9, 0] + 100
    assert difference[15, 15].tolist() == [255, 255, 255]


def test_those_that_moved_most_and_least(tmp_path: Path) -> None:
    ids = tuple(f"{i}" for i in range(9))  # the fixture moves those in the middle most
    run = make_audit(tmp_path, Plan(ids=ids))
    done = write_report(run, limit=3)
    found = read(done.path)
    assert cards(found) == ["4", "3", "8"]
    assert (done.shown, done.images) == (3, 9)
    assert "3 of 9 images: the 2 that moved most and the 1 that moved least, ranked" in found.text
    table = run / "effects.csv"
    head, *lines = table.read_text().splitlines(keepends=True)
    random.Random(0).shuffle(lines)
    table.write_text(head + "".join(lines))
    assert write_report(run, tmp_path / "other.html", limit=3).path.read_bytes() == done.path.read_bytes()


def test_ranked_by_the_row_with_the_largest_effect(tmp_path: Path) -> None:
    run = make_audit(tmp_path, Plan(ids=tuple("abcd"), models=("first", "second")))
    audit = json.loads((run / "audit.json").read_bytes())
    audit["rows"][1]["effect"]["value"] = 0.9
    (run / "audit.json").write_text(json.dumps(audit))
    found = read(write_report(run, limit=2).path)
    assert "ranked by the change of second." in found.text
    moved = [float(card["data-moved"] or "") for card in found.all("li", "card")]
    assert moved == pytest.approx([0.034238, 0.02116], abs=1e-5)  # of 0.036, the MAD of the second row


def test_nothing_that_a_user_names_becomes_markup(tmp_path: Path) -> None:
    named = {"models": (HOSTILE[0], HOSTILE[2]), "outputs": (HOSTILE[1],), "by": (HOSTILE[0],)}
    plan = Plan(ids=HOSTILE, shortcuts=(HOSTILE[1],), warnings=HOSTILE[:3], **named)
    done = write_report(make_audit(tmp_path, plan))
    found, text = read(done.path), done.path.read_text(encoding="utf8")
    assert Counter(tag for tag, _ in found.tags)["script"] == 2
    assert not [name for _, given in found.tags for name in given if name.startswith("on")]
    expected = [name.encode("utf8", "backslashreplace").decode() for name in HOSTILE]
    assert sorted(cards(found), key=str) == sorted(expected)
    assert "{{ 7 * 7 }}" in found.text
    inside = text.split('id="audit">')[1].split("</script>")[0]
    assert json.loads(inside)["rows"][0]["model"] == HOSTILE[0]
    assert "<" not in inside
    assert f"fastdime score 'audit/{file_stem(HOSTILE[1])}/edit'" in found.text


def test_nothing_comes_from_outside(tmp_path: Path) -> None:
    path = write_report(make_audit(tmp_path)).path
    found, text = read(path), path.read_text(encoding="utf8")
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    assert {"http-equiv": "Content-Security-Policy", "content": policy} in found.all("meta")
    assert not re.search(r"https?:|url\(|@import|\bfetch\b|XMLHttpRequest", text)
    for tag, given in found.tags:
        assert tag not in ("link", "iframe", "object", "embed", "base")
        assert str(given.get("src", "data:")).startswith("data:image/png;base64,") or tag != "img"
        assert given.get("href", "#").startswith("#")
        assert str(tmp_path) not in str(given)
    assert str(tmp_path) not in found.text


def test_the_same_folder_gives_the_same_page(tmp_path: Path) -> None:
    run = make_audit(tmp_path)
    first = write_report(run).path.read_bytes()
    told: list[tuple[float, int]] = []
    second = write_report(
        run, tmp_path / "new" / "page.HTM", progress=lambda done, of: told.append((done, of))
    )
    assert second.path.read_bytes() == first
    assert told == [(i + 1, 8) for i in range(8)]


def test_only_what_is_there_is_shown(tmp_path: Path) -> None:
    run = make_audit(tmp_path, Plan(extras=False, by=(), warnings=()))
    audit = json.loads((run / "audit.json").read_bytes())
    nothing = {"value": None, "low": None, "high": None, "n": 0, "clusters": 0}
    audit["rows"][0] |= {"null": nothing, "reseed": nothing, "strata": [], "auroc": None}
    audit["rows"][0]["effect"]["clusters"] = 40
    (run / "audit.json").write_text(json.dumps(audit))
    found = read(write_report(run).path)
    body = found.text.partition("What it means Counterfactual")[0]
    for word in (
        "Null edit",
        "Second seed",
        "AUROC",
        "SmoothGrad",
        "State",
        "Dose",
        "True",
        "Images Patients",
    ):
        assert word not in body, word
    assert "Warnings None." in body


def test_columns_of_by_may_have_any_name(tmp_path: Path) -> None:
    found = read(write_report(make_audit(tmp_path, Plan(by=("model", "id", "group")))).path)
    assert sorted(map(str, cards(found))) == sorted(Plan().ids)
    assert "patient: patient-3 effusion: 0 model: a id: a group: a" in found.text


def test_an_audit_that_has_asked_nobody(tmp_path: Path) -> None:
    run = make_audit(tmp_path)
    audit = json.loads((run / "audit.json").read_bytes())
    (run / "audit.json").write_text(json.dumps(audit | {"rows": []}))
    found = read(write_report(run).path)
    assert "No model was asked yet" in found.text
    assert "No model was asked about images of this shortcut." in found.text


def test_pictures_that_were_moved_or_deleted(tmp_path: Path) -> None:
    run = make_audit(tmp_path, Plan(ids=tuple("abcdef"), extras=False))
    edit = run / "pacemaker" / "edit"
    (tmp_path / "images" / "0.png").unlink()
    image_path(edit, "b").unlink()
    mask_path(edit, "c").unlink()
    image_path(edit, "d").write_bytes(b"broken")
    Image.new("L", (20, 20)).save(tmp_path / "images" / "4.png")
    done = write_report(run)
    found = read(done.path)
    assert done.missing == 4
    gaps = [gap["aria-label"] for gap in found.all("div", "gap")]
    differences = [f"Difference map of {name}: not available" for name in "abde"]
    others = ["Original", "Counterfactual", "Mask", "Counterfactual"]
    assert sorted(map(str, gaps)) == sorted([*differences, *(f"{one}: not available" for one in others)])
    for sentence in (
        "0.png is no longer where it was.",
        "b.png is no longer where it was.",
        "c.mask.png is no longer where it was.",
        "d.png: expected a PNG, JPEG, TIFF, BMP, DICOM or .npy image, got a file that is none of these",
        "The two pictures do not fit together.",
        "A difference needs both pictures.",
    ):
        assert sentence in found.text, sentence
    assert str(tmp_path) not in found.text


def test_edits_that_are_gone_or_were_made_elsewhere(tmp_path: Path) -> None:
    run = make_audit(tmp_path)
    (run / "pacemaker" / "edit" / "records.jsonl").unlink()
    found = read(write_report(run).path)
    told = "The edits cannot be shown: pacemaker/edit: expected a run folder, got no records.jsonl in it"
    assert told in found.text
    audit = json.loads((run / "audit.json").read_bytes())
    audit["generators"][0] |= {"bundle": None, "method": None, "compliance": None, "self_tests": []}
    (run / "audit.json").write_text(json.dumps(audit))
    found = read(write_report(run).path)
    assert "The pictures were made elsewhere, so none are shown." in found.text
    assert "Nobody was asked whether the shortcut really went or came." in found.text
    (run / "effects.csv").unlink()
    found = read(write_report(run).path)
    assert "effects.csv is no longer in the folder of the audit, so no images are shown." in found.text


def test_a_large_page_gets_smaller_pictures_then_fewer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_audit(tmp_path, Plan(ids=tuple("abcd"), extras=False), noise(300, 3))
    most = 700_000
    monkeypatch.setattr(page, "TEXT_ROOM", 100_000)
    monkeypatch.setattr(page, "LARGEST_PAGE", most)
    done = write_report(run)
    found = read(done.path)
    sizes = {max(pixels(picture["src"]).size) for picture in found.all("img")}
    assert done.bytes <= most
    assert len(sizes) == 1
    assert sizes < {192, 128, 96}
    assert f"pictures have up to {sizes.pop()} pixels." in found.text
    monkeypatch.setattr(page, "LARGEST_PAGE", 230_000)
    done = write_report(run)
    assert done.bytes <= 230_000
    assert done.shown == 1
    told = "pictures have up to 96 pixels, and at most 1 images for each shortcut."
    assert told in read(done.path).text
    monkeypatch.setattr(page, "LARGEST_PAGE", 110_000)
    done = write_report(run)
    assert done.shown == 0
    assert "None of 4 images can be shown here." in read(done.path).text


def test_a_plain_run(tmp_path: Path) -> None:
    run = make_audit(tmp_path) / "pacemaker" / "edit"
    lost = '{"id": "lost", "path": "lost.png", "error": "no <such> file"}\n'
    (run / "records.jsonl").write_text((run / "records.jsonl").read_text() + lost)
    done = write_report(run, limit=4)
    found = read(done.path)
    assert done.path == run / "report.html"
    assert cards(found) == ["image-0", "image-1", "image-7", "image-6"]
    for text in (
        "Images 8 Could not be used 1 Reached their target 75 %",
        "1 image could not be used no <such> file",
        "4 of 8 images: the 2 that moved most and the 2 that moved least.",
        "p(class 1): 0.100 → 0.900",
        "target: not reached",
        "fastdime score edit",
        "method fastdime-null",
    ):
        assert text in found.text, text
    assert "effect" not in found.text.lower()


def broken(run: Path, name: str, text: str) -> FastdimeError:
    (run / name).write_text(text)
    with pytest.raises(FastdimeError) as caught:
        write_report(run)
    assert "\n" not in str(caught.value)
    return caught.value


def test_what_cannot_be_reported(tmp_path: Path) -> None:
    run = make_audit(tmp_path)
    whole = (run / "audit.json").read_text()
    with pytest.raises(InputError, match="none: expected the folder of an audit, got no such folder; check"):
        write_report(tmp_path / "none")
    with pytest.raises(InputError, match=r"expected the folder of an audit, got no audit\.json in it"):
        write_report(tmp_path)
    with pytest.raises(InputError, match="limit: expected 1 or more, got 0"):
        write_report(run, limit=0)
    with pytest.raises(InputError, match=r"page\.pdf: expected a name that ends in \.html, got '\.pdf'"):
        write_report(run, run / "page.pdf")
    with pytest.raises(InputError, match="expected a place that can be written"):
        write_report(run, run / "audit.json" / "page.html")
    assert "expected JSON, got Expecting" in str(broken(run, "audit.json", "{"))
    assert "expected a value for versions, got none" in str(broken(run, "audit.json", "{}"))
    later = str(broken(run, "audit.json", json.dumps(json.loads(whole) | {"format": 2})))
    assert later.endswith("audit.json: format: expected 1, got 2")
    (run / "audit.json").write_text(whole)
    table = (run / "effects.csv").read_text()
    head = table.splitlines()[0]
    assert "got no column 'id'" in str(broken(run, "effects.csv", "shortcut,model,output\n"))
    assert "line 2: expected 17 cells, got 3" in str(broken(run, "effects.csv", f"{head}\na,b,c\n"))
    assert "expected last columns sex, got age" in str(broken(run, "effects.csv", head.replace("sex", "age")))
    bad = broken(run, "effects.csv", table.replace("0.800000", "much", 1))
    assert isinstance(bad, DataError)
    assert "effects.csv line 2, p_before: expected a number, got 'much'; audit again" in str(bad)
    (run / "effects.csv").write_text(table)
    assert "dose.json: expected a value for rows, got none" in str(broken(run, "dose.json", "{}"))
    assert not (run / "report.html").exists()
