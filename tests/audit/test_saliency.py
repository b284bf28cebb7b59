import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from fastdime.audit.models import Audited, open_audited
from fastdime.audit.saliency import write_smoothgrad
from fastdime.errors import InputError, MissingExtra
from fastdime.runs import file_stem
from support import onnx_files, tiny

pytest.importorskip("captum", reason="captum makes SmoothGrad")

SHAPE = (3, 9, 12)


@pytest.fixture
def x() -> Tensor:
    return tiny.images(4, *SHAPE)


def opened(source: Any, **settings: Any) -> Audited:
    return open_audited(source, "m", **{"shape": SHAPE} | settings)


def levels(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        assert image.mode == "L"
        return np.asarray(image).astype(np.float64)


def weighted(weight: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda images: (images * weight).sum((1, 2, 3))


def test_a_linear_model_shows_its_weights(x: Tensor, tmp_path: Path) -> None:
    weight = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0))
    [path] = write_smoothgrad(opened(weighted(weight)), [("a", x[0])], 0, tmp_path)
    assert path == tmp_path / "a.png"
    wanted = weight.abs().amax(0).double().numpy()
    wanted = np.clip(wanted / np.percentile(wanted, 99), 0, 1) * 255
    np.testing.assert_allclose(levels(path), wanted, atol=0.51)


def test_the_gradient_is_a_mean_over_noisy_images(tmp_path: Path) -> None:
    x = torch.full((1, 20, 20), -0.001)
    x[0, :10] = -1  # noise is in proportion to the range: 0.15 here
    model = opened(lambda images: images.relu().sum((1, 2, 3)), shape=(1, 20, 20))
    [path] = write_smoothgrad(model, [("a", x)], 0, tmp_path)
    found = levels(path) / 255
    assert found[:10].max() == 0
    assert 0.6 < found[10:].mean() < 0.8  # half of the samples, and the 99th percentile is 0.7 of them


def test_each_output_has_its_own(x: Tensor, tmp_path: Path) -> None:
    def sides(images: Tensor) -> Tensor:
        return torch.stack([images[..., :6].sum((1, 2, 3)), images[..., 6:].sum((1, 2, 3))], 1)

    model = opened(sides, kind="multilabel")
    left, right = (write_smoothgrad(model, [("a", x[0])], n, tmp_path / str(n))[0] for n in (0, 1))
    assert (levels(left)[:, :6] == 255).all()
    assert (levels(left)[:, 6:] == 0).all()
    np.testing.assert_array_equal(levels(right), 255 - levels(left))


def test_one_pixel_that_matters_can_be_seen(x: Tensor, tmp_path: Path) -> None:
    weight = torch.zeros(SHAPE)
    weight[1, 4, 7] = 1e-4
    [path] = write_smoothgrad(opened(weighted(weight)), [("a", x[0])], 0, tmp_path)
    found = levels(path)
    assert (found[4, 7], found.sum()) == (255, 255)


def test_a_model_that_does_not_look_is_black(x: Tensor, tmp_path: Path) -> None:
    [path] = write_smoothgrad(opened(weighted(torch.zeros(SHAPE))), [("a", x[0])], 0, tmp_path)
    assert levels(path).max() == 0


def test_an_even_image_has_a_picture(tmp_path: Path) -> None:
    [path] = write_smoothgrad(opened(tiny.classifier(3)), [("a", torch.zeros(SHAPE))], 0, tmp_path)
    assert levels(path).max() == 255


def test_order_and_company_do_not_matter(x: Tensor, tmp_path: Path) -> None:
    model = opened(tiny.classifier(3, 4, kind="multiclass"))
    named = [(f"image {row}", picture) for row, picture in enumerate(x)]
    state = torch.random.get_rng_state()
    all_of_them = write_smoothgrad(model, named, 2, tmp_path / "all")
    torch.manual_seed(99)
    some = write_smoothgrad(model, iter(named[:1:-1]), 2, tmp_path / "some")
    assert [path.read_bytes() for path in some] == [path.read_bytes() for path in all_of_them[:1:-1]]
    assert all_of_them[0].read_bytes() != all_of_them[1].read_bytes()
    torch.random.set_rng_state(state)


def test_no_global_random_numbers(x: Tensor, tmp_path: Path) -> None:
    state = torch.random.get_rng_state()
    write_smoothgrad(opened(tiny.classifier(3)), [("a", x[0])], 0, tmp_path)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_the_model_is_left_as_found(x: Tensor, tmp_path: Path) -> None:
    classifier = tiny.classifier(3)
    classifier.module.train()
    write_smoothgrad(opened(classifier), [("a", x[0])], 0, tmp_path)
    assert all(part.training for part in classifier.module.modules())
    assert all(weight.grad is None and weight.requires_grad for weight in classifier.module.parameters())
    assert not x.requires_grad


def test_where_gradients_are_switched_off(x: Tensor, tmp_path: Path) -> None:
    with torch.no_grad():
        assert write_smoothgrad(opened(tiny.classifier(3)), [("a", x[0])], 0, tmp_path)


def test_names_of_files(x: Tensor, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    [path] = write_smoothgrad(opened(tiny.classifier(3)), [("a/../b.c", x[0])], 0, folder)
    assert path == folder / f"{file_stem('a/../b.c')}.png"
    assert path.parent == folder


def test_a_picture_that_is_there_is_made_anew(x: Tensor, tmp_path: Path) -> None:
    model = opened(weighted(torch.ones(SHAPE)))
    (tmp_path / "a.png").write_bytes(b"of another output")
    [path] = write_smoothgrad(model, [("a", x[0])], 0, tmp_path)
    assert levels(path).min() == 255


class Detached(nn.Module):
    """Has weights with gradients, but loses the image on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 1)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(images.detach().mean((2, 3)))


def by_numpy(images: Tensor) -> Tensor:
    return torch.from_numpy(images.numpy().mean((1, 2, 3)))


def without(images: Tensor) -> Tensor:
    with torch.no_grad():
        return images.mean((1, 2, 3))


def root_of_nothing(images: Tensor) -> Tensor:
    return (images.sum((1, 2, 3)) * 0).sqrt()


@pytest.mark.parametrize("source", [Detached(), by_numpy, without, root_of_nothing])
def test_a_model_without_gradient_has_no_pictures(source: Any, x: Tensor, tmp_path: Path) -> None:
    assert write_smoothgrad(opened(source), [("a", x[0])], 0, tmp_path / "out") == []
    assert not (tmp_path / "out").exists()


def test_an_onnx_file_has_no_pictures(x: Tensor, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime runs ONNX files")
    path = onnx_files.write(tmp_path / "m.onnx", onnx_files.network(outputs=1), sides=SHAPE[1:])
    model = opened(path)
    assert model.scores is None
    assert write_smoothgrad(model, [("a", x[0])], 0, tmp_path / "out") == []


def test_what_does_not_fit_is_one_line(x: Tensor, tmp_path: Path) -> None:
    model = opened(tiny.classifier(3))
    for output in (-1, 1):
        with pytest.raises(
            InputError, match=f"output of model m: expected a number from 0 to 0, got {output}"
        ):
            write_smoothgrad(model, [("a", x[0])], output, tmp_path)
    with pytest.raises(
        InputError, match="model m: classifier: expected a network that takes images of shape"
    ):
        write_smoothgrad(model, [("a", x[0, :1])], 0, tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="expected a place that can be written"):
        write_smoothgrad(model, [("a", x[0])], 0, tmp_path / "file")


def test_without_captum(x: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    with pytest.raises(MissingExtra, match=r"SmoothGrad needs the package captum: .*fastdime\[saliency\]"):
        write_smoothgrad(opened(tiny.classifier(3)), [("a", x[0])], 0, tmp_path)
