/* Halves: float16 and bfloat16 as bits, to and from float, without branches, for which compilers
   would not make vector code. Rounding is to the nearest even. The way with float16's tiny numbers
   is Fabian Giesen's, of 2012 (public domain). Compiled chains begin with this text (codegen.py). */
#include <stdint.h>
#include <string.h>

static inline float as_float(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
static inline uint32_t as_bits(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }
/* a where c is 1, b where it is 0 */
static inline uint32_t pick(uint32_t c, uint32_t a, uint32_t b) { return b ^ ((a ^ b) & -c); }
static inline float from_bfloat16(uint16_t h) { return as_float((uint32_t)h << 16); }
static inline uint16_t to_bfloat16(float f) {
  const uint32_t u = as_bits(f), rounded = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
  return pick((u & 0x7fffffffu) > 0x7f800000u, (u >> 16) | 0x40u, rounded);
}
static inline float from_float16(uint16_t h) {
  const uint32_t u = (uint32_t)(h & 0x7fff) << 13;
  const uint32_t normal = u + (112u << 23) + ((112u << 23) & -(uint32_t)(u >= 0x0f800000u));
  const float tiny = as_float(u + (113u << 23)) - as_float(113u << 23);
  return as_float(pick(u < 0x00800000u, as_bits(tiny), normal) | (uint32_t)(h & 0x8000) << 16);
}
static inline uint16_t to_float16(float f) {
  const uint32_t all = as_bits(f), u = all & 0x7fffffffu;
  const uint32_t special = 0x7c00u + (0x200u & -(uint32_t)(u > 0x7f800000u));
  const uint32_t tiny = as_bits(as_float(u) + 0.5f) - (126u << 23);
  const uint32_t normal = (u - (112u << 23) + 0xfffu + ((u >> 13) & 1)) >> 13;
  const uint32_t finite = pick(u < (113u << 23), tiny, normal);
  return pick(u >= (143u << 23), special, finite) | (all >> 16 & 0x8000u);
}
