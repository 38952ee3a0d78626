/* Rows added to rows by their numbers: operators/base/row_adder.py. */
#include "typed.h"

/* numbers, columns; how many rows the target has; target, numbers of rows, what is added. Each
   thread does columns of its own, in the order of the numbers. Numbers of no row, which a forward
   operator refuses, must not reach other memory where a net has its gradient alone. */
EXPORT(add_rows)(const word *b, word t, word n) {
  const word count = b[0], cols = b[1], first = cols * t / n, last = cols * (t + 1) / n;
  const word *ids = (const word *)b[4];
  for (word i = 0; i < count; i++) {
    const word row = ids[i] < 0 ? ids[i] + b[2] : ids[i];
    if ((uint64_t)row >= (uint64_t)b[2]) continue;
    T *to = (T *)b[3] + row * cols;
    const T *x = (const T *)b[5] + i * cols;
    for (word j = first; j < last; j++) to[j] += x[j];
  }
}
