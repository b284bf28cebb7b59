"""A bundle: all that explaining needs, in one folder.

bundle.json     a `BundleInfo`
denoiser/       a diffusers folder
classifier/     classifier.json and model.safetensors
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from torch import nn

from fastdime.classifiers.load import load_classifier, save_classifier
from fastdime.classifiers.spec import ClassifierSpec
from fastdime.classifiers.wrapper import ImageClassifier
from fastdime.configs import checked, read_json
from fastdime.diffusion.checkpoints import load_denoiser
from fastdime.diffusion.denoiser import Denoiser
from fastdime.diffusion.folders import write_folder
from fastdime.errors import CheckpointError, FastdimeError, InputError, expected
from fastdime.files import new_folder

FORMAT: Final = 1
INFO_FILE, DENOISER, CLASSIFIER = "bundle.json", "denoiser", "classifier"


class BundleInfo(BaseModel):
    """What bundle.json says.

    Attributes:
        size, channels, bits: of the images that the bundle was made for.
        classes: names, in the order of the classifier's classes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = FORMAT
    name: str = Field(min_length=1)
    size: int = Field(ge=1)
    channels: Literal[1, 3]
    bits: Literal[8, 16] = 8
    description: str = ""
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bundle:
    """A denoiser and the classifier to explain, made for the same images."""

    denoiser: Denoiser
    classifier: ImageClassifier
    info: BundleInfo

    @property
    def name(self) -> str:
        """What the bundle is called."""
        return self.info.name

    @property
    def size(self) -> int:
        """Height and width of its images."""
        return self.info.size

    @property
    def channels(self) -> int:
        """Channels of its images."""
        return self.info.channels


def load_bundle(path: str | Path) -> Bundle:
    """Open a bundle.

    Raises:
        CheckpointError: a part is missing, damaged, or made for other images than the bundle says.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise CheckpointError(
            expected(f"bundle {folder}", "a folder", "nothing of that name", "check the path")
        )
    for part in (INFO_FILE, DENOISER, CLASSIFIER):
        if not (folder / part).exists():
            wanted = f"{INFO_FILE}, {DENOISER}/ and {CLASSIFIER}/"
            raise CheckpointError(expected(f"bundle {folder}", wanted, f"no {part}", "copy the whole folder"))
    info = _read_info(folder / INFO_FILE)
    denoiser = load_denoiser(folder / DENOISER)
    _check_fit(denoiser, info, f"bundle {folder}", CheckpointError)
    return Bundle(denoiser, load_classifier(folder / CLASSIFIER), info)


def save_bundle(
    path: str | Path, info: BundleInfo, denoiser: Denoiser, classifier: nn.Module, spec: ClassifierSpec
) -> None:
    """Write a new folder that `load_bundle` opens; it is whole or not there at all.

    Args:
        denoiser: its network must be a diffusers `UNet2DModel`, with the whole chain.
        classifier: the network, built as the architecture that `spec` names.
    """
    _check_fit(denoiser, info, f"bundle {info.name}", InputError)
    with new_folder(Path(path)) as folder:
        write_folder(denoiser, folder / DENOISER)
        save_classifier(folder / CLASSIFIER, classifier, spec)
        (folder / INFO_FILE).write_text(f"{info.model_dump_json(indent=2)}\n", encoding="utf-8")


def _read_info(path: Path) -> BundleInfo:
    content = read_json(path)
    # Before anything else: another version may have other fields.
    if content.get("format") != FORMAT:
        remedy = "use the version of fastdime that made it"
        raise CheckpointError(expected(f"{path}: format", FORMAT, repr(content.get("format")), remedy))
    return checked(BundleInfo, content, str(path), CheckpointError)


def _check_fit(denoiser: Denoiser, info: BundleInfo, where: str, kind: type[FastdimeError]) -> None:
    for name in ("channels", "size"):
        told, wanted = getattr(denoiser, name), getattr(info, name)
        if told not in (None, wanted):
            remedy = f"correct {INFO_FILE} or take another denoiser"
            raise kind(expected(where, f"a denoiser with {name} {wanted}", told, remedy))
