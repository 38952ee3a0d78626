/* A BLAS's product as a function of four addresses: operators/backends/blas.py. */
#include "typed.h"

/* function, transposed a and b, m, n, k, lda, ldb, ldc; then alpha and beta as doubles; I: the
   integers of the BLAS */
#define GEMM(name, I)                                                                   \
  EXPORT(name)(const word *h, const T *a, const T *b, T *c) {                           \
    const double *factors = (const double *)(h + 9);                                    \
    ((void (*)(int, int, int, I, I, I, T, const T *, I, const T *, I, T, T *, I))h[0])( \
        101, 111 + h[1], 111 + h[2], h[3], h[4], h[5], factors[0], a, h[6], b, h[7],    \
        factors[1], c, h[8]);                                                           \
  }
GEMM(blas_product32, int32_t)
GEMM(blas_product64, int64_t)
