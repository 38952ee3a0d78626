/* Matrices turned, a square of vectors at a time. */
#pragma once
#include "vectors.h"

INLINE vec_t shuffled(vec_t a, vec_t b, flags_t which) {
#ifdef __clang__
  vec_t to;
  for (int l = 0; l < LANES; l++) to[l] = which[l] < LANES ? a[which[l]] : b[which[l] - LANES];
  return to;
#else
  return __builtin_shuffle(a, b, which);
#endif
}

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

/* as `turn`, of fewer rows or columns */
static void turn_part(const T *x, word down, word rows, word columns, T *to, word to_down) {
  T whole[LANES * LANES], square[LANES * LANES];  /* `turn` may write before it has read all */
  if (columns < LANES) {
    for (word j = 0; j < columns; j++)
      for (word i = 0; i < rows; i++) to[j * to_down + i] = x[i * down + j];
    return;
  }
  for (word i = 0; i < rows; i++) *(row_t *)(whole + i * LANES) = *(const row_t *)(x + i * down);
  turn(whole, LANES, square, LANES);
  for (word j = 0; j < LANES; j++)
    store_lanes(to + j * to_down, *(const row_t *)(square + j * LANES), rows);
}

/* the same for two rows, whose elements lie side by side then: pairs, as channels of two groups */
static void turn_two(const T *x, word down, word columns, T *to) {
  if (columns < LANES) {
    for (word j = 0; j < columns; j++) to[2 * j] = x[j], to[2 * j + 1] = x[down + j];
    return;
  }
  flags_t low, high;
#pragma GCC unroll 16
  for (int l = 0; l < LANES; l++) low[l] = l % 2 * LANES + l / 2, high[l] = low[l] + LANES / 2;
  for (word k = 0; k < columns; k += LANES) {
    const word j = least(k, columns - LANES);  /* the last two may overlap */
    const vec_t a = *(const row_t *)(x + j), b = *(const row_t *)(x + down + j);
    *(row_t *)(to + 2 * j) = shuffled(a, b, low);
    *(row_t *)(to + 2 * j + LANES) = shuffled(a, b, high);
  }
}

/* to[j][i] = x[i][j] for any number of rows i and columns j */
static void turn_all(const T *x, word down, word rows, word columns, T *to, word to_down) {
  if (rows == 2 && to_down == 2) {
    turn_two(x, down, columns, to);
    return;
  }
  for (word i = 0; i < rows; i += LANES)
    for (word j = 0; j < columns; j += LANES) {
      const word high = least(LANES, rows - i), wide = least(LANES, columns - j);
      const T *from = x + i * down + j;
      T *there = to + j * to_down + i;
      if (high == LANES && wide == LANES)
        turn(from, down, there, to_down);
      else
        turn_part(from, down, high, wide, there, to_down);
    }
}
