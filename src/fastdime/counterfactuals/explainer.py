"""Counterfactuals of a batch of images, with everything checked on the way in."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fastdime.counterfactuals.ladder import Tick, climb
from fastdime.counterfactuals.methods import settings_for
from fastdime.counterfactuals.problem import Features, Problem, counted, left_as_found
from fastdime.counterfactuals.settings import GuidedSettings, Settings
from fastdime.counterfactuals.targets import Target, choose_target
from fastdime.diffusion.denoiser import Denoiser
from fastdime.errors import InputError, expected
from fastdime.noise import SeededNoise
from fastdime.pixels import top_level
from fastdime.scores import probabilities
from fastdime.types import Classifier, Counterfactuals, Meter


@dataclass(frozen=True)
class Explainer:
    """Makes counterfactuals of image batches with one method.

    Attributes:
        settings: a `Settings` object, or the name of a method with its default settings.
        features: a feature network for the perceptual loss; only needed when its weight is not 0.
        seed: of all noise; a result depends on (seed, image id, settings, weights) alone.
        bits: depth of the images, 8 or 16; counterfactuals are made of values such a file can hold.
    """

    denoiser: Denoiser
    classifier: Classifier
    settings: Settings | str = "fastdime"
    features: Features | None = None
    seed: int = 0
    bits: int = 8

    @property
    def resolved(self) -> Settings:
        """The settings in use."""
        return settings_for(self.settings) if isinstance(self.settings, str) else self.settings

    def __call__(
        self,
        x: Tensor,
        target: Target = "flip",
        *,
        ids: Sequence[str] | None = None,
        labels: Tensor | None = None,
        region: Tensor | None = None,
        record: Sequence[int] = (),
        tick: Tick | None = None,
    ) -> Counterfactuals:
        """Make one counterfactual for each image.

        Args:
            x: images in [-1, 1], (b, c, h, w).
            target: "flip" (the likeliest class but the predicted one), "flip-label" (1 - label), one class
                for all, or one class for each image.
            ids: names of the images; noise depends on them. Their place in the batch unless given.
            labels: 0 or 1 for each image, for "flip-label".
            region: True where changes are allowed, (b, 1, h, w).
            record: numbers of the steps whose state is kept in the result's trajectory.
            tick: called with (steps done, steps of this attempt).
        """
        names = [str(i) for i in range(len(x))] if ids is None else [str(name) for name in ids]
        settings = self.resolved
        self._check(x, names, region, settings)
        with left_as_found(self.denoiser.network, self.classifier, self.features), torch.no_grad():
            before = probabilities(
                self.classifier.logits(x, torch.zeros(len(x), dtype=torch.int64, device=x.device))
            )
            meter = Meter()
            problem = Problem(
                x,
                choose_target(target, before, labels),
                counted(self.denoiser, meter),
                self.classifier,
                SeededNoise(self.seed, names),
                region,
                self.features,
                self.bits,
                meter=meter,
            )
            return climb(problem, settings, record, tick)

    def _check(self, x: Tensor, names: list[str], region: Tensor | None, settings: Settings) -> None:
        top_level(self.bits)
        check_images(x, self.denoiser)
        if len(names) != len(x) or len(set(names)) != len(names):
            raise InputError(expected("ids", f"{len(x)} different names", f"{len(names)} names"))
        if region is not None and (region.dtype != torch.bool or region.shape != (len(x), 1, *x.shape[2:])):
            wanted = f"booleans of shape {(len(x), 1, *x.shape[2:])}"
            raise InputError(expected("region", wanted, f"{region.dtype} {tuple(region.shape)}"))
        weight = settings.perceptual if isinstance(settings, GuidedSettings) else 0
        if weight and self.features is None:
            raise InputError(
                expected(
                    "features",
                    f"a feature network, as perceptual = {weight:g}",
                    "none",
                    "set perceptual to 0",
                )
            )


def check_images(x: Tensor, denoiser: Denoiser) -> None:
    """Refuse what is not a batch of images in [-1, 1] that the denoiser can take."""
    if x.ndim != 4 or not x.is_floating_point():
        raise InputError(expected("images", "floats of shape (b, c, h, w)", f"{x.dtype} {tuple(x.shape)}"))
    if len(x) == 0:
        raise InputError(expected("images", "at least one image", "none"))
    channels = denoiser.channels
    if x.shape[1] not in ((1, 3) if channels is None else (channels,)):
        raise InputError(expected("images", f"{channels or '1 or 3'} channels", x.shape[1]))
    if denoiser.size is not None and tuple(x.shape[2:]) != (denoiser.size, denoiser.size):
        size = f"{denoiser.size}x{denoiser.size} pixels, the size of the denoiser"
        raise InputError(expected("images", size, f"{x.shape[2]}x{x.shape[3]}", "resize them"))
    if not x.isfinite().all():
        raise InputError(expected("images", "finite numbers", "NaN or infinity"))
    if x.min() < -1 or x.max() > 1:
        raise InputError(
            expected("images", "values in [-1, 1]", f"[{x.min():.3g}, {x.max():.3g}]", "rescale them")
        )
