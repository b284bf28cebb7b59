"""A denoiser on onnxruntime answers as it does in torch."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fastdime.bundles import load_bundle
from fastdime.counterfactuals.explainer import Explainer
from fastdime.diffusion.denoiser import Denoiser
from fastdime.diffusion.engine import on_onnx
from fastdime.diffusion.schedule import linear
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
    plain, fast = described(denoiser, "x"), described(on_onnx(denoiser), "x")
    assert fast == plain | {"engine": "onnx"}
    assert plain["weights"] is not None


class Branching(nn.Module):
    """Two experts, by the level of noise: a trace keeps one of them."""

    def forward(self, x_t: Tensor, times: Tensor) -> Tensor:
        return x_t * 0.5 if int(times[0]) > 20 else x_t


class Unknown(nn.Module):
    """An operation that ONNX does not have."""

    def forward(self, x_t: Tensor, times: Tensor) -> Tensor:
        return x_t * torch.linalg.svdvals(x_t)[..., :1, None]


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        (Branching(), "got one that answers otherwise when exported"),
        (Unknown(), "expected a network that can be exported, got"),
    ],
)
def test_what_cannot_be_exported_is_one_line(
    network: nn.Module, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match=sentence) as refusal:
        on_onnx(Denoiser(network, linear(1000), size=8, channels=1))
    assert "\n" not in str(refusal.value)
    assert capsys.readouterr().out == ""


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
