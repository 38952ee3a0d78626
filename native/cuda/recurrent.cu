// What nnet3's recurrent layers do to gradients, and gather about their nonlinearities.

// Rows whose norm is above `clip` are scaled down to it; those on a boundary and above `zero` are cut.
KERNEL truncated_gradient(const real *grad, const uint8 *boundary, real *out, int64 columns,
                          real scale, real clip, real zero) {
  const real *row = grad + BLOCK_INDEX * columns;
  real square = 0, factor = 1;
  LANES(i, columns) square += row[i] * row[i];
  square = block_sum(square) * scale;
  if (!(square * clip <= 1)) factor = 1 / sqrt(square * clip);
  if (boundary[BLOCK_INDEX] && square > zero) factor = 0;
  LANES(i, columns) out[BLOCK_INDEX * columns + i] = row[i] * factor;
}

DEVICE real sigmoid_of(real x) { return 1 / (1 + exp(-x)); }

// values, slopes [5, cells]: sums over the rows of x [rows, apart], of i, f, g, o and t.
KERNEL lstm_statistics(const real *x, const real *w, const TOTAL *values, const TOTAL *slopes,
                       const TOTAL *count, TOTAL *values_out, TOTAL *slopes_out, TOTAL *count_out,
                       int64 rows, int64 cells, int64 apart) {
  TILES(first, cells) {
    const int64 cell = first + COLUMN_OF_LANE;
    double sums[5] = {0, 0, 0, 0, 0}, slope[5] = {0, 0, 0, 0, 0};
    if (cell < cells)
      ROWS_OF_LANE(row, rows) {
        const real *of_row = x + row * apart, *scales = of_row + 5 * cells;
        const real before = of_row[4 * cells + cell];
        const int scaled = apart > 5 * cells;
        real gates[5];
        gates[0] = sigmoid_of(of_row[cell] + w[cell] * before);
        gates[1] = sigmoid_of(of_row[cells + cell] + w[cells + cell] * before);
        gates[2] = tanh(of_row[2 * cells + cell]);
        const real kept = gates[1] * before * (scaled ? scales[1] : (real)1);
        const real now = kept + gates[0] * gates[2] * (scaled ? scales[0] : (real)1);
        gates[3] = sigmoid_of(of_row[3 * cells + cell] + w[2 * cells + cell] * now);
        gates[4] = tanh(now);
        for (int n = 0; n < 5; n++) {
          sums[n] += gates[n];
          slope[n] += n == 2 || n == 4 ? 1 - gates[n] * gates[n] : (1 - gates[n]) * gates[n];
        }
      }
    for (int n = 0; n < 5; n++) {
      const double sum = column_sum_double(sums[n]), sum_of_slopes = column_sum_double(slope[n]);
      if (LANE >= TILE || cell >= cells) continue;
      values_out[n * cells + cell] = values[n * cells + cell] + (TOTAL)sum;
      slopes_out[n * cells + cell] = slopes[n * cells + cell] + (TOTAL)sum_of_slopes;
    }
  }
  if (BLOCK_INDEX == 0 && FIRST_LANE) count_out[0] = count[0] + rows;
}

// Counts the units that were repaired; and finds those of the next batch, one block for all.
KERNEL lstm_repair(const TOTAL *slopes, const TOTAL *count, const real *repair,
                   const TOTAL *repaired, const double *lower, const double *scale,
                   TOTAL *repaired_out, real *repair_out, int64 rows, int64 cells) {
  for (int n = 0; n < 5; n++) {
    double units = 0;
    if (repair)
      LANES(i, cells) {
        const int64 unit = n * cells + i;
        units += repair[unit] != 0;
        const int low = slopes[unit] < lower[n] * (1 + count[0]);
        repair_out[unit] = (real)(low ? scale[n] : 0);
      }
    units = block_sum_double(units);
    if (FIRST_LANE) repaired_out[n] = repaired[n] + (TOTAL)(rows * units);
  }
}
