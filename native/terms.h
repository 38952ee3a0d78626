/* Numbers as sums of TERMS bf16 numbers, each the rounded rest of those before; one is the nearest bf16
   itself. A lane of a tile holds a pair of them, which are 16 apart. */
#pragma once
#include "tiles.h"
#include <immintrin.h>

/* bytes of 32 rows of 32 numbers, and of 32 columns: 2 tiles for each term */
enum { CHUNK = TERMS * 2 * TILE };

/* the bf16 nearest to 16 numbers, in the upper halves of their lanes; what is left of these */
static inline __m512i rounded(__m512 *x) {
  const __m512i sum = _mm512_add_epi32(_mm512_castps_si512(*x), _mm512_set1_epi32(0x8000));
  const __m512i high = _mm512_and_si512(sum, _mm512_set1_epi32(0xffff0000));
  *x = _mm512_sub_ps(*x, _mm512_castsi512_ps(high));
  return high;
}

/* 16 pairs of numbers, term by term; of a pair the number of `a` is in the lower half */
static inline __attribute__((always_inline)) void terms_of(__m512 a, __m512 b, __m512i *to) {
#if TERMS == 3
  for (int i = 0; i < 2; i++) {
    const __m512i upper = rounded(&b);
    to[i] = _mm512_or_si512(_mm512_srli_epi32(rounded(&a), 16), upper);
  }
  /* at most 8 bits are left, a bf16; of numbers below 2^-110 more, which count for nothing */
  const __m512i upper = _mm512_set1_epi32(0xffff0000);
  to[2] = _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(a), 16),
                          _mm512_and_si512(_mm512_castps_si512(b), upper));
#else
  static const uint16_t in_turn[32] __attribute__((aligned(64))) = {
      0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(b, a);
  to[0] = _mm512_permutexvar_epi16(_mm512_load_si512(in_turn), both);
#endif
}
