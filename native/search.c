/* A search: the tokens of all frames so far, and the links between them.

   speech/search/array_tokens.py does the same in NumPy; both give the same tokens and links in the
   same order. */
#include "token_passing.h"

/* What is alive at one time; see speech/search/frames.py. */
typedef struct {
  Token *tokens; int32_t *names; Link *links, *onward;
  int64_t count, epsilons, emitting;   /* tokens, links, links onward */
  int64_t counted;
  float offset;
  int prune_links, prune_tokens;
} Frame;
typedef struct {
  Home *home; View view; Step step;
  const int32_t *pdf; int64_t outputs;
  Limits limits;
  float lattice_beam, prune_delta;
  int64_t prune_interval, most_arcs;
  Frame *frames; int64_t frame_count, frame_room;
  int32_t *states; int64_t states_room;        /* of the newest tokens */
  float *finals; int64_t finals_room;          /* costs of ending in them, once they are final */
  int finalized;
  float *fresh; int64_t fresh_room;            /* scratch of pruning */
  int32_t *places; int64_t places_room;
} Search;

static void free_frames(Search *s) {
  for (int64_t i = 0; i < s->frame_count; i++) {
    Frame *f = s->frames + i;
    free(f->tokens); free(f->names); free(f->links); free(f->onward);
  }
  s->frame_count = 0;
}
static void *copy_of(const void *at, int64_t count, size_t size) {
  void *made = malloc(count ? count * size : 1);
  if (made && count) memcpy(made, at, count * size);
  return made;
}
/* Gives memory that is not needed any more back. */
static void *cut_to(void *at, int64_t count, size_t size) {
  void *made = realloc(at, count ? count * size : 1);
  return made ? made : at;
}
/* Appends the frame that the next tokens make. */
static int advance(Search *s, const float *likelihood) {
  Step *step = &s->step;
  Frame *last = s->frame_count ? s->frames + s->frame_count - 1 : 0;
  float offset;
  const int status = step_frame(step, &s->view, &s->limits, last ? last->tokens : 0, s->states,
                                last ? last->count : 1, likelihood, s->pdf, &offset);
  if (status) return status;
  if (!step->count) return NO_PATH;
  Frame made = {.count = step->count, .epsilons = step->epsilons, .prune_links = 1,
                .prune_tokens = 1};
  Link *onward = copy_of(step->links, step->emitting, sizeof(Link));
  made.tokens = copy_of(step->tokens, step->count, sizeof(Token));
  made.links = copy_of(step->links + step->emitting, step->epsilons, sizeof(Link));
  made.names = malloc(step->count * 4);
  made.onward = malloc(1);
  if (!onward || !made.tokens || !made.links || !made.names || !made.onward
      || !grow((void **)&s->states, &s->states_room, step->count, 4)
      || !grow((void **)&s->fresh, &s->fresh_room, step->count, 4)
      || !grow((void **)&s->places, &s->places_room, step->count, 4)
      || !grow((void **)&s->frames, &s->frame_room, s->frame_count + 1, sizeof(Frame))) {
    free(onward); free(made.tokens); free(made.links); free(made.names); free(made.onward);
    return NO_MEMORY;
  }
  for (int64_t i = 0; i < made.count; i++) made.names[i] = (int32_t)i;
  memcpy(s->states, step->states, made.count * 4);
  if (s->frame_count) {
    last = s->frames + s->frame_count - 1;
    free(last->onward);
    last->onward = onward; last->emitting = step->emitting; last->offset = offset;
  } else free(onward);
  s->frames[s->frame_count++] = made;
  return 0;
}
static float link_extra(const Token *from, const Token *to, float extra_to, const Link *l) {
  const float extra = extra_to + (((from->cost + l->acoustic) + l->graph) - to->cost);
  return extra < 0 ? 0 : extra;
}
/* Sets the extra costs of a frame's tokens, and drops its links beyond the beam.

   `fresh` begins as the extra cost of ending in each token: infinite where no path ends there.
   Returns whether a cost changed by more than `delta`. */
static int prune_links(Search *s, int64_t number, float delta) {
  Frame *f = s->frames + number;
  Token *tokens = f->tokens;
  const Token *after = number + 1 < s->frame_count ? s->frames[number + 1].tokens : 0;
  const float beam = s->lattice_beam;
  float *fresh = s->fresh;
  int64_t kept = 0, kept_epsilons = 0;
  int moved = 0;
  for (int64_t i = 0; i < f->emitting; i++) {
    const Link l = f->onward[i];
    const float extra = link_extra(&tokens[l.from], &after[l.to], after[l.to].extra, &l);
    if (!(extra <= beam)) continue;
    if (extra < fresh[l.from]) fresh[l.from] = extra;
    f->onward[kept++] = l;
  }
  for (int changed = 1; changed;) {
    changed = 0;
    for (int64_t i = f->epsilons - 1; i >= 0; i--) {
      const Link *l = &f->links[i];
      const float extra = link_extra(&tokens[l->from], &tokens[l->to], fresh[l->to], l);
      if (extra <= beam && extra < fresh[l->from]) { fresh[l->from] = extra; changed = 1; }
    }
  }
  for (int64_t i = 0; i < f->epsilons; i++) {
    const Link l = f->links[i];
    if (link_extra(&tokens[l.from], &tokens[l.to], fresh[l.to], &l) <= beam)
      f->links[kept_epsilons++] = l;
  }
  for (int64_t i = 0; i < f->count; i++) {
    if (fabsf(fresh[i] - tokens[i].extra) > delta) moved = 1;
    tokens[i].extra = fresh[i];
  }
  if (kept + kept_epsilons < f->emitting + f->epsilons) {
    f->prune_tokens = 1;
    f->onward = cut_to(f->onward, kept, sizeof(Link));
    f->links = cut_to(f->links, kept_epsilons, sizeof(Link));
    f->emitting = kept; f->epsilons = kept_epsilons;
  }
  return moved;
}
/* The same of a frame that is not the newest one: no path ends in it. */
static int prune_inner(Search *s, int64_t number, float delta) {
  for (int64_t i = 0; i < s->frames[number].count; i++) s->fresh[i] = INFINITY;
  return prune_links(s, number, delta);
}
/* Takes tokens that no path within the lattice beam needs out of a frame. */
static void drop_tokens(Search *s, int64_t number) {
  Frame *f = s->frames + number;
  int32_t *places = s->places;
  const int newest = number + 1 == s->frame_count;
  int64_t kept = 0;
  f->counted = f->count;
  for (int64_t i = 0; i < f->count; i++) {
    places[i] = -1;
    if (!isfinite(f->tokens[i].extra)) continue;
    f->tokens[kept] = f->tokens[i]; f->names[kept] = f->names[i];
    if (newest) { s->states[kept] = s->states[i]; s->finals[kept] = s->finals[i]; }
    places[i] = (int32_t)kept++;
  }
  if (kept == f->count) return;
  f->count = kept;
  f->tokens = cut_to(f->tokens, kept, sizeof(Token));
  f->names = cut_to(f->names, kept, 4);
  for (int64_t i = 0; i < kept; i++)
    if (!f->tokens[i].ilabel && f->tokens[i].back >= 0)
      f->tokens[i].back = places[f->tokens[i].back];
  for (int64_t i = 0; i < f->epsilons; i++) {
    f->links[i].from = places[f->links[i].from];
    f->links[i].to = places[f->links[i].to];
  }
  for (int64_t i = 0; i < f->emitting; i++) f->onward[i].from = places[f->onward[i].from];
  if (number) {
    const Frame *before = f - 1;
    for (int64_t i = 0; i < before->emitting; i++)
      before->onward[i].to = places[before->onward[i].to];
  }
  if (newest) return;
  const Frame *after = f + 1;
  for (int64_t i = 0; i < after->count; i++)
    if (after->tokens[i].ilabel && after->tokens[i].back >= 0)
      after->tokens[i].back = places[after->tokens[i].back];
}
/* Drops links and tokens that no path within the lattice beam needs, newest frames first. */
static void prune_active(Search *s) {
  const int64_t last = s->frame_count - 1;
  if (!s->frames[last].counted) s->frames[last].counted = s->frames[last].count;
  for (int64_t number = last - 1; number >= 0; number--) {
    Frame *f = s->frames + number;
    if (f->prune_links) {
      if (prune_inner(s, number, s->prune_delta) && number) f[-1].prune_links = 1;
      f->prune_links = 0;
    }
    if (number + 1 < last && f[1].prune_tokens) {
      drop_tokens(s, number + 1);
      f[1].prune_tokens = 0;
    }
  }
}
/* The cost of ending in a newest token. */
static float ending(const Search *s, int64_t token) {
  return s->finalized ? s->finals[token] : final_of(s->view.graph, s->states[token]);
}
static int any_ends(const Search *s) {
  for (int64_t i = 0; i < s->frames[s->frame_count - 1].count; i++)
    if (isfinite(ending(s, i))) return 1;
  return 0;
}
EXPORT(search_new)(struct search_new *a) {
  Search *s = calloc(1, sizeof(Search));
  if (!s) return;
  s->home = a->graph; s->pdf = a->pdf; s->outputs = a->outputs;
  s->step.hash_size = LEAST_BUCKETS;
  s->limits = (Limits){a->beam, a->beam_delta, a->most, a->least, a->most_tokens};
  s->lattice_beam = a->lattice_beam; s->prune_delta = a->prune_delta;
  s->prune_interval = a->prune_interval; s->most_arcs = a->most_arcs;
  begin_growing();
  s->view.graph = take_graph(s->home, s->most_arcs);
  end_growing();
  if (s->view.graph) a->search = (word)s;
  else free(s);
}
EXPORT(search_free)(const struct search_free *a) {
  Search *s = a->search;
  free_known(&s->view);
  begin_growing();
  leave_graph(s->view.graph);
  end_growing();
  free_frames(s);
  free_step(&s->step);
  free(s->frames); free(s->states); free(s->finals); free(s->fresh); free(s->places);
  free(s);
}
EXPORT(search_start)(struct search_start *a) {
  Search *s = a->search; Graph *g = s->view.graph;
  free_frames(s);
  s->finalized = 0;
  a->status = NO_MEMORY;
  if (!grow((void **)&s->states, &s->states_room, 1, 4)) return;
  s->states[0] = g->lazy ? start_of(&s->view) : (int32_t)g->a.start;
  a->status = s->view.failed ? s->view.failed : advance(s, 0);
}
/* Takes frames; those that it took are counted where it fails. */
EXPORT(search_accept)(struct search_accept *a) {
  Search *s = a->search;
  for (int64_t i = 0; i < a->rows; i++) {
    if ((s->frame_count - 1) % s->prune_interval == 0) prune_active(s);
    if (s->view.arcs_met > s->most_arcs)
      shrink_graph(&s->view, s->home, s->most_arcs, s->states,
                   s->frames[s->frame_count - 1].count);
    a->status = s->view.failed ? s->view.failed : advance(s, a->likelihoods + i * s->outputs);
    if (a->status) break;
  }
  a->frames = s->frame_count;
}
EXPORT(search_prune)(const struct search_prune *a) { prune_active(a->search); }
/* Ends the utterance: costs of ending count, and all tokens outside of the lattice go. */
EXPORT(search_finalize)(struct search_finalize *a) {
  Search *s = a->search;
  const int64_t last = s->frame_count - 1, count = s->frames[last].count;
  const Token *tokens = s->frames[last].tokens;
  if (!grow((void **)&s->finals, &s->finals_room, count, 4)) { a->status = NO_MEMORY; return; }
  const int ends = any_ends(s);
  float best = INFINITY;
  for (int64_t i = 0; i < count; i++) {
    s->finals[i] = ending(s, i);
    const float cost = tokens[i].cost + (ends ? s->finals[i] : 0);
    if (cost < best) best = cost;
  }
  s->finalized = 1;
  for (int64_t i = 0; i < count; i++) {
    const float extra = (tokens[i].cost + (ends ? s->finals[i] : 0)) - best;
    s->fresh[i] = extra <= s->lattice_beam ? extra : INFINITY;
  }
  prune_links(s, last, 0);
  for (int64_t number = last - 1; number >= 0; number--) {
    prune_inner(s, number, 0);
    drop_tokens(s, number + 1);
  }
  drop_tokens(s, 0);
}
/* The first newest token with the least cost. */
EXPORT(search_best)(struct search_best *a) {
  const Search *s = a->search;
  const Frame *last = s->frames + s->frame_count - 1;
  for (int64_t i = 1; i < last->count; i++)
    if (last->tokens[i].cost < last->tokens[a->token].cost) a->token = i;
}
/* Costs of the newest tokens, and of ending in them. */
EXPORT(search_newest)(const struct search_newest *a) {
  const Search *s = a->search;
  const Frame *last = s->frames + s->frame_count - 1;
  for (int64_t i = 0; i < a->count; i++) {
    a->costs[i] = last->tokens[i].cost;
    a->finals[i] = ending(s, i);
  }
}
/* The path that leads to a token, from its end back, up to `most` tokens of it. */
EXPORT(search_trace)(struct search_trace *a) {
  const Search *s = a->search;
  int64_t number = a->frame, at = a->token, steps = 0;
  while (at >= 0 && a->count < a->most) {
    const Frame *f = s->frames + number;
    const Token t = f->tokens[at];
    if (++steps > f->count) { a->status = NEGATIVE_LOOP; break; }
    Traced *x = a->path + a->count++;
    *x = (Traced){(int32_t)number, t.ilabel, t.olabel, t.back, -1, t.graph, t.acoustic, 0};
    if (t.ilabel) {
      number--; steps = 0;
      x->name = s->frames[number].names[t.back];
      x->offset = s->frames[number].offset;
    }
    at = t.back;
  }
  a->frame_reached = number; a->token_reached = at;
}
/* How much frames hold, from `first` on. */
EXPORT(search_sizes)(const struct search_sizes *a) {
  const Search *s = a->search;
  for (int64_t i = 0; i < a->rows; i++) {
    const Frame *f = s->frames + a->first + i;
    const int64_t sizes[] = {f->count, f->epsilons, f->emitting, f->counted};
    memcpy(a->sizes + 4 * i, sizes, sizeof(sizes));
  }
}
/* What they hold, frame by frame. */
EXPORT(search_copy)(const struct search_copy *a) {
  const Search *s = a->search;
  int64_t token = 0, link = 0, onward = 0;
  for (int64_t i = 0; i < a->rows; i++) {
    const Frame *f = s->frames + a->first + i;
    memcpy(a->all_tokens + token, f->tokens, f->count * sizeof(Token));
    memcpy(a->names + token, f->names, f->count * 4);
    memcpy(a->links + link, f->links, f->epsilons * sizeof(Link));
    memcpy(a->onward + onward, f->onward, f->emitting * sizeof(Link));
    token += f->count; link += f->epsilons; onward += f->emitting;
    a->offsets[i] = f->offset;
  }
}
