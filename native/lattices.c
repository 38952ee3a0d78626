/* Lattices determinized with phones, then with words: kaldi/lattices/phone_determinize.py does the
   same in Python. */
#include "lattice_determinizer.h"

enum { ROUNDS = 10 };                   /* with smaller beams, at most */

/* Drops the arcs on no path within the beam of the best one. */
static int prune(Lattice *l, double beam) {
  double *rest = malloc((l->states + 1) * sizeof *rest);
  double *come = malloc((l->states + 1) * sizeof *come);
  const int ok = rest && come;
  if (ok && l->states) {
    find_rest(l, rest);
    const double most = rest[0] + beam;
    for (int64_t s = 0; s < l->states; s++) come[s] = INFINITY;
    come[0] = 0;
    int64_t kept = 0;
    for (int64_t s = 0; s < l->states; s++) {
      const int64_t begin = l->begin[s], end = l->begin[s + 1];
      l->begin[s] = kept;
      for (int64_t i = begin; i < end; i++) {
        const Way way = l->arcs[i];
        if (!(come[s] + way.cost + rest[way.target] <= most)) continue;
        l->arcs[kept++] = way;
        const double cost = come[s] + way.cost;
        if (cost < come[way.target]) come[way.target] = cost;
      }
      if (l->ends[s].is && come[s] + l->ends[s].cost > most) l->ends[s].is = 0;
    }
    l->begin[l->states] = l->count = kept;
  }
  free(rest); free(come);
  return ok;
}
/* Determinizes a lattice in place; where limits leave too little of the beam, again with a smaller
   one. */
static int determinize(struct lattice_determinized *a, Lattice *l, double *least) {
  double beam = a->beam, reached = beam;
  int complete = 1;
  Lattice made = {0};
  for (int left = ROUNDS - 1;; left--) {
    if (!run_once(a, l, beam, &made, &reached, &complete)) { free_lattice(&made); return 0; }
    if (!left || a->beam == INFINITY || reached >= beam * a->retry_cutoff) break;
    free_lattice(&made);
    const double part = sqrt((reached > 0 ? reached : 0) / beam);
    beam *= part > 0.5 ? part : 0.5;
    if (!prune(l, beam)) return 0;
  }
  if (!complete || beam != a->beam) a->incomplete = 1;
  if (reached < *least) *least = reached;
  free_lattice(l);
  *l = made;
  return 1;
}

/* Phones as labels, where they begin: an arc with a word gets a second one after it. Gives in
   `base` what was added to their numbers. */
static int add_phones(struct lattice_determinized *a, Lattice *l, int64_t *base) {
  int64_t *extra = calloc(l->states + 1, sizeof *extra);
  int64_t *number = malloc((l->states + 1) * sizeof *number);
  Lattice made = {0};
  int64_t most = 0, more = 0;
  for (int64_t i = 0; i < l->count; i++) if (l->arcs[i].label > most) most = l->arcs[i].label;
  *base = most + 1;
  int ok = extra && number;
#define PHONE(s, way) ((s) && (way)->length ? a->starts[l->ids[(way)->ids]] : 0)
  for (int64_t s = 0; s < l->states && ok; s++)
    for (int64_t i = l->begin[s]; i < l->begin[s + 1]; i++)
      if (l->arcs[i].label && PHONE(s, l->arcs + i)) { extra[l->arcs[i].target]++; more++; }
  ok = ok && make_lattice(&made, l->states + more, l->count + more, 0);
  if (ok) {
    int64_t states = 0, arcs = 0;
    for (int64_t s = 0; s < l->states; s++) {
      const int64_t first = states;
      for (int64_t k = 0; k < extra[s]; k++) made.begin[states++] = arcs++;
      extra[s] = first;                 /* the next one that is used */
      number[s] = states;
      made.ends[states] = l->ends[s];
      made.begin[states++] = arcs;
      arcs += l->begin[s + 1] - l->begin[s];
    }
    made.begin[states] = arcs;
    for (int64_t s = 0; s < l->states; s++) {
      Way *out = made.arcs + made.begin[number[s]];
      for (int64_t i = l->begin[s]; i < l->begin[s + 1]; i++) {
        Way way = l->arcs[i];
        const int32_t phone = PHONE(s, l->arcs + i);
        const int64_t to = way.target;
        way.target = (int32_t)number[to];
        if (phone && way.label) {
          const int64_t between = extra[to]++;
          made.arcs[made.begin[between]] = (Way){*base + phone, 0, way.target, 0, 0, 0};
          way.target = (int32_t)between;
        } else if (phone) way.label = *base + phone;
        *out++ = way;
      }
    }
    free(made.ids);
    made.ids = l->ids; l->ids = 0;
    free_lattice(l);
    *l = made;
  } else free_lattice(&made);
#undef PHONE
  free(extra); free(number);
  return ok;
}
/* Words only as labels; ids of ending go to arcs to a last state, for which there is room. */
static void drop_phones(Lattice *l, int64_t base) {
  int64_t more = 0;
  const int64_t last = l->states;
  for (int64_t s = 0; s < last; s++) more += l->ends[s].is && l->ends[s].length;
  for (int64_t i = 0; i < l->count; i++) if (l->arcs[i].label >= base) l->arcs[i].label = 0;
  if (!more) return;
  int64_t from = l->count, to = l->count += more;
  l->begin[last] = l->begin[last + 1] = to;
  for (int64_t s = last - 1; s >= 0; s--) {
    End *end = l->ends + s;
    if (end->is && end->length) {
      l->arcs[--to] = (Way){0, end->ids, (int32_t)last, end->length, end->cost, end->graph};
      end->is = 0;
    }
    while (from > l->begin[s]) l->arcs[--to] = l->arcs[--from];
    l->begin[s] = to;
  }
  l->ends[last] = (End){.is = 1};
  l->states++;
}

/* The states that state 0 leads to, in topological order. */
static int sort_lattice(Lattice *l) {
  int32_t *target = malloc((l->count + 1) * sizeof *target);
  int32_t *order = malloc((l->states + 1) * sizeof *order);
  int32_t *stack = malloc((l->states + 1) * sizeof *stack);
  int64_t *number = malloc((l->states + 1) * sizeof *number);
  Lattice made = {0};
  int status = NO_MEMORY;
  if (target && order && stack && number && make_lattice(&made, l->states, l->count, 0)) {
    for (int64_t i = 0; i < l->count; i++) target[i] = l->arcs[i].target;
    made.states = order_of(l->states, l->begin, target, order, stack, number);
    status = made.states < 0 ? LOOP : 0;
    for (int64_t i = 0; i < made.states; i++) number[order[i]] = i;
    made.count = 0;
    for (int64_t i = 0; i < made.states; i++) {
      const int32_t s = order[i];
      made.begin[i] = made.count;
      made.ends[i] = l->ends[s];
      for (int64_t k = l->begin[s]; k < l->begin[s + 1]; k++) {
        made.arcs[made.count] = l->arcs[k];
        made.arcs[made.count++].target = (int32_t)number[l->arcs[k].target];
      }
    }
    if (!status) {
      made.begin[made.states] = made.count;
      free(made.ids);
      made.ids = l->ids; l->ids = 0;
      free_lattice(l);
      *l = made; made = (Lattice){0};
    }
  }
  free_lattice(&made);
  free(target); free(order); free(stack); free(number);
  return status;
}
/* Takes what is given; gives why it cannot, or 0. */
static int take_lattice(struct lattice_determinized *a, Lattice *l) {
  const int64_t n = a->states, count = a->count;
  if (!make_lattice(l, n, count, count)) return NO_MEMORY;
  for (int64_t i = 0; i < count; i++) {
    const int32_t s = a->source[i], t = a->target[i];
    a->wrong = i;
    if (s < 0 || s >= n || t < 0 || t >= n || a->label[i] < 0 || (!a->unsorted && t <= s))
      return BAD_ARC;
    if (a->starts && a->id[i] >= a->ids) return NO_ID;
    l->begin[s + 2]++;
  }
  for (int64_t s = 2; s <= n; s++) l->begin[s] += l->begin[s - 1];
  for (int64_t i = 0; i < count; i++) {
    l->arcs[l->begin[a->source[i] + 1]++] =
        (Way){a->label[i], i, a->target[i], a->id[i] >= 0, a->cost[i], a->graph[i]};
    l->ids[i] = a->id[i];
  }
  for (int64_t i = 0; i < a->finals; i++) {
    const int32_t s = a->final[i];
    a->wrong = count + i;
    if (s < 0 || s >= n) return BAD_ARC;
    l->ends[s] = (End){0, 0, 1, a->final_cost[i], a->final_graph[i]};
  }
  return a->unsorted ? sort_lattice(l) : 0;
}
static int has_path(const Lattice *l) {
  double *rest = malloc((l->states + 1) * sizeof *rest);
  if (!rest) return NO_MEMORY;
  find_rest(l, rest);
  const int any = l->states && rest[0] < INFINITY;
  free(rest);
  return any ? 0 : EMPTY;
}

/* What was made, until it is copied: where the arcs of states begin, arcs with ends after them, and
   the ids of all these. */
typedef struct { word *begin; LatticeArc *arcs; int32_t *ids; } Made;

static void free_made(Made *m) {
  if (m) { free(m->begin); free(m->arcs); free(m->ids); }
  free(m);
}
/* Gives the states that are on a path from the first one to an end. */
static int give(struct lattice_determinized *a, const Lattice *l) {
  uint8_t *kept = calloc(l->states + 1, 1);
  int32_t *number = malloc((l->states + 1) * sizeof *number);
  if (!kept || !number) { free(kept); free(number); return NO_MEMORY; }
  int64_t states = 0, count = 0, ends = 0, ids = 0;
  if (l->states) kept[0] = 1;
  for (int64_t s = 0; s < l->states; s++)
    for (int64_t i = l->begin[s]; i < l->begin[s + 1]; i++)
      kept[l->arcs[i].target] |= kept[s];
  for (int64_t s = l->states - 1; s >= 0; s--) {
    int leads = l->ends[s].is;
    for (int64_t i = l->begin[s]; i < l->begin[s + 1]; i++) leads |= kept[l->arcs[i].target] >> 1;
    kept[s] = kept[s] & leads ? 3 : 0;
  }
  for (int64_t s = 0; s < l->states; s++) {
    if (!kept[s]) continue;
    number[s] = (int32_t)states++;
    if (l->ends[s].is) { ends++; ids += l->ends[s].length; }
    for (int64_t i = l->begin[s]; i < l->begin[s + 1]; i++)
      if (kept[l->arcs[i].target]) { count++; ids += l->arcs[i].length; }
  }
  Made *m = calloc(1, sizeof *m);
  if (m) {
    m->begin = malloc((states + 1) * sizeof *m->begin);
    m->arcs = malloc((count + ends + 1) * sizeof *m->arcs);
    m->ids = malloc((ids + 1) * sizeof *m->ids);
  }
  const int ok = m && m->begin && m->arcs && m->ids;
  if (ok) {
    word *begin = m->begin;
    LatticeArc *arcs = m->arcs, *end = arcs + count;
    int32_t *id = m->ids;
    int64_t at = 0, from = 0;
    for (int64_t s = 0; s < l->states; s++) {
      if (!kept[s]) continue;
      begin[number[s]] = at;
      for (int64_t i = l->begin[s]; i < l->begin[s + 1]; i++) {
        const Way *way = l->arcs + i;
        if (!kept[way->target]) continue;
        arcs[at++] = (LatticeArc){(int32_t)way->label, number[way->target], way->length,
                                  (float)way->graph, (float)(way->cost - way->graph)};
        memcpy(id + from, l->ids + way->ids, way->length * sizeof *id);
        from += way->length;
      }
    }
    begin[states] = at;
    for (int64_t s = 0; s < l->states; s++) {
      const End *e = l->ends + s;
      if (!kept[s] || !e->is) continue;
      *end++ = (LatticeArc){0, number[s], e->length, (float)e->graph,
                            (float)(e->cost - e->graph)};
      memcpy(id + from, l->ids + e->ids, e->length * sizeof *id);
      from += e->length;
    }
  }
  free(kept); free(number);
  if (!ok) { free_made(m); return NO_MEMORY; }
  a->made = (word)m;
  a->made_states = states; a->made_count = count; a->made_ends = ends; a->made_ids = ids;
  return 0;
}
EXPORT(lattice_determinized)(struct lattice_determinized *a) {
  Lattice l = {0};
  double reached = a->beam;
  int64_t base = 0;
  int status = take_lattice(a, &l);
  if (!status) status = has_path(&l);
  if (!status && a->starts) {
    if (add_phones(a, &l, &base) && determinize(a, &l, &reached)) drop_phones(&l, base);
    else status = NO_MEMORY;
  }
  if (!status && a->words && !determinize(a, &l, &reached)) status = NO_MEMORY;
  if (!status) status = give(a, &l);
  a->beam = reached; a->status = status;
  free_lattice(&l);
}
/* Copies what was made, and frees it. */
EXPORT(lattice_copy)(const struct lattice_copy *a) {
  Made *m = (Made *)a->made;
  memcpy(a->begin, m->begin, (a->states + 1) * sizeof *a->begin);
  memcpy(a->arcs, m->arcs, a->count * sizeof *a->arcs);
  memcpy(a->id, m->ids, a->ids * sizeof *a->id);
  free_made(m);
}
