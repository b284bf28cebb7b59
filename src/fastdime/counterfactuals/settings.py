"""Every choice a method makes, as a named field; docs/methods.md lists them beside the published programs."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

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
Weights = Annotated[tuple[Weight, ...], Field(min_length=1)]


class Settings(BaseModel):
    """What every method has: its chain, its ladder of strengths and how a result is judged and kept."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    steps: Annotated[int, Field(ge=1)] | None = Field(
        200, description="length of the re-spaced chain; None: the model's own"
    )
    scales: tuple[float, ...] = Field((8.0, 10.0, 15.0), min_length=1, description="strengths, tried in turn")
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
    keep: Literal["best", "last"] = Field(
        "best", description="which attempt stays when none reaches the target"
    )
    judge: Literal["saved", "float"] = Field("saved", description="image on which validity is judged")
    rounding: Literal["nearest", "truncate"] = Field("nearest", description="how pixels become integers")
    skip_if_met: bool = Field(True, description="leave an image alone that is in the target class already")


class GuidedSettings(Settings):
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


class AceSettings(Settings):
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
