// Sums over the columns of matrices [rows, width], a tile of columns in a block.

#define TILE (LANE_COUNT < 32 ? LANE_COUNT : 32)
#define COLUMN_OF_LANE (LANE % TILE)
#define TILES(first, width) \
  for (int64 first = BLOCK_INDEX * TILE; first < (width); first += BLOCK_COUNT * TILE)
#define ROWS_OF_LANE(row, rows) \
  for (int64 row = LANE / TILE; row < (rows); row += LANE_COUNT / TILE)

// The sum over the lanes of the same column.
#define COLUMN_SUM(name, type)                                       \
  DEVICE type name(type value) {                                     \
    SHARED type held[THREADS];                                       \
    held[LANE] = value;                                              \
    SYNC;                                                            \
    for (int64 half = LANE_COUNT / 2; half >= TILE; half /= 2) {     \
      if (LANE < half) held[LANE] += held[LANE + half];              \
      SYNC;                                                          \
    }                                                                \
    value = held[COLUMN_OF_LANE];                                    \
    SYNC;                                                            \
    return value;                                                    \
  }
COLUMN_SUM(column_sum, real)
COLUMN_SUM(column_sum_double, double)

// The gradients of what a normalization of rows scales and shifts by.
KERNEL layer_norm_parameters_grad(const real *x, const real *mean, const real *inverse,
                                  const real *grad, real *scale_grad, real *bias_grad, int64 rows,
                                  int64 width) {
  TILES(first, width) {
    const int64 column = first + COLUMN_OF_LANE;
    real slope = 0, sum = 0;
    if (column < width)
      ROWS_OF_LANE(row, rows) {
        const int64 at = row * width + column;
        sum += grad[at];
        slope += grad[at] * ((x[at] - mean[row]) * inverse[row]);
      }
    slope = column_sum(slope);
    sum = column_sum(sum);
    if (LANE >= TILE || column >= width) continue;
    if (scale_grad) scale_grad[column] = slope;
    if (bias_grad) bias_grad[column] = sum;
  }
}
