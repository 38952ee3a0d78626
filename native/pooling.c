/* Pooling over two spatial axes: operators/direct/pooling.py. */
#include "pooling.h"

EXPORT(pool)(const struct pool *a, word t, word threads) { pool_windows(a, t, threads); }

EXPORT(spread)(const struct spread *args, word t, word threads) {
  const struct windows *b = &args->windows;
  const word c = b->channels, high = b->high, wide = b->wide, kh = b->kernel_down;
  const word kw = b->kernel_right, tiles = args->tiles;
  const word sx[] = {b->x_image, b->x_channel, b->x_row, b->x_pixel};
  const word so[] = {b->out_image, b->out_channel, b->out_row, b->out_pixel};
  const word side = sx[1] == 1;  /* vectors of channels */
  const T *down = b->down, *right = b->right;
  for (word n = b->images * t / threads; n < b->images * (t + 1) / threads; n++) {
    T *whole = args->x_grad + n * sx[0];
    for (word y = 0; !tiles && y < b->height; y++)
      for (word z = 0; z < b->width; z++)
        for (word i = 0; i < c; i++) whole[i * sx[1] + y * sx[2] + z * sx[3]] = 0;
    for (word p = 0; p < high; p++) {
      word y0, y1, x0, x1;
      span(p, b->stride_down, b->before_down, kh, b->height, &y0, &y1);
      for (word q = 0; q < wide; q++) {
        span(q, b->stride_right, b->before_right, kw, b->width, &x0, &x1);
        T *x = whole + (p * b->stride_down - b->before_down) * sx[2] +
               (q * b->stride_right - b->before_right) * sx[3];
        const T *g = args->out_grad + n * so[0] + p * so[2] + q * so[3];
        const uint8_t *winner = args->winners;
        if (winner) winner += ((n * high + p) * wide + q) * c;
        const T factor = b->means ? down[p] * right[q] : 1;
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

/* means of whole images: rows of them are added up by themselves, so that long sums stay exact */
EXPORT(plane_means)(const struct plane_means *a, word t, word threads) {
  const word c = a->channels, high = a->height, wide = a->width, down = a->row, right = a->pixel;
  const word blocks = (c + LANES - 1) / LANES, units = a->images * blocks;
  const T factor = (T)(1.0 / ((double)high * (double)wide));
  for (word u = units * t / threads; u < units * (t + 1) / threads; u++) {
    const word n = u / blocks, first = u % blocks * LANES;
    const word i = c < LANES ? first : least(first, c - LANES), end = least(i + LANES, c);
    const T *x = a->x + n * a->image + i * a->channel;
    T *out = a->out + n * c;
    if (a->channel == 1 && end - i == LANES) {
      vec_t sum = {0};
      for (word y = 0; y < high; y++) {
        vec_t s[4] = {{0}};
        const T *from = x + y * down;
        word z = 0;
        for (; z + 4 <= wide; z += 4)
#pragma GCC unroll 4
          for (int k = 0; k < 4; k++) s[k] += *(const row_t *)(from + (z + k) * right);
        for (; z < wide; z++) s[0] += *(const row_t *)(from + z * right);
        sum += (s[0] + s[1]) + (s[2] + s[3]);
      }
      *(row_t *)(out + i) = sum * factor;
      continue;
    }
    for (word j = i; j < end; j++, x += a->channel) {
      T sum = 0;
      for (word y = 0; y < high; y++) {
        vec_t s = {0};
        const T *from = x + y * down;
        word z = 0;
        for (; right == 1 && z + LANES <= wide; z += LANES) s += *(const row_t *)(from + z);
        T part = 0;
        for (; z < wide; z++) part += from[z * right];
        for (int k = 0; k < LANES; k++) part += s[k];
        sum += part;
      }
      out[j] = sum * factor;
    }
  }
}
