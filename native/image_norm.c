/* Batch norm: operators/direct/batch_norm.py.

   Arrays are rows of channels (side: 1), or planes of one channel each, image by image (side: 0).
   Sums go over blocks that stay in the first cache: mean and squares about it of each block, put
   together in double (Chan, Golub and LeVeque 1979), so that two readings cost about one. */
#include "vectors.h"
#include "image_norm_arguments.h"

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

EXPORT(channel_moments)(const struct channel_moments *a, word t, word threads) {
  const word parts = a->parts, c = a->channels, size = a->size;
  for (word part = parts * t / threads; part < parts * (t + 1) / threads; part++) {
    double *sum = a->moments + part * 3 * c;
    memset(sum, 0, 3 * c * sizeof(double));
    if (a->side) {
      const word rows = a->images * size, end = rows * (part + 1) / parts;
      const word few = BLOCK * 4 / c > 16 ? BLOCK * 4 / c : 16;
      for (word r = rows * part / parts; r < end; r += few)
        for (word i = 0; i < c; i += LANES)
          rows_moments(a->x + r * c + i, least(few, end - r), c, c - i, sum + 3 * i);
      continue;
    }
    for (word n = a->images * part / parts; n < a->images * (part + 1) / parts; n++)
      for (word i = 0; i < c; i++)
        plane_moments(a->x + n * a->x_step + i * size, size, sum + 3 * i);
  }
}

#include <math.h>

EXPORT(settle)(const struct settle *a, word t, word threads) {
  const word parts = a->parts, c = a->channels;
  const double momentum = a->momentum, epsilon = a->epsilon;
  const T *run_mean = a->mean, *run_var = a->variance, *scale = a->scale;
  T *mean_out = a->mean_out, *var_out = a->variance_out, *used = a->used, *inverse = a->inverse;
  T *factor = a->factor;
  for (word i = c * t / threads; i < c * (t + 1) / threads; i++) {
    double mean = run_mean[i], var = run_var[i];
    if (a->moments) {
      double sum[3] = {0, 0, 0};
      for (word part = 0; part < parts; part++) {
        const double *one = a->moments + (part * c + i) * 3;
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

/* CNTK's weights of statistics: of this minibatch in the running ones, and of these in the ones that
   are used */
EXPORT(weights)(const struct weights *a, word t, word threads) {
  if (t) return;
  const double samples = a->samples, seen = *a->seen, time = *a->time, blend = *a->blend;
  double moving = 0, blended = 1;
  if (a->samples && seen == 0) {
    moving = 1, blended = 0;
  } else if (a->samples) {
    moving = time < 0    ? samples / (samples + seen)
             : time == 0 ? 1
             : isinf(time) ? 0
                           : 1 - EXP(-samples / time);
    blended = isinf(blend) ? 1 : blend > 0 ? blend / (blend + samples) : 0;
  }
  const int frozen = moving == 0 && blended == 1;
  *a->seen_out = frozen ? seen : seen + samples;
  a->weights[0] = moving;
  a->weights[1] = blended;
  if (a->own) *a->own = 1 - blended;
}

EXPORT(settle_blended)(const struct settle_blended *a, word t, word threads) {
  const word parts = a->parts, c = a->channels;
  const double moving = a->weights[0], blended = a->weights[1], epsilon = a->epsilon;
  const T *scale = a->scale;
  for (word i = c * t / threads; i < c * (t + 1) / threads; i++) {
    double mean = a->mean[i], var = a->variance[i];
    double used = mean, inverse = 1 / sqrt(var + epsilon);
    if (a->moments && !(moving == 0 && blended == 1)) {
      double sum[3] = {0, 0, 0};
      for (word part = 0; part < parts; part++) {
        const double *one = a->moments + (part * c + i) * 3;
        if (one[0]) join(sum, one[0], one[1], one[2]);
      }
      const double unbiased = sum[0] > 1 ? sum[2] / (sum[0] - 1) : 0 * sum[2];
      mean = moving * sum[1] + (1 - moving) * mean;
      var = moving * unbiased + (1 - moving) * var;
      used = blended * mean + (1 - blended) * sum[1];
      inverse = (1 - blended) / sqrt(sum[2] / sum[0] + epsilon);
      if (blended) inverse += blended / sqrt(var + epsilon);
    }
    a->mean_out[i] = mean;
    a->variance_out[i] = var;
    a->used[i] = used;
    a->inverse[i] = inverse;
    a->factor[i] = scale[i] * inverse;
  }
}

/* factors and terms, with zeros after them: (x + before - mean) * factor + bias is
   x * factor + term */
EXPORT(fold)(const struct fold *a, word t, word threads) {
  const T *mean = a->mean, *factor = a->factor, *bias = a->bias, *before = a->before;
  T *factors = a->factors, *terms = a->terms;
  for (word i = a->places * t / threads; i < a->places * (t + 1) / threads; i++) {
    const word is = i < a->channels;
    const double off = is ? (before ? (double)before[i * a->before_step] : 0) - mean[i] : 0;
    factors[i] = is ? factor[i] : 0;
    terms[i] = is ? bias[i] + off * factor[i] : 0;
  }
}

/* out = (x - mean) * factor + bias */
EXPORT(apply)(const struct apply *a, word t, word threads) {
  const word c = a->channels, size = a->size;
  const T *mean = a->mean, *factor = a->factor, *bias = a->bias;
  if (a->side) {
    const word rows = a->images * size, begin = rows * t / threads, end = rows * (t + 1) / threads;
    const word few = BLOCK * 4 / c > 16 ? BLOCK * 4 / c : 16;
    for (word r0 = begin; r0 < end; r0 += few)
      for (word i = 0; i < c; i += LANES) {
        const word lanes = c - i;
        const vec_t m = load(mean + i, lanes), f = load(factor + i, lanes);
        const vec_t term = load(bias + i, lanes);
        const T *x = a->x + i;
        T *out = a->out + i;
        for (word r = r0; r < least(end, r0 + few); r++)
          store(out + r * c, (load(x + r * c, lanes) - m) * f + term, lanes);
      }
    return;
  }
  for (word u = a->images * c * t / threads; u < a->images * c * (t + 1) / threads; u++) {
    const word n = u / c, i = u % c;
    const T *x = a->x + n * a->x_step + i * size, m = mean[i], f = factor[i], term = bias[i];
    T *out = a->out + n * a->out_step + i * size;
    for (word j = 0; j < size; j++) out[j] = (x[j] - m) * f + term;
  }
}

/* for each part the sums of g and of g * (x - mean) of each channel */
EXPORT(slopes)(const struct slopes *b, word t, word threads) {
  const word parts = b->parts, c = b->channels, size = b->size;
  const T *mean = b->mean;
  for (word part = parts * t / threads; part < parts * (t + 1) / threads; part++) {
    double *sum = b->sums + part * 2 * c;
    memset(sum, 0, 2 * c * sizeof(double));
    if (b->side) {
      const word rows = b->images * size, end = rows * (part + 1) / parts;
      const word few = BLOCK * 2 / c > 16 ? BLOCK * 2 / c : 16;
      for (word r0 = rows * part / parts; r0 < end; r0 += few)
        for (word i = 0; i < c; i += LANES) {
          const word lanes = c - i, last = least(end, r0 + few);
          const T *x = b->x + i, *g = b->grad + i;
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
    for (word n = b->images * part / parts; n < b->images * (part + 1) / parts; n++)
      for (word i = 0; i < c; i++) {
        const T *x = b->x + n * b->x_step + i * size, m = mean[i];
        const T *g = b->grad + n * b->grad_step + i * size;
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

/* for each channel three factors: x_grad = g * first + (x - mean) * second + third */
EXPORT(factors)(const struct factors *a, word t, word threads) {
  const word parts = a->parts, c = a->channels;
  const T *inverse = a->inverse, *scale = a->scale;
  T *scale_grad = a->scale_grad, *bias_grad = a->bias_grad, *out = a->out;
  const double follows = a->follows ? *a->follows : 1, weight = a->count ? follows / a->count : 0;
  for (word i = c * t / threads; i < c * (t + 1) / threads; i++) {
    double all = 0, product = 0;
    for (word part = 0; part < parts; part++) {
      all += a->sums[(part * c + i) * 2];
      product += a->sums[(part * c + i) * 2 + 1];
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

EXPORT(slope_of)(const struct slope_of *b, word t, word threads) {
  const word c = b->channels, size = b->size;
  const T *mean = b->mean, *factors = b->factors;
  if (b->side) {
    const word rows = b->images * size, begin = rows * t / threads, end = rows * (t + 1) / threads;
    const word few = BLOCK * 2 / c > 16 ? BLOCK * 2 / c : 16;
    for (word r0 = begin; r0 < end; r0 += few)
      for (word i = 0; i < c; i += LANES) {
        const word lanes = c - i;
        const vec_t m = load(mean + i, lanes), p = load(factors + i, lanes);
        const vec_t q = load(factors + c + i, lanes), a = load(factors + 2 * c + i, lanes);
        const T *x = b->x + i, *g = b->grad + i;
        T *out = b->out + i;
        for (word r = r0; r < least(end, r0 + few); r++)
          store(out + r * c,
                  load(g + r * c, lanes) * p + ((load(x + r * c, lanes) - m) * q + a), lanes);
      }
    return;
  }
  for (word u = b->images * c * t / threads; u < b->images * c * (t + 1) / threads; u++) {
    const word n = u / c, i = u % c;
    const T *x = b->x + n * b->x_step + i * size, *g = b->grad + n * b->grad_step + i * size;
    const T m = mean[i], p = factors[i], q = factors[c + i], a = factors[2 * c + i];
    T *out = b->out + n * b->out_step + i * size;
    for (word j = 0; j < size; j++) out[j] = g[j] * p + ((x[j] - m) * q + a);
  }
}
