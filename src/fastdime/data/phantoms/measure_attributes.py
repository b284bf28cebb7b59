"""Yes-or-no attributes of phantoms: true ones from the latents, measured ones from the pixels.

Share of 1000 other images of 64 pixels that is read correctly; about half of them have each attribute:

phantom          task                shortcut          placebo       others
chest-pacemaker  cardiomegaly  .91   pacemaker    .98  letter   .93
chest-drain      pneumothorax  .87   chest drain  .97  letter   .95
skin-ruler       malignant     .90   ruler        .99  hairs    .99
face-smile       young         .85   smile        .99  glasses  .99  grey hair .93, light hair .93,
                                                                     light wall .94, warm wall .99,
                                                                     light clothes .94, warm clothes .98

The task is kept in all four, though below .9 in two: no audit can do without it, and where z is near 0 yes or
no is a question of degree. (Young: 2000 images; .82 of one thousand, .87 of the other.)
Tone of the skin, width of the head and style of the hair stayed below .9 and are left out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from fastdime.data.phantoms import measure_chest, measure_face, measure_skin
from fastdime.data.phantoms.design import Labels
from fastdime.data.phantoms.face import GREY
from fastdime.data.phantoms.measure import (
    CHUNK,
    Gauge,
    Pictures,
    Reader,
    best_level,
    calibration,
    check_pictures,
    gauge,
    shrunk,
)
from fastdime.data.phantoms.measure_tools import Ridge, fit_ridge
from fastdime.data.phantoms.phantom import STUDIES, Images
from fastdime.data.phantoms.streams import CHANNELS
from fastdime.errors import InputError, unknown

Column = NDArray[np.float64]
Columns = Mapping[str, Column]
# How to read the placebo and the attributes below, and how small to keep the weights of the features.
READERS: dict[str, tuple[Reader, float]] = {
    "chest-pacemaker": (measure_chest.letter_contrast, 1e-3),
    "chest-drain": (measure_chest.letter_contrast, 1e-3),
    "skin-ruler": (measure_skin.hair_lines, 1.0),
    "face-smile": (measure_face.colours, 300.0),
}


def _brightness(latents: Columns, name: str) -> Column:
    return np.asarray(np.mean([latents[f"{name}_{channel}"] for channel in CHANNELS], axis=0))


def _warmth(latents: Columns, name: str) -> Column:
    return latents[f"{name}_red"] - latents[f"{name}_blue"]


def _hair_brightness(latents: Columns) -> Column:
    return _brightness(latents, "pigment") * (1 - latents["grey"]) + float(GREY.mean()) * latents["grey"]


# Attributes besides task, shortcut and placebo: true where the number is above 0.
MORE: dict[str, dict[str, Callable[[Columns], Column]]] = {
    "face-smile": {
        "grey hair": lambda latents: latents["grey"] - 0.30,
        "light hair": lambda latents: _hair_brightness(latents) - 0.42,
        "light wall": lambda latents: _brightness(latents, "backdrop") - 0.50,
        "warm wall": lambda latents: _warmth(latents, "backdrop"),
        "light clothes": lambda latents: _brightness(latents, "clothes") - 0.50,
        "warm clothes": lambda latents: _warmth(latents, "clothes"),
    },
}


@dataclass(frozen=True)
class Attributes:
    """Yes-or-no attributes of some images.

    Attributes:
        names: the task, the shortcut and the placebo first.
        values: one column a name.
    """

    names: tuple[str, ...]
    values: Bool[Tensor, "b k"]

    def place(self, name: str) -> int:
        """Return the column of an attribute."""
        if name not in self.names:
            raise InputError(unknown("attribute", name, self.names))
        return self.names.index(name)


def attribute_names(name: str) -> tuple[str, ...]:
    """Return the attributes of a phantom.

    >>> attribute_names("chest-pacemaker")
    ('cardiomegaly', 'pacemaker', 'letter')
    """
    if name not in STUDIES:
        raise InputError(unknown("phantom", name, STUDIES))
    study = STUDIES[name]
    return (study.task, study.shortcut, study.placebo, *MORE.get(name, {}))


def attribute_labels(name: str, latents: Columns, labels: Labels | Images) -> Attributes:
    """Return the true attributes of images, which need not be drawn.

    The task is present where z > 0. This is what shows; the class is another draw for about one image in six.

    >>> from fastdime.data.phantoms.phantom import phantom
    >>> faces = phantom("face-smile")
    >>> truth = attribute_labels("face-smile", faces.latents(1, range(4)), faces.labels(1, range(4), k=100))
    >>> truth.values[:, truth.place("smile")].tolist()
    [False, True, False, True]
    """
    names = attribute_names(name)
    shown = [np.asarray(labels.shortcut) == 1, np.asarray(labels.placebo) == 1]
    more = [margin(latents) > 0 for margin in MORE.get(name, {}).values()]
    return Attributes(names, torch.from_numpy(np.stack([latents["z"] > 0, *shown, *more], axis=1)))


@dataclass(frozen=True)
class AttributeGauge:
    """Fitted readers of the attributes of one phantom at one size."""

    gauge: Gauge
    read: Reader
    fits: tuple[Ridge, ...]
    levels: Float[Tensor, " k"]

    def __call__(self, x: Pictures) -> Bool[Tensor, "b k"]:
        """Read pictures, some at a time."""
        return torch.cat([self._few(self.gauge.prepare(part)) for part in torch.split(shrunk(x), CHUNK)])

    def _few(self, prepared: Pictures) -> Bool[Tensor, "b k"]:
        reading, features = self.gauge.read(prepared), self.read(prepared)
        more = torch.stack([fit(features) for fit in self.fits], 1) > self.levels
        return torch.cat([(reading.z > 0)[:, None], reading.shows[:, None], more], 1)


def measure_attributes(name: str, x: Pictures) -> Attributes:
    """Read the attributes of a phantom with its default dials from pixels, without a network.

    Raises:
        InputError: there is no such phantom, or the pictures are not of its kind.
    """
    x = check_pictures(name, x)
    return Attributes(attribute_names(name), attribute_gauge(name, x.shape[3])(x))


@lru_cache
def attribute_gauge(name: str, size: int) -> AttributeGauge:
    """Fit the readers of the attributes to pictures whose latents are known; takes some seconds."""
    known, (read, strength) = calibration(name, size), READERS[name]
    features, placebo = known.features(read), torch.from_numpy(known.labels.placebo)
    numbers = [torch.from_numpy(margin(known.latents)) for margin in MORE.get(name, {}).values()]
    fits = tuple(fit_ridge(features, number, strength) for number in (placebo.double(), *numbers))
    levels = [best_level(fits[0](features), placebo == 1), *(0.0 for _ in numbers)]
    return AttributeGauge(gauge(name, size), read, fits, torch.tensor(levels, dtype=torch.float64))
