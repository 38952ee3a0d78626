/* One frame of token passing.

   speech/search/arrays.py does the same in NumPy; both give the same tokens and links in the same
   order. */
#pragma once
#include "graph.h"

typedef struct { int32_t from, next; int32_t ilabel, olabel; float graph, acoustic, cost; } Try;
typedef struct { int32_t first, last; } Bucket;
typedef struct {
  int32_t *states; int64_t states_room;
  Token *tokens; int64_t tokens_room, count;
  Link *links; int64_t links_room, emitting, epsilons;
  int32_t *queue; int64_t queue_room;
  int32_t *times; int64_t times_room;  /* how often each token was put into the queue */
  int32_t *order, *next; int64_t order_room, next_room;
  int32_t *used; int64_t used_room;
  Bucket *buckets; int64_t hash_size, bucket_room;
  float *costs; int64_t costs_room;
} Step;

enum { LATER = 8 };            /* things whose memory is asked for before their turn */

static void free_step(Step *s) {
  free(s->states); free(s->tokens); free(s->links); free(s->queue);
  free(s->times); free(s->order); free(s->next); free(s->used); free(s->buckets);
  free(s->costs);
}
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
static int link_to(Step *s, int64_t count, Link l) {
  if (!grow((void **)&s->links, &s->links_room, count + 1, sizeof(Link))) return 0;
  s->links[count] = l;
  return 1;
}
/* Tokens in the order of Kaldi's hash: by buckets of their states' numbers, as these were filled. */
static int list_tokens(const View *v, Step *s, const int32_t *states, int64_t count) {
  const int64_t before = s->bucket_room, lazy = v->graph->lazy;
  int64_t filled = 0, listed = 0;
  if (!grow((void **)&s->order, &s->order_room, count, 4)
      || !grow((void **)&s->next, &s->next_room, count, 4)
      || !grow((void **)&s->used, &s->used_room, count, 4)
      || !grow((void **)&s->buckets, &s->bucket_room, s->hash_size, sizeof(Bucket))) return 0;
  memset(s->buckets + before, -1, (s->bucket_room - before) * sizeof(Bucket));
  const uint32_t size = (uint32_t)s->hash_size;
  int32_t *keys = s->order;
  for (int64_t i = 0; i < count; i++) {
    if (lazy && i + LATER < count) __builtin_prefetch(v->known + states[i + LATER]);
    const uint32_t number = lazy ? v->known[states[i]].number / 2 - 1 : (uint32_t)states[i];
    keys[i] = (int32_t)(number % size);
  }
  for (int64_t i = 0; i < count; i++) {
    if (i + LATER < count) __builtin_prefetch(s->buckets + keys[i + LATER]);
    Bucket *b = s->buckets + keys[i];
    if (b->first < 0) { b->first = (int32_t)i; s->used[filled++] = keys[i]; }
    else s->next[b->last] = (int32_t)i;
    b->last = (int32_t)i;
    s->next[i] = -1;
  }
  for (int64_t k = 0; k < filled; k++) {
    Bucket *b = s->buckets + s->used[k];
    for (int32_t i = b->first; i >= 0; i = s->next[i]) s->order[listed++] = i;
    b->first = -1;
  }
  return 1;
}
/* Puts a token into the queue if its state has epsilons; 2: it was there too often. */
static int wait_token(View *v, Step *s, int32_t at, int64_t *waiting) {
  int64_t emitting, epsilons;
  arcs_of(v, s->states[at], &emitting, &epsilons);
  if (v->failed) return 0;
  if (!epsilons) return 1;
  const int64_t before = s->times_room;
  if (!grow((void **)&s->queue, &s->queue_room, *waiting + 1, 4)
      || !grow((void **)&s->times, &s->times_room, at + 1, 4)) return 0;
  memset(s->times + before, 0, (s->times_room - before) * 4);
  s->queue[(*waiting)++] = at;
  return ++s->times[at] > s->count + 1 ? 2 : 1;
}
/* The token that a try leads to, made where there is none; 2 where it is new or became better. */
static int reach_token(View *v, Step *s, const Try *t, int32_t *token) {
  /* The states of a static graph, which no visit makes room for. */
  if (t->next >= v->room && !grow_known(v, v->graph->states)) return 0;
  int32_t at = v->known[t->next].token - 1;
  if (at < 0) {
    if (!grow((void **)&s->tokens, &s->tokens_room, s->count + 1, sizeof(Token))
        || !grow((void **)&s->states, &s->states_room, s->count + 1, 4)) return 0;
    at = (int32_t)s->count++;
    v->known[t->next].token = at + 1;
    s->states[at] = t->next;
  } else if (!(t->cost < s->tokens[at].cost)) { *token = at; return 1; }
  s->tokens[at] = (Token){t->cost, 0, t->from, t->ilabel, t->olabel, t->graph, t->acoustic};
  *token = at;
  return 2;
}
/* How a search prunes. */
typedef struct {
  float beam, beam_delta;
  int64_t most, least;         /* tokens that are followed */
  int64_t most_tokens;         /* of a frame, before the search gives up */
} Limits;

/* Passes the tokens of a frame on; `likelihood` is 0 at the start, where epsilons alone are
   followed. What it makes lies in `s`, the offset of acoustic costs in *offset_found. Returns 0, or
   why it failed. */
static int step_frame(Step *s, View *v, const Limits *limits, const Token *old,
                      const int32_t *states, int64_t count, const float *likelihood,
                      const int32_t *pdf, float *offset_found) {
  const float beam = limits->beam, delta = limits->beam_delta;
  const int64_t most = limits->most, least = limits->least, limit = limits->most_tokens;
  int status = NO_MEMORY;
  int64_t emitting, epsilons, waiting = 0;
  float cutoff = INFINITY, offset = 0;
  s->count = 0; s->emitting = s->epsilons = 0;
  if (!likelihood) {
    Try t = {-1, states[0], 0, 0, 0, 0, 0};
    int32_t token;
    if (!reach_token(v, s, &t, &token)) goto end;
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
    if (!list_tokens(v, s, states, count)) goto end;
    if (count * BUCKETS_EACH > s->hash_size) s->hash_size = count * BUCKETS_EACH;
    int64_t followed = 0, first = -1;
    for (int64_t n = 0; n < count; n++) {
      const float cost = old[s->order[n]].cost;
      if (!(cost <= keep)) continue;
      if (first < 0 && !(cost > best)) first = s->order[n];
      s->order[followed++] = s->order[n];
    }
    for (int64_t n = -1; n < followed; n++) {
      const int64_t i = n < 0 ? first : s->order[n];
      if (n + 2 * LATER < followed) ask_state(v, states[s->order[n + 2 * LATER]]);
      if (n + LATER < followed) ask_arcs(v, states[s->order[n + LATER]], 0);
      const Arc *arcs = arcs_of(v, states[i], &emitting, &epsilons);
      if (v->failed) { status = v->failed; goto end; }
      for (int64_t k = 0; k < emitting; k++) {
        const Arc *x = arcs + k;
        if (n < 0) {           /* the best token's arcs tell about what the next tokens cost */
          const float cost = ((x->weight + offset) - likelihood[pdf[x->ilabel]]) + best;
          if (cost + adaptive < cutoff) cutoff = cost + adaptive;
          continue;
        }
        const float acoustic = offset - likelihood[pdf[x->ilabel]];
        const float cost = (old[i].cost + acoustic) + x->weight;
        if (!(cost < cutoff)) continue;
        if (cost + adaptive < cutoff) cutoff = cost + adaptive;
        const Link l = {(int32_t)i, x->nextstate, x->ilabel, x->olabel, x->weight, acoustic};
        if (!link_to(s, s->emitting, l)) goto end;
        s->emitting++;
      }
    }
    for (int64_t k = 0; k < s->emitting; k++) {  /* links to states become links to tokens */
      if (k + 3 * LATER < s->emitting && s->links[k + 3 * LATER].to < v->room)
        __builtin_prefetch(v->known + s->links[k + 3 * LATER].to);
      Link *l = s->links + k;
      const float cost = (old[l->from].cost + l->acoustic) + l->graph;
      const Try t = {l->from, l->to, l->ilabel, l->olabel, l->graph, l->acoustic, cost};
      if (!reach_token(v, s, &t, &l->to)) goto end;
    }
  }
  if (!list_tokens(v, s, s->states, s->count)) goto end;
  for (int64_t n = 0, first = s->count; n < first; n++) {
    if (n + 3 * LATER < first) ask_state(v, s->states[s->order[n + 3 * LATER]]);
    if (n + 2 * LATER < first) ask_visit(v, s->states[s->order[n + 2 * LATER]], 0);
    if (n + LATER < first) ask_visit(v, s->states[s->order[n + LATER]], 1);
    if (!wait_token(v, s, s->order[n], &waiting)) {
      if (v->failed) status = v->failed;
      goto end;
    }
  }
  while (waiting) {
    const int32_t at = s->queue[--waiting];
    if (waiting > LATER / 2) ask_arcs(v, s->states[s->queue[waiting - LATER / 2]], 1);
    const float from = s->tokens[at].cost;
    if (!(from < cutoff)) continue;
    const Arc *arcs = arcs_of(v, s->states[at], &emitting, &epsilons) + emitting;
    for (int64_t k = 0; k < epsilons; k++) {
      const Arc x = arcs[k];
      const float cost = from + x.weight;
      int32_t token;
      if (!(cost < cutoff)) continue;
      Try t = {at, x.nextstate, 0, x.olabel, x.weight, 0, cost};
      const int found = reach_token(v, s, &t, &token);
      if (!found) goto end;
      if (found == 1) continue;
      const int put = wait_token(v, s, token, &waiting);
      if (put != 1) {
        if (v->failed) status = v->failed;
        else if (put == 2) status = NEGATIVE_LOOP;
        goto end;
      }
      if (s->count > limit) { status = MANY_TOKENS; goto end; }
    }
  }
  for (int64_t i = 0; i < s->count; i++) {
    const float cost = s->tokens[i].cost;
    if (i + LATER < s->count) ask_state(v, s->states[i + LATER]);
    if (!(cost < cutoff)) continue;
    const Arc *arcs = arcs_of(v, s->states[i], &emitting, &epsilons);
    for (int64_t k = emitting; k < emitting + epsilons; k++) {
      if (!(cost + arcs[k].weight < cutoff)) continue;
      const int32_t to = v->known[arcs[k].nextstate].token - 1;
      const Link l = {(int32_t)i, to, 0, arcs[k].olabel, arcs[k].weight, 0};
      if (!link_to(s, s->emitting + s->epsilons, l)) goto end;
      s->epsilons++;
    }
  }
  status = 0;
end:
  for (int64_t i = 0; i < s->count; i++) v->known[s->states[i]].token = 0;
  if (s->times_room) memset(s->times, 0, s->times_room * 4);
  *offset_found = offset;
  return status;
}
