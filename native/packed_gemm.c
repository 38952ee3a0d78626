/* Products with factors that stay packed: operators/backends/packed_gemm.py. */
#include "packed_gemm.h"

VISIBLE word EXPORTED(panel_bytes)[] = {WIDE * BYTES};

/* m n k; a, its steps along m and k, one of them 1; panels; out and its step; what to begin with
   (or 0) and its step */
EXPORT(product)(const word *b, word t, word threads) {
  const word m = b[0], n = b[1], k = b[2], lda = b[4], next = b[5], ldc = b[8], step = b[10];
  const T *a = (const T *)b[3], *p = (const T *)b[6], *from = (const T *)b[9];
  T *c = (T *)b[7];
  if (m > CHUNK * threads) {  /* rows to each thread; some of them stay in its cache */
    const word tiles = (m + HIGH - 1) / HIGH;
    const word end = least(tiles * (t + 1) / threads * HIGH, m);
    for (word r = tiles * t / threads * HIGH; r < end; r += CHUNK)
      for (word j = 0; j < n; j += COLS)
        panel_rows(r, least(r + CHUNK, end), least(COLS, n - j), k, a, lda, next, p + j * k, c + j,
                ldc, from ? from + j : 0, step);
    return;
  }
  const word units = (m + HIGH - 1) / HIGH * ((n + LANES - 1) / LANES);
  word panel, row, last, end;
  place(units * t / threads, m, n, &panel, &row);
  place(units * (t + 1) / threads, m, n, &last, &end);
  for (; panel <= last; panel++, row = 0) {
    const word j = panel * COLS;
    if (j < n)
      panel_rows(row, panel == last ? end : m, least(COLS, n - j), k, a, lda, next, p + j * k, c + j,
              ldc, from ? from + j : 0, step);
  }
}

EXPORT(pack)(const word *b, word t, word threads) { pack_panels(b, t, threads); }
