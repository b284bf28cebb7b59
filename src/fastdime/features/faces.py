"""dlib's face descriptor: 128 numbers that are alike for pictures of one person.

dlib calls two faces the same person below a distance of .6. Its descriptors all point the same way: the
cosine of two people is .71 to .96 (100 faces of LFW), so that of FVA, above .5, tells nothing here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn.functional import interpolate

from fastdime.errors import MissingExtra
from fastdime.features.imagenet import package_folder
from fastdime.features.network import three_channels
from fastdime.pixels import to_integers

DIM = 128
SAME_PERSON = 0.6  # Euclidean distance
EXTRA = "faces"
SMALLEST = 256  # pixels of the shorter side; the detector overlooks faces of fewer than 80
LANDMARKS = "models/shape_predictor_5_face_landmarks.dat"
DESCRIPTOR = "models/dlib_face_recognition_resnet_model_v1.dat"
Picture = UInt8[np.ndarray, "h w 3"]


@dataclass(frozen=True)
class Faces:
    """Find the face, turn it upright by five landmarks, describe it.

    A picture without a face that can be found has no descriptor: its row is NaN. To take the whole picture
    instead would give a number, and call one person two: such a descriptor is .73 away from the right one.
    """

    detector: Any
    landmarks: Callable[..., Any]
    descriptor: Any

    def __call__(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b 128"]:
        """Describe images in [-1, 1]."""
        shown = to_integers(_enlarged(three_channels(x)).clamp(-1, 1))
        pictures = shown.to(torch.uint8).permute(0, 2, 3, 1).contiguous().cpu().numpy()
        return torch.tensor(np.stack([self._described(picture) for picture in pictures]), dtype=torch.float32)

    def _described(self, picture: Picture) -> Float[np.ndarray, " 128"]:
        box = self._found(picture)
        if box is None:
            return np.full(DIM, np.nan)
        return np.array(self.descriptor.compute_face_descriptor(picture, self.landmarks(picture, box)))

    def _found(self, picture: Picture) -> Any:
        """Return the box of the surest face; only if there is none, look for smaller ones."""
        for doublings in (0, 1):
            boxes, scores, _ = self.detector.run(picture, doublings, 0.0)
            if len(boxes):
                return boxes[int(np.argmax(scores))]
        return None


@cache
def dlib_faces() -> Faces:
    """Load the detector and the two networks; they are read once.

    Raises:
        MissingExtra: dlib or the package with its networks is not installed.
    """
    folder: Path = package_folder("face_recognition_models", "dlib-face", EXTRA)
    try:
        import dlib
    except ImportError:
        raise MissingExtra("dlib-bin", "dlib-face", EXTRA) from None
    return Faces(
        dlib.get_frontal_face_detector(),
        dlib.shape_predictor(str(folder / LANDMARKS)),
        dlib.face_recognition_model_v1(str(folder / DESCRIPTOR)),
    )


def _enlarged(x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b 3 H W"]:
    scale = SMALLEST / min(x.shape[2:])
    if scale <= 1:
        return x
    sides = [round(side * scale) for side in x.shape[2:]]
    return interpolate(x, sides, mode="bilinear", align_corners=False)
