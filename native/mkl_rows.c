/* Blocks of rows of MKL's products with packed factors: operators/backends/row_products.py. */
#include "typed.h"

/* m n k; a and b: whether transposed, address, step; packed; c, step; row of bias or 0;
   functions that pack and multiply, alpha and beta as doubles; rows at a time */
EXPORT(mkl_pack)(const word *b, word t, word n) {
  const double *factors = (const double *)(b + 15);
  if (!t)
    ((void (*)(int, int, int, int, int, int, T, const T *, int, T *))b[13])(
        101, 162, 111 + b[6], b[17], b[1], b[2], factors[0], (const T *)b[7], b[8],
        (T *)b[9]);
}
EXPORT(mkl_rows)(const word *b, word c, word blocks) {
  const double *factors = (const double *)(b + 15);
  const word r0 = b[0] * c / blocks, r1 = b[0] * (c + 1) / blocks;
  const T *a = (const T *)b[4] + r0 * (b[3] ? 1 : b[5]);
  T *out = (T *)b[10] + r0 * b[11];
  for (word r = 0; b[12] && r < r1 - r0; r++)
    memcpy(out + r * b[11], (const T *)b[12], b[1] * sizeof(T));
  ((void (*)(int, int, int, int, int, int, const T *, int, const T *, int, T, T *, int))b[14])(
      101, 111 + b[3], 151, r1 - r0, b[1], b[2], a, b[5], (const T *)b[9], b[8], factors[1],
      out, b[11]);
}
