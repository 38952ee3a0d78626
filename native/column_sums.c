/* Sums of a matrix over its rows: operators/backends/column_sums.py. */
#include "typed.h"
#include "column_sums_arguments.h"

enum { WIDE = 512, ROWS = 32 };

/* Some rows are added up first, then these sums, so that the error grows little with the rows. */
EXPORT(sums)(const struct sums *a, word t, word n) {
  const word rows = a->rows, lines = (a->columns + 15) / 16;
  const word last = least(lines * (t + 1) / n * 16, a->columns);
  for (word c = lines * t / n * 16; c < last; c += WIDE) {
    const word width = least(WIDE, last - c);
    T *total = a->out + c, part[WIDE];
    for (word r = 0; r < rows || !r; r += ROWS) {
      memset(part, 0, sizeof part);
      for (word i = r; i < least(r + ROWS, rows); i++) {
        const T *x = a->x + i * a->step + c;
        for (word j = 0; j < width; j++) part[j] += x[j];
      }
      for (word j = 0; j < width; j++) total[j] = r ? total[j] + part[j] : part[j];
    }
  }
}
