/* Images whose channels lie side by side: a pixel is a row of channels. */
#pragma once
#include "turned.h"
#include "images_arguments.h"

/* to[j][i] = x[i][j] for three rows i, as images come, whose elements lie side by side then */
static void turn_three(const T *x, word down, word columns, T *to) {
  word j = 0;
  for (; j + LANES <= columns; j += LANES) {
    const vec_t a = *(const row_t *)(x + j), b = *(const row_t *)(x + down + j);
    const vec_t c = *(const row_t *)(x + 2 * down + j);
#pragma GCC unroll 3
    for (int k = 0; k < 3; k++) {
      flags_t first, rest;
#pragma GCC unroll 16
      for (int l = 0; l < LANES; l++) {
        const int row = (k * LANES + l) % 3, column = (k * LANES + l) / 3;
        first[l] = row * LANES * (row < 2) + column, rest[l] = row < 2 ? l : LANES + column;
      }
      *(row_t *)(to + 3 * j + k * LANES) = shuffled(shuffled(a, b, first), c, rest);
    }
  }
  for (; j < columns; j++)
    for (word i = 0; i < 3; i++) to[3 * j + i] = x[i * down + j];
}

/* rows y0 to y1 of a copy of image n */
static void copy_rows(const struct image *a, word n, word y0, word y1, T *copy) {
  const word c = a->channels, h = a->height, w = a->width, sc = a->down, sh = a->row, sw = a->pixel;
  const word wide = a->wide, top = a->top, left = a->left;
  for (word y = y0; y < y1; y++) {
    T *row = copy + y * wide * c;
    if (y < top || y >= top + h) {
      memset(row, 0, wide * c * sizeof(T));
      continue;
    }
    const T *x = a->x + n * a->x_step + (y - top) * sh;
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
    else if (sw == 1 && c == 3)
      turn_three(x, sc, count, row);
    else if (sw == 1)
      turn_all(x, sc, c, count, row, c);
    else
      for (word j = 0; j < count; j++)
        for (word i = 0; i < c; i++) row[j * c + i] = x[i * sc + j * sw];
  }
}

/* image n, in copy t if it is copied; its channels lie side by side */
static const T *image(const struct image *a, word n, word t) {
  if (!a->copied) return a->x + n * a->x_step;
  T *copy = a->copies + t * a->room;
  copy_rows(a, n, 0, a->high, copy);
  return copy;
}
