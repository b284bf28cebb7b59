"""Open the models that a command names."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from fastdime.bundles import load_bundle
from fastdime.classifiers.load import load_classifier
from fastdime.classifiers.perceptual import vgg19_features
from fastdime.counterfactuals.explainer import Explainer
from fastdime.counterfactuals.settings import Settings
from fastdime.diffusion.checkpoints import load_denoiser
from fastdime.diffusion.denoiser import Denoiser
from fastdime.diffusion.engine import no_gradients, on_onnx
from fastdime.errors import InputError, expected, unknown
from fastdime.pipeline.options import moved
from fastdime.types import Classifier

ENGINES: Mapping[str, Callable[[Denoiser], Denoiser]] = {"torch": lambda denoiser: denoiser, "onnx": on_onnx}


@dataclass(frozen=True)
class Sources:
    """Where the models are: a bundle, or a denoiser and a classifier; either part overrides the bundle's.

    Attributes:
        engine: what runs the denoiser.
    """

    bundle: str | Path | None = None
    denoiser: str | None = None
    classifier: str | None = None
    architecture: str | None = None
    features: Path | None = None
    engine: str = "torch"

    def named(self, method: str) -> dict[str, str]:
        """Return what is written down about a run."""
        parts = {
            "method": method,
            "denoiser": self.denoiser or self.bundle,
            "classifier": self.classifier or self.bundle,
            "features": self.features,
        }
        return {name: str(value) for name, value in parts.items() if value is not None}


def open_models(sources: Sources) -> tuple[Denoiser, Classifier]:
    """Load denoiser and classifier."""
    bundle = load_bundle(sources.bundle) if sources.bundle is not None else None
    denoiser: Denoiser | None = bundle.denoiser if bundle else None
    classifier: Classifier | None = bundle.classifier if bundle else None
    if sources.denoiser is not None:
        denoiser = load_denoiser(sources.denoiser, architecture=sources.architecture)
    if sources.classifier is not None:
        classifier = load_classifier(sources.classifier)
    if denoiser is None or classifier is None:
        name = "--denoiser" if denoiser is None else "--classifier"
        raise InputError(expected(name, "a path or module:function, or --bundle", "nothing"))
    if sources.engine not in ENGINES:
        raise InputError(unknown("--engine", sources.engine, ENGINES))
    return ENGINES[sources.engine](denoiser), classifier


def open_explainer(sources: Sources, settings: Settings, seed: int = 0, device: str = "auto") -> Explainer:
    """Load everything and put it on a device."""
    if seed < 0:
        raise InputError(expected("--seed", "0 or more", seed))
    if sources.engine == "onnx" and settings.through_denoiser:
        raise no_gradients()  # now: the export takes a while
    place = chosen_device(device)
    denoiser, classifier = open_models(sources)
    features = vgg19_features(sources.features) if sources.features is not None else None
    return moved(Explainer(denoiser, classifier, settings, features, seed), place)


def chosen_device(name: str) -> str:
    """Check a device; "auto" takes a GPU when there is one."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=name).cpu()  # there and back: some devices hold no numbers
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(expected("--device", "a device of this machine", f"{name!r} ({reason})")) from None
    return name
