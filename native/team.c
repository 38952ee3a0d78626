/* Lists of functions that a team of threads runs together: framework/fusion/team.py. There is one
   pool of threads and one count of lists in a process, so this file is there once. */
#include "pool.h"
#include "processor.h"

typedef void (*four)(void *, void *, void *, void *);

/* Functions that read and set the number of threads of a BLAS; 0: none. While a list runs, or a net
   whose products are left to NumPy, it has one: lists have their own, and results must not follow
   what else runs. */
static void *blas[2] = {0, 0};
VISIBLE int64_t opscope_lists[2] = {0, 0};  /* whether somebody is counting; what runs of these */
static int before;  /* what it had before, and gets back; 0: it is as it was */

static int get_blas(void) { return ((int (*)(void))blas[0])(); }
static void set_blas(int number) { ((void (*)(int))blas[1])(number); }

static void begin(void) {
  while (__atomic_test_and_set(opscope_lists, __ATOMIC_ACQUIRE)) {}
}

static void end(void) { __atomic_clear(opscope_lists, __ATOMIC_RELEASE); }

static void lower(void) {
  if (blas[0] && (before = get_blas()) > 1) set_blas(1);
}

EXPORT(opscope_enter)(const void *nothing) {
  begin();
  if (!opscope_lists[1]++) lower();
  end();
}

EXPORT(opscope_leave)(const void *nothing) {
  begin();
  if (opscope_lists[1] && !--opscope_lists[1]) {
    if (before > 1) set_blas(before);
    before = 0;
  }
  end();
}

/* for the child of a fork, where nothing runs */
EXPORT(opscope_forget)(const void *nothing) {
  opscope_lists[0] = opscope_lists[1] = before = 0;
}

EXPORT(opscope_use_blas)(const struct opscope_use_blas *a) {
  begin();
  if (!blas[0]) {
    blas[0] = a->get, blas[1] = a->set;
    if (opscope_lists[1]) lower();
  }
  end();
}

/* how many threads the BLAS shall have while nothing runs, or 0: it says how many it has then */
EXPORT(opscope_blas_threads)(struct opscope_blas_threads *a) {
  begin();
  if (a->number && before)
    before = a->number;
  else if (a->number)
    set_blas(a->number);
  else
    a->number = before ? before : get_blas();
  end();
}

EXPORT(opscope_alone)(const struct list *list) {
  opscope_enter(0);
  run_alone(list);
  opscope_leave(0);
}

EXPORT(opscope_team)(const struct list *list) {
  opscope_enter(0);
  opscope_region(list);
  opscope_leave(0);
}

EXPORT(opscope_copy)(const struct opscope_copy *a, word t, word n) {
  const word *to = a->target_rows, *from = a->source_rows;
  for (word i = a->rows * t / n; i < a->rows * (t + 1) / n; i++)
    memcpy(a->target + (to ? to[i] : i) * a->target_step,
           a->source + (from ? from[i] : i) * a->source_step, a->bytes);
}

/* Each is the places of its last axes, again and again, further on. */
EXPORT(opscope_grids)(const struct opscope_grids *a, word t, word n) {
  const word axes = a->axes;
  word *to = a->places;
  const word *const end = to + a->count;
  for (word g = 0; g < a->grids; g++) {
    const word *first = a->sizes + g * (1 + 2 * axes), *counts = first + 1, *steps = counts + axes;
    word size = 1;
    for (word axis = 0; axis < axes; axis++) size *= counts[axis];
    if (size < 1) continue;
    if (size > end - to) return;
    *to = *first;
    size = 1;
    for (word axis = axes - 1; axis >= 0; axis--) {
      const word count = counts[axis], step = steps[axis];
      if (size == 1)
        for (word k = 1; k < count; k++) to[k] = *to + k * step;
      else
        for (word k = 1; k < count; k++)
          for (word i = 0; i < size; i++) to[k * size + i] = to[i] + k * step;
      size *= count;
    }
    to += size;
  }
}

/* The sum of a polynomial's terms: a factor times the numbers at some places, of which a 0 is the end.
   wrong: whether it leaves 64 bits. */
static word sum_of_terms(const struct opscope_polynomials *a, word number, int *wrong) {
  word sum = 0;
  for (word i = number ? a->ends[number - 1] : 0; i < a->ends[number]; i++) {
    const word *at = a->places + i * a->depth;
    word term = a->factors[i];
    for (word d = 0; d < a->depth && at[d]; d++)
      *wrong |= __builtin_mul_overflow(term, a->numbers[at[d]], &term);
    *wrong |= __builtin_add_overflow(sum, term, &sum);
  }
  return sum;
}

/* NumPy took 25 operations for some hundred polynomials, each a call that took longer than its sums. */
EXPORT(opscope_polynomials)(struct opscope_polynomials *a, word t, word n) {
  int wrong = 0;
  for (word i = 0; i < a->parts; i++) a->met[i] = 1;
  for (word i = 0; i < a->fixed; i++)
    if (a->row[a->fixed_at[i]] != a->fixed_values[i]) a->met[a->fixed_of[i]] = 0;
  for (word i = 0; i < a->sized; i++) {
    const word size = a->row[a->sized_at[i]];
    wrong |= size % a->units[i] != 0;
    a->numbers[a->sized_numbers[i]] = size / a->units[i];
  }
  for (word i = 0; i < a->quotients; i++) {
    const word rest = sum_of_terms(a, a->rests[i], &wrong);
    word by = sum_of_terms(a, a->divisors[i], &wrong);
    if (!by) a->met[a->quotient_of[i]] = 0, by = 1;
    if (by == -1) {  /* the least number has no negative, and the processor stops at that */
      wrong |= __builtin_sub_overflow(0, rest, a->numbers + a->quotient_numbers[i]);
      continue;
    }
    a->numbers[a->quotient_numbers[i]] = rest / by - (rest % by && (rest % by < 0) != (by < 0));
  }
  for (word i = 0; i < a->conditions; i++) {
    const word value = sum_of_terms(a, a->first_condition + i, &wrong);
    const word sign = a->signs[i];  /* 0: at least 0; 1: 0; 2: not 0 */
    if (sign ? (value == 0) != (sign == 1) : value < 0) a->met[a->condition_of[i]] = 0;
  }
  for (word i = 0; i < a->wanted; i++)
    a->values[i] = sum_of_terms(a, a->first_wanted + i, &wrong);
  a->wrong = wrong;
}

/* Rows lie anywhere in a large table: those of the next ids come from memory meanwhile. */
EXPORT(opscope_take)(struct opscope_take *a, word t, word n) {
  enum { NEXT = 8, NEAR = 4 };  /* ids ahead; cache lines of a row, after which the processor sees */
  const word end = a->count * (t + 1) / n, rows = a->rows, bytes = a->bytes;
  for (word i = a->count * t / n; i < end; i++) {
    if (i + NEXT < end) {
      const word next = a->ids[(i + NEXT) * a->ids_step];
      if (next >= 0 && next < rows)
        for (word at = 0; at < least(bytes, NEAR * LINE); at += LINE)
          __builtin_prefetch(a->source + next * a->source_step + at);
    }
    const word id = a->ids[i * a->ids_step];
    if (id >= 0 && id < rows)
      memcpy(a->target + i * bytes, a->source + id * a->source_step, bytes);
    else if (a->gaps)
      memset(a->target + i * bytes, 0, bytes);
    else
      __atomic_store_n(&a->bad, 1, __ATOMIC_RELAXED);
  }
}

EXPORT(opscope_parts)(const struct opscope_parts *a, word t, word n) {
  for (word i = a->count * t / n; i < a->count * (t + 1) / n; i++) {
    const struct gemm_part *p = a->parts + i;
    for (word row = 0; p->bias && row < p->rows; row++)
      memcpy(p->c + row * p->step, p->bias, p->bytes);
    ((four)p->function)(p->handle, (void *)p->a, (void *)p->b, p->c);
  }
}

EXPORT(opscope_beside)(const struct opscope_beside *a, word t, word n) {
  for (word i = a->count * t / n; i < a->count * (t + 1) / n; i++) run_alone(a->lists + i);
}

EXPORT(opscope_blocks)(const struct opscope_blocks *a, word t, word n) {
  for (word c = a->blocks * t / n; c < a->blocks * (t + 1) / n; c++)
    for (word i = 0; i < a->count; i++) run_part(a->items + i, c, a->blocks);
}
