/* Pooling over two spatial axes: operators/direct/pooling.py. */
#include "pooling.h"

EXPORT(pool)(const word *b, word t, word threads) { pool_windows(b, t, threads); }

/* as `pool`, with x_grad for x and the gradient for out; whether every place lies in one window */
EXPORT(spread)(const word *b, word t, word threads) {
  const word c = b[1], high = b[4], wide = b[5], kh = b[6], kw = b[7], tiles = b[26];
  const word *sx = b + 13, *so = b + 18;
  const word side = sx[1] == 1;  /* vectors of channels */
  const T *down = (const T *)b[24], *right = (const T *)b[25];
  for (word n = b[0] * t / threads; n < b[0] * (t + 1) / threads; n++) {
    T *whole = (T *)b[12] + n * sx[0];
    for (word y = 0; !tiles && y < b[2]; y++)
      for (word z = 0; z < b[3]; z++)
        for (word i = 0; i < c; i++) whole[i * sx[1] + y * sx[2] + z * sx[3]] = 0;
    for (word p = 0; p < high; p++) {
      word y0, y1, x0, x1;
      span(p, b[8], b[10], kh, b[2], &y0, &y1);
      for (word q = 0; q < wide; q++) {
        span(q, b[9], b[11], kw, b[3], &x0, &x1);
        T *x = whole + (p * b[8] - b[10]) * sx[2] + (q * b[9] - b[11]) * sx[3];
        const T *g = (const T *)b[17] + n * so[0] + p * so[2] + q * so[3];
        const uint8_t *winner = (const uint8_t *)b[22];
        if (winner) winner += ((n * high + p) * wide + q) * c;
        const T factor = b[23] ? down[p] * right[q] : 1;
        for (word i = 0; i < c; i += LANES) {
          if (side && c - i >= LANES) {
            const vec_t a = gather(g + i * so[1], so[1]) * factor;
            flags_t won = {0};
            if (winner) won = __builtin_convertvector(*(const some_t *)(winner + i), flags_t);
            for (word y = y0; y < y1; y++)
              for (word z = x0; z < x1; z++) {
                const flags_t mine = won == (flags_t){0} + (flag_t)(y * kw + z);
                vec_t part = a;
                if (winner) part = (vec_t)((flags_t)a & mine);
                row_t *to = (row_t *)(x + y * sx[2] + z * sx[3] + i);
                if (!tiles) part += *to;
                *to = part;
              }
            continue;
          }
          for (word j = i; j < least(c, i + LANES); j++) {
            const T a = g[j * so[1]] * factor;
            T *to = x + j * sx[1];
            for (word y = y0; y < y1; y++)
              for (word z = x0; z < x1; z++) {
                const T part = !winner || winner[j] == y * kw + z ? a : 0;
                T *place = to + y * sx[2] + z * sx[3];
                *place = tiles ? part : *place + part;
              }
          }
        }
      }
    }
  }
}
