/* Transducers composed: kaldi/fst/algorithms/compose.py, kaldi/graphs/context.py. */
#include "base.h"
#include "transducers_arguments.h"
#include "transducers.h"

EXPORT(memory_free)(const struct memory_free *a) { free((void *)a->memory); }

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
/* Says which states are on a path from the start to an end. Returns 0 where there is no memory. */
static int find_kept(const struct fst *f, uint8_t *kept) {
  enum { FROM_START = 1, TO_END = 2 };
  memset(kept, 0, f->states);
  if (f->start < 0) return 1;
  int32_t *stack = malloc((f->states + 1) * sizeof(int32_t)), *source = 0;
  int64_t *begin = 0, size = 0;
  const int found = stack && turn_arcs(f, &begin, &source);
  if (found) {
    stack[0] = (int32_t)f->start;
    kept[f->start] = FROM_START;
    const int64_t step = sizeof(Arc) / sizeof(int32_t);
    if (f->count) mark(kept, FROM_START, stack, 1, f->begin, &f->arcs->nextstate, step);
    for (int64_t s = 0; s < f->states; s++)
      if (f->final[s] < INFINITY) { kept[s] |= TO_END; stack[size++] = (int32_t)s; }
    mark(kept, TO_END, stack, size, begin, source, 1);
    for (int64_t s = 0; s < f->states; s++) kept[s] = kept[s] == (FROM_START | TO_END);
  }
  free(stack); free(begin); free(source);
  return found;
}
EXPORT(kept)(struct kept *a) { a->status = find_kept(&a->fst, a->kept) ? 0 : NO_MEMORY; }

/* Leaves out the states that are on no path. Returns 0 where there is no memory. */
static int connect(Made *m) {
  const struct fst f = {.start = m->start, .states = m->states, .count = m->count,
                        .final = m->final, .begin = m->begin, .arcs = m->arcs};
  uint8_t *kept = malloc(m->states + 1);
  int32_t *number = malloc((m->states + 1) * sizeof(int32_t));
  const int found = kept && number && find_kept(&f, kept);
  if (found) {
    int32_t states = 0;
    int64_t count = 0;
    for (int64_t s = 0; s < f.states; s++) number[s] = kept[s] ? states++ : -1;
    for (int64_t s = 0; s < f.states; s++) {
      const int64_t begin = m->begin[s], end = m->begin[s + 1];
      if (!kept[s]) continue;
      m->final[number[s]] = m->final[s];
      m->begin[number[s]] = count;
      for (int64_t i = begin; i < end; i++) {
        const int32_t target = number[m->arcs[i].nextstate];
        if (target < 0) continue;
        m->arcs[count] = m->arcs[i];
        m->arcs[count++].nextstate = target;
      }
    }
    m->start = m->states ? number[m->start] : -1;
    m->states = states; m->count = count;
    m->begin[states] = count;
    Arc *less = realloc(m->arcs, (count + 1) * sizeof(Arc));
    if (less) m->arcs = less;
  }
  free(kept); free(number);
  return found;
}

/* Numbers of keys, in the order in which they came. */
typedef struct { uint64_t *keys; int64_t count, room, slots; int32_t *table; } Numbers;

static int grow_table(Numbers *n) {
  const int64_t slots = n->slots ? n->slots * 2 : 1 << 10;
  int32_t *table = malloc(slots * sizeof(int32_t));
  if (!table) return 0;
  memset(table, -1, slots * sizeof(int32_t));
  for (int64_t i = 0; i < n->count; i++) {
    uint64_t at = mixed(n->keys[i]) & (slots - 1);
    while (table[at] >= 0) at = (at + 1) & (slots - 1);
    table[at] = (int32_t)i;
  }
  free(n->table);
  n->table = table; n->slots = slots;
  return 1;
}
/* The number of a key, a new one where it has none; -1 where there is no memory. */
static int32_t number_of(Numbers *n, uint64_t key) {
  if (n->count * 2 >= n->slots && !grow_table(n)) return -1;
  uint64_t at = mixed(key) & (n->slots - 1);
  for (; n->table[at] >= 0; at = (at + 1) & (n->slots - 1))
    if (n->keys[n->table[at]] == key) return n->table[at];
  if (n->count >= MOST_ENTRIES || !GROW(n->keys, n->room, n->count + 1)) return -1;
  n->keys[n->count] = key;
  n->table[at] = (int32_t)n->count;
  return (int32_t)n->count++;
}
static void free_numbers(Numbers *n) { free(n->keys); free(n->table); *n = (Numbers){0}; }

/* A transducer that grows; its states are pairs of states. */
typedef struct {
  Made made;
  Numbers pairs;
  int64_t final_room, begin_room, arcs_room;
  int failed;
} Growing;

/* The state of a pair; `*is_new`: its weight of ending is to be set. */
static int32_t state_of(Growing *g, uint64_t pair, int *is_new) {
  const int32_t state = number_of(&g->pairs, pair);
  *is_new = state == g->made.states;
  if (state >= 0 && !*is_new) return state;
  if (state < 0 || !GROW(g->made.final, g->final_room, state + 1)
      || !GROW(g->made.begin, g->begin_room, state + 2)) {
    g->failed = NO_MEMORY; *is_new = 0;
    return 0;
  }
  g->made.states++;
  return state;
}
static void add_arc(Growing *g, int32_t ilabel, int32_t olabel, float weight, int32_t target) {
  Made *m = &g->made;
  if (g->failed) return;
  if (!GROW(m->arcs, g->arcs_room, m->count + 1)) { g->failed = NO_MEMORY; return; }
  m->arcs[m->count++] = (Arc){ilabel, olabel, weight, target};
}

/* Composition. */

#define LABEL(x) (input ? (x)->ilabel : (x)->olabel)
typedef struct {
  struct fst a, b;
  int32_t *silent_a, *silent_b;       /* arcs of label 0 that states begin with */
  Growing result;
} Composition;

/* `spare` has room for all of them. */
static void merge_sort(Arc *arcs, int64_t count, int input, Arc *spare) {
  for (int64_t run = 1; run < count; run *= 2)
    for (int64_t low = 0; low + run < count; low += 2 * run) {
      Arc *made = arcs + low, *two = made + run, *end = arcs + least(low + 2 * run, count);
      if (LABEL(two - 1) <= LABEL(two)) continue;
      memcpy(spare, made, run * sizeof(Arc));
      for (const Arc *one = spare; one < spare + run;)
        *made++ = two < end && LABEL(two) < LABEL(one) ? *two++ : *one++;
    }
}
/* Sorts the arcs of each state by a label, in a copy, where they are not; equal ones keep their
   order. Returns 0 where there is no memory. */
static int put_in_order(struct fst *f, int input, Arc **copy) {
  int64_t most = 0;
  int sorted = 1;
  for (int64_t s = 0; s < f->states; s++) {
    const int64_t begin = f->begin[s], end = f->begin[s + 1];
    if (end - begin > most) most = end - begin;
    for (int64_t i = begin + 1; i < end; i++)
      if (LABEL(f->arcs + i) < LABEL(f->arcs + i - 1)) sorted = 0;
  }
  if (sorted) return 1;
  Arc *arcs = *copy = malloc(f->count * sizeof(Arc)), *spare = malloc(most * sizeof(Arc));
  if (arcs && spare) {
    memcpy(arcs, f->arcs, f->count * sizeof(Arc));
    for (int64_t s = 0; s < f->states; s++)
      merge_sort(arcs + f->begin[s], f->begin[s + 1] - f->begin[s], input, spare);
    f->arcs = arcs;
  }
  free(spare);
  return arcs && spare;
}
/* The state of a pair; `over`: the first FST's silent arcs are. */
static int32_t pair_state(Composition *c, int64_t s1, int64_t s2, int over) {
  int is_new;
  const int32_t state = state_of(&c->result, ((uint64_t)s1 * c->b.states + s2) * 2 + over, &is_new);
  if (is_new) c->result.made.final[state] = c->a.final[s1] + c->b.final[s2];
  return state;
}
/* The first arc from `low` on whose label is not below one; it is near more often than far. */
static const Arc *lower_label(const Arc *low, const Arc *high, int input, int32_t label) {
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
      for (const Arc *one = a; one < a_next && !c->result.failed; one++)
        add_arc(&c->result, one->ilabel, b->olabel, one->weight + b->weight,
                pair_state(c, one->nextstate, b->nextstate, 0));
    a = a_next;
  }
}
static void expand_pair(Composition *c, int64_t state) {
  const struct fst *x = &c->a, *y = &c->b;
  const uint64_t key = c->result.pairs.keys[state];
  const int64_t s1 = (key >> 1) / y->states, s2 = (key >> 1) % y->states;
  const Arc *a = x->arcs + x->begin[s1], *a_end = x->arcs + x->begin[s1 + 1];
  const Arc *b = y->arcs + y->begin[s2], *b_end = y->arcs + y->begin[s2 + 1];
  const int64_t silent_a = c->silent_a[s1], silent_b = c->silent_b[s2];
  if (!(key & 1))
    for (int64_t i = 0; i < silent_a; i++)
      add_arc(&c->result, a[i].ilabel, 0, a[i].weight, pair_state(c, a[i].nextstate, s2, 0));
  /* where all that the first FST can do is silent, its silent arcs come first */
  if (a + silent_a < a_end || x->final[s1] < INFINITY)
    for (int64_t i = 0; i < silent_b; i++)
      add_arc(&c->result, 0, b[i].olabel, b[i].weight,
              pair_state(c, s1, b[i].nextstate, silent_a > 0));
  match(c, a + silent_a, a_end, b + silent_b, b_end);
}
static int32_t *silent_arcs(const struct fst *f, int input) {
  int32_t *silent = calloc(f->states ? f->states : 1, sizeof(int32_t));
  if (silent)
    for (int64_t s = 0; s < f->states; s++)
      for (int64_t i = f->begin[s]; i < f->begin[s + 1]; i++)
        if (!LABEL(f->arcs + i)) silent[s]++;
  return silent;
}
EXPORT(composed)(struct composed *a) {
  Composition c = {.a = a->first, .b = a->second};
  Arc *copy_a = 0, *copy_b = 0;
  Growing *g = &c.result;
  c.silent_a = silent_arcs(&c.a, 0);
  c.silent_b = silent_arcs(&c.b, 1);
  if (!c.silent_a || !c.silent_b || !put_in_order(&c.a, 0, &copy_a)
      || !put_in_order(&c.b, 1, &copy_b)) g->failed = NO_MEMORY;
  else {
    pair_state(&c, c.a.start, c.b.start, 0);
    for (int64_t s = 0; s < g->made.states && !g->failed; s++) {
      g->made.begin[s] = g->made.count;
      expand_pair(&c, s);
    }
  }
  free(c.silent_a); free(c.silent_b); free(copy_a); free(copy_b);
  free_numbers(&g->pairs);
  if (!g->failed) {
    g->made.begin[g->made.states] = g->made.count;
    if (a->connected && !connect(&g->made)) g->failed = NO_MEMORY;
  }
  if (g->failed) free_made(&g->made); else GIVE(a, g->made);
  a->status = g->failed;
}

/* Composition with phones in context. What a symbol gives in a state of the context is asked for
   when it first comes up (WANTED); called again, it goes on where it was. */

typedef struct { int32_t label, there; int32_t ends; } Turn;
typedef struct {
  Growing result;
  Numbers steps;                      /* of a state of the context and a symbol */
  Turn *turns; int64_t known, room;
  int64_t state, arc;
} Contexts;

/* What a symbol gives: 0 where it has to be asked for, and where there is no memory. */
static const Turn *turn_of(Contexts *c, struct context_composed *a, int64_t here, int32_t symbol) {
  const int32_t number = number_of(&c->steps, (uint64_t)here << 32 | (uint32_t)symbol);
  if (number < 0) { c->result.failed = NO_MEMORY; return 0; }
  if (number == c->known) {
    if (a->status != ANSWERED) {
      a->here = here; a->symbol = symbol; a->status = WANTED;
      return 0;
    }
    if (!GROW(c->turns, c->room, c->known + 1)) { c->result.failed = NO_MEMORY; return 0; }
    c->turns[c->known++] = (Turn){(int32_t)a->label, (int32_t)a->there, (int32_t)a->ends};
    a->status = 0;
  }
  return c->turns + number;
}
static void expand_contexts(Contexts *c, struct context_composed *a) {
  const struct fst *f = &a->fst;
  Growing *g = &c->result;
  for (; c->state < g->made.states; c->state++, c->arc = -1) {
    const uint64_t key = g->pairs.keys[c->state];
    const int64_t here = key / f->states, from = key % f->states;
    if (c->arc < 0) { g->made.begin[c->state] = g->made.count; c->arc = f->begin[from]; }
    for (; c->arc < f->begin[from + 1]; c->arc++) {
      const Arc arc = f->arcs[c->arc];
      const Turn *turn = turn_of(c, a, here, arc.ilabel);
      if (!turn) return;
      if (turn->there < 0) continue;
      int is_new;
      const uint64_t to = (uint64_t)turn->there * f->states + arc.nextstate;
      const int32_t state = state_of(g, to, &is_new);
      if (is_new) g->made.final[state] = turn->ends ? f->final[arc.nextstate] : INFINITY;
      add_arc(g, turn->label, arc.olabel, arc.weight, state);
      if (g->made.count > a->most) g->failed = MANY_STATES;
      if (g->failed) return;
    }
  }
}
EXPORT(context_composed)(struct context_composed *a) {
  Contexts *c = (Contexts *)a->work;
  if (!c) {
    c = calloc(1, sizeof(Contexts));
    if (!c) { a->status = NO_MEMORY; return; }
    a->work = (word)c;
    c->arc = -1;
    int is_new;
    state_of(&c->result, a->fst.start, &is_new);
    if (is_new) c->result.made.final[0] = a->ends ? a->fst.final[a->fst.start] : INFINITY;
  }
  Growing *g = &c->result;
  if (a->status == CANCELED) g->failed = CANCELED;
  if (!g->failed) expand_contexts(c, a);
  if (a->status == WANTED) return;
  if (g->failed) free_made(&g->made);
  else { g->made.begin[g->made.states] = g->made.count; GIVE(a, g->made); }
  a->status = g->failed;
  free_numbers(&g->pairs); free_numbers(&c->steps);
  free(c->turns); free(c);
  a->work = 0;
}
