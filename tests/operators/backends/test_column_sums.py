"""Sums over rows: equal to NumPy's for every size, in parts, and without a compiler."""

from __future__ import annotations

from ctypes import CFUNCTYPE, c_int64, c_void_p
from typing import Any

import numpy as np
import pytest

from opscope.framework.fusion import team
from opscope.framework.fusion.compiled import native
from opscope.operators.backends import column_sums


class _Args:
    """What a kernel of sums asks its arguments for."""

    xp = np

    @staticmethod
    def scratch(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return np.empty(shape, dtype)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sizes", [(0, 5), (1, 1), (31, 17), (100, 600), (65, 1100)])
def test_sums(sizes: tuple[int, int], dtype: Any, threads: int) -> None:
    rows, cols = sizes
    rng = np.random.default_rng(rows)
    whole = rng.normal(size=(rows, cols + 3)).astype(dtype)
    for grad in (whole[:, 1 : cols + 1], np.ascontiguousarray(whole[:, :cols])):
        target = np.full(cols, 7, dtype)
        call = column_sums.sum_of_rows(_Args(), grad, target)
        task = team.task_of(call)
        if task is None:
            assert not rows or native.typed("column_sums", grad.dtype) is None
            call()
        else:
            for function, argument in task.items:
                part = CFUNCTYPE(None, c_void_p, c_int64, c_int64)(function)
                for thread in range(threads):
                    part(argument, thread, threads)
        np.testing.assert_allclose(target, grad.sum(axis=0), rtol=0, atol=1e-4)


def test_other_layouts() -> None:
    grad = np.asfortranarray(np.random.default_rng(0).normal(size=(20, 30)).astype("f4"))
    target = np.empty(30, "f4")
    call = column_sums.sum_of_rows(_Args(), grad, target)
    assert team.task_of(call) is None
    call()
    np.testing.assert_allclose(target, grad.sum(axis=0), rtol=0, atol=1e-5)
