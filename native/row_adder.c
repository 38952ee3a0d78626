/* Rows added to rows by their numbers: operators/base/row_adder.py. */
#include "vectors.h"
#include "row_adder_arguments.h"

/* Each thread does columns of its own, in the order of the numbers. Numbers of no row, which a
   forward operator refuses, must not reach other memory where a net has its gradient alone. */
EXPORT(add_rows)(const struct add_rows *a, word t, word n) {
  const word cols = a->columns, first = cols * t / n, last = cols * (t + 1) / n;
  for (word i = 0; i < a->count; i++) {
    const word row = a->ids[i] < 0 ? a->ids[i] + a->rows : a->ids[i];
    if ((uint64_t)row >= (uint64_t)a->rows) continue;
    T *to = a->out + row * cols;
    const word place = a->places ? a->places[i] : i;
    if ((uint64_t)place >= (uint64_t)a->taken) continue;
    const T *x = a->values + place * cols;
    word j = first;
    for (; j + 4 * LANES <= last; j += 4 * LANES) {
      row_t s[4];
#pragma GCC unroll 4
      for (int v = 0; v < 4; v++) s[v] = *(row_t *)(to + j + v * LANES) + *(const row_t *)(x + j + v * LANES);
#pragma GCC unroll 4
      for (int v = 0; v < 4; v++) *(row_t *)(to + j + v * LANES) = s[v];
    }
    for (; j + LANES <= last; j += LANES) *(row_t *)(to + j) += *(const row_t *)(x + j);
    for (; j < last; j++) to[j] += x[j];
  }
}
