"""A row times a matrix that lies in rows: a loop over the matrix, as fast as memory gives it.

Weights of some megabytes do not stay in the second cache whole; read from the first to the last
each time, no part of them does. So every other call goes through the rows in chunks from the last
to the first, and what was read last is still there. Each chunk has its own sums, which are added in
one order: the result does not depend on the direction. 1x784 by 784x512 and 1x512 by 512x512, one
after another, take 70 us in one direction and 52 so (2 MB of cache).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ...framework.base.settings import is_on
from ...framework.fusion import team
from . import parts

_SOURCE = """\
#include <stdint.h>
#include <string.h>
typedef int64_t word;
/* k n; x; w, its step; out; what to begin with, or 0; alpha as a double; rows of a chunk, sums of
   the chunks; direction */
#define VECTOR(T)                                                                                \\
  EXPORT void vector_##T(const word *b, word t, word threads) {                                  \\
    const word k = b[0], n = b[1], step = b[4], high = b[8], count = (k + high - 1) / high;      \\
    const word wide = (n + threads - 1) / threads, c0 = wide * t < n ? wide * t : n;             \\
    const word c1 = c0 + wide < n ? c0 + wide : n;                                               \\
    const T *x = (const T *)b[2], *from = (const T *)b[6];                                       \\
    const T alpha = *(const double *)(b + 7);                                                    \\
    T *out = (T *)b[5];                                                                          \\
    for (word c = 0; c < count; c++) {                                                           \\
      const word chunk = b[10] ? count - 1 - c : c, end = chunk * high + high;                   \\
      T *restrict s = (T *)b[9] + chunk * n;                                                     \\
      memset(s + c0, 0, (c1 - c0) * sizeof(T));                                                  \\
      word i = chunk * high;                                                                     \\
      const word last = end < k ? end : k;                                                       \\
      for (; i + 4 <= last; i += 4) {                                                            \\
        const T *w = (const T *)b[3] + i * step, *w1 = w + step, *w2 = w1 + step;                \\
        const T *w3 = w2 + step, x0 = x[i], x1 = x[i + 1], x2 = x[i + 2], x3 = x[i + 3];         \\
        _Pragma("omp simd") for (word j = c0; j < c1; j++)                                       \\
          s[j] += x0 * w[j] + x1 * w1[j] + x2 * w2[j] + x3 * w3[j];                              \\
      }                                                                                          \\
      for (; i < last; i++) {                                                                    \\
        const T *w = (const T *)b[3] + i * step, x0 = x[i];                                      \\
        _Pragma("omp simd") for (word j = c0; j < c1; j++) s[j] += x0 * w[j];                    \\
      }                                                                                          \\
    }                                                                                            \\
    T *restrict s = (T *)b[9];                                                                   \\
    for (word c = 1; c < count; c++)                                                             \\
      _Pragma("omp simd") for (word j = c0; j < c1; j++) s[j] += s[c * n + j];                   \\
    for (word j = c0; j < c1; j++) out[j] = alpha * s[j] + (from ? from[j] : 0);                 \\
  }
VECTOR(float)
VECTOR(double)

EXPORT void turn(word *b, word t, word threads) {
  if (!t) b[10] ^= 1;
}
"""

_TYPES = {"float32": "float", "float64": "double"}
_LEAST = 1 << 17
"""Elements of the matrix from which this is as fast as a library's product."""
_CHUNK = 128 << 10
"""Bytes of a chunk of rows."""


@functools.cache
def _library() -> Any:
    return team.load(_SOURCE)


def task(
    arrays: parts.Arrays, how: parts.Layouts, factors: tuple[float, float], bias: Any
) -> team.ParallelTask | None:
    """The product of one row with a matrix; None for others, and without a C compiler.

    Args:
        how: see `parts.layouts`. factors: alpha and beta; with `bias` the latter is 1.
    """
    a, b, out = arrays
    kind = _TYPES.get(out.dtype.name)
    if len(out) != 1 or how[0] != (0, 0) or b.size < _LEAST or kind is None:
        return None
    if not is_on("OPSCOPE_VECTORS") or team.library() is None or _library() is None:
        return None
    k, n = b.shape
    high = max(_CHUNK // (n * b.itemsize) // 4 * 4, 4)
    sums = np.empty((-(-k // high), n), b.dtype)
    row = None if bias is None else np.ascontiguousarray(bias)
    begin = 0
    if row is not None:
        begin = row.ctypes.data
    elif factors[1]:
        begin = out.ctypes.data
    words = [k, n, a.ctypes.data, b.ctypes.data, how[1][1], out.ctypes.data, begin, 0, high]
    argument = np.array([*words, sums.ctypes.data, 0], np.int64)
    argument[7:8].view(np.float64)[:] = factors[0]
    items = tuple(
        (_library().address(name), argument.ctypes.data) for name in ("turn", f"vector_{kind}")
    )
    return team.ParallelTask(items, b.size, (argument, arrays, sums, row))
