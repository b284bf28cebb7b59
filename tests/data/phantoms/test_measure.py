import numpy as np
import pytest
import torch

from fastdime.data.phantoms import measure_tools as tools
from fastdime.data.phantoms.measure import measure
from fastdime.data.phantoms.measure_attributes import attribute_labels, attribute_names, measure_attributes
from fastdime.data.phantoms.phantom import STUDIES, phantom
from fastdime.errors import InputError

# What the documentation states: correlation with z, accuracy of the shortcut.
STATED = {
    "chest-pacemaker": (0.93, 0.99),
    "chest-drain": (0.83, 0.98),
    "skin-ruler": (0.93, 0.99),
    "face-smile": (0.88, 0.99),
}

# Accuracy of the attributes, in the order of their names.
ATTRIBUTES_STATED = {
    "chest-pacemaker": (0.91, 0.98, 0.93),
    "chest-drain": (0.87, 0.97, 0.95),
    "skin-ruler": (0.90, 0.99, 0.99),
    "face-smile": (0.85, 0.99, 0.99, 0.93, 0.93, 0.94, 0.99, 0.94, 0.98),
}


@pytest.mark.parametrize("name", STUDIES)
def test_readings_are_as_good_as_stated(name: str) -> None:
    images = phantom(name).images(15001, range(200))  # so few may differ a little from what is stated
    reading, (correlation, accuracy) = measure(name, images.x), STATED[name]
    assert np.corrcoef(reading.z, images.latents["z"])[0, 1] > correlation - 0.04
    assert ((reading.shows == (images.shortcut == 1)).float().mean()) > accuracy - 0.03


@pytest.mark.parametrize("name", STUDIES)
def test_attributes_are_read_as_well_as_stated(name: str) -> None:
    images = phantom(name).images(15003, range(200))
    true, measured = attribute_labels(name, images.latents, images), measure_attributes(name, images.x)
    assert true.names == measured.names == attribute_names(name)
    assert torch.equal(true.values[:, 1:3], torch.stack([images.shortcut, images.placebo], 1) == 1)
    right = (true.values == measured.values).double().mean(0)
    assert (right > torch.tensor(ATTRIBUTES_STATED[name]) - 0.03).all(), right
    assert (true.values.double().mean(0) - 0.5).abs().max() < 0.15  # so that guessing is not enough


@pytest.mark.parametrize("name", ["chest-drain", "face-smile"])
def test_attributes_do_not_depend_on_the_other_pictures(name: str) -> None:
    x = phantom(name).images(15004, range(6)).x
    together = measure_attributes(name, x).values
    assert torch.equal(measure_attributes(name, x[4:5]).values, together[4:5])
    assert torch.equal(measure(name, x).shows, together[:, 1])


def test_true_attributes_need_no_pictures() -> None:
    faces = phantom("face-smile")
    images = faces.images(15005, range(6), k=100)
    drawn = attribute_labels("face-smile", images.latents, images)
    latents, labels = faces.latents(15005, range(6)), faces.labels(15005, range(6), k=100)
    assert torch.equal(attribute_labels("face-smile", latents, labels).values, drawn.values)
    assert drawn.values[:, drawn.place("young")].tolist() == (images.latents["z"] > 0).tolist()


@pytest.mark.parametrize("name", STUDIES)
def test_the_exact_pair_differs_in_the_shortcut_and_hardly_in_the_task(name: str) -> None:
    batch = phantom(name).render(15002, range(60))
    has, without = measure(name, batch.with_shortcut), measure(name, batch.without)
    assert (has.shows.float().mean() > 0.9) & (without.shows.float().mean() < 0.1)
    assert (has.shortcut > without.shortcut).float().mean() > 0.95
    assert (has.z - without.z).mean().abs() < 0.25
    alone = measure(name, batch.without[7:8])
    torch.testing.assert_close(alone.z, without.z[7:8], atol=1e-3, rtol=0)


def test_refusals() -> None:
    with pytest.raises(InputError, match="did you mean 'face-smile'"):
        measure("face-smiel", torch.zeros(1, 3, 64, 64))
    with pytest.raises(
        InputError, match=r"expected shape \(b, 3, size, size\) for face-smile, got \(1, 1, 64"
    ):
        measure("face-smile", torch.zeros(1, 1, 64, 64))
    with pytest.raises(InputError, match="size: expected a whole number from 32 to 224, got 20"):
        measure("skin-ruler", torch.zeros(1, 3, 20, 20))
    with pytest.raises(InputError, match="pictures to measure: expected finite numbers, got NaN"):
        measure_attributes("face-smile", torch.full((1, 3, 64, 64), torch.nan))
    with pytest.raises(InputError, match=r"phantom: expected one of .* got 'face'"):
        attribute_names("face")
    latents, labels = phantom("face-smile").latents(0, [0]), phantom("face-smile").labels(0, [0])
    with pytest.raises(InputError, match=r"attribute: .* did you mean 'glasses'"):
        attribute_labels("face-smile", latents, labels).place("glases")


def test_blur_is_a_bell_curve_that_keeps_the_sum() -> None:
    x = torch.zeros(1, 41, 41)
    x[0, 20, 20] = 1
    blurred = tools.blur(x, 2.0, 3.0)
    offsets = torch.arange(41) - 20
    assert blurred.sum().item() == pytest.approx(1, abs=1e-5)
    assert (blurred.sum(2)[0] * offsets**2).sum().item() == pytest.approx(4, rel=0.02)
    assert (blurred.sum(1)[0] * offsets**2).sum().item() == pytest.approx(9, rel=0.02)


def test_sampling_reads_between_pixels() -> None:
    place = (torch.arange(10) + 0.5) / 10 * 2 - 1
    x = torch.stack([3 * place + 2 * place[:, None], -place.expand(10, 10)])[:, None]
    points = torch.tensor([[0.33, -0.47], [0.0, 0.61]])
    plane = 3 * points[:, 0] + 2 * points[:, 1]
    torch.testing.assert_close(tools.sample(x, points[None])[:, 0], torch.stack([plane, -points[:, 0]]))
    own = torch.stack([points, points.flip(0)])
    torch.testing.assert_close(tools.sample(x, own)[1, 0], -points.flip(0)[:, 0])


def test_crossings_in_both_directions() -> None:
    profile = torch.tensor([[5.0, 4.0, 2.0, 1.0, 1.0, 3.0, 4.0]])
    start, level = torch.tensor([3]), torch.tensor([2.5])
    assert tools.crossing(profile, start, level, 1).item() == pytest.approx(4.75)
    assert tools.crossing(profile, start, level, -1).item() == pytest.approx(1.75)


def test_otsu_parts_two_heaps() -> None:
    values = torch.cat([torch.linspace(0, 1, 50), torch.linspace(3, 4, 20)])[torch.randperm(70)]
    assert tools.otsu(values[None]).item() == pytest.approx(2)


def test_connected_part() -> None:
    mask = torch.tensor([[[1, 1, 0, 1], [0, 0, 0, 1], [1, 0, 1, 0]]]).bool()
    seed = torch.zeros_like(mask)
    seed[0, 0, 3] = True
    assert tools.connected(mask, seed).int().tolist() == [[[0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 1, 0]]]


def test_ridge_finds_a_linear_map_in_spite_of_gaps() -> None:
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((400, 3)))
    y = 2 + x @ torch.tensor([1.0, -3.0, 0.0], dtype=torch.float64)
    fitted = tools.fit_ridge(x, y, 1e-6)
    torch.testing.assert_close(fitted(x), y, atol=1e-5, rtol=0)
    x[0, 2] = torch.nan  # a feature without weight
    torch.testing.assert_close(fitted(x), y, atol=1e-5, rtol=0)
    assert fitted(torch.full((1, 3), torch.nan)).isfinite().all()
