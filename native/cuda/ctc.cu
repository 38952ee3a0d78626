// Connectionist temporal classification: a block for each sequence, over all of its steps.

DEVICE double log_add(double a, double b) {
  const double top = fmax(a, b);
  if (!(top > -INFINITE)) return top;
  return top + log(exp(a - top) + exp(b - top));
}

// The class of a state; states alternate: blank, label, blank, ..., blank. A label that is no class
// has been noted, and counts as blank.
DEVICE int64 symbol_of(const LABEL *labels, int64 state, int64 blank, int64 classes) {
  const int64 label = state % 2 ? (int64)labels[state / 2] : blank;
  return label >= 0 && label < classes ? label : blank;
}

// Whether a path may come to a state from two before it, past the blank between them.
DEVICE int skips_to(const LABEL *labels, int64 state) {
  return state % 2 && state > 1 && labels[state / 2] != labels[state / 2 - 1];
}

DEVICE void log_shares(const real *x, double *logs, int64 classes) {
  double top = -INFINITE, total = 0;
  LANES(c, classes) top = fmax(top, (double)x[c]);
  top = block_max_double(top);
  LANES(c, classes) total += exp(x[c] - top);
  total = log(block_sum_double(total));
  LANES(c, classes) logs[c] = x[c] - top - total;
}

// rows, labels: where sequences begin; cells: where their states of all steps begin in `alpha`.
// never, unknown: loss of what is impossible, and the factor of its gradient.
KERNEL ctc_loss(const real *x, const LABEL *label, const int64 *rows, const int64 *labels,
                const int64 *cells, const double *divisors, real *out, real *slope, double *logs,
                double *alpha, double *beta, int64 *next, int64 classes, int64 blank,
                double never, double unknown) {
  const int64 n = BLOCK_INDEX, first = rows[n], steps = rows[n + 1] - first;
  const LABEL *own = label + labels[n];
  const int64 count = labels[n + 1] - labels[n], states = 2 * count + 1;
  if (steps == 0) {
    if (FIRST_LANE) out[n] = count ? (real)never : 0;
    return;
  }
  logs += first * classes;
  alpha += cells[n];
  beta += 4 * labels[n] + 2 * n;
  next += 2 * labels[n] + n;
  for (int64 t = 0; t < steps; t++)
    log_shares(x + (first + t) * classes, logs + t * classes, classes);
  // Label states with the same class are a list, which the first of them adds up.
  LANES(s, states) {
    int64 later = -1, is_first = s % 2;
    const int64 mine = symbol_of(own, s, blank, classes);
    for (int64 other = 1; other < s && is_first; other += 2)
      if (symbol_of(own, other, blank, classes) == mine) is_first = 0;
    for (int64 other = states - 2; other > s && s % 2; other -= 2)
      if (symbol_of(own, other, blank, classes) == mine) later = other;
    next[s] = 2 * (later + 1) + is_first;
  }
  SYNC;
  for (int64 t = 0; t < steps; t++) {
    const double *before = alpha + (t - 1) * states;
    LANES(s, states) {
      double sum = t == 0 && s < 2 ? 0 : -INFINITE;
      if (t > 0) {
        sum = before[s];
        if (s > 0) sum = log_add(sum, before[s - 1]);
        if (skips_to(own, s)) sum = log_add(sum, before[s - 2]);
      }
      alpha[t * states + s] = sum + logs[t * classes + symbol_of(own, s, blank, classes)];
    }
    SYNC;
  }
  const double *last = alpha + (steps - 1) * states;
  const double whole = count ? log_add(last[states - 1], last[states - 2]) : last[states - 1];
  const int possible = whole > -INFINITE;
  if (FIRST_LANE) out[n] = (real)(isnan(whole) ? whole : possible ? -whole / divisors[n] : never);
  if (!slope) return;
  const double factor = possible ? 1 / divisors[n] : unknown;
  SYNC;  // all have read the last step, which the loop writes over
  // Backwards: what paths have before them after a state of step t, without the share of t itself.
  for (int64 t = steps - 1; t >= 0; t--) {
    double *mine = beta + t % 2 * states, *after = beta + (t + 1) % 2 * states, blanks = 0;
    const double *share = logs + (t + 1) * classes;
    LANES(s, states) {
      double sum = s >= states - 2 ? 0 : -INFINITE;
      if (t < steps - 1) {
        sum = after[s] + share[symbol_of(own, s, blank, classes)];
        if (s + 1 < states)
          sum = log_add(sum, after[s + 1] + share[symbol_of(own, s + 1, blank, classes)]);
        if (s + 2 < states && skips_to(own, s + 2))
          sum = log_add(sum, after[s + 2] + share[symbol_of(own, s + 2, blank, classes)]);
      }
      mine[s] = sum;
      const double part = possible ? exp(alpha[t * states + s] + sum - whole) : 0;
      alpha[t * states + s] = part;
      if (symbol_of(own, s, blank, classes) == blank) blanks += part;
    }
    blanks = block_sum_double(blanks);
    real *target = slope + (first + t) * classes;
    LANES(c, classes) {
      const double rest = exp(logs[t * classes + c]) - (c == blank ? blanks : 0);
      target[c] = (real)(rest * factor);
    }
    SYNC;
    LANES(s, states) {
      const int64 symbol = symbol_of(own, s, blank, classes);
      if (next[s] % 2 == 0 || symbol == blank) continue;
      double sum = 0;
      for (int64 other = s; other >= 0; other = next[other] / 2 - 1)
        sum += alpha[t * states + other];
      target[symbol] = (real)((exp(logs[t * classes + symbol]) - sum) * factor);
    }
    SYNC;
  }
}
