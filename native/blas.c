/* A BLAS's product as a function of four addresses: operators/backends/products/blas.py. */
#include "typed.h"
#include "blas_arguments.h"

/* I: the integers of the BLAS */
#define GEMM(name, I)                                                                              \
  EXPORT(name)(const struct blas_product *h, const T *a, const T *b, T *c) {                       \
    ((void (*)(int, int, int, I, I, I, T, const T *, I, const T *, I, T, T *, I))h->function)(     \
        101, 111 + h->a_turned, 111 + h->b_turned, h->m, h->n, h->k, h->alpha, a, h->a_step, b,    \
        h->b_step, h->beta, c, h->c_step);                                                         \
  }
GEMM(blas_product32, int32_t)
GEMM(blas_product64, int64_t)
