/* exp, tanh and the sigmoid of vectors. Zeros, infinities, denormals and NaN give what NumPy gives.

   The error of exp is below 1.3 units in the last place, those of the others are below 3, in float
   and in double (tests/native/test_functions.py). Sigmoids are 0 where x is below -89.1, or -710.1
   in double; those of NumPy, by 1 / (1 + exp(-x)), are 0 a little earlier. A result depends on its
   argument alone, neither on the lane nor on the other lanes.

   exp(x) = 2^n exp(r) with the integer n next to x / ln 2. ln 2 has two parts, so that n times the
   first one is exact (Cody and Waite, Software Manual for the Elementary Functions, 1980). */
#pragma once
#include "vectors.h"
#if defined(__aarch64__)
#include <arm_neon.h>
#endif

INLINE vec_t splat(T x) { return x - (vec_t){}; }

/* the first `count` elements, or all where a vector has no more; `other` in its other lanes */
INLINE vec_t load_lanes(const T *from, word count, T other) {
  if (count >= LANES) return *(const row_t *)from;
  vec_t a = splat(other);
  if (count > 0) memcpy(&a, from, count * sizeof(T));
  return a;
}

/* a b + c, one operation where the processor has it: chains are compiled without contraction */
INLINE vec_t fused(vec_t a, vec_t b, vec_t c) {
#if defined(__AVX512F__)
  return _Generic((T)0, float: (vec_t)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c),
                  double: (vec_t)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c));
#elif defined(__FMA__)
  return _Generic((T)0, float: (vec_t)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c),
                  double: (vec_t)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c));
#elif defined(__aarch64__)
  return _Generic((T)0,
      float: (vec_t)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b),
      double: (vec_t)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b));
#else
  return a * b + c;
#endif
}

#define OF_TYPE(of_float, of_double) _Generic((T)0, float: of_float, double: of_double)
/* A sum with 1.5 times the first number whose neighbors are integers ends in the bits of an
   integer, which these bits, SHIFT to the left, have as their exponent. */
#define ROUNDING OF_TYPE(0x1.8p23f, 0x1.8p52)
enum { SHIFT = sizeof(T) == sizeof(float) ? 23 : 52 };
#define LOG2_E OF_TYPE(0x1.715476p0f, 0x1.71547652b82fep0)
#define LN2_HIGH OF_TYPE(0x1.63p-1f, 0x1.62e4p-1)
#define LN2_LOW OF_TYPE(-0x1.bd0106p-13f, 0x1.7f7d1cf79abcap-20)

/* r; `rounded` is n plus ROUNDING */
INLINE vec_t remainder_of(vec_t x, vec_t *rounded) {
  *rounded = fused(x, splat(LOG2_E), splat(ROUNDING));
  const vec_t n = *rounded - splat(ROUNDING);
  return fused(n, splat(-LN2_LOW), fused(n, splat(-LN2_HIGH), x));
}

/* 2^n of the bits of `rounded` */
INLINE vec_t power_of_two(flags_t rounded) {
  return (vec_t)((rounded << SHIFT) + (flags_t)splat(1));
}

/* (exp(r) - 1) / r for |r| up to ln 2 / 2: 1, then what leaves the least error, which Remez's
   algorithm finds */
INLINE vec_t slope_of(vec_t r) {
  static const float of_float[] = {0x1.6bec02p-10f, 0x1.122790p-7f, 0x1.555674p-5f, 0x1.5554b0p-3f,
                                   0x1.fffffep-2f, 1};
  static const double of_double[] = {
      0x1.ae6bb45b76757p-26, 0x1.28a1f11435c54p-22, 0x1.71de880e35b78p-19, 0x1.a019a75ef8e08p-16,
      0x1.a01a01750bba0p-13, 0x1.6c16c17ee0be9p-10, 0x1.1111111118fd2p-7, 0x1.55555555522a5p-5,
      0x1.5555555555539p-3, 0x1.0000000000005p-1, 1};
  const T *factors = OF_TYPE(of_float, of_double);
  vec_t sum = splat(factors[0]);
#pragma GCC unroll 16
  for (int i = 1; i < OF_TYPE(sizeof of_float, sizeof of_double) / sizeof(T); i++)
    sum = fused(sum, r, splat(factors[i]));
  return sum;
}

INLINE vec_t exp_of(vec_t x) {
  vec_t rounded;
#if defined(__AVX512F__)
  /* The instruction that multiplies by 2^n takes all n. Where x is far from 0, r is no remainder,
     but must be small. */
  const vec_t r = remainder_of(x, &rounded), n = rounded - splat(ROUNDING);
  const vec_t small = OF_TYPE(
      (vec_t)_mm512_range_ps((__m512)r, (__m512)splat(1), 2),
      (vec_t)_mm512_range_pd((__m512d)r, (__m512d)splat(1), 2));
  const vec_t power = fused(slope_of(small), small, splat(1));
  return OF_TYPE((vec_t)_mm512_scalef_ps((__m512)power, (__m512)n),
                 (vec_t)_mm512_scalef_pd((__m512d)power, (__m512d)n));
#else
  /* 2^n is a product of two numbers, as results may be denormal. Beyond these limits they are 0 and
     infinity. */
  x = at_most(at_least(x, splat(OF_TYPE(-104, -746))), splat(OF_TYPE(89, 710)));
  const vec_t r = remainder_of(x, &rounded), n = rounded - splat(ROUNDING);
  const flags_t half = (flags_t)fused(n, splat((T)0.5), splat(ROUNDING));
  const vec_t power = fused(slope_of(r), r, splat(1));
  return power * power_of_two(half) * power_of_two((flags_t)rounded - half);
#endif
}

/* -m / (m + 2) with m = exp(-2 |x|) - 1, which is as precise as x beside 0 */
INLINE vec_t tanh_of(vec_t x) {
  const flags_t sign = (flags_t)splat((T)-0.0);
  vec_t rounded, below = (vec_t)((flags_t)x | sign);
  below = at_least(below + below, splat(-80));  /* whence on results are 1 */
  const vec_t r = remainder_of(below, &rounded), power = power_of_two((flags_t)rounded);
  const vec_t m = fused(slope_of(r) * r, power, power - 1);
  return (vec_t)(((flags_t)m & ~sign) | ((flags_t)x & sign)) / (m + 2);
}

/* 1 / (1 + exp(-x)), both numbers halved: so exp overflows where results are denormal */
INLINE vec_t sigmoid_of(vec_t x) {
  const vec_t half = splat((T)0.5);
  vec_t rounded;
  /* beyond these limits results are 1, and 0 as the power is infinite */
  x = at_most(at_least(-x, splat(-80)), splat(OF_TYPE(89.5f, 710.4)));
  const vec_t r = remainder_of(x, &rounded), power = power_of_two((flags_t)rounded - 1);
  return half / fused(fused(slope_of(r), r, splat(1)), power, half);
}
