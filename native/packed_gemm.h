/* Products whose second factor is packed into panels: as many columns as fit into registers beside the
   rows of a tile, row after row. The last panel is as many vectors wide as it needs: with gaps, the
   16 of 1024 columns took twice their share of the time.

   The tile: Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008. */
#pragma once
#include "vectors.h"
#include "packed_gemm_arguments.h"

#if defined(__AVX512F__)
enum { WIDE = 3, HIGH = 8 };
#elif defined(__AVX2__)
enum { WIDE = 2, HIGH = 6 };
#elif defined(__aarch64__)
enum { WIDE = 3, HIGH = 8 };
#else
enum { WIDE = 2, HIGH = 4 };
#endif
enum { CHUNK = 64, BLOCK = 32, COLS = WIDE * LANES };
enum { OF_LINE = 64 / sizeof(T), LINES = COLS / OF_LINE };  /* of a cache, in a row of a panel */

/* columns of a panel */
VISIBLE word EXPORTED(JOIN(panel, UNIT)) = COLS;

/* c[high][wide vectors] = a p, plus what `from` points to: rows `step` apart; 0 for nothing. Both
   are touched last, as sums that began with `from` waited for its memory, and asked for on the way,
   row by row: all of them at once kept the first cache from loading factors. Of the panel that
   comes next a line is asked for with each row of p, from `soon` on: the processor itself looks
   ahead within a page alone. Together that is 3% of 40 steps of 64x256 by 256x1024 on a Zen 4, and
   7% where each has a `from` of its own. */
INLINE void tile(const int high, const int wide, word k, const T *a, word lda, word next,
                 const T *p, T *c, word ldc, const T *from, word step, const T *soon) {
  vec_t s[HIGH][WIDE];
#pragma GCC unroll 8
  for (int i = 0; i < high; i++)
#pragma GCC unroll 4
    for (int v = 0; v < wide; v++) s[i][v] = (vec_t){0};
  word j = 0;
  for (int asked = 0; asked < high; asked++) {
#pragma GCC unroll 4
    for (int v = 0; v < wide; v++) {
      __builtin_prefetch(c + asked * ldc + v * LANES, 1);
      if (from && from != c) __builtin_prefetch(from + asked * step + v * LANES);
    }
    /* in the first quarter of k: memory is far away */
    for (const word end = asked + 1 < high ? k * (asked + 1) / (4 * high) : k; j < end; j++) {
      vec_t b[WIDE];
      __builtin_prefetch(soon + j * OF_LINE, 0, 2);
#pragma GCC unroll 4
      for (int v = 0; v < wide; v++) b[v] = *(const row_t *)(p + (j * wide + v) * LANES);
#pragma GCC unroll 8
      for (int i = 0; i < high; i++) {
        const T x = a[i * lda + j * next];
#pragma GCC unroll 4
        for (int v = 0; v < wide; v++) s[i][v] += x * b[v];
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < high; i++)
#pragma GCC unroll 4
    for (int v = 0; v < wide; v++) {
      if (from) s[i][v] += *(const row_t *)(from + i * step + v * LANES);
      *(row_t *)(c + i * ldc + v * LANES) = s[i][v];
    }
}

typedef void (*tiler_t)(word, const T *, word, word, const T *, T *, word, const T *, word,
                        const T *);
#define TILE(high, wide)                                                                        \
  static void tile_##high##_##wide(word k, const T *a, word lda, word next, const T *p, T *c, \
                                     word ldc, const T *from, word step, const T *soon) {       \
    if (next == 1)                                                                              \
      tile(high, wide, k, a, lda, 1, p, c, ldc, from, step, soon);                              \
    else                                                                                        \
      tile(high, wide, k, a, 1, next, p, c, ldc, from, step, soon);                             \
  }
#define TILES(high) TILE(high, 1) TILE(high, 2) TILE(high, WIDE)
TILES(1) TILES(2) TILES(4) TILES(HIGH)
#undef TILE
#undef TILES
#define TILES(high) {tile_##high##_1, tile_##high##_2, tile_##high##_WIDE}
static const tiler_t tilers[4][3] = {TILES(1), TILES(2), TILES(4), TILES(HIGH)};
#undef TILES

/* rows r0 to r1 of one panel's columns; `later`: the panel that comes next */
static void panel_rows(word r0, word r1, word cols, word k, const T *a, word lda, word next,
                       const T *p, const T *later, T *c, word ldc, const T *from, word step) {
  const int wide = (cols + LANES - 1) / LANES, odd = cols % LANES != 0;
  const int column = wide == WIDE ? 2 : wide - 1;
  while (r0 < r1) {
    const word left = r1 - r0;
    const int size = left >= HIGH ? 3 : left >= 4 ? 2 : left >= 2;
    const word high = left >= HIGH ? HIGH : 1 << size;
    const T *base = from ? from + r0 * step : 0;
    const word tiles = (left + HIGH - 1) / HIGH;  /* the last ones ask for the next panel */
    const T *soon = tiles <= LINES ? later + (LINES - tiles) * OF_LINE * k : p;
    if (odd) {  /* through a whole tile, as vectors would reach over the edge */
      T whole[HIGH * COLS];
      const word size_of = cols * sizeof(T);
      for (word i = 0; base && i < high; i++) memcpy(whole + i * COLS, base + i * step, size_of);
      tilers[size][column](k, a + r0 * lda, lda, next, p, whole, COLS, base ? whole : 0,
                             COLS, soon);
      for (word i = 0; i < high; i++)
        for (word j = 0; j < cols; j += LANES)
          store_lanes(c + (r0 + i) * ldc + j, *(const row_t *)(whole + i * COLS + j), cols - j);
    } else {
      tilers[size][column](k, a + r0 * lda, lda, next, p, c + r0 * ldc, ldc, base, step,
                           soon);
    }
    r0 += high;
  }
}

/* the place (panel, row) where unit u of the product begins; a unit is a tile one vector wide */
static void place(word u, word m, word n, word *panel, word *row) {
  const word tiles = (m + HIGH - 1) / HIGH, panels = (n + COLS - 1) / COLS;
  const word p = least(u / (tiles * WIDE), panels);
  const word wide = least(WIDE, (n - p * COLS + LANES - 1) / LANES);
  *panel = p;
  *row = p < panels ? least((u - p * tiles * WIDE) / wide * HIGH, m) : 0;
}

/* the panels of alpha b */
static void pack_panels(const struct pack *a, word t, word threads) {
  const word k = a->k, n = a->n, down = a->down, right = a->right;
  const word panels = (n + COLS - 1) / COLS;
  const T *from = a->b, alpha = a->alpha;
  for (word panel = panels * t / threads; panel < panels * (t + 1) / threads; panel++) {
    const word cols = least(COLS, n - panel * COLS);
    const T *x = from + panel * COLS * right;
    T *to = a->panels + panel * COLS * k;
    const word step = (cols + LANES - 1) / LANES * LANES;
    for (word j0 = 0; j0 < k; j0 += BLOCK) {  /* a block of either layout stays in the cache */
      const word j1 = least(j0 + BLOCK, k);
      if (right == 1) {
        for (word j = j0; j < j1; j++)
          for (word i = 0; i < cols; i++) to[j * step + i] = alpha * x[j * down + i];
      } else {
        for (word i = 0; i < cols; i++)
          for (word j = j0; j < j1; j++) to[j * step + i] = alpha * x[j * down + i * right];
      }
      for (word j = j0; cols < step && j < j1; j++)
        memset(to + j * step + cols, 0, (step - cols) * sizeof(T));
    }
  }
}
