/* Pooling over two spatial axes. The winners of a maximum are the numbers of their taps, row by row,
   in the order [N, P, Q, C]. */
#pragma once
#include "vectors.h"

typedef uint8_t bytes_t __attribute__((vector_size(LANES)));
typedef uint8_t some_t __attribute__((vector_size(LANES), aligned(1), may_alias));

INLINE vec_t gather(const T *x, word step) {
  if (step == 1) return *(const row_t *)x;
  vec_t a;
#pragma GCC unroll 16
  for (int l = 0; l < LANES; l++) a[l] = x[l * step];
  return a;
}

INLINE void scatter(T *x, word step, vec_t a) {
  if (step == 1) {
    *(row_t *)x = a;
    return;
  }
#pragma GCC unroll 16
  for (int l = 0; l < LANES; l++) x[l * step] = a[l];
}

/* the taps of a window along one axis that lie inside */
INLINE void span(word position, word stride, word before, word kernel, word size, word *first,
                   word *last) {
  const word start = position * stride - before;
  *first = start < 0 ? -start : 0;
  *last = least(kernel, size - start);
}

/* maxima of a row of windows that all lie inside, of whole vectors of channels; NaN stays */
INLINE void maxima(const word kh, const word kw, const T *x, const word *sx, word stride,
                     word wide, word c, T *out, const word *so) {
  for (word q = 0; q < wide; q++, x += stride * sx[3], out += so[3])
    for (word i = 0; i < c; i += LANES) {
      vec_t best = *(const row_t *)(x + i);
#pragma GCC unroll 3
      for (word y = 0; y < kh; y++)
#pragma GCC unroll 3
        for (word z = y ? 0 : 1; z < kw; z++) {
          const vec_t a = *(const row_t *)(x + y * sx[2] + z * sx[3] + i);
          const flags_t taken = (a > best) | (a != a);
          best = (vec_t)(((flags_t)a & taken) | ((flags_t)best & ~taken));
        }
      scatter(out + i * so[1], so[1], best);
    }
}

/* images, channels, height, width; positions; kernel, stride, before: each down and right; x and
   its four steps, out and its four, winners (or 0); sums instead, and the factors of each row and
   column of positions (or 0) */
static void pool_windows(const word *b, word t, word threads) {
  const word c = b[1], high = b[4], wide = b[5], kh = b[6], kw = b[7];
  const word *sx = b + 13, *so = b + 18;
  const word side = sx[1] == 1;  /* vectors of channels */
  const T *down = (const T *)b[24], *right = (const T *)b[25];
  const word inside = !b[10] && !b[11] && (high - 1) * b[8] + kh <= b[2] &&
                      (wide - 1) * b[9] + kw <= b[3];
  const word plain = inside && side && !b[22] && !b[23] && c % LANES == 0;
  for (word u = b[0] * high * t / threads; u < b[0] * high * (t + 1) / threads; u++) {
    const word n = u / high, p = u % high;
    if (plain) {
      const T *x = (const T *)b[12] + n * sx[0] + p * b[8] * sx[2];
      T *out = (T *)b[17] + n * so[0] + p * so[2];
      if (kh == 2 && kw == 2)
        maxima(2, 2, x, sx, b[9], wide, c, out, so);
      else if (kh == 3 && kw == 3)
        maxima(3, 3, x, sx, b[9], wide, c, out, so);
      else
        maxima(kh, kw, x, sx, b[9], wide, c, out, so);
      continue;
    }
    word y0, y1, x0, x1;
    span(p, b[8], b[10], kh, b[2], &y0, &y1);
    for (word q = 0; q < wide; q++) {
      span(q, b[9], b[11], kw, b[3], &x0, &x1);
      const T *x = (const T *)b[12] + n * sx[0] + (p * b[8] - b[10]) * sx[2] +
                   (q * b[9] - b[11]) * sx[3];
      T *out = (T *)b[17] + n * so[0] + p * so[2] + q * so[3];
      uint8_t *winner = b[22] ? (uint8_t *)b[22] + ((n * high + p) * wide + q) * c : 0;
      const T factor = b[23] ? down[p] * right[q] : 1;
      for (word i = 0; i < c; i += LANES) {
        const word lanes = side ? least(LANES, c - i) : LANES;
        if (side && lanes == LANES) {
          vec_t best = *(const row_t *)(x + y0 * sx[2] + x0 * sx[3] + i);
          flags_t won = (flags_t){0} + (flag_t)(y0 * kw + x0);
          for (word y = y0; y < y1; y++)
            for (word z = y == y0 ? x0 + 1 : x0; z < x1; z++) {
              const vec_t a = *(const row_t *)(x + y * sx[2] + z * sx[3] + i);
              if (b[23]) {
                best += a;
                continue;
              }
              const flags_t more = a > best, taken = more | (a != a);  /* NaN stays, unnumbered */
              best = (vec_t)(((flags_t)a & taken) | ((flags_t)best & ~taken));
              won = (((flags_t){0} + (flag_t)(y * kw + z)) & more) | (won & ~more);
            }
          if (b[23]) best *= factor;
          scatter(out + i * so[1], so[1], best);
          if (winner) *(some_t *)(winner + i) = __builtin_convertvector(won, bytes_t);
          continue;
        }
        for (word j = i; j < least(c, i + LANES); j++) {
          const T *from = x + j * sx[1];
          T best = from[y0 * sx[2] + x0 * sx[3]];
          word won = y0 * kw + x0;
          for (word y = y0; y < y1; y++)
            for (word z = y == y0 ? x0 + 1 : x0; z < x1; z++) {
              const T a = from[y * sx[2] + z * sx[3]];
              if (b[23])
                best += a;
              else {
                won = a > best ? y * kw + z : won;
                best = (a > best) | (a != a) ? a : best;
              }
            }
          out[j * so[1]] = b[23] ? best * factor : best;
          if (winner) winner[j] = won;
        }
      }
    }
  }
}
