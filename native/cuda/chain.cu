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

// sums: the logarithm of the paths' probability, and their cross-entropy with `logs`, if any.
KERNEL numerator_paths(const real *output, const double *weight, const int64 *cell,
                       const int64 *source, const int64 *target, const int64 *segment,
                       const int64 *begins, const int64 *layers, const int64 *groups,
                       const int64 *states, const int64 *arcs, const int64 *back_layers,
                       const int64 *back_groups, const int64 *back_states,
                       const int64 *back_arcs, const int64 *places, const int64 *of_place,
                       const int64 *cell_of_place, double *score, double *alpha, double *beta,
                       const real *logs, double *sums, real *paths, int64 arc_count,
                       int64 state_count, int64 segments, int64 layer_count, int64 back_count,
                       int64 place_count) {
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
  double sum = 0, cross = 0;
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
    if (logs) cross += share * logs[cell_of_place[n]];
  }
  cross = block_sum_double(cross);
  if (FIRST_LANE) {
    sums[0] = sum;
    sums[1] = cross;
  }
}

// Outputs are cut to [-LIMIT, LIMIT]; what is not a number stays so.
DEVICE real within_limit(real x) {
  return x < (real)-LIMIT ? (real)-LIMIT : x > (real)LIMIT ? (real)LIMIT : x;
}

// What flows into a group: arcs that lead to one state and have one pdf.
DEVICE real flow_into(const int32 *groups, const int32 *source, const real *prob, const real *alpha,
                      int64 group) {
  real sum = 0;
  for (int32 arc = groups[group]; arc < groups[group + 1]; arc++)
    sum += prob[arc] * alpha[source[arc]];
  return sum;
}

// All paths of the denominator graph: a block for each sequence, over all of its frames.
// groups, states, back, pdfs: where the arcs of a group, the groups of a state, the arcs that leave
// a state, and the groups of a pdf begin. leak: what flows to each state from a whole of 1.
// alphas, scales, beta, shares: scratch of each block, [frames + 1, states], [frames], [states] and
// [2, groups]. squares: the sum of the squares of the output. posterior holds likelihoods until the
// backward pass has read them.
KERNEL chain_denominator(const real *output, const int32 *groups, const int32 *source,
                         const real *prob, const int32 *state_of_group, const int32 *pdf_of_group,
                         const int32 *states, const int32 *back, const int32 *group_of_back,
                         const real *prob_of_back, const int32 *pdfs, const int32 *group_of_pdf,
                         const real *initial, const real *leak, real *alphas, real *scales,
                         real *beta, real *shares, double *log_prob, real *first_frame,
                         double *squares, real *posterior, int64 frames, int64 state_count,
                         int64 group_count, int64 pdf_count) {
  const int64 sequence = BLOCK_INDEX, row = BLOCK_COUNT * pdf_count;
  output += sequence * pdf_count;
  posterior += sequence * pdf_count;
  real *alpha = alphas + sequence * (frames + 1) * state_count;
  real *occupied = shares + (2 * sequence + 1) * group_count;
  scales += sequence * frames;
  beta += sequence * state_count;
  shares += 2 * sequence * group_count;
  double square = 0;
  LANES(i, state_count) alpha[i] = initial[i];
  for (int64 t = 0; t < frames; t++) {
    real scale = 0, *likelihood = posterior + t * row, *next = alpha + state_count;
    LANES(i, state_count) scale += alpha[i];
    scale = block_sum(scale);
    if (FIRST_LANE) scales[t] = scale;
    LANES(i, state_count) alpha[i] += leak[i] * scale;
    LANES(i, pdf_count) {
      const real x = output[t * row + i];
      likelihood[i] = exp(within_limit(x));
      square += (double)x * x;
    }
    SYNC;
    LANES(n, group_count)
      shares[n] = flow_into(groups, source, prob, alpha, n) * likelihood[pdf_of_group[n]];
    SYNC;
    LANES(i, state_count) {
      real sum = 0;
      for (int32 n = states[i]; n < states[i + 1]; n++) sum += shares[n];
      next[i] = sum / scale;
    }
    alpha = next;
  }
  real total = 0, sum = 0;
  LANES(i, state_count) sum += alpha[i];
  sum = block_sum(sum);
  LANES(i, state_count) total += alpha[i] + leak[i] * sum;
  total = block_sum(total);
  double logs = 0;
  LANES(t, frames) logs += log((double)scales[t]);
  logs = block_sum_double(logs);
  square = block_sum_double(square);
  if (FIRST_LANE) {
    log_prob[sequence] = logs + log((double)total);
    squares[sequence] = square;
  }
  // beta is divided by the total, so that alpha times beta are posteriors.
  real leaked = 0, first = 0;
  LANES(i, state_count) leaked += leak[i] / total;
  leaked = block_sum(leaked);
  LANES(i, state_count) beta[i] = 1 / total + leaked;
  for (int64 t = frames - 1; t >= 0; t--) {
    real *occupancy = posterior + t * row;  // likelihoods until now
    alpha -= state_count;
    SYNC;
    LANES(n, group_count) {
      const real share = occupancy[pdf_of_group[n]] * beta[state_of_group[n]] / scales[t];
      shares[n] = share;
      occupied[n] = share * flow_into(groups, source, prob, alpha, n);
    }
    SYNC;
    leaked = 0;
    LANES(i, state_count) {
      real sum_of_state = 0;
      for (int32 arc = back[i]; arc < back[i + 1]; arc++)
        sum_of_state += prob_of_back[arc] * shares[group_of_back[arc]];
      beta[i] = sum_of_state;
      leaked += leak[i] * sum_of_state;
    }
    LANES(i, pdf_count) {
      real sum_of_pdf = 0;
      for (int32 n = pdfs[i]; n < pdfs[i + 1]; n++) sum_of_pdf += occupied[group_of_pdf[n]];
      occupancy[i] = sum_of_pdf;
      if (t == 0) first += sum_of_pdf;
    }
    leaked = block_sum(leaked);
    LANES(i, state_count) beta[i] += leaked;
  }
  first = block_sum(first);
  if (FIRST_LANE) first_frame[sequence] = first;
}

// numerator: its sums. denominator, first_frames, squares: of each sequence.
KERNEL chain_totals(const double *numerator, const double *denominator, const real *first_frames,
                    const double *squares, double *totals, double *xent_totals, int32 *good,
                    int64 sequences, double weight, double whole, double l2) {
  double every = 0, first = 0, square = 0;
  LANES(i, sequences) {
    every += denominator[i];
    first += first_frames[i];
    square += squares[i];
  }
  every = block_sum_double(every);
  first = block_sum_double(first);
  square = block_sum_double(square);
  if (!FIRST_LANE) return;
  const double objective = weight * (numerator[0] - every);
  good[0] = isfinite(objective) && fabs(first - sequences) <= TOLERANCE;
  totals[0] = whole;
  totals[1] = good[0] ? objective : FAILED * whole;
  totals[2] = l2 != 0 ? -0.5 * l2 * square : 0;
  if (!xent_totals) return;
  xent_totals[0] = whole;
  xent_totals[1] = good[0] ? weight * numerator[1] : 0;
}

KERNEL chain_derivative(const real *output, const real *every, const real *paths,
                        const real *posteriors, const real *row_weights, const int32 *good,
                        real *deriv, real *xent_deriv, int64 size, int64 pdf_count, real weight,
                        real den_scale, real beyond, real of_posteriors, real l2, real xent) {
  EACH(i, size) {
    const real row_weight = row_weights ? row_weights[i / pdf_count] : 1;
    real value = good[0] ? (paths[i] - every[i] * den_scale) * weight : 0;
    if (beyond != 0) value += beyond * (within_limit(output[i]) - output[i]);
    if (posteriors) value += of_posteriors * posteriors[i];
    if (l2 != 0) value -= l2 * output[i];
    deriv[i] = value * row_weight;
    if (xent_deriv) xent_deriv[i] = good[0] ? paths[i] * weight * xent * row_weight : 0;
  }
}
