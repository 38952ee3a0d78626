// Softmax, cross entropy and layer normalization: a block for each row.

KERNEL cross_entropy(const real *x, const int64 *labels, real *out, real *softmax, int64 *note,
                     int64 classes, int64 ignored) {
  const int64 row = BLOCK_INDEX, label = labels[row];
  const real *z = x + row * classes;
  real top = -INFINITE, total = 0;
  LANES(j, classes) top = fmax(top, z[j]);
  top = block_max(top);
  LANES(j, classes) total += exp(z[j] - top);
  total = block_sum(total);
  const real picked = label >= 0 && label < classes ? z[label] - top : 0;
  if (softmax)
    LANES(j, classes) softmax[row * classes + j] = exp(z[j] - top) / total;
  if (FIRST_LANE) out[row] = counts(label, row, classes, ignored, note) ? log(total) - picked : 0;
}

KERNEL label_weight(const int64 *labels, const real *weight, real *out, int64 *note, int64 size,
                    int64 classes, int64 ignored) {
  EACH(i, size)
    out[i] = !counts(labels[i], i, classes, ignored, note) ? 0 : weight ? weight[labels[i]] : 1;
}

KERNEL cross_entropy_grad(const real *softmax, const int64 *labels, const real *grad,
                          real *x_grad, int64 size, int64 classes, int64 ignored) {
  EACH(i, size) {
    const int64 row = i / classes, label = labels[row];
    const real one = label == i % classes;
    // Set, not multiplied: what stands in an ignored row may be no number.
    const int kept = label >= 0 && label < classes && label != ignored;
    x_grad[i] = kept ? (softmax[i] - one) * grad[row] : 0;
  }
}

DEVICE real largest_of(const real *x, int64 columns) {
  real top = -INFINITE;
  LANES(j, columns) top = fmax(top, x[j]);
  return block_max(top);
}

DEVICE real exponentials_of(const real *x, real top, int64 columns) {
  real total = 0;
  LANES(j, columns) total += exp(x[j] - top);
  return block_sum(total);
}

KERNEL softmax(const real *x, real *out, int64 columns) {
  const real *row = x + BLOCK_INDEX * columns;
  const real top = largest_of(row, columns), total = exponentials_of(row, top, columns);
  LANES(j, columns) out[BLOCK_INDEX * columns + j] = exp(row[j] - top) / total;
}

// As softmax; a row of minus infinities becomes zeros.
KERNEL masked_softmax(const real *x, real *out, int64 columns) {
  const real *row = x + BLOCK_INDEX * columns;
  real top = largest_of(row, columns);
  if (!(top > -INFINITE)) top = 0;
  real total = exponentials_of(row, top, columns);
  if (total < 1) total = 1;  // it is 1 or more, but for rows that see nothing
  LANES(j, columns) out[BLOCK_INDEX * columns + j] = exp(row[j] - top) / total;
}

KERNEL softmax_grad(const real *out, const real *grad, real *x_grad, int64 columns) {
  const int64 begin = BLOCK_INDEX * columns;
  real total = 0;
  LANES(j, columns) total += grad[begin + j] * out[begin + j];
  total = block_sum(total);
  LANES(j, columns) x_grad[begin + j] = (grad[begin + j] - total) * out[begin + j];
}

KERNEL log_softmax(const real *x, real *out, int64 columns) {
  const real *row = x + BLOCK_INDEX * columns;
  const real top = largest_of(row, columns), total = log(exponentials_of(row, top, columns));
  LANES(j, columns) out[BLOCK_INDEX * columns + j] = row[j] - top - total;
}

KERNEL log_softmax_grad(const real *out, const real *grad, real *x_grad, int64 columns) {
  const int64 begin = BLOCK_INDEX * columns;
  real total = 0;
  LANES(j, columns) total += grad[begin + j];
  total = block_sum(total);
  LANES(j, columns) x_grad[begin + j] = grad[begin + j] - exp(out[begin + j]) * total;
}

// The mean may lie far from 0, so that squares are those of differences from it.
KERNEL layer_norm(const real *x, const real *scale, const real *bias, real *out, real *mean,
                  real *inverse, int64 columns, double epsilon) {
  const real *row = x + BLOCK_INDEX * columns;
  real middle = 0, square = 0;
  LANES(j, columns) middle += row[j];
  middle = block_sum(middle) / columns;
  LANES(j, columns) square += (row[j] - middle) * (row[j] - middle);
  const real factor = 1 / sqrt(block_sum(square) / columns + (real)epsilon);
  if (FIRST_LANE && mean) mean[BLOCK_INDEX] = middle;
  if (FIRST_LANE && inverse) inverse[BLOCK_INDEX] = factor;
  LANES(j, columns) {
    real value = (row[j] - middle) * factor;
    if (scale) value *= scale[j];
    out[BLOCK_INDEX * columns + j] = bias ? value + bias[j] : value;
  }
}

KERNEL layer_norm_grad(const real *x, const real *scale, const real *mean, const real *inverse,
                       const real *grad, real *x_grad, int64 columns) {
  const int64 begin = BLOCK_INDEX * columns;
  const real middle = mean[BLOCK_INDEX], factor = inverse[BLOCK_INDEX];
  real sum = 0, slope = 0;
  LANES(j, columns) {
    const real pull = scale ? grad[begin + j] * scale[j] : grad[begin + j];
    sum += pull;
    slope += pull * ((x[begin + j] - middle) * factor);
  }
  sum = block_sum(sum) / columns;
  slope = block_sum(slope) / columns;
  LANES(j, columns) {
    const real pull = scale ? grad[begin + j] * scale[j] : grad[begin + j];
    x_grad[begin + j] = (pull - sum - (x[begin + j] - middle) * factor * slope) * factor;
  }
}
