import hashlib
import struct
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from fastdime.data.io import Picture, read, read_mask, write_image, write_mask
from fastdime.errors import DataError, InputError
from fastdime.pixels import to_integers

RNG = np.random.default_rng(0)
GRAY = RNG.integers(0, 256, (9, 7), dtype=np.uint8)
GRAY[0, :2] = 0, 255
COLOUR = RNG.integers(0, 256, (9, 7, 3), dtype=np.uint8)
DEEP = np.arange(65536, dtype=np.uint16).reshape(256, 256)  # every value there is


def save(path: Path, array: NDArray[Any], **options: Any) -> Path:
    Image.fromarray(array).save(path, **options)
    return path


def levels(picture: Picture) -> NDArray[np.int32]:
    return to_integers(picture.x, picture.bits).permute(1, 2, 0).numpy()


def png(depth: int, colour: int, rows: bytes, size: tuple[int, int] = (2, 1)) -> bytes:
    """Build a PNG by hand, for kinds that Pillow cannot write."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", *size, depth, colour, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "npy"])
@pytest.mark.parametrize("array", [GRAY, COLOUR, DEEP], ids=["gray", "colour", "deep"])
def test_files_come_back_exactly(tmp_path: Path, suffix: str, array: NDArray[Any]) -> None:
    path, bits = tmp_path / f"a.{suffix}", 8 * array.dtype.itemsize
    if suffix == "npy":
        np.save(path, array)
    elif suffix == "bmp" and bits == 16:
        return  # a BMP has 8 bits
    else:
        save(path, array)
    picture = read(path)
    assert picture.bits == bits
    assert picture.x.dtype == torch.float32
    assert picture.x.shape == (array.size // array[..., 0].size if array.ndim == 3 else 1, *array.shape[:2])
    assert (picture.x.min(), picture.x.max()) == (-1, 1) or array is COLOUR
    assert np.array_equal(levels(picture).squeeze(), array)
    write_image(tmp_path / "b.png", picture.x, picture.bits)
    assert np.array_equal(np.asarray(Image.open(tmp_path / "b.png")), array)
    assert torch.equal(read(tmp_path / "b.png").x, picture.x)


def test_jpeg_is_what_pillow_decodes_and_orientation_is_applied(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    upright = np.asarray(Image.open(save(tmp_path / "a.jpg", COLOUR)))
    assert np.array_equal(levels(read(tmp_path / "a.jpg")), upright)
    for name, array in (("b.jpg", COLOUR), ("b.png", DEEP[:3, :5])):
        plain = np.asarray(Image.open(save(tmp_path / name, array)))
        save(tmp_path / name, array, exif=exif)
        assert np.array_equal(levels(read(tmp_path / name)).squeeze(), np.rot90(plain, -1))


def test_few_bits_and_palettes(tmp_path: Path) -> None:
    (tmp_path / "two.png").write_bytes(png(2, 0, b"\0\x10"))
    assert levels(read(tmp_path / "two.png")).ravel().tolist() == [0, 85]
    save(tmp_path / "one.png", GRAY > 99)
    assert np.array_equal(levels(read(tmp_path / "one.png"))[..., 0], (GRAY > 99) * 255)
    image = Image.fromarray(COLOUR).quantize(5)
    image.save(tmp_path / "p.png")
    assert np.array_equal(levels(read(tmp_path / "p.png")), np.asarray(image.convert("RGB")))
    image.save(tmp_path / "p.png", transparency=2)
    with pytest.raises(DataError, match=r"p\.png: expected an opaque image"):
        read(tmp_path / "p.png")


def test_white_as_zero(tmp_path: Path) -> None:
    """The tag is changed in the file, because Pillow may turn the pixels when it writes the tag."""
    for name, array in (("a.tif", GRAY), ("b.tif", DEEP)):
        data = save(tmp_path / name, array).read_bytes()
        tag = struct.pack("<HHI", 262, 3, 1)
        assert data.count(tag + b"\1\0") == 1
        (tmp_path / name).write_bytes(data.replace(tag + b"\1\0", tag + b"\0\0"))
        top = np.iinfo(array.dtype).max
        assert np.array_equal(levels(read(tmp_path / name))[..., 0], top - array.astype(int))


@pytest.mark.parametrize("shape", [(9, 7), (9, 7, 3)])
def test_alpha(tmp_path: Path, shape: tuple[int, ...]) -> None:
    array = GRAY if len(shape) == 2 else COLOUR
    image = Image.fromarray(array)
    alpha = Image.new("L", image.size, 255)
    image.putalpha(alpha)
    image.save(tmp_path / "a.png")
    assert np.array_equal(levels(read(tmp_path / "a.png")).squeeze(), array)
    alpha.putpixel((3, 3), 254)
    image.putalpha(alpha)
    image.save(tmp_path / "a.png")
    colour = tuple(int(v) for v in COLOUR[4, 4]) if array is COLOUR else int(GRAY[4, 4])
    save(tmp_path / "b.png", array, transparency=colour)
    save(tmp_path / "c.png", DEEP, transparency=300)
    for name in "abc":
        with pytest.raises(
            DataError, match=rf"{name}\.png: expected an opaque image, got transparent pixels"
        ):
            read(tmp_path / f"{name}.png")


def test_channels(tmp_path: Path) -> None:
    gray, colour = save(tmp_path / "g.png", GRAY), save(tmp_path / "c.png", COLOUR)
    equal = save(tmp_path / "e.png", np.stack([GRAY] * 3, axis=2))
    deep = save(tmp_path / "d.png", DEEP)
    assert np.array_equal(levels(read(equal, channels=1)), GRAY[..., None])
    assert read(equal).x.shape[0] == read(equal, channels=3).x.shape[0] == 3
    with pytest.raises(DataError, match=r"c\.png: expected a gray image, got a colour one"):
        read(colour, channels=1)
    with pytest.raises(DataError, match=r"g\.png: expected a colour image, got a gray one"):
        read(gray, channels=3)
    assert np.array_equal(levels(read(gray, channels=3, convert=True)), np.stack([GRAY] * 3, axis=2))
    luminance = levels(read(colour, channels=1, convert=True))[..., 0]
    assert np.abs(luminance - COLOUR @ [0.299, 0.587, 0.114]).max() < 0.51
    shallow = read(deep, channels=3, convert=True)
    assert shallow.bits == 8
    assert np.array_equal(levels(shallow)[..., 1], np.rint(DEEP / 257))
    with pytest.raises(InputError, match="channels: expected 1 or 3, got 2"):
        read(gray, channels=2)


@pytest.mark.parametrize("array", [COLOUR, GRAY.astype(np.uint16) * 257], ids=["colour", "deep"])
def test_size_shortens_the_shorter_side_and_cuts_the_centre(tmp_path: Path, array: NDArray[Any]) -> None:
    path = save(tmp_path / "a.png", array)
    picture = read(path, size=5)
    assert picture.x.shape[1:] == (5, 5)
    eight = array if array.ndim == 3 else (array // 257).astype(np.uint8)
    wanted = np.asarray(Image.fromarray(eight).resize((5, 6), Image.Resampling.BILINEAR))[0:5]
    scale = 1 if picture.bits == 8 else 257
    assert np.abs(levels(picture).squeeze() / scale - wanted).max() <= (0 if scale == 1 else 1.01)
    assert np.array_equal(levels(read(path, size=7)).squeeze(), array[1:8])  # only cut
    assert read(path, size=20).x.shape[1:] == (20, 20)
    write_image(tmp_path / "b.png", picture.x, picture.bits)
    assert torch.equal(read(tmp_path / "b.png").x, picture.x)
    with pytest.raises(InputError, match="size: expected a whole number >= 1, got 0"):
        read(path, size=0)


@pytest.mark.parametrize("smooth", ["bilinear", "bicubic"])
@pytest.mark.parametrize("deep", [False, True])
def test_stretch_is_the_antialiased_resize_of_torch(tmp_path: Path, smooth: str, deep: bool) -> None:
    gray = RNG.integers(0, 256, (40, 30), dtype=np.uint8)
    path = save(tmp_path / "a.png", gray.astype(np.uint16) * 257 if deep else gray)
    picture = read(path, size=16, fit="stretch", smooth=smooth)
    x = torch.from_numpy(gray).float()[None, None] / 127.5 - 1
    wanted = torch.nn.functional.interpolate(x, (16, 16), mode=smooth, antialias=True).clamp(-1, 1)
    assert (picture.x - wanted[0]).abs().max() < (1e-4 if deep else 1.01 / 127.5)
    cut = read(path, size=16, smooth=smooth)
    wanted = torch.nn.functional.interpolate(x, (21, 16), mode=smooth, antialias=True).clamp(-1, 1)
    assert (cut.x - wanted[0, :, 2:18]).abs().max() < (1e-4 if deep else 1.01 / 127.5)


def test_ways_to_fit_are_named(tmp_path: Path) -> None:
    path = save(tmp_path / "a.png", GRAY)
    with pytest.raises(InputError, match="fit: expected one of crop, stretch, got 'strech'; did you mean"):
        read(path, size=4, fit="strech")
    with pytest.raises(InputError, match="smooth: expected one of bilinear, bicubic, got 'lanczos'"):
        read(path, size=4, smooth="lanczos")


def test_a_resize_cannot_ask_for_endless_memory(tmp_path: Path) -> None:
    path = save(tmp_path / "line.png", np.zeros((1, 4000), np.uint8))
    with pytest.raises(DataError, match=r"line\.png: expected 1 to \d+ pixels, got 512 x 2048000"):
        read(path, size=512)


def test_float_arrays(tmp_path: Path) -> None:
    gray = np.linspace(-1, 1, 20).reshape(5, 4)
    for name, array in {"a": gray, "b": gray[None].astype(">f4"), "c": gray[..., None]}.items():
        np.save(tmp_path / f"{name}.npy", array)
        picture = read(tmp_path / f"{name}.npy")
        assert picture.bits == 16
        assert np.abs(picture.x.numpy()[0] - gray).max() < 1 / 65535
    save(tmp_path / "f.tif", gray.astype(np.float32))
    assert torch.equal(read(tmp_path / "f.tif").x, read(tmp_path / "a.npy").x)
    for array in (np.stack([gray] * 3), np.stack([gray] * 3, axis=2)):
        np.save(tmp_path / "d.npy", array)
        assert read(tmp_path / "d.npy").bits == 8
        assert np.abs(read(tmp_path / "d.npy").x.numpy() - gray).max() < 1 / 254


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([[0.0, np.nan]]), "finite numbers, got NaN or infinity"),
        (np.array([[0.0, np.inf]]), "finite numbers, got NaN or infinity"),
        (np.array([[0.0, 255.0]]), r"floats in \[-1, 1\], got 0 to 255; scale them"),
        (np.zeros((2, 2), np.int64), "uint8, gray uint16 or floats .*, got int64"),
        (np.zeros((3, 2, 2), np.uint16), r"uint8, .* got uint16 of shape \(2, 2, 3\)"),
        (np.zeros((3, 5, 1)), r"shape .*, got \(3, 5, 1\)"),
        (np.zeros((4, 5, 6)), r"shape .*, got \(4, 5, 6\)"),
        (np.zeros(4), r"shape .*, got \(4,\)"),
        (np.zeros((0, 4)), "1 to [0-9]+ pixels, got 0 x 4"),
        (np.zeros(()), r"(shape|an image that can be decoded)"),
        (np.array([[object()]]), "an image that can be decoded"),
    ],
)
def test_bad_arrays(tmp_path: Path, array: NDArray[Any], message: str) -> None:
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(DataError, match=rf"a\.npy: expected {message}"):
        read(tmp_path / "a.npy")


def cmyk() -> bytes:
    buffer = BytesIO()
    Image.new("CMYK", (4, 4)).save(buffer, "jpeg")
    return buffer.getvalue()


def bomb() -> bytes:
    return png(8, 0, b"", (30000, 30000))


def big() -> bytes:
    return png(8, 0, b"", (10000, 10000))


def encoded(kind: str, array: NDArray[Any], **options: Any) -> bytes:
    buffer = BytesIO()
    Image.fromarray(array).save(buffer, kind, **options)
    return buffer.getvalue()


def flipped() -> bytes:
    data = bytearray(encoded("png", np.zeros((64, 64), np.uint8), compress_level=0))
    data[2000] ^= 255  # only the check sum tells that a pixel has changed
    return bytes(data)


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("a.png", lambda: b"", "an empty file"),
        ("a.png", lambda: b"hello", "none of these"),
        ("a.png", lambda: encoded("gif", GRAY), "none of these"),
        ("a.png", lambda: encoded("png", COLOUR)[:-40], ""),
        ("a.png", lambda: encoded("png", COLOUR)[:20], ""),
        ("a.png", flipped, ""),
        ("a.png", bomb, "pixels"),
        ("a.png", big, "pixels"),
        ("a.png", lambda: png(16, 2, b"\0" * 13), "16-bit colour"),
        ("a.png", lambda: png(16, 4, b"\0" * 9), "16-bit colour or alpha"),
        ("a.jpg", lambda: encoded("jpeg", DEEP.astype(np.uint8))[:-400], "truncated"),
        ("a.jpg", cmyk, "a gray or RGB image, got CMYK"),
        ("a.tif", lambda: encoded("tiff", DEEP)[:-4000], ""),
        ("a.tif", lambda: encoded("tiff", DEEP.astype(np.int32)), "32 bits a channel"),
        ("a.tif", lambda: encoded("tiff", np.full((2, 2), np.nan, np.float32)), "NaN"),
        (
            "a.tif",
            lambda: encoded("tiff", GRAY, save_all=True, append_images=[Image.new("L", (7, 9))]),
            "2 frames",
        ),
        ("a.bmp", lambda: encoded("bmp", GRAY)[:-9], "truncated"),
        ("a.npy", lambda: b"\x93NUMPY", ""),
        ("a.npy", lambda: b"hello", ""),
        ("a.dcm", lambda: b"hello", ""),
        ("a", lambda: b"\0" * 128 + b"DICM", ""),
    ],
)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")  # refused without it too
def test_broken_files_are_one_sentence(
    tmp_path: Path, name: str, make: Callable[[], bytes], message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(make())
    with pytest.raises(DataError) as caught:
        read(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: expected ")
    assert message in text
    assert "\n" not in text


def test_places_without_a_file(tmp_path: Path) -> None:
    for path, message in (
        (tmp_path / "a.png", "an image file, got no such file; check the path"),
        (tmp_path, "an image file, got a folder"),
        (tmp_path / ("a" * 300), "an image"),
    ):
        with pytest.raises(DataError) as caught:
            read(path)
        assert f"{path}: expected {message}" in str(caught.value)


def test_writing_is_deterministic_and_leaves_nothing_else(tmp_path: Path) -> None:
    x = read(save(tmp_path / "a.png", COLOUR)).x
    sums = set()
    for _ in range(2):
        write_image(tmp_path / "b.png", x, 8)
        sums.add(hashlib.sha256((tmp_path / "b.png").read_bytes()).hexdigest())
    assert len(sums) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "b.png"]


@pytest.mark.parametrize(
    ("x", "bits", "message"),
    [
        (torch.zeros(3, 2, 2), 16, r"\(1, h, w\), or \(3, h, w\) with 8 bits, got shape \(3, 2, 2\)"),
        (torch.zeros(2, 2, 2), 8, r"got shape \(2, 2, 2\) with 8 bits"),
        (torch.zeros(2, 2), 8, r"got shape \(2, 2\)"),
        (torch.zeros(1, 2, 2), 12, "bits: expected 8 or 16, got 12"),
        (torch.full((1, 2, 2), torch.nan), 8, r"numbers in \[-1, 1\], got nan to nan"),
        (torch.full((1, 2, 2), 1.5), 8, r"numbers in \[-1, 1\], got 1\.5 to 1\.5"),
    ],
)
def test_what_cannot_be_written(tmp_path: Path, x: torch.Tensor, bits: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        write_image(tmp_path / "a.png", x, bits)
    assert not list(tmp_path.iterdir())


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ends with \.png, got 'a\.jpg'"):
        write_image(tmp_path / "a.jpg", torch.zeros(1, 2, 2), 8)
    with pytest.raises(InputError, match=r"none/a\.png: expected a place that can be written"):
        write_image(tmp_path / "none" / "a.png", torch.zeros(1, 2, 2), 8)


def test_masks(tmp_path: Path) -> None:
    mask = torch.from_numpy(GRAY > 128)[None]
    write_mask(tmp_path / "m.png", mask)
    assert set(np.unique(np.asarray(Image.open(tmp_path / "m.png")))) == {0, 255}
    assert torch.equal(read_mask(tmp_path / "m.png"), mask)
    assert torch.equal(read_mask(tmp_path / "m.png", size=7), mask[:, 1:8])
    assert read_mask(tmp_path / "m.png", size=3).shape == (1, 3, 3)
    save(tmp_path / "g.png", np.array([[0, 1, 2]], np.uint8))
    assert read_mask(tmp_path / "g.png").tolist() == [[[False, True, True]]]
    with pytest.raises(DataError, match="a gray image"):
        read_mask(save(tmp_path / "c.png", COLOUR))
    for bad in (mask.float(), mask[0], mask.expand(3, -1, -1)):
        with pytest.raises(InputError, match="mask to write: expected"):
            write_mask(tmp_path / "n.png", bad)
