"""Does an image classifier lean on a shortcut? Diffusion-made counterfactuals that say how much."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastdime.audit.output import read_audit, write_audit
    from fastdime.audit.request import AuditRequest
    from fastdime.bundles import Bundle, BundleInfo, load_bundle, save_bundle
    from fastdime.classifiers.load import load_classifier, save_classifier
    from fastdime.classifiers.perceptual import vgg19_features
    from fastdime.classifiers.spec import ClassifierSpec
    from fastdime.classifiers.wrapper import ImageClassifier
    from fastdime.counterfactuals.explainer import Explainer
    from fastdime.counterfactuals.methods import METHODS, PRESETS, cost, settings_for
    from fastdime.counterfactuals.settings import AceSettings, GuidedSettings, TurboSettings
    from fastdime.data.table import Table, read_table
    from fastdime.diffusion.checkpoints import convert, load_denoiser
    from fastdime.diffusion.denoiser import Denoiser, as_denoiser
    from fastdime.diffusion.sampling import sample
    from fastdime.diffusion.schedule import Schedule
    from fastdime.errors import CheckpointError, DataError, FastdimeError, InputError, MissingExtra
    from fastdime.experiments.search import Tuned, tune_settings
    from fastdime.noise import SeededNoise
    from fastdime.pipeline.explain import explain
    from fastdime.pipeline.options import RunOptions
    from fastdime.pipeline.pairs import pairs_of_folders, pairs_of_run
    from fastdime.pipeline.summary import Summary, summarise
    from fastdime.runs import read_run
    from fastdime.scoring.compare import compare
    from fastdime.scoring.request import ScoreRequest
    from fastdime.scoring.score import Scores, score
    from fastdime.types import Classifier, Counterfactuals

# Where each public name lives: imported when first used, because torch takes a second to load.
_HOME = {
    "AceSettings": "counterfactuals.settings",
    "AuditRequest": "audit.request",
    "Bundle": "bundles",
    "BundleInfo": "bundles",
    "CheckpointError": "errors",
    "Classifier": "types",
    "ClassifierSpec": "classifiers.spec",
    "Counterfactuals": "types",
    "DataError": "errors",
    "Denoiser": "diffusion.denoiser",
    "Explainer": "counterfactuals.explainer",
    "FastdimeError": "errors",
    "GuidedSettings": "counterfactuals.settings",
    "ImageClassifier": "classifiers.wrapper",
    "InputError": "errors",
    "METHODS": "counterfactuals.methods",
    "MissingExtra": "errors",
    "PRESETS": "counterfactuals.methods",
    "RunOptions": "pipeline.options",
    "Schedule": "diffusion.schedule",
    "ScoreRequest": "scoring.request",
    "Scores": "scoring.score",
    "SeededNoise": "noise",
    "Summary": "pipeline.summary",
    "Table": "data.table",
    "TurboSettings": "counterfactuals.settings",
    "Tuned": "experiments.search",
    "as_denoiser": "diffusion.denoiser",
    "compare": "scoring.compare",
    "convert": "diffusion.checkpoints",
    "cost": "counterfactuals.methods",
    "explain": "pipeline.explain",
    "load_bundle": "bundles",
    "load_classifier": "classifiers.load",
    "load_denoiser": "diffusion.checkpoints",
    "pairs_of_folders": "pipeline.pairs",
    "pairs_of_run": "pipeline.pairs",
    "read_audit": "audit.output",
    "read_run": "runs",
    "read_table": "data.table",
    "sample": "diffusion.sampling",
    "save_bundle": "bundles",
    "save_classifier": "classifiers.load",
    "score": "scoring.score",
    "settings_for": "counterfactuals.methods",
    "summarise": "pipeline.summary",
    "tune_settings": "experiments.search",
    "vgg19_features": "classifiers.perceptual",
    "write_audit": "audit.output",
}

__all__ = [
    "METHODS",
    "PRESETS",
    "AceSettings",
    "AuditRequest",
    "Bundle",
    "BundleInfo",
    "CheckpointError",
    "Classifier",
    "ClassifierSpec",
    "Counterfactuals",
    "DataError",
    "Denoiser",
    "Explainer",
    "FastdimeError",
    "GuidedSettings",
    "ImageClassifier",
    "InputError",
    "MissingExtra",
    "RunOptions",
    "Schedule",
    "ScoreRequest",
    "Scores",
    "SeededNoise",
    "Summary",
    "Table",
    "Tuned",
    "TurboSettings",
    "as_denoiser",
    "compare",
    "convert",
    "cost",
    "explain",
    "load_bundle",
    "load_classifier",
    "load_denoiser",
    "pairs_of_folders",
    "pairs_of_run",
    "read_audit",
    "read_run",
    "read_table",
    "sample",
    "save_bundle",
    "save_classifier",
    "score",
    "settings_for",
    "summarise",
    "tune_settings",
    "vgg19_features",
    "write_audit",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import a public name from its home."""
    if name in _HOME:
        return getattr(import_module(f"fastdime.{_HOME[name]}"), name)
    raise AttributeError(f"module 'fastdime' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names."""
    return sorted([*__all__, "__version__"])
