/* Softmax, losses and normalization over the rows of a matrix: operators/backends/rows.py.

   A row (or a column, for sums over rows) is computed by one thread in one order. */
#include "rows.h"

enum { TILE = 64 };

/* rows, columns, x, out; whether the logarithm is wanted */
EXPORT(softmax)(const word *b, word t, word parts) {
  const word n = b[1];
  for (word i = b[0] * t / parts; i < b[0] * (t + 1) / parts; i++) {
    const T *x = (const T *)b[2] + i * n;
    T *y = (T *)b[3] + i * n;
    const T top = top_of(x, n);
    if (b[4]) {
      SUM(total, n, EXP(x[j] - top))
      const T whole = LOG((T)total);
#pragma omp simd
      for (word j = 0; j < n; j++) y[j] = (x[j] - top) - whole;
    } else {
      const T share = 1 / powers_of(x, y, n, top);
#pragma omp simd
      for (word j = 0; j < n; j++) y[j] *= share;
    }
  }
}

/* rows, columns, out, out_grad, x_grad; whether out is the logarithm */
EXPORT(softmax_grad)(const word *b, word t, word parts) {
  const word n = b[1];
  for (word i = b[0] * t / parts; i < b[0] * (t + 1) / parts; i++) {
    const T *y = (const T *)b[2] + i * n, *g = (const T *)b[3] + i * n;
    T *to = (T *)b[4] + i * n;
    if (b[5]) {
      SUM(total, n, g[j])
      const T all = total;
#pragma omp simd
      for (word j = 0; j < n; j++) to[j] = g[j] - EXP(y[j]) * all;
    } else {
      SUM(total, n, g[j] * y[j])
      const T all = total;
#pragma omp simd
      for (word j = 0; j < n; j++) to[j] = (g[j] - all) * y[j];
    }
  }
}

/* the class of sample i by the labels in b[3]; -1 where it counts for nothing: its label is b[6],
   or it is no class, which b[7] is set for */
INLINE word class_of(word *b, word i) {
  const word label = ((const word *)b[3])[i];
  if (label == b[6]) return -1;
  if (label >= 0 && label < b[1]) return label;
  __atomic_store_n(&b[7], 1, __ATOMIC_RELAXED);
  return -1;
}

/* f of x[0] to x[n - 1] in whole tiles: there is room behind. So all are computed by vectors, and
   no number depends on what it stands beside. */
#define TILED(x, n, f)                                                          \
  for (word start_ = 0; start_ < (n); start_ += TILE) {                         \
    T *const tile_ = (x) + start_;                                              \
    for (word j = least((n) - start_, TILE); j < TILE; j++) tile_[j] = 1;       \
    _Pragma("omp simd") for (word j = 0; j < TILE; j++) tile_[j] = f(tile_[j]); \
  }

/* samples, classes, x, labels, losses, softmax or 0, ignored label, mark. Rows of few classes are
   shorter than a vector, so the powers of several are taken together. */
EXPORT(cross_entropy)(word *b, word t, word parts) {
  const word n = b[1], high = n < BLOCK ? BLOCK / n : 1, last = b[0] * (t + 1) / parts;
  for (word r = b[0] * t / parts; r < last; r += high) {
    const word count = least(high, last - r);
    T powers[BLOCK], total[BLOCK], picked[BLOCK];
    T *y = b[5] ? (T *)b[5] + r * n : 0, *out = (T *)b[4] + r;
    for (word i = 0; i < count; i++) {
      const T *x = (const T *)b[2] + (r + i) * n, top = top_of(x, n);
      const word class = class_of(b, r + i);
      picked[i] = class < 0 ? 0 : x[class] - top;
      if (n > BLOCK && y) {
        total[i] = powers_of(x, y, n, top);
      } else if (n > BLOCK) {
        SUM(sum, n, EXP(x[j] - top))
        total[i] = sum;
      } else {
#pragma omp simd
        for (word j = 0; j < n; j++) powers[i * n + j] = x[j] - top;
      }
    }
    if (n <= BLOCK) {
      TILED(powers, count * n, EXP)
      for (word i = 0; i < count; i++) {
        SUM(sum, n, powers[i * n + j])
        total[i] = sum;
      }
    }
    for (word i = 0; y && i < count; i++) {
      const T share = 1 / total[i], *from = n > BLOCK ? y : powers + i * n;
      T *to = y + i * n;
#pragma omp simd
      for (word j = 0; j < n; j++) to[j] = from[j] * share;
    }
    TILED(total, count, LOG)
    for (word i = 0; i < count; i++)  /* nothing for what is ignored, whatever x holds */
      out[i] = ((const word *)b[3])[r + i] == b[6] ? 0 : total[i] - picked[i];
  }
}

/* samples, classes, softmax, labels, gradient of the losses, that of x, ignored label, mark */
EXPORT(cross_entropy_grad)(word *b, word t, word parts) {
  const word n = b[1];
  for (word i = b[0] * t / parts; i < b[0] * (t + 1) / parts; i++) {
    const T *y = (const T *)b[2] + i * n, grad = ((const T *)b[4])[i];
    T *to = (T *)b[5] + i * n;
    const word class = class_of(b, i);
    if (class < 0) {
      memset(to, 0, n * sizeof(T));
      continue;
    }
    const T picked = (y[class] - 1) * grad;
#pragma omp simd
    for (word j = 0; j < n; j++) to[j] = y[j] * grad;
    to[class] = picked;
  }
}

/* elements, x, where their mean goes */
EXPORT(mean)(const word *b, word t, word parts) {
  if (t) return;
  const word n = b[0];
  const T *x = (const T *)b[1];
  SUM(total, n, x[j])
  *(T *)b[2] = total / n;
}

/* elements, out, what each of them is: a factor, and where another one is, or 0 */
EXPORT(fill)(const word *b, word t, word parts) {
  const T factor = real(b[2]), value = b[3] ? factor * *(const T *)b[3] : factor;
  for (word j = b[0] * t / parts; j < b[0] * (t + 1) / parts; j++) ((T *)b[1])[j] = value;
}

/* rows, columns, x, out, scale, bias, mean, inverse deviation, epsilon, whether it is centered;
   0 for what is not there */
EXPORT(norm)(const word *b, word t, word parts) {
  const word n = b[1];
  const T *scale = (const T *)b[4], *bias = (const T *)b[5];
  for (word i = b[0] * t / parts; i < b[0] * (t + 1) / parts; i++) {
    const T *x = (const T *)b[2] + i * n;
    T *y = (T *)b[3] + i * n, mean = 0;
    if (b[9]) {
      SUM(total, n, x[j])
      mean = total / n;
    }
    SUM(squares, n, (x[j] - mean) * (x[j] - mean))
    const T inverse = 1 / sqrt(squares / n + real(b[8]));
    if (b[6]) ((T *)b[6])[i] = mean;
    if (b[7]) ((T *)b[7])[i] = inverse;
    if (scale && bias) {
#pragma omp simd
      for (word j = 0; j < n; j++) y[j] = (x[j] - mean) * inverse * scale[j] + bias[j];
    } else {
#pragma omp simd
      for (word j = 0; j < n; j++) y[j] = (x[j] - mean) * inverse;
      for (word j = 0; scale && j < n; j++) y[j] *= scale[j];
      for (word j = 0; bias && j < n; j++) y[j] += bias[j];
    }
  }
}

/* rows, columns, x, out_grad, x_grad, scale, mean or 0, inverse deviation */
EXPORT(norm_grad)(const word *b, word t, word parts) {
  const word n = b[1];
  const T *scale = (const T *)b[5], *means = (const T *)b[6];
  for (word i = b[0] * t / parts; i < b[0] * (t + 1) / parts; i++) {
    const T *x = (const T *)b[2] + i * n, *g = (const T *)b[3] + i * n;
    T *to = (T *)b[4] + i * n;
    const T mean = means ? means[i] : 0, inverse = ((const T *)b[7])[i];
    T shift = 0;
    if (scale) {
#pragma omp simd
      for (word j = 0; j < n; j++) to[j] = g[j] * scale[j];
      g = to;
    }
    if (means) {
      SUM(total, n, g[j])
      shift = total / n;
    }
    SUM(along, n, g[j] * (x[j] - mean))
    const T slope = along / n * inverse * inverse;
#pragma omp simd
    for (word j = 0; j < n; j++) to[j] = inverse * (g[j] - shift - (x[j] - mean) * slope);
  }
}

/* rows, columns, x, out_grad, scale_grad, bias_grad, mean or 0, inverse deviation */
EXPORT(norm_sums)(const word *b, word t, word parts) {
  const word rows = b[0], n = b[1], tiles = (n + TILE - 1) / TILE;
  const T *means = (const T *)b[6], *inverses = (const T *)b[7];
  for (word tile = tiles * t / parts; tile < tiles * (t + 1) / parts; tile++) {
    const word c = tile * TILE, width = least(TILE, n - c);
    double scales[TILE] = {0}, biases[TILE] = {0};
    for (word r = 0; r < rows; r += BLOCK) {
      T along[TILE] = {0}, plain[TILE] = {0};
      for (word i = r; i < least(rows, r + BLOCK); i++) {
        const T *x = (const T *)b[2] + i * n + c, *g = (const T *)b[3] + i * n + c;
        const T mean = means ? means[i] : 0, inverse = inverses[i];
#pragma omp simd
        for (word j = 0; j < width; j++) {
          along[j] += g[j] * ((x[j] - mean) * inverse);
          plain[j] += g[j];
        }
      }
      for (word j = 0; j < width; j++) scales[j] += along[j], biases[j] += plain[j];
    }
    for (word j = 0; b[4] && j < width; j++) ((T *)b[4])[c + j] = scales[j];
    for (word j = 0; b[5] && j < width; j++) ((T *)b[5])[c + j] = biases[j];
  }
}

/* rows, columns, x, y, sums of blocks of rows, blocks: of each column the sums of x and of x y */
EXPORT(moments)(const word *b, word t, word parts) {
  const word n = b[1];
  for (word block = b[5] * t / parts; block < b[5] * (t + 1) / parts; block++) {
    T *plain = (T *)b[4] + 2 * n * block, *along = plain + n;
    memset(plain, 0, 2 * n * sizeof(T));
    for (word i = b[0] * block / b[5]; i < b[0] * (block + 1) / b[5]; i++) {
      const T *x = (const T *)b[2] + i * n, *y = (const T *)b[3] + i * n;
#pragma omp simd
      for (word j = 0; j < n; j++) {
        plain[j] += x[j];
        along[j] += x[j] * y[j];
      }
    }
  }
}

/* blocks, columns of the result, sums, columns of x (some times as many); where the sums of x are
   added up, and those of x y; factors of both */
EXPORT(added)(const word *b, word t, word parts) {
  const word width = b[1];
  for (word j = width * t / parts; j < width * (t + 1) / parts; j++) {
    double plain = 0, along = 0;
    for (word half = 0; half < 2; half++)
      for (word i = 0; i < b[0]; i++)
        for (word c = j; c < b[3]; c += width)
          *(half ? &along : &plain) += ((const T *)b[2])[(2 * i + half) * b[3] + c];
    ((T *)b[4])[j] = plain * real(b[6]);
    ((T *)b[5])[j] = along * real(b[7]);
  }
}
