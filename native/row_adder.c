/* Rows added to rows by their numbers: operators/base/row_adder.py.

   Where rows that lie anywhere are added to rows that lie anywhere, the places are sorted first: each
   row of sums stays in registers then, and memory is asked for what is read alone. */
#include "vectors.h"
#include "row_adder_arguments.h"

/* Each thread does columns of its own, in the order of the numbers. Numbers of no row, which a
   forward operator refuses, must not reach other memory where a net has its gradient alone. */
EXPORT(add_rows)(const struct add_rows *a, word t, word n) {
  const word cols = a->columns, first = cols * t / n, last = cols * (t + 1) / n;
  for (word i = 0; i < a->count; i++) {
    const word row = a->ids[i] < 0 ? a->ids[i] + a->rows : a->ids[i];
    if ((uint64_t)row >= (uint64_t)a->rows) continue;
    T *to = a->out + row * cols;
    const word place = a->places ? a->places[i] : i;
    if ((uint64_t)place >= (uint64_t)a->taken) continue;
    const T *x = a->values + place * cols;
    word j = first;
    for (; j + 4 * LANES <= last; j += 4 * LANES) {
      row_t s[4];
#pragma GCC unroll 4
      for (int v = 0; v < 4; v++) s[v] = *(row_t *)(to + j + v * LANES) + *(const row_t *)(x + j + v * LANES);
#pragma GCC unroll 4
      for (int v = 0; v < 4; v++) *(row_t *)(to + j + v * LANES) = s[v];
    }
    for (; j + LANES <= last; j += LANES) *(row_t *)(to + j) += *(const row_t *)(x + j);
    for (; j < last; j++) to[j] += x[j];
  }
}

/* a number of `size` rows, counted from the front; one that is none stays out of range */
INLINE word from_front(const word number, const word size, const word from_end) {
  return number + (from_end && number < 0 ? size : 0);
}

/* Sorts the places by their ids, those of one id in their order (counting sort). */
EXPORT(order_rows)(struct order_rows *a, word t, word n) {
  if (t) return;
  const word *ids = a->ids, *places = a->places, rows = a->rows, taken = a->taken;
  word *ends = a->ends, *order = a->order, bad = 0;
  memset(ends, 0, (rows + 1) * sizeof(word));
  for (word i = 0; i < a->count; i++) {
    const word id = from_front(ids[i], rows, a->ids_from_end);
    const word place = from_front(places[i], taken, a->places_from_end);
    const int fits = (uint64_t)id < (uint64_t)rows && (uint64_t)place < (uint64_t)taken;
    bad |= !fits;
    ends[fits ? id + 1 : 0]++;
  }
  a->bad = bad;
  if (bad) return;
  for (word row = 0; row < rows; row++) ends[row + 1] += ends[row];
  for (word i = 0; i < a->count; i++) {
    word *end = ends + from_front(ids[i], rows, a->ids_from_end);
    order[(*end)++] = from_front(places[i], taken, a->places_from_end);
  }
}

enum { WIDE = 4, AHEAD = 8 };  /* vectors that stay in registers; rows that are asked for early */

/* `wide` vectors of a row, or zeros, plus those of the values `from` to `to` */
INLINE void sum_row(const int wide, const struct order_rows *a, const T *begin, T *out, word from,
                    word to, word column) {
  const word columns = a->columns, *order = a->order;
  const T *values = a->values + column;
  vec_t s[WIDE];
#pragma GCC unroll 4
  for (int v = 0; v < wide; v++)
    s[v] = begin ? *(const row_t *)(begin + column + v * LANES) : (row_t){0};
  for (word i = from; i < to; i++) {
    const T *x = values + order[i] * columns;
    if (i + AHEAD < a->count)
#pragma GCC unroll 4
      for (int v = 0; v < wide; v++)
        __builtin_prefetch(values + order[i + AHEAD] * columns + v * LANES);
#pragma GCC unroll 4
    for (int v = 0; v < wide; v++) s[v] += *(const row_t *)(x + v * LANES);
  }
#pragma GCC unroll 4
  for (int v = 0; v < wide; v++) *(row_t *)(out + column + v * LANES) = s[v];
}

/* the first row whose values end after number `i` */
static word row_at(const struct order_rows *a, word i) {
  word low = 0, high = a->rows;
  while (low < high) {
    const word middle = (low + high) / 2;
    if (a->ends[middle] > i)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* Threads take rows that have equally many values in all. */
EXPORT(sum_rows)(struct order_rows *a, word t, word n) {
  const word columns = a->columns, first = t ? row_at(a, a->count * t / n) : 0;
  const word last = t + 1 < n ? row_at(a, a->count * (t + 1) / n) : a->rows;
  if (a->bad) return;
  for (word row = first; row < last; row++) {
    const word from = row ? a->ends[row - 1] : 0, to = a->ends[row];
    const T *begin = a->begin ? a->begin + row * columns : 0;
    T *out = a->out + row * columns;
    word c = 0;
    for (; c + WIDE * LANES <= columns; c += WIDE * LANES) sum_row(WIDE, a, begin, out, from, to, c);
    for (; c + LANES <= columns; c += LANES) sum_row(1, a, begin, out, from, to, c);
    for (; c < columns; c++) {
      T s = begin ? begin[c] : 0;
      for (word i = from; i < to; i++) s += a->values[a->order[i] * columns + c];
      out[c] = s;
    }
  }
}
