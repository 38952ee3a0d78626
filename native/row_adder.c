/* Rows added to rows by their numbers: operators/base/row_adder.py. */
#include "typed.h"
#include "row_adder_arguments.h"

/* Each thread does columns of its own, in the order of the numbers. Numbers of no row, which a
   forward operator refuses, must not reach other memory where a net has its gradient alone. */
EXPORT(add_rows)(const struct add_rows *a, word t, word n) {
  const word cols = a->columns, first = cols * t / n, last = cols * (t + 1) / n;
  for (word i = 0; i < a->count; i++) {
    const word row = a->ids[i] < 0 ? a->ids[i] + a->rows : a->ids[i];
    if ((uint64_t)row >= (uint64_t)a->rows) continue;
    T *to = a->out + row * cols;
    const T *x = a->values + i * cols;
    for (word j = first; j < last; j++) to[j] += x[j];
  }
}
