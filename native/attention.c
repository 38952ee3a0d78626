/* Attention head by head, or block of queries by block: operators/backends/attention.py. */
#include "rows.h"

typedef void (*product_t)(void *, const void *, const void *, void *);
static void multiply(const word *p, word a, word b, word c) {
  if (p[0]) ((product_t)p[0])((void *)p[1], (const void *)a, (const void *)b, (void *)c);
}

/* the softmax of a row of products, under the masks of its block; see attend */
static void attend_row(const word *b, const word *u, word i, T *w) {
  const word n = b[4], seen = b[5] ? least(n, u[10] + i + 1) : n;
  const char *mask = (const char *)u[8] + i * b[7], *keys = (const char *)u[9];
  if (u[8] && b[6] == 1) {
    for (word j = 0; j < seen; j++)
      if (!mask[j * b[8]]) w[j] = -INFINITY;
  } else if (u[8]) {
    for (word j = 0; j < seen; j++) w[j] += *(const T *)(mask + j * b[8]);
  }
  if (u[9])
    for (word j = 0; j < seen; j++)
      if (!keys[j * b[9]]) w[j] = -INFINITY;
  T top = top_of(w, seen);
  if (top == -INFINITY) top = 0;  /* it sees nothing */
  const double total = powers_of(w, w, seen, top);
  const T share = total == 0 ? 0 : 1 / total;
#pragma omp simd
  for (word j = 0; j < seen; j++) w[j] *= share;
  for (word j = seen; j < n; j++) w[j] = 0;
}

/* blocks, memory for weights, bytes for each thread, how many may have some; keys, whether queries
   see no later ones; kind of the mask (1: booleans), its steps, that of the mask of keys.
   Of each block: two products (function, handle), query, key, value, out, mask, keys, first query,
   how many, weights or 0 */
EXPORT(attend)(const word *b, word t, word wanted) {
  const word n = least(wanted, b[3]);
  if (t >= n) return;
  for (word i = b[0] * t / n; i < b[0] * (t + 1) / n; i++) {
    const word *u = b + 10 + 13 * i;
    T *w = (T *)(u[12] ? u[12] : b[1] + t * b[2]);
    multiply(u, u[4], u[5], (word)w);
    for (word r = 0; r < u[11]; r++) attend_row(b, u, r, w + r * b[4]);
    multiply(u + 2, (word)w, u[6], u[7]);
  }
}

/* heads, memory, bytes for each thread, how many may have some; queries, keys, columns of out;
   steps of out and out_grad. Of each head: four products, query, key, value, out, out_grad,
   weights, the gradients of query, key and value */
EXPORT(attend_grad)(const word *b, word t, word wanted) {
  const word n = least(wanted, b[3]), width = b[6];
  if (t >= n) return;
  T *pull = (T *)(b[1] + t * b[2]);
  for (word i = b[0] * t / n; i < b[0] * (t + 1) / n; i++) {
    const word *u = b + 9 + 17 * i;
    multiply(u, u[13], u[12], u[16]);  /* value_grad = weights^T out_grad */
    multiply(u + 2, u[12], u[10], (word)pull);  /* of the weights: out_grad value^T */
    for (word r = 0; (u[4] || u[6]) && r < b[4]; r++) {
      const T *out = (const T *)u[11] + r * b[7], *grad = (const T *)u[12] + r * b[8];
      const T *w = (const T *)u[13] + r * b[5];
      SUM(total, width, out[j] * grad[j])
      const T edge = total;
      T *p = pull + r * b[5];
#pragma omp simd
      for (word j = 0; j < b[5]; j++) p[j] = (p[j] - edge) * w[j];
    }
    multiply(u + 4, (word)pull, u[9], u[14]);  /* query_grad = scale pull key */
    multiply(u + 6, (word)pull, u[8], u[15]);  /* key_grad = scale pull^T query */
  }
}
