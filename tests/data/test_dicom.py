from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fastdime.data.io import Picture, read, write_image
from fastdime.data.table import read_table
from fastdime.errors import DataError
from fastdime.pixels import to_integers


def levels(picture: Picture) -> NDArray[np.int32]:
    return to_integers(picture.x, picture.bits).permute(1, 2, 0).numpy()


def dicom(path: Path, array: NDArray[np.generic], **fields: Any) -> Path:
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

    data = Dataset()
    data.file_meta = FileMetaDataset()
    data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data.file_meta.MediaStorageSOPClassUID = data.SOPClassUID = SecondaryCaptureImageStorage
    data.file_meta.MediaStorageSOPInstanceUID = data.SOPInstanceUID = generate_uid(entropy_srcs=["test"])
    data.Rows, data.Columns = array.shape[-2:]
    data.BitsAllocated = data.BitsStored = 8 * array.dtype.itemsize
    data.HighBit = data.BitsStored - 1
    data.PixelRepresentation = int(array.dtype.kind == "i")
    data.SamplesPerPixel, data.PhotometricInterpretation = 1, "MONOCHROME2"
    data.add_new("PixelData", "OW", array.tobytes())
    for name, value in fields.items():
        setattr(data, name, value)
    data.save_as(path, enforce_file_format=True)
    return path


def test_dicom(tmp_path: Path) -> None:
    array = np.array([[0, 500, 1000], [1500, 2000, 4095]], np.uint16)
    plain = read(dicom(tmp_path / "no_suffix", array))
    assert plain.bits == 16
    assert np.array_equal(levels(plain)[..., 0], np.rint(array / 4095 * 65535))
    inverted = read(dicom(tmp_path / "a.dcm", array, PhotometricInterpretation="MONOCHROME1"))
    assert np.array_equal(levels(inverted), 65535 - levels(plain))
    scaled = {"RescaleSlope": 2, "RescaleIntercept": -1000}
    window = {"WindowCenter": [1000.5, 7], "WindowWidth": [2001, 9]}  # the first of two: from 0 to 2000
    result = levels(read(dicom(tmp_path / "b.dcm", array, **scaled, **window)))[..., 0]
    assert np.array_equal(result, np.rint(np.clip((2.0 * array - 1000) / 2000, 0, 1) * 65535))
    exact = {"WindowCenter": 2000, "WindowWidth": 1000, "VOILUTFunction": "LINEAR_EXACT"}
    result = levels(read(dicom(tmp_path / "c.dcm", array, **exact)))[..., 0]
    assert np.array_equal(result, np.rint(np.clip((array - 1500.0) / 1000, 0, 1) * 65535))
    result = levels(read(dicom(tmp_path / "d.dcm", array, **{**exact, "VOILUTFunction": "SIGMOID"})))[..., 0]
    assert np.array_equal(result, np.rint(65535 / (1 + np.exp(-4 * (array - 2000.0) / 1000))))
    signed = levels(read(dicom(tmp_path / "e.dcm", array.astype(np.int16) - 1000)))
    assert np.array_equal(signed, levels(plain))
    assert read(dicom(tmp_path / "f.dcm", np.full((2, 2), 9, np.uint8))).x.unique().tolist() == [-1]
    write_image(tmp_path / "a.png", inverted.x, inverted.bits)
    assert torch.equal(read(tmp_path / "a.png").x, inverted.x)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"NumberOfFrames": 2}, "one frame, got 2 frames"),
        ({"PhotometricInterpretation": "PALETTE COLOR"}, "MONOCHROME1 or MONOCHROME2, got PALETTE COLOR"),
        ({"Rows": 60000, "Columns": 60000}, r"1 to \d+ pixels, got 60000 x 60000"),
        ({"Rows": 50}, "an image that can be decoded"),
        ({"WindowCenter": 5, "WindowWidth": 0}, "1 or more, got 0"),
        ({"RescaleSlope": float("nan"), "RescaleIntercept": 0}, "finite numbers"),
    ],
)
def test_bad_dicom(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    path = dicom(tmp_path / "a.dcm", np.arange(8, dtype=np.uint16).reshape(2, 4), **fields)
    with pytest.raises(DataError, match=rf"a\.dcm( WindowWidth)?: expected {message}"):
        read(path)


@pytest.mark.filterwarnings("ignore:The number of bytes of pixel data")
def test_dicom_with_more_pixels_than_it_says(tmp_path: Path) -> None:
    path = dicom(tmp_path / "a.dcm", np.zeros((2, 4, 4), np.uint16))
    with pytest.raises(DataError, match=r"a\.dcm: expected one frame, got pixels of shape \(2, 4, 4\)"):
        read(path)


def test_a_folder_of_dicom_files_knows_its_patients(tmp_path: Path) -> None:
    array = np.arange(8, dtype=np.uint16).reshape(2, 4)
    for name, fields in {
        "x/1.2.840.7": {"PatientID": "0042"},
        "x/1.2.840.8": {"PatientID": "17 "},
        "y/a.dcm": {},
        "y/b": {"PatientID": "0042"},
        "y/DICOMDIR": {"PatientID": "index"},
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        dicom(tmp_path / name, array, **fields)
    (tmp_path / "y/notes").write_text("no image")
    (tmp_path / "y/broken.dcm").write_text("no DICOM either")
    table = read_table(tmp_path)
    assert table.ids == ("x/1.2.840.7", "x/1.2.840.8", "y/a", "y/b", "y/broken")
    assert table.groups["patient"] == ("0042", "17", "", "0042", "")
    assert table.groups["class"] == ("x", "x", "y", "y", "y")
    assert len(set(table.grouping("patient"))) == 4
    assert read(table.paths[0]).bits == 16
    with pytest.raises(DataError, match=r"broken\.dcm: expected an image that can be decoded"):
        read(table.paths[-1])
    assert read_table(tmp_path / "x/1.2.840.7").ids == ("1.2.840.7",)


def test_twelve_bits_stay_apart(tmp_path: Path) -> None:
    array = np.arange(4096, dtype=np.uint16).reshape(64, 64)
    picture = read(dicom(tmp_path / "a", array, BitsStored=12, HighBit=11))
    assert len(picture.x.unique()) == 4096


def test_a_table_of_grays(tmp_path: Path) -> None:
    from pydicom.dataset import Dataset

    table = Dataset()
    table.LUTDescriptor = [4, 10, 12]  # four entries, for values from 10 on, of 12 bits
    table.add_new("LUTData", "US", [0, 100, 3000, 4095])
    array = np.array([[5, 10, 11], [12, 13, 99]], np.uint16)
    wanted = np.array([[0, 0, 100], [3000, 4095, 4095]]) / 4095
    picture = read(dicom(tmp_path / "a", array, VOILUTSequence=[table]))
    assert np.array_equal(levels(picture)[..., 0], np.rint(wanted * 65535))
    window = {"WindowCenter": 10.5, "WindowWidth": 11}  # has precedence
    picture = read(dicom(tmp_path / "b", array, VOILUTSequence=[table], **window))
    assert np.array_equal(levels(picture)[..., 0], np.rint(np.clip((array - 5.0) / 10, 0, 1) * 65535))
