"""Minibatches from arrays."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.errors import ShapeError
from opscope.python_api.train.minibatches import Minibatches

ARRAYS = {"x": np.arange(10), "y": np.arange(10) * 2}


def rows(batches):
    return np.concatenate([batch["x"] for batch in batches]).tolist()


def test_in_order():
    data = Minibatches(ARRAYS, 4, shuffle=False)
    assert [len(batch["x"]) for batch in data] == [4, 4, 2]
    assert len(data) == 3
    assert rows(data) == list(range(10))


def test_orders_depend_on_seed_and_epoch_only():
    data = Minibatches(ARRAYS, 4, seed=1)
    assert sorted(rows(data(0))) == list(range(10))
    assert rows(data(3)) == rows(Minibatches(ARRAYS, 4, seed=1)(3))
    assert rows(data(0)) != rows(data(1))
    assert rows(data(0)) != rows(Minibatches(ARRAYS, 4, seed=2)(0))
    assert all(np.array_equal(batch["y"], batch["x"] * 2) for batch in data(0))


def test_drop_last():
    data = Minibatches(ARRAYS, 4, drop_last=True)
    assert [len(batch["x"]) for batch in data] == [4, 4]
    assert len(data) == 2


@pytest.mark.parametrize(
    ("arrays", "size", "options", "message"),
    [
        ({}, 4, {}, "0 arrays"),
        (ARRAYS, 0, {}, "of 0 rows"),
        ({"x": np.zeros(3), "y": np.zeros(4)}, 2, {}, "'x' 3, 'y' 4"),
        ({"x": np.float32(1)}, 2, {}, "'x' is a single number"),
        ({"x": np.zeros((0, 3))}, 2, {}, "0 rows make no minibatch"),
        (ARRAYS, 11, {"drop_last": True}, "10 rows make no minibatch of 11"),
    ],
)
def test_refused(arrays, size, options, message):
    with pytest.raises(ShapeError, match=message):
        Minibatches(arrays, size, **options)
