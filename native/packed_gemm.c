/* Products with factors that stay packed: operators/backends/products/packed_gemm.py. */
#include "packed_gemm.h"

/* Bytes of panels that the second cache of most processors holds, and rows of a group of threads that
   reads them all. The loops around divide rows, too: else half of what a thread reads was written by
   another core, and 40 steps of an LSTM of 64x256 took 7.1 ms on two cores of a Xeon, not 6.4. */
enum { NEAR = 1 << 20, GROUP = 24 };

/* how many groups, of as many threads each, take rows of their own; their tiles differ by 1 in 16 */
static word groups_of(word m, word bytes, word threads) {
  if (m > CHUNK * threads) return threads;
  const word tiles = (m + HIGH - 1) / HIGH;
  for (word groups = bytes > NEAR ? 1 : least(m / GROUP, threads); groups > 1; groups--)
    if (threads % groups == 0 && 16 * ((groups - tiles % groups) % groups) <= tiles) return groups;
  return 1;
}

/* one of the steps of a is 1 */
EXPORT(product)(const struct product *b, word t, word threads) {
  const word n = b->n, k = b->k, lda = b->down, next = b->right, ldc = b->out_step;
  const word step = b->begin_step, tiles = (b->m + HIGH - 1) / HIGH;
  const word groups = groups_of(b->m, k * n * sizeof(T), threads), each = threads / groups;
  const word group = t / each, stop = least(tiles * (group + 1) / groups * HIGH, b->m);
  /* columns to each thread of a group; alone in it, some rows stay in its cache */
  for (word r = tiles * group / groups * HIGH, m; r < stop; r += m) {
    m = each > 1 ? stop - r : least(CHUNK, stop - r);
    const T *a = b->a + r * lda, *p = b->panels, *from = b->begin ? b->begin + r * step : 0;
    T *c = b->out + r * ldc;
    const word units = (m + HIGH - 1) / HIGH * ((n + LANES - 1) / LANES);
    word panel, row, last, end;
    place(units * (t % each) / each, m, n, &panel, &row);
    place(units * (t % each + 1) / each, m, n, &last, &end);
    for (; panel <= last; panel++, row = 0) {
      const word j = panel * COLS;
      if (j < n)
        panel_rows(row, panel == last ? end : m, least(COLS, n - j), k, a, lda, next, p + j * k,
                   p + (j + COLS < n ? j + COLS : 0) * k, c + j, ldc, from ? from + j : 0, step);
    }
  }
}

EXPORT(pack)(const struct pack *a, word t, word threads) { pack_panels(a, t, threads); }
