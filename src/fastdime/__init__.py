"""Does an image classifier lean on a shortcut? Diffusion-made counterfactuals that say how much."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastdime.counterfactuals.explainer import Explainer
    from fastdime.counterfactuals.methods import METHODS, PRESETS, settings_for
    from fastdime.diffusion.checkpoints import convert, load_denoiser
    from fastdime.diffusion.denoiser import Denoiser, as_denoiser
    from fastdime.errors import CheckpointError, DataError, FastdimeError, InputError, MissingExtra

# Where each public name lives: imported when first used, because torch takes a second to load.
_HOME = {
    "CheckpointError": "errors",
    "DataError": "errors",
    "Denoiser": "diffusion.denoiser",
    "Explainer": "counterfactuals.explainer",
    "FastdimeError": "errors",
    "InputError": "errors",
    "METHODS": "counterfactuals.methods",
    "MissingExtra": "errors",
    "PRESETS": "counterfactuals.methods",
    "as_denoiser": "diffusion.denoiser",
    "convert": "diffusion.checkpoints",
    "load_denoiser": "diffusion.checkpoints",
    "settings_for": "counterfactuals.methods",
}

__all__ = [
    "METHODS",
    "PRESETS",
    "CheckpointError",
    "DataError",
    "Denoiser",
    "Explainer",
    "FastdimeError",
    "InputError",
    "MissingExtra",
    "as_denoiser",
    "convert",
    "load_denoiser",
    "settings_for",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import a public name from its home."""
    if name in _HOME:
        return getattr(import_module(f"fastdime.{_HOME[name]}"), name)
    raise AttributeError(f"module 'fastdime' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
