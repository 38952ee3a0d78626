"""C text of a search's two inner loops: one frame of token passing, and pruning of one frame.

`arrays.py` does the same in NumPy; both give the same tokens and links in the same order.
"""

from __future__ import annotations

SOURCE = r"""
typedef struct { float cost, extra; int32_t back, ilabel, olabel; float graph, acoustic; } Token;
typedef struct { int32_t from, to, ilabel, olabel; float graph, acoustic; } Link;
typedef struct { int32_t from, next; int32_t ilabel, olabel; float graph, acoustic, cost; } Try;
typedef struct {
  int32_t *states; int64_t states_room;
  Token *tokens; int64_t tokens_room, count;
  Link *links; int64_t links_room, emitting, epsilons;
  Try *tries; int64_t tries_room;
  int32_t *place; int64_t places;      /* the token of each state, -1 where it has none */
  int32_t *stamp; int64_t stamps;
  int32_t *queue; int64_t queue_room; int32_t *next; int64_t next_room;
  float *costs; int64_t costs_room;
} Step;

static float nth(float *x, int64_t count, int64_t n) {
  int64_t low = 0, high = count - 1;
  while (low < high) {
    const float pivot = x[low + (high - low) / 2];
    int64_t i = low, j = high;
    while (i <= j) {
      while (x[i] < pivot) i++;
      while (x[j] > pivot) j--;
      if (i <= j) { const float t = x[i]; x[i] = x[j]; x[j] = t; i++; j--; }
    }
    if (n <= j) high = j; else if (n >= i) low = i; else break;
  }
  return x[n];
}
static int push(Step *s, int64_t count, Try t) {
  if (!grow((void **)&s->tries, &s->tries_room, count + 1, sizeof(Try))) return 0;
  s->tries[count] = t;
  return 1;
}
static int link_to(Step *s, int64_t count, Link l) {
  if (!grow((void **)&s->links, &s->links_room, count + 1, sizeof(Link))) return 0;
  s->links[count] = l;
  return 1;
}
/* The token that a try leads to, made where there is none; 2 where it is new or became better. */
static int reach_token(Graph *g, Step *s, const Try *t, int32_t *token) {
  if (t->next >= s->places) {
    const int64_t before = s->places;
    if (!grow((void **)&s->place, &s->places, g->states, 4)) return 0;
    memset(s->place + before, -1, (s->places - before) * 4);
  }
  int32_t at = s->place[t->next];
  if (at < 0) {
    if (!grow((void **)&s->tokens, &s->tokens_room, s->count + 1, sizeof(Token))
        || !grow((void **)&s->states, &s->states_room, s->count + 1, 4)) return 0;
    at = s->place[t->next] = (int32_t)s->count++;
    s->states[at] = t->next;
  } else if (!(t->cost < s->tokens[at].cost)) { *token = at; return 1; }
  s->tokens[at] = (Token){t->cost, 0, t->from, t->ilabel, t->olabel, t->graph, t->acoustic};
  *token = at;
  return 2;
}
EXPORT void step_new(const int64_t *w) { *(Step **)w[0] = calloc(1, sizeof(Step)); }
EXPORT void step_free(const int64_t *w) {
  Step *s = (Step *)w[0];
  free(s->states); free(s->tokens); free(s->links); free(s->tries); free(s->place);
  free(s->stamp); free(s->queue); free(s->next); free(s->costs); free(s);
}
/* step, graph, tokens, their states, their count, log-likelihoods (0: none, the start), output of
   each label, beam, most, least active, beam delta (double), most tokens, address for: status,
   tokens, links with a label, epsilon links, addresses of states, tokens, links, and the offset of
   the frame's costs (double). Status 1: no memory, 2: too many states, 3: a loop of epsilons whose
   costs are below zero, 4: too many tokens. */
EXPORT void step_frame(const int64_t *w) {
  Step *s = (Step *)w[0]; Graph *g = (Graph *)w[1];
  const Token *old = (const Token *)w[2]; const int32_t *states = (const int32_t *)w[3];
  const int64_t count = w[4]; const float *likelihood = (const float *)w[5];
  const int32_t *pdf = (const int32_t *)w[6];
  double d; memcpy(&d, &w[7], 8); const float beam = (float)d;
  const int64_t most = w[8], least = w[9];
  memcpy(&d, &w[10], 8); const float delta = (float)d;
  const int64_t limit = w[11];
  int64_t *told = (int64_t *)w[12], tries = 0, emitting, epsilons, waiting;
  float cutoff = INFINITY, offset = 0;
  told[0] = 1;
  s->count = 0; s->emitting = s->epsilons = 0;
  if (!likelihood) {
    Try t = {-1, states[0], 0, 0, 0, 0, 0};
    int32_t token;
    if (!reach_token(g, s, &t, &token)) goto end;
    cutoff = beam;
  } else {
    float best = INFINITY, adaptive = beam, keep;
    if (!grow((void **)&s->costs, &s->costs_room, count, 4)) goto end;
    for (int64_t i = 0; i < count; i++) {
      s->costs[i] = old[i].cost;
      if (old[i].cost < best) best = old[i].cost;
    }
    keep = best + beam;
    float tight = INFINITY, loose = INFINITY;
    if (count > most) tight = nth(s->costs, count, most);
    if (tight < keep) { adaptive = tight - best + delta; keep = tight; }
    else {
      if (count > least) loose = least == 0 ? best : nth(s->costs, count, least);
      if (loose > keep) { adaptive = loose - best + delta; keep = loose; }
    }
    offset = -best;
    for (int64_t i = 0; i < count; i++) {
      if (!(old[i].cost <= keep)) continue;
      const Arc *arcs = arcs_of(g, states[i], &emitting, &epsilons);
      if (g->failed) { told[0] = g->failed; goto end; }
      for (int64_t k = 0; k < emitting; k++) {
        const Arc *x = arcs + k;
        const float acoustic = offset - likelihood[pdf[x->ilabel]];
        const float cost = (old[i].cost + acoustic) + x->weight;
        if (!(cost < cutoff)) continue;
        Try t = {(int32_t)i, x->next, x->ilabel, x->olabel, x->weight, acoustic, cost};
        if (!push(s, tries++, t)) goto end;
        if (cost + adaptive < cutoff) cutoff = cost + adaptive;
      }
    }
    for (int64_t i = 0; i < tries; i++) {
      const Try t = s->tries[i];
      if (!(t.cost < cutoff)) continue;
      Link l = {t.from, 0, t.ilabel, t.olabel, t.graph, t.acoustic};
      if (!reach_token(g, s, &t, &l.to) || !link_to(s, s->emitting, l)) goto end;
      s->emitting++;
    }
  }
  waiting = s->count;
  if (!grow((void **)&s->queue, &s->queue_room, waiting, 4)) goto end;
  for (int64_t i = 0; i < waiting; i++) s->queue[i] = (int32_t)i;
  for (int64_t round = 1; waiting; round++) {
    if (round > s->count + 1) { told[0] = 3; goto end; }
    if (s->count > limit) { told[0] = 4; goto end; }
    tries = 0;
    for (int64_t i = 0; i < waiting; i++) {
      const int32_t at = s->queue[i];
      const float cost = s->tokens[at].cost;
      if (!(cost < cutoff)) continue;
      const Arc *arcs = arcs_of(g, s->states[at], &emitting, &epsilons);
      if (g->failed) { told[0] = g->failed; goto end; }
      for (int64_t k = emitting; k < emitting + epsilons; k++) {
        Try t = {at, arcs[k].next, 0, arcs[k].olabel, arcs[k].weight, 0, cost + arcs[k].weight};
        if (t.cost < cutoff && !push(s, tries++, t)) goto end;
      }
    }
    int64_t next = 0;
    for (int64_t i = 0; i < tries; i++) {
      int32_t token;
      const int found = reach_token(g, s, &s->tries[i], &token);
      if (!found) goto end;
      if (found == 1) continue;
      const int64_t before = s->stamps;
      if (!grow((void **)&s->stamp, &s->stamps, s->count, 4)) goto end;
      memset(s->stamp + before, 0, (s->stamps - before) * 4);
      if (s->stamp[token] == (int32_t)round) continue;
      s->stamp[token] = (int32_t)round;
      if (!grow((void **)&s->next, &s->next_room, next + 1, 4)) goto end;
      s->next[next++] = token;
    }
    int32_t *queue = s->queue; s->queue = s->next; s->next = queue;
    const int64_t room = s->queue_room; s->queue_room = s->next_room; s->next_room = room;
    waiting = next;
  }
  for (int64_t i = 0; i < s->count; i++) {
    const float cost = s->tokens[i].cost;
    if (!(cost < cutoff)) continue;
    const Arc *arcs = arcs_of(g, s->states[i], &emitting, &epsilons);
    for (int64_t k = emitting; k < emitting + epsilons; k++) {
      if (!(cost + arcs[k].weight < cutoff)) continue;
      Link l = {(int32_t)i, s->place[arcs[k].next], 0, arcs[k].olabel, arcs[k].weight, 0};
      if (!link_to(s, s->emitting + s->epsilons, l)) goto end;
      s->epsilons++;
    }
  }
  told[0] = 0;
end:
  for (int64_t i = 0; i < s->count; i++) s->place[s->states[i]] = -1;
  if (s->stamps) memset(s->stamp, 0, s->stamps * 4);
  told[1] = s->count; told[2] = s->emitting; told[3] = s->epsilons;
  told[4] = (int64_t)s->states; told[5] = (int64_t)s->tokens; told[6] = (int64_t)s->links;
  d = offset; memcpy(&told[7], &d, 8);
}
static float link_extra(const Token *from, const Token *to, const Link *l) {
  const float extra = to->extra + (((from->cost + l->acoustic) + l->graph) - to->cost);
  return extra < 0 ? 0 : extra;
}
/* tokens, count, first extra costs, next frame's tokens, links to them, count, epsilon links,
   count, lattice beam, delta (double), new extra costs, address for: links with a label and epsilon
   links that are left, whether an extra cost changed by more than delta */
EXPORT void prune_frame(const int64_t *w) {
  Token *tokens = (Token *)w[0]; const int64_t count = w[1];
  const float *base = (const float *)w[2]; const Token *after = (const Token *)w[3];
  Link *emitting = (Link *)w[4], *epsilons = (Link *)w[6];
  const int64_t many = w[5], few = w[7];
  double d; memcpy(&d, &w[8], 8); const float beam = (float)d;
  memcpy(&d, &w[9], 8); const float delta = (float)d;
  float *fresh = (float *)w[10]; int64_t *told = (int64_t *)w[11];
  told[0] = told[1] = told[2] = 0;
  for (int64_t i = 0; i < count; i++) fresh[i] = base[i] <= beam ? base[i] : INFINITY;
  for (int64_t i = 0; i < many; i++) {
    const Link l = emitting[i];
    const float extra = link_extra(&tokens[l.from], &after[l.to], &l);
    if (!(extra <= beam)) continue;
    if (extra < fresh[l.from]) fresh[l.from] = extra;
    emitting[told[0]++] = l;
  }
  for (int changed = 1; changed;) {
    changed = 0;
    for (int64_t i = few - 1; i >= 0; i--) {
      const Link *l = &epsilons[i];
      Token to = tokens[l->to]; to.extra = fresh[l->to];
      const float extra = link_extra(&tokens[l->from], &to, l);
      if (extra <= beam && extra < fresh[l->from]) { fresh[l->from] = extra; changed = 1; }
    }
  }
  for (int64_t i = 0; i < few; i++) {
    const Link l = epsilons[i];
    Token to = tokens[l.to]; to.extra = fresh[l.to];
    if (link_extra(&tokens[l.from], &to, &l) <= beam) epsilons[told[1]++] = l;
  }
  for (int64_t i = 0; i < count; i++) {
    if (fabsf(fresh[i] - tokens[i].extra) > delta) told[2] = 1;
    tokens[i].extra = fresh[i];
  }
}
"""
