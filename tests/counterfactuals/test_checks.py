"""What a user may hand over by mistake, and the sentence for it."""

import numpy as np
import pytest
import torch

from fastdime.counterfactuals import checks
from fastdime.counterfactuals.methods import check_chain, settings_for
from fastdime.counterfactuals.targets import choose_target
from fastdime.errors import InputError
from support import tiny


def test_bare_networks() -> None:
    with pytest.raises(InputError, match=r"use fastdime\.load_denoiser"):
        checks.check_models(torch.nn.Identity(), tiny.classifier())
    with pytest.raises(InputError, match=r"use fastdime\.load_classifier"):
        checks.check_models(tiny.denoiser(), torch.nn.Identity())


def test_images_of_other_kinds() -> None:
    for x in (np.zeros((1, 1, 8, 8)), [0.0], torch.zeros(1, 1, 8, 8, dtype=torch.float16)):
        with pytest.raises(InputError, match="images: expected float32 tensor"):
            checks.check_images(x, tiny.denoiser())


@pytest.mark.parametrize("seed", [-1, 1.5, True, "0", None])
def test_seeds(seed: object) -> None:
    with pytest.raises(InputError, match="seed: expected a whole number"):
        checks.check_seed(seed)


@pytest.mark.parametrize("record", [3, [-1], [6], [0.5], None])
def test_records(record: object) -> None:
    with pytest.raises(InputError, match="a list of steps from 0 to 5"):
        checks.check_record(record, tiny.small("fastdime"))


def test_a_region_that_is_a_list() -> None:
    with pytest.raises(InputError, match="region: expected booleans of shape"):
        checks.check_region([[True]], tiny.images())


def test_a_name_twice() -> None:
    with pytest.raises(InputError, match="got 'a' more than once"):
        checks.check_names(["a", "b", "a"], 3)


def test_a_target_that_is_none() -> None:
    before = torch.tensor([[0.9, 0.1]])
    with pytest.raises(InputError, match="one class for each of 1 images"):
        choose_target(torch.tensor([float("nan")]), before)


@pytest.mark.parametrize("method", ["fastdime", "ace-l1", "fastdime-repaint", "fastdime-null"])
def test_a_chain_that_is_too_short_is_told_before_the_work(method: str) -> None:
    short = tiny.denoiser().respaced(30)
    with pytest.raises(InputError, match="steps"):
        check_chain(short, settings_for(method))
    check_chain(short, tiny.small(method))
