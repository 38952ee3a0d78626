// The objective of LF-MMI: the paths of supervisions, its totals and its derivative.

DEVICE double log_sum(const int64 *arcs, const int64 *from, const double *score,
                      const double *sums, int64 begin, int64 end) {
  double top = -INFINITE, sum = 0;
  for (int64 n = begin; n < end; n++) top = fmax(top, sums[from[arcs[n]]] + score[arcs[n]]);
  if (!(top > -INFINITE)) return top;
  for (int64 n = begin; n < end; n++) sum += exp(sums[from[arcs[n]]] + score[arcs[n]] - top);
  return top + log(sum);
}

DEVICE void go_through(const int64 *layers, int64 count, const int64 *groups,
                       const int64 *states, const int64 *arcs, const int64 *from,
                       const double *score, double *sums) {
  for (int64 layer = 0; layer < count; layer++) {
    const int64 first = layers[layer];
    LANES(n, layers[layer + 1] - first) {
      const int64 group = first + n;
      sums[states[group]] = log_sum(arcs, from, score, sums, groups[group], groups[group + 1]);
    }
    SYNC;
  }
}

KERNEL numerator_paths(const real *output, const double *weight, const int64 *cell,
                       const int64 *source, const int64 *target, const int64 *segment,
                       const int64 *begins, const int64 *layers, const int64 *groups,
                       const int64 *states, const int64 *arcs, const int64 *back_layers,
                       const int64 *back_groups, const int64 *back_states,
                       const int64 *back_arcs, const int64 *places, const int64 *of_place,
                       const int64 *cell_of_place, double *score, double *alpha, double *beta,
                       double *total, real *paths, int64 arc_count, int64 state_count,
                       int64 segments, int64 layer_count, int64 back_count, int64 place_count) {
  LANES(n, arc_count) score[n] = weight[n] + (cell[n] < 0 ? 0 : (double)output[cell[n]]);
  LANES(n, state_count + segments) {
    alpha[n] = -INFINITE;
    beta[n] = n < state_count ? -INFINITE : 0;
  }
  SYNC;
  LANES(n, segments) alpha[begins[n]] = 0;
  SYNC;
  go_through(layers, layer_count, groups, states, arcs, source, score, alpha);
  go_through(back_layers, back_count, back_groups, back_states, back_arcs, target, score, beta);
  double sum = 0;
  LANES(n, segments) sum += alpha[state_count + n];
  sum = block_sum_double(sum);
  LANES(n, place_count) {
    double share = 0;
    for (int64 m = places[n]; m < places[n + 1]; m++) {
      const int64 arc = of_place[m];
      share += exp(alpha[source[arc]] + score[arc] + beta[target[arc]]
                   - alpha[state_count + segment[arc]]);
    }
    paths[cell_of_place[n]] = (real)share;
  }
  if (FIRST_LANE) total[0] = sum;
}

KERNEL chain_totals(const double *numerator, const double *denominator, const real *first_frame,
                    const real *square, double *totals, int32 *good, double weight, double whole,
                    double sequences, double l2) {
  if (!FIRST_LANE) return;
  const double objective = weight * (numerator[0] - denominator[0]);
  good[0] = isfinite(objective) && fabs(first_frame[0] - sequences) <= TOLERANCE;
  totals[0] = whole;
  totals[1] = good[0] ? objective : FAILED * whole;
  totals[2] = l2 != 0 ? -0.5 * l2 * square[0] : 0;
}

KERNEL chain_derivative(const real *output, const real *every, const real *posteriors,
                        const int32 *good, real *paths, real *deriv, int64 size, real weight,
                        real den_scale, real beyond, real of_posteriors, real l2) {
  EACH(i, size) {
    real value = good[0] ? (paths[i] - every[i] * den_scale) * weight : 0;
    paths[i] = good[0] ? paths[i] * weight : 0;
    const real inside = fmin(fmax(output[i], (real)-LIMIT), (real)LIMIT);
    if (beyond != 0) value += beyond * (inside - output[i]);
    if (posteriors) value += of_posteriors * posteriors[i];
    if (l2 != 0) value -= l2 * output[i];
    deriv[i] = value;
  }
}
