"""Where the errors of a denoiser count most."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from fastdime.classifiers.load import load_classifier, save_classifier
from fastdime.classifiers.spec import ClassifierSpec, build_network
from fastdime.diffusion.denoiser import Denoiser
from fastdime.diffusion.losses import training_loss
from fastdime.diffusion.schedule import linear
from fastdime.errors import InputError
from fastdime.training.emphasis import MOST, emphasis, open_guide
from fastdime.training.order import generator
from fastdime.training.pictures import Pictures
from fastdime.training.recipes import DENOISERS
from fastdime.training.request import task_for

SIDE = 32


def pictures(n: int = 20) -> Pictures:
    levels = torch.randint(256, (n, 1, SIDE, SIDE), generator=generator(1)).to(torch.uint8)
    return Pictures(levels, 8, torch.zeros(n))


def corner(x: Tensor) -> Tensor:
    return x[:, :, :8, :8].mean((1, 2, 3))


def test_it_lies_where_the_guide_looks() -> None:
    weight = emphasis(load_classifier(corner), pictures()).weight
    assert weight.shape == (1, 1, SIDE, SIDE)
    assert weight.mean() == pytest.approx(1)
    assert weight[0, 0, 2, 2] / weight[0, 0, 25, 25] == pytest.approx(MOST, rel=1e-4)
    assert weight[0, 0, 2, 2] == weight.max()


def test_of_two_classes_it_is_what_tells_them_apart() -> None:
    def two(x: Tensor) -> Tensor:
        other = 3 * x[:, :, -8:, -8:].mean((1, 2, 3))
        return torch.stack([other - corner(x), other + corner(x)], 1)

    one = emphasis(load_classifier(corner), pictures()).weight
    assert torch.allclose(
        emphasis(load_classifier(two, kind="multiclass"), pictures()).weight, one, atol=1e-4
    )


def test_it_is_symmetric_where_images_are_mirrored() -> None:
    weight = emphasis(load_classifier(corner), pictures(), flip=True).weight
    assert torch.allclose(weight, weight.flip(3))


def test_it_is_known_by_its_guide(tmp_path: Path) -> None:
    first, second = (guide_in(tmp_path / name) for name in ("first", "second"))
    hashes = {emphasis(open_guide(str(folder)), pictures()).guide for folder in (first, first, second)}
    assert len(hashes) == 2
    assert emphasis(open_guide(str(first / "classifier")), pictures()).guide in hashes
    assert open_guide("chest-pacemaker").channels == 1


def guide_in(folder: Path) -> Path:
    spec = ClassifierSpec(architecture="small-cnn", arguments={"channels": 1, "width": 8}, channels=1)
    save_classifier(folder / "classifier", build_network("small-cnn", **spec.arguments), spec)
    return folder


def test_a_guide_that_looks_nowhere_is_refused() -> None:
    with pytest.raises(InputError, match="--emphasis: expected a guide whose answer depends on the image"):
        emphasis(load_classifier(lambda x: 0 * x.mean((1, 2, 3))), pictures())


def test_errors_count_as_it_says() -> None:
    denoiser = Denoiser(lambda x_t, _times: torch.zeros_like(x_t), linear(1000), "epsilon", "fixed_small")
    x, t = torch.zeros(3, 1, SIDE, SIDE), torch.tensor([1, 500, 900])
    noise = torch.randn(x.shape, generator=generator(2))
    weight = emphasis(load_classifier(corner), pictures()).weight
    loss = training_loss(denoiser, x, t, noise, emphasis=weight).total
    assert torch.allclose(loss, (weight * noise**2).mean((1, 2, 3)))
    assert not torch.allclose(loss, training_loss(denoiser, x, t, noise).total, rtol=1e-3)


def test_it_is_for_training_only(tmp_path: Path) -> None:
    guide = str(guide_in(tmp_path))
    weighed, plain = (
        task_for(DENOISERS["small"], pictures(), pictures(), given) for given in ({"emphasis": guide}, {})
    )
    assert weighed.describe().keys() - plain.describe().keys() == {"emphasis"}
    model, batch = weighed.build(), weighed.draw(torch.arange(4), generator(0))
    assert not torch.allclose(weighed.loss(model, *batch), plain.loss(model, *batch), rtol=1e-4)
    assert weighed.validate(model) == plain.validate(model)
