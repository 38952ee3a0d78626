/* Blocks of rows of MKL's products with packed factors: operators/backends/products/row_products.py. */
#include "typed.h"
#include "mkl_rows_arguments.h"

typedef void packer(int, int, int, int, int, int, T, const T *, int, T *);
typedef void multiplier(int, int, int, int, int, int, const T *, int, const T *, int, T, T *, int);

EXPORT(mkl_pack)(const struct mkl_rows *b, word t, word n) {
  if (!t)
    ((packer *)b->pack)(101, 162, 111 + b->b_turned, b->high, b->n, b->k, b->alpha, b->b, b->b_step,
                        b->panels);
}
EXPORT(mkl_rows)(const struct mkl_rows *b, word c, word blocks) {
  const word r0 = b->m * c / blocks, r1 = b->m * (c + 1) / blocks, step = b->out_step;
  T *out = b->out + r0 * step;
  for (word r = 0; b->bias && r < r1 - r0; r++) memcpy(out + r * step, b->bias, b->n * sizeof(T));
  ((multiplier *)b->multiply)(101, 111, 151, r1 - r0, b->n, b->k, b->a + r0 * b->a_step, b->a_step,
                              b->panels, b->b_step, b->beta, out, step);
}
