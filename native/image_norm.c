/* Batch norm: operators/direct/batch_norm.py.

   Arrays are rows of channels (side: 1), or planes of one channel each, image by image (side: 0).
   Sums go over blocks that stay in the first cache: mean and squares about it of each block, put
   together in double (Chan, Golub and LeVeque 1979), so that two readings cost about one. */
#include "vectors.h"

enum { BLOCK = 4096 / sizeof(T) };  /* elements of a block; its vectors: at least four rows */

INLINE vec_t load(const T *x, word lanes) {
  if (lanes >= LANES) return *(const row_t *)x;
  vec_t a = {0};
  memcpy(&a, x, lanes * sizeof(T));
  return a;
}

INLINE void store(T *x, vec_t a, word lanes) {
  if (lanes >= LANES)
    *(row_t *)x = a;
  else
    memcpy(x, &a, lanes * sizeof(T));
}

INLINE double total_of(vec_t a) {
  double sum = 0;
  for (int l = 0; l < LANES; l++) sum += a[l];
  return sum;
}

/* adds a block of `count` values with their mean and the squares about it */
INLINE void join(double *sum, double count, double mean, double squares) {
  const double before = sum[0], all = before + count, off = mean - sum[1];
  sum[0] = all;
  sum[1] += off * count / all;
  sum[2] += squares + off * off * before * count / all;
}

static void rows_moments(const T *x, word rows, word c, word lanes, double *sum) {
  vec_t s[4] = {{0}, {0}, {0}, {0}}, q[4] = {{0}, {0}, {0}, {0}};
  word r = 0;
  for (; r + 4 <= rows; r += 4)
    for (int i = 0; i < 4; i++) s[i] += load(x + (r + i) * c, lanes);
  for (; r < rows; r++) s[0] += load(x + r * c, lanes);
  const vec_t mean = ((s[0] + s[1]) + (s[2] + s[3])) / (T)rows;
  for (r = 0; r + 4 <= rows; r += 4)
    for (int i = 0; i < 4; i++) {
      const vec_t a = load(x + (r + i) * c, lanes) - mean;
      q[i] += a * a;
    }
  for (; r < rows; r++) {
    const vec_t a = load(x + r * c, lanes) - mean;
    q[0] += a * a;
  }
  const vec_t all = (q[0] + q[1]) + (q[2] + q[3]);
  for (word l = 0; l < least(lanes, LANES); l++) join(sum + 3 * l, rows, mean[l], all[l]);
}

static void plane_moments(const T *x, word size, double *sum) {
  for (word at = 0; at < size; at += BLOCK) {
    const word count = least(BLOCK, size - at), whole = count / LANES;
    vec_t s = {0}, q = {0};
    for (word v = 0; v < whole; v++) s += load(x + at + v * LANES, LANES);
    double mean = total_of(s), squares = 0;
    for (word i = whole * LANES; i < count; i++) mean += x[at + i];
    mean /= count;
    for (word v = 0; v < whole; v++) {
      const vec_t a = load(x + at + v * LANES, LANES) - (T)mean;
      q += a * a;
    }
    squares = total_of(q);
    for (word i = whole * LANES; i < count; i++)
      squares += (x[at + i] - mean) * (x[at + i] - mean);
    join(sum, count, mean, squares);
  }
}

/* parts, side, images, channels, size of a plane, x, step of its images, moments: three doubles a
   channel for each part */
EXPORT(channel_moments)(const word *b, word t, word threads) {
  const word parts = b[0], c = b[3], size = b[4];
  for (word part = parts * t / threads; part < parts * (t + 1) / threads; part++) {
    double *sum = (double *)b[7] + part * 3 * c;
    memset(sum, 0, 3 * c * sizeof(double));
    if (b[1]) {
      const word rows = b[2] * size, end = rows * (part + 1) / parts;
      const word few = BLOCK * 4 / c > 16 ? BLOCK * 4 / c : 16;
      for (word r = rows * part / parts; r < end; r += few)
        for (word i = 0; i < c; i += LANES)
          rows_moments((const T *)b[5] + r * c + i, least(few, end - r), c, c - i, sum + 3 * i);
      continue;
    }
    for (word n = b[2] * part / parts; n < b[2] * (part + 1) / parts; n++)
      for (word i = 0; i < c; i++)
        plane_moments((const T *)b[5] + n * b[6] + i * size, size, sum + 3 * i);
  }
}

#include <math.h>

/* parts, channels, moments (or 0: the running values are used); running mean and variance; where
   these go then (or 0); momentum and epsilon as doubles; mean and 1 / deviation that are used;
   scale; factor = scale / deviation */
EXPORT(settle)(const word *b, word t, word threads) {
  const word parts = b[0], c = b[1];
  const double momentum = *(const double *)b[7], epsilon = *(const double *)b[8];
  const T *run_mean = (const T *)b[3], *run_var = (const T *)b[4], *scale = (const T *)b[11];
  T *mean_out = (T *)b[5], *var_out = (T *)b[6], *used = (T *)b[9], *inverse = (T *)b[10];
  T *factor = (T *)b[12];
  for (word i = c * t / threads; i < c * (t + 1) / threads; i++) {
    double mean = run_mean[i], var = run_var[i];
    if (b[2]) {
      double sum[3] = {0, 0, 0};
      for (word part = 0; part < parts; part++) {
        const double *one = (const double *)b[2] + (part * c + i) * 3;
        if (one[0]) join(sum, one[0], one[1], one[2]);
      }
      const double unbiased = sum[2] / (sum[0] - 1);
      if (mean_out) mean_out[i] = (1 - momentum) * mean + momentum * sum[1];
      if (var_out) var_out[i] = (1 - momentum) * var + momentum * unbiased;
      mean = sum[1];
      var = sum[2] / sum[0];
    } else {
      if (mean_out) mean_out[i] = mean;
      if (var_out) var_out[i] = var;
    }
    const double inv = 1 / sqrt(var + epsilon);
    used[i] = mean;
    inverse[i] = inv;
    factor[i] = scale[i] * inv;
  }
}

/* CNTK's weights of statistics, as two doubles: of this minibatch in the running ones, and of these
   in the ones that are used. Samples of the minibatch (0: it does not train); samples seen before,
   and where their number goes; time constants of running and of blending; the two weights; where
   the weight of this minibatch goes (or 0) */
EXPORT(weights)(const word *b, word t, word threads) {
  if (t) return;
  const double samples = b[0], seen = *(const double *)b[1], time = *(const double *)b[3];
  const double blend = *(const double *)b[4];
  double moving = 0, blended = 1;
  if (b[0] && seen == 0) {
    moving = 1, blended = 0;
  } else if (b[0]) {
    moving = time < 0    ? samples / (samples + seen)
             : time == 0 ? 1
             : isinf(time) ? 0
                           : 1 - EXP(-samples / time);
    blended = isinf(blend) ? 1 : blend > 0 ? blend / (blend + samples) : 0;
  }
  const int frozen = moving == 0 && blended == 1;
  *(double *)b[2] = frozen ? seen : seen + samples;
  ((double *)b[5])[0] = moving;
  ((double *)b[5])[1] = blended;
  if (b[6]) *(double *)b[6] = 1 - blended;
}

/* parts, channels, moments (or 0); running mean and variance; where these go then; the two weights;
   epsilon as a double; mean and 1 / deviation that are used; scale; factor = scale / deviation */
EXPORT(settle_blended)(const word *b, word t, word threads) {
  const word parts = b[0], c = b[1];
  const double moving = ((const double *)b[7])[0], blended = ((const double *)b[7])[1];
  const double epsilon = *(const double *)b[8];
  const T *scale = (const T *)b[11];
  for (word i = c * t / threads; i < c * (t + 1) / threads; i++) {
    double mean = ((const T *)b[3])[i], var = ((const T *)b[4])[i];
    double used = mean, inverse = 1 / sqrt(var + epsilon);
    if (b[2] && !(moving == 0 && blended == 1)) {
      double sum[3] = {0, 0, 0};
      for (word part = 0; part < parts; part++) {
        const double *one = (const double *)b[2] + (part * c + i) * 3;
        if (one[0]) join(sum, one[0], one[1], one[2]);
      }
      const double unbiased = sum[0] > 1 ? sum[2] / (sum[0] - 1) : 0 * sum[2];
      mean = moving * sum[1] + (1 - moving) * mean;
      var = moving * unbiased + (1 - moving) * var;
      used = blended * mean + (1 - blended) * sum[1];
      inverse = (1 - blended) / sqrt(sum[2] / sum[0] + epsilon);
      if (blended) inverse += blended / sqrt(var + epsilon);
    }
    ((T *)b[5])[i] = mean;
    ((T *)b[6])[i] = var;
    ((T *)b[9])[i] = used;
    ((T *)b[10])[i] = inverse;
    ((T *)b[12])[i] = scale[i] * inverse;
  }
}

/* places, channels; mean, factor and bias of batch norm; bias before it (or 0) and its step; where
   factors and terms go, with zeros after them: (x + before - mean) * factor + bias is
   x * factor + term */
EXPORT(fold)(const word *b, word t, word threads) {
  const T *mean = (const T *)b[2], *factor = (const T *)b[3], *bias = (const T *)b[4];
  const T *before = (const T *)b[5];
  T *factors = (T *)b[7], *terms = (T *)b[8];
  for (word i = b[0] * t / threads; i < b[0] * (t + 1) / threads; i++) {
    const word is = i < b[1];
    const double off = is ? (before ? (double)before[i * b[6]] : 0) - mean[i] : 0;
    factors[i] = is ? factor[i] : 0;
    terms[i] = is ? bias[i] + off * factor[i] : 0;
  }
}

/* side, images, channels, size of a plane; x and out, steps of their images; mean, factor, bias:
   out = (x - mean) * factor + bias */
EXPORT(apply)(const word *b, word t, word threads) {
  const word c = b[2], size = b[3];
  const T *mean = (const T *)b[8], *factor = (const T *)b[9], *bias = (const T *)b[10];
  if (b[0]) {
    const word rows = b[1] * size, begin = rows * t / threads, end = rows * (t + 1) / threads;
    const word few = BLOCK * 4 / c > 16 ? BLOCK * 4 / c : 16;
    for (word r0 = begin; r0 < end; r0 += few)
      for (word i = 0; i < c; i += LANES) {
        const word lanes = c - i;
        const vec_t m = load(mean + i, lanes), f = load(factor + i, lanes);
        const vec_t a = load(bias + i, lanes);
        const T *x = (const T *)b[4] + i;
        T *out = (T *)b[6] + i;
        for (word r = r0; r < least(end, r0 + few); r++)
          store(out + r * c, (load(x + r * c, lanes) - m) * f + a, lanes);
      }
    return;
  }
  for (word u = b[1] * c * t / threads; u < b[1] * c * (t + 1) / threads; u++) {
    const word n = u / c, i = u % c;
    const T *x = (const T *)b[4] + n * b[5] + i * size, m = mean[i], f = factor[i], a = bias[i];
    T *out = (T *)b[6] + n * b[7] + i * size;
    for (word j = 0; j < size; j++) out[j] = (x[j] - m) * f + a;
  }
}

/* parts, side, images, channels, size; x, its step; gradient, its step; mean; sums: two doubles a
   channel for each part, of g and of g * (x - mean) */
EXPORT(slopes)(const word *b, word t, word threads) {
  const word parts = b[0], c = b[3], size = b[4];
  const T *mean = (const T *)b[9];
  for (word part = parts * t / threads; part < parts * (t + 1) / threads; part++) {
    double *sum = (double *)b[10] + part * 2 * c;
    memset(sum, 0, 2 * c * sizeof(double));
    if (b[1]) {
      const word rows = b[2] * size, end = rows * (part + 1) / parts;
      const word few = BLOCK * 2 / c > 16 ? BLOCK * 2 / c : 16;
      for (word r0 = rows * part / parts; r0 < end; r0 += few)
        for (word i = 0; i < c; i += LANES) {
          const word lanes = c - i, last = least(end, r0 + few);
          const T *x = (const T *)b[5] + i, *g = (const T *)b[7] + i;
          const vec_t m = load(mean + i, lanes);
          vec_t s[4] = {{0}, {0}, {0}, {0}}, q[4] = {{0}, {0}, {0}, {0}};
          word r = r0;
          for (; r + 4 <= last; r += 4)
            for (int k = 0; k < 4; k++) {
              const vec_t a = load(g + (r + k) * c, lanes);
              s[k] += a;
              q[k] += a * (load(x + (r + k) * c, lanes) - m);
            }
          for (; r < last; r++) {
            const vec_t a = load(g + r * c, lanes);
            s[0] += a;
            q[0] += a * (load(x + r * c, lanes) - m);
          }
          const vec_t all = (s[0] + s[1]) + (s[2] + s[3]), product = (q[0] + q[1]) + (q[2] + q[3]);
          for (word l = 0; l < least(lanes, LANES); l++) {
            sum[2 * (i + l)] += all[l];
            sum[2 * (i + l) + 1] += product[l];
          }
        }
      continue;
    }
    for (word n = b[2] * part / parts; n < b[2] * (part + 1) / parts; n++)
      for (word i = 0; i < c; i++) {
        const T *x = (const T *)b[5] + n * b[6] + i * size, m = mean[i];
        const T *g = (const T *)b[7] + n * b[8] + i * size;
        for (word at = 0; at < size; at += BLOCK) {
          const word count = least(BLOCK, size - at), whole = count / LANES;
          vec_t s = {0}, q = {0};
          for (word v = 0; v < whole; v++) {
            const vec_t a = load(g + at + v * LANES, LANES);
            s += a;
            q += a * (load(x + at + v * LANES, LANES) - m);
          }
          double all = total_of(s), product = total_of(q);
          for (word j = at + whole * LANES; j < at + count; j++) {
            all += g[j];
            product += g[j] * (x[j] - m);
          }
          sum[2 * i] += all;
          sum[2 * i + 1] += product;
        }
      }
  }
}

/* parts, channels, sums; values of a channel, or 0 where the statistics do not follow x; 1 /
   deviation; scale; gradients of scale and bias (or 0); then for each channel three factors:
   x_grad = g * first + (x - mean) * second + third; how far the statistics follow x, as a double
   (or 0: all the way) */
EXPORT(factors)(const word *b, word t, word threads) {
  const word parts = b[0], c = b[1];
  const T *inverse = (const T *)b[4], *scale = (const T *)b[5];
  T *scale_grad = (T *)b[6], *bias_grad = (T *)b[7], *out = (T *)b[8];
  const double follows = b[9] ? *(const double *)b[9] : 1, weight = b[3] ? follows / b[3] : 0;
  for (word i = c * t / threads; i < c * (t + 1) / threads; i++) {
    double all = 0, product = 0;
    for (word part = 0; part < parts; part++) {
      all += ((const double *)b[2])[(part * c + i) * 2];
      product += ((const double *)b[2])[(part * c + i) * 2 + 1];
    }
    product *= inverse[i];
    if (scale_grad) scale_grad[i] = product;
    if (bias_grad) bias_grad[i] = all;
    const double first = (double)scale[i] * inverse[i];
    out[i] = first;
    out[c + i] = weight ? -first * inverse[i] * product * weight : 0;
    out[2 * c + i] = weight ? -first * all * weight : 0;
  }
}

/* side, images, channels, size; x and its step, gradient and its, mean, factors, out and its */
EXPORT(slope_of)(const word *b, word t, word threads) {
  const word c = b[2], size = b[3];
  const T *mean = (const T *)b[8], *factors = (const T *)b[9];
  if (b[0]) {
    const word rows = b[1] * size, begin = rows * t / threads, end = rows * (t + 1) / threads;
    const word few = BLOCK * 2 / c > 16 ? BLOCK * 2 / c : 16;
    for (word r0 = begin; r0 < end; r0 += few)
      for (word i = 0; i < c; i += LANES) {
        const word lanes = c - i;
        const vec_t m = load(mean + i, lanes), p = load(factors + i, lanes);
        const vec_t q = load(factors + c + i, lanes), a = load(factors + 2 * c + i, lanes);
        const T *x = (const T *)b[4] + i, *g = (const T *)b[6] + i;
        T *out = (T *)b[10] + i;
        for (word r = r0; r < least(end, r0 + few); r++)
          store(out + r * c,
                  load(g + r * c, lanes) * p + ((load(x + r * c, lanes) - m) * q + a), lanes);
      }
    return;
  }
  for (word u = b[1] * c * t / threads; u < b[1] * c * (t + 1) / threads; u++) {
    const word n = u / c, i = u % c;
    const T *x = (const T *)b[4] + n * b[5] + i * size, *g = (const T *)b[6] + n * b[7] + i * size;
    const T m = mean[i], p = factors[i], q = factors[c + i], a = factors[2 * c + i];
    T *out = (T *)b[10] + n * b[11] + i * size;
    for (word j = 0; j < size; j++) out[j] = g[j] * p + ((x[j] - m) * q + a);
  }
}
