// Batch normalization as nnet3 has it, whose columns stay in a block, and statistics of columns.

// out = (x - mean) scale, scale = rms (max(uvar - mean^2, 0) + epsilon)^-1/2, uvar = mean of x^2.
KERNEL batch_norm(const real *x, real *out, real *mean, real *uvar, real *scale, int64 rows,
                  int64 width, double epsilon, double rms) {
  TILES(first, width) {
    const int64 column = first + COLUMN_OF_LANE;
    const int inside = column < width;
    real sum = 0, squares = 0;
    if (inside)
      ROWS_OF_LANE(row, rows) {
        real value = x[row * width + column];
        sum += value;
        squares += value * value;
      }
    sum = column_sum(sum) / rows;
    squares = column_sum(squares) / rows;
    real factor = (real)rms / sqrt(fmax(squares - sum * sum, (real)0) + (real)epsilon);
    if (!inside) continue;
    if (LANE < TILE) {
      if (mean) mean[column] = sum;
      if (uvar) uvar[column] = squares;
      if (scale) scale[column] = factor;
    }
    ROWS_OF_LANE(row, rows) {
      const int64 at = row * width + column;
      out[at] = (x[at] - sum) * factor;
    }
  }
}

// x_grad = (grad - its mean - out times the mean of grad out / rms^2) scale.
KERNEL batch_norm_grad(const real *out, const real *grad, const real *scale, real *x_grad,
                       int64 rows, int64 width, double rms) {
  TILES(first, width) {
    const int64 column = first + COLUMN_OF_LANE;
    const int inside = column < width;
    real mean = 0, slope = 0;
    if (inside)
      ROWS_OF_LANE(row, rows) {
        const int64 at = row * width + column;
        mean += grad[at];
        slope += grad[at] * out[at];
      }
    mean = column_sum(mean) / rows;
    slope = column_sum(slope) * (real)(1 / (rms * rms * rows));
    if (!inside) continue;
    ROWS_OF_LANE(row, rows) {
      const int64 at = row * width + column;
      x_grad[at] = (grad[at] - mean - out[at] * slope) * scale[column];
    }
  }
}

// Adds the moments of a batch to totals.
KERNEL batch_norm_statistics(const real *mean, const real *uvar, const TOTAL *sum,
                             const TOTAL *sumsq, const TOTAL *count, TOTAL *sum_out,
                             TOTAL *sumsq_out, TOTAL *count_out, int64 width, int64 rows) {
  EACH(i, width) {
    sum_out[i] = sum[i] + (TOTAL)mean[i] * rows;
    sumsq_out[i] = sumsq[i] + (TOTAL)uvar[i] * rows;
    if (i == 0) count_out[0] = count[0] + rows;
  }
}

// total_out = total + the sums of OF(x) over the first columns of rows that lie `apart` elements
// from each other.
KERNEL column_sums(const real *x, const TOTAL *total, const TOTAL *count, TOTAL *total_out,
                   TOTAL *count_out, int64 rows, int64 width, int64 apart) {
  TILES(first, width) {
    const int64 column = first + COLUMN_OF_LANE;
    real sum = 0;
    if (column < width)
      ROWS_OF_LANE(row, rows) {
        const real value = x[row * apart + column];
        sum += OF(value);
      }
    sum = column_sum(sum);
    if (LANE < TILE && column < width) total_out[column] = total[column] + sum;
  }
  if (BLOCK_INDEX == 0 && FIRST_LANE && count) count_out[0] = count[0] + rows;
}
