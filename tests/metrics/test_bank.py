from pathlib import Path

import numpy as np
import pytest
import torch

from fastdime.errors import InputError
from fastdime.metrics.bank import FeatureBank


def test_rows_come_back_in_order_and_as_float32() -> None:
    with FeatureBank() as bank:
        bank.update(np.arange(6.0).reshape(2, 3))
        bank.update(torch.arange(6.0, 9.0).reshape(1, 3))
        assert len(bank) == 3
        assert isinstance(bank.array(), np.memmap)
        assert bank.array().dtype == np.float32
        assert bank.array().tolist() == np.arange(9.0).reshape(3, 3).tolist()


def test_merged_banks_equal_one_pass() -> None:
    rows = np.random.default_rng(0).normal(size=(2500, 3)).astype(np.float32)
    with FeatureBank() as one, FeatureBank() as other, FeatureBank() as whole:
        one.update(rows[:100])
        other.update(rows[100:])
        one.merge(other)
        whole.update(rows)
        assert np.array_equal(one.array(), whole.array())
        assert len(other) == 2400


def test_an_array_does_not_see_what_is_added_later() -> None:
    with FeatureBank() as bank:
        bank.update(np.ones((2, 2)))
        before = bank.array()
        bank.update(np.zeros((2, 2)))
        assert before.tolist() == [[1, 1], [1, 1]]
        assert bank.array().shape == (4, 2)


def test_an_empty_bank_has_no_rows() -> None:
    with FeatureBank() as bank, FeatureBank() as other:
        bank.update(np.empty((0, 4)))
        bank.merge(other)
        assert bank.array().shape == (0, 0)
        bank.update(np.ones((1, 2)))
        assert bank.array().shape == (1, 2)


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    with FeatureBank(str(tmp_path)) as bank:
        bank.update(np.ones((10, 2)))
        kept = bank.array()
    assert not list(tmp_path.iterdir())
    assert kept.sum() == 20  # what was handed out stays readable


def test_arrays_cannot_be_written_to() -> None:
    with FeatureBank() as bank:
        bank.update(np.ones((1, 2)))
        with pytest.raises(ValueError, match="read-only"):
            bank.array()[0, 0] = 2


def test_rows_of_another_width_are_refused() -> None:
    with FeatureBank() as bank:
        bank.update(np.ones((1, 2)))
        with pytest.raises(InputError, match="features of the bank: expected 2 columns, as before, got 3"):
            bank.update(np.ones((1, 3)))
        with pytest.raises(InputError, match="features of the bank: expected floats"):
            bank.update(np.ones(2))
        assert len(bank) == 1
