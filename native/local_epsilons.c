/* Epsilons removed locally: kaldi/fst/algorithms/local_epsilons.py. The arcs of a state are a list. */
#include "base.h"
#include "local_epsilons_arguments.h"
#include "transducers.h"

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
  Made m = {.start = f->start};
  a->status = NO_MEMORY;
  if (begin_places(&r, f)) {
    for (int64_t s = 0; s < f->states && !r.failed; s++)
      for (int64_t k = r.places[s].first; k >= 0 && !r.failed; k = r.hops[k].next) {
        const Hop l = r.hops[k];
        if (l.gone || l.to == s) continue;
        const Place *after = r.places + l.to;
        if (after->in == 1 && after->out > 1) move_ways_out(&r, (int32_t)s, k);
        else if (after->out == 1) follow_way_out(&r, (int32_t)s, k);
      }
    if (!r.failed && gather(&r, f->states, &m)) {
      GIVE(a, m);
      a->status = 0;
    }
  }
  if (a->status) free_made(&m);
  free(r.hops); free(r.places);
}
