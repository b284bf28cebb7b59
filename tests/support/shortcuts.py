"""A tiny world with a shortcut: gray images of 16 pixels, some with a bright square, and a bundle for it.

The denoiser changes nothing and the guide is made by hand, so nothing is trained and every edit takes little.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fastdime.audit.audit import Found, audit
from fastdime.audit.request import AuditRequest
from fastdime.bundles import BundleInfo, save_bundle
from fastdime.classifiers.load import save_classifier
from fastdime.classifiers.networks import small_resnet
from fastdime.classifiers.spec import ClassifierSpec
from fastdime.classifiers.wrapper import ImageClassifier
from fastdime.data.io import write_image
from fastdime.diffusion.denoiser import Denoiser, as_denoiser
from fastdime.diffusion.schedule import linear
from fastdime.terminal import silence_of
from fastdime.validation.task_models import ModelRecipe, model_recipe

SIZE = 16
SQUARE = (slice(6, 11), slice(6, 11))  # where the shortcut is
SPOT = (slice(13, 16), slice(13, 16))  # where the task is; no edit ever comes here
SPEC = ClassifierSpec(architecture="small-resnet", channels=1)
QUICK = {
    "steps": 200,
    "tau": 3,
    "scales": [1500.0, 4000.0],
    "l1": 0.0,
    "dilation": 1,
    "inpaint_steps": 2,
}


N = 16


@dataclass(frozen=True)
class World:
    """Where the table of images and the bundle are."""

    table: Path
    bundle: Path

    def request(self, **changes: Any) -> AuditRequest:
        """What most tests ask for."""
        told: dict[str, Any] = {"data": self.table, "shortcuts": {"mark": str(self.bundle)}, "controls": 4}
        return AuditRequest(**told | changes)

    def audit(self, out: Path, models: Mapping[str, object] | None = None, **changes: Any) -> Found:
        """Audit the two models, or others; `changes` are those of the request."""
        asked = {"leaning": leaning, "blind": blind} if models is None else models
        return audit(self.request(**changes), asked, out, silence_of)


def make_world(folder: Path, n: int = N) -> World:
    """Write images and bundle."""
    return World(write_images(folder / "images", n), write_bundle(folder / "bundle"))


def quick_recipe(name: str = "small") -> ModelRecipe:
    """A task model that learns next to nothing, in no time."""
    recipe = model_recipe(name)
    few = {"steps": 3, "batch_size": 4, "warmup": 1, "validate_every": 3}
    return replace(recipe, settings={**recipe.settings, **few}, epochs=None)


class Killed(Exception):
    """Stands for a signal."""


def killing(after: int) -> Callable[[str], Any]:
    """Return a display of progress that kills the audit at some report."""
    left = [after]

    @contextmanager
    def show(what: str) -> Iterator[Callable[[float, int], None]]:
        def progress(done: float, of: int) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Killed

        yield progress

    return show


def leaning(x: Tensor) -> Tensor:
    """A model that looks at the square and nothing else."""
    return 3 * x[:, :1, *SQUARE].mean((1, 2, 3))


def blind(x: Tensor) -> Tensor:
    """A model that looks where no edit changes anything."""
    return 3 * x[:, :1, *SPOT].mean((1, 2, 3))


def leaning_model() -> ImageClassifier:
    """The first one, for the command line."""
    return ImageClassifier(leaning)


def blind_model() -> ImageClassifier:
    """The second one."""
    return ImageClassifier(blind)


def draw(i: int, shortcut: int, task: int) -> Tensor:
    """Draw an image; the same number is the same subject."""
    generator = torch.Generator().manual_seed(i)
    x = -0.4 + 0.05 * torch.randn(1, SIZE, SIZE, generator=generator)
    x += 0.1 * torch.randn(1, generator=generator)
    x[:, *SQUARE] += 0.8 * shortcut
    x[:, *SPOT] += 0.4 * task
    return x.clamp(-1, 1)


def write_images(folder: Path, n: int = N, labels: Sequence[str] | None = None) -> Path:
    """Write images and their table: every second has the shortcut, two of four the task, a patient has two.

    Args:
        labels: cells of the column of the shortcut, if they are not to say what the images show.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["id,path,mark,other,sick,patient,site"]
    for i in range(n):
        shortcut, task = i % 2, i // 2 % 2
        write_image(folder / f"{i}.png", draw(i, shortcut, task), durable=False)
        label = str(shortcut) if labels is None else labels[i]
        lines.append(f"image-{i},{i}.png,{label},{task},{task},p{i // 2},{'north' if i % 3 else 'south'}")
    table = folder / "table.csv"
    table.write_text("\n".join(lines) + "\n", encoding="utf8")
    return table


def write_bundle(folder: Path, oracles: Sequence[str] = ("shortcut", "task")) -> Path:
    """Write the bundle; `oracles` are other classifiers of the square."""
    info = BundleInfo(
        name="squares",
        size=SIZE,
        channels=1,
        classes=("without", "with"),
        settings={"fastdime-null": QUICK, "fastdime": QUICK},
    )
    save_bundle(folder, info, _denoiser(), _square_finder(40.0), SPEC)
    for name in oracles:
        place = folder / "oracles" / name
        place.parent.mkdir(exist_ok=True)
        save_classifier(place, _square_finder(25.0), SPEC)
    return folder


def _denoiser() -> Denoiser:
    from diffusers import UNet2DModel

    unet = UNet2DModel(
        sample_size=SIZE,
        in_channels=1,
        out_channels=1,
        block_out_channels=(4, 4),
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
        layers_per_block=1,
        norm_num_groups=4,
        add_attention=False,
    )
    for weight in unet.conv_out.parameters():
        nn.init.zeros_(weight)  # it sees no noise anywhere
    return as_denoiser(unet.eval(), linear(1000), variance="fixed_small")


def _square_finder(gain: float) -> nn.Module:
    """Make a network that takes the mean brightness of four places, one of which is the square."""
    network = small_resnet(1, 1, 1).eval()
    for weight in network.parameters():
        nn.init.zeros_(weight)
    nn.init.constant_(network.stem[0].weight, 1 / 25)
    nn.init.ones_(network.stem[1].weight)
    nn.init.ones_(network.stem[1].bias)  # so that nothing dark is cut off
    for block in (network.block2, network.block3):
        nn.init.ones_(block.past[0].weight[0, 0])
        nn.init.ones_(block.past[1].weight)
    network.head.weight.data[0, 0] = gain
    network.head.bias.data[0] = -0.844 * gain
    return network
