// Updates of Kaldi's trainer: a kernel takes all arrays of a component through a table of addresses.

KERNEL parameter_delta(const int64 *table, const int64 *ends, const real *rate,
                       const real *l2_scale, const real *kept, int64 size, real l2,
                       real momentum) {
  real step = rate[0], decay = -2 * l2 * l2_scale[0] * step;
  real share = kept && kept[0] == 0 ? 0 : momentum;
  EACH(i, size) {
    int64 part = part_of(ends, i), at = part ? i - ends[part - 1] : i;
    const real *param = (const real *)table[4 * part];
    const real *grad = (const real *)table[4 * part + 1];
    const real *delta = (const real *)table[4 * part + 2];
    real value = delta && share != 0 ? share * delta[at] : 0;
    if (grad) value += step * grad[at];
    if (decay != 0) value += decay * param[at];
    ((real *)table[4 * part + 3])[at] = value;
  }
}

KERNEL squares_of_changes(const int64 *table, const int64 *sizes, const int64 *starts,
                          double *squares) {
  real square = 0;
  for (int64 array = starts[BLOCK_INDEX]; array < starts[BLOCK_INDEX + 1]; array++) {
    const real *delta = (const real *)table[array];
    LANES(i, sizes[array]) square += delta[i] * delta[i];
  }
  square = block_sum(square);
  if (FIRST_LANE) squares[BLOCK_INDEX] = square;
}

DEVICE double bounded(double square, double bound, double scale, double loose) {
  double norm = sqrt(square) * scale;
  return bound > 0 && norm > bound * loose ? bound * loose / norm : 1;
}

KERNEL bounded_changes(const double *squares, const double *bounds, const real *scale,
                       const real *bound_scale, real *scales, real *factors, real *change,
                       real *kept, int64 count, double total) {
  double whole = scale[0], loose = bound_scale[0], size = fabs(whole), sum = 0, bad = 0;
  LANES(c, count) {
    double factor = bounded(squares[c], bounds[c], size, loose);
    sum += factor * factor * squares[c];
    bad += !isfinite(squares[c]);
  }
  double moved = sqrt(block_sum_double(sum)) * size, most = total * loose;
  int finite = block_sum_double(bad) == 0 && isfinite(moved);
  if (most != 0 && moved > most) whole *= most / moved;
  LANES(c, count) {
    double factor = bounded(squares[c], bounds[c], size, loose);
    factors[c] = (real)factor;
    scales[c] = finite ? (real)(factor * whole) : 0;
  }
  if (FIRST_LANE) {
    change[0] = (real)moved;
    kept[0] = finite;
  }
}

KERNEL apply_change(const int64 *table, const int64 *ends, const real *scales, int64 size,
                    int64 index) {
  real scale = scales[index];
  EACH(i, size) {
    int64 part = part_of(ends, i), at = part ? i - ends[part - 1] : i;
    real value = ((const real *)table[3 * part])[at];
    // A change that is not finite has the scale 0.
    if (scale != 0) value += scale * ((const real *)table[3 * part + 1])[at];
    ((real *)table[3 * part + 2])[at] = value;
  }
}

KERNEL orthonormal_speed(real *gram, const real *wanted, real *speed, int64 rows, double scale,
                         double rate) {
  double trace = 0, twice = 0, square = scale * scale;
  LANES(i, rows) trace += gram[i * (rows + 1)];
  LANES(i, rows * rows) twice += (double)gram[i] * gram[i];
  trace = block_sum_double(trace);
  twice = block_sum_double(twice);
  int stays = (scale < 0 && trace < 1e-15) || (wanted && wanted[0] == 0);
  if (scale < 0 && !stays) {
    double ratio = twice * rows / (trace * trace);  // 1 where all rows have the same norm
    square = twice / trace;
    rate *= ratio > 1.1 ? 0.25 : ratio > 1.02 ? 0.5 : 1;
  }
  if (!stays)
    LANES(i, rows) gram[i * (rows + 1)] -= (real)square;
  if (FIRST_LANE) speed[0] = stays ? 0 : (real)(-4 * rate / square);
}

// x_out = factor x, for a table of pairs.
KERNEL scale_states(const int64 *table, const int64 *ends, const FACTOR *factor, int64 size) {
  EACH(i, size) {
    int64 part = part_of(ends, i), at = part ? i - ends[part - 1] : i;
    ((real *)table[2 * part + 1])[at] = ((const real *)table[2 * part])[at] * (real)factor[0];
  }
}
