"""Who judges and what measures: opened from a request, with the reason for each metric that cannot be had."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fastdime.errors import DataError, FastdimeError, InputError, expected, unknown
from fastdime.features.registry import open_features
from fastdime.metrics.lpips import load_lpips
from fastdime.pipeline.pairs import Batch, Pairs
from fastdime.scoring.attribute_meters import open_attributes
from fastdime.scoring.catalogue import TRUTH, chosen
from fastdime.scoring.feature_meters import SETS, Identity, Realism
from fastdime.scoring.labels import Labels, needed
from fastdime.scoring.meters import (
    BY_SHORTCUT,
    CLOSENESS,
    VALIDITY,
    ByShortcut,
    Closeness,
    Meter,
    Pasting,
    Perceptual,
    Validity,
)
from fastdime.scoring.phantoms import PhantomFolder, find_phantom, open_oracle
from fastdime.scoring.request import ScoreRequest
from fastdime.scoring.truth_meters import MEASURED, ORACLES, PIXELS, ExactPixels, Measured, Oracle
from fastdime.scoring.verdicts import (
    RECORDED,
    Asked,
    Judge,
    Recorded,
    Verdict,
    classifier_of,
    open_classifier,
)


@dataclass
class Equipment:
    """What a score is made with.

    Attributes:
        wanted: the metrics, in order.
        reasons: why a metric cannot be had.
        classes: the true class of each pair, if known.
    """

    wanted: list[str]
    judge: Judge | None = None
    meters: list[Meter] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    classes: NDArray[np.float64] | None = None

    def judged(self, batch: Batch) -> Verdict | None:
        """Ask the judge, if there is one."""
        return None if self.judge is None else self.judge(batch)

    def add(self, names: Iterable[str], make: Callable[[], Meter]) -> None:
        """Open a meter if one of its metrics is wanted, or note why it cannot be opened."""
        mine = [name for name in names if name in self.wanted]
        if not mine:
            return
        try:
            meter = make()
        except FastdimeError as error:
            self.reasons |= dict.fromkeys(mine, str(error))
            return
        self.meters.append(meter)


def equip(pairs: Pairs, request: ScoreRequest, labels: Labels | None) -> Equipment:
    """Open everything that the wanted metrics need.

    Raises:
        FastdimeError: the request is wrong; a network that is not there is a reason instead.
    """
    _check_used(pairs, request)
    phantom = find_phantom(pairs, request)
    found = Equipment(chosen(request.metrics, _called_for(request, phantom)), _judge(pairs, request, labels))
    if labels is not None and request.label is not None:
        found.classes = labels.column(request.label)
    found.add(VALIDITY, lambda: Validity(_asked(found.judge).network))
    found.add(BY_SHORTCUT, lambda: _by_shortcut(found.judge, request, labels))
    found.add(["cout"], lambda: _pasting(found.judge, pairs, request))
    for name in CLOSENESS:
        found.add([name], partial(Closeness, name))
    found.add(["lpips"], lambda: _lpips(request))
    found.add([*SETS, "fs"], lambda: _realism(request))
    found.add(["fva"], lambda: _identity(request))
    found.add(["mnac", "cd"], lambda: open_attributes(request, labels, phantom))
    for names, make in _exact(phantom if phantom is not None and phantom.comparable else None, pairs):
        found.add(names, make)
    return found


def _exact(
    phantom: PhantomFolder | None, pairs: Pairs
) -> Iterator[tuple[Iterable[str], Callable[[], Meter]]]:
    """Yield the meters that know the exact answer, and what they give."""
    if phantom is None:
        yield TRUTH, _no_truth
        return
    yield PIXELS, partial(ExactPixels, phantom)
    yield MEASURED, partial(Measured, phantom)
    for oracle, names in ORACLES.items():
        yield names, partial(_oracle, phantom, oracle, pairs)


def _no_truth() -> Meter:
    wanted = "a run that switches the shortcut of a phantom set, or --truth FOLDER"
    raise InputError(expected("exact counterfactuals", wanted, "none", "see fastdime data phantom"))


def _oracle(phantom: PhantomFolder, name: str, pairs: Pairs) -> Meter:
    oracle, network = open_oracle(phantom.name, name, pairs)
    return Oracle(phantom, oracle, name, network)


def _called_for(request: ScoreRequest, phantom: PhantomFolder | None) -> Iterator[str]:
    """Yield the metrics beyond the usual ones that the request gives the means for."""
    if request.shortcut is not None:
        yield from ("md_s1", "md_s0")
    if request.lpips is not None:
        yield "lpips"
    if request.face is not None:
        yield "fva"
    if request.attributes is not None or (phantom is not None and phantom.has_attributes):
        yield from ("mnac", "cd")
    if phantom is not None and phantom.comparable:
        yield from TRUTH


def _check_used(pairs: Pairs, request: ScoreRequest) -> None:
    """Refuse options that would have no effect."""
    if pairs.records and request.target != "flip":
        raise InputError(
            expected("--target", "none, for a run has its targets", request.target, "leave it out")
        )
    if request.labels is None:
        for option in ("label", "shortcut"):
            if (column := getattr(request, option)) is not None:
                where = f"--{option} {column}"
                raise InputError(expected(where, "a table with that column", "none", "give --labels"))


def _judge(pairs: Pairs, request: ScoreRequest, labels: Labels | None) -> Judge | None:
    if request.classifier is not None:
        classifier, targets = open_classifier(request.classifier), _targets(pairs, request, labels)
        return Asked(classifier, request.classifier, targets, request.device)
    if not pairs.records:
        return None
    for record in pairs.records:
        if missing := [name for name in RECORDED if name not in record]:
            where = f"record {record['id']!r} of {pairs.source}"
            raise DataError(expected(where, f"a field {missing[0]!r}", "none", "make the run again"))
    return Recorded(pairs.records, binary=pairs.config.get("classes", 2) == 2)


def _targets(pairs: Pairs, request: ScoreRequest, labels: Labels | None) -> list[int] | None:
    """Return the class wanted for each pair; None means the other one of two."""
    if pairs.records:
        return [record["target"] for record in pairs.records]
    kind, _, column = request.target.partition(":")
    if request.target.isdecimal():
        return [int(request.target)] * len(pairs)
    if kind == "column" and column:
        wanted = needed(labels, column, "--target column:", "targets")
        if not np.isin(wanted, np.arange(wanted.max(initial=0) + 1)).all():
            raise InputError(expected(f"column {column!r}", "a class for each pair", "other values"))
        return [int(value) for value in wanted]
    if request.target != "flip":
        raise InputError(unknown("--target", request.target, ["flip", "column:COLUMN", "a class number"]))
    return None


def _asked(judge: Judge | None) -> Judge:
    if judge is None:
        raise InputError(expected("classifier", "one to ask", "none", "give --classifier"))
    return judge


def _by_shortcut(judge: Judge | None, request: ScoreRequest, labels: Labels | None) -> ByShortcut:
    shows = needed(labels, request.shortcut, "--shortcut ", "md by shortcut", zero_or_one=True)
    return ByShortcut(_asked(judge).network, shows)


def _pasting(judge: Judge | None, pairs: Pairs, request: ScoreRequest) -> Pasting:
    known = _asked(judge)
    if isinstance(known, Asked):
        return Pasting(known)
    classifier, name = classifier_of(pairs)
    return Pasting(Asked(classifier, name, device=request.device))


def _lpips(request: ScoreRequest) -> Perceptual:
    if request.lpips is None:
        wanted = "files with its weights"
        raise InputError(expected("lpips", wanted, "none", "give --lpips TRUNK,LINEAR"))
    trunk, linear = request.lpips
    return Perceptual(load_lpips(trunk, linear).to(request.device), f"lpips {trunk.stem}")


def _realism(request: ScoreRequest) -> Realism:
    return Realism(open_features(request.features, request.device), request.seed, request.repeats)


def _identity(request: ScoreRequest) -> Identity:
    return Identity(open_features(request.face or "dlib-face", request.device))
