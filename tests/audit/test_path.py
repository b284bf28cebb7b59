from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fastdime.audit.path import steps_between, write_paths
from fastdime.counterfactuals.explainer import Explainer
from fastdime.data.io import read
from fastdime.errors import InputError
from fastdime.pixels import to_grid
from support import tiny

IDS = ["a", "b/c", "d"]


def explainer(method: str = "fastdime", channels: int = 1, **changes: object) -> Explainer:
    settings = tiny.small(method, scales=[0.001, 1.0]).model_copy(update=changes)
    return Explainer(tiny.denoiser(channels), tiny.classifier(channels), settings, seed=3)


def flips(maker: Explainer, x: Tensor) -> list[tuple[str, Tensor, int]]:
    """Images with the class that the classifier does not give them."""
    with torch.no_grad():
        answers = maker.classifier.logits(x, torch.zeros(len(x), dtype=torch.int64))[:, 0] > 0
    return [
        (name, picture, int(not yes)) for name, picture, yes in zip(IDS, x, answers.tolist(), strict=True)
    ]


def pictures(folder: Path) -> list[Tensor]:
    names = sorted(path.name for path in folder.iterdir())
    assert names == [f"{number}.png" for number in range(len(names))]
    return [read(folder / name).x for name in names]


@pytest.mark.parametrize("channels", [1, 3])
def test_from_the_image_to_its_counterfactual(channels: int, tmp_path: Path) -> None:
    maker, x = explainer(channels=channels), tiny.images(3, channels)
    wanted = flips(maker, x)
    write_paths(maker, wanted, tmp_path, 5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b%2Fc", "d"]
    for name, picture, target in wanted:
        found = pictures(tmp_path / name.replace("/", "%2F"))
        alone = maker(picture[None], torch.tensor([target]), ids=[name], record=[1, 3, 4])
        assert len(found) == 5
        assert torch.equal(found[0], picture)
        assert torch.equal(found[-1], alone.x_cf[0])
        for between, moment in zip(found[1:-1], alone.trajectory, strict=True):
            assert torch.equal(between, to_grid(moment.x0_hat[0].clamp(-1, 1)))
        assert not torch.equal(found[1], found[3])


def test_what_is_there_stays_and_the_rest_is_the_same(tmp_path: Path) -> None:
    maker = explainer()
    wanted = flips(maker, tiny.images())
    write_paths(maker, wanted, tmp_path / "once")
    write_paths(maker, wanted[1:2], tmp_path / "twice")
    mark = tmp_path / "twice" / "b%2Fc" / "0.png"
    kept = mark.read_bytes()
    mark.write_bytes(b"seen")
    write_paths(replace(maker, seed=3), wanted[::-1], tmp_path / "twice")
    assert mark.read_bytes() == b"seen"
    mark.write_bytes(kept)
    for path in sorted((tmp_path / "once").rglob("*.png")):
        again = tmp_path / "twice" / path.relative_to(tmp_path / "once")
        assert again.read_bytes() == path.read_bytes()


def test_a_folder_that_was_left_empty_is_filled(tmp_path: Path) -> None:
    maker = explainer()
    (tmp_path / "a").mkdir()
    write_paths(maker, flips(maker, tiny.images())[:1], tmp_path)
    assert len(pictures(tmp_path / "a")) == 6


def test_nothing_is_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = explainer()

    def full(path: Path, picture: Tensor) -> None:
        raise InputError("no room")

    with monkeypatch.context() as patch:
        patch.setattr("fastdime.audit.path.write_image", full)
        with pytest.raises(InputError, match="no room"):
            write_paths(maker, flips(maker, tiny.images())[:1], tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("method", ["dime", "ace-l1", "fastdime-2", "fastdime-2+"])
def test_other_methods(method: str, tmp_path: Path) -> None:
    maker = explainer(method)
    write_paths(maker, flips(maker, tiny.images())[:1], tmp_path, 4)
    assert len(pictures(tmp_path / "a")) == 4


def test_a_short_chain_has_fewer_pictures(tmp_path: Path) -> None:
    maker = explainer(tau=2, mask_from=1)
    write_paths(maker, flips(maker, tiny.images())[:1], tmp_path, 9)
    assert len(pictures(tmp_path / "a")) == 2 + 2


def test_a_target_that_is_met_already(tmp_path: Path) -> None:
    maker, x = explainer(), tiny.images()
    [(name, picture, target)] = flips(maker, x)[:1]
    write_paths(maker, [(name, picture, 1 - target)], tmp_path)
    first, last = pictures(tmp_path / name)
    assert torch.equal(first, picture)
    assert torch.equal(last, picture)


def test_progress(tmp_path: Path) -> None:
    maker, seen = explainer(), []
    wanted = flips(maker, tiny.images())
    for _ in range(2):
        write_paths(maker, wanted, tmp_path, 2, progress=lambda done, of: seen.append((done, of)))
    assert seen == [(1, 3), (2, 3), (3, 3)] * 2


def test_images_of_16_bits_become_pictures_of_8(tmp_path: Path) -> None:
    maker = replace(explainer(), bits=16)
    write_paths(maker, flips(maker, tiny.images(bits=16))[:1], tmp_path)
    assert {read(path).bits for path in tmp_path.rglob("*.png")} == {8}


def test_too_few_pictures(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="frames: expected a whole number >= 2, got 1"):
        write_paths(explainer(), [], tmp_path, 1)


@pytest.mark.parametrize("steps", [1, 2, 5, 60, 301])
@pytest.mark.parametrize("frames", [2, 3, 6, 12])
def test_steps_lie_between(steps: int, frames: int) -> None:
    found = steps_between(steps, frames)
    assert len(found) == min(steps, frames - 2) or steps < 2 * frames
    assert len(set(found)) == len(found)
    assert all(0 <= step < steps for step in found)
