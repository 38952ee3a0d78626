/* Products of bytes. Processors that want signs on both sides take FLIP from numbers without one. */
#pragma once
#include "base.h"
#if defined(__aarch64__)
#include <arm_neon.h>

enum { FLIP = 128 };

/* s, and in each lane the products of the four bytes at its place */
INLINE int32x4_t add_products(int32x4_t s, int8x16_t a, int8x16_t b) {
#if defined(__ARM_FEATURE_DOTPROD)
  return vdotq_s32(s, a, b);
#else
  const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b)));
  const int32x4_t high = vpaddlq_s16(vmull_high_s8(a, b));
  return vaddq_s32(s, vpaddq_s32(low, high));
#endif
}
#else
enum { FLIP = 0 };
#endif
