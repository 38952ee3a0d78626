"""Products of few rows with a large matrix (library "native"): its reading is what takes the time.

Each thread reads whole rows of the matrix, one after the other, as memory likes best; sums over
pieces of the inner dimension are added up afterwards. How many pieces there are follows from the
sizes alone, and so no result depends on the number of threads. Every other call reads the pieces
from the last to the first: of weights that the second cache does not hold, what was read last is
still there. 1x784 by 784x512 and 1x512 by 512x512, one after the other, take 60 us on one core of
a Xeon, 73 in one direction, and 20 on two cores.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...framework.fusion import team
from ...framework.ir.kernel_args import Call, KernelArgs
from ..linear.matmul import affine, bind_affine, bind_matmul, matmul
from . import blas, mkl, parts, rows

_MOST = 4
"""Rows up to which a product is one of few."""
_SMALLEST = 1 << 17
"""Bytes of the matrix from which it is not in a small cache anyway."""
_PIECE, _PIECES = 1 << 18, 16
"""Bytes of the matrix in a piece, and the most pieces."""
_READ = 4
"""Work of reading an element of the matrix."""

_SOURCE = """\
/* rows of a, n, k; a and its step, matrix and its step, pieces of k, their sums; direction */
EXPORT void few_T(const word *b, word t, word parts) {
  const word m = b[0], n = b[1], k = b[2], step = b[6];
  const word first = b[7] * t / parts, last = b[7] * (t + 1) / parts;
  for (word c = first; c < last; c++) {
    const word piece = b[9] ? first + last - 1 - c : c;
    const word end = k * (piece + 1) / b[7];
    T *sums = (T *)b[8] + piece * m * n;
    memset(sums, 0, m * n * sizeof(T));
    for (word j = k * piece / b[7]; j < end;) {
      const T *p = (const T *)b[5] + j * step;
      const word many = j + 8 <= end ? 8 : 1;
      for (word i = 0; i < m; i++) {
        const T *x = (const T *)b[3] + i * b[4] + j;
        T *s = sums + i * n;
        if (many == 8) {
          const T x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3], x4 = x[4], x5 = x[5], x6 = x[6];
          const T x7 = x[7];
#pragma omp simd
          for (word q = 0; q < n; q++)
            s[q] += x0 * p[q] + x1 * p[step + q] + x2 * p[2 * step + q] + x3 * p[3 * step + q] +
                    x4 * p[4 * step + q] + x5 * p[5 * step + q] + x6 * p[6 * step + q] +
                    x7 * p[7 * step + q];
        } else {
#pragma omp simd
          for (word q = 0; q < n; q++) s[q] += x[0] * p[q];
        }
      }
      j += many;
    }
  }
}

/* pieces, m, n, sums; out and its step, bias or 0, alpha, where the direction is */
EXPORT void few_added_T(const word *b, word t, word parts) {
  const word m = b[1], n = b[2], begin = n * t / parts, end = n * (t + 1) / parts;
  const T alpha = real(b[7]), *bias = (const T *)b[6];
  for (word i = 0; i < m; i++) {
    T *s = (T *)b[3] + i * n, *out = (T *)b[4] + i * b[5];
    for (word piece = 1; piece < b[0]; piece++) {
      const T *more = s + piece * m * n;
#pragma omp simd
      for (word q = begin; q < end; q++) s[q] += more[q];
    }
    for (word q = begin; q < end; q++) out[q] = alpha * s[q] + (bias ? bias[q] : 0);
  }
  if (!t) *(word *)b[8] ^= 1;
}
"""


@functools.cache
def library() -> Any:
    """The compiled functions; None where there is no C compiler, or one that does not take them."""
    return team.load(rows.for_types(rows.ROWS + _SOURCE))


def _row_step(array: Any) -> int | None:
    """Elements from one row to the next; None where a row's do not lie side by side."""
    if not array.flags.aligned or array.strides[1] != array.itemsize or array.strides[0] < 0:
        return None
    return array.strides[0] // array.itemsize


def task(a: Any, b: Any, out: Any, alpha: float, bias: Any, by: Any) -> team.ParallelTask | None:
    """The product, see `parts.by_task`; None where the arrays do not suit."""
    steps = [_row_step(array) for array in (a, b, out)]
    suits = len(a) <= _MOST and b.nbytes >= _SMALLEST and by is None and None not in steps
    if not suits or not rows.suits(out.dtype, bias) or a.dtype != out.dtype or b.dtype != out.dtype:
        return None
    (m, k), n = a.shape, b.shape[1]
    pieces = max(min(b.nbytes // _PIECE, _PIECES), 1)
    sums = np.empty((pieces, m, n), out.dtype)
    reading = _argument([m, n, k, a, steps[0], b, steps[1], pieces, sums, 0])
    after = _argument([pieces, m, n, sums, out, steps[2], bias, float(alpha), reading[0][-1:]])
    work = max(_READ * b.size, m * b.size)
    return parts.in_turn(
        [
            _task("few", out.dtype, reading, work),
            _task("few_added", out.dtype, after, max(sums.size, team.ITEM_WORK)),
        ]
    )


def _argument(words: list[Any]) -> tuple[Any, list[Any]]:
    """The words of a C function, and what owns the memory that they point to."""
    return np.array([rows.word(one) for one in words], np.int64), words


def _task(name: str, dtype: np.dtype, argument: tuple[Any, Any], work: int) -> team.ParallelTask:
    item = library().address(f"{name}_{rows.TYPES[dtype.name]}"), argument[0].ctypes.data
    return team.ParallelTask((item,), work, argument)


def _is_one(x: Any, matrix: Any) -> bool:
    """Whether a product is one of few rows with a large matrix."""
    few = x.size <= _MOST * x.shape[-1] if x.ndim else False
    return few and matrix.ndim == 2 and matrix.nbytes >= _SMALLEST and library() is not None


def _other() -> Callable[..., Call]:
    return blas.product if mkl.library() is None else mkl.product


def _affine(k: KernelArgs) -> Call | None:
    one = k.prepared is None and _is_one(k["x"], k["w"])
    return bind_affine(k, parts.by_task(task, _other())) if one else None


def _matmul(k: KernelArgs) -> Call | None:
    one = k.prepared is None and _is_one(k["x"], k["y"])
    return bind_matmul(k, parts.by_task(task, _other())) if one else None


for _entry, _kernel in ((affine, _affine), (matmul, _matmul)):
    _entry.kernel(_kernel, device="cpu", dtypes=(np.float32, np.float64), library="native")
