"""Rows added to rows by their numbers, in C: what `add.at` does, some ten times as fast."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ...framework.fusion import team
from ...framework.ir.kernel_args import Call

_SOURCE = """\
typedef int64_t word;

/* numbers, columns; how many rows the target has; target, numbers of rows, what is added. Each
   thread does columns of its own, in the order of the numbers. Numbers of no row, which a forward
   operator refuses, must not reach other memory where a net has its gradient alone. */
#define ADD(T)                                                                                   \\
  EXPORT void add_rows_##T(const word *b, word t, word n) {                                      \\
    const word count = b[0], cols = b[1], first = cols * t / n, last = cols * (t + 1) / n;       \\
    const word *ids = (const word *)b[4];                                                        \\
    for (word i = 0; i < count; i++) {                                                           \\
      const word row = ids[i] < 0 ? ids[i] + b[2] : ids[i];                                      \\
      if ((uint64_t)row >= (uint64_t)b[2]) continue;                                             \\
      T *to = (T *)b[3] + row * cols;                                                            \\
      const T *x = (const T *)b[5] + i * cols;                                                   \\
      for (word j = first; j < last; j++) to[j] += x[j];                                         \\
    }                                                                                            \\
  }
ADD(float)
ADD(double)
"""

_TYPES = {"float32": "float", "float64": "double"}


@functools.cache
def library() -> Any:
    """The compiled functions; None where there is no C compiler."""
    return team.load(_SOURCE)


def row_adder(out: Any, ids: Any, values: Any) -> Call | None:
    """A call for out[ids] += values of contiguous NumPy arrays, for ids in range; None for others.

    Args:
        out: [rows, ...]. ids: any shape, int64. values: shape of ids, then that of a row of out.
    """
    arrays = out, ids, values
    suited = all(
        type(array) is np.ndarray and array.flags.c_contiguous and array.flags.aligned
        for array in arrays
    )
    if not suited or out.dtype != values.dtype or out.dtype.name not in _TYPES:
        return None
    if ids.dtype != np.int64 or not ids.size or not values.size or library() is None:
        return None
    width = values.size // ids.size
    words = [ids.size, width, len(out), *(array.ctypes.data for array in (out, ids, values))]
    argument = np.array(words, np.int64)
    item = (library().address(f"add_rows_{_TYPES[out.dtype.name]}"), argument.ctypes.data)
    return team.run_together([team.ParallelTask((item,), 2 * values.size, (argument, arrays))])
