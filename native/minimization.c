/* Transducers minimized: kaldi/fst/algorithms/partition.py.

   Classes of states are refined until the arcs of all states of a class have the same
   labels and weights, and lead to the same classes. Only states whose arcs lead to what has changed
   its class are looked at again. Arcs are compared by hashes of 128 bits. */
#include "base.h"
#include "minimization_arguments.h"
#include "transducers.h"

typedef struct { uint64_t high, low; } Hash;
typedef struct { int32_t class, state; Hash hash; } Signed;
typedef struct {
  const struct fst *f;
  float step;
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
static float rounded(const Partition *p, float weight) {
  return floorf(weight / p->step + 0.5f) * p->step;
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
    stir(h, (uint64_t)bits_of(rounded(p, a.weight)) << 32 | (uint32_t)p->class[a.nextstate]);
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
    m->final[m->states] = rounded(p, f->final[s]);
    m->begin[m->states++] = m->count;
    Arc *arcs = m->arcs + m->count;
    const int64_t size = f->begin[s + 1] - f->begin[s];
    for (int64_t i = 0; i < size; i++) {
      arcs[i] = f->arcs[f->begin[s] + i];
      arcs[i].weight = rounded(p, arcs[i].weight);
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
    p->signs[s] = (Signed){0, (int32_t)s, {bits_of(rounded(p, f->final[s])), 0}};
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
  Partition p = {.f = f, .step = (float)a->step};
  Made m = {0};
  a->status = NO_MEMORY;
  p.class = malloc(n * sizeof(int32_t)); p.size = calloc(n, sizeof(int32_t));
  p.todo = malloc(n * sizeof(int32_t)); p.is_todo = calloc(n, 1);
  p.signs = malloc(n * sizeof(Signed));
  if (p.class && p.size && p.todo && p.is_todo && p.signs && turn_arcs(f, &p.begin, &p.source)) {
    begin_classes(&p);
    if (refine(&p) && merge(&p, &m)) {
      m.start = p.size[p.class[f->start]];
      GIVE(a, m);
      a->status = 0;
    }
  }
  if (a->status) free_made(&m);
  free(p.class); free(p.size); free(p.todo); free(p.is_todo); free(p.signs);
  free(p.hashes); free(p.begin); free(p.source);
}
