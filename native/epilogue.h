/* What a kernel does with its results: an activation while they are in registers, a chain (chains.c)
   while they are in the cache. */
#pragma once
#include "vectors.h"
#include "chains_arguments.h"

typedef void chain_function(const word *b, word t, word n);

enum { LIMITS = 1, HARD_SWISH };

/* The activation of some results, to the bits of a chain: neither makes one operation of two. */
INLINE void activate(const struct activation *a, const int count, vec_t *s) {
  const vec_t low = (T)a->low - (vec_t){0}, high = (T)a->high - (vec_t){0};
  if (a->kind == LIMITS)
#pragma GCC unroll 4
    for (int v = 0; v < count; v++) s[v] = at_most(at_least(s[v], low), high);
  else if (a->kind == HARD_SWISH)
#pragma GCC unroll 4
    for (int v = 0; v < count; v++)
      s[v] = s[v] * at_most(at_least(s[v] + 3, low), high) * (T)0.16666666666666666;
}

/* Elements o0 to o1 of the results of `pixels` pixels from the one of that number on; `made` has all
   elements, `step` of them for each pixel. in_place: they take the place of what they are made of. */
static inline void end_pixels(const struct epilogue *e, word number, word pixels, word o0, word o1,
                              T *made, word step, int in_place) {
  word b[3 + 2 * e->operands];
  int together = 1;  /* whether the elements of all pixels follow each other everywhere */
  memcpy(b, e->words, sizeof b);
  for (word i = 0; i < e->operands; i++) {
    word *place = b + 3 + 2 * i;
    if (i == e->made || (in_place && i == e->out))
      place[0] = (word)(made + o0), place[1] = step;
    else
      place[0] += (number * place[1] + o0) * e->sizes[i];
    if (e->sizes[i] && place[1] != o1 - o0) together = 0;
  }
  b[0] = together ? 1 : pixels, b[1] = together ? pixels * (o1 - o0) : o1 - o0;
  ((chain_function *)e->chain)(b, 0, 1);
}
