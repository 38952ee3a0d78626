/* Products of one row with a matrix that is read as it lies: operators/backends/vector_products.py. */
#include "typed.h"

/* k n; x; w, its step; out; what to begin with, or 0; alpha as a double; rows of a chunk, sums of
   the chunks; direction */
EXPORT(vector)(const word *b, word t, word threads) {
  const word k = b[0], n = b[1], step = b[4], high = b[8], count = (k + high - 1) / high;
  const word wide = (n + threads - 1) / threads, c0 = wide * t < n ? wide * t : n;
  const word c1 = c0 + wide < n ? c0 + wide : n;
  const T *x = (const T *)b[2], *from = (const T *)b[6];
  const T alpha = *(const double *)(b + 7);
  T *out = (T *)b[5];
  for (word c = 0; c < count; c++) {
    const word chunk = b[10] ? count - 1 - c : c, end = chunk * high + high;
    T *restrict s = (T *)b[9] + chunk * n;
    memset(s + c0, 0, (c1 - c0) * sizeof(T));
    word i = chunk * high;
    const word last = end < k ? end : k;
    for (; i + 4 <= last; i += 4) {
      const T *w = (const T *)b[3] + i * step, *w1 = w + step, *w2 = w1 + step;
      const T *w3 = w2 + step, x0 = x[i], x1 = x[i + 1], x2 = x[i + 2], x3 = x[i + 3];
#pragma omp simd
      for (word j = c0; j < c1; j++)
        s[j] += x0 * w[j] + x1 * w1[j] + x2 * w2[j] + x3 * w3[j];
    }
    for (; i < last; i++) {
      const T *w = (const T *)b[3] + i * step, x0 = x[i];
#pragma omp simd
      for (word j = c0; j < c1; j++) s[j] += x0 * w[j];
    }
  }
  T *restrict s = (T *)b[9];
  for (word c = 1; c < count; c++)
#pragma omp simd
    for (word j = c0; j < c1; j++) s[j] += s[c * n + j];
  for (word j = c0; j < c1; j++) out[j] = alpha * s[j] + (from ? from[j] : 0);
}

/* the other direction for the next run */
EXPORT(turn)(word *b, word t, word threads) {
  if (!t) b[10] ^= 1;
}
