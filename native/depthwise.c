/* Depthwise convolutions: each output has one channel of its own, and channels lie side by side:
   operators/direct/convolutions.py.

   A row of windows is computed four at a time, vector of channels after vector: what neighboring
   windows share is read once, and memory in its order (a row for a vector at a time took 2.6 times as
   long where images leave the cache). Nothing is copied: taps that meet the padding are left out. */
#include "pooling.h"
#include "epilogue.h"
#include "depthwise_arguments.h"

enum { HIGH = 4, MOST_ACROSS = 5 };  /* windows at a time; taps of a row that registers hold */

/* s[j] += a row of taps of HIGH neighboring windows. Of the places that these read the first is
   number `begin` of the row; where `ends`, those outside of `width` are left out */
INLINE void row_of_taps(const int ends, const int across, const int stride, const T *x, word pixel,
                          word begin, word width, const T *w, vec_t *s) {
  vec_t b[MOST_ACROSS];
#pragma GCC unroll 5
  for (int k = 0; k < across; k++) b[k] = *(const row_t *)(w + k * LANES);
#pragma GCC unroll 16
  for (int z = 0; z < (HIGH - 1) * stride + across; z++) {
    if (ends && (uint64_t)(begin + z) >= (uint64_t)width) continue;
    const vec_t a = *(const row_t *)(x + z * pixel);
#pragma GCC unroll 5
    for (int k = 0; k < across; k++)
      if (z >= k && (z - k) % stride == 0 && (z - k) / stride < HIGH) s[(z - k) / stride] += a * b[k];
  }
}

/* the same for any windows */
static void row_of_any(word across, word stride, const T *x, word pixel, word begin, word width,
                         const T *w, vec_t *s) {
  for (word k = 0; k < across; k++)
    for (word j = 0; j < HIGH; j++) {
      const word z = j * stride + k;
      if ((uint64_t)(begin + z) < (uint64_t)width)
        s[j] += *(const row_t *)(x + z * pixel) * *(const row_t *)(w + k * LANES);
    }
}

EXPORT(depthwise)(const struct depthwise *a, word t, word threads) {
  const struct windows *b = &a->windows;
  const word c = b->channels, high = b->high, wide = b->wide, width = b->width;
  const word across = b->kernel_right, stride = b->stride_right, pixel = b->x_pixel;
  const word panel = b->kernel_down * across * LANES, rows = b->images * high;
  const vec_t zero = {0};
  const int far = (b->height * width + high * wide) * c * sizeof(T) > FAR;
  threads = least(threads, a->threads);
  if (t >= threads) return;
  T *own = a->memory ? a->memory + t * wide * c : 0;
  for (word u = rows * t / threads; u < rows * (t + 1) / threads; u++) {
    const word n = u / high, p = u % high;
    word y0, y1;
    span(p, b->stride_down, b->before_down, b->kernel_down, b->height, &y0, &y1);
    const T *row = a->x + n * b->x_image + (p * b->stride_down - b->before_down) * b->x_row;
    T *to = own ? own : a->out + n * b->out_image + p * b->out_row;
    const word distance = own ? c : b->out_pixel;
    for (word q = 0; q < wide; q += HIGH) {
      const word begin = q * stride - b->before_right, few = least(HIGH, wide - q);
      const int ends = begin < 0 || begin + (HIGH - 1) * stride + across > width;
      for (word k = 0; k < c; k += LANES) {
        const word o = least(k, c - LANES);
        const T *w = a->panels + k / LANES * panel, *x = row + begin * pixel + o;
        const vec_t term = a->bias ? (vec_t) * (const row_t *)(a->bias + o) : zero;
        const vec_t first = a->factors ? zero : term;
        vec_t s[HIGH] = {first, first, first, first};
        if (far)
          for (word j = 0; j < HIGH; j++) __builtin_prefetch(to + (q + HIGH + j) * distance + o, 1);
#define KNOWN(taps, step)                                                                      \
  for (word y = y0; y < y1; y++)                                                               \
    if (ends)                                                                                  \
      row_of_taps(1, taps, step, x + y * b->x_row, pixel, begin, width, w + y * taps * LANES, s); \
    else                                                                                       \
      row_of_taps(0, taps, step, x + y * b->x_row, pixel, begin, width, w + y * taps * LANES, s)
        if (across == 3 && stride == 1)
          KNOWN(3, 1);
        else if (across == 3 && stride == 2)
          KNOWN(3, 2);
        else if (across == 5 && stride == 1)
          KNOWN(5, 1);
        else if (across == 5 && stride == 2)
          KNOWN(5, 2);
        else
          for (word y = y0; y < y1; y++)
            row_of_any(across, stride, x + y * b->x_row, pixel, begin, width, w + y * across * LANES, s);
#undef KNOWN
        if (a->factors)
          for (word j = 0; j < HIGH; j++) s[j] = s[j] * *(const row_t *)(a->factors + o) + term;
        activate(&a->activation, HIGH, s);
        for (word j = 0; j < few; j++) *(row_t *)(to + (q + j) * distance + o) = s[j];
      }
    }
    if (own) end_pixels(a->epilogue, u * wide, wide, 0, c, own, c, 0);
  }
}
