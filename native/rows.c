/* Softmax, losses and normalization over the rows of a matrix: operators/backends/rows.py.

   A row (or a column, for sums over rows) is computed by one thread in one order. */
#include "rows.h"
#include "rows_arguments.h"

enum { TILE = 64 };

EXPORT(softmax)(const struct softmax *a, word t, word parts) {
  const word n = a->columns;
  for (word i = a->rows * t / parts; i < a->rows * (t + 1) / parts; i++) {
    const T *x = a->x + i * n;
    T *y = a->out + i * n;
    const T top = top_of(x, n);
    if (a->logarithm) {
      const T whole = LOG((T)powers_of(x, 0, n, top));
#pragma omp simd
      for (word j = 0; j < n; j++) y[j] = (x[j] - top) - whole;
    } else {
      const T share = 1 / powers_of(x, y, n, top);
#pragma omp simd
      for (word j = 0; j < n; j++) y[j] *= share;
    }
  }
}

EXPORT(softmax_grad)(const struct softmax_grad *a, word t, word parts) {
  const word n = a->columns;
  for (word i = a->rows * t / parts; i < a->rows * (t + 1) / parts; i++) {
    const T *y = a->out + i * n, *g = a->out_grad + i * n;
    T *to = a->x_grad + i * n;
    if (a->logarithm) {
      SUM(total, n, g[j])
      const T all = total;
      for (word j = 0; j < n; j += LANES) {
        const vec_t share = exp_of(load_lanes(y + j, n - j, 0));
        store_lanes(to + j, load_lanes(g + j, n - j, 0) - share * all, n - j);
      }
    } else {
      SUM(total, n, g[j] * y[j])
      const T all = total;
#pragma omp simd
      for (word j = 0; j < n; j++) to[j] = (g[j] - all) * y[j];
    }
  }
}

/* -1 where a label counts for nothing: it is `ignored`, or it is no class, which `bad` is set for */
INLINE word class_of(word label, word classes, word ignored, word *bad) {
  if (label == ignored) return -1;
  if (label >= 0 && label < classes) return label;
  __atomic_store_n(bad, 1, __ATOMIC_RELAXED);
  return -1;
}

/* Logarithms of x[0] to x[n - 1] in whole tiles: there is room behind. So all are computed by
   vectors, and no number depends on what it stands beside. */
static void take_logarithms(T *x, word n) {
  for (T *tile = x; tile < x + n; tile += TILE) {
    for (word j = least(x + n - tile, TILE); j < TILE; j++) tile[j] = 1;
#pragma omp simd
    for (word j = 0; j < TILE; j++) tile[j] = LOG(tile[j]);
  }
}

/* Rows of few classes are shorter than a vector, so the powers of several are taken together. */
EXPORT(cross_entropy)(struct cross_entropy *a, word t, word parts) {
  const word n = a->classes, high = n < BLOCK ? BLOCK / n : 1;
  const word last = a->samples * (t + 1) / parts;
  for (word r = a->samples * t / parts; r < last; r += high) {
    const word count = least(high, last - r);
    T powers[BLOCK], total[BLOCK], picked[BLOCK], tops[BLOCK];
    T *y = a->softmax ? a->softmax + r * n : 0, *out = a->out + r;
    for (word i = 0; i < count; i++) {
      const T *x = a->x + (r + i) * n, top = tops[i] = top_of(x, n);
      if (a->labels) {
        const word class = class_of(a->labels[r + i], n, a->ignored, &a->bad);
        picked[i] = class < 0 ? 0 : x[class] - top;
      }
      if (n > BLOCK) {
        total[i] = powers_of(x, y, n, top);
      } else {
#pragma omp simd
        for (word j = 0; j < n; j++) powers[i * n + j] = x[j] - top;
      }
    }
    if (n <= BLOCK) {
      for (word j = 0; j < count * n; j += LANES)
        *(row_t *)(powers + j) = exp_of(*(row_t *)(powers + j));
      for (word i = 0; i < count; i++) {
        SUM(sum, n, powers[i * n + j])
        total[i] = sum;
      }
    }
    for (word i = 0; y && i < count; i++) {
      const T share = 1 / total[i], *from = n > BLOCK ? y + i * n : powers + i * n;
      T *to = y + i * n;
#pragma omp simd
      for (word j = 0; j < n; j++) to[j] = from[j] * share;
    }
    take_logarithms(total, count);
    for (word i = 0; i < count; i++) {
      const T *x = a->x + (r + i) * n, top = tops[i], whole = total[i];
      if (a->logs) {
        T *to = a->logs + (r + i) * n;
#pragma omp simd
        for (word j = 0; j < n; j++) to[j] = (x[j] - top) - whole;
      }
      if (a->labels) {  /* nothing for what is ignored, whatever x holds */
        out[i] = a->labels[r + i] == a->ignored ? 0 : whole - picked[i];
      } else {
        const T *weight = a->weights + (r + i) * n;
        SUM(loss, n, weight[j] * (whole - (x[j] - top)))
        out[i] = loss;
      }
    }
  }
}

EXPORT(cross_entropy_grad)(struct cross_entropy_grad *a, word t, word parts) {
  const word n = a->classes;
  for (word i = a->samples * t / parts; i < a->samples * (t + 1) / parts; i++) {
    const T *y = a->softmax + i * n, grad = a->out_grad[i];
    T *to = a->x_grad + i * n;
    if (a->weights) {
      const T *weight = a->weights + i * n;
      SUM(share, n, weight[j])
#pragma omp simd
      for (word j = 0; j < n; j++) to[j] = (y[j] * share - weight[j]) * grad;
      continue;
    }
    const word class = class_of(a->labels[i], n, a->ignored, &a->bad);
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

/* (exp(logs) - weights) * out_grad */
EXPORT(log_softmax_pull)(const struct log_softmax_pull *a, word t, word parts) {
  const T grad = *a->out_grad;
  for (word j = a->size * t / parts, end = a->size * (t + 1) / parts; j < end; j += LANES) {
    const vec_t power = exp_of(load_lanes(a->logs + j, end - j, 0));
    store_lanes(a->x_grad + j, (power - load_lanes(a->weights + j, end - j, 0)) * grad, end - j);
  }
}

/* where the largest number of a row is: the first one, or the first NaN if there is one */
INLINE word place_of_top(const T *x, word n) {
  vec_t tops = load_lanes(x, n, -INFINITY);
  flags_t blocks = {};
  for (word j = LANES; j < n; j += LANES) {
    const vec_t v = load_lanes(x + j, n - j, -INFINITY);
    const flags_t above = (v > tops) | ((v != v) & (tops == tops));
    tops = (vec_t)((above & (flags_t)v) | (~above & (flags_t)tops));
    blocks = (above & (flag_t)(j / LANES)) | (~above & blocks);
  }
  word best = (word)blocks[0] * LANES;
  T top = tops[0];
  for (int l = 1; l < LANES && l < n; l++) {
    const word place = (word)blocks[l] * LANES + l;
    const T v = tops[l];
    const int odd = v != v, was = top != top;
    if (odd != was ? odd : v > top || (!(v < top) && place < best)) best = place, top = v;
  }
  return best;
}

/* 1 for rows in which the class of the largest label is not among the `top` largest of x, else 0 */
EXPORT(misclassified)(const struct misclassified *a, word t, word parts) {
  const word n = a->classes;
  for (word i = a->samples * t / parts; i < a->samples * (t + 1) / parts; i++) {
    const T *x = a->x + i * n;
    const word wanted = place_of_top(a->label + i * n, n);
    if (a->top == 1) {
      a->out[i] = place_of_top(x, n) != wanted;
    } else {
      const T picked = x[wanted];
      word above = 0;
#pragma omp simd reduction(+ : above)
      for (word j = 0; j < n; j++) above += x[j] > picked;
      a->out[i] = above >= a->top;
    }
  }
}

EXPORT(mean)(const struct mean *a, word t, word parts) {
  if (t) return;
  const word n = a->size;
  const T *x = a->x;
  SUM(total, n, x[j])
  *a->out = total / (double)a->divisor;
}

EXPORT(fill)(const struct fill *a, word t, word parts) {
  const T factor = a->factor / (double)a->divisor, value = a->other ? factor * *a->other : factor;
  T *out = a->out;
  for (word j = a->size * t / parts; j < a->size * (t + 1) / parts; j++) out[j] = value;
}

EXPORT(norm)(const struct norm *a, word t, word parts) {
  const word n = a->columns;
  const T *scale = a->scale, *bias = a->bias;
  for (word i = a->rows * t / parts; i < a->rows * (t + 1) / parts; i++) {
    const T *x = a->x + i * n;
    T *y = a->out + i * n, mean = 0;
    if (a->centered) {
      SUM(total, n, x[j])
      mean = total / n;
    }
    SUM(squares, n, (x[j] - mean) * (x[j] - mean))
    const T inverse = 1 / sqrt(squares / n + a->epsilon);
    if (a->mean) a->mean[i] = mean;
    if (a->inverse) a->inverse[i] = inverse;
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

/* The gradient of x, and for each block of rows what these add to the gradients of bias and scale.
   A thread that took columns for these would read what another one has in its cache, and leave it
   there in a state in which writing to it again takes longer than all of this. */
EXPORT(norm_grad)(const struct norm_grad *a, word t, word parts) {
  const word n = a->columns, blocks = a->blocks;
  const T *scale = a->scale, *means = a->mean;
  for (word block = blocks * t / parts; block < blocks * (t + 1) / parts; block++) {
    T *plain = a->sums ? a->sums + 2 * n * block : 0, *along_each = plain ? plain + n : 0;
    if (plain) memset(plain, 0, 2 * n * sizeof(T));
    for (word i = a->rows * block / blocks; i < a->rows * (block + 1) / blocks; i++) {
      const T *x = a->x + i * n, *g = a->out_grad + i * n;
      T *to = a->x_grad + i * n;
      const T mean = means ? means[i] : 0, inverse = a->inverse[i];
      T shift = 0;
      if (plain) {
#pragma omp simd
        for (word j = 0; j < n; j++) {
          plain[j] += g[j];
          along_each[j] += g[j] * ((x[j] - mean) * inverse);
        }
      }
      if (!a->x_grad) continue;
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
}

/* of each block of rows, for each column, the sums of x and of x y */
EXPORT(moments)(const struct moments *a, word t, word parts) {
  const word n = a->columns, blocks = a->blocks;
  for (word block = blocks * t / parts; block < blocks * (t + 1) / parts; block++) {
    T *plain = a->sums + 2 * n * block, *along = plain + n;
    memset(plain, 0, 2 * n * sizeof(T));
    for (word i = a->rows * block / blocks; i < a->rows * (block + 1) / blocks; i++) {
      const T *x = a->x + i * a->x_step, *y = a->y + i * a->y_step;
#pragma omp simd
      for (word j = 0; j < n; j++) {
        plain[j] += x[j];
        along[j] += x[j] * y[j];
      }
    }
  }
}

/* the sums of all blocks, of columns `width` apart too, times factors */
EXPORT(added)(const struct added *a, word t, word parts) {
  const word width = a->width, last = width * (t + 1) / parts;
  for (word j0 = width * t / parts; j0 < last; j0 += TILE) {
    const word wide = least(TILE, last - j0);
    for (word half = 0; half < 2; half++) {
      T *to = half ? a->second : a->first;
      if (!to) continue;
      double total[TILE] = {0};
      for (word i = 0; i < a->blocks; i++)
        for (word c = j0; c < a->columns; c += width) {
          const T *from = a->sums + (2 * i + half) * a->columns + c;
          for (word j = 0; j < wide; j++) total[j] += from[j];
        }
      const double factor = half ? a->second_factor : a->first_factor;
      for (word j = 0; j < wide; j++) to[j0 + j] = total[j] * factor;
    }
  }
}
