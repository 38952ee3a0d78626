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

/* the next numbers; the state is moved on */
INLINE void turn(uint64_t *s, uint64_t *to) {
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

EXPORT(mersenne64)(const struct mersenne64 *a) {
  uint64_t *to = a->out;
  for (word done = 0; done < a->turns; done++, to += SIZE) turn(a->state, to);
}

/* Uniform numbers, as `uniform` of cntk/network/ziggurat.py rounds them; what rounding takes up to
   `high` is left out. */
#define UNIFORM(real)                                           \
  static void uniform_##real(const struct uniform *a) {         \
    const real low = a->low, span = a->span, high = a->high;    \
    const real unit = 1 / 18446744073709551616.0;               \
    real *to = (real *)a->out;                                  \
    for (word done = 0; done < a->count;) {                     \
      uint64_t drawn[SIZE];                                     \
      real made[SIZE];                                          \
      int above = 0;                                            \
      turn(a->state, drawn);                                    \
      for (int i = 0; i < SIZE; i++) {                          \
        made[i] = (real)drawn[i] * unit * span + low;           \
        above |= !(made[i] < high);                             \
      }                                                         \
      const word count = least(SIZE, a->count - done);          \
      if (!above) memcpy(to + done, made, count * sizeof(real)), done += count; \
      for (int i = 0; above && i < SIZE && done < a->count; i++) \
        if (made[i] < high) to[done++] = made[i];               \
    }                                                           \
  }
UNIFORM(float) UNIFORM(double)

EXPORT(uniform)(const struct uniform *a) {
  if (a->single) uniform_float(a);
  else uniform_double(a);
}
