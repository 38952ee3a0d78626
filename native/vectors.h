/* Vectors of T, as wide as the processor has them. */
#pragma once
#include "typed.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { BYTES = 64 };
#elif defined(__AVX2__)
enum { BYTES = 32 };
#else
enum { BYTES = 16 };
#endif
enum { LANES = BYTES / sizeof(T) };
VISIBLE word EXPORTED(JOIN(lanes, UNIT)) = LANES;
typedef T vec_t __attribute__((vector_size(BYTES)));
typedef T row_t __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));
/* what comparisons of vectors give */
typedef __typeof__(_Generic((T)0, float: (int32_t)0, double: (int64_t)0)) flag_t;
typedef flag_t flags_t __attribute__((vector_size(BYTES)));

/* b where a is less, or more; else a, NaN too: maxima and minima of x86, with b before a */
#if defined(__x86_64__)
#if defined(__AVX512F__)
#define EXTREME(name, a, b)                                                \
  _Generic((T)0, float: (vec_t)_mm512_##name##_ps((__m512)b, (__m512)a), \
           double: (vec_t)_mm512_##name##_pd((__m512d)b, (__m512d)a))
#elif defined(__AVX2__)
#define EXTREME(name, a, b)                                                \
  _Generic((T)0, float: (vec_t)_mm256_##name##_ps((__m256)b, (__m256)a), \
           double: (vec_t)_mm256_##name##_pd((__m256d)b, (__m256d)a))
#else
#define EXTREME(name, a, b)                                          \
  _Generic((T)0, float: (vec_t)_mm_##name##_ps((__m128)b, (__m128)a), \
           double: (vec_t)_mm_##name##_pd((__m128d)b, (__m128d)a))
#endif
INLINE vec_t at_least(vec_t a, vec_t b) { return EXTREME(max, a, b); }
INLINE vec_t at_most(vec_t a, vec_t b) { return EXTREME(min, a, b); }
#undef EXTREME
#else
INLINE vec_t chosen(flags_t taken, vec_t a, vec_t b) {
  return (vec_t)((taken & (flags_t)a) | (~taken & (flags_t)b));
}
INLINE vec_t at_least(vec_t a, vec_t b) { return chosen(b > a, b, a); }
INLINE vec_t at_most(vec_t a, vec_t b) { return chosen(b < a, b, a); }
#endif

/* bytes of results from which they leave the second cache, and are asked for before they are written */
enum { FAR = 1 << 20 };

/* writes the first `count` elements, or all where a vector has no more */
INLINE void store_lanes(T *to, vec_t a, word count) {
  if (count >= LANES)
    *(row_t *)to = a;
  else if (count > 0) {
#if defined(__AVX512F__)
    const unsigned taken = (1u << count) - 1;
    _Generic((T)0, float: _mm512_mask_storeu_ps(to, taken, (__m512)a),
             double: _mm512_mask_storeu_pd(to, taken, (__m512d)a));
#else
    memcpy(to, &a, count * sizeof(T));
#endif
  }
}
