"""The one guided reverse loop that DiME, FastDiME, GMD, MaskDiME and their variants are settings of."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import avg_pool2d

from fastdime.counterfactuals.fill import filled
from fastdime.counterfactuals.gradients import Gradients, GradientSource, Objective, gradient_source
from fastdime.counterfactuals.masks import (
    DifferenceMask,
    FixedMask,
    MaskRule,
    NoMask,
    TopGradientMask,
    difference_map,
    difference_mask,
    dilate,
    grown,
)
from fastdime.counterfactuals.problem import Problem
from fastdime.counterfactuals.settings import GuidedSettings
from fastdime.counterfactuals.step import Estimate, Event, Masks, Step, Watch, ignore
from fastdime.diffusion import schedule as sch
from fastdime.diffusion.denoiser import Denoiser
from fastdime.diffusion.sampling import ddim_step, found_noise, inpaint, step_down
from fastdime.errors import InputError, expected
from fastdime.noise import Noise
from fastdime.pixels import to_grid
from fastdime.scores import log_odds

LARGEST = 1e4  # a state further out has diverged
FAINT = 0.35  # share of the threshold that is enough beside what is above it


@dataclass(frozen=True)
class Edit:
    """An attempt at a counterfactual, before clipping and rounding, and where it could change.

    An image that diverged is NaN.
    """

    x_cf: Float[Tensor, "b c h w"]
    mask: Bool[Tensor, "b 1 h w"]


def chain_of(denoiser: Denoiser, settings: GuidedSettings) -> Denoiser:
    """Put the denoiser on the chain that the settings ask for."""
    if settings.steps is None or settings.steps == len(denoiser.schedule):
        chain = denoiser
    else:
        rebuilt = settings.respacing == "rebuilt"
        chain = denoiser.rebuilt(settings.steps) if rebuilt else denoiser.respaced(settings.steps)
    longest = len(chain.schedule) - settings.start_above
    if settings.tau > longest:
        raise InputError(
            expected(
                "tau", f"at most {longest} levels on this chain", settings.tau, "lower tau or raise steps"
            )
        )
    if settings.last_level >= settings.tau:
        raise InputError(expected("last_level", f"below tau = {settings.tau}", settings.last_level))
    return chain


def first_level(settings: GuidedSettings) -> int:
    """Return the level of the noise that a chain begins with; one that is found is of the first step."""
    return settings.tau - 1 + (settings.start_above and not settings.inversion)


def chain_for_inpainting(denoiser: Denoiser, length: int | None, steps: int) -> Denoiser:
    """Put the denoiser on the short chain that inpainting uses."""
    chain = denoiser if length is None else denoiser.respaced(length)
    if steps > len(chain.schedule):
        raise InputError(expected("inpainting steps", f"at most {len(chain.schedule)}", steps))
    return chain


def mask_rule(settings: GuidedSettings) -> MaskRule:
    """Make the rule that the settings name."""
    if settings.mask == "difference":
        from_level = settings.tau // 2 - 1 if settings.mask_from is None else settings.mask_from
        return DifferenceMask(from_level, settings.dilation, settings.threshold)
    if settings.mask == "top-k":
        return TopGradientMask(
            settings.top_share, settings.inner_share, settings.dilation, settings.per_channel
        )
    return NoMask()


@dataclass(frozen=True)
class _State:
    """What one step hands to the next; `lost` images have diverged and only keep their place in the batch."""

    x_t: Tensor
    clean: Tensor
    masks: Masks | None
    lost: Bool[Tensor, "b 1 1 1"]


@dataclass(frozen=True)
class GuidedChain:
    """Corrupt the input and come back under guidance: tau levels, one denoiser call each."""

    problem: Problem
    chain: Denoiser
    settings: GuidedSettings
    scale: float
    noise: Noise
    watch: Watch = ignore
    found: Float[Tensor, "b c h w"] | None = None  # noise that is in the input, in the place of any other

    def run(self, rule: MaskRule, start: Float[Tensor, "b c h w"]) -> Edit:
        """Run all levels from a given start noise."""
        x_t = sch.q_sample(self.chain.schedule, self.problem.x, first_level(self.settings), start)
        state = _State(x_t, self.problem.x, None, torch.zeros_like(x_t[:, :1, :1, :1], dtype=torch.bool))
        for index, t in enumerate(range(self.settings.tau - 1, self.settings.last_level - 1, -1)):
            state = self._advance(state, t, index, rule)
        return self._finish(state)

    @cached_property
    def _source(self) -> GradientSource:
        return gradient_source(self.problem.with_noise(self.noise), self.chain, self.settings)

    @cached_property
    def _objective(self) -> Objective:
        return Objective(self.problem, self.chain, self.settings, self.scale)

    def _advance(self, state: _State, t: int, index: int, rule: MaskRule) -> _State:
        step = self._observe(state, t, index)
        estimate = self._source.estimate(step)
        gradients = self._gradients(step, estimate)
        if self._frozen(gradients):
            after = replace(state, clean=estimate.kept)
        else:
            masks = self._allowed(rule(step, estimate, gradients.class_part if gradients else None))
            moved, lost = self._recovered(self._move(step, gradients))
            kept = estimate.kept.detach()
            after = self._paste(_State(moved, kept, masks, state.lost | lost), t)
        self._tell(step, estimate, gradients, after)
        return after

    def _tell(self, step: Step, estimate: Estimate, gradients: Gradients | None, after: _State) -> None:
        self.watch(
            Event(
                index=step.index,
                t=step.t,
                x_t=step.x_t.detach(),
                x0_hat=step.posterior.x0_hat.detach(),
                mask=after.masks.state if after.masks else None,
                judged=estimate.judged.detach(),
                class_gradient=gradients.class_part if gradients else None,
                inner_mask=after.masks.clean if after.masks else None,
                x_next=after.x_t,
                clean=after.clean,
            )
        )

    def _observe(self, state: _State, t: int, index: int) -> Step:
        through = self._source.through_denoiser
        x_t = state.x_t.detach().requires_grad_(through)
        with torch.set_grad_enabled(through):
            posterior = self.chain.posterior(x_t, t, clip=self.settings.clip_denoised)
        time = self.chain.times(t, x_t)
        if self.settings.classifier_time == "zero":
            time = torch.zeros_like(time)
        return Step(self.problem.x, x_t, state.clean, t, index, time, posterior, state.masks)

    def _gradients(self, step: Step, estimate: Estimate) -> Gradients | None:
        if self.settings.guided_steps is not None and step.index >= self.settings.guided_steps:
            return None
        return self._objective.gradients(step, estimate, through=self._source.through_denoiser)

    def _frozen(self, gradients: Gradients | None) -> bool:
        # MaskDiME's program leaves the state alone, noise and all, where it has no gradient to follow.
        if self.settings.after_guidance == "denoise":
            return False
        return gradients is None or not bool(gradients.total.abs().sum() > 0)

    def _move(self, step: Step, gradients: Gradients | None) -> Tensor:
        mean = step.posterior.mean
        if self.found is not None:
            mean = ddim_step(self.chain, step.x_t, step.t, step.posterior.x0_hat)
        if gradients is not None:
            mean = mean - self._step_size(step) * gradients.total  # paper, section 3.1, item 3
        noise = self.noise if self.settings.add_noise and self.found is None else None
        posterior = replace(step.posterior, mean=mean)
        return step_down(posterior, step.t, noise, quiet=self.settings.quiet_level).detach()

    def _recovered(self, x_t: Tensor) -> tuple[Tensor, Tensor]:
        """Put the input where an image has diverged, so that the others of its batch can go on."""
        lost = ~(x_t.abs().amax((1, 2, 3), keepdim=True) < LARGEST)  # also true for NaN
        return torch.where(lost, self.problem.x, x_t), lost

    def _step_size(self, step: Step) -> Tensor:
        if self.settings.step_size == "variance":
            return step.posterior.variance
        betas = self.chain.schedule.betas
        return sch.at(betas / np.sqrt(1 - betas), step.t, step.x)

    def _allowed(self, masks: Masks | None) -> Masks | None:
        region = self.problem.region
        if region is None:
            return masks
        return Masks(masks.state & region, masks.clean & region) if masks else Masks(region, region)

    def _paste(self, state: _State, t: int) -> _State:
        """Put the input, noised like the state, where the mask forbids changes (paper, eqs. 7 and 8)."""
        if state.masks is None:
            return state
        level = t if self.settings.paste_level == "step" else t - 1
        around = self.problem.x
        if level >= 0:
            noise = self.noise.draw(around, "paste", t) if self.found is None else self.found
            around = sch.q_sample(self.chain.schedule, around, level, noise)
        x_t = torch.where(state.masks.state, state.x_t, around)
        clean = torch.where(state.masks.clean, state.clean, self.problem.x)
        return replace(state, x_t=x_t, clean=clean)

    def _finish(self, state: _State) -> Edit:
        result = state.x_t if self.settings.returns == "state" else state.clean
        result = torch.where(state.lost, float("nan"), result)
        if state.masks is None:
            return Edit(result, self.problem.allowed())
        if self.settings.paste_original or self.problem.region is not None:
            result = torch.where(state.masks.state, result, self.problem.x)
        return Edit(result, state.masks.state.any(1, keepdim=True))


def guided(problem: Problem, settings: GuidedSettings, scale: float, watch: Watch = ignore) -> Edit:
    """Make one attempt: a pass of the loop and, if the settings ask for it, a second one or inpainting."""
    chain = chain_of(problem.counted, settings)
    found = None
    if settings.inversion:
        found = found_noise(chain, problem.x, first_level(settings), clip=settings.clip_denoised)
    first = GuidedChain(problem, chain, settings, scale, problem.part("pass", 1), watch, found)
    start = problem.noise.draw(problem.x, "start") if found is None else found
    edit = first.run(mask_rule(settings), start)
    if settings.second_pass == "fixed":
        if settings.second_start == "fresh" and found is None:
            start = problem.noise.draw(problem.x, "start", 2)
        image = to_grid(edit.x_cf, problem.bits) if settings.second_mask == "saved" else edit.x_cf
        mask = difference_mask(problem.x, image, settings.dilation, settings.threshold)
        return replace(first, noise=problem.part("pass", 2)).run(FixedMask(mask), start)
    if settings.second_pass == "inpaint":
        return repaint(problem, settings, edit)
    if settings.second_pass == "null":
        return over_null(problem, settings, edit, replace(first, scale=0.0).run(mask_rule(settings), start))
    return edit


def over_null(problem: Problem, settings: GuidedSettings, edit: Edit, null: Edit) -> Edit:
    """Change only what guidance changed, not what the chain changes on its own.

    Both chains had the same noise, so that their errors cancel and the difference shows where guidance was at
    work. There the input is changed by that difference, or covered and redrawn without guidance: the first is
    how something is added, the second how it is removed. The classifier tells which it was.
    """
    added = edit.x_cf - null.x_cf
    lost = ~added.isfinite().flatten(1).all(1).view(-1, 1, 1, 1)  # one of the chains has diverged
    added = torch.where(lost, 0.0, added)
    mask = _moved(added, settings) & edit.mask
    changed = torch.where(mask, (problem.x + added).clamp(-1, 1), problem.x)
    chain = chain_for_inpainting(problem.counted, settings.inpaint_chain, settings.inpaint_steps)
    start, noise = filled(problem.x, mask), problem.part("inpaint")
    redrawn = inpaint(chain, start, problem.x, mask, settings.inpaint_steps, noise)
    better = _odds(problem, redrawn) > _odds(problem, changed)
    x_cf = torch.where(better.view(-1, 1, 1, 1), redrawn, changed)
    return Edit(torch.where(lost, float("nan"), x_cf), mask)


def _moved(added: Float[Tensor, "b c h w"], settings: GuidedSettings) -> Bool[Tensor, "b 1 h w"]:
    """Mark where guidance was at work; nowhere in an image that it did not move at all."""
    strength = difference_map(torch.zeros_like(added), _blurred(added))
    mask = dilate(
        grown(strength, settings.threshold, FAINT * settings.threshold).to(added), settings.dilation
    )
    return (mask > 0) & (added != 0).flatten(1).any(1).view(-1, 1, 1, 1)


def _blurred(image: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
    return avg_pool2d(image, 3, 1, 1, count_include_pad=False)


def _odds(problem: Problem, image: Float[Tensor, "b c h w"]) -> Float[Tensor, " b"]:
    logits = problem.classifier.logits(image.clamp(-1, 1), torch.zeros_like(problem.target))
    return log_odds(logits, problem.target)


def repaint(problem: Problem, settings: GuidedSettings, edit: Edit) -> Edit:
    """Redraw what differs from the input with a few unguided levels, and paste the input around it."""
    chain = chain_for_inpainting(problem.counted, settings.inpaint_chain, settings.inpaint_steps)
    mask = difference_mask(problem.x, edit.x_cf, settings.inpaint_dilation, settings.threshold) & edit.mask
    x_cf = inpaint(chain, edit.x_cf, problem.x, mask, settings.inpaint_steps, problem.part("inpaint"))
    return Edit(x_cf, mask)
