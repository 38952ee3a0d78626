// Windows over images for convolutions and poolings, along up to three spatial axes.
//
// `axes` holds three rows (the last spatial axis last; missing ones are axes of one place):
// inputs, positions, taps, stride, dilation, padding before, padding after.
// Places count in 32 bits, since a division of 64 bits takes four times as long.

#define AXIS 7
#define INPUTS(a) ((int32)axes[AXIS * (a)])
#define POSITIONS(a) ((int32)axes[AXIS * (a) + 1])
#define TAPS(a) ((int32)axes[AXIS * (a) + 2])
#define STRIDE(a) ((int32)axes[AXIS * (a) + 3])
#define DILATION(a) ((int32)axes[AXIS * (a) + 4])
#define BEFORE(a) ((int32)axes[AXIS * (a) + 5])
#define AFTER(a) ((int32)axes[AXIS * (a) + 6])

// Takes the last digit, of base `size`, off a number.
DEVICE int32 digit(uint32 *rest, int32 size) {
  uint32 number = *rest;
  *rest = number / (uint32)size;
  return (int32)(number - *rest * (uint32)size);
}

// The input that a tap reads at a position; -1 in the padding.
DEVICE int32 input_of(const int64 *axes, int32 a, int32 position, int32 tap) {
  int32 input = position * STRIDE(a) + tap * DILATION(a) - BEFORE(a);
  return input < INPUTS(a) ? (input < 0 ? -1 : input) : -1;
}

// The position at which a tap reads an input; -1 where there is none.
DEVICE int32 position_of(const int64 *axes, int32 a, int32 input, int32 tap) {
  int32 shift = input + BEFORE(a) - tap * DILATION(a);
  if (shift < 0 || shift % STRIDE(a)) return -1;
  shift /= STRIDE(a);
  return shift < POSITIONS(a) ? shift : -1;
}

// x [images, channels, inputs] -> cols [images, channels, taps, positions]; with `apart`
// [channels, taps, images, positions].
KERNEL gather_windows(const real *x, real *cols, const int64 *axes, int64 size, int64 images,
                      int64 channels, int64 apart) {
  EACH(i, size) {
    uint32 rest = (uint32)i;
    int32 p2 = digit(&rest, POSITIONS(2)), p1 = digit(&rest, POSITIONS(1));
    int32 p0 = digit(&rest, POSITIONS(0));
    uint32 image = apart ? digit(&rest, (int32)images) : 0;
    int32 q2 = input_of(axes, 2, p2, digit(&rest, TAPS(2)));
    int32 q1 = input_of(axes, 1, p1, digit(&rest, TAPS(1)));
    int32 q0 = input_of(axes, 0, p0, digit(&rest, TAPS(0)));
    uint32 plane = apart ? image * (uint32)channels + rest : rest;
    int64 place = (((int64)plane * INPUTS(0) + q0) * INPUTS(1) + q1) * INPUTS(2) + q2;
    cols[i] = q0 < 0 || q1 < 0 || q2 < 0 ? (real)0 : x[place];
  }
}

// The sums of cols [planes, taps, positions] over all windows that read a place of x.
KERNEL sum_windows(const real *cols, real *x, const int64 *axes, int64 size) {
  EACH(i, size) {
    uint32 rest = (uint32)i;
    int32 q2 = digit(&rest, INPUTS(2)), q1 = digit(&rest, INPUTS(1));
    int32 q0 = digit(&rest, INPUTS(0));
    real sum = 0;
    for (int32 k0 = 0; k0 < TAPS(0); k0++) {
      int32 p0 = position_of(axes, 0, q0, k0);
      if (p0 < 0) continue;
      for (int32 k1 = 0; k1 < TAPS(1); k1++) {
        int32 p1 = position_of(axes, 1, q1, k1);
        if (p1 < 0) continue;
        for (int32 k2 = 0; k2 < TAPS(2); k2++) {
          int32 p2 = position_of(axes, 2, q2, k2);
          if (p2 < 0) continue;
          int64 row = (((int64)rest * TAPS(0) + k0) * TAPS(1) + k1) * TAPS(2) + k2;
          sum += cols[((row * POSITIONS(0) + p0) * POSITIONS(1) + p1) * POSITIONS(2) + p2];
        }
      }
    }
    x[i] = sum;
  }
}

// One step of a maximum; the first of equal values wins, and a value that is no number stays.
DEVICE void take_greater(real value, int32 tap, real *best, int32 *winner) {
  if (*winner < 0 || value > *best) {
    *best = value;
    *winner = tap;
  } else if (isnan(value)) {
    *best = value;
  }
}

// Maxima of windows, axis by axis, the last one first, with the winning tap of each axis: `first`
// [planes, i0, i1, p2], `second` [planes, i0, p1, p2], `third` [planes, p0, p1, p2], where they are
// given. Windows that overlap write the same winners of inner axes.
KERNEL max_of_windows(const real *x, real *out, WINNER *first, WINNER *second, WINNER *third,
                      const int64 *axes, int64 size) {
  EACH(i, size) {
    uint32 rest = (uint32)i;
    int32 p2 = digit(&rest, POSITIONS(2)), p1 = digit(&rest, POSITIONS(1));
    int32 p0 = digit(&rest, POSITIONS(0)), winner0 = -1;
    real best0 = 0;
    for (int32 k0 = 0; k0 < TAPS(0); k0++) {
      int32 q0 = input_of(axes, 0, p0, k0), winner1 = -1;
      if (q0 < 0) continue;
      int64 slice = (int64)rest * INPUTS(0) + q0;
      real best1 = 0;
      for (int32 k1 = 0; k1 < TAPS(1); k1++) {
        int32 q1 = input_of(axes, 1, p1, k1), winner2 = -1;
        if (q1 < 0) continue;
        int64 line = slice * INPUTS(1) + q1;
        real best2 = 0;
        for (int32 k2 = 0; k2 < TAPS(2); k2++) {
          int32 q2 = input_of(axes, 2, p2, k2);
          if (q2 >= 0) take_greater(x[line * INPUTS(2) + q2], k2, &best2, &winner2);
        }
        if (first) first[line * POSITIONS(2) + p2] = (WINNER)winner2;
        take_greater(best2, k1, &best1, &winner1);
      }
      if (second) second[(slice * POSITIONS(1) + p1) * POSITIONS(2) + p2] = (WINNER)winner1;
      take_greater(best1, k0, &best0, &winner0);
    }
    if (third) third[i] = (WINNER)winner0;
    out[i] = best0;
  }
}

// The gradients of windows summed over those that a place of x won.
KERNEL max_of_windows_grad(const real *grad, const WINNER *first, const WINNER *second,
                           const WINNER *third, real *x_grad, const int64 *axes, int64 size) {
  EACH(i, size) {
    uint32 rest = (uint32)i;
    int32 q2 = digit(&rest, INPUTS(2)), q1 = digit(&rest, INPUTS(1));
    int32 q0 = digit(&rest, INPUTS(0));
    int64 slice = (int64)rest * INPUTS(0) + q0, line = slice * INPUTS(1) + q1;
    real sum2 = 0;
    for (int32 k2 = 0; k2 < TAPS(2); k2++) {
      int32 p2 = position_of(axes, 2, q2, k2);
      if (p2 < 0 || (first && first[line * POSITIONS(2) + p2] != k2)) continue;
      real sum1 = 0;
      for (int32 k1 = 0; k1 < TAPS(1); k1++) {
        int32 p1 = position_of(axes, 1, q1, k1);
        if (p1 < 0) continue;
        if (second && second[(slice * POSITIONS(1) + p1) * POSITIONS(2) + p2] != k1) continue;
        real sum0 = 0;
        for (int32 k0 = 0; k0 < TAPS(0); k0++) {
          int32 p0 = position_of(axes, 0, q0, k0);
          if (p0 < 0) continue;
          int64 place = ((int64)rest * POSITIONS(0) + p0) * POSITIONS(1) + p1;
          place = place * POSITIONS(2) + p2;
          if (!third || third[place] == k0) sum0 += grad[place];
        }
        sum1 += sum0;
      }
      sum2 += sum1;
    }
    x_grad[i] = sum2;
  }
}

// Into how many places a window goes along an axis: its taps, without those that hang over the
// padding and, where the padding does not count, without those in it.
DEVICE double places_of(const int64 *axes, int32 a, int32 position, int64 counts_padding) {
  int32 start = position * STRIDE(a) - BEFORE(a), end = start + TAPS(a);
  int32 most = counts_padding ? INPUTS(a) + AFTER(a) : INPUTS(a);
  if (!counts_padding && start < 0) start = 0;
  return (end < most ? end : most) - start;
}

DEVICE real share_of(const int64 *axes, int32 p0, int32 p1, int32 p2, int64 counts_padding) {
  double share = 1 / places_of(axes, 2, p2, counts_padding);
  share /= places_of(axes, 1, p1, counts_padding);
  return (real)(share / places_of(axes, 0, p0, counts_padding));
}

// Means of windows.
KERNEL mean_of_windows(const real *x, real *out, const int64 *axes, int64 size,
                       int64 counts_padding) {
  EACH(i, size) {
    uint32 rest = (uint32)i;
    int32 p2 = digit(&rest, POSITIONS(2)), p1 = digit(&rest, POSITIONS(1));
    int32 p0 = digit(&rest, POSITIONS(0));
    real sum0 = 0;
    for (int32 k0 = 0; k0 < TAPS(0); k0++) {
      int32 q0 = input_of(axes, 0, p0, k0);
      if (q0 < 0) continue;
      real sum1 = 0;
      for (int32 k1 = 0; k1 < TAPS(1); k1++) {
        int32 q1 = input_of(axes, 1, p1, k1);
        if (q1 < 0) continue;
        int64 line = ((int64)rest * INPUTS(0) + q0) * INPUTS(1) + q1;
        real sum2 = 0;
        for (int32 k2 = 0; k2 < TAPS(2); k2++) {
          int32 q2 = input_of(axes, 2, p2, k2);
          if (q2 >= 0) sum2 += x[line * INPUTS(2) + q2];
        }
        sum1 += sum2;
      }
      sum0 += sum1;
    }
    out[i] = sum0 * share_of(axes, p0, p1, p2, counts_padding);
  }
}

KERNEL mean_of_windows_grad(const real *grad, real *x_grad, const int64 *axes, int64 size,
                            int64 counts_padding) {
  EACH(i, size) {
    uint32 rest = (uint32)i;
    int32 q2 = digit(&rest, INPUTS(2)), q1 = digit(&rest, INPUTS(1));
    int32 q0 = digit(&rest, INPUTS(0));
    real sum2 = 0;
    for (int32 k2 = 0; k2 < TAPS(2); k2++) {
      int32 p2 = position_of(axes, 2, q2, k2);
      if (p2 < 0) continue;
      real sum1 = 0;
      for (int32 k1 = 0; k1 < TAPS(1); k1++) {
        int32 p1 = position_of(axes, 1, q1, k1);
        if (p1 < 0) continue;
        real sum0 = 0;
        for (int32 k0 = 0; k0 < TAPS(0); k0++) {
          int32 p0 = position_of(axes, 0, q0, k0);
          if (p0 < 0) continue;
          int64 place = ((int64)rest * POSITIONS(0) + p0) * POSITIONS(1) + p1;
          sum0 += grad[place * POSITIONS(2) + p2] * share_of(axes, p0, p1, p2, counts_padding);
        }
        sum1 += sum0;
      }
      sum2 += sum1;
    }
    x_grad[i] = sum2;
  }
}
