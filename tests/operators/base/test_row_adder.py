"""Rows added by their numbers: equal to `add.at`, repeated and negative numbers included."""

from __future__ import annotations

from ctypes import CFUNCTYPE, c_int64, c_void_p
from typing import Any

import numpy as np
import pytest

from opscope.framework.fusion import team
from opscope.operators.base.row_adder import row_adder

pytestmark = pytest.mark.skipif(team.library() is None, reason="there is no native library")


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(7,), (4, 5), (40,)])
def test_as_add_at(shape: tuple[int, ...], dtype: Any, threads: int) -> None:
    rng = np.random.default_rng(0)
    out = rng.normal(size=(6, 9)).astype(dtype)
    ids = rng.integers(-6, 6, size=shape)
    values = rng.normal(size=(*shape, 9)).astype(dtype)
    wanted = out.copy()
    np.add.at(wanted, ids, values)
    call = row_adder(out, ids, values)
    for function, argument in team.task_of(call).items:
        part = CFUNCTYPE(None, c_void_p, c_int64, c_int64)(function)
        for thread in range(threads):
            part(argument, thread, threads)
    np.testing.assert_array_equal(out, wanted)


def test_others_are_left_alone() -> None:
    out, ids, values = np.zeros((3, 4)), np.array([0, 1]), np.ones((2, 4))
    assert row_adder(out, ids.astype("i4"), values) is None
    assert row_adder(out, ids, values.astype("f4")) is None
    assert row_adder(out, ids[:0], values[:0]) is None
    assert row_adder(np.zeros((4, 3)).T, ids, values) is None
