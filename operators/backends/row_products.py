"""Products in blocks of rows, whose second factor is packed once for all blocks of a call.

A block of the result is there, in the cache, before the next one is begun: what follows the product
may take it from there (`framework/fusion/row_blocks.py`). Large products are MKL's, which packs a
factor for several calls (`cblas_sgemm_pack`); others are our own tiles, which pack a panel of the
factor right before the first block multiplies with it.

On one core of a Xeon with AVX-512, whole and in blocks of 192 rows, in Gflop/s: 3584x1536 by
1536x512 186 and 184 by MKL, 174 by tiles; 64x784 by 784x512 121 by MKL at once, 136 by tiles.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from ...framework.fusion import row_blocks, team
from ...framework.fusion.row_blocks import ByRows
from ...framework.runtime.plans.memory import padded, panel_memory
from . import amx, packed_gemm, parts, vector_products

_HEAD = """\
#if defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__)
#define SHUFFLES 1
typedef float wide_t __attribute__((vector_size(64), aligned(4), may_alias));
typedef float lanes_t __attribute__((vector_size(64)));
typedef int32_t places_t __attribute__((vector_size(64)));
/* 16x16 elements, turned: `to` has 48 columns */
static void turn(const float *x, word right, float *to) {
  lanes_t r[16];
  for (int i = 0; i < 16; i++) r[i] = *(const wide_t *)(x + i * right);
#pragma GCC unroll 4
  for (int s = 1; s < 16; s *= 2) {
    places_t low, high;
    for (int l = 0; l < 16; l++) low[l] = l & s ? 16 + l - s : l, high[l] = l & s ? 16 + l : l + s;
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
      if (!(i & s)) {
        const lanes_t a = r[i], b = r[i + s];
        r[i] = __builtin_shuffle(a, b, low), r[i + s] = __builtin_shuffle(a, b, high);
      }
  }
  for (int j = 0; j < 16; j++) *(wide_t *)(to + j * 48) = r[j];
}
#else
#define SHUFFLES 0
static void turn(const float *x, word right, float *to) {}
#endif
"""

_SOURCE = """\
/* packs one panel of what pack_T packs */
static void one_panel_T(const word *b, word panel, T *to) {
  const word k = b[0], n = b[1], down = b[3], right = b[4];
  const T alpha = *(const T *)b[6], *x = (const T *)b[2] + panel * COLS_T * right;
  if (n - panel * COLS_T >= COLS_T && right == 1) {
    for (word j = 0; j < k; j++)
#pragma GCC unroll 4
      for (int v = 0; v < WIDE; v++)
        *(vec_T *)(to + j * COLS_T + v * LANES_T) =
            alpha * *(const row_T *)(x + j * down + v * LANES_T);
  } else if (SHUFFLES && sizeof(T) == 4 && n - panel * COLS_T >= COLS_T && down == 1 &&
             alpha == 1) {
    word j = 0;
    for (; j + 16 <= k; j += 16)
      for (int i = 0; i < COLS_T; i += 16)
        turn((const float *)(x + i * right + j), right, (float *)(to + j * COLS_T + i));
    for (; j < k; j++)
      for (int i = 0; i < COLS_T; i++) to[j * COLS_T + i] = x[i * right + j];
  } else {
    const word cols = least(COLS_T, n - panel * COLS_T);
    const word one[] = {k, cols, (word)x, down, right, (word)to, b[6]};
    pack_T(one, 0, 1);
  }
}

/* asks for part `part` of 8 of what a panel is packed from */
static void ask_T(const word *b, word panel, int part) {
  const word k = b[0], n = b[1], down = b[3], right = b[4], first = panel * COLS_T;
  if (first >= n) return;
  const word cols = least(COLS_T, n - first), line = 64 / sizeof(T);
  const char *x = (const char *)((const T *)b[2] + first * right);
  const word long_side = right == 1 ? k : cols, short_side = right == 1 ? cols : k;
  const word step = (right == 1 ? down : right) * sizeof(T);
  for (word i = long_side * part / 8; i < long_side * (part + 1) / 8; i++)
    for (word j = 0; j < short_side; j += line)
      __builtin_prefetch(x + i * step + j * sizeof(T), 0, 2);
}

/* asks for rows of a matrix */
static void near_T(const T *x, word step, word rows, word cols) {
  for (word i = 0; i < rows; i++)
    for (word j = 0; j < cols; j += 64 / sizeof(T)) __builtin_prefetch(x + i * step + j);
}

/* m n; out and its step; what to begin with (or 0) and its step; whether panels are there;
   pieces of the inner dimension, of each: a, its steps along rows and k, k, panels, how to pack */
EXPORT void rows_T(const word *b, word c, word blocks) {
  const word m = b[0], n = b[1], ldc = b[3], r0 = m * c / blocks, r1 = m * (c + 1) / blocks;
  const int packing = !b[6] && !c;
  const T *from = (const T *)b[4];
  T *out = (T *)b[2];
  word step = b[5];
  for (word i = 0; i < b[7]; i++) {
    const word *q = b + 8 + 6 * i, k = q[3], *how = (const word *)q[5];
    const word high = packing ? r1 - r0 : CHUNK;  /* rows of a that panels pass by */
    const T *a = (const T *)q[0];
    for (word r = r0; r < r1; r += high) {
      const word end = least(r + high, r1);
      for (word j = 0; j < n; j += COLS_T) {
        /* panels that nobody asks for again all take the same memory, which stays near */
        T *p = (T *)q[4] + (packing && blocks == 1 ? 0 : j * k);
        const word cols = least(COLS_T, n - j);
        const T *begin = from ? from + j : 0;
        if (packing) one_panel_T(how, j / COLS_T, p);
        for (word at = r; at < end; at += HIGH) {
          const word next = least(at + HIGH, end);
          if (packing && at - r < 8 * HIGH) ask_T(how, j / COLS_T + 1, (at - r) / HIGH);
          if (blocks > 1) near_T(out + next * ldc + j, ldc, least(HIGH, end - next), cols);
          if (blocks > 1 && !j && q[2] == 1)
            near_T(a + next * q[1], q[1], least(HIGH, r1 - next), k);
          panel_T(at, next, cols, k, a, q[1], q[2], p, out + j, ldc, begin, step);
        }
      }
    }
    from = out, step = ldc;
  }
}

/* Several threads pack all panels first; one packs each when it gets there. */
EXPORT void panels_T(word *b, word t, word threads) {
  if (threads > 1)
    for (word i = 0; i < b[7]; i++) {
      const word *how = (const word *)b[8 + 6 * i + 5], panels = (how[1] + COLS_T - 1) / COLS_T;
      for (word p = panels * t / threads; p < panels * (t + 1) / threads; p++)
        one_panel_T(how, p, (T *)b[8 + 6 * i + 4] + p * COLS_T * how[0]);
    }
  if (!t) b[6] = threads > 1;
}
"""

_MKL_SOURCE = """\
#include <stdint.h>
#include <string.h>
typedef int64_t word;
/* m n k; a and b: whether transposed, address, step; packed; c, step; row of bias or 0;
   functions that pack and multiply, alpha and beta as doubles; rows at a time */
#define MKL(T)                                                                                   \\
  EXPORT void mkl_pack_##T(const word *b, word t, word n) {                                      \\
    const double *factors = (const double *)(b + 15);                                            \\
    if (!t)                                                                                      \\
      ((void (*)(int, int, int, int, int, int, T, const T *, int, T *))b[13])(                   \\
          101, 162, 111 + b[6], b[17], b[1], b[2], factors[0], (const T *)b[7], b[8],            \\
          (T *)b[9]);                                                                            \\
  }                                                                                              \\
  EXPORT void mkl_rows_##T(const word *b, word c, word blocks) {                                 \\
    const double *factors = (const double *)(b + 15);                                            \\
    const word r0 = b[0] * c / blocks, r1 = b[0] * (c + 1) / blocks;                             \\
    const T *a = (const T *)b[4] + r0 * (b[3] ? 1 : b[5]);                                       \\
    T *out = (T *)b[10] + r0 * b[11];                                                            \\
    for (word r = 0; b[12] && r < r1 - r0; r++)                                                  \\
      memcpy(out + r * b[11], (const T *)b[12], b[1] * sizeof(T));                               \\
    ((void (*)(int, int, int, int, int, int, const T *, int, const T *, int, T, T *, int))b[14])(\\
        101, 111 + b[3], 151, r1 - r0, b[1], b[2], a, b[5], (const T *)b[9], b[8], factors[1],   \\
        out, b[11]);                                                                             \\
  }
MKL(float)
MKL(double)
"""

_TYPES = {"float32": "float", "float64": "double"}
_LETTERS = {"float32": "s", "float64": "d"}
_LEAST, _PANEL, _WHOLE = 1 << 22, 48, 480
"""Multiplications from which a product is done so. Its columns are whole panels, or so many that
part of one is no matter: it takes nearly as long as a whole one."""
_FEW, _FILLED = 128, 1 << 24
"""Rows up to which tiles are faster than MKL at once, and the multiplications which that takes: for
fewer MKL makes code of the shape."""
_TALL = 1000
"""Rows from which blocks are: before, packing a factor of its own weighs more than the cache."""
_WIDE, _DEEP = 160, 384
"""Columns and inner dimension from which it is MKL's, where that is there."""
_PIECE = 512
"""Inner dimension of one piece of our own: a panel of it stays near."""
_BLOCK = 256
_CBLAS = 101, 162  # row major; the second factor, as in mkl_cblas.h


@functools.cache
def _own() -> Any:
    types = _TYPES.values()
    bodies = [f"#define T {t}\n{_SOURCE.replace('_T', f'_{t}')}#undef T\n" for t in types]
    return team.load(packed_gemm.source() + _HEAD + "".join(bodies))


@functools.cache
def _others() -> Any:
    return team.load(_MKL_SOURCE)


def first_way(
    arrays: parts.Arrays, how: parts.Layouts, factors: tuple[float, float], bias: Any, mkl: Any
) -> team.ParallelTask | None:
    """The product by the first of our own ways that suits; arguments as of `task`.

    Returns:
        None where a library's product is better.
    """
    return (
        vector_products.task(arrays, how, factors, bias)
        or vector_products.few_rows(arrays, how, factors, bias, mkl is not None)
        or amx.task(arrays, how, factors, bias)
        or task(arrays, how, factors, bias, mkl)
    )


def task(
    arrays: parts.Arrays, how: parts.Layouts, factors: tuple[float, float], bias: Any, mkl: Any
) -> team.ParallelTask | None:
    """The product in blocks of rows; None where it is better done, or can only be done, at once.

    Args:
        how: see `parts.layouts`. factors: alpha and beta; with `bias` the latter is 1.
        mkl: MKL's library, or None.
    """
    a, b, out = arrays
    (m, k), n = a.shape, b.shape[1]
    if m * n * k < (_FILLED if m <= _FEW else _LEAST) or k > m * _PIECE:
        return None
    if n < _WHOLE and n % _PANEL or (mkl is not None and _FEW < m < _TALL):
        return None
    if how[0][0] or team.library() is None or not row_blocks.enabled():
        return None
    reads, writes = row_blocks.span(a), row_blocks.span(out)
    if reads is None or writes is None:
        return None
    begin = None
    if bias is not None:
        begin = np.ascontiguousarray(bias) if not bias.flags.c_contiguous else bias
    spans = [reads] if begin is None else [reads, row_blocks.whole(begin)]
    if factors[1] and bias is None:
        spans.append(writes)
    if mkl is not None and m >= _TALL and n > _WIDE and k >= _DEEP and _others():
        before, items, panels, memory = _by_mkl(arrays, how, factors, begin, mkl)
    elif _own() is not None:
        before, items, panels, memory = _by_tiles(arrays, factors, begin)
    else:
        return None
    given = (row_blocks.whole(b),)
    owners, packed = (arrays, memory, panels, begin), (row_blocks.whole(panels),)
    by = ByRows(m, items, tuple(spans), (writes,), owners, before, given, packed)
    return team.rows_task(by, m * n * k)


_Items = tuple[tuple[int, int], ...]
_Rows = tuple[_Items, _Items, Any, Any]
"""Items that pack the second factor, items that multiply, the panels, and other memory."""


def _by_tiles(arrays: parts.Arrays, factors: tuple[float, float], bias: Any) -> _Rows:
    a, b, out = arrays
    (m, k), n, size = a.shape, b.shape[1], out.itemsize
    step = out.strides[0] // size
    begin, begin_step = 0, 0
    if bias is not None:
        begin = bias.ctypes.data
    elif factors[1]:
        begin, begin_step = out.ctypes.data, step
    count = -(-k // _PIECE)
    each = -(-k // count)
    words = [m, n, out.ctypes.data, step, begin, begin_step, 0, count]
    memory: list[Any] = []
    down, right = (stride // size for stride in a.strides)
    pieces = [b[at : at + each] for at in range(0, k, each)]
    rooms = [padded(packed_gemm.room(piece, tiled=False)) for piece in pieces]
    rest = whole = panel_memory(sum(rooms), in_turn=True)
    for number, (piece, room) in enumerate(zip(pieces, rooms, strict=True)):
        panels, packing = packed_gemm.pack(piece, factors[0], panels=rest[:room])
        rest = rest[room:]
        memory.append(packing.memory)
        words += [a.ctypes.data + number * each * right * size, down, right, len(piece)]
        words += [panels.ctypes.data, packing.items[0][1]]
    argument = np.array(words, np.int64)
    library, letter = _own(), _TYPES[out.dtype.name]
    place = argument.ctypes.data
    before = ((library.address(f"panels_{letter}"), place),)
    return before, ((library.address(f"rows_{letter}"), place),), whole, (argument, memory)


def _by_mkl(
    arrays: parts.Arrays,
    how: parts.Layouts,
    factors: tuple[float, float],
    bias: Any,
    mkl: Any,
) -> _Rows:
    a, b, out = arrays
    (m, k), n = a.shape, b.shape[1]
    letter, kind = _LETTERS[out.dtype.name], _TYPES[out.dtype.name]
    size = getattr(mkl, f"cblas_{letter}gemm_pack_get_size")
    size.restype = ctypes.c_size_t
    height = min(m, _BLOCK)  # MKL lays the factor out for so many rows at a time
    room = size(_CBLAS[1], *(ctypes.c_int(one) for one in (height, n, k)))
    packed = panel_memory(room, in_turn=True)
    pack, compute = (
        ctypes.cast(getattr(mkl, f"cblas_{letter}gemm_{name}"), ctypes.c_void_p).value
        for name in ("pack", "compute")
    )
    (ta, tb), (lda, ldb, ldc) = how
    words = [m, n, k, ta, a.ctypes.data, lda, tb, b.ctypes.data, ldb, packed.ctypes.data]
    words += [out.ctypes.data, ldc, 0 if bias is None else bias.ctypes.data, pack, compute]
    argument = np.array([*words, 0, 0, height], np.int64)
    argument[15:17].view(np.float64)[:] = factors
    place, library = argument.ctypes.data, _others()
    before = ((library.address(f"mkl_pack_{kind}"), place),)
    return before, ((library.address(f"mkl_rows_{kind}"), place),), packed, argument
