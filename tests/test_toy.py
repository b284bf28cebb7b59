import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fastdime import toy
from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.methods import settings_for
from fastdime.data.io import read
from fastdime.data.table import read_table
from fastdime.diffusion.schedule import q_sample


def times(n: int) -> torch.Tensor:
    return torch.zeros(n, dtype=torch.int64)


def test_the_basis_is_orthonormal_and_the_variances_add_up() -> None:
    basis = toy._cosines()
    assert torch.allclose(basis @ basis.T, torch.eye(toy.SIZE, dtype=torch.float64), atol=1e-12)
    assert toy._spectrum().sum().item() == pytest.approx((0.2**2 + 1e-4) * toy.SIZE**2)


def test_pictures_look_as_their_distribution_says() -> None:
    drawn = toy.pictures(400)
    assert drawn.ring.tolist() == [0, 1] * 200
    without = torch.where((drawn.ring == 0).view(-1, 1, 1, 1), drawn.x, drawn.other)
    assert without.mean().item() == pytest.approx(toy.BACKGROUND, abs=0.03)
    assert (without - toy.BACKGROUND).pow(2).mean().sqrt().item() == pytest.approx(0.2, abs=0.01)
    difference = (drawn.other - drawn.x).abs()
    assert difference.amax((1, 2, 3)).min() > 0.4  # a ring came or went
    assert ((difference > 0.02).float().mean((1, 2, 3)) < 0.1).all()  # and nothing else
    assert torch.equal(toy.pictures(3, seed=1).x, toy.pictures(5, seed=1).x[:3])
    assert not torch.equal(toy.pictures(3, seed=1).x, toy.pictures(3, seed=2).x)


def test_the_classifier_knows_rings() -> None:
    drawn, classifier = toy.pictures(60), toy.classifier()
    for images, ring in ((drawn.x, drawn.ring), (drawn.other, 1 - drawn.ring)):
        assert ((classifier.logits(images, times(60))[:, 0] > 0) == (ring == 1)).all()


def test_the_denoiser_is_the_conditional_mean() -> None:
    """No other guess has a smaller error, and the mean of all answers is the mean of all images."""
    drawn, denoiser = toy.pictures(200), toy.denoiser()
    generator = torch.Generator().manual_seed(0)
    for t in (100, 300):
        x_t = q_sample(denoiser.schedule, drawn.x, t, torch.randn(drawn.x.shape, generator=generator))
        clean = denoiser.posterior(x_t, t, clip=False).x0_hat
        error = (clean - drawn.x).pow(2).mean()
        assert error < (x_t / denoiser.schedule.sqrt_alpha_bar[t] - drawn.x).pow(2).mean() / 4
        # The error of a conditional mean is not correlated with the answer.
        answer = clean - clean.mean()
        assert abs(((clean - drawn.x) * answer).mean() / answer.pow(2).mean()) < 0.03
        for other in (0.95 * clean, 1.05 * clean, clean + 0.03, clean.roll(1, 3)):
            assert (other - drawn.x).pow(2).mean() > error


def test_counterfactuals_come_near_the_exact_ones() -> None:
    drawn = toy.pictures(8)
    explainer = Explainer(toy.denoiser(), toy.classifier(), settings_for("fastdime", tau=40, l1=0.5))
    result = explainer(drawn.x)
    assert result.valid.all()
    taken = drawn.ring == 1  # where a ring goes is known, where one comes is not
    distance = (result.x_cf - drawn.other).abs()[taken].mean()
    assert distance < 0.6 * (drawn.x - drawn.other).abs()[taken].mean() + 0.02


def test_files(tmp_path: Path) -> None:
    table = read_table(toy.write(tmp_path / "new" / "folder", 3))
    assert table.ids == ("0000", "0001", "0002")
    assert table.labels == {"ring": (0, 1, 0)}
    for path, x in zip(table.paths, toy.pictures(3).x, strict=True):
        assert torch.equal(read(path).x, x)


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["toy", "--out", str(tmp_path), "--n", "2", "--seed", "5"])
    toy.main()
    assert capsys.readouterr().out == f"{tmp_path / 'table.csv'}\n"
    with Image.open(tmp_path / "0001.png") as image:
        assert np.asarray(image).shape == (toy.SIZE, toy.SIZE)
    assert torch.equal(read(tmp_path / "0001.png").x, toy.pictures(2, seed=5).x[1])
