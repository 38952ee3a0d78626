// Rows and columns put together and taken apart, for natural gradient; the linear objective.

// Rows of x side by side: the columns of part p hold the rows first[p] + stride r, and ones where
// first[p] is below 0.
KERNEL splice_rows(const real *x, real *out, const int64 *first, int64 size, int64 width,
                   int64 columns, int64 stride) {
  EACH(i, size) {
    const int64 row = i / columns, column = i % columns, part = column / width;
    const int64 source = (first[part] + stride * row) * width + column % width;
    out[i] = first[part] < 0 ? (real)1 : x[source];
  }
}

// The columns of x [rows, columns], times all scales: w all but the last, b the last; without b all.
KERNEL scaled_parts(const real *x, const int64 *scales, real *w, real *b, int64 size,
                    int64 columns, int64 count) {
  EACH(i, size) {
    const int64 row = i / columns, column = i % columns;
    real value = x[i];
    for (int64 n = 0; n < count; n++) value *= ((const real *)scales[n])[0];
    if (!b) w[i] = value;
    else if (column == columns - 1) b[row] = value;
    else w[row * (columns - 1) + column] = value;
  }
}

// deriv = supervision; totals: its sum, and that of its products with the output.
KERNEL linear_objective(const real *output, const real *supervision, real *deriv, double *totals,
                        double *parts, int64 *counter, int64 size) {
  double weight = 0, objective = 0;
  EACH(i, size) {
    const real share = supervision[i];
    deriv[i] = share;
    weight += share;
    objective += output[i] * share;
  }
  weight = block_sum_double(weight);
  objective = block_sum_double(objective);
  if (FIRST_LANE) {
    parts[2 * BLOCK_INDEX] = weight;
    parts[2 * BLOCK_INDEX + 1] = objective;
  }
  if (!is_last_block(counter)) return;
  weight = objective = 0;
  LANES(i, BLOCK_COUNT) {
    weight += parts[2 * i];
    objective += parts[2 * i + 1];
  }
  weight = block_sum_double(weight);
  objective = block_sum_double(objective);
  if (!FIRST_LANE) return;
  totals[0] = weight;
  totals[1] = objective;
}
