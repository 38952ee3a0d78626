/* What a kernel has done with its results while they are in the cache: a chain (chains.c). */
#pragma once
#include "vectors.h"
#include "chains_arguments.h"

typedef void chain_function(const word *b, word t, word n);

/* The results of `pixels` pixels from the one of that number on, of `outs` elements each.
   in_place: they take the place of what they are made of. */
static inline void end_pixels(const struct epilogue *e, word number, word pixels, T *made, word outs,
                              int in_place) {
  word b[3 + 2 * e->operands];
  int together = 1;  /* whether the elements of all pixels follow each other everywhere */
  memcpy(b, e->words, sizeof b);
  for (word i = 0; i < e->operands; i++) {
    word *place = b + 3 + 2 * i;
    if (i == e->made || (in_place && i == e->out))
      place[0] = (word)made, place[1] = outs;
    else
      place[0] += number * place[1] * e->sizes[i];
    if (e->sizes[i] && place[1] != outs) together = 0;
  }
  b[0] = together ? 1 : pixels, b[1] = together ? pixels * outs : outs;
  ((chain_function *)e->chain)(b, 0, 1);
}
