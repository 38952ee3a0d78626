/* Convolutions of images of bytes, exact in 32 bits: operators/backends/integer/integer_conv.py. Channels lie
   side by side. What some windows read is copied, a window a row, and multiplied as a matrix is;
   windows of one place are rows as they lie. */
#include "integer_rows.h"
#include "integer_convolution_arguments.h"

/* `count` pieces of `size` bytes. memcpy of few bytes takes most of its time for finding out how many
   they are: here the ends of a piece are copied, which may overlap. */
INLINE void copy_pieces(char *to, word step, const char *from, word from_step, word count, word size) {
#define ENDS(n)                                                                                \
  if (size >= n && size <= 2 * n) {                                                            \
    for (word i = 0; i < count; i++, to += step, from += from_step) {                          \
      char first[n], last[n];                                                                  \
      memcpy(first, from, n), memcpy(last, from + size - n, n);                                \
      memcpy(to, first, n), memcpy(to + size - n, last, n);                                    \
    }                                                                                          \
    return;                                                                                    \
  }
  ENDS(4) ENDS(8) ENDS(16) ENDS(32) ENDS(64) ENDS(1)
#undef ENDS
  for (word i = 0; i < count; i++, to += step, from += from_step) memcpy(to, from, size);
}

/* the windows of `count` outputs of row p of an image, from column q on: of a row of the filter in one
   piece, or each pixel by itself where pixels lie apart */
static void gather_row(const struct integer_convolution *a, const char *image, word p, word q,
                       word count, char *to) {
  const word c = a->channels, across = a->kernel_right, step = a->columns.k, stride = a->stride_right;
  const word pieces = a->dilation_right == 1 && a->x_pixel == c ? 1 : across;
  const word size = across / pieces * c, most = a->width - across / pieces;
  const char pad = a->columns.a_zero ? *a->columns.a_zero : 0;
  for (word y = 0; y < a->kernel_down; y++, to += across * c) {
    const word row = p * a->stride_down - a->before_down + y * a->dilation_down;
    if ((uint64_t)row >= (uint64_t)a->height) {
      for (word i = 0; i < count; i++) memset(to + i * step, pad, across * c);
      continue;
    }
    const char *from = image + row * a->x_row;
    for (word z = 0; z < pieces; z++) {
      char *into = to + z * c;
      for (word i = 0, ready; i < count; i += ready, into += ready * step) {
        const word left = (q + i) * stride - a->before_right + z * a->dilation_right;
        if (left >= 0 && left <= most) {
          ready = least(count - i, (most - left) / stride + 1);
          copy_pieces(into, step, from + left * a->x_pixel, stride * a->x_pixel, ready, size);
          continue;
        }
        ready = 1;
        for (word k = 0; k < across / pieces; k++)
          if ((uint64_t)(left + k) < (uint64_t)a->width)
            copy_pieces(into + k * c, 0, from + (left + k) * a->x_pixel, 0, 1, c);
          else
            memset(into + k * c, pad, c);
      }
    }
  }
}

/* the windows of `count` outputs from one on, of one group of channels */
static void gather(const struct integer_convolution *a, word pixel, word count, word group, char *to) {
  word q = pixel % a->wide, p = pixel / a->wide % a->high, n = pixel / a->wide / a->high;
  for (word here; count; count -= here, to += here * a->columns.k) {
    here = least(count, a->wide - q);
    gather_row(a, a->x + n * a->x_image + group * a->channels, p, q, here, to);
    q = 0;
    if (++p == a->high) p = 0, n++;
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
  block b;
  start_blocks(&b);
  for (word u = units * t / threads; u < units * (t + 1) / threads; u++) {
    const word pixel = block_from(u / shares, blocks, pixels), share = u % shares;
    const word count = block_from(u / shares + 1, blocks, pixels) - pixel;
    for (word g = 0; g < c->groups; g++) {
      const char *x = a->x + pixel * a->x_pixel + g * a->channels;
      if (memory) gather(a, pixel, count, g, memory), x = memory;
      next_block(&b, c, x, memory ? c->k : a->x_pixel, count);
      for (word p = panels * share / shares; p < panels * (share + 1) / shares; p++)
        panel_of(c, g, p, &b, a->out + pixel * a->out_pixel, a->out_pixel);
    }
  }
  end_blocks(&b);
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

/* `high` pixels of the output, one after another: tap y of pixel p reads what lies at
   places[y * high + p]; if they are `even`, places has those of the first one alone, and what the next
   ones read is `step` farther each */
INLINE void pixels_of(const int high, const int even, const int is_signed,
                      const struct integer_depthwise *a, const ending *e, const char *const *places,
                      word step, word taps, char *out) {
#define PLACE(y, p) (even ? places[y] + (p) * step : places[(y) * high + (p)])
  const word c = a->channels, size = e->bytes ? 1 : 4;
  for (word k = 0; k < c; k += LANES) {
    const word i = least(k, c - LANES);
    const int32_t *w = a->panels + i;
#if defined(__AVX512VNNI__)
    __m512i s[HIGH];
#pragma GCC unroll 8
    for (int p = 0; p < high; p++) s[p] = _mm512_loadu_si512(a->first + i);
    for (word y = 0; y < taps; y++) {
      const __m512i factor = _mm512_loadu_si512(w + y * c);
#pragma GCC unroll 8
      for (int p = 0; p < high; p++) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(PLACE(y, p) + i));
        s[p] = _mm512_dpwssd_epi32(
            s[p], is_signed ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes), factor);
      }
    }
    const __m512 factors = _mm512_loadu_ps(a->factors + i);
#pragma GCC unroll 8
    for (int p = 0; p < high; p++)
      end_vector(e, 0xffff, s[p], factors, out + p * a->out_pixel + i * size);
#elif defined(__AVX2__)
    int32_t sums[HIGH][LANES];
    for (int l = 0; l < LANES; l += 8) {
      __m256i s[HIGH];
#pragma GCC unroll 8
      for (int p = 0; p < high; p++) s[p] = _mm256_loadu_si256((const __m256i *)(a->first + i + l));
      for (word y = 0; y < taps; y++) {
        const __m256i factor = _mm256_loadu_si256((const __m256i *)(w + y * c + l));
#pragma GCC unroll 8
        for (int p = 0; p < high; p++) {
          const __m128i bytes = _mm_loadl_epi64((const __m128i *)(PLACE(y, p) + i + l));
          const __m256i numbers =
              is_signed ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes);
#ifdef __AVXVNNI__
          s[p] = _mm256_dpwssd_avx_epi32(s[p], numbers, factor);
#else
          s[p] = _mm256_add_epi32(s[p], _mm256_madd_epi16(numbers, factor));
#endif
        }
      }
#pragma GCC unroll 8
      for (int p = 0; p < high; p++) _mm256_storeu_si256((__m256i *)(sums[p] + l), s[p]);
    }
    for (int p = 0; p < high; p++)
      end_sums(e, LANES, LANES, sums[p], a->factors + i, out + p * a->out_pixel + i * size);
#else
    for (int p = 0; p < high; p++) {
      int32_t s[LANES];
      memcpy(s, a->first + i, sizeof s);
      for (word y = 0; y < taps; y++)
        for (int l = 0; l < LANES; l++) {
          const char x = PLACE(y, p)[i + l];
          s[l] += (is_signed ? (signed char)x : (unsigned char)x) * (int16_t)w[y * c + l];
        }
      end_sums(e, LANES, LANES, s, a->factors + i, out + p * a->out_pixel + i * size);
    }
#endif
  }
#undef PLACE
}

/* where the taps read for `count` pixels of the output from one on, those of a tap side by side */
static void find_places(const struct integer_depthwise *a, word pixel, word count, const char **places) {
  word q = pixel % a->wide, p = pixel / a->wide % a->high, n = pixel / a->wide / a->high;
  for (word i = 0; i < count; i++) {
    const char **place = places + i;
    for (word y = 0; y < a->kernel_down; y++) {
      const word row = p * a->stride_down - a->before_down + y * a->dilation_down;
      const char *from = a->x + n * a->x_image + row * a->x_row;
      word col = q * a->stride_right - a->before_right;
      for (word z = 0; z < a->kernel_right; z++, col += a->dilation_right, place += count) {
        const int inside = (uint64_t)row < (uint64_t)a->height && (uint64_t)col < (uint64_t)a->width;
        *place = inside ? from + col * a->x_pixel : a->padding;
      }
    }
    if (++q < a->wide) continue;
    q = 0;
    if (++p == a->high) p = 0, n++;
  }
}

/* whether no tap is outside for HIGH pixels from one on, and these are in one row */
static int all_inside(const struct integer_depthwise *a, word pixel) {
  const word q = pixel % a->wide, top = pixel / a->wide % a->high * a->stride_down - a->before_down;
  const word left = q * a->stride_right - a->before_right;
  const word right = left + (HIGH - 1) * a->stride_right + (a->kernel_right - 1) * a->dilation_right;
  return q + HIGH <= a->wide && left >= 0 && right < a->width && top >= 0 &&
         top + (a->kernel_down - 1) * a->dilation_down < a->height;
}

/* HIGH pixels at a time, the last ones from the end of the part back: some may be computed twice. */
EXPORT(integer_depthwise)(const struct integer_depthwise *a, word t, word threads) {
  const ending e = ending_of(a->scaled ? a->factors : 0, a->out_zero, a->out_is_signed);
  const word all = a->images * a->high * a->wide, taps = a->kernel_down * a->kernel_right;
  const word begin = all * t / threads, end = all * (t + 1) / threads;
  const int few = taps <= MOST_TAPS / HIGH;
  const char *places[MOST_TAPS];
  for (word from = begin, count; from < end; from += count) {
    const word several = least(from, end - HIGH);
    const int even = several >= begin && all_inside(a, several);
    count = several >= begin && (even || few) ? HIGH : 1;
    if (count > 1) from = several;
    find_places(a, from, even ? 1 : count, places);
    char *out = a->out + from * a->out_pixel;
#define PIXELS(high, even, is_signed)                                                          \
  pixels_of(high, even, is_signed, a, &e, places, a->stride_right * a->x_pixel, taps, out)
    if (count == 1 && a->is_signed)
      PIXELS(1, 0, 1);
    else if (count == 1)
      PIXELS(1, 0, 0);
    else if (even && a->is_signed)
      PIXELS(HIGH, 1, 1);
    else if (even)
      PIXELS(HIGH, 1, 0);
    else if (a->is_signed)
      PIXELS(HIGH, 0, 1);
    else
      PIXELS(HIGH, 0, 0);
#undef PIXELS
  }
}
