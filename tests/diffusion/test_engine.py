"""A denoiser on onnxruntime answers as it does in torch."""

from dataclasses import replace

import pytest
import torch

from fastdime.bundles import load_bundle
from fastdime.counterfactuals.explainer import Explainer
from fastdime.diffusion.engine import on_onnx
from fastdime.errors import InputError, MissingExtra
from fastdime.experiments.truth import pairs
from fastdime.pipeline.options import described
from support import gaussian, tiny

pytest.importorskip("onnxruntime", reason="needs the extra onnx")


@pytest.mark.parametrize("name", ["chest-pacemaker", "skin-ruler"])
def test_it_answers_the_same_for_any_batch(name: str) -> None:
    bundle = load_bundle(name)
    ours = on_onnx(bundle.denoiser)
    for batch in (1, 3):
        x_t = torch.randn(batch, bundle.channels, 64, 64, generator=torch.Generator().manual_seed(batch))
        for level in (5, 600):
            with torch.no_grad():
                wanted = bundle.denoiser.posterior(x_t, level).x0_hat
                assert torch.allclose(ours.posterior(x_t, level).x0_hat, wanted, atol=1e-4)


def test_counterfactuals_are_the_same() -> None:
    bundle = load_bundle("chest-pacemaker")
    explainer = Explainer.from_bundle(bundle, "turbo")
    drawn = pairs("chest-pacemaker", 2, "remove", 5)
    wanted = explainer(drawn.x, drawn.target)
    found = replace(explainer, denoiser=on_onnx(bundle.denoiser))(drawn.x, drawn.target)
    assert (found.x_cf - wanted.x_cf).abs().mean() < 1e-3
    assert torch.equal(found.denoiser_calls, wanted.denoiser_calls)


def test_a_run_tells_it_from_torch() -> None:
    denoiser = load_bundle("chest-pacemaker").denoiser
    assert described(denoiser, None)["weights"] != described(on_onnx(denoiser), None)["weights"] is not None


def test_what_it_cannot_do_is_one_line() -> None:
    denoiser = on_onnx(load_bundle("chest-pacemaker").denoiser)
    with pytest.raises(InputError, match="a method without gradients through the denoiser"):
        denoiser.posterior(torch.zeros(1, 1, 64, 64).requires_grad_(), 5)
    with pytest.raises(InputError, match=r"images of shape \(1, 64, 64\) on the CPU, got \(1, 32, 32\)"):
        denoiser.posterior(torch.zeros(1, 1, 32, 32), 5)
    with pytest.raises(InputError, match="a network that tells its channels and size, got function"):
        on_onnx(gaussian.denoiser())


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(MissingExtra, match="onnxruntime"):
        on_onnx(replace(tiny.denoiser(), size=32, channels=1))
