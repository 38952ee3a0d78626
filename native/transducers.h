/* What files that make transducers share. Their functions do what modules of kaldi/fst do in Python,
   and give the same states and arcs in the same order. */
#pragma once
#include "base.h"
#include "growing.h"
#include <math.h>

typedef struct { int64_t start, states, count; float *final; int64_t *begin; Arc *arcs; } Made;

static void free_made(Made *m) { free(m->final); free(m->begin); free(m->arcs); *m = (Made){0}; }
/* Gives the arrays to whoever called, who frees each with `memory_free`. */
#define GIVE(a, made)                                                                          \
  ((a)->start = (made).start, (a)->states = (made).states, (a)->count = (made).count,          \
   (a)->final = (word)(made).final, (a)->begin = (word)(made).begin, (a)->arcs = (word)(made).arcs)

/* The states that the arcs to each state leave: those of state s from begin[s] on. */
static int turn_arcs(const struct fst *f, int64_t **begins, int32_t **sources) {
  int64_t *begin = *begins = calloc(f->states + 2, sizeof(int64_t));
  int32_t *source = *sources = malloc((f->count + 1) * sizeof(int32_t));
  if (!begin || !source) return 0;
  for (int64_t i = 0; i < f->count; i++) begin[f->arcs[i].nextstate + 2]++;
  for (int64_t s = 2; s <= f->states; s++) begin[s] += begin[s - 1];
  for (int64_t s = 0; s < f->states; s++)
    for (int64_t i = f->begin[s]; i < f->begin[s + 1]; i++)
      source[begin[f->arcs[i].nextstate + 1]++] = (int32_t)s;
  return 1;
}
static double sum_of(int log, double one, double other) {
  if (!log) return other < one ? other : one;
  const double low = one < other ? one : other, high = one < other ? other : one;
  return high == INFINITY ? low : low - log1p(exp(low - high));
}
