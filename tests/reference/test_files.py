"""No recorded file is overlooked."""

from support.recordings import DIRECTORY

TESTED = {"sampler", "maskdime", "end_to_end", "ace", "medical", "diffusion"}
TESTED |= {"unet", "encoder_unet", "medical_unet", "metrics", "curation"}


def test_every_file_is_known() -> None:
    found = {path.stem for path in DIRECTORY.glob("*.npz")}
    assert found == TESTED
