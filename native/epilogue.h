/* What a kernel does with its results: an activation while they are in registers, a chain (chains.c)
   while they are in the cache. */
#pragma once
#include "vectors.h"
#include "chains_arguments.h"

typedef void chain_function(const struct chain *a, word t, word n);

enum { LIMITS = 1, HARD_SWISH };

/* The activation of some results, to the bits of a chain: neither makes one operation of two. */
INLINE void activate(const struct activation *a, const int count, vec_t *s) {
  const vec_t low = (T)a->low - (vec_t){0}, high = (T)a->high - (vec_t){0};
  if (a->kind == LIMITS) {
#pragma GCC unroll 4
    for (int v = 0; v < count; v++) s[v] = at_least(s[v], low);
    if (a->high < INFINITY)
#pragma GCC unroll 4
      for (int v = 0; v < count; v++) s[v] = at_most(s[v], high);
  }
  if (a->kind == HARD_SWISH)
#pragma GCC unroll 4
    for (int v = 0; v < count; v++)
      s[v] = s[v] * at_most(at_least(s[v] + 3, low), high) * (T)0.16666666666666666;
}

/* Elements o0 to o1 of the results of `pixels` pixels from the one of that number on; `made` has all
   elements, `step` of them for each pixel. in_place: they take the place of what they are made of. */
static inline void end_pixels(const struct epilogue *e, word number, word pixels, word o0, word o1,
                              T *made, word step, int in_place) {
  const size_t bytes = sizeof(struct chain) + e->operands * sizeof(struct chain_place);
  word memory[bytes / sizeof(word)];
  struct chain *of_these = (struct chain *)memory;
  int together = 1;  /* whether the elements of all pixels follow each other everywhere */
  memcpy(memory, e->chain, bytes);
  for (word i = 0; i < e->operands; i++) {
    struct chain_place *place = of_these->places + i;
    if (i == e->made || (in_place && i == e->out))
      place->at = (char *)(made + o0), place->step = step;
    else
      place->at += (number * place->step + o0) * e->sizes[i];
    if (e->sizes[i] && place->step != o1 - o0) together = 0;
  }
  of_these->rows = together ? 1 : pixels;
  of_these->columns = together ? pixels * (o1 - o0) : o1 - o0;
  ((chain_function *)e->function)(of_these, 0, 1);
}
