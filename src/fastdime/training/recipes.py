"""Recipes: what is trained how. `small` is ours; the others are those of the published programs.

What the published programs got wrong is not repeated: losses are taken on logits, never on probabilities, the
rarer class is weighed up by its true share, the best checkpoint is kept, and validation images are not test
images. ImageNet weights, with which the published task networks begin, are not shipped: `--from` takes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from fastdime.diffusion.denoiser import Prediction
from fastdime.training.augment import Augment
from fastdime.training.shapes import GuidedShape, MedicalShape, Shape, UNetShape

Kind = Literal["denoiser", "guide", "task"]
SMALL = UNetShape()
IMAGENET = "The published one begins with ImageNet weights: give them with --from."


@dataclass(frozen=True)
class DenoiserRecipe:
    """How a denoiser is trained.

    Attributes:
        settings: fields of TrainSettings.
        epochs: length, if it is told by the number of images; validated once an epoch.
        size: of the images, unless the user says otherwise; None = as they are.
        note: what is said about it.
    """

    settings: Mapping[str, Any]
    shape: Shape = SMALL
    chain: int = 1000
    prediction: Prediction = "epsilon"
    flip: bool = False
    epochs: int | None = None
    size: int | None = None
    note: str = ""


@dataclass(frozen=True)
class ClassifierRecipe:
    """How a guide or a task model is trained; fields as in DenoiserRecipe and Classifying."""

    settings: Mapping[str, Any]
    architecture: str = "small-cnn"
    augment: Augment = field(default_factory=Augment)
    smoothing: float = 0.0
    balance: bool = True
    levels: int = 1
    epochs: int | None = None
    size: int | None = None
    note: str = ""


_PLAIN = {
    "warmup": 0,
    "decay_to": 1.0,
    "clip": None,
}  # as the published programs: one rate from first to last

DENOISERS: Mapping[str, DenoiserRecipe] = MappingProxyType(
    {
        "small": DenoiserRecipe(
            {"steps": 16_000, "batch_size": 32, "learning_rate": 8e-4, "ema": 0.9995},
            prediction="v",
            note="A U-Net on 4 x 4 patches, for images of 32 to 128 pixels and a machine without a GPU.",
        ),
        "celeba": DenoiserRecipe(
            {
                "steps": 300_000,
                "batch_size": 15,
                "learning_rate": 1e-4,
                "weight_decay": 0.05,
                "ema": 0.9999,
                "validate_every": 5_000,
                **_PLAIN,
            },
            GuidedShape(),
            chain=500,
            flip=True,
            size=128,
            note="DiME's CelebA model. Published: 4 GPUs with 15 images each, in fp16, until somebody stops "
            "it; the number of updates is ours.",
        ),
        "medical": DenoiserRecipe(
            {"batch_size": 16, "learning_rate": 2e-4, "weight_decay": 0.01, "ema": 0.0, **_PLAIN},
            MedicalShape(),
            epochs=500,
            size=224,
            note="The U-Net of the X-ray and skin studies. Published: in fp16, without averaged weights, and "
            "never trained at the lowest level, which here it is.",
        ),
    }
)

GUIDES: Mapping[str, ClassifierRecipe] = MappingProxyType(
    {
        "small": ClassifierRecipe(
            {
                "steps": 2_000,
                "batch_size": 32,
                "learning_rate": 2e-3,
                "warmup": 100,
                "ema": 0.99,
                "validate_every": 200,
            },
            augment=Augment(shift=2, erase=0.75, noise=0.25, blur=0.2),
            smoothing=0.01,
            note="Parts are covered, noise is added: a guide that can do with any part of the shortcut looks "
            "at all of it.",
        ),
        "celeba": ClassifierRecipe(
            {"batch_size": 100, "learning_rate": 1e-4, "weight_decay": 0.05, **_PLAIN},
            architecture="densenet121",
            augment=Augment(flip=True, erase=0.75, noise=0.25, blur=0.2),
            smoothing=0.01,
            epochs=20,
            size=128,
            note="The network of the published guide (of DiVE, with 40 attributes), which was published "
            f"without its training: rate, epochs and changes of images are ours. {IMAGENET}",
        ),
        "medical": ClassifierRecipe(
            {
                "batch_size": 16,
                "learning_rate": 1e-6,
                "weight_decay": 0.05,
                "optimizer": "adam",
                "patience": 10,
                "ema": 0.0,
                **_PLAIN,
            },
            architecture="encoder-unet",
            levels=400,
            epochs=50,
            size=224,
            note="The published one is trained at noise level 0 only and then asked at up to 400; here it is "
            "told all of them. For diseased images only, as in the paper, add --where task=1.",
        ),
    }
)

TASKS: Mapping[str, ClassifierRecipe] = MappingProxyType(
    {
        "small": ClassifierRecipe(
            {
                "steps": 2_000,
                "batch_size": 32,
                "learning_rate": 1e-3,
                "warmup": 100,
                "ema": 0.99,
                "validate_every": 100,
                "patience": 8,
            },
            augment=Augment(shift=2),
        ),
        "celeba": ClassifierRecipe(
            {
                "batch_size": 100,
                "learning_rate": 1e-5,
                "weight_decay": 0.05,
                "optimizer": "adam",
                "ema": 0.0,
                **_PLAIN,
            },
            architecture="resnet18",
            augment=Augment(flip=True, shift=3),
            balance=False,
            epochs=20,
            size=128,
            note=f"Shifts stand for the published random crops. {IMAGENET}",
        ),
        "medical": ClassifierRecipe(
            {
                "batch_size": 8,
                "learning_rate": 1e-6,
                "weight_decay": 0.01,
                "optimizer": "adam",
                "patience": 10,
                "ema": 0.0,
                **_PLAIN,
            },
            architecture="resnet18",
            balance=False,
            epochs=50,
            size=224,
            note="Published: ResNet-18 for CheXpert with 20 epochs, ResNet-50 (--architecture resnet50) for "
            f"NIH and ISIC with 50. {IMAGENET}",
        ),
    }
)
RECIPES = tuple(DENOISERS)
