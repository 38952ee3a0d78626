/* Sums of a matrix over its rows: operators/backends/column_sums.py. */
#include "typed.h"

enum { WIDE = 512, ROWS = 32 };

/* rows, columns; the matrix, the distance of its rows; the sums. Some rows are added up first, then
   these sums, so that the error grows little with the rows. */
EXPORT(sums)(const word *b, word t, word n) {
  const word rows = b[0], lines = (b[1] + 15) / 16;
  const word last = least(lines * (t + 1) / n * 16, b[1]);
  for (word c = lines * t / n * 16; c < last; c += WIDE) {
    const word width = least(WIDE, last - c);
    T *total = (T *)b[4] + c, part[WIDE];
    for (word r = 0; r < rows || !r; r += ROWS) {
      memset(part, 0, sizeof part);
      for (word i = r; i < least(r + ROWS, rows); i++) {
        const T *x = (const T *)b[2] + i * b[3] + c;
        for (word j = 0; j < width; j++) part[j] += x[j];
      }
      for (word j = 0; j < width; j++) total[j] = r ? total[j] + part[j] : part[j];
    }
  }
}
