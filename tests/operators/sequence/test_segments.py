"""Reductions of groups of rows in C beside NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.fusion.compiled import native
from opscope.operators.sequence.segments import group_reducer

pytestmark = pytest.mark.skipif(
    native.typed("segments", np.dtype("float32")) is None, reason="there is no native library"
)


@pytest.mark.parametrize("ufunc", [np.add, np.maximum, np.minimum])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("columns", [1, 7, 16, 83])
@pytest.mark.parametrize("ordered", [True, False])
def test_each_group_is_reduced(ufunc: np.ufunc, dtype: str, columns: int, ordered: bool) -> None:
    rng = np.random.default_rng(columns)
    x = rng.standard_normal((30, columns)).astype(dtype)
    x[4, columns // 2] = np.nan
    offsets = np.array([0, 0, 3, 4, 21, 21, 30])
    rows = None if ordered else rng.integers(0, 30, 30)
    out = np.full((6, columns), 9, dtype)
    call = group_reducer(ufunc, x, offsets, out, rows)
    assert call is not None
    call()
    taken = x if rows is None else x[rows]
    for group, (begin, end) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
        want = ufunc.reduce(taken[begin:end]) if end > begin else np.zeros(columns)
        np.testing.assert_allclose(out[group], want, rtol=1e-5, atol=1e-5)


def test_other_arrays_are_left_to_numpy() -> None:
    x, offsets = np.ones((4, 6), np.float32), np.array([0, 4])
    assert group_reducer(np.add, x[:, ::2], offsets, np.zeros((1, 3), np.float32), None) is None
    assert group_reducer(np.add, x, offsets, np.zeros((1, 6)), None) is None
    assert group_reducer(np.multiply, x, offsets, np.zeros((1, 6), np.float32), None) is None
