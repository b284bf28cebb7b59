"""A bundle: all that explaining needs, in one folder.

bundle.json     a `BundleInfo`
denoiser/       a diffusers folder
classifier/     classifier.json and model.safetensors
oracles/NAME/   other classifiers, which judge and have no part in explaining
README.md       the model card
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from torch import nn

from fastdime.classifiers.load import load_classifier, save_classifier
from fastdime.classifiers.spec import ClassifierSpec
from fastdime.classifiers.wrapper import ImageClassifier
from fastdime.configs import checked, read_json
from fastdime.diffusion.checkpoints import load_denoiser
from fastdime.diffusion.denoiser import Denoiser
from fastdime.diffusion.folders import write_folder
from fastdime.errors import CheckpointError, FastdimeError, InputError, expected, unknown
from fastdime.files import new_folder
from fastdime.weights import halve

FORMAT: Final = 1
INFO_FILE, DENOISER, CLASSIFIER, ORACLES = "bundle.json", "denoiser", "classifier", "oracles"
SHIPPED = Path(__file__).parent / "shipped"  # the bundles that come with the package


class BundleInfo(BaseModel):
    """What bundle.json says.

    Attributes:
        size, channels, bits: of the images that the bundle was made for.
        classes: names, in the order of the classifier's classes.
        settings: what a method needs changed to work well here, by the name of the method.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = FORMAT
    name: str = Field(min_length=1)
    size: int = Field(ge=1)
    channels: Literal[1, 3]
    bits: Literal[8, 16] = 8
    description: str = ""
    classes: tuple[str, ...] = ()
    settings: dict[str, dict[str, JsonValue]] = {}


@dataclass(frozen=True)
class Bundle:
    """A denoiser and the classifier to explain, made for the same images."""

    denoiser: Denoiser
    classifier: ImageClassifier
    info: BundleInfo
    folder: Path

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

    @property
    def oracles(self) -> list[str]:
        """Names of its classifiers that judge and have no part in explaining."""
        return sorted(place.name for place in (self.folder / ORACLES).glob("*/"))

    def oracle(self, name: str) -> ImageClassifier:
        """Open one of its oracles."""
        if name not in self.oracles:
            raise InputError(unknown(f"oracle of bundle {self.name}", name, self.oracles))
        return load_classifier(self.folder / ORACLES / name)


def shipped() -> list[str]:
    """Return the names of the bundles that come with the package."""
    return sorted(place.parent.name for place in SHIPPED.glob(f"*/{INFO_FILE}"))


def load_bundle(source: str | Path) -> Bundle:
    """Open a bundle: a folder, or the name of one that comes with the package.

    Raises:
        CheckpointError: a part is missing, damaged, or made for other images than the bundle says.
    """
    folder = _folder(source)
    for part in (INFO_FILE, DENOISER, CLASSIFIER):
        if not (folder / part).exists():
            wanted = f"{INFO_FILE}, {DENOISER}/ and {CLASSIFIER}/"
            raise CheckpointError(expected(f"bundle {folder}", wanted, f"no {part}", "copy the whole folder"))
    info = _read_info(folder / INFO_FILE)
    denoiser = load_denoiser(folder / DENOISER)
    _check_fit(denoiser, info, f"bundle {folder}", CheckpointError)
    return Bundle(denoiser, load_classifier(folder / CLASSIFIER), info, folder)


def load_info(source: str | Path) -> BundleInfo:
    """Read what a bundle says about itself, without its weights."""
    return _read_info(_folder(source) / INFO_FILE)


def part_of(source: str, part: str) -> str | Path:
    """Return where the denoiser or the classifier of a bundle or of a training is; else the source itself."""
    folder = _place(source)
    return folder / part if (folder / part).is_dir() else source


def _place(source: str | Path) -> Path:
    """Return a folder, or that of a bundle that comes with the package."""
    named = not Path(source).is_dir() and str(source) in shipped()
    return SHIPPED / str(source) if named else Path(source)


def _folder(source: str | Path) -> Path:
    if (folder := _place(source)).is_dir():
        return folder
    wanted = f"a folder, or one that comes with fastdime ({', '.join(shipped())})"
    raise CheckpointError(expected(f"bundle {source}", wanted, "nothing of that name", "check the path"))


def pack_bundle(path: str | Path, info: BundleInfo, parts: Mapping[str, Path], *, half: bool = False) -> None:
    """Write a new bundle from what training wrote; it is whole or not there at all.

    Args:
        parts: where to take each part from, by its place in the bundle: denoiser, classifier, oracles/NAME,
            README.md.
        half: keep 16 bits of each weight, for half the size.
    """
    with new_folder(Path(path)) as folder:
        for name, source in parts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            _copy(source, folder / name)
        _write_info(folder, info)
        for file in folder.rglob("*.safetensors") if half else ():
            halve(file)
        bundle = load_bundle(folder)  # what does not open is refused here, not later
        _check_classes(info, bundle.classifier)


def _copy(source: Path, place: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, place)
    elif source.is_file():
        shutil.copy(source, place)
    else:
        raise InputError(
            expected(str(source), "a folder or a file", "nothing of that name", "check the path")
        )


def save_bundle(
    path: str | Path, info: BundleInfo, denoiser: Denoiser, classifier: nn.Module, spec: ClassifierSpec
) -> None:
    """Write a new folder that `load_bundle` opens; it is whole or not there at all.

    Args:
        denoiser: its network must be a diffusers `UNet2DModel`, with the whole chain.
        classifier: the network, built as the architecture that `spec` names.
    """
    _check_fit(denoiser, info, f"bundle {info.name}", InputError)
    _check_classes(info, spec.wrap(classifier))
    with new_folder(Path(path)) as folder:
        write_folder(denoiser, folder / DENOISER)
        save_classifier(folder / CLASSIFIER, classifier, spec)
        _write_info(folder, info)


def _check_classes(info: BundleInfo, classifier: ImageClassifier) -> None:
    """Refuse names that are not one for each class; there may be none at all."""
    if not info.classes:
        return
    count = 2  # with or without
    if classifier.kind == "multiclass":
        blank = torch.zeros(1, info.channels, info.size, info.size)
        with torch.no_grad():
            count = classifier.logits(blank, torch.zeros(1, dtype=torch.int64)).shape[1]
    if len(info.classes) != count:
        got = f"{len(info.classes)} ({', '.join(info.classes)})"
        remedy = "give one --classes name for each class, or none"
        raise InputError(expected(f"classes of bundle {info.name}", f"{count} names", got, remedy))


def _write_info(folder: Path, info: BundleInfo) -> None:
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
