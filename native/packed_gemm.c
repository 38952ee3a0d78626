/* Products with factors that stay packed: operators/backends/products/packed_gemm.py. */
#include "packed_gemm.h"

/* one of the steps of a is 1 */
EXPORT(product)(const struct product *b, word t, word threads) {
  const word m = b->m, n = b->n, k = b->k, lda = b->down, next = b->right, ldc = b->out_step;
  const word step = b->begin_step;
  const T *a = b->a, *p = b->panels, *from = b->begin;
  T *c = b->out;
  if (m > CHUNK * threads) {  /* rows to each thread; some of them stay in its cache */
    const word tiles = (m + HIGH - 1) / HIGH;
    const word end = least(tiles * (t + 1) / threads * HIGH, m);
    for (word r = tiles * t / threads * HIGH; r < end; r += CHUNK)
      for (word j = 0; j < n; j += COLS)
        panel_rows(r, least(r + CHUNK, end), least(COLS, n - j), k, a, lda, next, p + j * k,
                   p + (j + COLS < n ? j + COLS : 0) * k, c + j, ldc, from ? from + j : 0, step);
    return;
  }
  const word units = (m + HIGH - 1) / HIGH * ((n + LANES - 1) / LANES);
  word panel, row, last, end;
  place(units * t / threads, m, n, &panel, &row);
  place(units * (t + 1) / threads, m, n, &last, &end);
  for (; panel <= last; panel++, row = 0) {
    const word j = panel * COLS;
    if (j < n)
      panel_rows(row, panel == last ? end : m, least(COLS, n - j), k, a, lda, next, p + j * k,
                 p + (j + COLS < n ? j + COLS : 0) * k, c + j, ldc, from ? from + j : 0, step);
  }
}

EXPORT(pack)(const struct pack *a, word t, word threads) { pack_panels(a, t, threads); }
