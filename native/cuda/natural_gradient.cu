// Natural gradient: the steps of nnet3/operators/natural_gradient.py, whose symbols are used here.
// What is of the estimate's rank alone is computed by one block; sums are in double.

#define SWEEPS 20
#define SMALLEST_TURN (sizeof(real) == 4 ? 1e-14 : 1e-26)  // off the diagonal, squared
#define FIRST_OF(pair) ((pair) ? (round + (pair)) % (players - 1) : round)
#define SECOND_OF(pair) ((pair) ? (round - (pair) + players - 1) % (players - 1) : players - 1)
#define VALUE(i) z[(i) * (rank + 1)]

DEVICE double root_e_of(double d, double sum, double rho, double alpha, int64 cols) {
  double beta = rho * (1 + alpha) + alpha * sum / cols;
  return sqrt(1 / (beta / d + 1));
}

DEVICE double root_c_of(real value, double size, double least_square) {
  return sqrt(fmax((double)value * size, least_square));
}

DEVICE double sum_of(const real *d, int64 rank) {
  double own = 0;
  LANES(i, rank) own += d[i];
  return block_sum_double(own);
}

DEVICE void estimate_of_batch(const real *inner, const real *outer, const real *d,
                             const real *rho, const real *frozen, double *numbers,
                             const real *square, real *z, int64 rank, int64 cols, double now,
                             double old, double alpha) {
  double sum = sum_of(d, rank), trace = 0;
  LANES(i, rank) {
    double root = root_e_of(d[i], sum, rho[0], alpha, cols), both = (double)d[i] + rho[0];
    double own = now * now * outer[i * rank + i] / (root * root)
               + now * old * inner[i * rank + i] / (root * root) * (both + both);
    trace += own + (old * both) * (old * both);
  }
  trace = block_sum_double(trace);
  double size = fmax(1.0, trace);
  if (isnan(trace)) size = trace;
  int moves = isfinite(size) && isfinite((double)square[0]) && !(frozen && frozen[0] != 0);
  LANES(place, rank * rank) {
    int64 i = place / rank, j = place % rank, back = j * rank + i;
    double ei = root_e_of(d[i], sum, rho[0], alpha, cols);
    double ej = root_e_of(d[j], sum, rho[0], alpha, cols);
    double bi = (double)d[i] + rho[0], bj = (double)d[j] + rho[0];
    double ratio = 1 / (ei * ej);
    double one = now * now * outer[place] * ratio + now * old * inner[place] * ratio * (bi + bj);
    double two = now * now * outer[back] * ratio + now * old * inner[back] * ratio * (bi + bj);
    double value = 0.5 * (one + two);
    if (i == j) value += (old * bi) * (old * bi);
    z[place] = moves ? (real)(value / size) : (real)(i == j);
  }
  if (FIRST_LANE) {
    numbers[0] = moves;
    numbers[1] = size;
  }
}

// Turns two lines of a matrix, which lie `first` and `second` elements from its beginning.
DEVICE void turn(real *matrix, int64 first, int64 second, real c, real s) {
  real one = matrix[first], two = matrix[second];
  matrix[first] = c * one - s * two;
  matrix[second] = s * one + c * two;
}

// Eigenvalues of a symmetric z [rank, rank], which become its diagonal, and eigenvectors, the
// columns of `vectors`, by Jacobi's rotations. A round turns rank / 2 pairs of lines that have none
// in common, as a tournament pairs its players; all pairs had their turn after a sweep.
DEVICE void diagonalize(real *z, real *vectors, double *turns, int64 rank) {
  const int64 players = rank + rank % 2, pairs = players / 2;
  LANES(place, rank * rank) vectors[place] = (real)(place / rank == place % rank);
  for (int64 sweep = 0; sweep < SWEEPS; sweep++) {
    double off = 0, on = 0;
    SYNC;
    LANES(place, rank * rank) {
      double square = (double)z[place] * z[place];
      if (place / rank == place % rank) on += square;
      else off += square;
    }
    off = block_sum_double(off);
    on = block_sum_double(on);
    if (!(off > SMALLEST_TURN * on)) return;
    for (int64 round = 0; round < players - 1; round++) {
      LANES(pair, pairs) {
        int64 p = FIRST_OF(pair), q = SECOND_OF(pair);
        double c = 1, s = 0;
        if (p < rank && q < rank && z[p * rank + q] != 0) {
          double slope = ((double)z[q * rank + q] - z[p * rank + p]) / (2.0 * z[p * rank + q]);
          double t = 1 / (fabs(slope) + sqrt(slope * slope + 1));
          if (slope < 0) t = -t;
          c = 1 / sqrt(t * t + 1);
          s = t * c;
        }
        turns[2 * pair] = c;
        turns[2 * pair + 1] = s;
      }
      SYNC;
      LANES(place, pairs * rank) {
        int64 pair = place / rank, j = place % rank, p = FIRST_OF(pair), q = SECOND_OF(pair);
        if (p < rank && q < rank)
          turn(z, p * rank + j, q * rank + j, (real)turns[2 * pair], (real)turns[2 * pair + 1]);
      }
      SYNC;
      LANES(place, pairs * rank) {
        int64 pair = place / rank, i = place % rank, p = FIRST_OF(pair), q = SECOND_OF(pair);
        if (p < rank && q < rank) {
          turn(z, i * rank + p, i * rank + q, (real)turns[2 * pair], (real)turns[2 * pair + 1]);
          turn(vectors, i * rank + p, i * rank + q, (real)turns[2 * pair],
               (real)turns[2 * pair + 1]);
          if (i == p) z[i * rank + q] = 0;
          if (i == q) z[i * rank + p] = 0;
        }
      }
      SYNC;
    }
  }
}

DEVICE void next_estimate(const real *z, const real *vectors, real *d, real *rho, double *numbers,
                          const real *square, real *a, real *factors, double *root_e1,
                          int64 *order, int64 rank, int64 cols, double now, double old,
                          double alpha) {
  int moves = numbers[0] != 0;
  double size = numbers[1], sum = sum_of(d, rank), rho0 = rho[0];
  double least_square = (rho0 * old) * (rho0 * old), roots = 0, largest = 0;
  int below = 0;
  LANES(i, rank) {  // by falling size; equal ones in their order
    int64 place = 0;
    for (int64 j = 0; j < rank; j++) {
      double mine = fabs((double)VALUE(i)), other = fabs((double)VALUE(j));
      place += other > mine || (other == mine && j < i);
    }
    order[place] = i;
  }
  SYNC;
  LANES(i, rank) {
    double root = root_c_of(VALUE(order[i]), size, least_square);
    below += (double)VALUE(order[i]) * size < least_square;
    roots += root;
    largest = fmax(largest, root);
  }
  roots = block_sum_double(roots);
  largest = block_max_double(largest);
  below = block_sum_double(below) > 0;
  double first = (double)VALUE(order[0]), last = (double)VALUE(order[rank - 1]);
  double trace = now * square[0] + old * (cols * rho0 + sum);
  double rho1 = (trace - roots) / (cols - rank);
  double least = fmax(EPSILON, DELTA * largest), sum1 = 0;
  LANES(i, rank) {
    double root = root_c_of(VALUE(order[i]), size, least_square);
    sum1 += fmax(root - rho1, least);
  }
  sum1 = block_sum_double(sum1);
  double rho2 = fmax(rho1, least);
  LANES(i, rank) {
    double root = root_c_of(VALUE(order[i]), size, least_square);
    root_e1[i] = root_e_of(fmax(root - rho1, least), sum1, rho2, alpha, cols);
  }
  SYNC;
  LANES(place, rank * rank) {
    int64 i = place / rank, j = place % rank;
    double root = root_c_of(VALUE(order[i]), size, least_square);
    double before = root_e_of(d[j], sum, rho0, alpha, cols);
    double value = now * (root_e1[i] / root) * vectors[j * rank + order[i]] / before;
    a[place] = moves ? (real)value : (real)(i == j);
  }
  LANES(i, rank) factors[i] = moves ? (real)(old / now * ((double)d[i] + rho0)) : (real)1;
  SYNC;
  if (moves) {
    LANES(i, rank) {
      double root = root_c_of(VALUE(order[i]), size, least_square);
      d[i] = (real)fmax(root - rho1, least);
    }
    if (FIRST_LANE) rho[0] = (real)rho2;
  }
  if (FIRST_LANE) numbers[2] = moves && (first * size > CONDITION * (last * size) || below);
}

// inner = products' products and outer = sums sums': a block for an element of each.
KERNEL gram_matrices(const real *products, const real *sums, real *inner, real *outer, int64 rows,
                     int64 rank, int64 cols) {
  const int64 i = BLOCK_INDEX / rank, j = BLOCK_INDEX % rank;
  real one = 0, two = 0;
  if (j > i) return;
  LANES(n, rows) one += products[n * rank + i] * products[n * rank + j];
  LANES(n, cols) two += sums[i * cols + n] * sums[j * cols + n];
  one = block_sum(one);
  two = block_sum(two);
  if (FIRST_LANE) {
    inner[i * rank + j] = inner[j * rank + i] = one;
    outer[i * rank + j] = outer[j * rank + i] = two;
  }
}

// D and rho of the next estimate, and A, with which W moves to A B.
KERNEL move_estimate(const real *inner, const real *outer, real *d, real *rho, const real *frozen,
                     double *numbers, const real *square, real *z, real *vectors, double *turns,
                     real *a, real *factors, double *root_e1, int64 *order, int64 rank, int64 cols,
                     double now, double old, double alpha) {
  estimate_of_batch(inner, outer, d, rho, frozen, numbers, square, z, rank, cols, now, old, alpha);
  SYNC;
  diagonalize(z, vectors, turns, rank);
  SYNC;
  next_estimate(z, vectors, d, rho, numbers, square, a, factors, root_e1, order, rank, cols, now,
                old, alpha);
}

// W = A B, B = sums + factors W, a block for some columns; B takes the place of sums.
KERNEL move_rows(real *w, const real *a, const real *factors, const double *numbers, real *sums,
                 int64 rank, int64 cols) {
  const int64 first = BLOCK_INDEX * COLUMNS, width = cols - first < COLUMNS ? cols - first : COLUMNS;
  const int moves = numbers[0] != 0;
  LANES(place, rank * width) {
    int64 at = place / width * cols + first + place % width;
    real own = factors[place / width] * w[at];
    sums[at] = moves ? own + sums[at] : own;
  }
  SYNC;
  LANES(place, rank * width) {
    const int64 i = place / width, column = first + place % width;
    real sum = 0;
    for (int64 j = 0; j < rank; j++) sum += a[i * rank + j] * sums[j * cols + column];
    w[i * cols + column] = sum;
  }
}

KERNEL orthogonalize(real *w, const double *root_e, const double *numbers, int64 rank,
                     int64 cols) {
  // A lane touches the same columns throughout, so that only sums wait for the others.
  if (numbers[2] == 0) return;
  double worst = 0;
  for (int64 i = 0; i < rank; i++)
    for (int64 j = 0; j <= i; j++) {
      double product = 0;
      LANES(c, cols) product += (double)w[i * cols + c] * w[j * cols + c];
      product = block_sum_double(product) / (root_e[i] * root_e[j]);
      worst = fmax(worst, fabs(product - (i == j)));
    }
  if (worst <= ORTHOGONAL) return;
  for (int64 i = 0; i < rank; i++) {
    for (int64 again = 0; again < 2; again++)  // once leaves what cancellation made of it
      for (int64 j = 0; j < i; j++) {
        double product = 0;
        LANES(c, cols) product += (double)w[i * cols + c] * w[j * cols + c];
        product = block_sum_double(product) / (root_e[j] * root_e[j]);
        LANES(c, cols) w[i * cols + c] -= (real)(product * w[j * cols + c]);
      }
    double square = 0;
    LANES(c, cols) square += (double)w[i * cols + c] * w[i * cols + c];
    square = block_sum_double(square);
    double factor = square > 0 ? root_e[i] / sqrt(square) : 0;
    LANES(c, cols) w[i * cols + c] = (real)(factor * w[i * cols + c]);
  }
}

KERNEL sum_of_squares(const real *x, double *parts, int64 *counter, real *square, int64 size) {
  double sum = 0;
  EACH(i, size) sum += (double)x[i] * x[i];
  sum = block_sum_double(sum);
  if (FIRST_LANE) parts[BLOCK_INDEX] = sum;
  if (!is_last_block(counter)) return;
  sum = 0;
  LANES(i, BLOCK_COUNT) sum += parts[i];
  sum = block_sum_double(sum);
  if (FIRST_LANE) square[0] = (real)sum;
}

// out = x - back, where x is finite; and `scale`, which gives it the norm of x again.
KERNEL preconditioned(const real *x, const real *back, const real *square, real *out,
                      double *parts, int64 *counter, real *scale, int64 *count, int64 size) {
  const double before = square[0];
  const int moves = isfinite(before);
  double after = 0;
  EACH(i, size) {
    real value = moves ? x[i] - back[i] : x[i];
    out[i] = value;
    after += (double)value * value;
  }
  after = block_sum_double(after);
  if (FIRST_LANE) parts[BLOCK_INDEX] = after;
  if (!is_last_block(counter)) return;
  after = 0;
  LANES(i, BLOCK_COUNT) after += parts[i];
  after = block_sum_double(after);
  if (!FIRST_LANE) return;
  scale[0] = moves && before > 0 && after > 0 ? (real)sqrt(before / after) : (real)1;
  if (moves) count[0] += 1;
}
