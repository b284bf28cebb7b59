"""Every choice a method makes, as a named field; docs/methods.md lists them beside the published programs."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, WrapValidator


def _odd(value: int) -> int:
    if value % 2 == 0:
        raise ValueError("an odd number of pixels")
    return value


def _one_or_each(value: Any, check: Callable[[Any], Any]) -> Any:
    try:
        return check(value)
    except ValidationError:  # it has a complaint for each form, and neither names the other
        raise ValueError("a finite number >= 0, or one for each class") from None


Odd = Annotated[int, Field(ge=1), AfterValidator(_odd)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Weight = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(gt=0, lt=1)]
Level = Annotated[float, Field(gt=0, lt=1)]
Levels = tuple[Level, ...]
Weights = Annotated[tuple[Weight, ...], Field(min_length=1)]


class Settings(BaseModel):
    """What every method has: its ladder of strengths and how a result is judged and kept."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    adaptive: ClassVar[bool] = False  # whether an easy image may cost less than another

    scales: tuple[float, ...] = Field((8.0, 10.0, 15.0), min_length=1, description="strengths, tried in turn")
    keep: Literal["best", "last"] = Field(
        "best", description="which attempt stays when none reaches the target"
    )
    judge: Literal["saved", "float"] = Field("saved", description="image on which validity is judged")
    rounding: Literal["nearest", "truncate"] = Field("nearest", description="how pixels become integers")
    skip_if_met: bool = Field(True, description="leave an image alone that is in the target class already")

    @property
    def through_denoiser(self) -> bool:
        """Whether gradients are taken through the denoiser."""
        return False


class ChainSettings(Settings):
    """What the published methods have in common: a chain, a loss and a mask from a difference."""

    steps: Annotated[int, Field(ge=1)] | None = Field(
        200, description="length of the re-spaced chain; None: the model's own"
    )
    class_loss: Literal["logit", "log-probability", "probability"] = Field(
        "logit", description="what is raised: log-odds or log-probability"
    )
    l1: Annotated[Weight | Weights, WrapValidator(_one_or_each)] = Field(
        0.05, description="weight of the L1 distance to the input; several: one for each target class"
    )
    l2: Weight = Field(0.0, description="weight of the L2 distance to the input")
    threshold: Annotated[float, Field(ge=0, le=1)] = Field(
        0.15, description="of the normalised difference, for masks"
    )
    dilation: Odd = Field(5, description="side of the square that masks are dilated with, in pixels")


class GuidedSettings(ChainSettings):
    """Settings of the guided loop (DiME, FastDiME, GMD, MaskDiME and their variants)."""

    tau: Annotated[int, Field(ge=1)] = Field(60, description="levels of the chain that are run")
    respacing: Literal["subset", "rebuilt"] = Field(
        "subset", description="keep some levels, or build a new linear chain"
    )
    gradient: Literal["denoised", "nested", "through", "carried"] = Field(
        "denoised", description="gradient source"
    )
    gradient_image: Literal["current", "previous"] = Field(
        "current", description="clean image the gradient is taken on"
    )
    mask: Literal["none", "difference", "top-k"] = Field("none", description="mask rule")
    mask_from: int | None = Field(None, description="highest level with a difference mask; None: half of tau")
    second_pass: Literal["none", "fixed", "inpaint", "null"] = Field(
        "none", description="what follows the first pass"
    )

    strength: Annotated[float, Field(gt=0)] = Field(1.0, description="factor of the whole gradient")
    step_size: Literal["variance", "beta"] = Field(
        "variance", description="model variance, or beta / sqrt(1 - beta)"
    )
    over_signal: bool = Field(
        False, description="divide classifier and perceptual gradients by sqrt(alpha-bar)"
    )
    l1_on: Literal["clean", "noisy"] = Field(
        "clean", description="image that L1 and L2 compare with the input"
    )
    distance: Literal["sum", "mean"] = Field("sum", description="reduction of L1 over pixels")
    perceptual: Weight = Field(0.0, description="weight of the perceptual distance; needs features")
    guided_steps: Annotated[int, Field(ge=0)] | None = Field(
        None, description="steps with guidance; None: all"
    )
    losses_through: bool = Field(
        True, description="with gradients through the denoiser: distances go through too"
    )
    classifier_time: Literal["zero", "level"] = Field("zero", description="time a timed classifier is told")
    after_guidance: Literal["denoise", "freeze"] = Field(
        "denoise", description="what steps without guidance do"
    )

    start_above: bool = Field(
        False, description="draw the start one level noisier than the first step is told"
    )
    inversion: bool = Field(
        False, description="begin with the noise that the denoiser finds in the input, and add none (DDIM)"
    )
    last_level: Annotated[int, Field(ge=0)] = Field(0, description="level of the last step")
    quiet_level: Annotated[int, Field(ge=0)] = Field(
        0, description="no noise is added at this level and below"
    )
    add_noise: bool = Field(True, description="add noise in the reverse step")
    clip_denoised: bool = Field(True, description="keep the denoised image in [-1, 1]")
    paste_level: Literal["state", "step"] = Field("state", description="noise level of the pasted original")
    paste_original: bool = Field(True, description="paste the clean input outside the mask at the end")
    returns: Literal["state", "clean"] = Field(
        "state", description="end of the chain, or its last clean estimate"
    )
    second_start: Literal["same", "fresh"] = Field("same", description="start noise of the second pass")
    second_mask: Literal["float", "saved"] = Field("float", description="image the fixed mask is made from")

    nested_judges: Literal["generated", "denoised"] = Field(
        "generated", description="image the classifier sees in DiME"
    )
    nested_from: Literal["state", "below"] = Field("state", description="first level of DiME's inner chain")
    nested_noise: bool = Field(True, description="stochastic inner chain")

    top_share: Fraction = Field(0.05, description="share of pixels in MaskDiME's edit mask, before dilation")
    inner_share: Fraction = Field(0.5, description="share of those in its inner mask")
    per_channel: bool = Field(False, description="one MaskDiME mask for each channel")
    clip_sigma: Weight | None = Field(
        None, description="clip MaskDiME's class gradient at so many deviations"
    )
    clip_over: Literal["image", "batch"] = Field("image", description="what the deviation is taken over")

    inpaint_steps: Annotated[int, Field(ge=1)] = Field(
        5, description="levels that are redrawn after the first pass"
    )
    inpaint_chain: Annotated[int, Field(ge=1)] | None = Field(50, description="length of the chain for that")
    inpaint_dilation: Odd = Field(15, description="dilation of the mask for that")

    @property
    def through_denoiser(self) -> bool:
        """Whether the gradient source is one that goes through it."""
        return self.gradient == "through"


class AceSettings(ChainSettings):
    """Settings of ACE: an attack through the denoiser, then inpainting. Distances are on the [0, 1] scale."""

    steps: Annotated[int, Field(ge=1)] | None = Field(50, description="length of the re-spaced chain")
    scales: tuple[float, ...] = Field(
        (1.0,), min_length=1, description="factors of the class gradient, in turn"
    )
    class_loss: Literal["logit", "log-probability", "probability"] = "log-probability"
    l1: Weight = 0.001
    dilation: Odd = 15
    noise_steps: Annotated[int, Field(ge=1)] = Field(5, description="levels of the filter that images pass")
    iterations: Annotated[int, Field(ge=1)] = Field(50, description="steps of the attack")
    attack_step: Annotated[float, Field(gt=0)] = Field(1 / 255, description="size of one step")
    epsilon: Annotated[float, Field(gt=0)] = Field(1.0, description="largest change of a pixel")
    distance_schedule: Literal["none", "step", "linear"] = Field(
        "none", description="how the distance comes in"
    )
    reduction: Literal["image", "batch"] = Field(
        "image", description="class loss of each image, or batch mean"
    )

    @property
    def through_denoiser(self) -> bool:
        """The attack always goes through it."""
        return True


class TurboSettings(Settings):
    """Settings of turbo, which are all shares.

    Levels of noise are shares of the image's variance that is left (alpha-bar), lengths are shares of its
    side, sizes of steps of its range of values, areas of its pixels.
    """

    adaptive: ClassVar[bool] = True

    scales: tuple[float, ...] = Field((1.0, 1.5), min_length=1, description="factors of all pushes, in turn")

    locate_level: Level = Field(
        0.895, description="noise at which the guide and the denoiser are brought to agree"
    )
    locate_rounds: Annotated[int, Field(ge=1)] = Field(2, description="pushes through the denoiser to locate")
    erase_rounds: Annotated[int, Field(ge=0)] = Field(2, description="further ones for what is to be erased")
    locate_pushes: Annotated[int, Field(ge=1)] = Field(4, description="gradient steps of one such round")
    locate_push: Share = Field(0.04, description="root mean square of one such step")
    smoothing: Share = Field(0.03, description="width of the blur of gradients")
    margin: Annotated[float, Field(gt=0)] = Field(4.0, description="log-odds at which pushing ends")
    sure: Share = Field(0.25, description="share of the strongest difference that starts a mask")
    faint: Share = Field(0.05, description="share that continues it")
    area: Share = Field(0.1, description="largest mask of what was located, before it is widened")
    widen: Share = Field(0.015, description="how far masks reach beyond what was located")

    evidence_sure: Share = Field(0.12, description="as sure, for what changes when that is covered")
    evidence_faint: Share = Field(0.06, description="as faint, for the same")
    redraw_levels: Levels = Field((0.6,), description="noise of the redrawing, before the level of locating")
    again: Annotated[int, Field(ge=0)] = Field(1, description="rounds to erase what the guide still sees")

    draw_levels: Annotated[Levels, Field(min_length=2)] = Field(
        (0.0069, 0.194), description="noise at which something new is begun, beside a chain without guidance"
    )
    draw_pushes: Annotated[int, Field(ge=1)] = Field(3, description="gradient steps at each of them")
    draw_push: Share = Field(0.25, description="largest change of a pixel by one such step")
    draw_margin: Annotated[float, Field(gt=0)] = Field(6.0, description="log-odds at which they end")
    draw_sure: Share = Field(0.3, description="as sure, for the difference of the two chains")
    draw_faint: Share = Field(0.04, description="as faint, for the same")
    draw_area: Share = Field(0.12, description="as area, for something new")
    finish_levels: Annotated[Levels, Field(min_length=1)] = Field(
        (0.194, 0.521, 0.855), description="noise at which it is finished inside its mask"
    )
    finish_pushes: Annotated[int, Field(ge=0)] = Field(2, description="gradient steps at each but the last")
