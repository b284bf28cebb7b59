"""Oracles: networks that judge counterfactuals of phantoms, and have no part in making them."""

from pathlib import Path
from typing import Final

from fastdime.classifiers.spec import ClassifierSpec
from fastdime.data.phantoms.phantom import phantom
from fastdime.experiments.oracle_examples import oracle_pictures
from fastdime.training.augment import Augment
from fastdime.training.classifying import Classifying
from fastdime.training.loop import Progress
from fastdime.training.pictures import split
from fastdime.training.run import Trained, train
from fastdime.training.settings import TrainSettings

ORACLES: Final = {
    "shortcut": "says whether any part of the shortcut shows",
    "complete": "says whether the whole shortcut shows",
    "task": "says what the task asks for, with and without the shortcut",
}
SUBJECTS: Final = {"shortcut": 4000, "complete": 4000, "task": 8000}
UPDATES: Final = {"shortcut": 1500, "complete": 1500, "task": 2000}
VALID_SHARE = 0.05
AUGMENT = Augment(shift=3, noise=0.1, blur=0.15)


def train_oracle(name: str, oracle: str, out: Path, seed: int, progress: Progress | None = None) -> Trained:
    """Train one oracle of a phantom from exact pairs of subjects of its own."""
    pictures = oracle_pictures(name, seed, SUBJECTS[oracle], oracle)
    training, validation = split(pictures, VALID_SHARE, seed)
    settings = TrainSettings(
        steps=UPDATES[oracle],
        batch_size=64,
        learning_rate=2e-3,
        warmup=100,
        seed=seed,
        validate_every=250,
        ema=0.99,
    )
    return train(Classifying(training, validation, judge_spec(name), AUGMENT), settings, out, progress)


def judge_spec(name: str) -> ClassifierSpec:
    """Return what networks that judge a phantom are: unlike every guide."""
    channels = phantom(name).study.channels
    return ClassifierSpec(architecture="small-resnet", arguments={"channels": channels}, channels=channels)
