"""ACE: attack the classifier through the denoiser, then redraw what changed (Jeanneret et al., 2023)."""

import torch
from jaxtyping import Float
from torch import Tensor

from fastdime.counterfactuals.guidance import class_gradient, l1_gradient
from fastdime.counterfactuals.loop import Edit, chain_for_inpainting
from fastdime.counterfactuals.masks import difference_mask
from fastdime.counterfactuals.problem import Problem
from fastdime.counterfactuals.settings import AceSettings
from fastdime.counterfactuals.step import Event, Watch, ignore
from fastdime.diffusion import schedule as sch
from fastdime.diffusion.denoiser import Denoiser
from fastdime.diffusion.sampling import ancestral, inpaint
from fastdime.noise import Noise

HALF = 0.5  # distances and steps are on the [0, 1] scale; images here span 2


def purify(
    chain: Denoiser, image: Float[Tensor, "b c h w"], steps: int, noise: Noise
) -> Float[Tensor, "b c h w"]:
    """Noise an image a little and denoise it: what an attack adds without meaning does not survive."""
    x_t = sch.q_sample(chain.schedule, image, steps - 1, noise.draw(image, "start"))
    return ancestral(chain, x_t, range(steps - 1, -1, -1), noise)


def attack_gradient(
    problem: Problem, chain: Denoiser, settings: AceSettings, image: Float[Tensor, "b c h w"], noise: Noise
) -> tuple[Float[Tensor, "b c h w"], Float[Tensor, "b c h w"]]:
    """Gradient of the class loss through the whole filter, and the filtered image."""
    leaf = image.detach().requires_grad_()
    with torch.enable_grad():
        clean = purify(chain, leaf, settings.noise_steps, noise)
    time = torch.zeros_like(problem.target)
    gradient = class_gradient(problem, clean, time, settings.class_loss, wrt=leaf)
    return gradient / (len(image) if settings.reduction == "batch" else 1), clean.detach()


def distance_gradient(
    settings: AceSettings, image: Float[Tensor, "b c h w"], x: Float[Tensor, "b c h w"], iteration: int
) -> Float[Tensor, "b c h w"]:
    """Gradient of the L1 sum and of the L2 norm of each image, as it comes in over the iterations."""
    difference = image - x
    length = difference.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    unit = torch.where(length > 0, difference / length, 0.0)
    share = {
        "none": 1.0,
        "step": float(iteration > settings.iterations // 2),
        "linear": (iteration + 1) / settings.iterations,
    }[settings.distance_schedule]
    return share * HALF * (settings.l1 * l1_gradient(image, x) + settings.l2 * unit)


def attack_step(
    settings: AceSettings, image: Float[Tensor, "b c h w"], x: Float[Tensor, "b c h w"], gradient: Tensor
) -> Float[Tensor, "b c h w"]:
    """Move every pixel by one step against the sign of the gradient, within the bounds."""
    moved = image - settings.attack_step / HALF * gradient.sign()
    reach = settings.epsilon / HALF
    return moved.clamp(x - reach, x + reach).clamp(-1, 1)


def attack(
    problem: Problem, chain: Denoiser, settings: AceSettings, scale: float, watch: Watch = ignore
) -> Float[Tensor, "b c h w"]:
    """Run the whole attack; returns the pre-explanation."""
    image = problem.x
    for i in range(settings.iterations):
        before = image
        toward, clean = attack_gradient(problem, chain, settings, image, problem.part("attack", i))
        gradient = scale * toward + distance_gradient(settings, image, problem.x, i)
        image = attack_step(settings, image, problem.x, gradient)
        if problem.region is not None:
            image = torch.where(problem.region, image, problem.x)
        watch(Event(i, i, before, clean, problem.region, clean, toward, problem.region, image, clean))
    return image


def refine(problem: Problem, chain: Denoiser, settings: AceSettings, image: Float[Tensor, "b c h w"]) -> Edit:
    """Redraw the pre-explanation inside its difference mask; threshold 0 redraws everything."""
    mask = difference_mask(problem.x, image, settings.dilation, settings.threshold) & problem.allowed()
    x_cf = inpaint(chain, image, problem.x, mask, settings.noise_steps, problem.part("inpaint"))
    return Edit(x_cf.clamp(-1, 1), mask)


def ace(problem: Problem, settings: AceSettings, scale: float, watch: Watch = ignore) -> Edit:
    """Make one attempt."""
    chain = chain_for_inpainting(problem.counted, settings.steps, settings.noise_steps)
    return refine(problem, chain, settings, attack(problem, chain, settings, scale, watch))
