/* One determinization of a lattice: kaldi/lattices/determinize.py does the same in Python, and
   gives the same states, arcs and costs. */
#pragma once
#include "base.h"
#include "lattices_arguments.h"
#include "sequences.h"
#include <math.h>


typedef struct { int64_t label, ids; int32_t target, length; double cost, graph; } Way;
typedef struct { int64_t ids; int32_t length, is; double cost, graph; } End;
/* States in topological order; the ids of arcs and ends are somewhere in `ids`. */
typedef struct {
  int64_t states, count; int64_t *begin; Way *arcs; End *ends; int32_t *ids;
} Lattice;

static void free_lattice(Lattice *l) {
  free(l->begin); free(l->arcs); free(l->ends); free(l->ids);
  *l = (Lattice){0};
}
static int make_lattice(Lattice *l, int64_t states, int64_t arcs, int64_t ids) {
  *l = (Lattice){.states = states, .count = arcs};
  l->begin = calloc(states + 2, sizeof *l->begin);
  l->arcs = malloc((arcs + 1) * sizeof *l->arcs);
  l->ends = calloc(states + 1, sizeof *l->ends);
  l->ids = malloc((ids + 1) * sizeof *l->ids);
  return l->begin && l->arcs && l->ends && l->ids;
}

/* Entries by hash; those of one hash in the order in which they came. */
typedef struct {
  int64_t slots, count, next_room, hash_room; int32_t *heads, *next; uint32_t *hash;
} Index;

static int index_slots(Index *x, int64_t slots) {
  int32_t *heads = malloc(slots * sizeof *heads);
  if (!heads) return 0;
  memset(heads, -1, slots * sizeof *heads);
  free(x->heads);
  x->heads = heads; x->slots = slots;
  for (int64_t i = x->count - 1; i >= 0; i--) {
    int32_t *head = heads + (x->hash[i] & (slots - 1));
    x->next[i] = *head;
    *head = (int32_t)i;
  }
  return 1;
}
static int32_t index_first(const Index *x, uint32_t hash) {
  return x->heads[hash & (x->slots - 1)];
}
/* Adds the entry `count`. */
static int index_add(Index *x, uint32_t hash) {
  if (x->count >= MOST_ENTRIES || !GROW(x->next, x->next_room, x->count + 1)
      || !GROW(x->hash, x->hash_room, x->count + 1))
    return 0;
  if (x->count >= x->slots && !index_slots(x, x->slots * 2)) return 0;
  int32_t *at = x->heads + (hash & (x->slots - 1));
  while (*at >= 0) at = x->next + *at;
  *at = (int32_t)x->count;
  x->next[x->count] = -1; x->hash[x->count] = hash;
  x->count++;
  return 1;
}
static void free_index(Index *x) { free(x->heads); free(x->next); free(x->hash); }

typedef struct { int32_t state, string; double cost, graph; } Element;
/* A set of elements as an arc reaches it, and what it leads to. */
typedef struct { int64_t begin, count; int32_t state, string; double cost, graph; } Reached;
typedef struct {
  int64_t begin, count, first_arc, last_arc, arcs;
  double cost, end_cost, end_graph;
  int32_t end, string;                  /* whether it ends, and with which ids */
} State;
typedef struct { int64_t label, next; int32_t target, string; double cost, graph; } Arc_;
typedef struct { double priority; int64_t order, label, begin, count; int32_t state; } Task;
typedef struct {
  int64_t label, number, ids; int32_t target, string, length; double cost, graph;
} Step;

typedef struct {
  const Lattice *l;
  const struct lattice_determinized *a;
  double cutoff, *rest;
  uint8_t *empty, *worded;              /* whether states have such arcs */
  Sequences strings;                    /* of transition-ids */
  Element *elements; int64_t element_count, elements_room, counted;  /* counted as Kaldi does */
  State *states; int64_t states_room; Index by_set;
  Reached *reached; int64_t reached_room; Index by_start;
  Arc_ *arcs; int64_t arc_count, arcs_room, arcs_counted;
  Task *tasks; int64_t task_count, tasks_room, task_number;
  Step *steps; int64_t steps_room;
  Element *closed; int64_t closed_count;
  int32_t *place, *open;
  Element *best;
  int failed;
} Determinizer;

static int fail(Determinizer *d) { d->failed = 1; return 0; }

/* Sequences of ids */

static int32_t extended(Determinizer *d, int32_t string, int64_t ids, int32_t length) {
  for (int32_t i = 0; i < length && string >= 0; i++)
    string = with_id(&d->strings, string, d->l->ids[ids + i]);
  return string < 0 ? fail(d) : string;
}
static int32_t rest_of(Determinizer *d, int32_t string, int32_t other, int32_t size) {
  const int32_t made = appended(&d->strings, string, other, size);
  return made < 0 ? fail(d) : made;
}
/* Whether it costs less; then less of the graph, fewer ids, or greater ones. */
static int better(const Determinizer *d, const Element *new, const Element *known) {
  if (new->cost != known->cost) return new->cost < known->cost;
  if (new->graph != known->graph) return new->graph < known->graph;
  int32_t one = new->string, other = known->string;
  const Node *n = d->strings.nodes;
  if (n[one].length != n[other].length) return n[one].length < n[other].length;
  int greater = 0;                      /* the first of the ids that differ decides */
  for (; one != other; one = n[one].before, other = n[other].before)
    if (n[one].last != n[other].last) greater = n[one].last > n[other].last;
  return greater;
}

/* Memory as Kaldi counts it */

static void mark(const Determinizer *d, uint8_t *kept, int32_t string) {
  for (; string && !kept[string]; string = d->strings.nodes[string].before) kept[string] = 1;
}
static void mark_elements(const Determinizer *d, uint8_t *kept, int64_t begin, int64_t count) {
  for (int64_t i = begin; i < begin + count; i++) mark(d, kept, d->elements[i].string);
}
/* Forgets the sequences that nothing uses. */
static void keep_used(Determinizer *d) {
  uint8_t *kept = calloc(d->strings.count, 1);
  if (!kept) { fail(d); return; }
  for (int64_t i = 0; i < d->arc_count; i++) mark(d, kept, d->arcs[i].string);
  for (int64_t i = 0; i < d->by_set.count; i++) {
    const State *s = d->states + i;
    if (s->end) mark(d, kept, s->string);
    mark_elements(d, kept, s->begin, s->count);
  }
  for (int64_t i = 0; i < d->task_count; i++)
    mark_elements(d, kept, d->tasks[i].begin, d->tasks[i].count);
  for (int64_t i = 0; i < d->by_start.count; i++) {
    mark(d, kept, d->reached[i].string);
    mark_elements(d, kept, d->reached[i].begin, d->reached[i].count);
  }
  if (!hash_nodes(&d->strings, d->strings.slots, kept)) fail(d);
  free(kept);
}
static double bytes_of(const Determinizer *d) {
  return (double)d->a->string_bytes * d->strings.live + (double)d->a->arc_bytes * d->arcs_counted
         + (double)d->a->element_bytes * d->counted;
}
static int is_full(Determinizer *d) {
  if (d->a->max_arcs && d->arcs_counted > d->a->max_arcs) return 1;
  const double most = (double)d->a->max_mem;
  if (!most || d->by_set.count % 10 || bytes_of(d) <= most) return 0;
  keep_used(d);
  return bytes_of(d) > d->a->least_room * most;
}

/* Sets */

static int add_element(Determinizer *d, Element e) {
  if (!GROW(d->elements, d->elements_room, d->element_count + 1)) return fail(d);
  d->elements[d->element_count++] = e;
  return 1;
}
/* What empty arcs reach from a set, those with words or ends only, sorted. All ways to a state
   come from smaller ones, so that it is done when its turn comes. */
static void close_set(Determinizer *d, const Element *from, int64_t count) {
  const Lattice *l = d->l;
  int any = 0;
  d->closed_count = 0;
  for (int64_t i = 0; i < count; i++) any |= d->empty[from[i].state];
  if (!any) {
    for (int64_t i = 0; i < count; i++)
      if (d->worded[from[i].state] || l->ends[from[i].state].is)
        d->closed[d->closed_count++] = from[i];
    return;
  }
  int64_t opened = 0;                   /* a heap; a sorted list is one */
  for (int64_t i = 0; i < count; i++) {
    d->best[from[i].state] = from[i];
    d->place[from[i].state] = 1;
    d->open[opened++] = from[i].state;
  }
  while (opened) {
    const int32_t state = d->open[0], last = d->open[--opened];
    int64_t at = 0;
    for (int64_t child; (child = 2 * at + 1) < opened; at = child) {
      if (child + 1 < opened && d->open[child + 1] < d->open[child]) child++;
      if (last <= d->open[child]) break;
      d->open[at] = d->open[child];
    }
    d->open[at] = last;
    const Element here = d->best[state];
    d->place[state] = 0;
    if (d->worded[state] || l->ends[state].is) d->closed[d->closed_count++] = here;
    if (!d->empty[state]) continue;
    for (int64_t i = l->begin[state]; i < l->begin[state + 1]; i++) {
      const Way *way = l->arcs + i;
      if (way->label) continue;
      const int32_t to = way->target;
      const double total = here.cost + way->cost;
      if (d->place[to] && total > d->best[to].cost) continue;
      const Element new = {to, extended(d, here.string, way->ids, way->length), total,
                           here.graph + way->graph};
      if (d->place[to]) {
        if (better(d, &new, d->best + to)) d->best[to] = new;
        continue;
      }
      d->best[to] = new; d->place[to] = 1;
      int64_t up = opened++;
      for (; up && d->open[(up - 1) / 2] > to; up = (up - 1) / 2)
        d->open[up] = d->open[(up - 1) / 2];
      d->open[up] = to;
    }
  }
}
/* Takes what all have in common away, and gives it. */
static Element normalize(Determinizer *d, Element *e, int64_t count) {
  Element common = {.string = e->string, .cost = e->cost, .graph = e->graph};
  for (int64_t i = 1; i < count; i++) {
    if (e[i].cost < common.cost || (e[i].cost == common.cost && e[i].graph < common.graph)) {
      common.cost = e[i].cost; common.graph = e[i].graph;
    }
    common.string = prefix(&d->strings, common.string, e[i].string);
  }
  const int32_t size = d->strings.nodes[common.string].length;
  for (int64_t i = 0; i < count; i++) {
    if (e[i].string == common.string) e[i].string = 0;
    else if (size) e[i].string = rest_of(d, 0, e[i].string, size);
    e[i].cost -= common.cost; e[i].graph -= common.graph;
  }
  return common;
}
static uint32_t set_hash(const Element *e, int64_t count) {
  uint64_t h = count;
  for (int64_t i = 0; i < count; i++) h = mixed(h ^ node_hash(e[i].state, e[i].string)) + i;
  return (uint32_t)(h ^ h >> 32);
}
/* Whether states and ids are the same, and costs about the same. */
static int equal(const Determinizer *d, const Element *one, const Element *other, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    if (one[i].state != other[i].state || one[i].string != other[i].string
        || !(fabs(one[i].cost - other[i].cost) <= d->a->delta))
      return 0;
  return 1;
}

/* Tasks: arcs to be made, the one on the best path first, then the oldest */

static int comes_first(const Task *one, const Task *other) {
  return one->priority < other->priority
         || (one->priority == other->priority && one->order < other->order);
}
static int push_task(Determinizer *d, Task task) {
  if (!GROW(d->tasks, d->tasks_room, d->task_count + 1)) return fail(d);
  int64_t at = d->task_count++;
  for (; at && comes_first(&task, d->tasks + (at - 1) / 2); at = (at - 1) / 2)
    d->tasks[at] = d->tasks[(at - 1) / 2];
  d->tasks[at] = task;
  return 1;
}
static Task pop_task(Determinizer *d) {
  const Task first = d->tasks[0], last = d->tasks[--d->task_count];
  int64_t at = 0;
  for (int64_t child; (child = 2 * at + 1) < d->task_count; at = child) {
    if (child + 1 < d->task_count && comes_first(d->tasks + child + 1, d->tasks + child)) child++;
    if (!comes_first(d->tasks + child, &last)) break;
    d->tasks[at] = d->tasks[child];
  }
  d->tasks[at] = last;
  return first;
}
static int by_label(const void *x, const void *y) {
  const Step *a = x, *b = y;
  if (a->label != b->label) return a->label < b->label ? -1 : 1;
  if (a->target != b->target) return a->target < b->target ? -1 : 1;
  return (a->number > b->number) - (a->number < b->number);
}
/* The set that steps of one label lead to: of each state the best way there. */
static void join_steps(Determinizer *d, const Step *s, int64_t count) {
  for (int64_t i = 0; i < count && !d->failed;) {
    Element best = {s[i].target, extended(d, s[i].string, s[i].ids, s[i].length), s[i].cost,
                    s[i].graph};
    for (i++; i < count && s[i].target == best.state; i++) {
      if (s[i].cost > best.cost) continue;
      const Element new = {best.state, extended(d, s[i].string, s[i].ids, s[i].length),
                           s[i].cost, s[i].graph};
      if (better(d, &new, &best)) best = new;
    }
    add_element(d, best);
  }
}
static void add_tasks(Determinizer *d, int32_t number) {
  const Lattice *l = d->l;
  const State made = d->states[number];
  int64_t count = 0;
  int sorted = 1;
  for (int64_t k = made.begin; k < made.begin + made.count; k++) {
    const Element e = d->elements[k];
    if (!d->worded[e.state]) continue;
    for (int64_t i = l->begin[e.state]; i < l->begin[e.state + 1]; i++) {
      const Way *way = l->arcs + i;
      if (!way->label) continue;
      if (!GROW(d->steps, d->steps_room, count + 1)) { fail(d); return; }
      d->steps[count] = (Step){way->label, count, way->ids, way->target, e.string, way->length,
                               e.cost + way->cost, e.graph + way->graph};
      if (count && by_label(d->steps + count - 1, d->steps + count) > 0) sorted = 0;
      count++;
    }
  }
  if (!sorted) qsort(d->steps, count, sizeof *d->steps, by_label);
  for (int64_t i = 0, next; i < count && !d->failed; i = next) {
    double least = INFINITY;
    for (next = i; next < count && d->steps[next].label == d->steps[i].label; next++) {
      const double whole = d->steps[next].cost + d->rest[d->steps[next].target];
      if (whole < least) least = whole;
    }
    const double priority = least + made.cost;
    if (least == INFINITY || !(priority <= d->cutoff)) continue;
    const int64_t begin = d->element_count;
    join_steps(d, d->steps + i, next - i);
    push_task(d, (Task){priority, d->task_number++, d->steps[i].label, begin,
                        d->element_count - begin, number});
  }
}

/* States and arcs of the result */

/* A new state of the set that is closed; its end and the arcs that it will have. */
static int32_t add_state(Determinizer *d, double cost) {
  const int64_t number = d->by_set.count, begin = d->element_count, count = d->closed_count;
  if (!index_add(&d->by_set, set_hash(d->closed, count))
      || !GROW(d->states, d->states_room, number + 1)
      || !GROW(d->elements, d->elements_room, begin + count))
    return fail(d);
  memcpy(d->elements + begin, d->closed, count * sizeof(Element));
  d->element_count += count;
  d->counted += count;
  State *made = d->states + number;
  *made = (State){.begin = begin, .count = count, .first_arc = -1, .cost = cost};
  Element end = {.state = -1};
  for (int64_t i = 0; i < count; i++) {
    const Element e = d->closed[i];
    const End *final = d->l->ends + e.state;
    if (!final->is) continue;
    const Element new = {e.state, e.string, e.cost + final->cost, e.graph + final->graph};
    if (end.state < 0 || better(d, &new, &end)) end = new;
  }
  if (end.state >= 0 && end.cost + cost <= d->cutoff) {
    made->end = 1;
    made->string = end.string; made->end_cost = end.cost; made->end_graph = end.graph;
    d->arcs_counted++;
  }
  add_tasks(d, (int32_t)number);
  return (int32_t)number;
}
/* The state of a set as arcs lead to it, and ids and costs that belong to the arc. */
static Reached state_of(Determinizer *d, int64_t begin, int64_t count, double cost) {
  const uint32_t hash = set_hash(d->elements + begin, count);
  for (int32_t i = index_first(&d->by_start, hash); i >= 0; i = d->by_start.next[i]) {
    const Reached *r = d->reached + i;
    if (d->by_start.hash[i] == hash && r->count == count
        && equal(d, d->elements + begin, d->elements + r->begin, count))
      return *r;
  }
  close_set(d, d->elements + begin, count);
  const Element common = normalize(d, d->closed, d->closed_count);
  const uint32_t closed = set_hash(d->closed, d->closed_count);
  int32_t state = index_first(&d->by_set, closed);
  for (; state >= 0; state = d->by_set.next[state]) {
    const State *s = d->states + state;
    if (d->by_set.hash[state] == closed && s->count == d->closed_count
        && equal(d, d->closed, d->elements + s->begin, s->count))
      break;
  }
  if (state < 0) state = add_state(d, cost + common.cost);
  const Reached made = {begin, count, state, common.string, common.cost, common.graph};
  const int64_t number = d->by_start.count;
  if (d->failed || !index_add(&d->by_start, hash)
      || !GROW(d->reached, d->reached_room, number + 1)) {
    fail(d);
    return made;
  }
  d->reached[number] = made;
  d->counted += count;
  return made;
}
static void make_arc(Determinizer *d, Task task) {
  const Element common = normalize(d, d->elements + task.begin, task.count);
  const Reached to = state_of(d, task.begin, task.count,
                              d->states[task.state].cost + common.cost);
  if (d->failed || !GROW(d->arcs, d->arcs_room, d->arc_count + 1)) { fail(d); return; }
  const int32_t whole = rest_of(d, common.string, to.string, 0);
  const int64_t number = d->arc_count++;
  d->arcs[number] = (Arc_){task.label, -1, to.state, whole, common.cost + to.cost,
                           common.graph + to.graph};
  State *from = d->states + task.state;
  if (from->first_arc < 0) from->first_arc = number;
  else d->arcs[from->last_arc].next = number;
  from->last_arc = number;
  from->arcs++;
  d->arcs_counted++;
}

/* Orders of states: those that state 0 leads to, each before those that it leads to, as a search
   depth first leaves them. Gives how many, -1 for a loop. */
static int64_t order_of(int64_t states, const int64_t *begin, const int32_t *target,
                        int32_t *order, int32_t *stack, int64_t *next) {
  enum { NEW = -1, LEFT = -2 };
  int64_t depth = 0, at = states;
  for (int64_t s = 0; s < states; s++) next[s] = NEW;
  if (states) { stack[depth++] = 0; next[0] = begin[0]; }
  while (depth) {
    const int32_t here = stack[depth - 1];
    if (next[here] == begin[here + 1]) {
      next[here] = LEFT; order[--at] = here; depth--;
      continue;
    }
    const int32_t to = target[next[here]++];
    if (next[to] == NEW) { next[to] = begin[to]; stack[depth++] = to; }
    else if (next[to] != LEFT) return -1;
  }
  memmove(order, order + at, (states - at) * sizeof *order);
  return states - at;
}
/* The states and arcs in topological order. */
static int result_of(Determinizer *d, Lattice *made) {
  const int64_t states = d->by_set.count;
  int64_t ids = 0;
  for (int64_t i = 0; i < d->arc_count; i++) ids += d->strings.nodes[d->arcs[i].string].length;
  for (int64_t s = 0; s < states; s++)
    if (d->states[s].end) ids += d->strings.nodes[d->states[s].string].length;
  /* One state and as many arcs more, as drop_phones may add. */
  int64_t *begin = malloc((states + 1) * sizeof *begin);
  int64_t *next = malloc((states + 1) * sizeof *next);
  int32_t *target = malloc((d->arc_count + 1) * sizeof *target);
  int32_t *order = malloc((states + 1) * sizeof *order);
  int32_t *stack = malloc((states + 1) * sizeof *stack);
  int ok = begin && next && target && order && stack
           && make_lattice(made, states + 1, d->arc_count + states, ids);
  if (ok) {
    int64_t count = 0, at = 0;
    for (int64_t s = 0; s < states; s++) {
      begin[s] = count;
      for (int64_t i = d->states[s].first_arc; i >= 0; i = d->arcs[i].next)
        target[count++] = d->arcs[i].target;
    }
    begin[states] = count;
    order_of(states, begin, target, order, stack, next);
    for (int64_t i = 0; i < states; i++) next[order[i]] = i;
    count = 0;
    for (int64_t i = 0; i < states; i++) {
      const State *s = d->states + order[i];
      made->begin[i] = count;
      for (int64_t k = s->first_arc; k >= 0; k = d->arcs[k].next) {
        const Arc_ *arc = d->arcs + k;
        const int32_t length = d->strings.nodes[arc->string].length;
        made->arcs[count++] = (Way){arc->label, at, (int32_t)next[arc->target],
                                    length, arc->cost, arc->graph};
        write_ids(&d->strings, arc->string, length, made->ids + at);
        at += length;
      }
      if (s->end) {
        const int32_t length = d->strings.nodes[s->string].length;
        made->ends[i] = (End){at, length, 1, s->end_cost, s->end_graph};
        write_ids(&d->strings, s->string, length, made->ids + at);
        at += length;
      }
    }
    made->begin[states] = count;
    made->states = states; made->count = count;
  }
  free(begin); free(next); free(target); free(order); free(stack);
  return ok;
}

/* The least cost from each state to an end. */
static void find_rest(const Lattice *l, double *rest) {
  for (int64_t s = l->states - 1; s >= 0; s--) {
    double least = l->ends[s].is ? l->ends[s].cost : INFINITY;
    for (int64_t i = l->begin[s]; i < l->begin[s + 1]; i++) {
      const double cost = l->arcs[i].cost + rest[l->arcs[i].target];
      if (cost < least) least = cost;
    }
    rest[s] = least;
  }
}
/* One determinization. Gives 0 where there is no memory. */
static int run_once(const struct lattice_determinized *a, const Lattice *l, double beam,
                    Lattice *made, double *reached, int *complete) {
  enum { SLOTS = 1 << 10 };
  Determinizer d = {.l = l, .a = a};
  const int64_t n = l->states + 1;
  double best = INFINITY;
  d.rest = malloc(n * sizeof *d.rest);
  d.empty = calloc(n, 1); d.worded = calloc(n, 1);
  d.place = calloc(n, sizeof *d.place); d.open = malloc(n * sizeof *d.open);
  d.best = malloc(n * sizeof *d.best); d.closed = malloc(n * sizeof *d.closed);
  int ok = d.rest && d.empty && d.worded && d.place && d.open && d.best && d.closed
           && make_sequences(&d.strings, SLOTS)
           && index_slots(&d.by_set, SLOTS) && index_slots(&d.by_start, SLOTS);
  *complete = 1; *reached = beam;
  if (ok) {
    find_rest(l, d.rest);
    for (int64_t s = 0; s < l->states; s++)
      for (int64_t i = l->begin[s]; i < l->begin[s + 1]; i++)
        *(l->arcs[i].label ? d.worded + s : d.empty + s) = 1;
    if (l->states) best = d.rest[0];
    d.cutoff = best + beam;
    if (best < INFINITY) {
      const Element first = {0};
      close_set(&d, &first, 1);
      add_state(&d, 0);
    }
    while (d.task_count && !d.failed) {
      if (is_full(&d)) {
        *complete = 0; *reached = d.tasks[0].priority - best;
        break;
      }
      make_arc(&d, pop_task(&d));
    }
    ok = !d.failed && result_of(&d, made);
  }
  free(d.rest); free(d.empty); free(d.worded); free(d.place); free(d.open); free(d.best);
  free(d.closed); free_sequences(&d.strings); free(d.elements); free(d.states);
  free_index(&d.by_set); free(d.reached); free_index(&d.by_start); free(d.arcs); free(d.tasks);
  free(d.steps);
  return ok;
}
