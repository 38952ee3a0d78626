/* Images made larger or smaller: operators/direct/interpolation.py.

   A row of the result is made of a row of the input that lies between a few of its rows: that one
   is computed first, and its places are then the sums of a few of that row's. */
#include <math.h>
#include "vectors.h"
#include "interpolation_arguments.h"

enum { TAPS = 4 };

/* How an axis changes. */
typedef struct { word taps, before, aligned; double ratio; } Axis;

static Axis axis_of(const struct interpolate *a, word before, word after, double scale) {
  double ratio = scale ? 1 / scale : (double)before / after;
  if (a->aligned) ratio = after > 1 ? (before - 1.0) / (after - 1) : 0;
  return (Axis){a->taps, before, a->aligned, ratio};
}

static double near(double x) { return (1.25 * x - 2.25) * x * x + 1; }
static double far(double x) { return -0.75 * (((x - 5) * x + 8) * x - 4); }

/* What the result at `at` is: shares of a few places. */
static void find_taps(const Axis *a, word at, word *places, T *shares) {
  double parts[TAPS] = {1};
  word first;
  if (a->taps == 1)
    first = (word)floorf((float)at * (float)a->ratio);
  else {
    /* rounded, as NumPy does: where a place is one of the input it is no mixture of two */
    volatile double scaled = (a->aligned ? at : at + 0.5) * a->ratio;
    const double place = a->aligned ? scaled : scaled - 0.5;
    if (a->taps == 2) {
      first = place > 0 ? least((word)place, a->before - 1) : 0;
      const double rest = place > first ? place - first : 0;
      parts[1] = rest < 1 ? rest : 1;
      parts[0] = 1 - parts[1];
    } else {
      const double low = floor(place), rest = place - low;
      first = (word)low - 1;
      parts[0] = far(rest + 1), parts[1] = near(rest);
      parts[2] = near(1 - rest), parts[3] = far(2 - rest);
    }
  }
  word used = 0, absent = 0;
  for (word k = 0; k < a->taps; k++) {
    const word place = first + k;
    places[k] = place < 0 ? 0 : least(place, a->before - 1);
    if (k && places[k] == places[k - 1]) parts[k] += parts[k - 1], parts[k - 1] = 0;
  }
  /* A place without a share may be infinite: another one's share is divided instead. */
  for (word k = 0; k < a->taps; k++) parts[k] ? (used = k) : absent++;
  const double divided = parts[used] / (absent + 1);
  for (word k = 0; k < a->taps; k++) {
    if (!parts[k]) places[k] = places[used];
    shares[k] = (T)(!parts[k] || k == used ? divided : parts[k]);
  }
}

INLINE vec_t mixed(word taps, const T **rows, const T *shares, word i) {
  vec_t sum = *(const row_t *)(rows[0] + i) * shares[0];
  for (word k = 1; k < taps; k++) sum += *(const row_t *)(rows[k] + i) * shares[k];
  return sum;
}

/* to = the rows times their shares */
INLINE void mix(word taps, const T **rows, const T *shares, word count, T *to) {
  word i = 0;
  for (; i + LANES <= count; i += LANES) *(row_t *)(to + i) = mixed(taps, rows, shares, i);
  for (; i < count; i++) {
    T sum = rows[0][i] * shares[0];
    for (word k = 1; k < taps; k++) sum += rows[k][i] * shares[k];
    to[i] = sum;
  }
}

static void mix_few(word taps, const T **rows, const T *shares, word count, T *to) {
  if (taps == 1)
    memcpy(to, rows[0], count * sizeof(T));
  else if (taps == 2)
    mix(2, rows, shares, count, to);
  else
    mix(TAPS, rows, shares, count, to);
}

/* to[j] = the sum of shares[k][j] * from[places[k][j]] */
INLINE void pick(word taps, const T *from, const word *places, const T *shares, word wide, T *to) {
  for (word j = 0; j < wide; j++) {
    T sum = from[places[j]] * shares[j];
    for (word k = 1; k < taps; k++) sum += from[places[k * wide + j]] * shares[k * wide + j];
    to[j] = sum;
  }
}

/* a row of the result, of a row of the input */
static void along(const struct interpolate *a, const T *from, const word *places, const T *shares,
                  T *to) {
  const word taps = a->taps, wide = a->wide, inner = a->inner;
  if (inner == 1) {
    if (taps == 1)
      for (word j = 0; j < wide; j++) to[j] = from[places[j]];
    else if (taps == 2)
      pick(2, from, places, shares, wide, to);
    else
      pick(TAPS, from, places, shares, wide, to);
    return;
  }
  for (word j = 0; j < wide; j++) {
    const T *pixels[TAPS];
    T own[TAPS];
    for (word k = 0; k < taps; k++) {
      pixels[k] = from + places[k * wide + j] * inner;
      own[k] = shares[k * wide + j];
    }
    mix_few(taps, pixels, own, inner, to + j * inner);
  }
}

EXPORT(interpolate)(const struct interpolate *a, word t, word threads) {
  threads = least(threads, a->threads);
  if (t >= threads) return;
  const word high = a->high, wide = a->wide, inner = a->inner, taps = a->taps;
  const word planes = a->side ? 1 : a->channels, rows = a->images * planes * high;
  const Axis down = axis_of(a, a->height, high, a->scale_down);
  const Axis right = axis_of(a, a->width, wide, a->scale_right);
  T *line = a->line + t * a->width * inner, *shares = a->shares + t * TAPS * wide;
  word *places = a->places + t * TAPS * wide;
  const word first = rows * t / threads, end = rows * (t + 1) / threads;
  for (word j = 0; j < wide && first < end; j++) {
    word where[TAPS];
    T own[TAPS];
    find_taps(&right, j, where, own);
    for (word k = 0; k < taps; k++) places[k * wide + j] = where[k], shares[k * wide + j] = own[k];
  }
  for (word u = first; u < end; u++) {
    const word plane = u / high, y = u % high, n = plane / planes, c = plane % planes;
    const T *x = a->x + n * a->x_image + c * a->x_channel, *from[TAPS];
    T *out = a->out + n * a->out_image + c * a->out_channel + y * a->out_row;
    word where[TAPS], same = 1;
    T own[TAPS];
    find_taps(&down, y, where, own);
    for (word k = 0; k < taps; k++) {
      from[k] = x + where[k] * a->x_row;
      same &= where[k] == where[0];
    }
    if (!same) mix_few(taps, from, own, a->width * inner, line);
    along(a, same ? from[0] : line, places, shares, out);
  }
}
