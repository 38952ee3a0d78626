"""Sums of a matrix over its rows (gradients of biases) that the threads of a team share.

Beside the product with a vector of ones that serves for large matrices, such a sum can stand in one
list with the products of a gradient.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ...framework.fusion import team
from ...framework.ir.kernel_args import Call, KernelArgs
from ..linear import matmul

_SOURCE = """\
#include <string.h>
typedef int64_t word;
enum { WIDE = 512, ROWS = 32 };

static word least(word a, word b) { return a < b ? a : b; }

/* rows, columns; the matrix, the distance of its rows; the sums. Some rows are added up first, then
   these sums, so that the error grows little with the rows. */
#define SUMS(T)                                                                                  \\
  EXPORT void sums_##T(const word *b, word t, word n) {                                          \\
    const word rows = b[0], lines = (b[1] + 15) / 16;                                            \\
    const word last = least(lines * (t + 1) / n * 16, b[1]);                                     \\
    for (word c = lines * t / n * 16; c < last; c += WIDE) {                                     \\
      const word width = least(WIDE, last - c);                                                  \\
      T *total = (T *)b[4] + c, part[WIDE];                                                      \\
      for (word r = 0; r < rows || !r; r += ROWS) {                                              \\
        memset(part, 0, sizeof part);                                                            \\
        for (word i = r; i < least(r + ROWS, rows); i++) {                                       \\
          const T *x = (const T *)b[2] + i * b[3] + c;                                           \\
          for (word j = 0; j < width; j++) part[j] += x[j];                                      \\
        }                                                                                        \\
        for (word j = 0; j < width; j++) total[j] = r ? total[j] + part[j] : part[j];            \\
      }                                                                                          \\
    }                                                                                            \\
  }
SUMS(float)
SUMS(double)
"""

_TYPES = {"float32": "float", "float64": "double"}
_SMALL = 1 << 14
"""Elements up to which a library's product takes longer to be called than it saves."""


@functools.cache
def library() -> Any:
    """The compiled functions; None where there is no C compiler."""
    return team.load(_SOURCE)


def small_sum(k: KernelArgs, grad: Any, target: Any, *, multiply: matmul.Product) -> Call:
    """A call for target = grad summed over its rows: of a small matrix by `sum_of_rows`."""
    if grad.size <= _SMALL and target.size:
        return sum_of_rows(k, grad, target)
    return matmul.sum_of_rows(k, grad, target, multiply)


def sum_of_rows(k: KernelArgs, grad: Any, target: Any) -> Call:
    """A call for target = grad summed over its rows, which a team can run; see `matmul`."""
    size = grad.itemsize
    suited = (
        type(grad) is np.ndarray
        and grad.dtype == target.dtype
        and grad.dtype.name in _TYPES
        and target.flags.c_contiguous
        and (grad.shape[1] == 1 or grad.strides[1] == size)
        and grad.strides[0] % size == 0
        and grad.flags.aligned
    )
    if not suited or library() is None:
        return matmul.sum_of_rows(k, grad, target)
    words = [*grad.shape, grad.ctypes.data, grad.strides[0] // size, target.ctypes.data]
    argument = np.array(words, np.int64)
    item = (library().address(f"sums_{_TYPES[grad.dtype.name]}"), argument.ctypes.data)
    return team.run_together([team.ParallelTask((item,), 2 * grad.size, (argument, grad, target))])
