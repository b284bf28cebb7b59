"""Pixels from and to disk: the only door. Inside the library an image is float32 in [-1, 1].

Every value that comes in lies on the 8- or 16-bit grid, so that `write_image` gives back the integers of the
file: gray files of 16 bits, DICOM and gray floats take 16 bits, everything else 8. Files that hold something
else (transparent pixels, several frames, 16-bit colour) are refused, never repaired.
"""

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from PIL import Image, ImageOps, TiffImagePlugin, UnidentifiedImageError
from torch import Tensor

from fastdime.data.dicom import decode_dicom
from fastdime.data.forms import Fit, Smooth
from fastdime.data.levels import LEFT_OUT, Levels, check_pixels
from fastdime.errors import DataError, FastdimeError, InputError, expected, unknown
from fastdime.files import write_atomically
from fastdime.pixels import from_integers, to_integers

FORMATS = ("PNG", "JPEG", "TIFF", "BMP")
KINDS = "a PNG, JPEG, TIFF, BMP, DICOM or .npy image"
PNG_GRAY = 0  # colour type in the header
WHITE_IS_ZERO = 0  # photometric interpretation in a TIFF

FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


@dataclass(frozen=True)
class Picture:
    """An image of a file.

    Attributes:
        x: the pixels in [-1, 1].
        bits: 8 or 16, the grid on which they lie.
    """

    x: Float[Tensor, "c h w"]
    bits: int


def read(
    path: str | Path,
    *,
    channels: int | None = None,
    size: int | None = None,
    convert: bool = False,
    fit: Fit = "crop",
    smooth: Smooth = "bilinear",
) -> Picture:
    """Read one image.

    Args:
        channels: 1 or 3, if the file must have so many; colour whose three channels are equal counts as gray.
        size: pixels of a side of the square that the image is made.
        convert: make gray from colour by luminance, or 8-bit colour from gray, instead of refusing it.
        fit: how it becomes a square: "crop" brings the shorter side to `size` and cuts the centre out,
            "stretch" brings both sides to it, so that nothing is lost but the proportions.
        smooth: "bilinear" or "bicubic", both antialiased.

    Raises:
        DataError: the file cannot be used; one sentence that names it.
    """
    file = Path(path)
    if channels not in (None, 1, 3):
        raise InputError(expected("channels", "1 or 3", channels))
    for name, given, known in (("fit", fit, get_args(Fit)), ("smooth", smooth, FILTERS)):
        if given not in known:
            raise InputError(unknown(name, given, known))
    levels = _with_channels(file, _decode(file), channels, convert)
    levels = _fit(file, levels, size, FILTERS[smooth], fit)
    bits = 8 * levels.dtype.itemsize
    return Picture(from_integers(_to_tensor(levels), bits), bits)


def write_image(path: str | Path, x: Float[Tensor, "c h w"], bits: int = 8, *, durable: bool = True) -> None:
    """Write a PNG: gray of 8 or 16 bits, or 8-bit colour; the same pixels always give the same bytes.

    Args:
        durable: as for `write_atomically`.
    """
    if x.ndim != 3 or x.shape[0] not in (1, 3) or (x.shape[0] == 3 and bits == 16):
        got = f"shape {tuple(x.shape)} with {bits} bits"
        raise InputError(expected("image to write", "(1, h, w), or (3, h, w) with 8 bits", got))
    if not bool((x.abs() <= 1 + 1e-5).all()):
        raise InputError(expected("image to write", "numbers in [-1, 1]", _span(x.cpu().numpy())))
    _save(path, _unsigned(to_integers(x, bits).permute(1, 2, 0), bits), durable)


def write_mask(path: str | Path, mask: Bool[Tensor, "1 h w"], *, durable: bool = True) -> None:
    """Write a mask as a PNG of 0 and 255.

    Args:
        durable: as for `write_atomically`.
    """
    if mask.ndim != 3 or mask.shape[0] != 1 or mask.dtype != torch.bool:
        raise InputError(expected("mask to write", "(1, h, w) bool", f"{tuple(mask.shape)} {mask.dtype}"))
    _save(path, mask.permute(1, 2, 0).cpu().numpy().astype(np.uint8) * np.uint8(255), durable)


def read_mask(path: str | Path, *, size: int | None = None) -> Bool[Tensor, "1 h w"]:
    """Read a gray image as a mask: True where it is not 0.

    Args:
        size: fit it as `read` fits an image, taking the nearest pixel.
    """
    file = Path(path)
    levels = _with_channels(file, _decode(file), 1, convert=False)
    return _to_tensor(_fit(file, levels, size, Image.Resampling.NEAREST)) != 0


def _to_tensor(levels: Levels) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(levels.transpose(2, 0, 1)).astype(np.int32))


def _unsigned(levels: Tensor, bits: int) -> Levels:
    whole = levels.cpu().numpy()
    return whole.astype(np.uint8) if bits == 8 else whole.astype(np.uint16)


def _to_pillow(levels: NDArray[Any]) -> Image.Image:
    return Image.fromarray(levels[..., 0] if levels.shape[2] == 1 else levels)


def _save(path: str | Path, levels: Levels, durable: bool) -> None:
    file = Path(path)
    if file.suffix.lower() != ".png":
        raise InputError(expected("image to write", "a name that ends with .png", repr(file.name)))
    buffer = BytesIO()
    _to_pillow(levels).save(buffer, format="PNG")
    write_atomically(file, buffer.getvalue(), durable=durable)


def _decode(file: Path) -> Levels:
    try:
        return _decoder(file)(file)
    except (FastdimeError, MemoryError):
        raise
    except UnidentifiedImageError as error:
        got = "a file that is none of these, or broken from the start"
        raise DataError(expected(str(file), KINDS, got, LEFT_OUT)) from error
    except Exception as error:  # decoders answer a broken file with any exception there is
        got = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(expected(str(file), "an image that can be decoded", got, LEFT_OUT)) from error


def _decoder(file: Path) -> Callable[[Path], Levels]:
    """Choose by what the file holds, because DICOM files often have no suffix."""
    if not file.is_file():
        got = "a folder" if file.is_dir() else "something else" if file.exists() else "no such file"
        raise DataError(expected(str(file), "an image file", got, "check the path"))
    with file.open("rb") as handle:
        head = handle.read(132)
    if not head:
        raise DataError(expected(str(file), KINDS, "an empty file", LEFT_OUT))
    if head.startswith(b"\x93NUMPY") or file.suffix.lower() == ".npy":
        return _decode_numpy
    if head[128:] == b"DICM" or file.suffix.lower() in (".dcm", ".dicom"):
        return decode_dicom
    return _decode_pillow


def _decode_pillow(file: Path) -> Levels:
    with Image.open(file, formats=FORMATS) as image:
        check_pixels(file, image.height, image.width)
        frames = getattr(image, "n_frames", 1)
        if frames > 1 and image.format in ("PNG", "TIFF"):  # a JPEG may hold small copies of itself
            raise DataError(expected(str(file), "one frame", f"{frames} frames", "save them one by one"))
        inverted = _check_depth(file, image)
        image.load()
        levels = _levels(file, ImageOps.exif_transpose(image))
    return np.uint16(65535) - levels if inverted else levels


def _check_depth(file: Path, image: Image.Image) -> bool:
    """Refuse depths that Pillow would cut to 8 bits silently; say if a 16-bit TIFF has white as 0."""
    deep = image.mode.startswith("I;16")
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        depth, photometric = max(image.tag_v2.get(258, (1,))), image.tag_v2.get(262)
        known = depth in (1, 2, 4, 8) or (depth == 16 and deep) or image.mode == "F"
        if not known:
            raise DataError(expected(str(file), "8-bit, or 16-bit gray", f"{depth} bits a channel", LEFT_OUT))
        return deep and photometric == WHITE_IS_ZERO
    if image.format == "PNG":
        with file.open("rb") as handle:
            depth, colour = handle.read(26)[24:]
        if depth == 16 and colour != PNG_GRAY:
            raise DataError(
                expected(str(file), "8-bit, or 16-bit gray", "16-bit colour or alpha", "save it with 8 bits")
            )
    return False


def _levels(file: Path, image: Image.Image) -> Levels:
    if image.mode == "F":
        return _from_floats(file, np.asarray(image)[..., None])
    if image.mode.startswith("I"):  # a 16-bit PNG is "I" in old versions of Pillow
        deep = np.asarray(image)[..., None].astype(np.uint16)
        if np.any(deep == image.info.get("transparency", -1)):
            raise _transparent(file)
        return deep
    if image.mode in ("P", "PA"):
        image = image.convert("RGBA")
    elif "transparency" in image.info:
        image = image.convert("RGBA" if image.mode == "RGB" else "LA")
    if image.mode in ("LA", "RGBA"):
        if np.asarray(image.getchannel("A")).min() < 255:
            raise _transparent(file)
        image = image.convert(image.mode[:-1])
    if image.mode == "1":
        image = image.convert("L")
    if image.mode not in ("L", "RGB"):
        raise DataError(expected(str(file), "a gray or RGB image", image.mode, "convert it to RGB"))
    levels = np.asarray(image)
    return levels if levels.ndim == 3 else levels[..., None]


def _transparent(file: Path) -> DataError:
    return DataError(expected(str(file), "an opaque image", "transparent pixels", "save it without alpha"))


def _decode_numpy(file: Path) -> Levels:
    array = np.load(file, mmap_mode="r", allow_pickle=False)  # mapped: a false header cannot ask for memory
    first, last = (array.ndim == 3 and array.shape[axis] in (1, 3) for axis in (0, -1))
    if array.ndim != 2 and first == last:  # channels at neither end, or nobody knows at which
        raise DataError(expected(str(file), "shape (h, w), (c, h, w) or (h, w, c)", array.shape, LEFT_OUT))
    array = array.transpose(1, 2, 0) if first else array if last else array[..., None]
    check_pixels(file, *array.shape[:2])
    if array.dtype == np.uint8 or (array.dtype == np.uint16 and array.shape[2] == 1):
        return np.array(array, dtype=array.dtype.newbyteorder("="))
    if array.dtype.kind != "f":
        wanted = "uint8, gray uint16 or floats in [-1, 1]"
        raise DataError(expected(str(file), wanted, f"{array.dtype} of shape {array.shape}", LEFT_OUT))
    return _from_floats(file, array)


def _from_floats(file: Path, array: NDArray[np.floating[Any]]) -> Levels:
    values = np.array(array, dtype=np.float64)
    if not np.isfinite(values).all():
        raise DataError(expected(str(file), "finite numbers", "NaN or infinity", LEFT_OUT))
    if np.abs(values).max() > 1:
        raise DataError(expected(str(file), "floats in [-1, 1]", _span(values), "scale them"))
    bits = 16 if values.shape[2] == 1 else 8
    return _unsigned(to_integers(torch.from_numpy(values), bits), bits)


def _span(values: NDArray[Any]) -> str:
    return f"{values.min():g} to {values.max():g}" if values.size else "no pixels"


def _with_channels(file: Path, levels: Levels, channels: int | None, convert: bool) -> Levels:
    found = levels.shape[2]
    if channels in (None, found):
        return levels
    if found == 3 and bool((levels == levels[..., :1]).all()):
        return levels[..., :1]
    if not convert:
        wanted, got = ("gray", "colour") if channels == 1 else ("colour", "gray")
        remedy = "convert the file, or use --convert-channels"
        raise DataError(expected(str(file), f"a {wanted} image", f"a {got} one", remedy))
    if found == 3:
        return np.asarray(_to_pillow(levels).convert("L"))[..., None]
    if levels.dtype == np.uint16:  # there is no 16-bit colour; 65535 = 257 * 255
        levels = np.rint(levels / 257).astype(np.uint8)
    return np.repeat(levels, 3, axis=2)


def _fit(
    file: Path, levels: Levels, size: int | None, filter_: Image.Resampling, fit: Fit = "crop"
) -> Levels:
    if size is None:
        return levels
    if size < 1:
        raise InputError(expected("size", "a whole number >= 1", size))
    short = min(levels.shape[:2])
    height, width = (size if fit == "stretch" else size * side // short for side in levels.shape[:2])
    check_pixels(file, height, width)
    deep = levels.dtype == np.uint16
    image = _to_pillow(levels.astype(np.float32) if deep else levels).resize((width, height), filter_)
    top, left = round((height - size) / 2), round((width - size) / 2)
    square = np.asarray(image.crop((left, top, left + size, top + size)))
    square = np.rint(square).clip(0, 65535).astype(np.uint16) if deep else square
    return square if square.ndim == 3 else square[..., None]
