"""The path from an image to its counterfactual, as a row of pictures."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.methods import events
from fastdime.data.io import write_image
from fastdime.errors import InputError, expected
from fastdime.files import new_folder
from fastdime.pipeline.options import device_of
from fastdime.runs import file_stem
from fastdime.types import Progress

FRAMES = 6


def write_paths(
    explainer: Explainer,
    images: Sequence[tuple[str, Tensor, int]],
    folder: str | Path,
    frames: int = FRAMES,
    *,
    progress: Progress | None = None,
) -> None:
    """Write the paths of some images, FOLDER/STEM/0.png and so on.

    The first picture is the image, the last its counterfactual, and those between are what the denoiser makes
    of the states on the way. Images that have their pictures are left out. There are fewer pictures where the
    chain has fewer steps, and two where no attempt was made or every one ran away.

    Args:
        images: ids, images in [-1, 1], (c, h, w), and the classes wanted.
        frames: pictures of an image, with the first and the last.
        progress: called with (images done, images in all).
    """
    if frames < 2:
        raise InputError(expected("frames", "a whole number >= 2", frames))
    record = steps_between(events(explainer.resolved), frames)
    for number, (image_id, x, target) in enumerate(images, 1):
        place = Path(folder) / file_stem(image_id)
        if not (place.is_dir() and any(place.iterdir())):
            _write(place, _path(explainer, image_id, x, target, record))
        if progress is not None:
            progress(number, len(images))


def steps_between(steps: int, frames: int) -> list[int]:
    """Choose steps that lie evenly between the first picture and the last.

    >>> steps_between(60, 6), steps_between(2, 6)
    ([12, 24, 36, 48], [0, 1])
    """
    return sorted({number * steps // (frames - 1) for number in range(1, frames - 1)})


def _path(explainer: Explainer, image_id: str, x: Tensor, target: int, record: Sequence[int]) -> list[Tensor]:
    # One by one: so it does not matter which of them are there already.
    images = x[None].to(device_of(explainer))
    found = explainer(images, torch.tensor([target]), ids=[image_id], record=record)
    return [x, *(moment.x0_hat[0].clamp(-1, 1) for moment in found.trajectory), found.x_cf[0]]


def _write(place: Path, pictures: Sequence[Tensor]) -> None:
    with new_folder(place) as made:
        for number, picture in enumerate(pictures):
            write_image(made / f"{number}.png", picture)
