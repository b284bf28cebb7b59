from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from fastdime.audit.placebo import placebo_edit
from fastdime.data.phantoms.phantom import phantom
from fastdime.errors import InputError
from fastdime.pixels import from_integers, to_grid

SIZES = [(16, 16), (33, 47), (64, 64)]


def images(n: int = 3, channels: int = 1, sides: tuple[int, int] = (33, 47)) -> Tensor:
    """Soft images: noise alone has no ground that is like another."""
    generator = torch.Generator().manual_seed(5)
    coarse = torch.rand(n, channels, 4, 4, generator=generator) * 1.6 - 0.8
    return to_grid(torch.nn.functional.interpolate(coarse, sides, mode="bilinear"))


def edited(x: Tensor, change: float = 0.5) -> Tensor:
    """A square of another shade, away from the middle."""
    height, width = x.shape[2] // 5, x.shape[3] // 5
    x_cf = x.clone()
    part = x_cf[..., 2 : 2 + height, 3 : 3 + width]
    part += torch.where(part < 0, change, -change)
    return to_grid(x_cf)


def names(x: Tensor) -> list[str]:
    return [f"image {row}" for row in range(len(x))]


def size(x: Tensor, other: Tensor) -> Tensor:
    return (other - x).abs().sum((1, 2, 3))


def overlap(x: Tensor, x_cf: Tensor, placebo: Tensor) -> Tensor:
    """The share of the change that both have."""
    return torch.minimum((x_cf - x).abs(), (placebo - x).abs()).sum((1, 2, 3)) / size(x, x_cf)


@pytest.mark.parametrize("sides", SIZES)
@pytest.mark.parametrize("channels", [1, 3])
def test_as_much_changes_in_another_place(channels: int, sides: tuple[int, int]) -> None:
    x = images(4, channels, sides)
    x_cf = edited(x)
    placebo = placebo_edit(x, x_cf, names(x))
    torch.testing.assert_close(size(x, placebo), size(x, x_cf), rtol=0.02, atol=0)
    assert overlap(x, x_cf, placebo).max() < 0.02
    assert torch.equal(to_grid(placebo), placebo)


@pytest.mark.parametrize("name", ["chest-pacemaker", "skin-ruler"])
def test_devices_of_phantoms(name: str) -> None:
    batch = phantom(name).render(0, range(6), 50)
    placebo = placebo_edit(batch.x, batch.other, names(batch.x))
    torch.testing.assert_close(size(batch.x, placebo), size(batch.x, batch.other), rtol=0.05, atol=0)
    assert overlap(batch.x, batch.other, placebo).max() < 0.1
    changes = [(other - batch.x).abs().amax(1).flatten(1) for other in (batch.other, placebo)]
    edit, control = ((change > 0.04).float().mean(1) for change in changes)
    torch.testing.assert_close(control, edit, rtol=0.1, atol=0)  # the area
    torch.testing.assert_close(changes[1].amax(1), changes[0].amax(1), rtol=0.2, atol=0)


def likeness(change: Tensor, other: Tensor) -> Tensor:
    """The correlation of two maps of changes, laid on each other in the best way."""
    maps = [one.sum(1).double() for one in (change, other)]
    first, second = (one - one.mean((1, 2), keepdim=True) for one in maps)
    product = torch.fft.rfft2(first) * torch.fft.rfft2(second).conj()
    best = torch.fft.irfft2(product, s=first.shape[1:]).amax((1, 2))
    return best / (first.square().sum((1, 2)) * second.square().sum((1, 2))).sqrt()


def test_the_shape_of_a_ruler_is_lost() -> None:
    batch = phantom("skin-ruler").render(0, range(6), 50)
    change = batch.other - batch.x
    control = placebo_edit(batch.x, batch.other, names(batch.x)) - batch.x
    assert likeness(change, change.roll((9, 5), (2, 3))).min() > 0.99
    assert likeness(change, control).max() < 0.75


def test_the_changes_are_those_of_the_edit_on_other_pixels() -> None:
    x = to_grid(torch.zeros(1, 3, 32, 32))
    x_cf = x.clone()
    x_cf[0, :, 3:7, 4:9] += torch.tensor([-0.25, -0.1, 0.05]).view(3, 1, 1)
    x_cf = to_grid(x_cf)
    found, given = ((other - x).flatten(2)[0].T for other in (placebo_edit(x, x_cf, ["a"]), x_cf))
    moved, change = found[found.any(1)], given[given.any(1)][0]
    assert len(moved) == 20
    same = torch.isclose(moved, change, atol=1e-5).all(1) | torch.isclose(moved, -change, atol=1e-5).all(1)
    assert same.all()  # no other colour, not even where a spot is light


def test_batch_and_order_do_not_matter() -> None:
    x = images(5, 3)
    x_cf, ids = edited(x), names(x)
    whole = placebo_edit(x, x_cf, ids)
    order = [3, 0, 4]
    some = placebo_edit(x[order], x_cf[order], [ids[row] for row in order])
    assert torch.equal(some, whole[order])
    assert torch.equal(placebo_edit(x[1:2], x_cf[1:2], ids[1:2]), whole[1:2])


def test_seed_and_id_matter_and_nothing_else_is_random() -> None:
    x = images(1)
    x_cf = edited(x)
    before = torch.random.get_rng_state()
    first = placebo_edit(x, x_cf, ["a"])
    assert torch.equal(placebo_edit(x, x_cf, ["a"]), first)
    assert not torch.equal(placebo_edit(x, x_cf, ["b"]), first)
    assert not torch.equal(placebo_edit(x, x_cf, ["a"], seed=1), first)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_pictures_are_left_alone() -> None:
    x = images()
    x_cf = edited(x)
    kept = x.clone(), x_cf.clone()
    placebo_edit(x, x_cf, names(x))
    assert torch.equal(x, kept[0])
    assert torch.equal(x_cf, kept[1])


@pytest.mark.parametrize("bits", [8, 16])
def test_no_change_gives_the_image_itself(bits: int) -> None:
    x = images(2, 3) * 0.99  # on no grid
    assert torch.equal(placebo_edit(x, x.clone(), names(x), bits=bits), x)


def test_an_image_without_change_among_others() -> None:
    x = images(3)
    x_cf = edited(x)
    x_cf[1] = x[1]
    placebo = placebo_edit(x, x_cf, names(x))
    assert torch.equal(placebo[1], x[1])
    assert size(x, placebo)[[0, 2]].min() > 1


def test_pixels_that_do_not_change_keep_their_value() -> None:
    x = images(2, 1) * 0.99  # on no grid
    placebo = placebo_edit(x, (x + edited(images(2, 1)) - images(2, 1)).clamp(-1, 1), names(x))
    assert (placebo == x).float().mean() > 0.9


def test_values_of_16_bits() -> None:
    x = to_grid(images(2), 16)
    x_cf = to_grid(edited(x), 16)
    placebo = placebo_edit(x, x_cf, names(x), bits=16)
    assert torch.equal(to_grid(placebo, 16), placebo)
    torch.testing.assert_close(size(x, placebo), size(x, x_cf), rtol=1e-3, atol=0)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_change_everywhere(channels: int) -> None:
    x = images(2, channels)
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    x_cf = to_grid((x + 0.1 * noise).clamp(-1, 1))
    placebo = placebo_edit(x, x_cf, names(x))
    torch.testing.assert_close(size(x, placebo), size(x, x_cf), rtol=0.02, atol=0)
    assert (placebo != x_cf).float().mean() > 0.8


def saturated() -> Sequence[Tensor]:
    black, white = torch.full((2, 1, 33, 47), -1.0), torch.ones(2, 1, 33, 47)
    halves = torch.cat([black[..., :24], white[..., 24:]], 3)
    pepper = torch.where(
        torch.rand(black.shape, generator=torch.Generator().manual_seed(2)) < 0.5, black, white
    )
    return black, white, halves, pepper


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("levels", [1, 3, 120, 255])
def test_saturated_images(levels: int, number: int) -> None:
    x = saturated()[number]
    x_cf = x.clone()
    x_cf[..., 4:11, 30:38] -= x_cf[..., 4:11, 30:38].sign() * levels / 127.5
    x_cf = to_grid(x_cf)
    placebo = placebo_edit(x, x_cf, names(x))
    torch.testing.assert_close(size(x, placebo), size(x, x_cf), rtol=0.02, atol=0)
    assert overlap(x, x_cf, placebo).max() < 0.02
    assert placebo.abs().max() <= 1


def test_more_change_than_there_is_room_for() -> None:
    x = from_integers(torch.full((1, 1, 16, 16), 128))
    x[..., :8] = -1
    x_cf = x.clone()
    x_cf[..., :8] = 1  # by 2; gray has room for 1
    placebo = placebo_edit(x, x_cf, ["a"])
    assert 0.45 < size(x, placebo) / size(x, x_cf) <= 1
    assert placebo.abs().max() <= 1


@pytest.mark.parametrize("sides", [(1, 1), (2, 5), (1, 40)])
def test_the_smallest_images(sides: tuple[int, int]) -> None:
    x = from_integers(torch.full((1, 1, *sides), 128))
    x_cf = x.clone()
    x_cf[0, 0, 0, 0] = 0.5
    x_cf = to_grid(x_cf)
    placebo = placebo_edit(x, x_cf, ["a"])
    torch.testing.assert_close(size(x, placebo), size(x, x_cf), rtol=0.02, atol=0)


@pytest.mark.parametrize(
    ("x", "x_cf", "ids", "sentence"),
    [
        (torch.zeros(2, 1, 8, 8), torch.zeros(2, 1, 8, 8), ["a"], "ids: expected 2 different names, got 1"),
        (torch.zeros(2, 1, 8, 8), torch.zeros(2, 1, 8, 8), ["a", "a"], "got 'a' more than once"),
        (torch.zeros(1, 1, 8, 8), torch.zeros(1, 1, 8, 9), ["a"], "x_cf: expected the shape of x"),
        (
            torch.zeros(1, 1, 8, 8),
            torch.full((1, 1, 8, 8), 2.0),
            ["a"],
            r"x_cf: expected values in \[-1, 1\]",
        ),
        (torch.full((1, 1, 8, 8), torch.nan), torch.zeros(1, 1, 8, 8), ["a"], "x: expected values in"),
    ],
)
def test_bad_input_is_one_clear_line(x: Tensor, x_cf: Tensor, ids: list[str], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        placebo_edit(x, x_cf, ids)
