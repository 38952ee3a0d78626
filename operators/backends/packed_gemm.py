"""Matrix products whose second factor is packed once: before the loop of a recurrent net, or for
all runs of a net that only predicts (framework/runtime/plans/kept_factors.py).

All steps of the loop multiply with the same weights. These are packed into panels: as many columns
as fit into registers beside the rows of a tile, row after row. A step's product then reads memory
in order, adds to its target at no cost, and is cut between the threads of a team. BLAS packs
again for every call, or does not: for 64x256 by 256x1024 MKL and OpenBLAS reach 70 to 80% of the
speed of this on a Zen 4, and both lose more when they share such a product between threads.

The tile: Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008.
"""

from __future__ import annotations

import functools
from ctypes import c_int64
from typing import Any

import numpy as np

from ...framework.fusion import team
from ...framework.fusion.prepared import Prepared
from ...framework.runtime.plans.kept_factors import Kept
from . import amx_gemm, parts

_HEAD = """\
#include <stdint.h>
#include <string.h>
typedef int64_t word;
#if defined(__AVX512F__)
enum { BYTES = 64, WIDE = 3, HIGH = 8 };
#elif defined(__AVX2__)
enum { BYTES = 32, WIDE = 2, HIGH = 6 };
#elif defined(__aarch64__)
enum { BYTES = 16, WIDE = 3, HIGH = 8 };
#else
enum { BYTES = 16, WIDE = 2, HIGH = 4 };
#endif
enum { CHUNK = 64, BLOCK = 32 };
#define INLINE static inline __attribute__((always_inline))
EXPORT word opscope_panel_bytes = WIDE * BYTES;

static word least(word a, word b) { return a < b ? a : b; }
"""

_SOURCE = """\
enum { LANES_T = BYTES / sizeof(T), COLS_T = WIDE * LANES_T };
typedef T vec_T __attribute__((vector_size(BYTES)));
typedef T row_T __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));

/* c[high][wide vectors] = a p, plus what `from` points to: rows `step` apart; 0 for nothing */
INLINE void tile_T(const int high, const int wide, word k, const T *a, word lda, word next,
                   const T *p, T *c, word ldc, const T *from, word step) {
  vec_T s[HIGH][WIDE];
  for (int i = 0; i < high; i++)
    for (int v = 0; v < wide; v++)
      s[i][v] = from ? (vec_T) * (const row_T *)(from + i * step + v * LANES_T) : (vec_T){0};
  for (word j = 0; j < k; j++) {
    vec_T b[WIDE];
    for (int v = 0; v < wide; v++) b[v] = *(const vec_T *)(p + j * COLS_T + v * LANES_T);
#pragma GCC unroll 8
    for (int i = 0; i < high; i++) {
      const T x = a[i * lda + j * next];
#pragma GCC unroll 4
      for (int v = 0; v < wide; v++) s[i][v] += x * b[v];
    }
  }
  for (int i = 0; i < high; i++)
    for (int v = 0; v < wide; v++) *(row_T *)(c + i * ldc + v * LANES_T) = s[i][v];
}

typedef void (*tiler_T)(word, const T *, word, word, const T *, T *, word, const T *, word);
#define TILE(high, wide)                                                                         \\
  static void tile_T_##high##_##wide(word k, const T *a, word lda, word next, const T *p, T *c,  \\
                                     word ldc, const T *from, word step) {                       \\
    if (next == 1)                                                                               \\
      tile_T(high, wide, k, a, lda, 1, p, c, ldc, from, step);                                   \\
    else                                                                                         \\
      tile_T(high, wide, k, a, 1, next, p, c, ldc, from, step);                                  \\
  }
#define TILES(high) TILE(high, 1) TILE(high, 2) TILE(high, WIDE)
TILES(1) TILES(2) TILES(4) TILES(HIGH)
#undef TILE
#undef TILES
#define TILES(high) {tile_T_##high##_1, tile_T_##high##_2, tile_T_##high##_WIDE}
static const tiler_T tilers_T[4][3] = {TILES(1), TILES(2), TILES(4), TILES(HIGH)};
#undef TILES

/* rows r0 to r1 of one panel's columns */
static void panel_T(word r0, word r1, word cols, word k, const T *a, word lda, word next,
                    const T *p, T *c, word ldc, const T *from, word step) {
  const int wide = (cols + LANES_T - 1) / LANES_T, odd = cols % LANES_T != 0;
  const int column = wide == WIDE ? 2 : wide - 1;
  while (r0 < r1) {
    const word left = r1 - r0;
    const int size = left >= HIGH ? 3 : left >= 4 ? 2 : left >= 2;
    const word high = left >= HIGH ? HIGH : 1 << size;
    const T *base = from ? from + r0 * step : 0;
    if (odd) {  /* through a whole tile, as vectors would reach over the edge */
      T whole[HIGH * COLS_T];
      const word size_of = cols * sizeof(T);
      for (word i = 0; base && i < high; i++) memcpy(whole + i * COLS_T, base + i * step, size_of);
      tilers_T[size][column](k, a + r0 * lda, lda, next, p, whole, COLS_T, base ? whole : 0,
                             COLS_T);
      for (word i = 0; i < high; i++) memcpy(c + (r0 + i) * ldc, whole + i * COLS_T, size_of);
    } else {
      tilers_T[size][column](k, a + r0 * lda, lda, next, p, c + r0 * ldc, ldc, base, step);
    }
    r0 += high;
  }
}

/* the place (panel, row) where unit u of the product begins; a unit is a tile one vector wide */
static void place_T(word u, word m, word n, word *panel, word *row) {
  const word tiles = (m + HIGH - 1) / HIGH, panels = (n + COLS_T - 1) / COLS_T;
  const word p = least(u / (tiles * WIDE), panels);
  const word wide = least(WIDE, (n - p * COLS_T + LANES_T - 1) / LANES_T);
  *panel = p;
  *row = p < panels ? least((u - p * tiles * WIDE) / wide * HIGH, m) : 0;
}

/* m n k; a, its steps along m and k, one of them 1; panels; out and its step; what to begin with
   (or 0) and its step */
EXPORT void product_T(const word *b, word t, word threads) {
  const word m = b[0], n = b[1], k = b[2], lda = b[4], next = b[5], ldc = b[8], step = b[10];
  const T *a = (const T *)b[3], *p = (const T *)b[6], *from = (const T *)b[9];
  T *c = (T *)b[7];
  if (m > CHUNK * threads) {  /* rows to each thread; some of them stay in its cache */
    const word tiles = (m + HIGH - 1) / HIGH;
    const word end = least(tiles * (t + 1) / threads * HIGH, m);
    for (word r = tiles * t / threads * HIGH; r < end; r += CHUNK)
      for (word j = 0; j < n; j += COLS_T)
        panel_T(r, least(r + CHUNK, end), least(COLS_T, n - j), k, a, lda, next, p + j * k, c + j,
                ldc, from ? from + j : 0, step);
    return;
  }
  const word units = (m + HIGH - 1) / HIGH * ((n + LANES_T - 1) / LANES_T);
  word panel, row, last, end;
  place_T(units * t / threads, m, n, &panel, &row);
  place_T(units * (t + 1) / threads, m, n, &last, &end);
  for (; panel <= last; panel++, row = 0) {
    const word j = panel * COLS_T;
    if (j < n)
      panel_T(row, panel == last ? end : m, least(COLS_T, n - j), k, a, lda, next, p + j * k, c + j,
              ldc, from ? from + j : 0, step);
  }
}

/* k n; factor, its steps along k and n; panels; what it is multiplied with */
EXPORT void pack_T(const word *b, word t, word threads) {
  const word k = b[0], n = b[1], down = b[3], right = b[4];
  const word panels = (n + COLS_T - 1) / COLS_T;
  const T *from = (const T *)b[2], alpha = *(const T *)b[6];
  for (word panel = panels * t / threads; panel < panels * (t + 1) / threads; panel++) {
    const word cols = least(COLS_T, n - panel * COLS_T);
    const T *x = from + panel * COLS_T * right;
    T *to = (T *)b[5] + panel * COLS_T * k;
    for (word j0 = 0; j0 < k; j0 += BLOCK) {  /* a block of either layout stays in the cache */
      const word j1 = least(j0 + BLOCK, k);
      if (right == 1) {
        for (word j = j0; j < j1; j++)
          for (word i = 0; i < cols; i++) to[j * COLS_T + i] = alpha * x[j * down + i];
      } else {
        for (word i = 0; i < cols; i++)
          for (word j = j0; j < j1; j++) to[j * COLS_T + i] = alpha * x[j * down + i * right];
      }
      for (word j = j0; cols < COLS_T && j < j1; j++)
        memset(to + j * COLS_T + cols, 0, (COLS_T - cols) * sizeof(T));
    }
  }
}
"""

_TYPES = {"float32": "float", "float64": "double"}
_LARGE = 1 << 22
"""Multiplications from which a product is worth packing a factor for it alone."""
_FEWEST = 64
"""Rows of the first factor from which packing the second is little work beside the product."""
_NARROW = 16
"""Columns and inner dimension from which AMX serves: it computes 32 of them in any case."""
_KEPT, _READ = 1 << 14, 4
"""Elements from which a factor is worth keeping packed, and work of reading one."""
_BLOCK = 256
"""Inner dimension of one piece: its panels stay in the cache."""


@functools.cache
def library() -> Any:
    """The compiled functions; None where there is no C compiler, or one that does not take them."""
    return team.load(source())


def source() -> str:
    """The functions in C, for files that have more of them."""
    parts = [f"#define T {t}\n{_SOURCE.replace('_T', f'_{t}')}#undef T\n" for t in _TYPES.values()]
    return _HEAD + "".join(parts)


def task(
    prepared: Prepared, a: Any, b: Any, out: Any, alpha: float, bias: Any, by: Any
) -> team.ParallelTask | None:
    """The product, see `parts.by_task`; None where packing does not pay, or memory does not suit.

    A factor b that is none of the prepared ones is packed each time, where the product is large.
    """
    if library() is None or not suited(a, b, out, bias, by):
        return None
    (m, k), n = a.shape, b.shape[1]
    tiled = by_tiles(m, n, k, out)
    if not (tiled or prepared.in_loop):
        return None  # outside of loops the other product is as good
    begin = out if by is not None else bias
    if prepared.holds(b):
        steps = (b.ctypes.data, b.shape, b.strides, b.dtype, alpha, tiled)
        panels = prepared.get(steps, lambda: pack(b, alpha, tiled))
        return multiply(a, b, panels, out, begin, alpha, tiled)
    if m >= _FEWEST and m * n * k >= _LARGE:
        return _in_blocks(prepared, a, b, out, alpha, begin, tiled)
    return None


def kept_task(
    kept: Kept, a: Any, b: Any, out: Any, alpha: float, bias: Any, by: Any
) -> team.ParallelTask | None:
    """The product with a factor that stays packed from run to run, see `parts.by_task`.

    64x784 by 784x512 and 64x512 by 512x512 take 360 us on one core of a Xeon with AMX, 510 without,
    and 540 and 640 where the factors are packed in each run.

    Returns:
        None where memory does not suit, or there is no room.
    """
    if not kept.holds(b) or b.size < _KEPT or not suited(a, b, out, bias, by):
        return None
    (m, k), n = a.shape, b.shape[1]
    tiled = by_tiles(m, n, k, out)
    panels = kept.get(b, (alpha, tiled), room(b, tiled), lambda: pack(b, alpha, tiled))
    if panels is None:
        return None
    made = multiply(a, b, panels, out, bias if by is None else out, alpha, tiled)
    return team.ParallelTask(made.items, max(made.work, _READ * b.size), made.memory)


def suited(a: Any, b: Any, out: Any, bias: Any, by: Any) -> bool:
    """Whether the memory of a product suits tiles."""
    arrays = [a, b, out] if bias is None else [a, b, out, bias]
    if any(type(x) is not np.ndarray or x.dtype != out.dtype for x in arrays):
        return False
    if not a.size or not b.size or not all(array.flags.aligned for array in arrays):
        return False
    if bias is not None and (by is not None or not bias.flags.c_contiguous):
        return False
    size = out.itemsize
    whole = all(step % size == 0 for array in arrays for step in array.strides)
    return whole and (out.shape[1] == 1 or out.strides[1] == size) and _row_step(a) is not None


def _row_step(a: Any) -> tuple[int, int] | None:
    """Distances of a matrix's elements along both axes, one of them 1; None for others."""
    down, right = (stride // a.itemsize for stride in a.strides)
    if right == 1 or a.shape[1] == 1:
        return down, 1
    return (1, right) if down == 1 or a.shape[0] == 1 else None


def by_tiles(m: int, n: int, k: int, out: Any) -> bool:
    """Whether AMX is there and faster."""
    fits = out.dtype == np.float32 and m >= amx_gemm.FEWEST and min(n, k) >= _NARROW
    return fits and amx_gemm.library() is not None


def multiply(
    a: Any, b: Any, panels: Any, out: Any, begin: Any, alpha: float, tiled: bool
) -> team.ParallelTask:
    """out = alpha a b, plus `begin`: a row, an array like `out`, or None.

    Args:
        panels: what `pack` made of b, with the same `alpha` and `tiled`.
    """
    steps = _row_step(a)
    assert steps is not None, "other matrices are left to another product"
    if tiled:
        return amx_gemm.multiply(a, steps, b, alpha, panels, out, begin)
    first, step = 0, 0
    if begin is not None:
        first = begin.ctypes.data
        step = begin.strides[0] // out.itemsize if begin.ndim == 2 else 0
    (m, k), n = a.shape, b.shape[1]
    argument = np.array(
        [
            *(m, n, k, a.ctypes.data, *steps, panels.ctypes.data),
            *(out.ctypes.data, out.strides[0] // out.itemsize, first, step),
        ],
        np.int64,
    )
    item = (library().address(f"product_{_TYPES[out.dtype.name]}"), argument.ctypes.data)
    return team.ParallelTask((item,), m * n * k, (argument, a, b, panels, out, begin))


def _in_blocks(
    prepared: Prepared, a: Any, b: Any, out: Any, alpha: float, begin: Any, tiled: bool
) -> team.ParallelTask:
    """The product over pieces of the inner dimension, one after another through the same panels."""
    panels = prepared.buffer(room(b[:_BLOCK], tiled))
    tasks = []
    for at in range(0, len(b), _BLOCK):
        rows = b[at : at + _BLOCK]
        tasks.append(pack(rows, alpha, tiled, panels)[1])
        tasks.append(multiply(a[:, at : at + _BLOCK], rows, panels, out, begin, alpha, tiled))
        begin = out
    return parts.in_turn(tasks)


def room(b: Any, tiled: bool) -> int:
    """Bytes that the panels of b take; `tiled`: those of AMX."""
    if tiled:
        return amx_gemm.room(b)
    columns = c_int64.in_dll(library().handle, "opscope_panel_bytes").value // b.itemsize
    return -(-b.shape[1] // columns) * columns * len(b) * b.itemsize


def pack(
    b: Any, alpha: float, tiled: bool = False, panels: Any = None
) -> tuple[Any, team.ParallelTask]:
    """The panels of alpha b and the task that fills them.

    Args:
        tiled: whether for AMX. panels: their memory; None: new one.
    """
    panels = team.aligned(room(b, tiled)) if panels is None else panels
    if tiled:
        return panels, amx_gemm.pack(b, alpha, panels)
    factor = np.array([alpha], b.dtype)
    steps = (stride // b.itemsize for stride in b.strides)
    argument = np.array(
        [*b.shape, b.ctypes.data, *steps, panels.ctypes.data, factor.ctypes.data], np.int64
    )
    item = (library().address(f"pack_{_TYPES[b.dtype.name]}"), argument.ctypes.data)
    return panels, team.ParallelTask((item,), 2 * b.size, (argument, b, panels, factor))
