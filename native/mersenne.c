/* The 64-bit Mersenne Twister: cntk/base/mersenne.py.

   Matsumoto and Nishimura 1998; C++'s std::mt19937_64, whose numbers these are. */
#include "base.h"
#include "mersenne_arguments.h"

enum { SIZE = 312, MIDDLE = 156 };
static const uint64_t MATRIX = 0xB5026F5AA96619E9u;
static const uint64_t UPPER = 0xFFFFFFFF80000000u, LOWER = 0x7FFFFFFFu;

#define NEXT(i, after, other) { \
  const uint64_t x = (s[i] & UPPER) | (s[after] & LOWER); \
  s[i] = s[other] ^ (x >> 1) ^ (-(x & 1) & MATRIX); }

EXPORT(mersenne64)(const struct mersenne64 *a) {
  uint64_t *s = a->state, *to = a->out;
  for (word turn = 0; turn < a->turns; turn++, to += SIZE) {
    int i = 0;
    for (; i < MIDDLE; i++) NEXT(i, i + 1, i + MIDDLE)
    for (; i < SIZE - 1; i++) NEXT(i, i + 1, i - MIDDLE)
    NEXT(SIZE - 1, 0, SIZE - 1 - MIDDLE)
    for (i = 0; i < SIZE; i++) {
      uint64_t x = s[i];
      x ^= (x >> 29) & 0x5555555555555555u;
      x ^= (x << 17) & 0x71D67FFFEDA60000u;
      x ^= (x << 37) & 0xFFF7EEE000000000u;
      x ^= x >> 43;
      to[i] = x;
    }
  }
}
