/* Decoding graphs: static arcs, and composition on the fly with a table of states.

   speech/fst/composition.py does the same in NumPy; both give the same arcs in the same order.

   Searches share what was composed. States and arcs stay where they are while more are made, under
   a lock, so that others need none to read them. */
#pragma once
#include "base.h"
#include "growing.h"
#include "search_arguments.h"
#include <math.h>
#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif
#if (defined(__unix__) || defined(__APPLE__)) && !defined(__wasm__)
#include <pthread.h>
#include <sched.h>
#define give_way sched_yield
#else
static int give_way(void) { return 0; }
#endif

typedef struct { int32_t s1, s2, label, filter; float weight; } Tuple;
/* The arcs of a state: those with an input label, then epsilons, then where all of them lead to in
   OpenFst's order, which mixes both sorts: int32. 0: they are not made yet. */
typedef struct { const Arc *arcs; int32_t emitting, epsilons; } State;
enum { STATES = 1 << 14, ARCS = 1 << 16, SLAB = 8 };  /* that are allocated at once */
/* What a search reads at each step, and apart from it what makes arcs and finds states. */
typedef struct { State states[STATES]; Tuple tuples[STATES]; } Chunk;
/* What was looked ahead: the only arc, of those of s2, or one of these. */
typedef struct { int64_t key; float weight; int32_t arc; } Memo;
enum { MANY_ARCS = -1, NOTHING = -2 };
typedef struct { const float *final; const int64_t *begin; const Arc *arcs; int64_t start; } Fst;
typedef struct Block { struct Block *next; size_t size; Arc arcs[]; } Block;
/* What is composed; the FSTs and what looking ahead needs. */
typedef struct {
  int64_t lazy, most;
  Fst a, b;
  const int32_t *epsilons, *intervals, *interval_set, *labels;
  Memo *memo; int64_t memos, memo_slots;  /* what was looked ahead, by set of intervals and s2 */
  const int64_t *interval_begin;
  const double *sums;
  int32_t final_label;
  const int32_t *emitting;     /* of a static graph's states */
  Chunk **chunks; int64_t states, chunks_used;
  Block *blocks; int64_t arcs_used, arcs_left;
  int32_t *table; int64_t slots;
  Arc *work; int64_t work_used, work_room;
  int failed;                  /* NO_MEMORY or MANY_STATES */
  int64_t users;               /* searches, and the home of which it is the newest */
} Graph;
/* The graph that new searches share. */
typedef struct { Graph *newest; } Home;
/* What one search knows of a state, side by side, since it is asked for together: nearly each look
   misses the caches. */
typedef struct {
  uint32_t number;             /* 2 n + 2 of the n-th state that it met, and 1 where all that its
                                  arcs lead to have numbers; 0: not met */
  int32_t token;               /* one more than the place of its token in this frame; 0: none */
} Known;
/* What one search knows of a graph. Numbers are in the order in which it met states, by which
   Kaldi's hash sorts tokens: they do not depend on what others composed. In a static graph states
   are their own numbers. */
typedef struct {
  Graph *graph;
  Known *known; int64_t room;
  int32_t numbered; int64_t arcs_met;
  int failed;
} View;

/* Memory of zeros that is read here and there: huge pages, where there are some, spare a processor
   most walks through the tables of addresses. It comes from the system and goes back there: in the
   C library's heaps it would leave holes of megabytes. */
enum { HUGE_PAGE = 1 << 21 };
static void *scattered(size_t size) {
#ifdef MADV_HUGEPAGE
  if (size >= HUGE_PAGE) {
    const int kind = MAP_PRIVATE | MAP_ANONYMOUS;
    char *made = mmap(0, size + HUGE_PAGE, PROT_READ | PROT_WRITE, kind, -1, 0);
    if (made == MAP_FAILED) return 0;
    const size_t before = -(uintptr_t)made % HUGE_PAGE, page = getpagesize();
    if (before) munmap(made, before);
    made += before;
    munmap(made + (size + page - 1) / page * page, HUGE_PAGE - before);
    madvise(made, size, MADV_HUGEPAGE);
    return made;
  }
#endif
  return calloc(1, size);
}
static void free_scattered(void *at, size_t size) {
#ifdef MADV_HUGEPAGE
  if (size >= HUGE_PAGE) { munmap(at, size); return; }
#endif
  free(at);
}
static void free_known(View *v) {
  if (v->graph->lazy) free_scattered(v->known, v->room * sizeof(Known));
  else free(v->known);
  v->known = 0; v->room = 0;
}
/* Makes room for `wanted` states. Of a graph that is composed, a search meets most of what others
   met; of a large static one it touches so little that huge pages would be nearly empty. */
static int grow_known(View *v, int64_t wanted) {
  if (wanted <= v->room) return 1;
  const int64_t more = v->room * 2 > wanted ? v->room * 2 : wanted + 1024;
  Known *made = v->graph->lazy ? scattered(more * sizeof(Known)) : calloc(more, sizeof(Known));
  if (!made) return 0;
  if (v->room) memcpy(made, v->known, v->room * sizeof(Known));
  free_known(v);
  v->known = made; v->room = more;
  return 1;
}

static char growing;
/* Held while states and arcs are made, and where graphs are taken and left. */
static void begin_growing(void) {
  while (__atomic_test_and_set(&growing, __ATOMIC_ACQUIRE)) give_way();
}
static void end_growing(void) { __atomic_clear(&growing, __ATOMIC_RELEASE); }
#ifdef give_way
/* A fork finds nothing half done. */
__attribute__((constructor)) static void watch_forks(void) {
  pthread_atfork(begin_growing, end_growing, end_growing);
}
#endif
static State *state_at(const Graph *g, int64_t state) {
  return g->chunks[state / STATES]->states + state % STATES;
}
static Tuple *tuple_at(const Graph *g, int64_t state) {
  return g->chunks[state / STATES]->tuples + state % STATES;
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
  int32_t *table = scattered(slots * sizeof(int32_t));
  if (!table) return 0;
  memset(table, -1, slots * sizeof(int32_t));
  for (int64_t s = 0; s < g->states; s++) {
    uint64_t at = hash_of(tuple_at(g, s)) & (slots - 1);
    while (table[at] >= 0) at = (at + 1) & (slots - 1);
    table[at] = (int32_t)s;
  }
  free_scattered(g->table, g->slots * sizeof(int32_t));
  g->table = table; g->slots = slots;
  return 1;
}
static int32_t state_of(Graph *g, int32_t s1, int32_t s2, int32_t filter, float weight,
                        int32_t label) {
  Tuple t = {s1, s2, label, filter, weight + 0.0f};
  if (g->states * 2 >= g->slots && !rehash(g, g->slots * 2)) { g->failed = NO_MEMORY; return 0; }
  uint64_t at = hash_of(&t) & (g->slots - 1);
  for (; g->table[at] >= 0; at = (at + 1) & (g->slots - 1))
    if (same(tuple_at(g, g->table[at]), &t)) return g->table[at];
  if (g->states >= g->most) { g->failed = MANY_STATES; return 0; }
  if (g->states >= g->chunks_used * STATES) {
    /* One chunk serves small graphs; then come as many as fill huge pages. */
    const int64_t n = g->chunks_used;
    Chunk *made = !n ? calloc(1, sizeof(Chunk))
                  : (n - 1) % SLAB ? g->chunks[n - 1] + 1
                                   : scattered(SLAB * sizeof(Chunk));
    if (!made) { g->failed = NO_MEMORY; return 0; }
    g->chunks[g->chunks_used++] = made;
  }
  *tuple_at(g, g->states) = t;
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
  Memo *made = scattered(slots * sizeof(Memo));
  if (!made) return 0;
  for (int64_t i = 0; i < slots; i++) made[i].key = -1;
  for (int64_t i = 0; i < g->memo_slots; i++) {
    if (g->memo[i].key < 0) continue;
    uint64_t at = memo_slot(g->memo[i].key, slots);
    while (made[at].key >= 0) at = (at + 1) & (slots - 1);
    made[at] = g->memo[i];
  }
  free_scattered(g->memo, g->memo_slots * sizeof(Memo));
  g->memo = made; g->memo_slots = slots;
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
    m->arc = !search_ahead(g, s1, s2, &m->weight, prefix) ? NOTHING
             : *prefix ? (int32_t)(*prefix - g->b.arcs - g->b.begin[s2]) : MANY_ARCS;
  }
  *weight = m->weight;
  *prefix = m->arc >= 0 ? g->b.arcs + g->b.begin[s2] + m->arc : 0;
  return m->arc != NOTHING;
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
/* Makes room for arcs, and for as many states that they lead to. */
static Arc *new_arcs(Graph *g, int64_t count) {
  const int64_t wanted = count + (count + 3) / 4;  /* four states are as long as an arc */
  if (wanted > g->arcs_left) {
    const int64_t usual = g->blocks ? SLAB * ARCS - sizeof(Block) / sizeof(Arc) - 1 : ARCS;
    const int64_t room = wanted > usual ? wanted : usual;
    const size_t size = sizeof(Block) + room * sizeof(Arc);
    Block *made = scattered(size);
    if (!made) return 0;
    made->next = g->blocks; made->size = size;
    g->blocks = made; g->arcs_left = room;
  }
  return g->blocks->arcs + (g->arcs_left -= wanted);
}
static void expand(Graph *g, int64_t number) {
  State *state = state_at(g, number);
  const Tuple t = *tuple_at(g, number);
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
  const int64_t count = g->work_used;
  Arc *arcs = g->failed ? 0 : new_arcs(g, count);
  if (!arcs) { if (!g->failed) g->failed = NO_MEMORY; return; }
  int32_t *met = (int32_t *)(arcs + count);
  int64_t used = 0;
  for (int turn = 0; turn < 2; turn++) {
    for (int64_t i = 0; i < count; i++)
      if ((g->work[i].ilabel == 0) == turn) arcs[used++] = g->work[i];
    if (!turn) state->emitting = (int32_t)used;
  }
  for (int64_t i = 0; i < count; i++) met[i] = g->work[i].nextstate;
  state->epsilons = (int32_t)count - state->emitting;
  g->arcs_used += count;
  __atomic_store_n(&state->arcs, arcs, __ATOMIC_RELEASE);  /* who sees them may read the rest */
}
/* Gives a state the next number where it has none. */
static void number_state(View *v, int32_t state) {
  if (!grow_known(v, state + 1)) { v->failed = NO_MEMORY; return; }
  if (!v->known[state].number) v->known[state].number = 2 * (uint32_t)v->numbered++ + 2;
}
/* Numbers what the arcs of a state lead to, and makes these where nobody has. */
static void visit(View *v, int64_t number) {
  Graph *g = v->graph;
  const State *state = state_at(g, number);
  if (!__atomic_load_n(&state->arcs, __ATOMIC_ACQUIRE)) {
    begin_growing();
    if (!state->arcs) expand(g, number);
    v->failed = g->failed; g->failed = 0;
    end_growing();
    if (v->failed) return;
  }
  const int64_t count = state->emitting + state->epsilons;
  const int32_t *met = (const int32_t *)(state->arcs + count);
  for (int64_t i = 0; i < count; i++) number_state(v, met[i]);
  v->arcs_met += count;
  v->known[number].number |= 1;
}
/* The start state, with a number. */
static int32_t start_of(View *v) {
  Graph *g = v->graph;
  begin_growing();
  const int32_t state = state_of(g, (int32_t)g->a.start, (int32_t)g->b.start, 0, 0, -1);
  v->failed = g->failed; g->failed = 0;
  end_growing();
  if (!v->failed) number_state(v, state);
  return state;
}
/* The arcs of a state: those with an input label, then the epsilons behind them. */
static const Arc *arcs_of(View *v, int64_t state, int64_t *emitting, int64_t *epsilons) {
  const Graph *g = v->graph;
  if (!g->lazy) {
    *emitting = g->emitting[state];
    *epsilons = g->a.begin[state + 1] - g->a.begin[state] - *emitting;
    return g->a.arcs + g->a.begin[state];
  }
  const State *x = state_at(g, state);
  if (!(v->known[state].number & 1)) {
    visit(v, state);
    if (v->failed) { *emitting = *epsilons = 0; return 0; }
  }
  *emitting = x->emitting; *epsilons = x->epsilons;
  return x->arcs;
}
enum { LINE_ARCS = 64 / sizeof(Arc), MOST_LINES = 4 };  /* of the caches; that are asked for */
/* Asks for the memory that `arcs_of` reads, before its turn: most of these reads miss the caches. */
static void ask_state(const View *v, int64_t state) {
  const Graph *g = v->graph;
  if (g->lazy) {
    __builtin_prefetch(state_at(g, state));
    __builtin_prefetch(v->known + state);
  } else {
    __builtin_prefetch(g->emitting + state);
    __builtin_prefetch(g->a.begin + state);
  }
}
/* The same for some arcs of a state that was asked for: those with an input label, or epsilons. */
static void ask_arcs(const View *v, int64_t state, int epsilons) {
  const Graph *g = v->graph;
  const Arc *arcs = g->a.arcs;
  int64_t emitting;
  if (g->lazy) {
    const State *x = state_at(g, state);
    arcs = __atomic_load_n(&x->arcs, __ATOMIC_RELAXED);
    if (!arcs) return;
    emitting = x->emitting;
  } else {
    arcs += g->a.begin[state];
    emitting = g->emitting[state];
  }
  if (epsilons) __builtin_prefetch(arcs + emitting);
  else
    for (int64_t i = 0; i < emitting && i < MOST_LINES * LINE_ARCS; i += LINE_ARCS)
      __builtin_prefetch(arcs + i);
}
/* The same for what a first visit reads: where arcs lead to, and then what is known of that. */
static void ask_visit(const View *v, int64_t state, int known) {
  const Graph *g = v->graph;
  if (!g->lazy || v->known[state].number & 1) return;
  const State *x = state_at(g, state);
  const Arc *arcs = __atomic_load_n(&x->arcs, __ATOMIC_ACQUIRE);
  if (!arcs) return;
  const int64_t count = x->emitting + x->epsilons;
  const int32_t *met = (const int32_t *)(arcs + count);
  if (!known) __builtin_prefetch(met);
  else
    for (int64_t i = 0; i < count && i < MOST_LINES * LINE_ARCS; i++)
      if (met[i] < v->room) __builtin_prefetch(v->known + met[i]);
}
static float final_of(const Graph *g, int64_t state) {
  if (!g->lazy) return g->a.final[state];
  const Tuple *t = tuple_at(g, state);
  return t->label >= 0 ? INFINITY : (g->a.final[t->s1] - t->weight) + g->b.final[t->s2];
}
static Fst fst_of(const struct fst *a) {
  return (Fst){a->final, a->begin, a->arcs, a->start};
}
static Graph *composed(const Graph *like) {
  Graph *g = malloc(sizeof(Graph));
  if (!g) return 0;
  *g = *like;
  g->chunks = calloc(g->most / STATES + 1, sizeof(Chunk *));
  if (g->chunks && rehash(g, 1 << 12)) return g;
  free(g->chunks); free(g);
  return 0;
}
/* One user less; the last one frees it. */
static void leave_graph(Graph *g) {
  if (--g->users) return;
  if (g->chunks_used) free(g->chunks[0]);
  for (int64_t i = 1; i < g->chunks_used; i += SLAB)
    free_scattered(g->chunks[i], SLAB * sizeof(Chunk));
  for (Block *next; g->blocks; g->blocks = next) {
    next = g->blocks->next;
    free_scattered(g->blocks, g->blocks->size);
  }
  free_scattered(g->table, g->slots * sizeof(int32_t));
  free_scattered(g->memo, g->memo_slots * sizeof(Memo));
  free(g->chunks); free(g->work); free(g);
}
/* The graph that searches share, a new one where more than `most` arcs were composed: one user more.
   0: there is no memory. */
static Graph *take_graph(Home *home, int64_t most) {
  Graph *g = home->newest;
  if (g->lazy && g->arcs_used > most) {
    Graph like = {.lazy = 1, .most = g->most, .a = g->a, .b = g->b, .epsilons = g->epsilons,
                  .intervals = g->intervals, .interval_set = g->interval_set, .labels = g->labels,
                  .interval_begin = g->interval_begin, .sums = g->sums,
                  .final_label = g->final_label, .users = 1};
    Graph *made = composed(&like);
    if (!made) return 0;
    leave_graph(g);
    g = home->newest = made;
  }
  g->users++;
  return g;
}
EXPORT(graph_new)(struct graph_new *a) {
  Graph like = {.lazy = a->lazy, .most = a->most, .a = fst_of(&a->first), .users = 1};
  if (a->lazy) {
    like.b = fst_of(&a->second);
    like.epsilons = a->epsilons;
    like.interval_begin = a->interval_begin; like.intervals = a->intervals;
    like.final_label = (int32_t)a->final_label;
    like.interval_set = a->interval_set; like.labels = a->labels;
    like.sums = a->sums;
  } else {
    like.emitting = a->emitting;
  }
  Home *home = malloc(sizeof(Home));
  Graph *g = home ? composed(&like) : 0;
  if (!g) { free(home); return; }
  if (!g->lazy) g->states = a->first.states;
  home->newest = g;
  a->graph = (word)home;
}
EXPORT(graph_free)(const struct graph_free *a) {
  Home *home = a->graph;
  begin_growing();
  leave_graph(home->newest);
  end_growing();
  free(home);
}
/* Forgets what was met, but for these states, which get new numbers. */
static void number_anew(View *v, const int32_t *states, int64_t count) {
  free_known(v);
  v->numbered = 0; v->arcs_met = 0;
  for (int64_t i = 0; i < count; i++) number_state(v, states[i]);
}
/* The same, with the states in the graph that searches share now. */
static void shrink_graph(View *v, Home *home, int64_t most, int32_t *states, int64_t count) {
  begin_growing();
  Graph *old = v->graph, *g = take_graph(home, most);
  if (g) {
    for (int64_t i = 0; g != old && i < count; i++) {
      const Tuple *t = tuple_at(old, states[i]);
      states[i] = state_of(g, t->s1, t->s2, t->filter, t->weight, t->label);
    }
    v->failed = g->failed; g->failed = 0;
    v->graph = g;
    leave_graph(old);
  } else v->failed = NO_MEMORY;
  end_growing();
  if (!v->failed) number_anew(v, states, count);
}
