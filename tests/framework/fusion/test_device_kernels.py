"""Kernels in CUDA, compiled as C: blocks of several threads compute what those of one compute."""

from __future__ import annotations

import numpy as np
import pytest

from opscope.framework.base.backend import on_device
from opscope.framework.fusion.cuda.device_kernels import by_blocks
from opscope.testing.device_double import DOUBLE, by_default, xp
from opscope.testing.device_raw import lanes

SUMS = """
KERNEL row_sums(const real *x, real *sums, real *most, int64 columns) {
  real sum = 0, top = -INFINITE;
  LANES(j, columns) {
    sum += x[BLOCK_INDEX * columns + j];
    top = fmax(top, x[BLOCK_INDEX * columns + j]);
  }
  sum = block_sum(sum);
  top = block_max(top);
  if (FIRST_LANE) {
    sums[BLOCK_INDEX] = sum;
    most[BLOCK_INDEX] = top;
  }
}
"""


@pytest.mark.parametrize("count", [1, 2, 8])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_reductions_of_a_block(count, dtype):
    x = np.arange(21.0, dtype=dtype).reshape(3, 7) % 5 - 2
    with by_default(), on_device(DOUBLE), lanes(count):
        sums, most = xp.empty(3, dtype), xp.empty(3, dtype)
        given = xp.asarray(x), sums, most, np.int64(7)
        by_blocks(xp, SUMS, "row_sums", dtype, 3, given)()
        np.testing.assert_array_equal(sums.get(), x.sum(1))
        np.testing.assert_array_equal(most.get(), x.max(1))
