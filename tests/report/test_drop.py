from pathlib import Path
from xml.etree import ElementTree

from fastdime.report.drop import EDGE, SIDE, write_drop

SVG = "{http://www.w3.org/2000/svg}"


def test_a_point_for_each_model(tmp_path: Path) -> None:
    models = [
        {"k": 100.0, "auroc_k": 1.0, "auroc_u": 0.5, "mad": 1.0, "mad_true": 0.5},
        {"k": 50.0, "auroc_k": 0.9, "auroc_u": 0.9, "mad": 0.0, "mad_true": None},
        {"k": 50.0, "auroc_k": None, "auroc_u": 0.9, "mad": 0.0},
    ]
    tree = ElementTree.parse(write_drop(models, tmp_path / "drop.svg")).getroot()
    circles = [(float(c.get("cx", 0)), float(c.get("cy", 0)), c.get("r")) for c in tree.iter(f"{SVG}circle")]
    low, high = float(EDGE), float(EDGE + SIDE)
    assert (high, low, "5") in circles  # loses half of its AUROC, and moves by 1
    assert (high, low + SIDE / 2, "7") in circles  # the exact counterfactuals move it by one half
    assert (low, high, "5") in circles
    assert len(circles) == 3 + 2  # and the legend
    texts = [text.text for text in tree.iter(f"{SVG}text")]
    assert {"k = 100", "k = 50"} <= set(texts)


def test_nothing_to_draw_is_drawn(tmp_path: Path) -> None:
    assert "<svg" in write_drop([], tmp_path / "drop.svg").read_text()
