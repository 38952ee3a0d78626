/* Boxes that overlap no better one: bridges/onnx/importing/kinds/selection.py. */
#include "base.h"
#include "boxes_arguments.h"

enum { TOP, LEFT, BOTTOM, RIGHT, AREA, SIDES, PIECE = 32 };  /* PIECE: boxes compared at once */

/* As NumPy has them: NaN, where either is. */
static float lesser(float x, float y) { return x < y || x != x ? x : y; }
static float greater(float x, float y) { return x > y || x != x ? x : y; }

/* By falling scores, NaN last; of equal ones, the first. */
static int is_before(const float *scores, word x, word y) {
  const float ours = scores[x], other = scores[y];
  if (ours > other) return 1;
  if (ours == other || (ours != ours && other != other)) return x < y;
  return other != other;
}

/* Puts `box` into a heap whose first place, `at`, is free. */
static void sink(const float *scores, word *heap, word size, word at, word box) {
  for (word next; (next = 2 * at + 1) < size; at = next) {
    if (next + 1 < size && is_before(scores, heap[next + 1], heap[next])) next++;
    if (!is_before(scores, heap[next], box)) break;
    heap[at] = heap[next];
  }
  heap[at] = box;
}

/* The corners of the boxes, the lower of each side first; a box of a negative size has none. */
static void take_corners(struct best_boxes *a) {
  for (word box = 0; box < a->count; box++)
    for (int side = 0; side < 2; side++) {
      const float *own = a->boxes + 4 * box + side, half = own[2] / 2;
      a->corners[4 * box + side] = a->centered ? own[0] - half : lesser(own[0], own[2]);
      a->corners[4 * box + 2 + side] = a->centered ? own[0] + half : greater(own[0], own[2]);
    }
}

/* Boxes come by falling scores. Most are never asked for, so that a heap spares sorting them. */
static word take_best(const struct best_boxes *a, const float *scores, word *best_ones) {
  const float bound = a->bound, least_score = a->least_score;
  word *heap = a->heap, size = 0, kept = 0;
  for (word box = 0; box < a->count; box++)
    if (!a->limited || scores[box] > least_score) heap[size++] = box;
  for (word at = size / 2; at-- > 0;) sink(scores, heap, size, at, heap[at]);
  while (size && kept < a->most) {
    const word best = heap[0];
    const float *own = a->corners + 4 * best;
    const float area = (own[BOTTOM] - own[TOP]) * (own[RIGHT] - own[LEFT]);
    float *line[SIDES];
    for (int side = 0; side < SIDES; side++) line[side] = a->sides + side * a->most;
    int clashes = 0;
    for (word begin = 0; begin < kept && !clashes; begin += PIECE)
      for (word j = begin; j < least(kept, begin + PIECE); j++) {
        const float tall = lesser(own[BOTTOM], line[BOTTOM][j]) - greater(own[TOP], line[TOP][j]);
        const float wide = lesser(own[RIGHT], line[RIGHT][j]) - greater(own[LEFT], line[LEFT][j]);
        const float common = greater(tall, 0) * greater(wide, 0);
        /* of NaN and infinite boxes the share is NaN: they neither clash nor are in the way */
        clashes |= common / (area + line[AREA][j] - common) > bound;
      }
    if (!clashes) {
      for (int side = 0; side < AREA; side++) line[side][kept] = own[side];
      line[AREA][kept] = area;
      best_ones[kept++] = best;
    }
    size--;
    sink(scores, heap, size, 0, heap[size]);
  }
  return kept;
}

EXPORT(best_boxes)(struct best_boxes *a, word t, word n) {
  take_corners(a);
  for (word label = 0; label < a->classes; label++)
    a->found[label] = take_best(a, a->scores + label * a->count, a->kept + label * a->most);
}
