"""A U-Net on patches, in memory and in a folder."""

from pathlib import Path

import pytest
import torch

from fastdime.diffusion.checkpoints import load_denoiser
from fastdime.diffusion.denoiser import as_denoiser
from fastdime.diffusion.folders import write_folder
from fastdime.errors import CheckpointError
from fastdime.training.denoising import UNetShape

SHAPE = UNetShape(widths=(48, 16), patch=4, groups=4)


def test_it_looks_like_a_network_on_whole_images() -> None:
    denoiser = as_denoiser(SHAPE.build(3, 32))
    assert (denoiser.size, denoiser.channels, denoiser.variance) == (32, 3, "fixed_small")
    posterior = denoiser.posterior(torch.zeros(2, 3, 32, 32), 10)
    assert posterior.mean.shape == (2, 3, 32, 32)


def test_a_folder_brings_it_back(tmp_path: Path) -> None:
    network = SHAPE.build(1, 32).eval()
    write_folder(as_denoiser(network), tmp_path / "denoiser")
    again = load_denoiser(tmp_path / "denoiser")
    x, times = torch.rand(2, 1, 32, 32), torch.tensor([3, 700])
    with torch.no_grad():
        torch.testing.assert_close(again.network(x, times), network(x, times))
    assert (again.size, again.channels) == (32, 1)


@pytest.mark.parametrize("text", ['{"patch": 3}', '{"patch": "four"}', "{}"])
def test_a_patch_that_does_not_fit_is_refused(tmp_path: Path, text: str) -> None:
    write_folder(as_denoiser(SHAPE.build(1, 32)), tmp_path / "denoiser")
    (tmp_path / "denoiser" / "fastdime.json").write_text(text)
    with pytest.raises(CheckpointError, match="a patch size that fits"):
        load_denoiser(tmp_path / "denoiser")
