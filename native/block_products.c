/* Products with weights of 4 or 8 bits, a scale for each block of them: operators/linear/matmul_nbits.py.

   Weights are read as they lie, 16 bytes of each of LANES rows at a time, and turned so that a lane
   has four of one row side by side: what dot products of bytes take. Of 4 bits these are the even
   ones of eight, then the odd ones, and the first factor is laid out likewise. */
#include "base.h"
#include "block_products_arguments.h"
#include "byte_products.h"
#include <float.h>
#include <math.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512BW__)
enum { BYTES = 64, HIGH = 8 };
#elif defined(__AVX2__)
enum { BYTES = 32, HIGH = 4 };
#else
enum { BYTES = 16, HIGH = 4 };
#endif
enum { LANES = BYTES / 4, UNIT = 32, WORDS = UNIT / 4, NEAR = 4 };
/* the zero point where none is given */
#define MIDDLE(bits) (1 << ((bits) - 1))
typedef int32_t ints __attribute__((vector_size(BYTES)));
typedef uint32_t bits_t __attribute__((vector_size(BYTES)));
typedef float floats __attribute__((vector_size(BYTES)));

INLINE ints splat(int32_t x) { return x - (ints){0}; }
INLINE floats reals(ints x) { return __builtin_convertvector(x, floats); }
INLINE int32_t word_at(const char *x) {
  int32_t four;
  memcpy(&four, x, sizeof four);
  return four;
}

/* -- the first factor ------------------------------------------------------------------------------ */

/* the place of an element among those of its unit */
INLINE word place_of(word bits, word j) { return bits == 4 ? (j & ~7) | (j & 1) << 2 | (j & 7) >> 1 : j; }

/* `count` numbers as bytes: whole multiples of the largest over 127; returns the scale */
INLINE float round_block(const float *x, word count, word block, word bits, char *out, int32_t *sum) {
  float most = 0, odd = 0;
  for (word j = 0; j < count; j++) {
    const float size = fabsf(x[j]);
    most = size > most ? size : most;
    odd += x[j] - x[j];  /* NaN for what is not finite */
  }
  float scale = most / 127;
  if (odd != 0 || scale < FLT_MIN) {
    memset(out, 0, block);
    *sum = 0;
    return odd != 0 ? NAN : 0;
  }
  const float inverse = 1 / scale;
  int32_t all = 0;
  for (word u = 0; u < block; u += UNIT) {
    int8_t made[UNIT] = {0};
    const word some = least(UNIT, count - u);
    if (some == UNIT)
      for (word j = 0; j < UNIT; j++) made[j] = (int32_t)rintf(x[u + j] * inverse);
    else
      for (word j = 0; j < some; j++) made[j] = (int32_t)rintf(x[u + j] * inverse);
    for (word j = 0; j < UNIT; j++) all += made[j];
    if (bits == 8)
      memcpy(out + u, made, UNIT);
    else
      for (word j = 0; j < UNIT; j++) out[u + place_of(4, j)] = made[j];
  }
  *sum = all;
  return scale;
}

EXPORT(arrange_blocks)(const struct arrange_blocks *a, word t, word threads) {
  const word block = a->block, blocks = (a->k + block - 1) / block, all = a->m * blocks;
  for (word q = all * t / threads; q < all * (t + 1) / threads; q++) {
    const word begin = q % blocks * block, count = least(block, a->k - begin);
    const float *x = a->x + q / blocks * a->x_step + begin;
    if (a->rounded) {
      a->scales[q] = round_block(x, count, block, a->bits, a->rounded + q * block, a->sums + q);
      continue;
    }
    float *out = a->reals + q * block;
    for (word j = 0; j < block; j++) out[place_of(a->bits, j)] = j < count ? x[j] : 0;
  }
}

/* -- weights --------------------------------------------------------------------------------------- */

/* 16 bytes of each row, `at` bytes after its beginning: a vector of the first four of each, ... */
INLINE void turn(const char *const *rows, word at, ints out[NEAR]) {
#if defined(__AVX2__)
#if defined(__AVX512BW__)
/* Loads that go into some lanes want no shuffles, of which there are enough below. */
#define ROWS(i)                                                                                \
  _mm512_mask_broadcast_i32x4(                                                                 \
      _mm512_mask_broadcast_i32x4(                                                             \
          _mm512_mask_broadcast_i32x4(_mm512_castsi128_si512(ROW(i)), 0xf0, ROW(i + 4)), 0xf00,  \
          ROW(i + 8)),                                                                         \
      0xf000, ROW(i + 12))
#define MIX(kind, a, b) _mm512_unpack##kind((__m512i)(a), (__m512i)(b))
#else
#define ROWS(i) _mm256_inserti128_si256(_mm256_castsi128_si256(ROW(i)), ROW(i + 4), 1)
#define MIX(kind, a, b) _mm256_unpack##kind((__m256i)(a), (__m256i)(b))
#endif
#define ROW(i) _mm_loadu_si128((const __m128i *)(rows[i] + at))
  const ints r0 = (ints)ROWS(0), r1 = (ints)ROWS(1), r2 = (ints)ROWS(2), r3 = (ints)ROWS(3);
  const ints a = (ints)MIX(lo_epi32, r0, r1), b = (ints)MIX(lo_epi32, r2, r3);
  const ints c = (ints)MIX(hi_epi32, r0, r1), d = (ints)MIX(hi_epi32, r2, r3);
  out[0] = (ints)MIX(lo_epi64, a, b), out[1] = (ints)MIX(hi_epi64, a, b);
  out[2] = (ints)MIX(lo_epi64, c, d), out[3] = (ints)MIX(hi_epi64, c, d);
#undef ROW
#undef ROWS
#undef MIX
#else
  for (int j = 0; j < NEAR; j++)
    for (int i = 0; i < LANES; i++) out[j][i] = word_at(rows[i] + at + 4 * j);
#endif
}

/* a unit of each row: four numbers of a byte each in a lane */
INLINE void unit_of(const int bits, const char *const *rows, word at, ints out[WORDS]) {
  if (bits == 8) {
    turn(rows, at, out);
    turn(rows, at + 16, out + NEAR);
    return;
  }
  ints both[NEAR];
  turn(rows, at, both);
#pragma GCC unroll 4
  for (int j = 0; j < NEAR; j++) {
    out[2 * j] = both[j] & 0x0f0f0f0f;
    out[2 * j + 1] = (ints)((bits_t)both[j] >> 4) & 0x0f0f0f0f;
  }
}

/* s + the products of four numbers of each lane, of so many bits, with four bytes */
INLINE ints dot(const int bits, ints s, ints w, int32_t x) {
#if defined(__AVX512VNNI__)
  return (ints)_mm512_dpbusd_epi32((__m512i)s, (__m512i)w, _mm512_set1_epi32(x));
#elif defined(__AVX512BW__) || defined(__AVX2__)
#if defined(__AVX512BW__)
#define OF(name, ...) (ints)_mm512_##name(__VA_ARGS__)
#define V(a) ((__m512i)(a))
#else
#define OF(name, ...) (ints)_mm256_##name(__VA_ARGS__)
#define V(a) ((__m256i)(a))
#endif
  const ints four = splat(x);
  if (bits == 4)  /* pairs of products have 16 bits */
    return s + OF(madd_epi16, V(OF(maddubs_epi16, V(w), V(four))), V(splat(0x10001)));
  const ints even = OF(srai_epi16, V(OF(slli_epi16, V(four), 8)), 8), odd = OF(srai_epi16, V(four), 8);
  const ints low = w & 0x00ff00ff, high = OF(srli_epi16, V(w), 8);
  return s + OF(madd_epi16, V(low), V(even)) + OF(madd_epi16, V(high), V(odd));
#undef OF
#undef V
#elif defined(__aarch64__)
  const int8x16_t a = vreinterpretq_s8_s32((int32x4_t)w), b = vreinterpretq_s8_s32(vdupq_n_s32(x));
  return (ints)add_products((int32x4_t)s, a, b);
#else
  for (int q = 0; q < 4; q++)
    s += ((ints)((bits_t)w >> 8 * q) & 255) * (int32_t)(signed char)((uint32_t)x >> 8 * q);
  return s;
#endif
}

/* what is taken from the numbers of a block: its zero points */
INLINE ints zeros_of(const int bits, const struct block_product *a, const word *columns, word b) {
  if (!a->zero) return splat(MIDDLE(bits));
  const word step = ((a->k + a->block - 1) / a->block * bits + 7) / 8;
  ints zeros;
  for (int i = 0; i < LANES; i++) {
    const uint8_t *row = a->zero + columns[i] * step;
    zeros[i] = bits == 8 ? row[b] : row[b / 2] >> b % 2 * 4 & 15;
  }
  return zeros;
}

/* `high` rows times LANES columns from `c` on; `ahead`: whether the next columns are asked for */
INLINE void tile_of(const int bits, const int whole, const int high, const struct block_product *a,
                    word r, word c, int ahead) {
  const word block = a->block, blocks = (a->k + block - 1) / block, k = blocks * block;
  const word step = k * bits / 8, left = least(LANES, a->n - c);
  const char *rows[LANES];
  const float *factors[LANES];
  word columns[LANES];
  for (int i = 0; i < LANES; i++) {
    columns[i] = c + least(i, left - 1);
    rows[i] = (const char *)a->w + columns[i] * step;
    factors[i] = a->scale + columns[i] * blocks;
  }
  const char *next = rows[0] + LANES * step;
  const char *x = a->rounded + r * k;
  const float *y = a->reals + r * k;
  const float *scales = a->scales + r * blocks;
  const int32_t *x_sums = a->sums + r * blocks;
  floats sums[HIGH];
  for (int i = 0; i < high; i++) sums[i] = (floats){0};
  for (word near = 0; near < blocks; near += NEAR) {
    ints turned[NEAR];
    if (near + NEAR <= blocks)
      turn((const char *const *)factors, near * sizeof(float), turned);
    else
      for (word q = 0; q < blocks - near; q++)
        for (int i = 0; i < LANES; i++) ((float *)turned)[q * LANES + i] = factors[i][near + q];
    for (word b = near; b < least(near + NEAR, blocks); b++) {
      const floats by = (floats)turned[b - near];
      const ints zeros = zeros_of(bits, a, columns, b);
      ints dots[HIGH];
      floats part[HIGH];
#pragma GCC unroll 8
      for (int i = 0; i < high; i++) {
        const int32_t sum = whole ? x_sums[i * blocks + b] : 0;
        part[i] = (floats){0}, dots[i] = splat(FLIP && bits == 8 ? 0 : -MIDDLE(bits) * sum);
        if (whole && a->zero) dots[i] -= (zeros - MIDDLE(bits)) * sum;
      }
      for (word u = 0; u < block; u += UNIT) {
        const word at = b * block + u;
        ints w[WORDS];
        unit_of(bits, rows, at * bits / 8, w);
        if (ahead)  /* one after another, as memory likes best, and no nearer than the second cache */
          for (word j = 0; j < LANES * UNIT * bits / 8; j += 64)
            __builtin_prefetch(next + LANES * at * bits / 8 + j, 0, 2);
#pragma GCC unroll 8
        for (int j = 0; j < WORDS; j++) {
          if (whole) {
            if (FLIP && bits == 8) w[j] ^= 0x80808080;
#pragma GCC unroll 8
            for (int i = 0; i < high; i++)
              dots[i] = dot(bits, dots[i], w[j], word_at(x + i * k + at + 4 * j));
            continue;
          }
#pragma GCC unroll 4
          for (int q = 0; q < 4; q++) {
            const floats f = reals(((ints)((bits_t)w[j] >> 8 * q) & 255) - zeros);
#pragma GCC unroll 8
            for (int i = 0; i < high; i++) part[i] += f * y[i * k + at + 4 * j + q];
          }
        }
      }
#pragma GCC unroll 8
      for (int i = 0; i < high; i++)
        if (whole)
          sums[i] += reals(dots[i]) * (by * scales[i * blocks + b]);
        else
          sums[i] += part[i] * by;
    }
  }
  for (int i = 0; i < high; i++) {
    float made[LANES], *out = a->out + (r + i) * a->out_step + c;
    memcpy(made, &sums[i], sizeof made);
    for (word j = 0; j < left; j++) out[j] = made[j] + (a->bias ? a->bias[c + j] : 0);
  }
}

static void columns_of(const struct block_product *a, word c) {
  for (word r = 0; r < a->m;) {
    const word rest = a->m - r;
    const int ahead = !r, whole = a->rounded != 0;
#define TILES(bits, whole)                                                                     \
  if (HIGH == 8 && rest >= 8)                                                                  \
    tile_of(bits, whole, HIGH, a, r, c, ahead), r += 8;                                        \
  else if (rest >= 4)                                                                          \
    tile_of(bits, whole, 4, a, r, c, ahead), r += 4;                                           \
  else if (rest >= 2)                                                                          \
    tile_of(bits, whole, 2, a, r, c, ahead), r += 2;                                           \
  else                                                                                         \
    tile_of(bits, whole, 1, a, r, c, ahead), r += 1;
    if (a->bits == 4 && whole) {
      TILES(4, 1)
    } else if (a->bits == 4) {
      TILES(4, 0)
    } else if (whole) {
      TILES(8, 1)
    } else {
      TILES(8, 0)
    }
#undef TILES
  }
}

EXPORT(block_product)(const struct block_product *a, word t, word threads) {
  const word panels = (a->n + LANES - 1) / LANES;
  for (word p = panels * t / threads; p < panels * (t + 1) / threads; p++) columns_of(a, p * LANES);
}
