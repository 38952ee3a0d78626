/* Images whose channels lie side by side: a pixel is a row of channels. */
#pragma once
#include "vectors.h"
#include "images_arguments.h"

/* to[j][i] = x[i][j] for as many rows and columns as a vector has lanes (Eklundh 1972) */
INLINE void turn(const T *x, word down, T *to, word to_down) {
#ifdef __clang__
  for (word i = 0; i < LANES; i++)
    for (word j = 0; j < LANES; j++) to[j * to_down + i] = x[i * down + j];
#else
  vec_t r[LANES];
#pragma GCC unroll 16
  for (int i = 0; i < LANES; i++) r[i] = *(const row_t *)(x + i * down);
#pragma GCC unroll 4
  for (int s = LANES / 2; s; s /= 2) {
    flags_t low, high;
#pragma GCC unroll 16
    for (int l = 0; l < LANES; l++) {
      low[l] = l & s ? LANES + l - s : l;
      high[l] = l & s ? LANES + l : l + s;
    }
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) {
      if (i & s) continue;
      const vec_t a = r[i], b = r[i + s];
      r[i] = __builtin_shuffle(a, b, low);
      r[i + s] = __builtin_shuffle(a, b, high);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < LANES; i++) *(row_t *)(to + i * to_down) = r[i];
#endif
}

/* to[j][i] = x[i][j] for any number of rows i and columns j */
static void turn_all(const T *x, word down, word rows, word columns, T *to, word to_down) {
  for (word i = 0; i < rows; i += LANES)
    for (word j = 0; j < columns; j += LANES) {
      if (i + LANES <= rows && j + LANES <= columns) {
        turn(x + i * down + j, down, to + j * to_down + i, to_down);
        continue;
      }
      for (word q = j; q < least(columns, j + LANES); q++)
        for (word p = i; p < least(rows, i + LANES); p++)
          to[q * to_down + p] = x[p * down + q];
    }
}

/* image n, in copy t if it is copied; its channels lie side by side */
static const T *image(const struct image *a, word n, word t) {
  const T *from = a->x + n * a->x_step;
  if (!a->copied) return from;
  const word c = a->channels, h = a->height, w = a->width, sc = a->down, sh = a->row, sw = a->pixel;
  const word high = a->high, wide = a->wide, top = a->top, left = a->left;
  T *to = a->copies + t * a->room;
  for (word y = 0; y < high; y++) {
    T *row = to + y * wide * c;
    if (y < top || y >= top + h) {
      memset(row, 0, wide * c * sizeof(T));
      continue;
    }
    const T *x = from + (y - top) * sh;
    const word first = left < 0 ? -left : 0;
    const word last = wide - left < first ? first : least(w, wide - left);
    memset(row, 0, (left + first) * c * sizeof(T));
    memset(row + (left + last) * c, 0, (wide - left - last) * c * sizeof(T));
    row += (left + first) * c;
    x += first * sw;
    const word count = last - first;
    if (sc == 1 && sw == c)
      memcpy(row, x, count * c * sizeof(T));
    else if (sc == 1)
      for (word j = 0; j < count; j++) memcpy(row + j * c, x + j * sw, c * sizeof(T));
    else if (sw == 1)
      turn_all(x, sc, c, count, row, c);
    else
      for (word j = 0; j < count; j++)
        for (word i = 0; i < c; i++) row[j * c + i] = x[i * sc + j * sw];
  }
  return to;
}
