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
from . import packed_gemm, parts

_SOURCE = """\
/* m n; out and its step; what to begin with (or 0) and its step; whether panels are there;
   pieces of the inner dimension, of each: a, its steps along rows and k, k, panels, how to pack */
EXPORT void rows_T(const word *b, word c, word blocks) {
  const word m = b[0], n = b[1], ldc = b[3], r0 = m * c / blocks, r1 = m * (c + 1) / blocks;
  const word panels = (n + COLS_T - 1) / COLS_T;
  const int packing = !b[6] && !c;
  const T *from = (const T *)b[4];
  T *out = (T *)b[2];
  word step = b[5];
  for (word i = 0; i < b[7]; i++) {
    const word *q = b + 8 + 6 * i, k = q[3];
    for (word r = r0; r < r1; r += CHUNK) {  /* rows of a that stay near while all panels pass */
      for (word j = 0; j < n; j += COLS_T) {
        T *p = (T *)q[4] + j * k;
        if (packing && r == r0) pack_T((const word *)q[5], j / COLS_T, panels);
        panel_T(r, least(r + CHUNK, r1), least(COLS_T, n - j), k, (const T *)q[0], q[1], q[2], p,
                out + j, ldc, from ? from + j : 0, step);
      }
    }
    from = out, step = ldc;
  }
}

/* Several threads pack all panels first; one packs each when it gets there. */
EXPORT void panels_T(word *b, word t, word threads) {
  if (threads > 1)
    for (word i = 0; i < b[7]; i++) pack_T((const word *)b[8 + 6 * i + 5], t, threads);
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
_FEWEST, _NARROWEST, _SMALL = 16, 48, 1 << 20
"""Rows, columns and multiplications from which a product is worth packing a factor for it."""
_TALL, _WIDE, _DEEP = 192, 160, 384
"""Rows, columns and inner dimension from which it is MKL's, where that is there."""
_PIECE = 512
"""Inner dimension of one piece of our own: a panel of it stays near."""
_BLOCK = 256
_CBLAS = 101, 162  # row major; the second factor, as in mkl_cblas.h


@functools.cache
def _own() -> Any:
    types = _TYPES.values()
    bodies = [f"#define T {t}\n{_SOURCE.replace('_T', f'_{t}')}#undef T\n" for t in types]
    return team.load(packed_gemm.source() + "".join(bodies))


@functools.cache
def _others() -> Any:
    return team.load(_MKL_SOURCE)


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
    if m < _FEWEST or n < _NARROWEST or m * n * k < _SMALL or k > m * _PIECE:
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
        before, items, memory = _by_mkl(arrays, how, factors, begin, mkl)
    elif _own() is not None:
        before, items, memory = _by_tiles(arrays, factors, begin)
    else:
        return None
    given = (row_blocks.whole(b),)
    by = ByRows(m, items, tuple(spans), (writes,), (arrays, memory, begin), before, given)
    return team.rows_task(by, m * n * k)


_Items = tuple[tuple[int, int], ...]


def _by_tiles(
    arrays: parts.Arrays, factors: tuple[float, float], bias: Any
) -> tuple[_Items, _Items, Any]:
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
    for at in range(0, k, each):
        panels, packing = packed_gemm.pack(b[at : at + each], factors[0])
        memory.append(packing.memory)
        words += [a.ctypes.data + at * right * size, down, right, len(b[at : at + each])]
        words += [panels.ctypes.data, packing.items[0][1]]
    argument = np.array(words, np.int64)
    library, letter = _own(), _TYPES[out.dtype.name]
    place = argument.ctypes.data
    before = ((library.address(f"panels_{letter}"), place),)
    return before, ((library.address(f"rows_{letter}"), place),), (argument, memory)


def _by_mkl(
    arrays: parts.Arrays,
    how: parts.Layouts,
    factors: tuple[float, float],
    bias: Any,
    mkl: Any,
) -> tuple[_Items, _Items, Any]:
    a, b, out = arrays
    (m, k), n = a.shape, b.shape[1]
    letter, kind = _LETTERS[out.dtype.name], _TYPES[out.dtype.name]
    size = getattr(mkl, f"cblas_{letter}gemm_pack_get_size")
    size.restype = ctypes.c_size_t
    height = min(m, _BLOCK)  # MKL lays the factor out for so many rows at a time
    packed = team.aligned(size(_CBLAS[1], *(ctypes.c_int(one) for one in (height, n, k))))
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
    return before, ((library.address(f"mkl_rows_{kind}"), place),), (argument, packed)
