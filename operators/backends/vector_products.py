"""Products of one row, or of few rows, with a matrix that is read as it lies.

A row times a matrix that lies in rows is a loop over the matrix, as fast as memory gives it.
Weights of some megabytes do not stay in the second cache whole; read from the first to the last
each time, no part of them does. So every other call goes through the rows in chunks from the last
to the first, and what was read last is still there. Each chunk has its own sums, which are added in
one order: the result does not depend on the direction. 1x784 by 784x512 and 1x512 by 512x512, one
after another, take 70 us in one direction and 52 so (2 MB of cache).

A few rows times a matrix that lies in columns, as weights [outputs, inputs] do, are dot products of
vectors side by side in memory. A library packs the matrix first, which takes longer than such a
product. On one core of a Xeon 6x64 by 64x768 takes 12 us (OpenBLAS 31, MKL 14), 18x220 by 220x768
68 us (139, 76), 16x512 by 512x512 75 us (181, 118); 64x64 by 64x768 81 us (74, 57).
"""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any

import numpy as np

from ...framework.base.settings import is_on
from ...framework.fusion import team
from ...framework.runtime.plans.memory import as_view, panel_memory
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

_DOTS_HEAD = """\
#include <stdint.h>
#include <string.h>
#if !defined(__GNUC__) || defined(__clang__)
#error "vectors are shuffled as GCC does it"
#endif
typedef int64_t word;
#if defined(__AVX512F__)
enum { BYTES = 64, MOST = 8, ROWS = 32, ROWS_BY_MKL = 20 };
#elif defined(__AVX2__)
enum { BYTES = 32, MOST = 4, ROWS = 16, ROWS_BY_MKL = 0 };
#else
enum { BYTES = 16, MOST = 4, ROWS = 32, ROWS_BY_MKL = 0 };
#endif
EXPORT word opscope_dot_rows[] = {ROWS, ROWS_BY_MKL};
enum { HIGH = 3, CHUNK = 48 };
#define INLINE static inline __attribute__((always_inline))
typedef int32_t lane_float;
typedef int64_t lane_double;
static word least(word a, word b) { return a < b ? a : b; }
"""

_DOTS = """\
enum { LANES_T = BYTES / sizeof(T), COLS_T = LANES_T < MOST ? LANES_T : MOST };
typedef T vec_T __attribute__((vector_size(BYTES)));
typedef T row_T __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));
typedef T some_T __attribute__((vector_size(COLS_T * sizeof(T)), aligned(sizeof(T)), may_alias));
typedef lane_T bits_T __attribute__((vector_size(BYTES)));

/* lanes of the last vector of a row that no other has; how sums of columns are put in order; at
   each level of adding up: lanes of the second vector, and each lane's neighbour */
typedef struct { bits_T rest, order, second[4], other[4]; } lanes_T;

static lanes_T lanes_of_T(word k) {
  static const lane_T NUMBERS[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  bits_T lane;
  lanes_T lanes;
  memcpy(&lane, NUMBERS, sizeof lane);
  lanes.rest = lane >= (lane_T)(LANES_T - k % LANES_T), lanes.order = (bits_T){0};
  for (int i = 0, s = LANES_T / 2; s; s /= 2, i++) {
    lanes.second[i] = (lane & s) != 0;
    lanes.other[i] = (lane ^ s) + (lanes.second[i] & LANES_T);
  }
  for (int bit = 1; bit < COLS_T; bit *= 2)
    lanes.order += ((lane & bit) != 0) & (LANES_T / 2 / bit);
  return lanes;
}

/* sums of pairs of lanes: those of a, and in the lanes of `second` those of b */
INLINE vec_T joined_T(vec_T a, vec_T b, const lanes_T *lanes, int level) {
  const bits_T second = lanes->second[level];
  const vec_T own = (vec_T)(((bits_T)a & ~second) | ((bits_T)b & second));
  return own + __builtin_shuffle(a, b, lanes->other[level]);
}

INLINE vec_T masked_T(const T *x, bits_T mask) {
  return (vec_T)((bits_T) * (const row_T *)x & mask);
}

/* out[high][COLS] = alpha a w^T, plus what `from` points to */
INLINE void dots_of_T(const int high, word k, const T *a, word lda, const T *w, word ldw, T *out,
                      word ldc, const T *from, word step, T alpha, const lanes_T *lanes) {
  vec_T s[HIGH][COLS_T];
  for (int i = 0; i < high; i++)
    for (int v = 0; v < COLS_T; v++) s[i][v] = (vec_T){0};
  word j = 0;
  for (; j + LANES_T <= k; j += LANES_T) {
    vec_T x[HIGH];
    for (int i = 0; i < high; i++) x[i] = *(const row_T *)(a + i * lda + j);
#pragma GCC unroll 8
    for (int v = 0; v < COLS_T; v++) {
      const vec_T b = *(const row_T *)(w + v * ldw + j);
#pragma GCC unroll 4
      for (int i = 0; i < high; i++) s[i][v] += x[i] * b;
    }
  }
  if (j < k) {  /* a whole vector that ends where the row does */
    j = k - LANES_T;
#pragma GCC unroll 8
    for (int v = 0; v < COLS_T; v++) {
      const vec_T b = masked_T(w + v * ldw + j, lanes->rest);
#pragma GCC unroll 4
      for (int i = 0; i < high; i++) s[i][v] += masked_T(a + i * lda + j, lanes->rest) * b;
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < high; i++) {
    int level = 0, left = LANES_T;
#pragma GCC unroll 4
    for (int c = COLS_T / 2; c; c /= 2, left /= 2, level++)
#pragma GCC unroll 4
      for (int v = 0; v < c; v++)
        s[i][v] = joined_T(s[i][2 * v], s[i][2 * v + 1], lanes, level);
#pragma GCC unroll 4
    for (; left > 1; left /= 2, level++)
      s[i][0] += __builtin_shuffle(s[i][0], lanes->other[level]);
    const vec_T sums = alpha * __builtin_shuffle(s[i][0], lanes->order);
    some_T x = *(const some_T *)&sums;
    if (from) x += *(const some_T *)(from + i * step);
    *(some_T *)(out + i * ldc) = x;
  }
}

typedef void (*dotter_T)(word, const T *, word, const T *, word, T *, word, const T *, word, T,
                         const lanes_T *);
#define DOTS(high)                                                                               \\
  static void dots_T_##high(word k, const T *a, word lda, const T *w, word ldw, T *out,          \\
                            word ldc, const T *from, word step, T alpha, const lanes_T *lanes) { \\
    dots_of_T(high, k, a, lda, w, ldw, out, ldc, from, step, alpha, lanes);                      \\
  }
DOTS(1) DOTS(2) DOTS(3)
#undef DOTS
static const dotter_T dotters_T[] = {dots_T_1, dots_T_2, dots_T_3};

/* m n k; a, its step; w, its step; out, its step; what to begin with (or 0) and its step; alpha as
   a double */
EXPORT void dots_T(const word *b, word t, word threads) {
  const word m = b[0], n = b[1], k = b[2], lda = b[4], ldw = b[6], ldc = b[8], step = b[10];
  const word units = (n + COLS_T - 1) / COLS_T;
  const T *a = (const T *)b[3], *w = (const T *)b[5], *from = (const T *)b[9];
  const T alpha = *(const double *)(b + 11);
  T *out = (T *)b[7];
  const lanes_T lanes = lanes_of_T(k);
  for (word r = 0; r < m; r += CHUNK) {
    const word end = least(r + CHUNK, m);
    for (word u = units * t / threads; u < units * (t + 1) / threads; u++) {
      const word j = u * COLS_T, first = least(j, n - COLS_T);
      for (word i = r; i < end; i += HIGH) {
        const word high = least(end - i, HIGH);
        const T *begin = from ? from + i * step + j : 0;
        T *to = out + i * ldc + j;
        if (first == j) {
          dotters_T[high - 1](k, a + i * lda, lda, w + j * ldw, ldw, to, ldc, begin, step, alpha,
                              &lanes);
        } else {  /* the last columns, with some before them that are there */
          T whole[HIGH * COLS_T];
          dotters_T[high - 1](k, a + i * lda, lda, w + first * ldw, ldw, whole, COLS_T, 0, 0, alpha,
                              &lanes);
          for (word h = 0; h < high; h++)
            for (word c = 0; c < n - j; c++)
              to[h * ldc + c] =
                  whole[h * COLS_T + j - first + c] + (begin ? begin[h * step + c] : 0);
        }
      }
    }
  }
}
"""

_TYPES = {"float32": "float", "float64": "double"}
_MANY = 32
"""Rows up to which dot products may be faster than OpenBLAS; `opscope_dot_rows` has the number for
this processor, and that of rows up to which they are faster than MKL."""
_LARGE, _LONG = 1 << 17, 128
"""Elements of a float32 matrix, and of its columns, from which they are faster than MKL."""
_SHORTEST, _NARROWEST, _SMALLEST = 32, 16, 1 << 13
"""The least inner dimension and columns, and elements of the matrix, that are worth it."""
_DEEP, _SOME = 16, 3
"""Bytes of a matrix's column, to each column, from which OpenBLAS is as fast for fewer rows than so
many a byte of an element: it has a loop for such small products."""
_LEAST = 1 << 17
"""Elements of the matrix from which this is as fast as a library's product."""
_CHUNK = 128 << 10
"""Bytes of a chunk of rows."""


@functools.cache
def _library() -> Any:
    return team.load(_SOURCE)


@functools.cache
def _dots_library() -> Any:
    """The functions of dot products; None without a C compiler that takes them."""
    bodies = [f"#define T {t}\n{_DOTS.replace('_T', f'_{t}')}#undef T\n" for t in _TYPES.values()]
    return team.load(_DOTS_HEAD + "".join(bodies))


def _rows(by_mkl: bool) -> int:
    """Rows up to which dot products are faster on this processor."""
    return (ctypes.c_int64 * 2).in_dll(_dots_library().handle, "opscope_dot_rows")[by_mkl]


def few_rows(
    arrays: parts.Arrays,
    how: parts.Layouts,
    factors: tuple[float, float],
    bias: Any,
    by_mkl: bool = False,
) -> team.ParallelTask | None:
    """The product of a few rows with a matrix that lies in columns; None for others, and without a
    C compiler that takes it.

    Args:
        how: see `parts.layouts`. factors: alpha and beta; with `bias` the latter is 1.
        by_mkl: whether it is MKL's otherwise.
    """
    a, b, out = arrays
    kind = _TYPES.get(out.dtype.name)
    if not suits_few(a, b, by_mkl) or how[0] != (0, 1) or kind is None:
        return None
    if not is_on("OPSCOPE_VECTORS") or team.library() is None or _dots_library() is None:
        return None
    (m, k), n = a.shape, b.shape[1]
    if m > _rows(by_mkl):
        return None
    row = None if bias is None else np.ascontiguousarray(bias)
    begin, step = 0, 0
    if row is not None:
        begin = row.ctypes.data
    elif factors[1]:
        begin, step = out.ctypes.data, how[1][2]
    (lda, ldw, ldc), (data, matrix, target) = how[1], (x.ctypes.data for x in arrays)
    words = [m, n, k, data, lda, matrix, ldw, target, ldc, begin, step, 0]
    argument = np.array(words, np.int64)
    argument[11:].view(np.float64)[:] = factors[0]
    item = _dots_library().address(f"dots_{kind}"), argument.ctypes.data
    return team.ParallelTask((item,), m * n * k, (argument, arrays, row))


def suits_few(a: Any, b: Any, by_mkl: bool = False) -> bool:
    """Whether a product has sizes for which dot products are fast; layouts are not looked at."""
    (k, n), size = b.shape, b.itemsize
    if by_mkl and (size != 4 or b.size < _LARGE or k < _LONG):
        return False
    least = _SOME * size if k * size >= _DEEP * n else 2
    return least <= len(a) <= _MANY and k >= _SHORTEST and n >= _NARROWEST and b.size >= _SMALLEST


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
    shape = -(-k // high), n
    sums = as_view(panel_memory(math.prod(shape) * b.itemsize), (shape, b.dtype))
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
