/* Rows of groups reduced to one each: operators/sequence/segments.py. */
#include "vectors.h"
#include "segments_arguments.h"

enum { SUM, MAXIMUM, MINIMUM, WIDE = 4 };  /* WIDE: vectors that stay in registers */

INLINE vec_t reduced(const int kind, vec_t a, vec_t b) {
  if (kind == SUM) return a + b;
  const flags_t taken = (kind == MAXIMUM ? b > a : b < a) | (b != b);  /* NaN stays */
  return (vec_t)(((flags_t)b & taken) | ((flags_t)a & ~taken));
}

/* `wide` vectors from column c on of the rows `begin` to `end` of a group */
INLINE void reduce_rows(const int kind, const int wide, const struct reduce *a, word begin, word end,
                          word c, T *out) {
  const word columns = a->columns, *rows = a->rows;
  vec_t s[WIDE];
#pragma GCC unroll 4
  for (int v = 0; v < wide; v++)
    s[v] = *(const row_t *)(a->x + (rows ? rows[begin] : begin) * columns + c + v * LANES);
  for (word i = begin + 1; i < end; i++) {
    const T *x = a->x + (rows ? rows[i] : i) * columns + c;
#pragma GCC unroll 4
    for (int v = 0; v < wide; v++) s[v] = reduced(kind, s[v], *(const row_t *)(x + v * LANES));
  }
#pragma GCC unroll 4
  for (int v = 0; v < wide; v++) *(row_t *)(out + c + v * LANES) = s[v];
}

INLINE void reduce_groups(const int kind, const struct reduce *a, word g0, word g1) {
  const word columns = a->columns;
  for (word g = g0; g < g1; g++) {
    const word begin = a->offsets[g], end = a->offsets[g + 1];
    T *out = a->out + g * columns;
    if (begin >= end) {
      memset(out, 0, columns * sizeof(T));
      continue;
    }
    word c = 0;
    for (; c + WIDE * LANES <= columns; c += WIDE * LANES)
      reduce_rows(kind, WIDE, a, begin, end, c, out);
    for (; c + LANES <= columns; c += LANES) reduce_rows(kind, 1, a, begin, end, c, out);
    for (; c < columns; c++) {
      vec_t s = {0};
      for (word i = begin; i < end; i++) {
        const vec_t x = a->x[(a->rows ? a->rows[i] : i) * columns + c] - (vec_t){0};
        s = i == begin ? x : reduced(kind, s, x);
      }
      out[c] = s[0];
    }
  }
}

EXPORT(reduce)(const struct reduce *a, word t, word threads) {
  const word g0 = a->groups * t / threads, g1 = a->groups * (t + 1) / threads;
  if (a->kind == SUM)
    reduce_groups(SUM, a, g0, g1);
  else if (a->kind == MAXIMUM)
    reduce_groups(MAXIMUM, a, g0, g1);
  else
    reduce_groups(MINIMUM, a, g0, g1);
}
