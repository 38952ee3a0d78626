/* Products of one row with a matrix that is read as it lies: operators/backends/products/vector_products.py. */
#include "typed.h"
#include "vector_products_arguments.h"

/* out = alpha x w and `begin`, in chunks of `high` rows of w, of which each has its own sums */
EXPORT(vector)(const struct vector *a, word t, word threads) {
  const word k = a->k, n = a->n, step = a->step, high = a->high, count = (k + high - 1) / high;
  const word wide = (n + threads - 1) / threads, c0 = wide * t < n ? wide * t : n;
  const word c1 = c0 + wide < n ? c0 + wide : n;
  const T *x = a->x, *from = a->begin;
  const T alpha = a->alpha;
  T *out = a->out;
  for (word c = 0; c < count; c++) {
    const word chunk = a->backward ? count - 1 - c : c, end = chunk * high + high;
    T *restrict s = a->sums + chunk * n;
    memset(s + c0, 0, (c1 - c0) * sizeof(T));
    word i = chunk * high;
    const word last = end < k ? end : k;
    for (; i + 4 <= last; i += 4) {
      const T *w = a->w + i * step, *w1 = w + step, *w2 = w1 + step;
      const T *w3 = w2 + step, x0 = x[i], x1 = x[i + 1], x2 = x[i + 2], x3 = x[i + 3];
#pragma omp simd
      for (word j = c0; j < c1; j++)
        s[j] += x0 * w[j] + x1 * w1[j] + x2 * w2[j] + x3 * w3[j];
    }
    for (; i < last; i++) {
      const T *w = a->w + i * step, x0 = x[i];
#pragma omp simd
      for (word j = c0; j < c1; j++) s[j] += x0 * w[j];
    }
  }
  T *restrict s = a->sums;
  for (word c = 1; c < count; c++)
#pragma omp simd
    for (word j = c0; j < c1; j++) s[j] += s[c * n + j];
  for (word j = c0; j < c1; j++) out[j] = alpha * s[j] + (from ? from[j] : 0);
}

/* the other direction for the next run */
EXPORT(turn)(struct vector *a, word t, word threads) {
  if (!t) a->backward ^= 1;
}
