/* Convolutions of images of bytes, exact in 32 bits: operators/backends/integer_conv.py. Channels lie
   side by side. What some windows read is copied, a window a row, and multiplied as a matrix is;
   windows of one place are rows as they lie. */
#include "integer_rows.h"
#include "integer_convolution_arguments.h"

/* the windows of `count` outputs from one on, of one group of channels */
static void gather(const struct integer_convolution *a, word pixel, word count, word group, char *to) {
  const word c = a->channels, across = a->kernel_right, step = a->columns.k;
  const char pad = a->columns.a_zero ? *a->columns.a_zero : 0;
  const int together = a->dilation_right == 1 && a->x_pixel == c;
  word q = pixel % a->wide, p = pixel / a->wide % a->high, n = pixel / a->wide / a->high;
  for (word i = 0; i < count; i++) {
    const char *image = a->x + n * a->x_image + group * c;
    const word left = q * a->stride_right - a->before_right;
    for (word y = 0; y < a->kernel_down; y++) {
      const word row = p * a->stride_down - a->before_down + y * a->dilation_down;
      char *into = to + y * across * c;
      if ((uint64_t)row >= (uint64_t)a->height) {
        memset(into, pad, across * c);
        continue;
      }
      const char *from = image + row * a->x_row + left * a->x_pixel;
      if (together) {
        const word first = left < 0 ? least(-left, across) : 0;
        const word last = left + across > a->width ? a->width - left : across;
        if (first) memset(into, pad, first * c);
        if (last > first) memcpy(into + first * c, from + first * c, (last - first) * c);
        if (last < across) memset(into + (last > first ? last : first) * c, pad,
                                  (across - (last > first ? last : first)) * c);
        continue;
      }
      for (word z = 0; z < across; z++, into += c, from += a->dilation_right * a->x_pixel)
        if ((uint64_t)(left + z * a->dilation_right) < (uint64_t)a->width)
          memcpy(into, from, c);
        else
          memset(into, pad, c);
    }
    to += step;
    if (++q == a->wide) {
      q = 0;
      if (++p == a->high) p = 0, n++;
    }
  }
}

EXPORT(integer_convolution)(const struct integer_convolution *a, word t, word threads) {
  const struct integer_columns *c = &a->columns;
  const word pixels = a->images * a->high * a->wide, panels = (c->n + COLS - 1) / COLS;
  threads = least(threads, a->threads);
  if (t >= threads) return;
  char *memory = a->memory ? a->memory + t * NEAR * c->k : 0;
  const word blocks = (pixels + NEAR - 1) / NEAR, shares = blocks < threads ? threads : 1;
  const word units = blocks * shares;
  for (word u = units * t / threads; u < units * (t + 1) / threads; u++) {
    const word pixel = u / shares * NEAR, count = least(NEAR, pixels - pixel), share = u % shares;
    for (word g = 0; g < c->groups; g++) {
      const char *x = a->x + pixel * a->x_pixel + g * a->channels;
      if (memory) gather(a, pixel, count, g, memory), x = memory;
      for (word p = panels * share / shares; p < panels * (share + 1) / shares; p++)
        panel_of(c, g, p, x, memory ? c->k : a->x_pixel, count, a->out + pixel * a->out_pixel,
                 a->out_pixel);
    }
  }
}

enum { LANES = 16, MOST_TAPS = 1024 };

/* What a depthwise convolution reads: filters [taps, channels] without their zero points, a number of
   16 bits in 32 each; what is added to all sums; what they are multiplied with; a pixel of padding. */
EXPORT(pack_depthwise)(const struct pack_depthwise *a, word t, word threads) {
  const word c = a->channels;
  const int32_t zero = !a->x_zero ? 0 : a->x_is_signed ? (signed char)*a->x_zero : (unsigned char)*a->x_zero;
  for (word i = c * t / threads; i < c * (t + 1) / threads; i++) {
    const char own = a->w_zero ? a->w_zero[a->w_zeros > 1 ? i : 0] : 0;
    int32_t sum = 0;
    for (word y = 0; y < a->taps; y++) {
      const char b = a->w[i * a->taps + y];
      const int32_t w = a->is_unsigned ? (unsigned char)b - (unsigned char)own
                                       : (signed char)b - (signed char)own;
      a->panels[y * c + i] = w & 0xffff;
      sum += w;
    }
    a->first[i] = (a->bias ? a->bias[i] : 0) - zero * (uint32_t)sum;
    a->factors[i] = a->scale ? a->scale[a->scales > 1 ? i : 0] : 1;
    a->padding[i] = zero;
  }
}

/* an output pixel, of whose taps these are the places */
INLINE void pixel_of(const int is_signed, const struct integer_depthwise *a, const ending *e,
                     const char *const *places, word taps, char *out) {
  const word c = a->channels, size = e->bytes ? 1 : 4;
  for (word k = 0; k < c; k += LANES) {
    const word i = least(k, c - LANES);
    const int32_t *w = a->panels + i;
    int32_t s[LANES];
#if defined(__AVX512VNNI__)
    __m512i sum = _mm512_loadu_si512(a->first + i);
    for (word y = 0; y < taps; y++) {
      const __m128i bytes = _mm_loadu_si128((const __m128i *)(places[y] + i));
      const __m512i x = is_signed ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
      sum = _mm512_dpwssd_epi32(sum, x, _mm512_loadu_si512(w + y * c));
    }
    _mm512_storeu_si512(s, sum);
#else
    memcpy(s, a->first + i, sizeof s);
    for (word y = 0; y < taps; y++)
      for (int l = 0; l < LANES; l++) {
        const char x = places[y][i + l];
        s[l] += (is_signed ? (signed char)x : (unsigned char)x) * (int16_t)w[y * c + l];
      }
#endif
    end_sums(e, LANES, LANES, s, a->factors + i, out + i * size);
  }
}

EXPORT(integer_depthwise)(const struct integer_depthwise *a, word t, word threads) {
  const ending e = ending_of(a->scaled ? a->factors : 0, a->out_zero, a->out_is_signed);
  const word rows = a->images * a->high, across = a->kernel_right, taps = a->kernel_down * across;
  const char *places[MOST_TAPS];
  for (word u = rows * t / threads; u < rows * (t + 1) / threads; u++) {
    const word n = u / a->high, top = u % a->high * a->stride_down - a->before_down;
    char *out = a->out + u * a->wide * a->out_pixel;
    for (word q = 0; q < a->wide; q++, out += a->out_pixel) {
      const word left = q * a->stride_right - a->before_right;
      for (word y = 0; y < a->kernel_down; y++) {
        const word row = top + y * a->dilation_down;
        const char *from = a->x + n * a->x_image + row * a->x_row;
        for (word z = 0; z < across; z++) {
          const word col = left + z * a->dilation_right;
          const int inside = (uint64_t)row < (uint64_t)a->height && (uint64_t)col < (uint64_t)a->width;
          places[y * across + z] = inside ? from + col * a->x_pixel : a->padding;
        }
      }
      if (a->is_signed)
        pixel_of(1, a, &e, places, taps, out);
      else
        pixel_of(0, a, &e, places, taps, out);
    }
  }
}
