/* Decoding graphs: static arcs, and composition on the fly with a table of states.

   speech/fst/composition.py does the same in NumPy; both give the same arcs in the same order. */
#pragma once
#include "base.h"
#include "search_arguments.h"
#include <math.h>
#include <stdlib.h>

typedef struct { int32_t s1, s2, label, filter; float weight; } Tuple;
typedef struct { int64_t key, arc; float weight; int32_t reached; } Memo;
typedef struct { const float *final; const int64_t *begin; const Arc *arcs; int64_t start; } Fst;
typedef struct {
  int64_t lazy, most;
  Fst a, b;
  const int32_t *epsilons, *intervals, *interval_set, *labels;
  Memo *memo; int64_t memos, memo_slots;  /* what was looked ahead, by set of intervals and s2 */
  const int64_t *interval_begin;
  const double *sums;
  int32_t final_label;
  const Arc *arcs;             /* of a static graph, or those made so far */
  const int64_t *begin;        /* where a state's arcs begin; -1: not made yet */
  const int32_t *emitting;
  int32_t *epsilon_arcs;       /* lazy only */
  Arc *own_arcs; int64_t arcs_used, arcs_room;
  Tuple *tuples; int64_t states, room;
  int64_t *own_begin; int32_t *own_emitting;
  int32_t *table; int64_t slots;
  Arc *work; int64_t work_used, work_room;
  int failed;                  /* NO_MEMORY or MANY_STATES */
} Graph;

static int grow(void **at, int64_t *room, int64_t wanted, size_t size) {
  if (wanted <= *room) return 1;
  int64_t more = *room * 2 > wanted ? *room * 2 : wanted + 1024;
  void *made = realloc(*at, more * size);
  if (!made) return 0;
  *at = made; *room = more;
  return 1;
}
static uint64_t hash_of(const Tuple *t) {
  uint32_t bits; memcpy(&bits, &t->weight, 4);
  uint64_t h = (uint64_t)(uint32_t)t->s1 * 0x9E3779B97F4A7C15ull;
  h = (h ^ (h >> 29) ^ (uint32_t)t->s2) * 0xBF58476D1CE4E5B9ull;
  h = (h ^ (h >> 32) ^ (uint32_t)t->label) * 0x94D049BB133111EBull;
  h = (h ^ (h >> 31) ^ bits ^ ((uint64_t)t->filter << 40)) * 0x9E3779B97F4A7C15ull;
  return h ^ (h >> 32);
}
static int same(const Tuple *x, const Tuple *y) {
  return x->s1 == y->s1 && x->s2 == y->s2 && x->label == y->label && x->filter == y->filter
      && x->weight == y->weight;
}
static int rehash(Graph *g, int64_t slots) {
  int32_t *table = malloc(slots * sizeof(int32_t));
  if (!table) return 0;
  memset(table, -1, slots * sizeof(int32_t));
  for (int64_t s = 0; s < g->states; s++) {
    uint64_t at = hash_of(&g->tuples[s]) & (slots - 1);
    while (table[at] >= 0) at = (at + 1) & (slots - 1);
    table[at] = (int32_t)s;
  }
  free(g->table); g->table = table; g->slots = slots;
  return 1;
}
static int32_t state_of(Graph *g, int32_t s1, int32_t s2, int32_t filter, float weight,
                        int32_t label) {
  Tuple t = {s1, s2, label, filter, weight + 0.0f};
  if (g->states * 2 >= g->slots && !rehash(g, g->slots * 2)) { g->failed = NO_MEMORY; return 0; }
  uint64_t at = hash_of(&t) & (g->slots - 1);
  for (; g->table[at] >= 0; at = (at + 1) & (g->slots - 1))
    if (same(&g->tuples[g->table[at]], &t)) return g->table[at];
  if (g->states >= g->most) { g->failed = MANY_STATES; return 0; }
  if (g->states >= g->room) {
    int64_t r1 = g->room, r2 = g->room, r3 = g->room, r4 = g->room;
    if (!grow((void **)&g->tuples, &r1, g->states + 1, sizeof(Tuple))
        || !grow((void **)&g->own_begin, &r2, g->states + 1, 8)
        || !grow((void **)&g->own_emitting, &r3, g->states + 1, 4)
        || !grow((void **)&g->epsilon_arcs, &r4, g->states + 1, 4)) { g->failed = NO_MEMORY; return 0; }
    g->room = r1; g->begin = g->own_begin; g->emitting = g->own_emitting;
  }
  g->tuples[g->states] = t;
  g->own_begin[g->states] = -1;
  g->table[at] = (int32_t)g->states;
  return (int32_t)g->states++;
}
/* The sum of the probabilities of arcs `begin` to `end` of s2. */
static double mass_of(const Graph *g, int64_t s2, int64_t begin, int64_t end) {
  const double *sums = g->sums + g->b.begin[s2];
  const double mass = begin ? sums[end - 1] - sums[begin - 1] : sums[end - 1];
  if (mass > PRECISE * sums[end - 1]) return mass;
  const Arc *arcs = g->b.arcs + g->b.begin[s2];
  double sum = 0;
  for (int64_t p = begin; p < end; p++) sum += exp(-(double)arcs[p].weight);
  return sum;
}
/* The first of sorted labels that is not below another one; near `low` it is found soonest. */
static int64_t lower_input(const int32_t *labels, int64_t low, int64_t high, int32_t label) {
  for (int64_t step = 1; low + step < high; step *= 4) {
    if (labels[low + step] >= label) { high = low + step; break; }
    low += step;
  }
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (labels[middle] < label) low = middle + 1; else high = middle;
  }
  return low;
}
static int64_t lower_output(const Arc *arcs, int64_t low, int64_t high, int32_t label) {
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (arcs[middle].olabel < label) low = middle + 1; else high = middle;
  }
  return low;
}
static int reaches(const Graph *g, int32_t s1, int32_t label) {
  const int32_t set = g->interval_set[s1];
  int64_t low = g->interval_begin[set], high = g->interval_begin[set + 1];
  const int64_t first = low;
  while (low < high) {         /* the first interval that begins behind the label */
    const int64_t middle = low + (high - low) / 2;
    if (g->intervals[2 * middle] <= label) low = middle + 1; else high = middle;
  }
  return low > first && label < g->intervals[2 * low - 1];
}
/* Whether a word of s2 can come next from s1; the cost of them all, or the arc of the only one. */
static int search_ahead(const Graph *g, int32_t s1, int32_t s2, float *weight, const Arc **prefix) {
  const Arc *arcs = g->b.arcs + g->b.begin[s2];
  const int64_t count = g->b.begin[s2 + 1] - g->b.begin[s2];
  const int32_t set = g->interval_set[s1], *labels = g->labels + g->b.begin[s2];
  const int64_t i0 = g->interval_begin[set], i1 = g->interval_begin[set + 1];
  int64_t begin = -1, end = -1;
  double mass = 0;
  *weight = 0; *prefix = 0;
  if (2 * count < i1 - i0) {
    for (int64_t p = 0; p < count; p++)
      if (labels[p] && reaches(g, s1, labels[p])) {
        if (begin < 0) begin = p;
        end = p + 1;
        mass += mass_of(g, s2, p, end);
      }
  } else {
    int64_t low = 0;
    for (int64_t i = i0; i < i1 && low < count; i++) {
      const int64_t from = lower_input(labels, low, count, g->intervals[2 * i]);
      low = lower_input(labels, from, count, g->intervals[2 * i + 1]);
      if (low > from) {
        if (begin < 0) begin = from;
        end = low;
        mass += mass_of(g, s2, from, low);
      }
    }
  }
  const float final = g->b.final[s2];
  const int to_end = final != INFINITY && reaches(g, s1, g->final_label);
  if (begin >= 0 && end - begin == 1 && !to_end) { *prefix = arcs + begin; return 1; }
  float sum = (float)-log(mass);
  if (begin >= 0 && !(mass > 0 && mass < INFINITY)) {  /* costs beyond what sums can hold */
    sum = INFINITY;
    for (int64_t p = begin; p < end; p++)
      if (arcs[p].weight < sum && reaches(g, s1, labels[p])) sum = arcs[p].weight;
  }
  if (begin >= 0) *weight = sum;
  if (to_end) *weight = begin >= 0 && sum < final ? sum : final;
  return begin >= 0 || to_end;
}
static uint64_t memo_slot(int64_t key, int64_t slots) {
  return (uint64_t)key * 0x9E3779B97F4A7C15ull >> 34 & (slots - 1);
}
static int memo_grow(Graph *g) {
  const int64_t slots = g->memo_slots ? g->memo_slots * 2 : 1 << 12;
  Memo *made = malloc(slots * sizeof(Memo));
  if (!made) return 0;
  for (int64_t i = 0; i < slots; i++) made[i].key = -1;
  for (int64_t i = 0; i < g->memo_slots; i++) {
    if (g->memo[i].key < 0) continue;
    uint64_t at = memo_slot(g->memo[i].key, slots);
    while (made[at].key >= 0) at = (at + 1) & (slots - 1);
    made[at] = g->memo[i];
  }
  free(g->memo); g->memo = made; g->memo_slots = slots;
  return 1;
}
static int64_t memo_key(const Graph *g, int32_t s1, int32_t s2) {
  return (int64_t)g->interval_set[s1] << 32 | s2;
}
static int look_ahead(Graph *g, int32_t s1, int32_t s2, float *weight, const Arc **prefix) {
  const int64_t key = memo_key(g, s1, s2);
  if (g->memos * 2 >= g->memo_slots && !memo_grow(g)) { g->failed = NO_MEMORY; return 0; }
  uint64_t at = memo_slot(key, g->memo_slots);
  while (g->memo[at].key >= 0 && g->memo[at].key != key) at = (at + 1) & (g->memo_slots - 1);
  Memo *m = &g->memo[at];
  if (m->key < 0) {
    m->key = key; g->memos++;
    m->reached = search_ahead(g, s1, s2, &m->weight, prefix);
    m->arc = *prefix ? *prefix - g->b.arcs : -1;
  }
  *weight = m->weight;
  *prefix = m->arc >= 0 ? g->b.arcs + m->arc : 0;
  return m->reached;
}
enum { AHEAD = 8 };            /* arcs of whose look-ups some are under way at a time */
/* Asks for the memory of a look-up before its turn: nearly each of them misses the caches. */
static void ask_memo(const Graph *g, int32_t s1, int32_t s2) {
  if (g->memo_slots)
    __builtin_prefetch(g->memo + memo_slot(memo_key(g, s1, s2), g->memo_slots));
}
static void add_arc(Graph *g, int32_t ilabel, int32_t olabel, float weight, int32_t next) {
  if (!grow((void **)&g->work, &g->work_room, g->work_used + 1, sizeof(Arc))) {
    g->failed = NO_MEMORY; return;
  }
  g->work[g->work_used++] = (Arc){ilabel, olabel, weight, next};
}
/* The arcs of s1 without a word, from `low` to `high`, while the grammar stays. */
static void add_silent(Graph *g, const Tuple *t, int64_t low, int64_t high) {
  const int64_t count = g->b.begin[t->s2 + 1] - g->b.begin[t->s2];
  if (count == g->epsilons[t->s2] && g->b.final[t->s2] == INFINITY) return;
  const int32_t filter = g->epsilons[t->s2] ? 1 : 0;
  const Arc *arcs = g->a.arcs;
  for (int64_t p = low; p < high && p < low + AHEAD; p++) ask_memo(g, arcs[p].nextstate, t->s2);
  for (int64_t p = low; p < high; p++) {
    const Arc *x = arcs + p, *prefix;
    if (p + AHEAD < high) ask_memo(g, arcs[p + AHEAD].nextstate, t->s2);
    float weight;
    if (!look_ahead(g, x->nextstate, t->s2, &weight, &prefix)) continue;
    if (prefix) {
      const float w = (0.0f - t->weight) + prefix->weight;
      add_arc(g, x->ilabel, prefix->olabel, x->weight + w,
              state_of(g, x->nextstate, prefix->nextstate, filter, 0, prefix->ilabel));
    } else if (weight != INFINITY) {
      const float w = weight - t->weight;
      const float kept = floorf(weight * 1024.0f + 0.5f) / 1024.0f;
      add_arc(g, x->ilabel, 0, x->weight + w, state_of(g, x->nextstate, t->s2, filter, kept, -1));
    }
  }
}
static void add_match(Graph *g, const Tuple *t, const Arc *x, const Arc *y) {
  add_arc(g, x->ilabel, y->olabel, x->weight + (y->weight - t->weight),
          state_of(g, x->nextstate, y->nextstate, 0, 0, -1));
}
static void add_shorter(Graph *g, const Tuple *t) {
  if (t->filter == 1) return;
  const Arc *y = g->b.arcs + g->b.begin[t->s2];
  for (int64_t i = 0; i < g->epsilons[t->s2]; i++, y++)
    add_arc(g, 0, y->olabel, 0.0f + (y->weight - t->weight),
            state_of(g, t->s1, y->nextstate, 0, 0, -1));
}
static void expand_pending(Graph *g, const Tuple *t, int words_first) {
  const int64_t low = g->a.begin[t->s1], high = g->a.begin[t->s1 + 1];
  const int64_t silent = lower_output(g->a.arcs, low, high, 1);
  const int64_t from = lower_output(g->a.arcs, silent, high, t->label);
  const int64_t to = lower_output(g->a.arcs, from, high, t->label + 1);
  for (int turn = 0; turn < 2; turn++)
    if (turn == !words_first)
      for (int64_t p = from; p < to; p++) {
        const Arc *x = g->a.arcs + p;
        add_arc(g, x->ilabel, 0, x->weight, state_of(g, x->nextstate, t->s2, 0, 0, -1));
      }
    else
      for (int64_t p = low; p < silent; p++) {
        const Arc *x = g->a.arcs + p;
        if (high - low == 1 || reaches(g, x->nextstate, t->label))
          add_arc(g, x->ilabel, 0, x->weight,
                  state_of(g, x->nextstate, t->s2, t->filter, t->weight, t->label));
      }
}
static void expand(Graph *g, int64_t state) {
  const Tuple t = g->tuples[state];
  const int64_t low = g->a.begin[t.s1], high = g->a.begin[t.s1 + 1];
  const int64_t low2 = g->b.begin[t.s2], high2 = g->b.begin[t.s2 + 1];
  const int by_first = high - low <= high2 - low2;
  g->work_used = 0;
  if (t.label >= 0) expand_pending(g, &t, !by_first);
  else {
    const int64_t silent = lower_output(g->a.arcs, low, high, 1);
    if (by_first) {
      add_shorter(g, &t);
      add_silent(g, &t, low, silent);
      for (int64_t p = silent; p < high; p++) {
        const int32_t label = g->a.arcs[p].olabel;
        for (int64_t q = lower_input(g->labels, low2, high2, label);
             q < high2 && g->b.arcs[q].ilabel == label; q++)
          add_match(g, &t, g->a.arcs + p, g->b.arcs + q);
      }
    } else {
      add_silent(g, &t, low, silent);
      add_shorter(g, &t);
      for (int64_t q = low2 + g->epsilons[t.s2]; q < high2; q++) {
        const int32_t label = g->b.arcs[q].ilabel;
        for (int64_t p = lower_output(g->a.arcs, silent, high, label);
             p < high && g->a.arcs[p].olabel == label; p++)
          add_match(g, &t, g->a.arcs + p, g->b.arcs + q);
      }
    }
  }
  if (!grow((void **)&g->own_arcs, &g->arcs_room, g->arcs_used + g->work_used, sizeof(Arc)))
    g->failed = NO_MEMORY;
  if (g->failed) return;
  g->arcs = g->own_arcs;
  const int64_t begin = g->arcs_used;
  for (int turn = 0; turn < 2; turn++) {
    for (int64_t i = 0; i < g->work_used; i++)
      if ((g->work[i].ilabel == 0) == turn) g->own_arcs[g->arcs_used++] = g->work[i];
    if (!turn) g->own_emitting[state] = (int32_t)(g->arcs_used - begin);
  }
  g->epsilon_arcs[state] = (int32_t)(g->arcs_used - begin) - g->own_emitting[state];
  g->own_begin[state] = begin;
}
/* The arcs of a state: those with an input label, then the epsilons behind them. */
static const Arc *arcs_of(Graph *g, int64_t state, int64_t *emitting, int64_t *epsilons) {
  if (g->lazy && g->begin[state] < 0) expand(g, state);
  if (g->failed) { *emitting = *epsilons = 0; return 0; }
  *emitting = g->emitting[state];
  *epsilons = g->lazy ? g->epsilon_arcs[state] : g->begin[state + 1] - g->begin[state] - *emitting;
  return g->arcs + g->begin[state];
}
static float final_of(const Graph *g, int64_t state) {
  if (!g->lazy) return g->a.final[state];
  const Tuple *t = &g->tuples[state];
  return t->label >= 0 ? INFINITY : (g->a.final[t->s1] - t->weight) + g->b.final[t->s2];
}
static Fst fst_of(const struct fst *a) {
  return (Fst){a->final, a->begin, a->arcs, a->start};
}
EXPORT(graph_new)(struct graph_new *a) {
  Graph *g = calloc(1, sizeof(Graph));
  if (!g) return;
  g->lazy = a->lazy;
  g->a = fst_of(&a->first);
  g->most = a->most;
  if (!g->lazy) {
    g->arcs = g->a.arcs; g->begin = g->a.begin; g->emitting = a->emitting;
    g->states = a->first.states;
    a->graph = (word)g;
    return;
  }
  g->b = fst_of(&a->second);
  g->epsilons = a->epsilons;
  g->interval_begin = a->interval_begin; g->intervals = a->intervals;
  g->final_label = (int32_t)a->final_label;
  g->interval_set = a->interval_set; g->labels = a->labels;
  g->sums = a->sums;
  if (rehash(g, 1 << 12)) a->graph = (word)g;
  else free(g);
}
EXPORT(graph_free)(const struct graph_free *a) {
  Graph *g = a->graph;
  free(g->own_arcs); free(g->tuples); free(g->own_begin); free(g->own_emitting);
  free(g->epsilon_arcs); free(g->table); free(g->work); free(g->memo); free(g);
}
/* forgets all other states and all arcs; the states get new numbers */
static void shrink_graph(Graph *g, int32_t *states, int64_t count) {
  Tuple *kept = malloc((count + 1) * sizeof(Tuple));
  if (!g->lazy || !kept) { free(kept); return; }
  for (int64_t i = 0; i < count; i++) kept[i] = g->tuples[states[i]];
  g->states = g->arcs_used = g->memos = 0;
  for (int64_t i = 0; i < g->memo_slots; i++) g->memo[i].key = -1;
  memset(g->table, -1, g->slots * sizeof(int32_t));
  for (int64_t i = 0; i < count; i++)
    states[i] = state_of(g, kept[i].s1, kept[i].s2, kept[i].filter, kept[i].weight, kept[i].label);
  free(kept);
}
