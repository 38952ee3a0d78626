/* iVectors of a signal that goes on: speech/ivector/estimation.py, online.py.

   NumPy does the same in Python; sums have the same order in both, and the same bits. */
#include "base.h"
#include "ivectors_arguments.h"
#include <math.h>

enum { LANES = 8, PARTS = 64 };  /* of a sum; numbers of which a sum is exact */

/* The sum in the order in which NumPy adds up numbers that lie side by side. */
static double summed(const double *x, word count) {
  if (count < LANES) {
    double sum = -0.0;
    for (word i = 0; i < count; i++) sum += x[i];
    return count ? sum : 0;
  }
  if (count > 16 * LANES) {
    const word half = count / 2 / LANES * LANES;
    return summed(x, half) + summed(x + half, count - half);
  }
  double s[LANES];
  memcpy(s, x, sizeof s);
  word i = LANES;
  for (; i + LANES <= count; i += LANES)
    for (int lane = 0; lane < LANES; lane++) s[lane] += x[i + lane];
  double sum = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
  for (; i < count; i++) sum += x[i];
  return sum;
}
/* The sum of products, rounded once: Shewchuk 1997; 0 where there are more parts than room. */
static int dot(const double *a, const double *b, word count, double *out) {
  double parts[PARTS];
  int n = 0;
  for (word i = 0; i < count; i++) {
    double x = a[i] * b[i];
    int kept = 0;
    if (!isfinite(x)) return 0;
    for (int j = 0; j < n; j++) {
      double y = parts[j];
      if (fabs(x) < fabs(y)) { const double z = x; x = y; y = z; }
      const double high = x + y, low = y - (high - x);
      if (low) parts[kept++] = low;
      x = high;
    }
    if (!isfinite(x) || kept == PARTS) return 0;
    n = kept;
    if (x) parts[n++] = x;
  }
  double high = 0, low = 0;
  if (n) {
    high = parts[--n];
    while (n && !low) {
      const double x = high, y = parts[--n];
      high = x + y;
      low = y - (high - x);
    }
    /* half a unit in the last place is rounded by what comes below it */
    if (n && ((low < 0 && parts[n - 1] < 0) || (low > 0 && parts[n - 1] > 0))) {
      const double twice = low * 2, other = high + twice;
      if (twice == other - high) high = other;
    }
  }
  *out = high;
  return 1;
}
static void applied(const double *matrix, const double *x, word dim, double *row, double *out) {
  for (word i = 0; i < dim; i++) {
    for (word j = 0; j < dim; j++) row[j] = matrix[i * dim + j] * x[j];
    out[i] = summed(row, dim);
  }
}

#define DOT(to, a, b) if (!dot(a, b, dim, &to)) return

EXPORT(conjugate_gradients)(struct conjugate_gradients *a) {
  const word dim = a->dim;
  const double *matrix = a->matrix, *vector = a->vector;
  double *solution = a->solution, *row = a->memory, *direction = row + dim;
  double *residual = direction + dim, *moved = residual + dim;
  double norm, first, checked, after, curvature, along, scale;
  applied(matrix, solution, dim, row, direction);
  for (word i = 0; i < dim; i++) {
    direction[i] = vector[i] - direction[i];
    residual[i] = -direction[i];
  }
  DOT(norm, residual, residual);
  first = checked = norm;
  for (word turn = 0; turn < a->iterations; turn++) {
    applied(matrix, direction, dim, row, moved);
    DOT(curvature, direction, moved);
    if (curvature == 0) break;
    DOT(along, direction, residual);
    const double step = -along / curvature;
    for (word i = 0; i < dim; i++) {
      solution[i] += step * direction[i];
      residual[i] += step * moved[i];
    }
    DOT(after, residual, residual);
    if (after < a->recomputed * checked || after > checked / a->recomputed) {
      applied(matrix, solution, dim, row, residual);
      for (word i = 0; i < dim; i++) residual[i] -= vector[i];
      DOT(after, residual, residual);
      checked = after;
    }
    if (after <= a->tiny) break;
    const double share = after / norm;
    for (word i = 0; i < dim; i++) {
      direction[i] *= share;
      direction[i] -= residual[i];
    }
    norm = after;
  }
  if (norm > first) {
    DOT(scale, vector, vector);
    if (norm > first + 1e-10 * scale) return;
  }
  a->solved = 1;
}

/* Log-likelihoods of a frame by all Gaussians. */
static void likelihoods(const struct ivector_frames *a, const float *x, double *out, double *bent) {
  const word count = a->gaussians;
  memset(out, 0, count * sizeof *out);
  memset(bent, 0, count * sizeof *bent);
  for (word d = 0; d < a->dim; d++) {
    const double value = x[d], square = value * value;
    const double *means = a->means + d * count, *inverses = a->inverses + d * count;
    for (word g = 0; g < count; g++) {
      out[g] += value * means[g];
      bent[g] += square * inverses[g];
    }
  }
  for (word g = 0; g < count; g++) out[g] = (out[g] + a->constants[g]) - 0.5 * bent[g];
}
/* The best Gaussians of a frame, their posteriors, float32, and its log-likelihood. */
static double posteriors(const struct ivector_frames *a, const double *likes, float weight,
                         word *best, double *shares, double *values) {
  const word most = least(a->most, a->gaussians);
  word count = 0;
  for (word g = 0; g < a->gaussians; g++) {
    if (count == most && !(likes[g] > likes[best[count - 1]])) continue;
    word at = count < most ? count++ : count - 1;
    for (; at && likes[g] > likes[best[at - 1]]; at--) best[at] = best[at - 1];
    best[at] = g;
  }
  const float asked = (float)a->least / fabsf(weight);
  const double least_share = asked < 0.99f ? asked : 0.99f, floor = log(least_share);
  const double top = (float)likes[best[0]];
  for (word i = 0; i < count; i++) {
    const double like = (float)likes[best[i]];
    values[i] = !i || !least_share || like > top + floor ? exp(like - top) : 0;
  }
  double total = summed(values, count);
  for (word i = 1; i < count; i++)
    if (values[i] < least_share * total) values[i] = 0;
  total = summed(values, count);
  for (word i = 0; i < count; i++) shares[i] = (float)(values[i] / total);
  return top + log(total);
}
/* What is derived of a Gaussian: its inverse covariance times the projection, and the projection's
   transpose times that. Two threads may do it at a time: they write the same. */
static void derive(const struct ivector_frames *a, word g) {
  const word dim = a->dim, wide = a->ivector;
  const double *precision = a->precisions + g * (dim * (dim + 1) / 2);
  const double *projection = a->projections + g * dim * wide;
  double *linear = a->linears + g * dim * wide;
  double *quadratic = a->quadratics + g * (wide * (wide + 1) / 2);
  for (word d = 0; d < dim; d++) {
    double row[wide];
    memset(row, 0, sizeof row);
    for (word e = 0; e < dim; e++) {
      const double factor = precision[d > e ? d * (d + 1) / 2 + e : e * (e + 1) / 2 + d];
      for (word i = 0; i < wide; i++) row[i] += factor * projection[e * wide + i];
    }
    memcpy(linear + d * wide, row, sizeof row);
  }
  for (word i = 0; i < wide; i++, quadratic += i) {
    double row[wide];
    memset(row, 0, sizeof row);
    for (word d = 0; d < dim; d++)
      for (word j = 0; j <= i; j++) row[j] += projection[d * wide + i] * linear[d * wide + j];
    memcpy(quadratic, row, (i + 1) * sizeof(double));
  }
  __atomic_store_n(a->derived + g, 1, __ATOMIC_RELEASE);
}

EXPORT(ivector_frames)(struct ivector_frames *a) {
  const word n = a->frames, count = a->gaussians, dim = a->dim, wide = a->ivector;
  const word most = least(a->most, count), triangle = wide * (wide + 1) / 2;
  double *likes = a->memory, *bent = likes + count, *values = bent + count;
  double *shares = values + most, *sums = shares + most, *totals = sums + dim;
  double *line = totals + count, *rows = line + wide;
  word *places = a->numbers, *best = places + count, heard = 0;
  double log_likelihood = 0;
  memset(places, -1, count * sizeof *places);
  for (word f = 0; f < n; f++) {
    likelihoods(a, a->normalized + f * dim, likes, bent);
    const double like = posteriors(a, likes, a->weights[f], best, shares, values);
    log_likelihood += a->weights[f] * like;
    for (word i = 0; i < most; i++) {
      const float weight = (float)shares[i] * ((float)a->scale * a->weights[f]);
      if (weight == 0) continue;
      word *place = places + best[i];
      if (*place < 0) {
        *place = heard++;
        memset(rows + *place * n, 0, n * sizeof(double));
      }
      rows[*place * n + f] += weight;
    }
  }
  word seen = 0;
  for (word g = 0; g < count; g++) {
    if (places[g] < 0) continue;
    const double *row = rows + places[g] * n;
    if (!__atomic_load_n(a->derived + g, __ATOMIC_ACQUIRE)) derive(a, g);
    const double *linear = a->linears + g * dim * wide, *quadratic = a->quadratics + g * triangle;
    memset(sums, 0, dim * sizeof *sums);
    for (word f = 0; f < n; f++)
      if (row[f])
        for (word d = 0; d < dim; d++) sums[d] += row[f] * a->used[f * dim + d];
    memset(line, 0, wide * sizeof *line);
    for (word d = 0; d < dim; d++)
      for (word i = 0; i < wide; i++) line[i] += sums[d] * linear[d * wide + i];
    const double total = totals[seen++] = summed(row, n);
    for (word i = 0; i < wide; i++) a->linear[i] += line[i];
    for (word i = 0; i < triangle; i++) a->quadratic[i] += total * quadratic[i];
  }
  a->sums[0] = summed(totals, seen);
  a->sums[1] = log_likelihood;
}
