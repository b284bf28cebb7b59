"""Counterfactuals of a batch of images, with everything checked on the way in."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fastdime.bundles import Bundle
from fastdime.counterfactuals.checks import (
    check_features,
    check_images,
    check_models,
    check_names,
    check_record,
    check_region,
    check_seed,
    check_weights,
)
from fastdime.counterfactuals.ladder import Tick, climb
from fastdime.counterfactuals.methods import settings_for
from fastdime.counterfactuals.problem import Features, Problem, left_as_found
from fastdime.counterfactuals.settings import Settings
from fastdime.counterfactuals.targets import Target, choose_target
from fastdime.diffusion.denoiser import Denoiser
from fastdime.noise import SeededNoise
from fastdime.pixels import top_level
from fastdime.scores import probabilities
from fastdime.types import Classifier, Counterfactuals


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

    @classmethod
    def from_bundle(cls, bundle: Bundle, method: str = "fastdime", **changes: Any) -> "Explainer":
        """Return an explainer with the models of a bundle and the settings that work for it."""
        settings = settings_for(method, **bundle.info.settings.get(method, {}) | changes)
        return cls(bundle.denoiser, bundle.classifier, settings, bits=bundle.info.bits)

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
        settings = self.resolved
        check_models(self.denoiser, self.classifier)
        check_images(x, self.denoiser)
        names = [str(i) for i in range(len(x))] if ids is None else [str(name) for name in ids]
        check_names(names, len(x))
        check_region(region, x)
        check_seed(self.seed)
        check_record(record, settings)
        check_features(self.features, settings)
        top_level(self.bits)
        with left_as_found(self.denoiser.network, self.classifier, self.features), torch.no_grad():
            before = probabilities(
                self.classifier.logits(x, torch.zeros(len(x), dtype=torch.int64, device=x.device))
            )
            check_weights(settings, before.shape[1])
            problem = Problem(
                x,
                choose_target(target, before, labels),
                self.denoiser,
                self.classifier,
                SeededNoise(self.seed, names),
                region,
                self.features,
                self.bits,
            )
            return climb(problem, settings, record, tick)
