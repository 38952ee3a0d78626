/* Products of matrices of bytes, exact in 32 bits: operators/backends/integer/integer_gemm.py. */
#include "integer_rows.h"

/* A panel holds some columns: GROUP elements of each side by side, then those of the next. Rows lie
   anyhow: a filter is a column whose rows are its taps and channels. Groups follow each other. */
EXPORT(pack_integers)(const struct pack_integers *a, word t, word threads) {
  const word depth = (a->k + GROUP - 1) / GROUP, panels = (a->n + COLS - 1) / COLS;
  const word all = panels * a->groups;
  const char flip = a->is_unsigned ? -128 : 0;
  for (word p = all * t / threads; p < all * (t + 1) / threads; p++) {
    const char *from = a->b + p / panels * a->n * a->right;
    char *to = a->panels + p * depth * GROUP * COLS;
    int32_t sums[COLS] = {0};
    for (word g = 0; g < depth; g++)
      for (word j = 0; j < COLS; j++)
        for (word i = 0; i < GROUP; i++) {
          const word row = g * GROUP + i, col = p % panels * COLS + j;
          const char x =
              row < a->k && col < a->n ? from[a->rows[row] + col * a->right] ^ flip : 0;
          to[(g * COLS + j) * GROUP + i] = x;
          sums[j] += (signed char)x;
        }
    memcpy(a->sums + p * COLS, sums, sizeof sums);
  }
}

EXPORT(integer_product)(const struct integer_product *a, word t, word threads) {
  const struct integer_columns *c = &a->columns;
  const word panels = (c->n + COLS - 1) / COLS, tiles = (a->m + HIGH - 1) / HIGH;
  const int by_rows = a->m >= c->n;
  const word end = by_rows ? least(tiles * (t + 1) / threads * HIGH, a->m) : a->m;
  const word p0 = by_rows ? 0 : panels * t / threads;
  const word p1 = by_rows ? panels : panels * (t + 1) / threads;
  const word begin = by_rows ? tiles * t / threads * HIGH : 0, rows = end - begin;
  const word blocks = (rows + NEAR - 1) / NEAR;
  block b;
  start_blocks(&b);
  for (word i = 0; i < blocks; i++) {
    const word r = begin + block_from(i, blocks, rows);
    next_block(&b, c, a->a + r * a->a_step, a->a_step, begin + block_from(i + 1, blocks, rows) - r);
    for (word p = p0; p < p1; p++) panel_of(c, 0, p, &b, a->out + r * a->step, a->step);
  }
  end_blocks(&b);
}
