/* Pooling over two spatial axes. The winners of a maximum are the numbers of their taps, row by row,
   in the order [N, P, Q, C]. */
#pragma once
#include "vectors.h"
#include "pooling_arguments.h"

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

/* maxima or sums times `factor` of windows of kh times kw places, all of them inside; NaN stays. Where
   channels are no whole number of vectors, the last two overlap: c >= LANES */
INLINE void pool_inside(const int means, const word kh, const word kw, const T *x, const word *sx,
                          word stride, word wide, word c, T down, const T *right, T *out,
                          const word *so) {
  /* read once: vectors that are stored might lie over them */
  const word row = sx[2], pixel = sx[3], across = stride * pixel, lane = so[1], next = so[3];
  for (word q = 0; q < wide; q++, x += across, out += next) {
    const T factor = means ? down * right[q] : 1;
    for (word k = 0; k < c; k += LANES) {
      const word i = least(k, c - LANES);
      const T *from = x + i;
      vec_t best = *(const row_t *)from;
#pragma GCC unroll 3
      for (word y = 0; y < kh; y++)
#pragma GCC unroll 3
        for (word z = y ? 0 : 1; z < kw; z++) {
          const vec_t a = *(const row_t *)(from + y * row + z * pixel);
          const vec_t more = at_least(best, a);  /* which keeps a NaN of the best alone */
          const flags_t odd = a != a;
          best = means ? best + a : (vec_t)((flags_t)more | odd);
        }
      scatter(out + i * lane, lane, means ? best * factor : best);
    }
  }
}

static void pool_windows(const struct pool *a, word t, word threads) {
  const struct windows *b = &a->windows;
  const word c = b->channels, high = b->high, wide = b->wide, kh = b->kernel_down;
  const word kw = b->kernel_right, before_down = b->before_down, before_right = b->before_right;
  const word sx[] = {b->x_image, b->x_channel, b->x_row, b->x_pixel};
  const word so[] = {b->out_image, b->out_channel, b->out_row, b->out_pixel};
  const word side = sx[1] == 1;  /* vectors of channels */
  const T *down = b->down, *right = b->right;
  const word plain = side && !a->winners && c >= LANES;
  /* the windows of a row that reach over neither end */
  const word first = least((before_right + b->stride_right - 1) / b->stride_right, wide);
  const word room = b->width + before_right - kw;
  const word end = room < 0 ? first : least(room / b->stride_right + 1, wide);
  const word rows = b->images * high;
  for (word u = rows * t / threads; u < rows * (t + 1) / threads; u++) {
    const word n = u / high, p = u % high;
    word y0, y1, x0, x1;
    span(p, b->stride_down, before_down, kh, b->height, &y0, &y1);
    for (word q = 0; q < wide; q++) {
      span(q, b->stride_right, before_right, kw, b->width, &x0, &x1);
      const T *x = a->x + n * sx[0] + (p * b->stride_down - before_down) * sx[2] +
                   (q * b->stride_right - before_right) * sx[3];
      T *out = a->out + n * so[0] + p * so[2] + q * so[3];
      uint8_t *winner = a->winners ? a->winners + ((n * high + p) * wide + q) * c : 0;
      if (plain && q == first && first < end) {
        const T down_here = b->means ? down[p] : 1, *factors = b->means ? right + q : 0;
#define INSIDE(means, kh, kw)                                                                   \
  pool_inside(means, kh, kw, x + y0 * sx[2], sx, b->stride_right, end - q, c, down_here, factors, \
              out, so)
        if (b->means)
          INSIDE(1, y1 - y0, kw);
        else if (y1 - y0 == 2 && kw == 2)
          INSIDE(0, 2, 2);
        else if (y1 - y0 == 3 && kw == 3)
          INSIDE(0, 3, 3);
        else
          INSIDE(0, y1 - y0, kw);
#undef INSIDE
        q = end - 1;
        continue;
      }
      const T factor = b->means ? down[p] * right[q] : 1;
      for (word k = 0; k < c; k += LANES) {
        const word i = side && c >= LANES ? least(k, c - LANES) : k;
        if (side && c >= LANES) {
          vec_t best = *(const row_t *)(x + y0 * sx[2] + x0 * sx[3] + i);
          flags_t won = (flags_t){0} + (flag_t)(y0 * kw + x0);
          for (word y = y0; y < y1; y++)
            for (word z = y == y0 ? x0 + 1 : x0; z < x1; z++) {
              const vec_t a = *(const row_t *)(x + y * sx[2] + z * sx[3] + i);
              if (b->means) {
                best += a;
                continue;
              }
              const flags_t more = a > best, taken = more | (a != a);  /* NaN stays, unnumbered */
              best = (vec_t)(((flags_t)a & taken) | ((flags_t)best & ~taken));
              won = (((flags_t){0} + (flag_t)(y * kw + z)) & more) | (won & ~more);
            }
          if (b->means) best *= factor;
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
              if (b->means)
                best += a;
              else {
                won = a > best ? y * kw + z : won;
                best = (a > best) | (a != a) ? a : best;
              }
            }
          out[j * so[1]] = b->means ? best * factor : best;
          if (winner) winner[j] = won;
        }
      }
    }
  }
}
