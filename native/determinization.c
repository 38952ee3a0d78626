/* Transducers determinized: kaldi/fst/algorithms/determinize_star.py. */
#include "base.h"
#include "determinization_arguments.h"
#include "sequences.h"
#include "transducers.h"

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
  Sequences labels;                   /* that are written */
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
static double plus(const Determinizer *d, double one, double other) {
  return sum_of(d->log, one, other);
}
/* A sequence with one more label at its end. */
static int32_t longer(Determinizer *d, int32_t outputs, int32_t label) {
  if (!label || d->failed) return outputs;
  const int32_t made = with_id(&d->labels, outputs, label);
  return made < 0 ? fail(d, NO_MEMORY, 0, 0, 0, 0) : made;
}
/* What follows the first `size` labels of a sequence. */
static int32_t suffix(Determinizer *d, int32_t outputs, int64_t size) {
  const int32_t made = size ? appended(&d->labels, 0, outputs, size) : outputs;
  return made < 0 ? fail(d, NO_MEMORY, 0, 0, 0, 0) : made;
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
  if (d->set_count >= MOST_ENTRIES
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
  int32_t common = w->outputs, longest = d->labels.nodes[common].length;
  for (int64_t i = 1; i < count; i++) {
    common = prefix(&d->labels, common, w[i].outputs);
    if (d->labels.nodes[w[i].outputs].length > longest) longest = d->labels.nodes[w[i].outputs].length;
  }
  const int64_t size = d->labels.nodes[common].length, begin = d->element_count;
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
static int lay_out(Determinizer *d, Made *m) {
  int64_t base = 0, longest = 0;      /* arcs of the first states */
  m->states = d->set_count;
  for (int64_t i = 0; i < d->arc_count; i++) {
    const int64_t length = d->labels.nodes[d->arcs[i].outputs].length, ends = d->arcs[i].target == END;
    base += !ends || length;
    m->count += ends || !length ? length : length - 1;  /* each leads to a state that is added */
    if (length > longest) longest = length;
  }
  m->states += m->count;
  m->count = 0;
  for (int64_t i = 0; i < d->arc_count; i++) {
    const int64_t length = d->labels.nodes[d->arcs[i].outputs].length;
    m->count += d->arcs[i].target == END || length ? length : 1;
  }
  m->final = malloc((m->states + 1) * sizeof(float));
  m->begin = malloc((m->states + 1) * sizeof(int64_t));
  m->arcs = malloc((m->count + 1) * sizeof(Arc));
  if (!m->final || !m->begin || !m->arcs || !GROW(d->turned, d->turned_room, longest)) return 0;
  int64_t at = 0, added = d->set_count, added_at = base;
  for (int64_t s = 0; s < d->set_count; s++) {
    m->final[s] = INFINITY; m->begin[s] = at;
    for (int64_t i = d->sets[s].arcs; i < d->sets[s].arcs + d->sets[s].ways; i++) {
      const Wide w = d->arcs[i];
      const int64_t length = d->labels.nodes[w.outputs].length, ends = w.target == END;
      write_ids(&d->labels, w.outputs, length, d->turned);
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
  return 1;
}
/* The labels that led to where it failed, and those of two outputs. */
static int32_t *failure(Determinizer *d, struct determinized *a) {
  int64_t reached = d->label != 0;
  for (int64_t s = d->at; s > 0; s = d->sets[s].source) reached++;
  const int64_t one = d->labels.nodes[d->one].length, other = d->labels.nodes[d->other].length;
  int32_t *labels = malloc((reached + one + other + 1) * sizeof(int32_t));
  if (!labels) return 0;
  int64_t at = reached;
  if (d->label) labels[--at] = d->label;
  for (int64_t s = d->at; s > 0; s = d->sets[s].source) labels[--at] = d->sets[s].label;
  write_ids(&d->labels, d->one, one, labels + reached);
  write_ids(&d->labels, d->other, other, labels + reached + one);
  a->reached = reached; a->one = one; a->other = other;
  return labels;
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
                    .set_slots = SLOTS};
  d.silent = calloc(f->states, 1);
  d.place = malloc(f->states * sizeof(int32_t));
  d.set_table = malloc(SLOTS * sizeof(int32_t));
  if (d.silent && d.place && d.set_table && make_sequences(&d.labels, SLOTS)) {
    memset(d.place, -1, f->states * sizeof(int32_t));
    memset(d.set_table, -1, SLOTS * sizeof(int32_t));
    for (int64_t s = 0; s < f->states; s++)
      for (int64_t i = f->begin[s]; i < f->begin[s + 1]; i++) d.silent[s] |= !f->arcs[i].ilabel;
    run(&d);
  } else d.failed = NO_MEMORY;
  a->status = d.failed;
  free(d.silent); free(d.place); free(d.set_table);
  free(d.elements); free(d.stack); free(d.closed); free(d.entries); free(d.queue); free(d.ways);
  Made m = {0};
  if (!d.failed && lay_out(&d, &m)) GIVE(a, m);
  else {
    free_made(&m);
    a->labels = d.failed && d.failed != NO_MEMORY ? (word)failure(&d, a) : 0;
    if (!a->labels) a->status = NO_MEMORY;
  }
  free_sequences(&d.labels); free(d.sets); free(d.arcs); free(d.turned);
}
