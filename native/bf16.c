/* MKL's products of factors that are rounded to bfloat16 first: operators/backends/bf16.py. */
#include "base.h"

typedef uint16_t half;

/* The nearest, of two the even one; NaN stays NaN. */
static void rounded(word rows, word cols, word step, const float *from, half *to) {
  for (word i = 0; i < rows; i++) {
    const uint32_t *bits = (const uint32_t *)(from + i * step);
    for (word j = 0; j < cols; j++) {
      uint32_t x = bits[j], up = x + 0x7fff + ((x >> 16) & 1);
      to[i * cols + j] = (x & 0x7fffffff) > 0x7f800000 ? (x >> 16) | 0x40 : up >> 16;
    }
  }
}
typedef void product(int, int, int, int, int, int, float, const half *, int, const half *, int,
                     float, float *, int);
/* function, transposed a and b, m, n, k, lda, ldb, ldc, memory for a and b; then alpha and beta */
EXPORT(bf16_product)(const word *h, const float *a, const float *b, float *c) {
  const double *factors = (const double *)(h + 11);
  word m = h[3], n = h[4], k = h[5];
  word a_rows = h[1] ? k : m, a_cols = h[1] ? m : k, b_rows = h[2] ? n : k, b_cols = h[2] ? k : n;
  half *left = (half *)h[9], *right = (half *)h[10];
  rounded(a_rows, a_cols, h[6], a, left);
  rounded(b_rows, b_cols, h[7], b, right);
  ((product *)h[0])(101, 111 + h[1], 111 + h[2], m, n, k, factors[0], left, a_cols, right, b_cols,
                    factors[1], c, h[8]);
}
