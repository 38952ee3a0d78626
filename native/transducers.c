/* Transducers composed: kaldi/fst/compose.py. */
#include "base.h"
#include "transducers_arguments.h"
#include "transducers.h"
EXPORT(made_free)(const struct made_free *a) { free_made(a->made); }
EXPORT(made_copy)(const struct made_copy *a) {
  const Made *m = a->made;
  memcpy(a->final, m->final, m->states * sizeof(float));
  memcpy(a->begin, m->begin, (m->states + 1) * sizeof(int64_t));
  if (m->count) memcpy(a->arcs, m->arcs, m->count * sizeof(Arc));
}
EXPORT(labels_copy)(const struct labels_copy *a) {
  memcpy(a->labels, ((Made *)a->made)->labels, a->count * sizeof(int32_t));
}

/* Marks what `stack` leads to: states with a `bit`, over the arcs of each. */
static void mark(uint8_t *kept, int bit, int32_t *stack, int64_t size, const int64_t *begin,
                 const int32_t *target, int64_t step) {
  while (size) {
    const int32_t state = stack[--size];
    for (int64_t i = begin[state]; i < begin[state + 1]; i++) {
      const int32_t other = target[i * step];
      if (kept[other] & bit) continue;
      kept[other] |= bit;
      stack[size++] = other;
    }
  }
}
EXPORT(kept)(struct kept *a) {
  enum { FROM_START = 1, TO_END = 2 };
  const struct fst *f = &a->fst;
  memset(a->kept, 0, f->states);
  if (f->start < 0) return;
  int32_t *stack = malloc((f->states + 1) * sizeof(int32_t)), *source = 0;
  int64_t *begin = 0, size = 0;
  if (!stack || !turn_arcs(f, &begin, &source)) { a->status = NO_MEMORY; goto end; }
  stack[0] = (int32_t)f->start;
  a->kept[f->start] = FROM_START;
  const int64_t step = sizeof(Arc) / sizeof(int32_t);
  if (f->count) mark(a->kept, FROM_START, stack, 1, f->begin, &f->arcs->nextstate, step);
  for (int64_t s = 0; s < f->states; s++)
    if (f->final[s] < INFINITY) { a->kept[s] |= TO_END; stack[size++] = (int32_t)s; }
  mark(a->kept, TO_END, stack, size, begin, source, 1);
  for (int64_t s = 0; s < f->states; s++) a->kept[s] = a->kept[s] == (FROM_START | TO_END);
end:
  free(stack); free(begin); free(source);
}

/* Composition. */

typedef struct {
  const struct fst *a, *b;
  int32_t *silent_a, *silent_b;       /* arcs of label 0 that states begin with */
  uint64_t *keys;                     /* of states: those of both FSTs, and the filter's */
  int64_t keys_room, slots;
  int32_t *table;
  int64_t final_room, begin_room, arcs_room;
  Made *made;
  int failed;
} Composition;

static int rehash_keys(Composition *c) {
  const int64_t slots = c->slots * 2;
  int32_t *table = malloc(slots * sizeof(int32_t));
  if (!table) return 0;
  memset(table, -1, slots * sizeof(int32_t));
  for (int64_t s = 0; s < c->made->states; s++) {
    uint64_t at = mixed(c->keys[s]) & (slots - 1);
    while (table[at] >= 0) at = (at + 1) & (slots - 1);
    table[at] = (int32_t)s;
  }
  free(c->table);
  c->table = table; c->slots = slots;
  return 1;
}
/* The state of a pair; `over`: the first FST's silent arcs are. */
static int32_t pair_state(Composition *c, int64_t s1, int64_t s2, int over) {
  Made *m = c->made;
  const uint64_t key = ((uint64_t)s1 * c->b->states + s2) * 2 + over;
  if (m->states * 2 >= c->slots && !rehash_keys(c)) { c->failed = NO_MEMORY; return 0; }
  uint64_t at = mixed(key) & (c->slots - 1);
  for (; c->table[at] >= 0; at = (at + 1) & (c->slots - 1))
    if (c->keys[c->table[at]] == key) return c->table[at];
  if (m->states >= MOST_STATES || !GROW(c->keys, c->keys_room, m->states + 1)
      || !GROW(m->final, c->final_room, m->states + 1)
      || !GROW(m->begin, c->begin_room, m->states + 2)) { c->failed = NO_MEMORY; return 0; }
  c->keys[m->states] = key;
  m->final[m->states] = c->a->final[s1] + c->b->final[s2];
  c->table[at] = (int32_t)m->states;
  return (int32_t)m->states++;
}
static void add_arc(Composition *c, int32_t ilabel, int32_t olabel, float weight, int32_t target) {
  Made *m = c->made;
  if (c->failed) return;
  if (!GROW(m->arcs, c->arcs_room, m->count + 1)) { c->failed = NO_MEMORY; return; }
  m->arcs[m->count++] = (Arc){ilabel, olabel, weight, target};
}
/* The first arc from `low` on whose label is not below one; it is near more often than far. */
static const Arc *lower_label(const Arc *low, const Arc *high, int input, int32_t label) {
#define LABEL(x) (input ? (x)->ilabel : (x)->olabel)
  for (int64_t step = 1; low + step < high; step *= 4) {
    if (LABEL(low + step) >= label) { high = low + step; break; }
    low += step;
  }
  while (low < high) {
    const Arc *middle = low + (high - low) / 2;
    if (LABEL(middle) < label) low = middle + 1; else high = middle;
  }
  return low;
}
/* Arcs of one label from both, in the order of the second FST's, then of the first's. */
static void match(Composition *c, const Arc *a, const Arc *a_end, const Arc *b, const Arc *b_end) {
  const int fewer = a_end - a <= b_end - b;
  while (a < a_end && b < b_end) {
    const int32_t label = fewer ? a->olabel : b->ilabel;
    if (fewer) b = lower_label(b, b_end, 1, label);
    else a = lower_label(a, a_end, 0, label);
    const Arc *a_next = a, *b_next = b;
    while (a_next < a_end && a_next->olabel == label) a_next++;
    while (b_next < b_end && b_next->ilabel == label) b_next++;
    for (; b < b_next; b++)
      for (const Arc *one = a; one < a_next && !c->failed; one++)
        add_arc(c, one->ilabel, b->olabel, one->weight + b->weight,
                pair_state(c, one->nextstate, b->nextstate, 0));
    a = a_next;
  }
}
static void expand_pair(Composition *c, int64_t state) {
  const struct fst *x = c->a, *y = c->b;
  const uint64_t key = c->keys[state];
  const int64_t s1 = (key >> 1) / y->states, s2 = (key >> 1) % y->states;
  const Arc *a = x->arcs + x->begin[s1], *a_end = x->arcs + x->begin[s1 + 1];
  const Arc *b = y->arcs + y->begin[s2], *b_end = y->arcs + y->begin[s2 + 1];
  const int64_t silent_a = c->silent_a[s1], silent_b = c->silent_b[s2];
  if (!(key & 1))
    for (int64_t i = 0; i < silent_a; i++)
      add_arc(c, a[i].ilabel, 0, a[i].weight, pair_state(c, a[i].nextstate, s2, 0));
  /* where all that the first FST can do is silent, its silent arcs come first */
  if (a + silent_a < a_end || x->final[s1] < INFINITY)
    for (int64_t i = 0; i < silent_b; i++)
      add_arc(c, 0, b[i].olabel, b[i].weight, pair_state(c, s1, b[i].nextstate, silent_a > 0));
  match(c, a + silent_a, a_end, b + silent_b, b_end);
}
static int32_t *silent_arcs(const struct fst *f, int input) {
  int32_t *silent = calloc(f->states ? f->states : 1, sizeof(int32_t));
  if (silent)
    for (int64_t s = 0; s < f->states; s++)
      for (int64_t i = f->begin[s]; i < f->begin[s + 1]; i++)
        if (!(input ? f->arcs[i].ilabel : f->arcs[i].olabel)) silent[s]++;
  return silent;
}
EXPORT(composed)(struct composed *a) {
  enum { SLOTS = 1 << 10 };
  Composition c = {.a = &a->first, .b = &a->second, .slots = SLOTS};
  c.made = calloc(1, sizeof(Made));
  c.silent_a = silent_arcs(c.a, 0);
  c.silent_b = silent_arcs(c.b, 1);
  c.table = malloc(SLOTS * sizeof(int32_t));
  a->status = NO_MEMORY;
  if (c.made && c.silent_a && c.silent_b && c.table) {
    memset(c.table, -1, SLOTS * sizeof(int32_t));
    pair_state(&c, a->first.start, a->second.start, 0);
    for (int64_t s = 0; s < c.made->states && !c.failed; s++) {
      c.made->begin[s] = c.made->count;
      expand_pair(&c, s);
    }
    if (!c.failed) c.made->begin[c.made->states] = c.made->count;
    a->status = c.failed;
  }
  free(c.silent_a); free(c.silent_b); free(c.keys); free(c.table);
  if (a->status) { free_made(c.made); return; }
  a->made = (word)c.made; a->states = c.made->states; a->count = c.made->count;
}
