/* Products of matrices of bytes, exact in 32 bits, by VNNI: operators/backends/integer_gemm.py.

   The instruction multiplies unsigned bytes with signed ones. Others are turned into these by their
   highest bit, which adds 128 to, or takes it from, both a number and its zero point. */
#include "base.h"
#include "integer_gemm_arguments.h"
#include <immintrin.h>

enum { COLS = 32, GROUP = 4, HIGH = 8, NEAR = 64 };

/* A panel holds some columns: GROUP elements of each side by side, then those of the next. */
EXPORT(pack_integers)(const struct pack_integers *a, word t, word threads) {
  const word groups = (a->k + GROUP - 1) / GROUP, panels = (a->n + COLS - 1) / COLS;
  const char flip = a->is_unsigned ? -128 : 0;
  for (word p = panels * t / threads; p < panels * (t + 1) / threads; p++) {
    char *to = a->panels + p * groups * GROUP * COLS;
    int32_t sums[COLS] = {0};
    for (word g = 0; g < groups; g++)
      for (word j = 0; j < COLS; j++)
        for (word i = 0; i < GROUP; i++) {
          const word row = g * GROUP + i, col = p * COLS + j;
          const char x =
              row < a->k && col < a->n ? a->b[row * a->down + col * a->right] ^ flip : 0;
          to[(g * COLS + j) * GROUP + i] = x;
          sums[j] += (signed char)x;
        }
    memcpy(a->sums + p * COLS, sums, sizeof sums);
  }
}

/* of a panel: sums of its columns, their zero points and whether one of these is not 0; what they are
   multiplied with, as floats; which columns are there; and the zero point of the first factor */
typedef struct {
  __m512i sums[2], zeros[2];
  __m512 scales[2];
  __mmask16 there[2];
  int shifted;
  uint32_t zero;
} columns;

INLINE void rows_of(const int high, const struct integer_product *a, const char *x, const char *p,
                    const columns *by, int32_t *out) {
  const word whole = a->k / GROUP, rest = a->k % GROUP;
  const __m512i flip = _mm512_set1_epi8(a->is_signed ? -128 : 0);
  __m512i s[HIGH][2];
#pragma GCC unroll 8
  for (int i = 0; i < high; i++) s[i][0] = s[i][1] = _mm512_setzero_si512();
#define GROUP_OF(g, size)                                                                      \
  const __m512i left = _mm512_loadu_si512(p + (g) * COLS * GROUP);                             \
  const __m512i right = _mm512_loadu_si512(p + (g) * COLS * GROUP + 64);                       \
  _Pragma("GCC unroll 8") for (int i = 0; i < high; i++) {                                     \
    int four = 0;                                                                              \
    memcpy(&four, x + i * a->a_step + (g) * GROUP, size);                                      \
    const __m512i bytes = _mm512_xor_si512(_mm512_set1_epi32(four), flip);                     \
    s[i][0] = _mm512_dpbusd_epi32(s[i][0], bytes, left);                                       \
    s[i][1] = _mm512_dpbusd_epi32(s[i][1], bytes, right);                                      \
  }
  /* First, as GCC moves the sums about in a loop that has something after it. Nothing lies after the
     last row. */
  if (rest) { GROUP_OF(whole, rest) }
  for (word g = 0; g < whole; g++) { GROUP_OF(g, GROUP) }
#undef GROUP_OF
#pragma GCC unroll 8
  for (int i = 0; i < high; i++) {
    uint32_t sum = 0;
    if (by->shifted) {
      const unsigned char one = a->is_signed ? 128 : 0;
      for (word j = 0; j < a->k; j++) sum += (unsigned char)x[i * a->a_step + j] ^ one;
      sum -= (uint32_t)a->k * by->zero;
    }
#pragma GCC unroll 2
    for (int v = 0; v < 2; v++) {
      const __m512i first = _mm512_mullo_epi32(_mm512_set1_epi32(by->zero), by->sums[v]);
      const __m512i second = _mm512_mullo_epi32(_mm512_set1_epi32(sum), by->zeros[v]);
      __m512i found = _mm512_sub_epi32(_mm512_sub_epi32(s[i][v], first), second);
      if (a->scale)
        found = _mm512_castps_si512(_mm512_mul_ps(_mm512_cvtepi32_ps(found), by->scales[v]));
      _mm512_mask_storeu_epi32(out + i * a->step + v * 16, by->there[v], found);
    }
  }
}

#define ROWS_OF(high)                                                                      \
  static void rows_##high(const struct integer_product *a, const char *x, const char *p,  \
                          const columns *by, int32_t *out) {                               \
    rows_of(high, a, x, p, by, out);                                                       \
  }
ROWS_OF(1) ROWS_OF(2) ROWS_OF(4) ROWS_OF(8)
#undef ROWS_OF

/* rows r0 to r1 of a panel's columns */
static void panel_of(const struct integer_product *a, word r0, word r1, word panel) {
  static void (*const sizes[])(const struct integer_product *, const char *, const char *,
                               const columns *, int32_t *) = {
      rows_1, rows_2, rows_4, rows_8};
  const word col = panel * COLS, cols = least(COLS, a->n - col);
  const char *p = a->panels + col * ((a->k + GROUP - 1) / GROUP * GROUP);
  int32_t shifts[COLS] = {0};
  const char zero = (a->a_zero ? a->a_zero[0] : 0) ^ (a->is_signed ? -128 : 0);
  columns by = {.zero = (unsigned char)zero};
  float scales[COLS] = {0};
  for (word j = 0; a->scale && j < cols; j++) scales[j] = a->scale[a->scales > 1 ? col + j : 0];
  for (word j = 0; j < cols && (a->b_zero || a->is_unsigned); j++) {
    const char own = a->b_zero ? a->b_zero[a->b_zeros > 1 ? col + j : 0] : 0;
    shifts[j] = (signed char)(own ^ (a->is_unsigned ? -128 : 0));
    by.shifted |= shifts[j] != 0;
  }
  for (int v = 0; v < 2; v++) {
    by.sums[v] = _mm512_loadu_si512(a->sums + col + v * 16);
    by.zeros[v] = _mm512_loadu_si512(shifts + v * 16);
    by.scales[v] = _mm512_loadu_ps(scales + v * 16);
    by.there[v] = (1u << least(16, cols > v * 16 ? cols - v * 16 : 0)) - 1;
  }
  for (int size = 3; size >= 0; size--)
    for (; r1 - r0 >= 1 << size; r0 += 1 << size)
      sizes[size](a, a->a + r0 * a->a_step, p, &by, a->out + r0 * a->step + col);
}

EXPORT(integer_product)(const struct integer_product *a, word t, word threads) {
  const word panels = (a->n + COLS - 1) / COLS, tiles = (a->m + HIGH - 1) / HIGH;
  const int by_rows = a->m >= a->n;
  const word end = by_rows ? least(tiles * (t + 1) / threads * HIGH, a->m) : a->m;
  const word p0 = by_rows ? 0 : panels * t / threads;
  const word p1 = by_rows ? panels : panels * (t + 1) / threads;
  for (word r = by_rows ? tiles * t / threads * HIGH : 0; r < end; r += NEAR)
    for (word p = p0; p < p1; p++) panel_of(a, r, least(r + NEAR, end), p);
}
