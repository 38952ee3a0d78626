/* Sequences of labels or ids, each a node of a tree: one with another id at its end is the child of
   what it had before. Node 0 is the empty one. */
#pragma once
#include "growing.h"
#include <string.h>

typedef struct { int32_t before, last, length, next; } Node;  /* next: of its hash, or unused */
/* live: those that are used, the empty one left out. unused: nodes that a next one may be. */
typedef struct {
  Node *nodes; int64_t count, room, slots, live; int32_t *heads, unused;
} Sequences;

static uint64_t node_hash(int32_t before, int32_t last) {
  return mixed((uint64_t)(uint32_t)before << 32 | (uint32_t)last);
}
/* Hashes all nodes anew, or those that are `kept`, and the others are unused; 0 without memory. */
static int hash_nodes(Sequences *s, int64_t slots, const uint8_t *kept) {
  int32_t *heads = calloc(slots, sizeof *heads);
  if (!heads) return 0;
  free(s->heads);
  s->heads = heads; s->slots = slots;
  if (kept) s->live = s->unused = 0;
  for (int64_t i = 1; i < s->count; i++) {
    Node *n = s->nodes + i;
    if (kept && !kept[i]) {
      *n = (Node){0, 0, -1, s->unused};
      s->unused = (int32_t)i;
      continue;
    }
    if (n->length < 0) continue;        /* unused before */
    int32_t *head = heads + (node_hash(n->before, n->last) & (slots - 1));
    n->next = *head; *head = (int32_t)i;
    if (kept) s->live++;
  }
  return 1;
}
/* The empty sequence alone; 0 without memory. */
static int make_sequences(Sequences *s, int64_t slots) {
  if (!GROW(s->nodes, s->room, 1) || !hash_nodes(s, slots, 0)) return 0;
  s->nodes[s->count++] = (Node){0};
  return 1;
}
static void free_sequences(Sequences *s) { free(s->nodes); free(s->heads); }

/* A sequence with one more id at its end; -1 without memory. */
static int32_t with_id(Sequences *s, int32_t sequence, int32_t id) {
  if (s->live >= s->slots && !hash_nodes(s, s->slots * 2, 0)) return -1;
  int32_t *head = s->heads + (node_hash(sequence, id) & (s->slots - 1));
  for (int32_t i = *head; i; i = s->nodes[i].next)
    if (s->nodes[i].before == sequence && s->nodes[i].last == id) return i;
  int32_t made = s->unused;
  if (made) s->unused = s->nodes[made].next;
  else {
    if (s->count >= MOST_ENTRIES || !GROW(s->nodes, s->room, s->count + 1)) return -1;
    made = (int32_t)s->count++;
  }
  s->nodes[made] = (Node){sequence, id, s->nodes[sequence].length + 1, *head};
  *head = made;
  s->live++;
  return made;
}
/* What two sequences begin with. */
static int32_t prefix(const Sequences *s, int32_t one, int32_t other) {
  const Node *n = s->nodes;
  while (one != other)
    if (n[one].length >= n[other].length) one = n[one].before;
    else other = n[other].before;
  return one;
}
/* Writes the last `count` ids of a sequence. */
static void write_ids(const Sequences *s, int32_t sequence, int64_t count, int32_t *ids) {
  for (; count > 0; sequence = s->nodes[sequence].before) ids[--count] = s->nodes[sequence].last;
}
/* A sequence with what follows the first `size` ids of another one; -1 without memory. */
static int32_t appended(Sequences *s, int32_t sequence, int32_t other, int64_t size) {
  const int64_t count = s->nodes[other].length - size;
  int32_t few[64], *ids = count > 64 ? malloc(count * sizeof *ids) : few;
  if (!ids) return -1;
  write_ids(s, other, count, ids);
  for (int64_t i = 0; i < count && sequence >= 0; i++) sequence = with_id(s, sequence, ids[i]);
  if (ids != few) free(ids);
  return sequence;
}
