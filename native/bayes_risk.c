/* Edit distances of all paths of a lattice to some words, and what stands at their places:
   speech/lattice/bayes_risk.py does the same in Python. */
#include "base.h"
#include "bayes_risk_arguments.h"

enum { MATCH, SKIP, INSERT };

/* Distances after an arc, of each number of places, and how the last place was filled. Sums and
   comparisons are Kaldi's, in its order: where ways tie, rounding decides. */
static void follow(const struct place_masses *a, const double *before, int32_t word, double *after,
                   uint8_t *ways) {
  const double skip = word ? 1.0 + a->delta : 0.0;
  double distance = before[0] + skip;
  after[0] = distance;
  for (int64_t q = 0; q < a->places; q++) {
    const double match = before[q] + (a->place[q] != word), skipped = before[q + 1] + skip;
    const double least = match <= skipped ? match : skipped;
    if (a->place[q]) distance += 1.0;
    ways[q] = match <= skipped ? MATCH : SKIP;
    if (least <= distance) distance = least;
    else ways[q] = INSERT;
    after[q + 1] = distance;
  }
}
static void count_in(const struct place_masses *a, int64_t q, int32_t word, double mass,
                     double begin, double end) {
  double *sums = a->masses + 3 * (q * a->words + word);
  sums[0] += mass;
  sums[1] += begin * mass;
  sums[2] += end * mass;
}
EXPORT(place_masses)(const struct place_masses *a) {
  const int64_t places = a->places, width = places + 1, last = a->states - 1;
  for (int64_t q = 0; q < places; q++) a->distance[q + 1] = a->distance[q] + (a->place[q] != 0);
  for (int64_t s = 1; s <= last; s++)
    for (int64_t i = a->begin[s]; i < a->begin[s + 1]; i++) {
      follow(a, a->distance + a->source[i] * width, a->word[i], a->after, a->ways + i * places);
      for (int64_t q = 0; q < width; q++)
        a->distance[s * width + q] += a->share[i] * a->after[q];
    }
  /* Of each state the places that paths onward were aligned with, and the mass of these. */
  a->onward[last * width + places] = 1.0;
  for (int64_t s = last; s > 0; s--)
    for (int64_t i = a->begin[s]; i < a->begin[s + 1]; i++) {
      const double *held = a->onward + s * width, end = a->time[s], begin = a->time[a->source[i]];
      double *before = a->onward + a->source[i] * width, inserted = 0;
      for (int64_t q = places; q >= 0; q--) {
        const double mass = a->share[i] * held[q] + inserted;
        const int way = q ? a->ways[i * places + q - 1] : SKIP;
        inserted = way == INSERT ? mass : 0;
        if (mass == 0) continue;
        if (way == INSERT) count_in(a, q - 1, 0, mass, end, end);
        else if (way == SKIP) before[q] += mass;
        else {
          count_in(a, q - 1, a->word[i], mass, begin, end);
          before[q - 1] += mass;
        }
      }
    }
  double mass = 0;
  for (int64_t q = places; q > 0; q--) {
    mass += a->onward[q];
    count_in(a, q - 1, 0, mass, 0, 0);
  }
}
