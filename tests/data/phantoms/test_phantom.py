import time
import zlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate

from fastdime.data.phantoms.design import Dials
from fastdime.data.phantoms.draw import Canvas
from fastdime.data.phantoms.phantom import STUDIES, Batch, phantom
from fastdime.errors import InputError
from fastdime.pixels import from_integers, to_grid, to_integers

NAMES = tuple(STUDIES)
OBJECT = {"chest-pacemaker": 0.08, "chest-drain": 0.05, "skin-ruler": 0.10, "face-smile": 0.15}
AREA = {"chest-pacemaker": 0.038, "chest-drain": 0.014, "skin-ruler": 0.050, "face-smile": 0.049}


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def batch(name: str) -> Batch:
    return phantom(name).render(11, range(24), 75)


def assert_same(one: Batch, two: Batch) -> None:
    for field in ("x", "other", "placebo_other", "region", "y", "task", "shortcut", "placebo"):
        assert torch.equal(getattr(one, field), getattr(two, field)), field
    assert one.latents.keys() == two.latents.keys()
    assert all((one.latents[key] == two.latents[key]).all() for key in one.latents)


def rows(batch: Batch, index: list[int]) -> Batch:
    fields = ("x", "y", "task", "shortcut", "placebo", "other", "placebo_other")
    latents = {key: values[index] for key, values in batch.latents.items()}
    return replace(batch, **{field: getattr(batch, field)[index] for field in fields}, latents=latents)


def test_an_image_depends_on_its_seed_and_index_only(name: str, batch: Batch) -> None:
    order = [17, 3, 8]
    assert_same(phantom(name).render(11, order, 75), rows(batch, order))
    alone = phantom(name).images(11, [3], 75)
    assert torch.equal(alone.x, batch.x[3:4])
    assert not torch.equal(phantom(name).render(12, [3], 75).x, alone.x)


# The same bytes on every machine; a change of these numbers is a change of the data.
CHECKSUMS = {
    "chest-pacemaker": 2001240669,
    "chest-drain": 204788581,
    "skin-ruler": 3630760896,
    "face-smile": 3130013555,
}


def test_bytes(name: str, batch: Batch) -> None:
    pictures = torch.cat([batch.x, batch.other, batch.placebo_other])
    assert zlib.crc32(to_integers(pictures).byte().numpy().tobytes()) == CHECKSUMS[name]


def test_pixels_are_what_a_file_holds(name: str, batch: Batch) -> None:
    channels = 1 if name.startswith("chest") else 3
    assert batch.x.shape == (24, channels, 64, 64)
    assert batch.x.dtype == torch.float32
    for x in (batch.x, batch.other, batch.placebo_other):
        assert torch.equal(to_grid(x), x)
        assert torch.equal(from_integers(to_integers(x)), x)
    assert batch.x.std() > 0.2


def test_labels_tell_which_object_is_there(name: str, batch: Batch) -> None:
    has, without = batch.with_shortcut, batch.without
    shows = (batch.shortcut == 1).view(-1, 1, 1, 1)
    assert torch.equal(torch.where(shows, has, without), batch.x)
    assert torch.equal(torch.where(shows, without, has), batch.other)
    # The same subjects in another design: x shows the other member of the pair where the label says so.
    again = phantom(name).render(11, range(24), 0)
    assert torch.equal(again.without[again.placebo == batch.placebo], without[again.placebo == batch.placebo])


def test_only_the_object_changes(name: str, batch: Batch) -> None:
    changed = (batch.x != batch.other).any(1, keepdim=True)
    assert 0 < changed.float().mean() < OBJECT[name]
    assert (batch.region <= changed).all()
    assert batch.region.flatten(1).any(1).all()
    difference = (batch.x - batch.other).abs().amax(1, keepdim=True)
    assert difference[~batch.region].max() <= 0.04
    assert difference[batch.region].min() > 0.04
    placebo = (batch.x != batch.placebo_other).any(1)
    assert placebo.flatten(1).any(1).all()
    assert placebo.float().mean() < 0.12


def test_area_of_the_region(name: str) -> None:
    region = phantom(name).render(0, range(60)).region
    assert region.float().mean().item() == pytest.approx(AREA[name], rel=0.2)


def test_geometry_of_the_objects_knows_nothing_of_the_task(name: str) -> None:
    easy, hard = (phantom(name, dials=Dials(d_prime=d)).latents(4, range(40)) for d in (0, 5))
    assert not np.array_equal(easy["z"], hard["z"])
    for key in easy:
        if key.startswith(("shortcut_", "placebo_")):
            assert np.array_equal(easy[key], hard[key]), key
    latents = phantom(name).latents(6, range(1500))
    for key, values in latents.items():
        if key.startswith(("shortcut_", "placebo_")):
            assert abs(np.corrcoef(values, latents["z"])[0, 1]) < 0.1, key


@pytest.mark.parametrize(
    ("chosen", "plane"),
    [("chest-pacemaker", "shortcut"), ("chest-drain", "shortcut"), ("skin-ruler", "ruler")],
)
def test_the_object_is_the_same_whatever_the_class(chosen: str, plane: str) -> None:
    planes = []
    for d_prime in (0, 5):
        drawn = phantom(chosen, dials=Dials(d_prime=d_prime))
        scene = drawn.study.scene(drawn.study.subject(4, 1, drawn.dials), drawn.dials, 64)
        planes.append(getattr(scene, plane))
    assert planes[0].max() > 0.1
    assert np.array_equal(*planes)


@pytest.mark.parametrize("size", [32, 50, 128, 224])
def test_sizes(name: str, size: int) -> None:
    large, small = phantom(name, size).render(5, range(4)), phantom(name).render(5, range(4))
    assert large.x.shape[2:] == (size, size)
    both = [interpolate(x, size=32, mode="area").flatten() for x in (large.x, small.x)]
    assert torch.corrcoef(torch.stack(both))[0, 1] > 0.985
    area = large.region.float().mean() / small.region.float().mean()
    assert 0.6 < area < 1.8
    assert difference_outside(large) <= 0.04


def difference_outside(batch: Batch) -> float:
    return float((batch.x - batch.other).abs().amax(1, keepdim=True)[~batch.region].max())


@pytest.mark.parametrize(
    ("dial", "values"),
    [("contrast", (0.4, 1.6)), ("shortcut_size", (0.5, 1.5)), ("nuisance", (0, 1.5)), ("noise", (0, 3))],
)
def test_dials_act(name: str, dial: str, values: tuple[float, float]) -> None:
    low, high = (phantom(name, dials=Dials(**{dial: value})).render(3, range(16)) for value in values)
    change = [float((batch.x - batch.other).abs().mean()) for batch in (low, high)]
    rough = [float((batch.x[..., 1:] - batch.x[..., :-1]).abs().mean()) for batch in (low, high)]
    across = [float(batch.without.std(0).mean()) for batch in (low, high)]
    if dial in ("contrast", "shortcut_size"):
        assert change[0] < 0.75 * change[1]
        assert torch.equal(low.without, high.without)
    elif dial == "noise":
        assert rough[0] < 0.7 * rough[1]
    else:
        assert across[0] < 0.8 * across[1]
    assert high.x.abs().max() <= 1


def test_no_contrast_no_shortcut(name: str) -> None:
    hidden = phantom(name, dials=Dials(contrast=0)).render(3, range(6))
    assert torch.equal(hidden.x, hidden.other)
    assert not hidden.region.any()


def test_the_task_shows(name: str) -> None:
    """With the same nuisances, a larger z changes the picture more."""
    pictures = [phantom(name, dials=Dials(d_prime=d)).render(2, [1, 3, 5, 7]).without for d in (0, 1, 4)]
    near, far = ((picture - pictures[0]).abs().mean() for picture in pictures[1:])
    assert 0 < near < far


def test_drawing_in_parts_is_drawing_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dials = [Dials(nuisance=1.5, contrast=2, shortcut_size=2), Dials(nuisance=1.5, shortcut_size=0.25)]
    parts = [phantom(name, size, one).render(1, range(4)) for one in dials for size in (32, 64)]
    monkeypatch.setattr(Canvas, "part", lambda canvas, *bounds: canvas)
    whole = [phantom(name, size, one).render(1, range(4)) for one in dials for size in (32, 64)]
    for one, two in zip(parts, whole, strict=True):
        assert_same(one, two)


def test_speed(name: str) -> None:
    drawn = phantom(name)
    drawn.render(0, range(2))
    start = time.process_time()
    drawn.render(0, range(40))
    assert (time.process_time() - start) / 40 < 0.025  # about 3 ms when the machine is idle


def test_refusals() -> None:
    drawn = phantom("skin-ruler")
    wrong = {
        "phantom: expected one of .* did you mean 'skin-ruler'": lambda: phantom("skin-ruller"),
        "size: expected a whole number from 32 to 224, got 16": lambda: phantom("skin-ruler", 16),
        "size: expected a whole number": lambda: phantom("skin-ruler", 64.0),
        "seed: expected a whole number from 0 to 4294967295, got -1": lambda: drawn.render(-1, [0]),
        "indices: expected whole numbers >= 0, got -2": lambda: drawn.render(0, [1, -2]),
        "indices: expected at least one": lambda: drawn.render(0, []),
        "k: expected a percentage from 0 to 100, or none, got 200": lambda: drawn.render(0, [0], 200),
    }
    for sentence, call in wrong.items():
        with pytest.raises(InputError, match=sentence) as caught:
            call()
        assert "\n" not in str(caught.value)
