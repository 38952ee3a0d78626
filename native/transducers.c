/* Transducers composed, determinized and minimized.

   kaldi/fst/compose.py, determinize_star.py and partition.py do the same in Python; both give the
   same states and arcs in the same order. */
#include "base.h"
#include "growing.h"
#include "transducers_arguments.h"
#include <math.h>

enum { MOST_STATES = INT32_MAX - 8 };
#define GROW(array, room, wanted) grow((void **)&(array), &(room), wanted, sizeof(*(array)))
typedef struct {
  int64_t states, count;
  float *final; int64_t *begin; Arc *arcs;
  int32_t *labels;                    /* of a failure */
} Made;

static void free_made(Made *m) {
  if (!m) return;
  free(m->final); free(m->begin); free(m->arcs); free(m->labels); free(m);
}
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

static uint64_t mixed(uint64_t h) {
  h = (h ^ (h >> 32)) * 0x9E3779B97F4A7C15ull;
  return h ^ (h >> 29);
}
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

/* Determinization. Sequences of output labels are nodes of a tree, 0 the empty one. */

typedef struct { int32_t parent, label, length; } Node;
typedef struct { int32_t state, outputs; double weight; } Element;
typedef struct { int32_t state, outputs, turns, queued; double passed, came; } Entry;
typedef struct { int32_t label, state, outputs, number; double weight; } Way;
typedef struct { int32_t label, outputs; float weight; int32_t target; } Wide;  /* an arc */
typedef struct { int64_t begin, arcs; int32_t ways, next, source, label; uint32_t hash; } Set;
enum { END = -1 };                    /* the target of what an end writes */

typedef struct {
  const struct fst *f;
  double delta; int64_t limit, most_turns, most_waiting; int log;
  uint8_t *silent;                    /* whether states have arcs without input labels */
  Node *nodes; int64_t node_count, nodes_room, node_slots; int32_t *node_table;
  Set *sets; int64_t set_count, sets_room, set_slots; int32_t *set_table;
  Element *elements; int64_t element_count, elements_room;
  Wide *arcs; int64_t arc_count, arcs_room;
  int32_t *stack; int64_t stacked, stack_room;
  Element *closed; int64_t closed_count, closed_room;
  Entry *entries; int64_t entry_count, entries_room; int32_t *place;
  int32_t *queue; int64_t queue_head, queue_tail, queue_room;
  Way *ways; int64_t way_count, ways_room;
  int32_t *turned; int64_t turned_room;
  int failed;
  int64_t at; int32_t label, one, other;  /* where it failed */
} Determinizer;

static int fail(Determinizer *d, int why, int64_t at, int32_t label, int32_t one, int32_t other) {
  d->failed = why; d->at = at; d->label = label; d->one = one; d->other = other;
  return 0;
}
static double sum_of(int log, double one, double other) {
  if (!log) return other < one ? other : one;
  const double low = one < other ? one : other, high = one < other ? other : one;
  return high == INFINITY ? low : low - log1p(exp(low - high));
}
static double plus(const Determinizer *d, double one, double other) {
  return sum_of(d->log, one, other);
}
static uint64_t node_hash(int32_t parent, int32_t label) {
  return mixed((uint64_t)(uint32_t)parent << 32 | (uint32_t)label);
}
/* The sequence with one more label at its end. */
static int32_t longer(Determinizer *d, int32_t parent, int32_t label) {
  if (!label || d->failed) return parent;
  if (d->node_count * 2 >= d->node_slots) {
    const int64_t slots = d->node_slots * 2;
    int32_t *table = calloc(slots, sizeof(int32_t));
    if (!table) return fail(d, NO_MEMORY, 0, 0, 0, 0);
    for (int64_t i = 1; i < d->node_count; i++) {
      uint64_t at = node_hash(d->nodes[i].parent, d->nodes[i].label) & (slots - 1);
      while (table[at]) at = (at + 1) & (slots - 1);
      table[at] = (int32_t)i;
    }
    free(d->node_table);
    d->node_table = table; d->node_slots = slots;
  }
  uint64_t at = node_hash(parent, label) & (d->node_slots - 1);
  for (; d->node_table[at]; at = (at + 1) & (d->node_slots - 1)) {
    const Node *n = d->nodes + d->node_table[at];
    if (n->parent == parent && n->label == label) return d->node_table[at];
  }
  if (d->node_count >= MOST_STATES || !GROW(d->nodes, d->nodes_room, d->node_count + 1))
    return fail(d, NO_MEMORY, 0, 0, 0, 0);
  d->nodes[d->node_count] = (Node){parent, label, d->nodes[parent].length + 1};
  d->node_table[at] = (int32_t)d->node_count;
  return (int32_t)d->node_count++;
}
/* What two sequences begin with. */
static int32_t prefix(const Determinizer *d, int32_t one, int32_t other) {
  const Node *n = d->nodes;
  while (one != other)
    if (n[one].length >= n[other].length) one = n[one].parent;
    else other = n[other].parent;
  return one;
}
/* Writes the last labels of a sequence, up to `count`. */
static void write_labels(const Determinizer *d, int32_t outputs, int64_t count, int32_t *labels) {
  for (; count > 0; outputs = d->nodes[outputs].parent)
    labels[--count] = d->nodes[outputs].label;
}
/* What follows the first `size` labels of a sequence. */
static int32_t suffix(Determinizer *d, int32_t outputs, int64_t size) {
  const int64_t count = d->nodes[outputs].length - size;
  if (!size) return outputs;
  if (!GROW(d->turned, d->turned_room, count)) return fail(d, NO_MEMORY, 0, 0, 0, 0);
  write_labels(d, outputs, count, d->turned);
  int32_t rest = 0;
  for (int64_t i = 0; i < count; i++) rest = longer(d, rest, d->turned[i]);
  return rest;
}

static int rehash_sets(Determinizer *d) {
  const int64_t slots = d->set_slots * 2;
  int32_t *table = malloc(slots * sizeof(int32_t));
  if (!table) return fail(d, NO_MEMORY, 0, 0, 0, 0);
  memset(table, -1, slots * sizeof(int32_t));
  for (int64_t i = d->set_count - 1; i >= 0; i--) {  /* older sets come first */
    int32_t *head = table + (d->sets[i].hash & (slots - 1));
    d->sets[i].next = *head;
    *head = (int32_t)i;
  }
  free(d->set_table);
  d->set_table = table; d->set_slots = slots;
  return 1;
}
/* The state of the last `count` elements, a new one where no known one has about these weights. */
static int32_t set_state(Determinizer *d, int64_t begin, int32_t source, int32_t label) {
  const int64_t count = d->element_count - begin;
  const Element *new = d->elements + begin;
  uint64_t h = count;
  for (int64_t i = 0; i < count; i++)
    h = mixed(h ^ node_hash(new[i].state, new[i].outputs)) + i;
  const uint32_t hash = (uint32_t)(h ^ h >> 32);
  if (d->set_count >= d->set_slots && !rehash_sets(d)) return 0;
  int32_t last = -1;
  for (int32_t s = d->set_table[hash & (d->set_slots - 1)]; s >= 0; last = s, s = d->sets[s].next) {
    if (d->sets[s].hash != hash) continue;
    const Element *known = d->elements + d->sets[s].begin;
    if (d->sets[s + 1].begin - d->sets[s].begin != count) continue;
    int64_t i = 0;
    while (i < count && known[i].state == new[i].state && known[i].outputs == new[i].outputs
           && fabs(known[i].weight - new[i].weight) <= d->delta) i++;
    if (i == count) { d->element_count = begin; return s; }
  }
  if (d->set_count >= MOST_STATES
      || !GROW(d->sets, d->sets_room, d->set_count + 2)
      || !GROW(d->stack, d->stack_room, d->stacked + 1))
    return fail(d, NO_MEMORY, 0, 0, 0, 0);
  const int32_t made = (int32_t)d->set_count++;
  d->sets[made] = (Set){.begin = begin, .next = -1, .source = source, .label = label, .hash = hash};
  d->sets[made + 1].begin = d->element_count;
  if (last >= 0) d->sets[last].next = made;
  else d->set_table[hash & (d->set_slots - 1)] = made;
  d->stack[d->stacked++] = made;
  return made;
}
static int add_element(Determinizer *d, int32_t state, int32_t outputs, double weight) {
  if (!GROW(d->elements, d->elements_room, d->element_count + 1))
    return fail(d, NO_MEMORY, 0, 0, 0, 0);
  d->elements[d->element_count++] = (Element){state, outputs, weight};
  return 1;
}

static int by_state(const void *x, const void *y) {
  const Element *a = x, *b = y;
  return (a->state > b->state) - (a->state < b->state);
}
static int enqueue(Determinizer *d, int32_t entry) {
  if (!GROW(d->queue, d->queue_room, d->queue_tail + 1)) return fail(d, NO_MEMORY, 0, 0, 0, 0);
  d->queue[d->queue_tail++] = entry;
  d->entries[entry].queued = 1;
  return 1;
}
static int32_t add_entry(Determinizer *d, int32_t state, int32_t outputs, double came) {
  if (!GROW(d->entries, d->entries_room, d->entry_count + 1)) {
    fail(d, NO_MEMORY, 0, 0, 0, 0);
    return -1;
  }
  d->entries[d->entry_count] = (Entry){state, outputs, 0, 0, INFINITY, came};
  d->place[state] = (int32_t)d->entry_count;
  return (int32_t)d->entry_count++;
}
/* Follows the arcs without input labels of an entry. */
static int spread(Determinizer *d, int64_t set, int32_t at) {
  const int32_t state = d->entries[at].state, outputs = d->entries[at].outputs;
  const double came = d->entries[at].came;
  d->entries[at].passed = plus(d, d->entries[at].passed, came);
  d->entries[at].came = INFINITY;
  if (!d->silent[state]) return 1;
  for (int64_t i = d->f->begin[state]; i < d->f->begin[state + 1]; i++) {
    const Arc *arc = d->f->arcs + i;
    if (arc->ilabel || arc->weight == INFINITY) continue;
    const int32_t more = longer(d, outputs, arc->olabel);
    int32_t to = d->place[arc->nextstate];
    if (!d->failed && to < 0) to = add_entry(d, arc->nextstate, more, INFINITY);
    if (d->failed) return 0;
    Entry *other = d->entries + to;
    if (other->outputs != more) return fail(d, NOT_FUNCTIONAL, set, 0, other->outputs, more);
    other->came = plus(d, other->came, came + arc->weight);
    const double whole = plus(d, other->passed, other->came);
    if (!other->queued && other->passed - whole > d->delta && !enqueue(d, to)) return 0;
  }
  return 1;
}
/* A set with all that arcs without input labels lead to, sorted by state. */
static int close_set(Determinizer *d, int64_t set) {
  const int64_t begin = d->sets[set].begin, count = d->sets[set + 1].begin - begin;
  int any = 0;
  for (int64_t i = 0; i < count; i++) any |= d->silent[d->elements[begin + i].state];
  d->entry_count = d->queue_head = d->queue_tail = 0;
  for (int64_t i = 0; i < count && any; i++) {
    const Element e = d->elements[begin + i];
    const int32_t at = add_entry(d, e.state, e.outputs, e.weight);
    if (at < 0 || !enqueue(d, at)) break;
  }
  while (d->queue_head < d->queue_tail && !d->failed) {
    const int32_t at = d->queue[d->queue_head++];
    Entry *e = d->entries + at;
    e->queued = 0;
    if (++e->turns > (d->log ? d->most_turns : d->entry_count + 1)) fail(d, NO_SUM, set, 0, 0, 0);
    else if (0 < d->limit && d->limit < d->queue_head) fail(d, MANY_STEPS, set, 0, 0, 0);
    else spread(d, set, at);
  }
  for (int64_t i = 0; i < d->entry_count; i++) d->place[d->entries[i].state] = -1;
  d->closed_count = any ? d->entry_count : count;
  if (d->failed) return 0;
  if (!GROW(d->closed, d->closed_room, d->closed_count)) return fail(d, NO_MEMORY, 0, 0, 0, 0);
  if (!any) {
    memcpy(d->closed, d->elements + begin, count * sizeof(Element));
    return 1;
  }
  for (int64_t i = 0; i < d->entry_count; i++) {
    const Entry *e = d->entries + i;
    d->closed[i] = (Element){e->state, e->outputs, plus(d, e->passed, e->came)};
  }
  qsort(d->closed, d->closed_count, sizeof(Element), by_state);
  return 1;
}

static int add_wide(Determinizer *d, int64_t set, int32_t label, int32_t outputs, double weight,
                    int32_t target) {
  if (!GROW(d->arcs, d->arcs_room, d->arc_count + 1)) return fail(d, NO_MEMORY, 0, 0, 0, 0);
  d->arcs[d->arc_count++] = (Wide){label, outputs, (float)weight, target};
  d->sets[set].ways++;
  return 1;
}
static int by_label(const void *x, const void *y) {
  const Way *a = x, *b = y;
  if (a->label != b->label) return a->label < b->label ? -1 : 1;
  if (a->state != b->state) return a->state < b->state ? -1 : 1;
  return (a->number > b->number) - (a->number < b->number);
}
static int by_number(const void *x, const void *y) {
  const Way *a = x, *b = y;
  return (a->number > b->number) - (a->number < b->number);
}
/* The ways of one label with one for each state. Returns how many, 0 where it fails. */
static int64_t joined(Determinizer *d, int64_t set, Way *w, int64_t count) {
  int64_t kept = 1;
  for (int64_t i = 1; i < count; i++) {
    Way *last = w + kept - 1;
    if (last->state != w[i].state) { w[kept++] = w[i]; continue; }
    if (last->outputs != w[i].outputs)
      return fail(d, NOT_FUNCTIONAL, set, w[i].label, last->outputs, w[i].outputs);
    last->weight = plus(d, last->weight, w[i].weight);
  }
  return kept;
}
/* The arc to the set of all states that a label leads to; it has what these share. */
static int add_group(Determinizer *d, int64_t set, Way *w, int64_t count) {
  const int32_t label = w->label;
  count = joined(d, set, w, count);
  if (!count) return 0;
  int32_t common = w->outputs, longest = d->nodes[common].length;
  for (int64_t i = 1; i < count; i++) {
    common = prefix(d, common, w[i].outputs);
    if (d->nodes[w[i].outputs].length > longest) longest = d->nodes[w[i].outputs].length;
  }
  const int64_t size = d->nodes[common].length, begin = d->element_count;
  if (longest - size > d->most_waiting) return fail(d, STILL_OPEN, set, label, 0, 0);
  /* a sum of logarithms depends on the order: that in which states were met */
  if (d->log && count > 1) qsort(w, count, sizeof(Way), by_number);
  double total = INFINITY;
  for (int64_t i = 0; i < count; i++) total = plus(d, total, w[i].weight);
  for (int64_t i = 0; i < count; i++) {
    const int32_t rest = suffix(d, w[i].outputs, size);
    if (d->failed || !add_element(d, w[i].state, rest, w[i].weight - total)) return 0;
  }
  if (d->log && count > 1) qsort(d->elements + begin, count, sizeof(Element), by_state);
  const int32_t target = set_state(d, begin, (int32_t)set, label);
  return !d->failed && add_wide(d, set, label, common, total, target);
}
/* The end and the arcs of a state of the result. */
static int expand_set(Determinizer *d, int64_t set) {
  const struct fst *f = d->f;
  if (!close_set(d, set)) return 0;
  d->sets[set].arcs = d->arc_count;
  d->way_count = 0;
  int ends = 0, sorted = 1;
  int32_t end_outputs = 0;
  double end = INFINITY;
  for (int64_t i = 0; i < d->closed_count; i++) {
    const Element e = d->closed[i];
    const double final = e.weight + f->final[e.state];
    if (final < INFINITY) {
      if (ends && end_outputs != e.outputs)
        return fail(d, NOT_FUNCTIONAL, set, 0, end_outputs, e.outputs);
      end = ends ? plus(d, end, final) : final;
      end_outputs = e.outputs; ends = 1;
    }
    for (int64_t k = f->begin[e.state]; k < f->begin[e.state + 1]; k++) {
      const Arc *arc = f->arcs + k;
      const double whole = e.weight + arc->weight;
      if (!arc->ilabel || whole == INFINITY) continue;
      if (!GROW(d->ways, d->ways_room, d->way_count + 1)) return fail(d, NO_MEMORY, 0, 0, 0, 0);
      Way *w = d->ways + d->way_count;
      *w = (Way){arc->ilabel, arc->nextstate, longer(d, e.outputs, arc->olabel),
                 (int32_t)d->way_count, whole};
      if (d->failed) return 0;
      if (d->way_count++ && by_label(w - 1, w) > 0) sorted = 0;
    }
  }
  if (!sorted) qsort(d->ways, d->way_count, sizeof(Way), by_label);
  if (ends && !add_wide(d, set, 0, end_outputs, end, END)) return 0;
  for (int64_t i = 0, next; i < d->way_count; i = next) {
    for (next = i + 1; next < d->way_count && d->ways[next].label == d->ways[i].label;) next++;
    if (!add_group(d, set, d->ways + i, next - i)) return 0;
  }
  return 1;
}

/* Lays out the result: where several labels are to be written, states with one arc follow. */
static Made *lay_out(Determinizer *d) {
  Made *m = calloc(1, sizeof(Made));
  if (!m) return 0;
  int64_t base = 0, longest = 0;      /* arcs of the first states */
  m->states = d->set_count;
  for (int64_t i = 0; i < d->arc_count; i++) {
    const int64_t length = d->nodes[d->arcs[i].outputs].length, ends = d->arcs[i].target == END;
    base += !ends || length;
    m->count += ends || !length ? length : length - 1;  /* each leads to a state that is added */
    if (length > longest) longest = length;
  }
  m->states += m->count;
  m->count = 0;
  for (int64_t i = 0; i < d->arc_count; i++) {
    const int64_t length = d->nodes[d->arcs[i].outputs].length;
    m->count += d->arcs[i].target == END || length ? length : 1;
  }
  m->final = malloc((m->states + 1) * sizeof(float));
  m->begin = malloc((m->states + 1) * sizeof(int64_t));
  m->arcs = malloc((m->count + 1) * sizeof(Arc));
  if (!m->final || !m->begin || !m->arcs || !GROW(d->turned, d->turned_room, longest)) {
    free_made(m);
    return 0;
  }
  int64_t at = 0, added = d->set_count, added_at = base;
  for (int64_t s = 0; s < d->set_count; s++) {
    m->final[s] = INFINITY; m->begin[s] = at;
    for (int64_t i = d->sets[s].arcs; i < d->sets[s].arcs + d->sets[s].ways; i++) {
      const Wide w = d->arcs[i];
      const int64_t length = d->nodes[w.outputs].length, ends = w.target == END;
      write_labels(d, w.outputs, length, d->turned);
      int64_t here = s, k = 0;
      for (; k < (ends ? length : length - 1); k++) {
        m->arcs[here == s ? at++ : added_at++] =
            (Arc){k ? 0 : w.label, d->turned[k], k ? 0 : w.weight, (int32_t)added};
        here = added++;
        m->final[here] = INFINITY; m->begin[here] = added_at;
      }
      if (ends) m->final[here] = k ? 0 : w.weight;
      else
        m->arcs[here == s ? at++ : added_at++] =
            (Arc){k ? 0 : w.label, length ? d->turned[k] : 0, k ? 0 : w.weight, w.target};
    }
  }
  m->begin[m->states] = m->count;
  return m;
}
/* The labels that led to where it failed, and those of two outputs. */
static Made *failure(Determinizer *d, struct determinized *a) {
  Made *m = calloc(1, sizeof(Made));
  int64_t reached = d->label != 0;
  for (int64_t s = d->at; s > 0; s = d->sets[s].source) reached++;
  const int64_t one = d->nodes[d->one].length, other = d->nodes[d->other].length;
  if (m) m->labels = malloc((reached + one + other + 1) * sizeof(int32_t));
  if (!m || !m->labels) { free(m); return 0; }
  int64_t at = reached;
  if (d->label) m->labels[--at] = d->label;
  for (int64_t s = d->at; s > 0; s = d->sets[s].source) m->labels[--at] = d->sets[s].label;
  write_labels(d, d->one, one, m->labels + reached);
  write_labels(d, d->other, other, m->labels + reached + one);
  a->reached = reached; a->one = one; a->other = other;
  return m;
}
static void run(Determinizer *d) {
  add_element(d, (int32_t)d->f->start, 0, 0);
  if (!d->failed) set_state(d, 0, -1, 0);
  while (d->stacked && !d->failed) {
    const int64_t set = d->stack[--d->stacked];
    if (expand_set(d, set) && 0 < d->limit && d->limit < d->set_count)
      fail(d, MANY_SETS, set, 0, 0, 0);
  }
}
EXPORT(determinized)(struct determinized *a) {
  enum { SLOTS = 1 << 10 };
  const struct fst *f = &a->fst;
  Determinizer d = {.f = f, .delta = a->delta, .limit = a->limit, .log = a->log,
                    .most_turns = a->most_turns, .most_waiting = a->most_waiting,
                    .node_slots = SLOTS, .set_slots = SLOTS};
  d.silent = calloc(f->states, 1);
  d.place = malloc(f->states * sizeof(int32_t));
  d.node_table = calloc(SLOTS, sizeof(int32_t));
  d.set_table = malloc(SLOTS * sizeof(int32_t));
  if (d.silent && d.place && d.node_table && d.set_table && GROW(d.nodes, d.nodes_room, 1)) {
    d.nodes[d.node_count++] = (Node){0, 0, 0};
    memset(d.place, -1, f->states * sizeof(int32_t));
    memset(d.set_table, -1, SLOTS * sizeof(int32_t));
    for (int64_t s = 0; s < f->states; s++)
      for (int64_t i = f->begin[s]; i < f->begin[s + 1]; i++) d.silent[s] |= !f->arcs[i].ilabel;
    run(&d);
  } else d.failed = NO_MEMORY;
  a->status = d.failed;
  free(d.silent); free(d.place); free(d.node_table); free(d.set_table);
  free(d.elements); free(d.stack); free(d.closed); free(d.entries); free(d.queue); free(d.ways);
  Made *m = !d.failed ? lay_out(&d) : d.failed != NO_MEMORY ? failure(&d, a) : 0;
  if (!m) a->status = NO_MEMORY;
  else { a->made = (word)m; a->states = m->states; a->count = m->count; }
  free(d.nodes); free(d.sets); free(d.arcs); free(d.turned);
}

/* Minimization: classes of states are refined until the arcs of all states of a class have the same
   labels and weights, and lead to the same classes. Only states whose arcs lead to what has changed
   its class are looked at again. Arcs are compared by hashes of 128 bits. */

typedef struct { uint64_t high, low; } Hash;
typedef struct { int32_t class, state; Hash hash; } Signed;
typedef struct {
  const struct fst *f;
  int32_t *class, *size, classes;
  int64_t *begin; int32_t *source;    /* of the arcs that lead to each state */
  Signed *signs; int64_t sign_count;
  Hash *hashes; int64_t hashes_room;
  int32_t *todo; int64_t todo_count; uint8_t *is_todo;
} Partition;

static int by_hash(const void *x, const void *y) {
  const Hash *a = x, *b = y;
  if (a->high != b->high) return a->high < b->high ? -1 : 1;
  return (a->low > b->low) - (a->low < b->low);
}
static int by_class(const void *x, const void *y) {
  const Signed *a = x, *b = y;
  if (a->class != b->class) return a->class < b->class ? -1 : 1;
  const int order = by_hash(&a->hash, &b->hash);
  return order ? order : (a->state > b->state) - (a->state < b->state);
}
static uint32_t bits_of(float weight) {
  uint32_t bits;
  weight += 0.0f;                     /* zeros are one */
  memcpy(&bits, &weight, 4);
  return bits;
}
static void stir(Hash *h, uint64_t value) {
  h->high = mixed(h->high ^ value) + 0x632BE59BD9B4E019ull;
  h->low = (h->low ^ value ^ (h->high >> 17)) * 0xD6E8FEB86659FD93ull;
  h->low ^= h->low >> 32;
}
/* The arcs of a state as a set. Returns 0 where there is no memory. */
static int sign(Partition *p, int32_t state, Hash *made) {
  const int64_t begin = p->f->begin[state], count = p->f->begin[state + 1] - begin;
  if (!GROW(p->hashes, p->hashes_room, count)) return 0;
  for (int64_t i = 0; i < count; i++) {
    const Arc a = p->f->arcs[begin + i];
    Hash *h = p->hashes + i;
    *h = (Hash){1, 2};
    stir(h, (uint64_t)(uint32_t)a.ilabel << 32 | (uint32_t)a.olabel);
    stir(h, (uint64_t)bits_of(a.weight) << 32 | (uint32_t)p->class[a.nextstate]);
  }
  if (count > 1) qsort(p->hashes, count, sizeof(Hash), by_hash);
  *made = (Hash){3, 4};
  for (int64_t i = 0; i < count; i++) {
    if (i && !by_hash(p->hashes + i, p->hashes + i - 1)) continue;
    stir(made, p->hashes[i].high);
    stir(made, p->hashes[i].low);
  }
  return 1;
}
/* Gives some states of one class a class of their own; those before them have to be looked at. */
static void move(Partition *p, const Signed *s, int64_t count) {
  const int32_t made = p->classes++;
  p->size[s->class] -= (int32_t)count;
  p->size[made] = (int32_t)count;
  for (int64_t i = 0; i < count; i++) p->class[s[i].state] = made;
  for (int64_t i = 0; i < count; i++)
    for (int64_t k = p->begin[s[i].state]; k < p->begin[s[i].state + 1]; k++) {
      const int32_t before = p->source[k];
      if (p->is_todo[before]) continue;
      p->is_todo[before] = 1;
      p->todo[p->todo_count++] = before;
    }
}
/* Divides one class by the hashes of those states of it that were looked at. */
static void divide(Partition *p, const Signed *s, int64_t count) {
  int64_t most = 0, kept = 0;
  for (int64_t i = 0, next; i < count; i = next) {
    for (next = i + 1; next < count && !by_hash(&s[next].hash, &s[i].hash);) next++;
    if (next - i > most) { most = next - i; kept = i; }
  }
  /* the others' arcs lead where they did: they stay */
  if (p->size[s->class] > count) kept = -1;
  for (int64_t i = 0, next; i < count; i = next) {
    for (next = i + 1; next < count && !by_hash(&s[next].hash, &s[i].hash);) next++;
    if (i != kept) move(p, s + i, next - i);
  }
}
static int refine(Partition *p) {
  while (p->todo_count) {
    p->sign_count = 0;
    for (int64_t i = 0; i < p->todo_count; i++) {
      const int32_t state = p->todo[i];
      p->is_todo[state] = 0;
      if (p->size[p->class[state]] == 1) continue;
      Signed *s = p->signs + p->sign_count++;
      s->class = p->class[state]; s->state = state;
      if (!sign(p, state, &s->hash)) return 0;
    }
    p->todo_count = 0;
    if (p->sign_count) qsort(p->signs, p->sign_count, sizeof(Signed), by_class);
    for (int64_t i = 0, next; i < p->sign_count; i = next) {
      for (next = i + 1; next < p->sign_count && p->signs[next].class == p->signs[i].class;) next++;
      divide(p, p->signs + i, next - i);
    }
  }
  return 1;
}
static int same_arc(const Arc *a, const Arc *b) {
  return a->ilabel == b->ilabel && a->olabel == b->olabel && a->weight == b->weight
      && a->nextstate == b->nextstate;
}
static int by_arc(const void *x, const void *y) {
  const Arc *a = *(Arc *const *)x, *b = *(Arc *const *)y;
  if (a->ilabel != b->ilabel) return a->ilabel < b->ilabel ? -1 : 1;
  if (a->olabel != b->olabel) return a->olabel < b->olabel ? -1 : 1;
  if (a->weight != b->weight) return a->weight < b->weight ? -1 : 1;
  if (a->nextstate != b->nextstate) return a->nextstate < b->nextstate ? -1 : 1;
  return (a > b) - (a < b);
}
/* Drops arcs that are another one before them. Returns how many stay, -1 without memory. */
static int64_t drop_same(Arc *arcs, int64_t count) {
  int64_t kept = 0;
  if (count < 2) return count;
  const Arc **order = malloc(count * sizeof(Arc *));
  uint8_t *same = calloc(count, 1);
  if (order && same) {
    for (int64_t i = 0; i < count; i++) order[i] = arcs + i;
    qsort(order, count, sizeof(Arc *), by_arc);
    for (int64_t i = 1; i < count; i++) same[order[i] - arcs] = same_arc(order[i], order[i - 1]);
    for (int64_t i = 0; i < count; i++) if (!same[i]) arcs[kept++] = arcs[i];
  } else kept = -1;
  free(order); free(same);
  return kept;
}
/* A state for each class, in the order of their first states, whose arcs it has. */
static int merge(const Partition *p, Made *m) {
  const struct fst *f = p->f;
  int64_t room = 0;
  m->final = malloc((p->classes + 1) * sizeof(float));
  m->begin = malloc((p->classes + 1) * sizeof(int64_t));
  int32_t *number = p->size;          /* which nothing needs any more */
  if (!m->final || !m->begin) return 0;
  memset(number, -1, f->states * sizeof(int32_t));
  int32_t count = 0;
  for (int64_t s = 0; s < f->states; s++)
    if (number[p->class[s]] < 0) {
      number[p->class[s]] = count++;
      m->count += f->begin[s + 1] - f->begin[s];
    }
  if (!GROW(m->arcs, room, m->count)) return 0;
  m->count = 0;
  for (int64_t s = 0; s < f->states; s++) {
    if (number[p->class[s]] != m->states) continue;
    m->final[m->states] = f->final[s];
    m->begin[m->states++] = m->count;
    Arc *arcs = m->arcs + m->count;
    const int64_t size = f->begin[s + 1] - f->begin[s];
    for (int64_t i = 0; i < size; i++) {
      arcs[i] = f->arcs[f->begin[s] + i];
      arcs[i].nextstate = number[p->class[arcs[i].nextstate]];
    }
    const int64_t kept = drop_same(arcs, size);
    if (kept < 0) return 0;
    m->count += kept;
  }
  m->begin[m->states] = m->count;
  return 1;
}
static void begin_classes(Partition *p) {
  const struct fst *f = p->f;
  /* by weights of ending, in the order of their hashes */
  for (int64_t s = 0; s < f->states; s++)
    p->signs[s] = (Signed){0, (int32_t)s, {bits_of(f->final[s]), 0}};
  qsort(p->signs, f->states, sizeof(Signed), by_class);
  for (int64_t i = 0; i < f->states; i++) {
    if (!i || by_hash(&p->signs[i].hash, &p->signs[i - 1].hash)) p->classes++;
    p->class[p->signs[i].state] = p->classes - 1;
    p->size[p->classes - 1]++;
    p->todo[i] = (int32_t)i;
  }
  p->todo_count = f->states;
}
EXPORT(minimized)(struct minimized *a) {
  const struct fst *f = &a->fst;
  const int64_t n = f->states;
  Partition p = {.f = f};
  Made *m = calloc(1, sizeof(Made));
  a->status = NO_MEMORY;
  p.class = malloc(n * sizeof(int32_t)); p.size = calloc(n, sizeof(int32_t));
  p.todo = malloc(n * sizeof(int32_t)); p.is_todo = calloc(n, 1);
  p.signs = malloc(n * sizeof(Signed));
  if (m && p.class && p.size && p.todo && p.is_todo && p.signs && turn_arcs(f, &p.begin, &p.source)) {
    begin_classes(&p);
    if (refine(&p) && merge(&p, m)) {
      a->status = 0; a->made = (word)m; a->states = m->states; a->count = m->count;
      a->start = p.size[p.class[f->start]];
    }
  }
  if (a->status) free_made(m);
  free(p.class); free(p.size); free(p.todo); free(p.is_todo); free(p.signs);
  free(p.hashes); free(p.begin); free(p.source);
}

/* Epsilons removed locally: kaldi/fst/local_epsilons.py. The arcs of a state are a list. */

typedef struct { int32_t ilabel, olabel, to, gone; double weight; int64_t next; } Hop;
typedef struct { int64_t first, last; int32_t in, out; double final; } Place;
typedef struct {
  Hop *hops; int64_t count, room;
  Place *places;
  int log, log_share, failed;
} Remover;

static void remove_hop(Remover *r, int32_t state, Hop *l) {
  l->gone = 1;
  r->places[state].out--;
  r->places[l->to].in--;
}
static void append_hop(Remover *r, int32_t state, Hop l) {
  Place *p = r->places + state;
  if (r->failed || !GROW(r->hops, r->room, r->count + 1)) { r->failed = NO_MEMORY; return; }
  l.next = -1; l.gone = 0;
  r->hops[r->count] = l;
  if (p->first < 0) p->first = r->count;
  else r->hops[p->last].next = r->count;
  p->last = r->count++;
  p->out++;
  r->places[l.to].in++;
}
/* The arc that stands for both, if there is one. */
static int join_hops(const Hop *one, const Hop *other, Hop *made) {
  if ((one->ilabel && other->ilabel) || (one->olabel && other->olabel)) return 0;
  *made = (Hop){one->ilabel ? one->ilabel : other->ilabel,
                 one->olabel ? one->olabel : other->olabel, other->to, 0,
                 one->weight + other->weight, -1};
  return 1;
}
static void add_end(Remover *r, int32_t state, double weight) {
  Place *p = r->places + state;
  p->out += p->final == INFINITY;
  p->final = sum_of(r->log, p->final, weight);
}
/* Ways out of a state that only hop `at` leads to start where that does, if they can. */
static void move_ways_out(Remover *r, int32_t state, int64_t at) {
  const Hop arc = r->hops[at];
  Place *after = r->places + arc.to;
  double moved = INFINITY, kept = INFINITY;
  for (int64_t k = after->first; k >= 0 && !r->failed; k = r->hops[k].next) {
    Hop joined, *way = r->hops + k;
    if (way->gone) continue;
    if (!join_hops(&arc, way, &joined)) {
      kept = sum_of(r->log_share, kept, way->weight);
      continue;
    }
    moved = sum_of(r->log_share, moved, way->weight);
    remove_hop(r, arc.to, way);
    append_hop(r, state, joined);
  }
  if (after->final < INFINITY) {
    if (arc.ilabel || arc.olabel) kept = sum_of(r->log_share, kept, after->final);
    else {
      moved = sum_of(r->log_share, moved, after->final);
      add_end(r, state, arc.weight + after->final);
      after->final = INFINITY;
      after->out--;
    }
  }
  if (moved == INFINITY) return;
  if (kept == INFINITY) { remove_hop(r, state, r->hops + at); return; }
  const double share = kept - sum_of(r->log_share, moved, kept);
  r->hops[at].weight = arc.weight + share;
  for (int64_t k = after->first; k >= 0; k = r->hops[k].next) r->hops[k].weight -= share;
  after->final -= share;
}
/* Hop `at` and the single way out of the state that it leads to become one, if they can. */
static void follow_way_out(Remover *r, int32_t state, int64_t at) {
  const Hop arc = r->hops[at];
  Place *after = r->places + arc.to;
  const int is_last = after->in == 1;  /* no other arc needs that state */
  if (after->final < INFINITY) {
    if (arc.ilabel || arc.olabel) return;
    add_end(r, state, arc.weight + after->final);
    if (is_last) { after->final = INFINITY; after->out--; }
  } else {
    Hop joined;
    int64_t k = after->first;
    while (r->hops[k].gone) k = r->hops[k].next;
    if (!join_hops(&arc, r->hops + k, &joined)) return;
    if (is_last) remove_hop(r, arc.to, r->hops + k);
    append_hop(r, state, joined);
  }
  remove_hop(r, state, r->hops + at);
}
static int begin_places(Remover *r, const struct fst *f) {
  r->places = malloc(f->states * sizeof(Place));
  if (!r->places) return 0;
  for (int64_t s = 0; s < f->states; s++)
    r->places[s] = (Place){-1, -1, s == f->start, f->final[s] < INFINITY, f->final[s]};
  for (int64_t s = 0; s < f->states && !r->failed; s++)
    for (int64_t i = f->begin[s]; i < f->begin[s + 1]; i++) {
      const Arc a = f->arcs[i];
      append_hop(r, (int32_t)s, (Hop){a.ilabel, a.olabel, a.nextstate, 0, a.weight, -1});
    }
  return !r->failed;
}
/* Lays out the arcs that are left. */
static int gather(const Remover *r, int64_t states, Made *m) {
  int64_t room = 0;
  for (int64_t i = 0; i < r->count; i++) m->count += !r->hops[i].gone;
  m->final = malloc(states * sizeof(float));
  m->begin = malloc((states + 1) * sizeof(int64_t));
  if (!m->final || !m->begin || !GROW(m->arcs, room, m->count)) return 0;
  m->count = 0;
  for (; m->states < states; m->states++) {
    m->final[m->states] = (float)r->places[m->states].final;
    m->begin[m->states] = m->count;
    for (int64_t k = r->places[m->states].first; k >= 0; k = r->hops[k].next) {
      const Hop *l = r->hops + k;
      if (!l->gone) m->arcs[m->count++] = (Arc){l->ilabel, l->olabel, (float)l->weight, l->to};
    }
  }
  m->begin[states] = m->count;
  return 1;
}
EXPORT(without_epsilons)(struct without_epsilons *a) {
  const struct fst *f = &a->fst;
  Remover r = {.log = a->log, .log_share = a->sums_in_log};
  Made *m = calloc(1, sizeof(Made));
  a->status = NO_MEMORY;
  if (m && begin_places(&r, f)) {
    for (int64_t s = 0; s < f->states && !r.failed; s++)
      for (int64_t k = r.places[s].first; k >= 0 && !r.failed; k = r.hops[k].next) {
        const Hop l = r.hops[k];
        if (l.gone || l.to == s) continue;
        const Place *after = r.places + l.to;
        if (after->in == 1 && after->out > 1) move_ways_out(&r, (int32_t)s, k);
        else if (after->out == 1) follow_way_out(&r, (int32_t)s, k);
      }
    if (!r.failed && gather(&r, f->states, m)) {
      a->status = 0; a->made = (word)m; a->states = m->states; a->count = m->count;
      a->start = f->start;
    }
  }
  if (a->status) free_made(m);
  free(r.hops); free(r.places);
}
