/* Products with weights of 4, 8 or 16 bits in blocks: operators/linear/matmul_nbits.py.

   Weights are read as they lie. With one row or two, rows of weights are multiplied with them
   vector by vector, and each lane by the scale of its block. With more rows, 16 bytes of each of
   LANES rows of weights are turned so that a lane has four of one row side by side, and a block is
   added up before it is scaled. Of 4 bits a byte has an even number and the odd one after it; all
   even ones of the first factor lie before the odd ones.

   Of 16 bits a number is the upper half of a float, and has no scale. A word has an even number and
   the odd one after it, of which a shift and a mask make floats. The first factor has the even ones
   of a unit before the odd ones. Rows of weights are multiplied vector by vector, however many rows
   there are: turning them would take as many instructions as making floats again. */
#include "base.h"
#include "block_products_arguments.h"
#include "byte_products.h"
#include <float.h>
#include <math.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512BW__)
enum { BYTES = 64 };
#elif defined(__AVX2__)
enum { BYTES = 32 };
#else
enum { BYTES = 16 };
#endif
enum { LANES = BYTES / 4, UNIT = 32, WORDS = UNIT / 4, NEAR = 4 };
/* the most rows of a tile: eight want the registers of AVX-512, and sums of bytes */
enum { HIGH = 8 };
/* rows of a tile of bfloat16, as many as there are registers for */
#if defined(__AVX512BW__) || defined(__aarch64__)
enum { TALL = 4 };
#else
enum { TALL = 2 };
#endif
/* Rows and columns of dot products, and vectors of weights at once; numbers in a column beyond
   which it is read alone, as the first cache does not hold what is asked for of several; bytes in
   which memory answers. */
enum { FEW = 2, WIDE = 4, AHEAD = 2048 };
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

/* the place of a float, the even ones of `all`, 8 or 32, before the odd ones */
INLINE word apart(word j, word all) {
  return (j & -all) | (j & 1) * (all / 2) | (j & (all - 1)) >> 1;
}

INLINE word place_of(word bits, word j) {
  return bits == 16 ? apart(j, UNIT) : bits == 4 ? apart(j, 8) : j;
}

/* `count` numbers as bytes: whole multiples of the largest over 127; returns the scale. Of 4 bits
   the odd ones go to `odds`. */
INLINE float round_block(const float *x, word count, word block, word bits, char *out, char *odds,
                         int32_t *sum) {
  float most = 0, odd = 0;
  for (word j = 0; j < count; j++) {
    const float size = fabsf(x[j]);
    most = size > most ? size : most;
    odd += x[j] - x[j];  /* NaN for what is not finite */
  }
  float scale = most / 127;
  if (odd != 0 || scale < FLT_MIN) {
    memset(out, 0, bits == 4 ? block / 2 : block);
    if (bits == 4) memset(odds, 0, block / 2);
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
      for (word j = 0; j < UNIT / 2; j++) {
        out[u / 2 + j] = made[2 * j];
        odds[u / 2 + j] = made[2 * j + 1];
      }
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
      const word k = blocks * block;
      char *bytes = a->rounded + q / blocks * k + begin * a->bits / 8;
      a->scales[q] = round_block(x, count, block, a->bits, bytes, bytes + k / 2, a->sums + q);
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
INLINE ints dot(const int bits, ints s, ints w, ints x) {
#if defined(__AVX512VNNI__)
  return (ints)_mm512_dpbusd_epi32((__m512i)s, (__m512i)w, (__m512i)x);
#elif defined(__AVXVNNI__)
  return (ints)_mm256_dpbusd_avx_epi32((__m256i)s, (__m256i)w, (__m256i)x);
#elif defined(__AVX512BW__) || defined(__AVX2__)
#if defined(__AVX512BW__)
#define OF(name, ...) (ints)_mm512_##name(__VA_ARGS__)
#define V(a) ((__m512i)(a))
#else
#define OF(name, ...) (ints)_mm256_##name(__VA_ARGS__)
#define V(a) ((__m256i)(a))
#endif
  if (bits == 4)  /* pairs of products have 16 bits */
    return s + OF(madd_epi16, V(OF(maddubs_epi16, V(w), V(x))), V(splat(0x10001)));
  const ints even = OF(srai_epi16, V(OF(slli_epi16, V(x), 8)), 8), odd = OF(srai_epi16, V(x), 8);
  const ints low = w & 0x00ff00ff, high = OF(srli_epi16, V(w), 8);
  return s + OF(madd_epi16, V(low), V(even)) + OF(madd_epi16, V(high), V(odd));
#undef OF
#undef V
#elif defined(__aarch64__)
  const int8x16_t a = vreinterpretq_s8_s32((int32x4_t)w), b = vreinterpretq_s8_s32((int32x4_t)x);
  return (ints)add_products((int32x4_t)s, a, b);
#else
  for (int q = 0; q < 4; q++)
    s += ((ints)((bits_t)w >> 8 * q) & 255) * ((ints)((bits_t)x << (24 - 8 * q)) >> 24);
  return s;
#endif
}

/* what is taken from the numbers of a block: its zero points */
INLINE int32_t zero_of(const int bits, const struct block_product *a, word c, word b) {
  const word step = ((a->k + a->block - 1) / a->block * bits + 7) / 8;
  const uint8_t *row = a->zero + c * step;
  return bits == 8 ? row[b] : row[b / 2] >> b % 2 * 4 & 15;
}

INLINE ints zeros_of(const int bits, const struct block_product *a, const word *columns, word b) {
  if (!a->zero) return splat(MIDDLE(bits));
  ints zeros;
  for (int i = 0; i < LANES; i++) zeros[i] = zero_of(bits, a, columns[i], b);
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
            for (int i = 0; i < high; i++) {
              const word place = bits == 8 ? at + 4 * j : at / 2 + j / 2 * 4 + j % 2 * (k / 2);
              dots[i] = dot(bits, dots[i], w[j], splat(word_at(x + i * k + place)));
            }
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

/* -- dot products --------------------------------------------------------------------------------- */

typedef int32_t ints_at __attribute__((vector_size(BYTES), aligned(1), may_alias));
typedef float floats_at __attribute__((vector_size(BYTES), aligned(4), may_alias));

static const int32_t LANE_NUMBERS[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* the lanes of a vector that have these numbers */
INLINE floats chosen(floats from, ints numbers) {
#if defined(__clang__)
  floats made;
  for (int i = 0; i < LANES; i++) made[i] = from[numbers[i]];
  return made;
#else
  return __builtin_shuffle(from, numbers);
#endif
}

/* `count` numbers, or all of a vector, and zeros */
INLINE ints some_of(const void *x, word count) {
#if defined(__AVX512BW__)
  return (ints)_mm512_maskz_loadu_epi32((1u << count) - 1, x);
#else
  if (count >= LANES) return *(const ints_at *)x;
  ints made = {0};
  memcpy(&made, x, count * sizeof(int32_t));
  return made;
#endif
}

/* the sums of all lanes of WIDE vectors */
INLINE void add_lanes(const floats *x, float *sums) {
#if defined(__AVX512BW__)
#define V(i) ((__m512)x[i])
#define JOINED(kind, a, b) \
  (_mm512_unpacklo_##kind(a, b) + _mm512_unpackhi_##kind(a, b))
  const __m512d a = (__m512d)JOINED(ps, V(0), V(1)), b = (__m512d)JOINED(ps, V(2), V(3));
  const __m512 all = (__m512)_mm512_unpacklo_pd(a, b) + (__m512)_mm512_unpackhi_pd(a, b);
  const __m256 half = _mm512_castps512_ps256(all) + _mm512_extractf32x8_ps(all, 1);
  const __m128 four = _mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1);
  _mm_storeu_ps(sums, four);
#undef JOINED
#undef V
#else
  for (int v = 0; v < WIDE; v++) {
    float lanes[LANES];
    memcpy(lanes, x + v, sizeof lanes);
    for (int left = LANES / 2; left; left /= 2)
      for (int i = 0; i < left; i++) lanes[i] += lanes[i + left];
    sums[v] = lanes[0];
  }
#endif
}

/* out: the sums of all lanes and the bias, of `high` rows from r on, of WIDE columns, the first one c
   and the others `far` */
INLINE void put_sums(const int high, floats (*s)[WIDE], const struct block_product *a, word r,
                     word c, word far) {
#pragma GCC unroll 4
  for (int i = 0; i < high; i++) {
    float sums[WIDE], *out = a->out + (r + i) * a->out_step + c;
    add_lanes(s[i], sums);
    for (int v = 0; v < WIDE; v++) out[v * far] = sums[v] + (a->bias ? a->bias[c + v * far] : 0);
  }
}

/* Asks for what will be read of each of WIDE columns. */
INLINE void fetch(const char *const *w, word at) {
#pragma GCC unroll 4
  for (int v = 0; v < WIDE; v++)
    if (BYTES % 64 == 0 || at % 64 == 0) __builtin_prefetch(w[v] + at + AHEAD);
}

/* A vector of the weights of each of WIDE columns times bytes of `high` rows, by the scales of the
   blocks `numbers` of each lane. */
INLINE void vectors_of(const int bits, const int high, floats s[FEW][WIDE], const char *const *w,
                       word at, const char *const *x, word half, floats by[FEW][WIDE],
                       ints numbers) {
#pragma GCC unroll 4
  for (int v = 0; v < WIDE; v++) {
    const ints whole = *(const ints_at *)(w[v] + at);
    const ints low = bits == 8 ? FLIP ? whole ^ 0x80808080 : whole : whole & 0x0f0f0f0f;
    const ints upper = (ints)((bits_t)whole >> 4) & 0x0f0f0f0f;
#pragma GCC unroll 8
    for (int i = 0; i < high; i++) {
      ints dots = dot(bits, splat(0), low, *(const ints_at *)(x[i] + at));
      if (bits == 4) dots = dot(bits, dots, upper, *(const ints_at *)(x[i] + at + half));
      s[i][v] += reals(dots) * chosen(by[i][v], numbers);
    }
  }
}

/* `high` rows, which are all, times WIDE columns, the first one c and the others `far` */
INLINE void dots_of(const int bits, const int high, const struct block_product *a, word c, word far) {
  const word block = a->block, blocks = (a->k + block - 1) / block, k = blocks * block;
  const word step = block * bits / 8, size = blocks * step;
  const int shift = __builtin_ctzl(block);  /* of a number's place to that of its block */
  const char *w[WIDE], *x[FEW];
  floats s[FEW][WIDE], scaled[FEW][WIDE];
#pragma GCC unroll 8
  for (int i = 0; i < high; i++) {
    x[i] = a->rounded + i * k;
#pragma GCC unroll 4
    for (int v = 0; v < WIDE; v++) s[i][v] = (floats){0};
  }
#pragma GCC unroll 4
  for (int v = 0; v < WIDE; v++) w[v] = (const char *)a->w + (c + v * far) * size;
  for (word b = 0; b < blocks; b += LANES) {
    const word count = least(LANES, blocks - b), end = (b + count) * step;
    floats scales[FEW], sums[FEW];
#pragma GCC unroll 8
    for (int i = 0; i < high; i++) {
      scales[i] = (floats)some_of(a->scales + i * blocks + b, count);
      sums[i] = scales[i] * reals(some_of(a->sums + i * blocks + b, count));
      if (!a->zero) sums[i] *= FLIP && bits == 8 ? 0.0f : (float)MIDDLE(bits);
    }
#pragma GCC unroll 4
    for (int v = 0; v < WIDE; v++) {
      const word column = c + v * far;
      const floats by = (floats)some_of(a->scale + column * blocks + b, count);
      floats taken = by;
      if (a->zero) {
        floats zeros = {0};
        for (int i = 0; i < count; i++)
          zeros[i] = zero_of(bits, a, column, b + i) - (FLIP && bits == 8 ? FLIP : 0);
        taken *= zeros;
      }
#pragma GCC unroll 8
      for (int i = 0; i < high; i++) scaled[i][v] = by * scales[i], s[i][v] -= taken * sums[i];
    }
    ints places = *(const ints_at *)LANE_NUMBERS * (32 / bits);  /* of the lanes' first numbers */
    word at = b * step;
    for (; at + BYTES <= end; at += BYTES, places += BYTES * 8 / bits) {
      fetch(w, at);
      vectors_of(bits, high, s, w, at, x, k / 2, scaled, places >> shift);
    }
    if (at < end) {  /* behind the last row is no memory */
      char bytes[WIDE][BYTES] = {0}, rows[FEW][2 * BYTES] = {0};
      const char *some[WIDE], *few[FEW];
      for (int v = 0; v < WIDE; v++) some[v] = memcpy(bytes[v], w[v] + at, end - at);
      for (int i = 0; i < high; i++) {
        few[i] = memcpy(rows[i], x[i] + at, end - at);
        if (bits == 4) memcpy(rows[i] + BYTES, x[i] + k / 2 + at, end - at);
      }
      vectors_of(bits, high, s, some, 0, few, BYTES, scaled, places >> shift);
    }
  }
  put_sums(high, s, a, 0, c, far);
}

/* Up to FEW rows times some columns. Those multiplied at once are far apart: each stream of bytes is
   fetched as fast as memory answers, which those within a page or two are not. Columns that are left
   are multiplied WIDE times, so that sums do not depend on the number of threads. */
INLINE void dots_from(const int bits, const int high, const struct block_product *a, word c,
                      word end) {
  const word far = (end - c) / WIDE;
  for (word i = 0; i < far; i++) dots_of(bits, high, a, c + i, far);
  for (c += WIDE * far; c < end; c++) dots_of(bits, high, a, c, 0);
}

static void few_rows(const struct block_product *a, word c, word end) {
  if (a->bits == 4 && a->m == 1)
    dots_from(4, 1, a, c, end);
  else if (a->bits == 4)
    dots_from(4, FEW, a, c, end);
  else if (a->m == 1)
    dots_from(8, 1, a, c, end);
  else
    dots_from(8, FEW, a, c, end);
}

/* -- bfloat16 --------------------------------------------------------------------------------- */

/* adds `high` rows of a unit, `x_step` floats apart, times WIDE columns */
INLINE void add_halves(const int high, floats s[TALL][WIDE], const float *x, word x_step,
                       const char *const *w, word at) {
#pragma GCC unroll 4
  for (int part = 0; part < UNIT / 2; part += LANES) {
    floats even[TALL], odd[TALL];
#pragma GCC unroll 4
    for (int i = 0; i < high; i++) {
      even[i] = *(const floats_at *)(x + i * x_step + part);
      odd[i] = *(const floats_at *)(x + i * x_step + UNIT / 2 + part);
    }
#pragma GCC unroll 4
    for (int v = 0; v < WIDE; v++) {
      const bits_t both = (bits_t)*(const ints_at *)(w[v] + at + 4 * part);
      const floats low = (floats)(both << 16), upper = (floats)(both & 0xffff0000u);
#pragma GCC unroll 4
      for (int i = 0; i < high; i++) s[i][v] += even[i] * low;
#pragma GCC unroll 4
      for (int i = 0; i < high; i++) s[i][v] += odd[i] * upper;
    }
  }
}

/* `high` rows from r on times WIDE columns, the first one c and the others `far` */
INLINE void halves_of(const int high, const struct block_product *a, word r, word c, word far) {
  const word k = (a->k + a->block - 1) / a->block * a->block;
  const float *x = a->reals + r * k;
  const char *w[WIDE];
  floats s[TALL][WIDE];
#pragma GCC unroll 4
  for (int v = 0; v < WIDE; v++) w[v] = (const char *)a->w + (c + v * far) * k * 2;
#pragma GCC unroll 4
  for (int i = 0; i < high; i++)
#pragma GCC unroll 4
    for (int v = 0; v < WIDE; v++) s[i][v] = (floats){0};
  word u = 0;
  for (; u + UNIT <= a->k; u += UNIT) {
    if (!r) fetch(w, u * 2);
    add_halves(high, s, x + u, k, w, u * 2);
  }
  if (u < a->k) {  /* what fills up a block may be NaN, which zeros of the rows do not take away */
    char bytes[WIDE][UNIT * 2] = {0};
    const char *some[WIDE];
    for (int v = 0; v < WIDE; v++) some[v] = memcpy(bytes[v], w[v] + u * 2, (a->k - u) * 2);
    add_halves(high, s, x + u, k, some, 0);
  }
  put_sums(high, s, a, r, c, far);
}

/* all rows times WIDE columns */
static void halves_at(const struct block_product *a, word c, word far) {
  word r = 0;
  for (; r + TALL <= a->m; r += TALL) halves_of(TALL, a, r, c, far);
  for (; r + 2 <= a->m; r += 2) halves_of(2, a, r, c, far);
  for (; r < a->m; r++) halves_of(1, a, r, c, far);
}

/* as dots_from, all rows */
static void halves(const struct block_product *a, word c, word end) {
  const word far = (end - c) / WIDE;
  for (word i = 0; i < far; i++) halves_at(a, c + i, far);
  for (c += WIDE * far; c < end; c++) halves_at(a, c, 0);
}

/* -- all of them ------------------------------------------------------------------------------ */

typedef void tile(const struct block_product *, word, word, int);
#define TILE(bits, whole, high)                                                                \
  static void tile_##bits##_##whole##_##high(const struct block_product *a, word r, word c,    \
                                             int ahead) {                                      \
    tile_of(bits, whole, high, a, r, c, ahead);                                                \
  }
#define TILES(bits, whole) TILE(bits, whole, 1) TILE(bits, whole, 2) TILE(bits, whole, 4)
TILES(4, 0) TILES(4, 1) TILES(8, 0) TILES(8, 1)
#if defined(__AVX512BW__)
TILE(4, 1, 8) TILE(8, 1, 8)
#define EIGHT(bits) tile_##bits##_1_8
#else
#define EIGHT(bits) 0
#endif
#define OF(bits, whole) tile_##bits##_##whole##_1, tile_##bits##_##whole##_2, tile_##bits##_##whole##_4
/* by the bits of a weight, 4 or 8, by whether rows are bytes, and by the logarithm of their number */
static tile *const tiles[2][2][4] = {{{OF(4, 0), 0}, {OF(4, 1), EIGHT(4)}},
                                     {{OF(8, 0), 0}, {OF(8, 1), EIGHT(8)}}};
#undef OF
#undef EIGHT
#undef TILES
#undef TILE

static void panel_of(const struct block_product *a, word c) {
  tile *const *by = tiles[a->bits == 8][a->rounded != 0];
  word r = 0;
  for (int log = 3; log >= 0; log--)
    for (; by[log] && a->m - r >= 1 << log; r += 1 << log) by[log](a, r, c, !r);
}

EXPORT(block_product)(const struct block_product *a, word t, word threads) {
  const int by_rows = a->rounded && !(a->block & (a->block - 1)) && a->m <= FEW;
  if (a->bits == 16 || by_rows) {
    const word first = a->n * t / threads, end = a->n * (t + 1) / threads;
    if (a->bits == 16)
      halves(a, first, end);
    else
      few_rows(a, first, end);
    return;
  }
  const word panels = (a->n + LANES - 1) / LANES;
  for (word p = panels * t / threads; p < panels * (t + 1) / threads; p++) panel_of(a, p * LANES);
}
