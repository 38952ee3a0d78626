/* Rows of bytes times panels of bytes, exact in 32 bits, and what becomes of the sums.

   VNNI multiplies unsigned bytes with signed ones. Others are turned into these by their highest bit,
   which adds 128 to, or takes it from, both a number and its zero point. AVX2 multiplies them as
   numbers of 16 bits: its products of bytes saturate. NEON wants signs on both sides. AMX multiplies
   16 or 32 rows with both halves of a panel, and takes the rows with a sign or without one. */
#pragma once
#include "base.h"
#include "byte_products.h"
#include "integer_gemm_arguments.h"
#include "tiles.h"
#include <math.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { COLS = 32, GROUP = 4, NEAR = 64, HIGH_LOG = 3, HIGH = 1 << HIGH_LOG };
/* bytes of a row that are multiplied at a time; rows of a tile, the fewest for which tiles are used */
enum { INNER = 64, TALL = 16 };

/* of a panel: what is added to all sums of its columns, their zero points and whether one of these is
   not 0, and what they are multiplied with */
typedef struct {
  int32_t first[COLS], zeros[COLS];
  float scales[COLS];
  int shifted;
} columns;

/* Up to NEAR rows, `step` apart. A number with a sign is multiplied by its highest bit turned, and
   `less` less. */
typedef struct {
  const char *x;
  word step, count;
  int32_t less;
  int by_tiles, added;
  uint32_t sums[NEAR];  /* once they are added up */
#ifdef __AMX_TILE__
  word configured;        /* rows that tiles have */
  char rest[NEAR][INNER]; /* of the inner dimension, zeros before and after it */
#endif
} block;

/* what sums become: floats or bytes between two limits, without their zero point */
typedef struct {
  int scaled, bytes;
  float low, high;
  int32_t zero;
} ending;

INLINE ending ending_of(const float *scale, const char *out_zero, word out_is_signed) {
  ending e = {.scaled = scale != 0, .bytes = out_zero != 0};
  if (out_zero) {
    e.zero = out_is_signed ? (signed char)*out_zero : (unsigned char)*out_zero;
    e.low = (out_is_signed ? -128 : 0) - e.zero, e.high = (out_is_signed ? 127 : 255) - e.zero;
  }
  return e;
}

/* `count` sums, of whole vectors in memory, as they shall be */
INLINE void end_sums(const ending *e, const int lanes, word count, const int32_t *s,
                     const float *scales, char *out) {
  if (!e->scaled) {
    memcpy(out, s, count * sizeof *s);
    return;
  }
  float f[COLS];
  for (int j = 0; j < lanes; j++) f[j] = (float)s[j] * scales[j];
  if (!e->bytes) {
    memcpy(out, f, count * sizeof *f);
    return;
  }
  char made[COLS];
  for (int j = 0; j < lanes; j++) {
    float x = f[j] > e->low ? f[j] : e->low;
    x = x < e->high ? x : e->high;
    made[j] = (int32_t)rintf(x) + e->zero;
  }
  if (count == lanes)
    memcpy(out, made, lanes);
  else
    memcpy(out, made, count);
}

/* the sum of k numbers without a sign */
INLINE uint32_t sum_of(const char *x, word k, int is_signed) {
  uint32_t sum = 0;
  word j = 0;
#if defined(__AVX512VNNI__)
  const __m512i flip = _mm512_set1_epi8(is_signed ? -128 : 0), ones = _mm512_set1_epi8(1);
  __m512i sums = _mm512_setzero_si512();
  for (; j < k; j += 64) {
    const __mmask64 there = k - j < 64 ? (1ull << (k - j)) - 1 : -1;
    const __m512i bytes = _mm512_xor_si512(_mm512_maskz_loadu_epi8(there, x + j), flip);
    sums = _mm512_dpbusd_epi32(sums, bytes, _mm512_maskz_mov_epi8(there, ones));
  }
  sum = _mm512_reduce_add_epi32(sums);
#endif
  const unsigned char flip_one = is_signed ? 128 : 0;
  for (; j < k; j++) sum += (unsigned char)x[j] ^ flip_one;
  return sum;
}

/* those of all rows of a block as they are multiplied, once */
INLINE const uint32_t *sums_of_rows(block *b, const struct integer_columns *c) {
  if (!b->added)
    for (word i = 0; i < b->count; i++)
      b->sums[i] = sum_of(b->x + i * b->step, c->k, c->is_signed) - b->less * (uint32_t)c->k;
  b->added = 1;
  return b->sums;
}

#if defined(__AVX512VNNI__)
/* 16 sums as they shall be, those that are there */
INLINE void end_vector(const ending *e, __mmask16 there, __m512i s, __m512 scales, char *out) {
  if (!e->scaled) {
    _mm512_mask_storeu_epi32(out, there, s);
    return;
  }
  const __m512 f = _mm512_mul_ps(_mm512_cvtepi32_ps(s), scales);
  if (!e->bytes) {
    _mm512_mask_storeu_ps(out, there, f);
    return;
  }
  const __m512 cut = _mm512_min_ps(_mm512_max_ps(f, _mm512_set1_ps(e->low)), _mm512_set1_ps(e->high));
  const __m512i made = _mm512_add_epi32(_mm512_cvtps_epi32(cut), _mm512_set1_epi32(e->zero));
  _mm512_mask_cvtepi32_storeu_epi8(out, there, made);
}

/* `high` rows of x, `step` apart, times those 16 columns of the panel p of k rows that are there,
   `vectors` of them. Turning bits takes a third of the time: numbers without a sign go without. */
INLINE void rows_of(const int high, const int vectors, const int is_signed,
                    const struct integer_columns *c, const ending *e, const columns *by, const char *x,
                    word step, const uint32_t *row_sums, const char *p, word cols, char *out,
                    word out_step) {
  const word k = c->k, whole = k / GROUP, rest = k % GROUP, size = e->bytes ? 1 : 4;
  const __m512i flip = _mm512_set1_epi8(-128);
  /* Each addition waits for the one before it: of one or two rows four sums are made side by side. */
  const int ways = high < 4 ? 4 / high : 1;
  __m512i s[HIGH][2];
#pragma GCC unroll 8
  for (int i = 0; i < high * ways; i++)
    for (int v = 0; v < vectors; v++)
      s[i][v] = i < high ? _mm512_loadu_si512(by->first + v * 16) : _mm512_setzero_si512();
#define GROUP_OF(g, size, way)                                                                 \
  const __m512i left = _mm512_loadu_si512(p + (g) * COLS * GROUP);                             \
  const __m512i right = _mm512_loadu_si512(p + (g) * COLS * GROUP + 64);                       \
  _Pragma("GCC unroll 8") for (int i = 0; i < high; i++) {                                     \
    int four = 0;                                                                              \
    memcpy(&four, x + i * step + (g) * GROUP, size);                                           \
    const __m512i given = _mm512_set1_epi32(four);                                             \
    const __m512i bytes = is_signed ? _mm512_xor_si512(given, flip) : given;                   \
    __m512i *sums = s[(way) * high + i];                                                       \
    sums[0] = _mm512_dpbusd_epi32(sums[0], bytes, left);                                       \
    if (vectors > 1) sums[1] = _mm512_dpbusd_epi32(sums[1], bytes, right);                     \
  }
  /* First, as GCC moves the sums about in a loop that has something after it. Nothing lies after the
     last row. */
  if (rest) { GROUP_OF(whole, rest, 0) }
  word from = 0;
  for (; from < whole % ways; from++) { GROUP_OF(from, GROUP, 0) }
  for (word g = from; g < whole; g += ways) {
#pragma GCC unroll 4
    for (int way = 0; way < ways; way++) { GROUP_OF(g + way, GROUP, way) }
  }
#undef GROUP_OF
#pragma GCC unroll 8
  for (int i = high; i < high * ways; i++)
    for (int v = 0; v < vectors; v++) s[i % high][v] = _mm512_add_epi32(s[i % high][v], s[i][v]);
  if (by->shifted)
    for (int i = 0; i < high; i++) {
      const __m512i sum = _mm512_set1_epi32(row_sums[i]);
#pragma GCC unroll 2
      for (int v = 0; v < vectors; v++)
        s[i][v] = _mm512_sub_epi32(
            s[i][v], _mm512_mullo_epi32(sum, _mm512_loadu_si512(by->zeros + v * 16)));
    }
#pragma GCC unroll 2
  for (int v = 0; v < vectors; v++) {
    const __mmask16 there = (1u << least(16, cols > v * 16 ? cols - v * 16 : 0)) - 1;
    const __m512 scales = _mm512_loadu_ps(by->scales + v * 16);
#pragma GCC unroll 8
    for (int i = 0; i < high; i++)
      end_vector(e, there, s[i][v], scales, out + i * out_step + v * 16 * size);
  }
}
#else
/* sums[i] = `high` rows of x, `step` apart, times the panel p of k rows */
INLINE void sums_of(const int high, const int is_signed, word k, const char *x, word step,
                    const char *p, int32_t (*sums)[COLS]) {
  const word whole = k / GROUP, rest = k % GROUP;
#if defined(__AVXVNNI__)
  /* as many rows and vectors of columns as there are registers for */
  const int rows = high < 4 ? high : 4, vectors = high < 4 ? 4 : 2;
  const __m256i flip = _mm256_set1_epi8(-128);
  for (int r = 0; r < high; r += rows)
    for (int c = 0; c < COLS; c += vectors * 8) {
      __m256i s[4][4];
#pragma GCC unroll 4
      for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) s[i][v] = _mm256_setzero_si256();
#define GROUP_OF(g, size)                                                                      \
  const __m256i *from = (const __m256i *)(p + ((g) * COLS + c) * GROUP);                       \
  _Pragma("GCC unroll 4") for (int i = 0; i < rows; i++) {                                     \
    int four = 0;                                                                              \
    memcpy(&four, x + (r + i) * step + (g) * GROUP, size);                                     \
    const __m256i given = _mm256_set1_epi32(four);                                             \
    const __m256i bytes = is_signed ? _mm256_xor_si256(given, flip) : given;                   \
    _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++)                                  \
      s[i][v] = _mm256_dpbusd_avx_epi32(s[i][v], bytes, _mm256_loadu_si256(from + v));         \
  }
      if (rest) { GROUP_OF(whole, rest) }
      for (word g = 0; g < whole; g++) { GROUP_OF(g, GROUP) }
#undef GROUP_OF
#pragma GCC unroll 4
      for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
          _mm256_storeu_si256((__m256i *)(sums[r + i] + c) + v, s[i][v]);
    }
#elif defined(__AVX2__)
  const __m128i flip = _mm_set1_epi8(-128);
  for (int c = 0; c < COLS; c += 8) {
    __m256i s[HIGH][2];
#pragma GCC unroll 8
    for (int i = 0; i < high; i++) s[i][0] = s[i][1] = _mm256_setzero_si256();
#define GROUP_OF(g, size)                                                                      \
  const __m128i *from = (const __m128i *)(p + ((g) * COLS + c) * GROUP);                       \
  const __m256i left = _mm256_cvtepi8_epi16(_mm_loadu_si128(from));                            \
  const __m256i right = _mm256_cvtepi8_epi16(_mm_loadu_si128(from + 1));                       \
  _Pragma("GCC unroll 8") for (int i = 0; i < high; i++) {                                     \
    int four = 0;                                                                              \
    memcpy(&four, x + i * step + (g) * GROUP, size);                                           \
    const __m128i given = _mm_set1_epi32(four);                                                \
    const __m256i bytes = _mm256_cvtepu8_epi16(is_signed ? _mm_xor_si128(given, flip) : given); \
    s[i][0] = _mm256_add_epi32(s[i][0], _mm256_madd_epi16(bytes, left));                       \
    s[i][1] = _mm256_add_epi32(s[i][1], _mm256_madd_epi16(bytes, right));                      \
  }
    if (rest) { GROUP_OF(whole, rest) }
    for (word g = 0; g < whole; g++) { GROUP_OF(g, GROUP) }
#undef GROUP_OF
#pragma GCC unroll 8
    for (int i = 0; i < high; i++) {
      const __m256i both = _mm256_hadd_epi32(s[i][0], s[i][1]);
      _mm256_storeu_si256((__m256i *)(sums[i] + c), _mm256_permute4x64_epi64(both, 0xd8));
    }
  }
#elif defined(__aarch64__)
  const int32_t flip = is_signed ? 0 : 0x80808080;
  for (int c = 0; c < COLS; c += 8) {
    int32x4_t s[HIGH][2];
#pragma GCC unroll 8
    for (int i = 0; i < high; i++) s[i][0] = s[i][1] = vdupq_n_s32(0);
#define GROUP_OF(g, size)                                                                      \
  const int8x16_t left = vld1q_s8((const int8_t *)p + ((g) * COLS + c) * GROUP);               \
  const int8x16_t right = vld1q_s8((const int8_t *)p + ((g) * COLS + c + 4) * GROUP);          \
  _Pragma("GCC unroll 8") for (int i = 0; i < high; i++) {                                     \
    int32_t four = 0;                                                                          \
    memcpy(&four, x + i * step + (g) * GROUP, size);                                           \
    const int8x16_t bytes = vreinterpretq_s8_s32(vdupq_n_s32(four ^ flip));                    \
    s[i][0] = add_products(s[i][0], left, bytes);                                              \
    s[i][1] = add_products(s[i][1], right, bytes);                                             \
  }
    if (rest) { GROUP_OF(whole, rest) }
    for (word g = 0; g < whole; g++) { GROUP_OF(g, GROUP) }
#undef GROUP_OF
#pragma GCC unroll 8
    for (int i = 0; i < high; i++) {
      vst1q_s32(sums[i] + c, s[i][0]);
      vst1q_s32(sums[i] + c + 4, s[i][1]);
    }
  }
#else
  const unsigned char flip = is_signed ? 128 : 0;
  for (int i = 0; i < high; i++) {
    int32_t s[COLS] = {0};
    for (word g = 0; g * GROUP < k; g++) {
      int16_t four[GROUP] = {0};
      for (word j = 0; j < GROUP && g * GROUP + j < k; j++)
        four[j] = (unsigned char)x[i * step + g * GROUP + j] ^ flip;
      const signed char *w = (const signed char *)p + g * COLS * GROUP;
      for (int c = 0; c < COLS; c++)
        s[c] += four[0] * w[c * GROUP] + four[1] * w[c * GROUP + 1] + four[2] * w[c * GROUP + 2] +
                four[3] * w[c * GROUP + 3];
    }
    memcpy(sums[i], s, sizeof s);
  }
#endif
}

INLINE void rows_of(const int high, const int vectors, const int is_signed,
                    const struct integer_columns *c, const ending *e, const columns *by, const char *x,
                    word step, const uint32_t *row_sums, const char *p, word cols, char *out,
                    word out_step) {
  int32_t sums[HIGH][COLS];
  sums_of(high, is_signed, c->k, x, step, p, sums);
  for (int i = 0; i < high; i++) {
    for (int j = 0; j < COLS; j++) sums[i][j] += by->first[j];
    if (by->shifted)
      for (int j = 0; j < COLS; j++) sums[i][j] -= row_sums[i] * (uint32_t)by->zeros[j];
    end_sums(e, COLS, cols, sums[i], by->scales, out + i * out_step);
  }
}
#endif

#define ROWS_OF(high, vectors)                                                                    \
  static void rows_##high##_##vectors(const struct integer_columns *c, const ending *e,           \
                                      const columns *by, const char *x, word step,                \
                                      const uint32_t *row_sums, const char *p, word cols,         \
                                      char *out, word out_step) {                                 \
    if (c->is_signed)                                                                             \
      rows_of(high, vectors, 1, c, e, by, x, step, row_sums, p, cols, out, out_step);             \
    else                                                                                          \
      rows_of(high, vectors, 0, c, e, by, x, step, row_sums, p, cols, out, out_step);             \
  }
ROWS_OF(1, 2) ROWS_OF(2, 2) ROWS_OF(4, 2) ROWS_OF(8, 2)
#if defined(__AVX512VNNI__)
ROWS_OF(1, 1) ROWS_OF(2, 1) ROWS_OF(4, 1) ROWS_OF(8, 1)
#define SIZES(high) {rows_##high##_1, rows_##high##_2}
#else
#define SIZES(high) {rows_##high##_2, rows_##high##_2}
#endif
#undef ROWS_OF

#ifdef __AMX_TILE__
/* What of the inner dimension is no whole number of tiles: it is copied, as tiles would read beyond
   rows. So that they read no more of a panel than there is, what they have before it is 0. */
INLINE word rest_from(word k) {
  const word depth = (k + GROUP - 1) / GROUP * GROUP;
  return depth > INNER ? depth - INNER : 0;
}

static void copy_rest(block *b, word k) {
  const word from = rest_from(k), before = k / INNER * INNER - from;
  const __mmask64 there = ((k - from < 64 ? 1ull << (k - from) : 0) - 1) & -1ull << before;
  for (word i = 0; i < b->count; i++)
    _mm512_storeu_si512(b->rest[i], _mm512_maskz_loadu_epi8(there, b->x + i * b->step + from));
}

/* up to 32 rows of a block, more than 16 of them if `both`, times 16 columns of a panel or 32 */
INLINE void tiles_of(const int both, const int vectors, const int is_signed, word k, const block *b,
                     word row, const int32_t *first, const char *p, int32_t (*sums)[COLS]) {
#define TIMES(s, a, b)                                                                         \
  if (is_signed)                                                                               \
    _tile_dpbssd(s, a, b);                                                                     \
  else                                                                                         \
    _tile_dpbusd(s, a, b);
#define MULTIPLY(x, step, p)                                                                   \
  _tile_loadd(6, p, COLS *GROUP);                                                              \
  _tile_loadd(4, x, step);                                                                     \
  TIMES(0, 4, 6)                                                                               \
  if (vectors > 1) {                                                                           \
    _tile_loadd(7, p + 64, COLS * GROUP);                                                      \
    TIMES(1, 4, 7)                                                                             \
  }                                                                                            \
  if (both) {                                                                                  \
    _tile_loadd(5, x + TALL * step, step);                                                     \
    TIMES(2, 5, 6)                                                                             \
    if (vectors > 1) { TIMES(3, 5, 7) }                                                        \
  }
  const char *x = b->x + row * b->step;
  const word step = b->step, whole = k / INNER * INNER;
  WRITTEN(first);
  _tile_loadd(0, first, 0);
  if (vectors > 1) _tile_loadd(1, first + 16, 0);
  if (both) _tile_loadd(2, first, 0);
  if (both && vectors > 1) _tile_loadd(3, first + 16, 0);
  for (word l = 0; l < whole; l += INNER) { MULTIPLY(x + l, step, p + l * COLS) }
  if (whole < k) { MULTIPLY(b->rest[row], INNER, p + rest_from(k) * COLS) }
  _tile_stored(0, sums, COLS * 4);
  if (vectors > 1) _tile_stored(1, sums[0] + 16, COLS * 4);
  if (both) _tile_stored(2, sums[TALL], COLS * 4);
  if (both && vectors > 1) _tile_stored(3, sums[TALL] + 16, COLS * 4);
#undef MULTIPLY
#undef TIMES
}

/* All rows of a block, the last ones from the end of the block back: some may be computed twice. */
INLINE void panel_by_tiles(const int vectors, const struct integer_columns *c, block *b,
                           const ending *e, const columns *by, const char *p, word cols, char *out,
                           word out_step) {
  int32_t sums[2 * TALL][COLS] __attribute__((aligned(64)));
  const word most = least(b->count, 2 * TALL), size = e->bytes ? 1 : 4;
  const uint32_t *row_sums = by->shifted ? sums_of_rows(b, c) : 0;
  if (b->configured != most)
    configure(b->configured = most, least((c->k + GROUP - 1) / GROUP * GROUP, INNER));
  for (word from = 0; from < b->count;) {
    const word left = b->count - from;
    const int both = left > TALL;
    const word count = both ? most : least(most, TALL), row = least(from, b->count - count);
#define TILES(both, is_signed) \
  tiles_of(both, vectors, is_signed, c->k, b, row, by->first, p, sums)
    if (both && c->is_signed)
      TILES(1, 1);
    else if (both)
      TILES(1, 0);
    else if (c->is_signed)
      TILES(0, 1);
    else
      TILES(0, 0);
#undef TILES
    WRITTEN(sums);
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) {
      const __mmask16 there = (1u << least(16, cols - v * 16)) - 1;
      const __m512 scales = _mm512_loadu_ps(by->scales + v * 16);
      const __m512i zeros = _mm512_loadu_si512(by->zeros + v * 16);
      for (word i = from - row; i < count; i++) {
        __m512i s = _mm512_load_si512(sums[i] + v * 16);
        if (row_sums)
          s = _mm512_sub_epi32(s, _mm512_mullo_epi32(_mm512_set1_epi32(row_sums[row + i]), zeros));
        end_vector(e, there, s, scales, out + (row + i) * out_step + v * 16 * size);
      }
    }
    from = row + count;
  }
}
#endif

INLINE void start_blocks(block *b) {
#ifdef __AMX_TILE__
  b->configured = 0;
#endif
}

/* `count` rows of x, `step` apart, as those of a block */
INLINE void next_block(block *b, const struct integer_columns *c, const char *x, word step,
                        word count) {
  b->x = x, b->step = step, b->count = count;
  b->less = FLIP, b->by_tiles = b->added = 0;
#ifdef __AMX_TILE__
  if (count < TALL || !c->k) return;
  b->by_tiles = 1;
  if (c->is_signed) b->less = 128;
  if (c->k % INNER) copy_rest(b, c->k);
#endif
}

INLINE void end_blocks(const block *b) {
#ifdef __AMX_TILE__
  if (b->configured) _tile_release();
#endif
}

/* the rows of a block times a panel of those of a group */
static void panel_of(const struct integer_columns *c, word group, word panel, block *b, char *out,
                     word out_step) {
  static void (*const sizes[][2])(const struct integer_columns *, const ending *, const columns *,
                                  const char *, word, const uint32_t *, const char *, word, char *,
                                  word) = {SIZES(1), SIZES(2), SIZES(4), SIZES(8)};
  const word panels = (c->n + COLS - 1) / COLS, at = group * c->n + panel * COLS;
  const word cols = least(COLS, c->n - panel * COLS), depth = (c->k + GROUP - 1) / GROUP * GROUP;
  const char *p = c->panels + (group * panels + panel) * depth * COLS;
  const int32_t *sums = c->sums + (group * panels + panel) * COLS;
  const ending e = ending_of(c->scale, c->out_zero, c->out_is_signed);
  const int32_t zero =
      (unsigned char)((c->a_zero ? *c->a_zero : 0) ^ (c->is_signed ? -128 : 0)) - b->less;
  columns by = {0};
  /* Simple loops, over all columns of the panel: of one row the product takes hardly longer. */
  const char flip = c->is_unsigned ? -128 : 0, one = c->b_zero ? *c->b_zero : 0;
  for (int j = 0; j < COLS; j++) by.zeros[j] = (signed char)(one ^ flip);
  if (c->b_zeros > 1)
    for (word j = 0; j < cols; j++) by.zeros[j] = (signed char)(c->b_zero[at + j] ^ flip);
  for (int j = 0; j < COLS; j++) by.shifted |= by.zeros[j];
  if (c->bias) memcpy(by.first, c->bias + at, cols * sizeof *by.first);
  const uint32_t k = c->k;
  for (int j = 0; j < COLS; j++)
    by.first[j] -= zero * ((uint32_t)sums[j] - k * (uint32_t)by.zeros[j]);
  const float scale = c->scale ? *c->scale : 1;
  for (int j = 0; j < COLS; j++) by.scales[j] = scale;
  if (c->scales > 1) memcpy(by.scales, c->scale + at, cols * sizeof *by.scales);
  const word size = e.bytes ? 1 : 4;
  out += at * size;
#ifdef __AMX_TILE__
  if (b->by_tiles) {
    if (cols > 16)
      panel_by_tiles(2, c, b, &e, &by, p, cols, out, out_step);
    else
      panel_by_tiles(1, c, b, &e, &by, p, cols, out, out_step);
    return;
  }
#endif
  const uint32_t *row_sums = by.shifted ? sums_of_rows(b, c) : b->sums;
  const char *x = b->x;
  word rows = b->count;
  for (int log = HIGH_LOG; log >= 0; log--)
    for (; rows >= 1 << log; rows -= 1 << log) {
      sizes[log][cols > COLS / 2](c, &e, &by, x, b->step, row_sums, p, cols, out, out_step);
      x += b->step << log, out += out_step << log, row_sums += 1 << log;
    }
}

/* where the part of rows that begins with one of a block ends: blocks are about alike, and have whole
   numbers of HIGH rows */
INLINE word block_from(word block, word blocks, word rows) {
  return least((rows + HIGH - 1) / HIGH * block / blocks * HIGH, rows);
}
