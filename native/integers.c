/* Arrays of bytes that stand for reals: operators/backends/integer/integers.py. An argument may be NULL where
   it is 0 or left out; limits are those of the bytes, less their zero point. */
#include "base.h"
#include "integers_arguments.h"
#include <math.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { BLOCK = 64, SPREAD = 1024, SQUARE = 16 };
typedef uint8_t bytes_t __attribute__((vector_size(SQUARE)));

/* to[j * to_down + i] = x[i * down + j] of SQUARE rows and columns */
INLINE void turn(const char *x, word down, char *to, word to_down) {
#ifdef __clang__
  for (word i = 0; i < SQUARE; i++)
    for (word j = 0; j < SQUARE; j++) to[j * to_down + i] = x[i * down + j];
#else
  const bytes_t low = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
  bytes_t r[SQUARE], next[SQUARE];
#pragma GCC unroll 16
  for (int i = 0; i < SQUARE; i++) memcpy(&r[i], x + i * down, SQUARE);
  /* Each time a row is put between the elements of the one that is half of all before it. */
#pragma GCC unroll 4
  for (int step = 1; step < SQUARE; step *= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < SQUARE / 2; i++) {
      next[2 * i] = __builtin_shuffle(r[i], r[i + SQUARE / 2], low);
      next[2 * i + 1] = __builtin_shuffle(r[i], r[i + SQUARE / 2], low + SQUARE / 2);
    }
#pragma GCC unroll 16
    for (int i = 0; i < SQUARE; i++) r[i] = next[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < SQUARE; i++) memcpy(to + i * to_down, &r[i], SQUARE);
#endif
}

/* the same of any number of rows and columns: where there are enough, squares of which the last ones
   overlap */
static void turn_all(const char *x, word down, word rows, word columns, char *to, word to_down) {
  if (rows < SQUARE || columns < SQUARE) {
    for (word i = 0; i < rows; i++)
      for (word j = 0; j < columns; j++) to[j * to_down + i] = x[i * down + j];
    return;
  }
  for (word i = 0; i < rows; i += SQUARE)
    for (word j = 0; j < columns; j += SQUARE) {
      const word row = least(i, rows - SQUARE), column = least(j, columns - SQUARE);
      turn(x + row * down + column, down, to + column * to_down + row, to_down);
    }
}

INLINE int32_t byte_of(const char *x, word i, int is_signed) {
  return is_signed ? ((const signed char *)x)[i] : ((const unsigned char *)x)[i];
}
INLINE int32_t zero_of(const char *zero, word is_signed) {
  return zero ? byte_of(zero, 0, is_signed) : 0;
}
INLINE float cut(float x, float low, float high) {
  x = x > low ? x : low;
  return x < high ? x : high;
}

/* Where arrays do not lie alike, `channels` of x follow each other that lie side by side in out. */
EXPORT(quantize)(const struct quantize *a, word t, word threads) {
  const float scale = *a->scale;
  const int32_t zero = zero_of(a->zero, a->is_signed);
  const float low = (a->is_signed ? -128 : 0) - zero, high = low + 255;
  const word blocks = (a->size + BLOCK - 1) / BLOCK, units = a->images * blocks, c = a->channels;
  for (word u = units * t / threads; u < units * (t + 1) / threads; u++) {
    const word at = u % blocks * BLOCK, count = least(BLOCK, a->size - at);
    const float *from = a->x + u / blocks * c * a->size + at;
    char *out = a->out + (u / blocks * a->size + at) * c;
    for (word k0 = 0; k0 < c; k0 += SQUARE) {
      const word first = c < SQUARE ? 0 : least(k0, c - SQUARE), some = least(c, SQUARE);
      char square[SQUARE][BLOCK];
      for (word k = 0; k < some; k++) {
        const float *x = from + (first + k) * a->size;
        char *made = square[k];
        if (count == BLOCK)
          for (word j = 0; j < BLOCK; j++) made[j] = (int32_t)rintf(cut(x[j] / scale, low, high)) + zero;
        else
          for (word j = 0; j < count; j++) made[j] = (int32_t)rintf(cut(x[j] / scale, low, high)) + zero;
      }
      if (c == 1)
        memcpy(out, square, count);
      else
        turn_all(square[0], BLOCK, some, count, out + first, c);
    }
  }
}

/* x in one piece */
static void dequantize_row(const char *restrict x, word count, int is_signed, int32_t zero, float scale,
                           float *restrict out) {
  if (is_signed)
    for (word j = 0; j < count; j++) out[j] = (float)(byte_of(x, j, 1) - zero) * scale;
  else
    for (word j = 0; j < count; j++) out[j] = (float)(byte_of(x, j, 0) - zero) * scale;
}

/* the other way round */
EXPORT(dequantize)(const struct dequantize *a, word t, word threads) {
  const int32_t zero = zero_of(a->zero, a->is_signed);
  const word blocks = (a->size + BLOCK - 1) / BLOCK, units = a->images * blocks, c = a->channels;
  if (c == 1) {
    const word all = a->images * a->size, i0 = all * t / threads, i1 = all * (t + 1) / threads;
    dequantize_row(a->x + i0, i1 - i0, a->is_signed, zero, *a->scale, a->out + i0);
    return;
  }
  for (word u = units * t / threads; u < units * (t + 1) / threads; u++) {
    const word at = u % blocks * BLOCK, count = least(BLOCK, a->size - at);
    const char *x = a->x + (u / blocks * a->size + at) * c;
    float *out = a->out + u / blocks * c * a->size + at;
    for (word k0 = 0; k0 < c; k0 += SQUARE) {
      const word first = c < SQUARE ? 0 : least(k0, c - SQUARE), some = least(c, SQUARE);
      char square[SQUARE][BLOCK];
      turn_all(x + first, c, count, some, square[0], BLOCK);
      for (word k = 0; k < some; k++)
        dequantize_row(square[k], count, a->is_signed, zero, *a->scale, out + (first + k) * a->size);
    }
  }
}

/* the smallest and the largest number of a part, 0 among them */
EXPORT(range_of)(const struct range_of *a, word t, word threads) {
  for (word p = a->parts * t / threads; p < a->parts * (t + 1) / threads; p++) {
    const float *restrict x = a->x;
    const word i0 = a->count * p / a->parts, i1 = a->count * (p + 1) / a->parts;
    float low[BLOCK] = {0}, high[BLOCK] = {0};
    word i = i0;
    for (; i + BLOCK <= i1; i += BLOCK)
      for (word j = 0; j < BLOCK; j++) {
        low[j] = x[i + j] < low[j] ? x[i + j] : low[j];
        high[j] = x[i + j] > high[j] ? x[i + j] : high[j];
      }
    for (; i < i1; i++) {
      low[0] = x[i] < low[0] ? x[i] : low[0];
      high[0] = x[i] > high[0] ? x[i] : high[0];
    }
    for (word j = 1; j < BLOCK; j++) {
      low[0] = low[j] < low[0] ? low[j] : low[0];
      high[0] = high[j] > high[0] ? high[j] : high[0];
    }
    a->ranges[2 * p] = low[0], a->ranges[2 * p + 1] = high[0];
  }
}

EXPORT(scale_of)(const struct scale_of *a, word t, word threads) {
  if (t) return;
  float low = 0, high = 0;
  for (word p = 0; p < a->parts; p++) {
    low = a->ranges[2 * p] < low ? a->ranges[2 * p] : low;
    high = a->ranges[2 * p + 1] > high ? a->ranges[2 * p + 1] : high;
  }
  *a->scale = high == low ? 1 : (high - low) / 255;
  *a->zero = (int32_t)rintf(cut(-low / *a->scale, 0, 255));
}

/* Of x and of y each image has a row for each of out, or one for all. Such a row is repeated, so that
   loops over short ones are long. */
EXPORT(combine)(const struct combine *a, word t, word threads) {
  const word each = a->rows * a->columns, all = a->images * each, columns = a->columns;
  const int repeats = columns <= SPREAD, whole = a->x_step && a->y_step;
  const word wide = repeats ? SPREAD / columns * columns : columns;
  char spread[2][SPREAD];
  const char *rows[2] = {0};
  const int s = a->is_signed;
  const int32_t x_zero = zero_of(a->x_zero, s), y_zero = zero_of(a->y_zero, s);
  const int32_t zero = zero_of(a->out_zero, s);
  const float of_x = *a->x_scale / *a->out_scale, of_y = *a->y_scale / *a->out_scale;
  const float product = *a->x_scale * *a->y_scale / *a->out_scale;
  const float fixed = zero - (of_x * x_zero + of_y * y_zero);
  const float least_out = s ? -128 : 0, most_out = least_out + 255;
  for (word at = all * t / threads, end = all * (t + 1) / threads, n = -1, count; at < end; at += count) {
    const word in = at % each, in_row = in % wide;
    if (at / each != n) {
      n = at / each;
      rows[0] = a->x + n * a->x_image, rows[1] = a->y + n * a->y_image;
      for (int k = 0; k < 2; k++)
        if (repeats && !(k ? a->y_step : a->x_step)) {
          for (word i = 0; i < wide; i += columns) memcpy(spread[k] + i, rows[k], columns);
          rows[k] = spread[k];
        }
    }
    count = least(least(end - at, each - in), whole ? each : wide - in_row);
    const char *restrict x = rows[0] + (a->x_step ? in : in_row);
    const char *restrict y = rows[1] + (a->y_step ? in : in_row);
    char *restrict out = a->out + at;
#define ALL(value)                                                                             \
  if (s)                                                                                       \
    for (word i = 0; i < count; i++) { enum { S = 1 }; out[i] = (int32_t)(value); }            \
  else                                                                                         \
    for (word i = 0; i < count; i++) { enum { S = 0 }; out[i] = (int32_t)(value); }
#define X byte_of(x, i, S)
#define Y byte_of(y, i, S)
    if (a->multiplies)
      ALL(rintf(cut((float)((X - x_zero) * (Y - y_zero)) * product + zero, least_out, most_out)))
    else
      ALL(rintf(cut(fmaf((float)Y, of_y, fmaf((float)X, of_x, fixed)), least_out, most_out)))
#undef ALL
#undef X
#undef Y
  }
}

#if defined(__AVX512BW__)
enum { WIDE = 64 };
typedef __m512i wide;
#define OF(name) _mm512_##name
#define EVERYWHERE(p) _mm512_broadcast_i32x4(_mm_loadu_si128(p))
#elif defined(__AVX2__)
enum { WIDE = 32 };
typedef __m256i wide;
#define OF(name) _mm256_##name
#define EVERYWHERE(p) _mm256_broadcastsi128_si256(_mm_loadu_si128(p))
#elif defined(__SSSE3__)
enum { WIDE = 16 };
typedef __m128i wide;
#define OF(name) _mm_##name
#define EVERYWHERE(p) _mm_loadu_si128(p)
#endif
#if defined(OF)
/* Each of 16 parts of the table is shuffled by the bytes that stand for places in it; others, whose
   highest bit the addition sets, give 0. */
INLINE void look_up_lanes(const char *table, const char *from, char *to) {
  wide x, out = {0};
  memcpy(&x, from, WIDE);
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++) {
    const wide places = OF(adds_epu8)(OF(sub_epi8)(x, OF(set1_epi8)(16 * i)), OF(set1_epi8)(0x70));
    out |= OF(shuffle_epi8)(EVERYWHERE((const __m128i *)table + i), places);
  }
  memcpy(to, &out, WIDE);
}
#endif

EXPORT(look_up)(const struct look_up *a, word t, word threads) {
  word i = a->count * t / threads;
  const word end = a->count * (t + 1) / threads;
#if defined(OF)
  for (; i + WIDE <= end; i += WIDE) look_up_lanes(a->table, a->x + i, a->out + i);
#endif
  for (; i < end; i++) a->out[i] = a->table[(unsigned char)a->x[i]];
}

/* the largest of `lanes` bytes of each pixel of a window, less a sign: from y0 to y1, x0 to x1 */
INLINE void most_of_lanes(const word lanes, const struct most_of *a, const char *image, word y0, word y1,
                          word x0, word x1, unsigned char *out) {
  const unsigned char flip = a->is_signed ? 128 : 0;
  unsigned char most[BLOCK] = {0};
  for (word y = y0; y < y1; y++)
    for (word x = x0; x < x1; x++) {
      const unsigned char *from = (const unsigned char *)image + y * a->x_row + x * a->x_pixel;
      for (word j = 0; j < lanes; j++) {
        const unsigned char one = from[j] ^ flip;
        most[j] = one > most[j] ? one : most[j];
      }
    }
  for (word j = 0; j < lanes; j++) out[j] = most[j] ^ flip;
}

/* Maxima of windows of pixels whose channels lie side by side. Numbers of lanes are constants, and
   the last ones are found twice. */
EXPORT(most_of)(const struct most_of *a, word t, word threads) {
  enum { FEW = BLOCK / 4 };
  const word c = a->channels, rows = a->images * a->high;
  for (word u = rows * t / threads; u < rows * (t + 1) / threads; u++) {
    const word n = u / a->high, top = u % a->high * a->stride_down - a->before_down;
    const word y0 = top < 0 ? 0 : top, y1 = least(top + a->kernel_down, a->height);
    for (word q = 0; q < a->wide; q++) {
      unsigned char *out = (unsigned char *)a->out + (u * a->wide + q) * a->out_pixel;
      const word left = q * a->stride_right - a->before_right;
      const word x0 = left < 0 ? 0 : left, x1 = least(left + a->kernel_right, a->width);
      const char *image = a->x + n * a->x_image;
      word j = 0;
      for (; j + BLOCK <= c; j += BLOCK)
        most_of_lanes(BLOCK, a, image + j, y0, y1, x0, x1, out + j);
      for (; j < c && c >= FEW; j += FEW) {
        j = least(j, c - FEW);
        most_of_lanes(FEW, a, image + j, y0, y1, x0, x1, out + j);
      }
      if (j < c) most_of_lanes(c - j, a, image + j, y0, y1, x0, x1, out + j);
    }
  }
}

/* Means of all pixels of each image, as bytes of another scale. */
EXPORT(means_of)(const struct means_of *a, word t, word threads) {
  const word c = a->channels, s = a->is_signed;
  const int32_t x_zero = zero_of(a->x_zero, s), zero = zero_of(a->out_zero, s);
  const float low = (s ? -128 : 0) - zero, high = low + 255;
  const float scale = *a->x_scale / (*a->out_scale * (float)a->pixels);
  const word units = a->images * c;
  for (word u = units * t / threads; u < units * (t + 1) / threads;) {
    const word n = u / c, j0 = u % c, j1 = least(least(c, j0 + BLOCK), j0 + units * (t + 1) / threads - u);
    int32_t sums[BLOCK] = {0};
    const char *x = a->x + n * a->x_image;
    for (word i = 0; i < a->pixels; i++)
      for (word j = j0; j < j1; j++) sums[j - j0] += byte_of(x + i * a->x_pixel, j, s);
    for (word j = j0; j < j1; j++) {
      const int32_t sum = sums[j - j0] - a->pixels * x_zero;
      a->out[n * c + j] = (int32_t)rintf(cut((float)sum * scale, low, high)) + zero;
    }
    u += j1 - j0;
  }
}
