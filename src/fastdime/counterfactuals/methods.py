"""The table of methods: a recipe is a set of settings for a program: the guided loop, ACE or turbo."""

from dataclasses import dataclass, field
from typing import Any

from fastdime.configs import checked
from fastdime.counterfactuals.ace import ace
from fastdime.counterfactuals.loop import Edit, chain_for_inpainting, chain_of, first_level, guided
from fastdime.counterfactuals.problem import Problem
from fastdime.counterfactuals.settings import AceSettings, GuidedSettings, Settings, TurboSettings
from fastdime.counterfactuals.step import Watch, ignore
from fastdime.counterfactuals.turbo import EVENTS, largest_cost, turbo
from fastdime.diffusion.denoiser import Denoiser
from fastdime.errors import InputError, unknown

Overrides = dict[str, Any]


@dataclass(frozen=True)
class Method:
    """One line of the table.

    Attributes:
        summary: what it does, in one line.
        program: the settings class, which names the program.
        recipe: what it sets, whatever the preset.
        published: what a preset changes for this method alone.
    """

    summary: str
    program: type[Settings]
    recipe: Overrides = field(default_factory=dict)
    published: dict[str, Overrides] = field(default_factory=dict)


METHODS: dict[str, Method] = {
    "dime": Method(
        "gradient on an image generated anew in each step; quadratic cost",
        GuidedSettings,
        {"gradient": "nested", "over_signal": True},
        {
            "medical": {
                "over_signal": False,
                "nested_judges": "denoised",
                "nested_from": "below",
                "l1": 50.0,
            }
        },
    ),
    "fastdime": Method(
        "gradient on the denoised image, self-optimised mask in the second half",
        GuidedSettings,
        {"mask": "difference"},
    ),
    "fastdime-nomask": Method("FastDiME without the mask", GuidedSettings),
    "fastdime-2": Method(
        "FastDiME without mask, then again inside the mask it found",
        GuidedSettings,
        {"second_pass": "fixed"},
    ),
    "fastdime-2+": Method(
        "FastDiME, then again inside the mask it found",
        GuidedSettings,
        {"mask": "difference", "second_pass": "fixed"},
    ),
    "fastdime-null": Method(
        "FastDiME where it differs from the chain without guidance; there added, or redrawn",
        GuidedSettings,
        {"second_pass": "null"},
    ),
    "gmd": Method(
        "gradient through the denoiser, self-optimised mask",
        GuidedSettings,
        {"gradient": "through", "mask": "difference"},
    ),
    "gmd-nomask": Method("gradient through the denoiser, no mask", GuidedSettings, {"gradient": "through"}),
    "maskdime": Method(
        "two nested masks from the largest gradients in each step, no noise",
        GuidedSettings,
        {
            "gradient": "carried",
            "mask": "top-k",
            "over_signal": True,
            "strength": 8.0,
            "add_noise": False,
        },
        {"celeba": {"paste_original": False, "after_guidance": "freeze", "clip_over": "batch"}},
    ),
    "fastdime-repaint": Method(
        "FastDiME without mask, then inpainting of what it changed",
        GuidedSettings,
        {"second_pass": "inpaint"},
    ),
    "ace-l1": Method("attack through the denoiser with an L1 distance, then inpainting", AceSettings),
    "ace-l2": Method(
        "attack through the denoiser with an L2 distance, then inpainting",
        AceSettings,
        {"l1": 0.0, "l2": 0.1},
    ),
    "turbo": Method("locate, then erase and redraw or draw anew, in few calls", TurboSettings),
    "turbo-xs": Method(
        "turbo with fewer calls and no second try",
        TurboSettings,
        {
            "scales": (1.0,),
            "locate_rounds": 1,
            "erase_rounds": 1,
            "redraw_levels": (),
            "again": 0,
            "finish_levels": (0.194, 0.6),
        },
    ),
    "turbo-l": Method(
        "turbo with more calls",
        TurboSettings,
        {
            "erase_rounds": 3,
            "redraw_levels": (0.6, 0.8),
            "again": 2,
            "draw_levels": (0.0069, 0.06, 0.194),
            "finish_levels": (0.194, 0.4, 0.65, 0.9),
        },
    ),
}

# What the two published programs do for every method; "default" is the right algorithm.
PRESETS: dict[str, dict[type[Settings], Overrides]] = {
    "default": {GuidedSettings: {}, AceSettings: {}, TurboSettings: {}},
    "celeba": {
        GuidedSettings: {
            "gradient_image": "previous",
            "l1_on": "noisy",
            "losses_through": False,
            "perceptual": 30.0,
            "start_above": True,
            "paste_level": "step",
            "keep": "last",
            "judge": "float",
            "rounding": "truncate",
            "skip_if_met": False,
        },
        AceSettings: {
            "keep": "last",
            "judge": "float",
            "rounding": "truncate",
            "skip_if_met": False,
            "reduction": "batch",
        },
        TurboSettings: {},
    },
    "medical": {
        GuidedSettings: {
            "steps": 400,
            "respacing": "rebuilt",
            "tau": 160,
            "mask_from": 80,
            "last_level": 1,
            "quiet_level": 1,
            "scales": (1.0,),
            "strength": 40.0,
            "class_loss": "probability",
            "step_size": "beta",
            "l1": 200.0,
            "distance": "mean",
            "dilation": 21,
            "clip_denoised": False,
            "classifier_time": "level",
            "returns": "clean",
            "start_above": True,
            "paste_level": "step",
            "paste_original": False,
            "second_start": "fresh",
            "second_mask": "saved",
            "keep": "last",
            "judge": "float",
            "skip_if_met": False,
        },
        AceSettings: {"dilation": 21},
        TurboSettings: {},
    },
}


# How often the chain is run, and how often with gradients of the classifier.
REDRAWS = ("inpaint", "null")  # second passes that end with inpainting
_PASSES = {"fixed": (2, 2), "null": (2, 1)}


def settings_for(method: str, preset: str = "default", **overrides: Any) -> Settings:
    """Return the settings of a method, with some fields changed.

    >>> settings_for("fastdime", tau=20).tau
    20
    """
    if method not in METHODS:
        raise InputError(unknown("method", method, METHODS))
    if preset not in PRESETS:
        raise InputError(unknown("preset", preset, PRESETS))
    entry = METHODS[method]
    values = PRESETS[preset][entry.program] | entry.recipe | entry.published.get(preset, {}) | overrides
    return checked(entry.program, values, f"setting of {method}", InputError)


def run(problem: Problem, settings: Settings, scale: float, watch: Watch = ignore) -> Edit:
    """Make one attempt with the program that the settings belong to."""
    if isinstance(settings, AceSettings):
        return ace(problem, settings, scale, watch)
    if isinstance(settings, TurboSettings):
        return turbo(problem, settings, scale, watch)
    assert isinstance(settings, GuidedSettings)
    return guided(problem, settings, scale, watch)


def check_chain(denoiser: Denoiser, settings: Settings) -> None:
    """Refuse settings that the chain of a denoiser is too short for."""
    if isinstance(settings, AceSettings):
        chain_for_inpainting(denoiser, settings.steps, settings.noise_steps)
    if isinstance(settings, GuidedSettings):
        chain_of(denoiser, settings)
        if settings.second_pass in REDRAWS:
            chain_for_inpainting(denoiser, settings.inpaint_chain, settings.inpaint_steps)


def cost(settings: Settings) -> tuple[int, int]:
    """Return denoiser calls and gradient calls of one attempt on one image; the most, if they vary."""
    if isinstance(settings, TurboSettings):
        return largest_cost(settings)
    if isinstance(settings, AceSettings):
        return (settings.iterations + 1) * settings.noise_steps, settings.iterations
    assert isinstance(settings, GuidedSettings)
    levels = range(settings.tau - 1, settings.last_level - 1, -1)
    calls = len(levels)
    if settings.gradient == "nested":
        below = settings.nested_from == "below"
        skipped = settings.tau - below if settings.gradient_image == "previous" else 0
        calls += sum(t + 1 - below for t in levels) - skipped
    passes, again = _PASSES.get(settings.second_pass, (1, 1))
    extra = settings.inpaint_steps if settings.second_pass in REDRAWS else 0
    extra += first_level(settings) if settings.inversion else 0
    guided_steps = len(levels) if settings.guided_steps is None else min(settings.guided_steps, len(levels))
    return passes * calls + extra, again * guided_steps


def events(settings: Settings) -> int:
    """Return how many steps one attempt reports while it works."""
    if isinstance(settings, TurboSettings):
        return EVENTS
    if isinstance(settings, AceSettings):
        return settings.iterations
    assert isinstance(settings, GuidedSettings)
    return (settings.tau - settings.last_level) * _PASSES.get(settings.second_pass, (1, 1))[0]
