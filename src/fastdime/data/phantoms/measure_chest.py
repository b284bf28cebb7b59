"""Read a chest: the width of the heart, the depth of a pneumothorax, a can, a tube, a letter."""

import itertools

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from fastdime.data.phantoms.measure_tools import REFERENCE_SIZE, Maps, blur, crossing, row, sample

DARK_ENOUGH = 0.12  # a lung must be this much darker than the tissue beside it
BANDS = ((-0.6, -0.3), (-0.3, 0.0), (0.0, 0.25))  # heights at which the two lungs are compared
DEEPEST = 16  # pixels from the border of a lung inwards
Features = Float[Tensor, "b f"]


def fill_air(x: Maps, smooth: float) -> Maps:
    """Replace the air around the body by the chest wall; it would be taken for lung."""
    size = x.shape[-1]
    k = size / REFERENCE_SIZE
    filled, wide, corner = blur(x, smooth * k), blur(x, 3 * k, 1.2 * k), int(0.12 * size)
    corners = torch.cat([x[:, :corner, :corner], x[:, :corner, -corner:]], 2).flatten(1)
    air, body = corners.quantile(0.25, 1), wide.flatten(1).quantile(0.75, 1)
    level = (air + 0.35 * (body - air)).view(-1, 1, 1)
    filled = _fill_from_left(filled, wide, level)
    return _fill_from_left(filled.flip(2), wide.flip(2), level).flip(2)


def _fill_from_left(filled: Maps, wide: Maps, level: Tensor) -> Maps:
    size = wide.shape[-1]
    place, furthest = torch.arange(size), int(0.40 * size)
    first = (wide > level).int().argmax(2, keepdim=True)
    falls = functional.pad(wide[..., 1:] <= wide[..., :-1], (0, 1), value=True)
    peak = ((place >= first) & falls).int().argmax(2, keepdim=True).clamp(max=furthest)
    outside = (place < peak) & (first <= furthest)
    return torch.where(outside, wide.gather(2, peak), filled)


def heart_width(x: Float[Tensor, "b 1 h w"]) -> Features:
    """Return the width of the heart over that of the chest, from where bands of rows cross half height."""
    size = x.shape[-1]
    k = size / REFERENCE_SIZE
    film = fill_air(x[:, 0], 1.0)
    tops = [-0.15 + 0.04 * band for band in range(13)]
    bands = torch.stack([film[:, row(y, size) : row(y + 0.12, size)].median(1).values for y in tops], 1)
    profiles = blur(bands, 0, 0.8 * k)
    heart = profiles[..., row(-0.12, size) : row(0.20, size)].quantile(0.6, -1)
    inner, outer, contrast = [], [], []
    for direction, low, high in ((1, -0.85, -0.20), (-1, 0.20, 0.90)):
        part = profiles[..., row(low, size) : row(high, size)]
        lung = part.argmin(-1) + row(low, size)
        dark = part.amin(-1)
        contrast.append(heart - dark)
        inner.append(crossing(profiles, lung, (dark + heart) / 2, direction))
        wall = torch.minimum(_wall(profiles, lung, -direction, int(14 * k)), heart + 0.1)
        outer.append(crossing(profiles, lung, (dark + wall) / 2, -direction))
    return _width_ratio(inner, outer, contrast, k, size)[:, None]


def _wall(profiles: Tensor, lung: Tensor, direction: int, reach: int) -> Tensor:
    """Return the brightest value from the lung outwards."""
    steps = lung[..., None] - torch.arange(reach + 1) * (-direction)
    return profiles.gather(-1, steps.clamp(0, profiles.shape[-1] - 1)).amax(-1)


def _width_ratio(
    inner: list[Tensor], outer: list[Tensor], contrast: list[Tensor], k: float, size: int
) -> Float[Tensor, " b"]:
    nan = torch.tensor(torch.nan)
    for side, least in ((0, 0.62), (1, 0.5)):  # bands where the lung is hardly seen tell nothing
        seen = contrast[side] > DARK_ENOUGH
        outer[side] = torch.where(seen, outer[side], nan)
        seen &= contrast[side] >= least * contrast[side].amax(1, keepdim=True)
        inner[side] = torch.where(seen, inner[side], nan)
    left = torch.where(inner[0] > size / 2 + 4 * k, nan, inner[0])
    right = torch.where(inner[1] < size / 2 - 4 * k, nan, inner[1])
    left = _above_the_dome(left, 5 * k)
    heart = right.nanquantile(0.88, 1) - left.nanquantile(0.12, 1)
    enough = (left.isfinite().sum(1) > 1) & (right.isfinite().sum(1) > 1)
    ratio = heart / (outer[1].nanquantile(0.80, 1) - outer[0].nanquantile(0.20, 1))
    return torch.where(enough, ratio, nan)


def _above_the_dome(border: Tensor, jump: float) -> Tensor:
    """Drop the bands from where the border of the right lung jumps outwards: there the liver begins."""
    border = border.clone()
    for band in range(1, border.shape[1]):
        dome = border[:, band] < border[:, :band].nanmedian(1).values - jump
        border[:, band:] = torch.where(dome[:, None], torch.nan, border[:, band:])
    return border


def can_contrast(x: Float[Tensor, "b 1 h w"]) -> Features:
    """Return how much a square below the shoulder is brighter than nearly all that surrounds it."""
    size = x.shape[-1]
    k = size / REFERENCE_SIZE
    width = round(5 * k) | 1
    film = fill_air(x[:, 0], 0.3)
    padded = functional.pad(film[:, None], [width // 2] * 4, mode="replicate")
    mean = functional.avg_pool2d(padded, width, stride=1)[:, 0]
    turns = torch.arange(8) * (torch.pi / 4)
    shifts = torch.stack([torch.sin(turns), torch.cos(turns)], 1).mul(8 * k).round().int().tolist()
    around = torch.stack([mean.roll((down, across), (1, 2)) for down, across in shifts])
    stands_out = (mean - around.sort(0).values[-2])[:, row(-0.78, size) : row(-0.25, size)]
    places = (slice(row(-0.74, size), row(-0.28, size)), slice(row(0.28, size), row(0.74, size)))
    return torch.stack([stands_out[..., place].flatten(1).amax(1) for place in places], 1).amax(
        1, keepdim=True
    )


def letter_contrast(x: Float[Tensor, "b 1 h w"]) -> Features:
    """Return how much the brightest spots of the upper corners stand out."""
    size = x.shape[-1]
    k = size / REFERENCE_SIZE
    fine = x[:, 0] - blur(x[:, 0], 4 * k)
    rows, spots = slice(row(-0.94, size), row(-0.58, size)), round(8 * k * k)
    corners = [side[:, rows, row(0.62, size) : row(0.98, size)].flatten(1) for side in (fine, fine.flip(2))]
    return torch.stack([corner.topk(spots).values.mean(1) for corner in corners], 1).amax(1, keepdim=True)


def _tube_curves() -> tuple[Tensor, Tensor]:
    """Return points of curves that cover where a drain may lie, and their normals."""
    t = torch.linspace(0.12, 0.97, 26)[:, None]
    points, normals = [], []
    bends, shifts = ((0.65, 0.0), (0.71, 0.08)), (-0.05, 0.0, 0.05)
    places = itertools.product(
        (0.12, 0.22, 0.32, 0.41), bends, (0.35, 0.41, 0.46, 0.51), (-0.50, -0.43, -0.37)
    )
    for (entry, bend, tip_x, tip_y), dx, dy in itertools.product(places, shifts, shifts):
        start, middle, end = (torch.tensor(p) for p in ((0.97, entry), bend, (tip_x, tip_y)))
        along = functional.normalize(2 * (1 - t) * (middle - start) + 2 * t * (end - middle), dim=1)
        curve = (1 - t) ** 2 * start + 2 * t * (1 - t) * middle + t * t * end
        points.append(curve + torch.tensor([dx, dy]))
        normals.append(torch.stack([-along[:, 1], along[:, 0]], 1))
    return torch.stack(points), torch.stack(normals)


def tube_contrast(x: Float[Tensor, "b 1 h w"]) -> Features:
    """Return how much the best of many curves is brighter than both its sides."""
    points, normals = _tube_curves()
    film = blur(x[:, 0], 0.45 * x.shape[-1] / REFERENCE_SIZE)
    best = []
    for mirrored in (film, film.flip(2)):
        centre, *flanks = (
            sample(mirrored[:, None], (points + shift * normals)[None])[:, 0] for shift in (0, 0.1, -0.1)
        )
        ridge = (centre - torch.maximum(*flanks)).clamp(-0.25, 0.35)
        best.append(ridge.mean(-1).amax(-1))
    return torch.stack(best, 1).amax(1, keepdim=True)


def pleural_depth(x: Float[Tensor, "b 1 h w"]) -> Features:
    """Return how much one lung is darker than the other, from its border inwards, at three heights."""
    film = fill_air(x[:, 0], 0.6)
    left, right = (torch.stack([_depth_profile(f, *band) for band in BANDS], 1) for f in (film, film.flip(2)))
    both = (left + right) / 2
    contrast = (both[..., 0] - both[..., 4:16].mean(2)).mean(1) + 0.05
    left, right = left / contrast.view(-1, 1, 1), right / contrast.view(-1, 1, 1)
    here = ((right - left)[..., 2:10].sum((1, 2)) > 0).view(-1, 1, 1)
    own, other = torch.where(here, left, right), torch.where(here, right, left)
    darker = (other - own).clamp(min=0)
    area, rim = torch.log(darker.sum(2) / 2 + 0.15), torch.log(darker[..., 2:10].mean(2) + 0.05)
    rise = own[..., 6:20].mean(2) - own[..., 2:6].mean(2)
    shape = torch.cat([other - own, own - own[..., :1]], 2).flatten(1)
    return torch.cat([area, rim, rise, shape], 1)


def _depth_profile(film: Maps, top: float, bottom: float) -> Float[Tensor, "b d"]:
    """Return the brightness at 0, 0.5, ... pixels from the border of the lung at x > 0, over some rows."""
    size = film.shape[-1]
    rows = film[:, row(top, size) : row(bottom, size)]
    part = rows[..., row(0.40, size) : row(0.88, size)]
    lung, dark = part.argmin(-1) + row(0.40, size), part.amin(-1)
    wall = torch.where(torch.arange(size) >= lung[..., None], rows, -torch.inf).amax(-1)
    border = crossing(rows, lung, (wall + dark) / 2, 1)
    depth = border[..., None] - torch.arange(0, DEEPEST, 0.5) * (size / REFERENCE_SIZE)
    low = depth.floor().clamp(0, size - 2).long()
    share = (depth - low).clamp(0, 1)
    profile = rows.gather(-1, low) * (1 - share) + rows.gather(-1, low + 1) * share
    seen = (wall - dark >= DARK_ENOUGH)[..., None]
    return torch.where(seen, profile, torch.nan).nanmedian(1).values
