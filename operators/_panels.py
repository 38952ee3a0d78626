"""Products inside the loop of a recurrent net, whose second factor is the same at each step.

That factor is packed before the loop into panels: as many columns as fit into registers beside the
rows of a tile, row after row. A step's product then reads memory in order, adds to what is there at
no cost, and is cut between the threads of a team. BLAS packs again for every call, or does not: for
64x256 by 256x1024 MKL and OpenBLAS reach 70 to 80% of the speed of this on a Zen 4, and both lose
more when they share such a product between threads.

The tile: Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from ctypes import c_int64
from typing import Any

import numpy as np

from ..framework import team

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
INLINE void tile_T(const int high, const int wide, word k, const T *a, word lda, const T *p, T *c,
                   word ldc, const T *from, word step) {
  vec_T s[HIGH][WIDE];
  for (int i = 0; i < high; i++)
    for (int v = 0; v < wide; v++)
      s[i][v] = from ? (vec_T) * (const row_T *)(from + i * step + v * LANES_T) : (vec_T){0};
  for (word j = 0; j < k; j++) {
    vec_T b[WIDE];
    for (int v = 0; v < wide; v++) b[v] = *(const vec_T *)(p + j * COLS_T + v * LANES_T);
#pragma GCC unroll 8
    for (int i = 0; i < high; i++) {
      const T x = a[i * lda + j];
#pragma GCC unroll 4
      for (int v = 0; v < wide; v++) s[i][v] += x * b[v];
    }
  }
  for (int i = 0; i < high; i++)
    for (int v = 0; v < wide; v++) *(row_T *)(c + i * ldc + v * LANES_T) = s[i][v];
}

typedef void (*tiler_T)(word, const T *, word, const T *, T *, word, const T *, word);
#define TILE(high, wide)                                                                         \\
  static void tile_T_##high##_##wide(word k, const T *a, word lda, const T *p, T *c, word ldc,   \\
                                     const T *from, word step) {                                 \\
    tile_T(high, wide, k, a, lda, p, c, ldc, from, step);                                        \\
  }
#define TILES(high) TILE(high, 1) TILE(high, 2) TILE(high, WIDE)
TILES(1) TILES(2) TILES(4) TILES(HIGH)
#undef TILE
#undef TILES
#define TILES(high) {tile_T_##high##_1, tile_T_##high##_2, tile_T_##high##_WIDE}
static const tiler_T tilers_T[4][3] = {TILES(1), TILES(2), TILES(4), TILES(HIGH)};
#undef TILES

/* rows r0 to r1 of one panel's columns */
static void panel_T(word r0, word r1, word cols, word k, const T *a, word lda, const T *p, T *c,
                    word ldc, const T *from, word step) {
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
      tilers_T[size][column](k, a + r0 * lda, lda, p, whole, COLS_T, base ? whole : 0, COLS_T);
      for (word i = 0; i < high; i++) memcpy(c + (r0 + i) * ldc, whole + i * COLS_T, size_of);
    } else {
      tilers_T[size][column](k, a + r0 * lda, lda, p, c + r0 * ldc, ldc, base, step);
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

/* m n k; a and its step; panels; out and its step; what to begin with (or 0) and its step */
EXPORT void product_T(const word *b, word t, word threads) {
  const word m = b[0], n = b[1], k = b[2], lda = b[4], ldc = b[7], step = b[9];
  const T *a = (const T *)b[3], *p = (const T *)b[5], *from = (const T *)b[8];
  T *c = (T *)b[6];
  if (m > CHUNK * threads) {  /* rows to each thread; some of them stay in its cache */
    const word tiles = (m + HIGH - 1) / HIGH;
    const word end = least(tiles * (t + 1) / threads * HIGH, m);
    for (word r = tiles * t / threads * HIGH; r < end; r += CHUNK)
      for (word j = 0; j < n; j += COLS_T)
        panel_T(r, least(r + CHUNK, end), least(COLS_T, n - j), k, a, lda, p + j * k, c + j, ldc,
                from ? from + j : 0, step);
    return;
  }
  const word units = (m + HIGH - 1) / HIGH * ((n + LANES_T - 1) / LANES_T);
  word panel, row, last, end;
  place_T(units * t / threads, m, n, &panel, &row);
  place_T(units * (t + 1) / threads, m, n, &last, &end);
  for (; panel <= last; panel++, row = 0) {
    const word j = panel * COLS_T;
    if (j < n)
      panel_T(row, panel == last ? end : m, least(COLS_T, n - j), k, a, lda, p + j * k, c + j, ldc,
              from ? from + j : 0, step);
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


@functools.cache
def library() -> Any:
    """The compiled functions; None where there is no C compiler, or one that does not take them."""
    parts = [f"#define T {t}\n{_SOURCE.replace('_T', f'_{t}')}#undef T\n" for t in _TYPES.values()]
    return team.load(_HEAD + "".join(parts))


def product(
    prepared: team.Prepared,
    other: Callable[..., Callable[[], Any]],
    xp: Any,
    a: Any,
    b: Any,
    out: Any,
    *,
    alpha: float = 1.0,
    bias: Any = None,
    by: Any = None,
) -> Callable[[], Any]:
    """See `matmul.product`; where b is none of the prepared factors, `other` serves."""
    share = None
    if prepared.holds(b) and library() is not None:
        share = _share(prepared, a, b, out, alpha, bias, by is not None)
    if share is not None:
        return team.run_together([share])
    return other(xp, a, b, out, alpha=alpha, bias=bias, by=by)


def _share(
    prepared: team.Prepared, a: Any, b: Any, out: Any, alpha: float, bias: Any, adds: bool
) -> team.Share | None:
    arrays = [a, b, out] if bias is None else [a, b, out, bias]
    if any(array.dtype != out.dtype or not array.flags.aligned for array in arrays):
        return None
    if not a.size or not b.size or (bias is not None and (adds or not bias.flags.c_contiguous)):
        return None
    size = out.itemsize
    if any(array.shape[1] > 1 and array.strides[1] != size for array in (a, out)):
        return None
    if any(step % size for array in (a, b, out) for step in array.strides):
        return None
    (m, k), n, name = a.shape, b.shape[1], _TYPES[out.dtype.name]
    steps = [stride // size for stride in b.strides]
    key = (b.ctypes.data, b.shape, b.strides, b.dtype, alpha)
    panels = prepared.get(key, lambda: _pack(b, steps, alpha, name))
    begin, step = (out.ctypes.data, out.strides[0] // size) if adds else (0, 0)
    if bias is not None:
        begin = bias.ctypes.data
    argument = np.array(
        [
            *(m, n, k, a.ctypes.data, a.strides[0] // size, panels.ctypes.data),
            *(out.ctypes.data, out.strides[0] // size, begin, step),
        ],
        np.int64,
    )
    item = (library().address(f"product_{name}"), argument.ctypes.data)
    return team.Share((item,), m * n * k, (argument, arrays, panels))


def _pack(b: Any, steps: list[int], alpha: float, name: str) -> tuple[Any, team.Share]:
    """Memory for the panels of b, and what fills it."""
    k, n = b.shape
    columns = c_int64.in_dll(library().handle, "opscope_panel_bytes").value // b.itemsize
    whole = np.empty(-(-n // columns) * columns * k * b.itemsize + 64, np.uint8)
    panels = whole[-whole.ctypes.data % 64 :]
    factor = np.array([alpha], b.dtype)
    argument = np.array(
        [k, n, b.ctypes.data, *steps, panels.ctypes.data, factor.ctypes.data], np.int64
    )
    item = (library().address(f"pack_{name}"), argument.ctypes.data)
    return panels, team.Share((item,), 2 * b.size, (argument, b, panels, factor))
