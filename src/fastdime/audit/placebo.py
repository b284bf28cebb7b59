"""The placebo edit: the changes of a counterfactual on other pixels, where they mean nothing.

The map of changes moves to where it does not meet itself, and is blurred until nothing of its shape is left,
because a shifted pacemaker would still be a pacemaker. Light and dark spots are drawn there. They take over
the changes of the counterfactual, the largest where a spot is strongest: so the two have the same amount, the
same area and the same largest change.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import conv2d, pad

from fastdime.counterfactuals.checks import check_names
from fastdime.metrics.closeness import check_pair
from fastdime.noise import SeededNoise
from fastdime.pixels import to_grid, top_level

SOFT = 0.05  # spread of the blur, as a share of the longer side: wider than the ticks of a ruler lie apart
SPOTS, ROOM = 1.5, 2.0  # contrast of the spots, and how much dark ground asks for light ones
MEET, CUT, UNLIKE, CHANCE = 4.0, 2.0, 4.0, 0.02  # what counts against a place
LEAST, MOST, ROUNDS = -1.0, 21.0, 22  # of the search for the strength, as powers of two
TINY = 1e-12

Picture = Float[Tensor, "1 c h w"]
Map = Float[Tensor, "1 1 h w"]


def placebo_edit(x: Tensor, x_cf: Tensor, ids: Sequence[str], seed: int = 0, bits: int = 8) -> Tensor:
    """Return the placebo of each counterfactual, with values that a file of `bits` can hold.

    It changes the image by as much as the counterfactual does (the sum of absolute changes), as far as there
    is room between black and white.

    Args:
        ids: names of the images; the result depends on them, the seed and the pictures alone.

    >>> x = torch.zeros(1, 1, 16, 16)
    >>> x_cf = x.clone()
    >>> x_cf[..., 2:5, 2:5] = 0.5
    >>> placebo = placebo_edit(x, x_cf, ["a"])
    >>> float(placebo[..., 2:5, 2:5].abs().max()), round(float(placebo.abs().sum()), 1)
    (0.0, 4.5)
    """
    check_pair(x, x_cf)
    check_names(ids, len(x))
    # One by one: in a batch the last digits would depend on its size.
    made = [
        _placebo(x[row : row + 1], x_cf[row : row + 1], SeededNoise(seed, [name]), bits)
        for row, name in enumerate(ids)
    ]
    return torch.cat(made)


def _placebo(x: Picture, x_cf: Picture, noise: SeededNoise, bits: int) -> Picture:
    amount = (x_cf - x).abs().sum(1, keepdim=True)
    place = blur(elsewhere(amount, x, x_cf, noise.draw(amount, "placebo", "place")))
    strength = place * spots(x, noise.draw(amount, "placebo", "spots"))
    share = torch.special.ndtr(noise.draw(x, "placebo", "share"))
    direction = _turned(x, _taken_over(x_cf - x, strength))
    return _of_size(x, direction, amount.sum(), share, bits)


def elsewhere(amount: Map, x: Picture, x_cf: Picture, chance: Map) -> Map:
    """Shift a map to where it does not meet itself, in one piece, on ground like that it comes from.

    Args:
        chance: random numbers, which choose among places that are about as good.
    """
    weight = blur(amount).double()
    weight = weight / weight.sum().clamp(min=TINY)
    meets = _under(weight, weight)
    ground, other = _ground(weight, x), _ground(weight, x_cf)
    # One of the two shows what is below the shortcut, and nobody says which.
    unlike = torch.minimum(*((ground - known[..., :1, :1]).abs().mean(1) for known in (ground, other)))
    cut = _cut(weight.sum(3))[..., :, None] + _cut(weight.sum(2))[..., None, :]
    against = MEET * meets / meets.amax().clamp(min=TINY) + CUT * cut + UNLIKE * unlike + CHANCE * chance
    row, column = divmod(int(against.argmin()), amount.shape[3])
    return amount.roll((row, column), (2, 3))


def _ground(weight: Tensor, image: Picture) -> Tensor:
    """Return the mean below the weights and that of the squares, for each shift of the weights."""
    return torch.cat([_under(weight, image.double() ** power) for power in (1, 2)], 1)


def _under(weight: Tensor, values: Tensor) -> Tensor:
    """Return the sum of values under the weights, for each shift of the weights."""
    product = torch.fft.rfft2(values) * torch.fft.rfft2(weight).conj()
    sums: Tensor = torch.fft.irfft2(product, s=weight.shape[2:])
    return sums


def _cut(profile: Float[Tensor, "1 1 n"]) -> Float[Tensor, "1 1 n"]:
    """Return how much of a profile the border parts from the rest, for each shift."""
    beyond = profile.flip(2).cumsum(2).roll(1, 2)
    beyond[..., 0] = 0
    return torch.minimum(beyond, profile.sum() - beyond)


def spots(x: Picture, noise: Map) -> Map:
    """Return spots from -1 (dark) to 1 (light); where the image is dark more of them are light."""
    soft = blur(noise)
    soft = soft / soft.std(correction=0).clamp(min=TINY)
    return torch.tanh(SPOTS * (soft - ROOM * blur(x.mean(1, keepdim=True))))


def blur(image: Float[Tensor, "1 c h w"]) -> Float[Tensor, "1 c h w"]:
    """Blur by a share of the image, which goes on beyond the border as in a mirror."""
    spread = max(SOFT * max(image.shape[2:]), 0.5)
    reach = min(round(3 * spread), min(image.shape[2:]) - 1)
    places = torch.arange(-reach, reach + 1, dtype=image.dtype, device=image.device)
    bell = torch.exp(-(places**2) / (2 * spread**2))
    line = (bell / bell.sum()).view(1, 1, 1, -1)
    wide = conv2d(pad(image, (reach, reach, 0, 0), mode="reflect"), line)
    return conv2d(pad(wide, (0, 0, reach, reach), mode="reflect"), line.transpose(2, 3))


def _taken_over(change: Picture, strength: Map) -> Picture:
    """Give the largest change to the strongest pixel, and so on; light or dark as the strength says."""
    lighter = change * torch.where(change.sum(1, keepdim=True) < 0, -1.0, 1.0)
    pixels = lighter.flatten(2)[0]
    given = pixels.abs().sum(0).argsort(descending=True, stable=True)
    taken = strength.abs().flatten().argsort(descending=True, stable=True)
    moved = torch.zeros_like(pixels)
    moved[:, taken] = pixels[:, given]
    return moved.view_as(change) * torch.where(strength < 0, -1.0, 1.0)


def _turned(x: Picture, change: Picture) -> Picture:
    """Turn the change of a pixel to the other side if there is more than twice the room for it."""
    sign, size = change.sign(), change.abs()
    ahead, behind = (torch.minimum(size, 1 - way * sign * x).sum(1, keepdim=True) for way in (1, -1))
    return torch.where(2 * ahead < behind, -change, change)


def _of_size(x: Picture, direction: Picture, total: Tensor, share: Picture, bits: int) -> Picture:
    """Follow a direction until the sum of absolute changes is as wanted.

    Args:
        share: numbers from 0 to 1, which round to whole levels: up those pixels whose fraction and number
            are more than 1 together. If all were rounded alike, equal changes would all jump at once.
    """
    unit = total * direction / direction.abs().sum().clamp(min=TINY)
    low, high = LEAST, MOST
    # A stronger change is never a smaller one, whatever borders and rounding take off.
    for _ in range(ROUNDS):
        middle = (low + high) / 2
        short = bool(_possible(x, 2**middle * unit, share, bits).abs().sum() < total)
        low, high = (middle, high) if short else (low, middle)
    change = _possible(x, 2**high * unit, share, bits)
    return torch.where(change == 0, x, to_grid(x + change, bits))


def _possible(x: Picture, change: Picture, share: Picture, bits: int) -> Picture:
    """Return what there is room for of a change, in whole levels."""
    level = 2 / top_level(bits)
    size = torch.minimum(change.abs(), 1 - x * change.sign())
    return change.sign() * (size / level + share).floor() * level
