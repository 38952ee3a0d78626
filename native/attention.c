/* Attention head by head, or block of queries by block: operators/backends/attention.py. */
#include "rows.h"
#include "attention_arguments.h"

typedef void (*product_t)(void *, const void *, const void *, void *);
static void multiply(const struct gemm *p, const T *a, const T *b, T *c) {
  if (p->function) ((product_t)p->function)(p->handle, a, b, c);
}

/* the softmax of a row of products, under the masks of its block */
static void attend_row(const struct attend *a, const struct attend_block *u, word i, T *w) {
  const word n = u->keys, seen = a->causal ? least(n, u->first + i + 1) : n;
  const char *mask = u->mask + i * u->mask_down;
  if (u->mask && a->flags) {
    for (word j = 0; j < seen; j++)
      if (!mask[j * u->mask_right]) w[j] = -INFINITY;
  } else if (u->mask) {
    for (word j = 0; j < seen; j++) w[j] += *(const T *)(mask + j * u->mask_right);
  }
  if (u->key_mask)
    for (word j = 0; j < seen; j++)
      if (!u->key_mask[j * u->key_step]) w[j] = -INFINITY;
  T top = top_of(w, seen);
  if (top == -INFINITY) top = 0;  /* it sees nothing */
  const double total = powers_of(w, w, seen, top);
  const T share = total == 0 ? 0 : 1 / total;
#pragma omp simd
  for (word j = 0; j < seen; j++) w[j] *= share;
  for (word j = seen; j < n; j++) w[j] = 0;
}

EXPORT(attend)(const struct attend *a, word t, word wanted) {
  const word n = least(wanted, a->threads);
  if (t >= n) return;
  for (word i = a->count * t / n; i < a->count * (t + 1) / n; i++) {
    const struct attend_block *u = a->blocks + i;
    T *w = u->weights ? u->weights : (T *)(a->memory + t * a->bytes);
    multiply(&u->scores, u->query, u->key, w);
    for (word r = 0; r < u->rows; r++) attend_row(a, u, r, w + r * u->keys);
    multiply(&u->sums, w, u->value, u->out);
  }
}

EXPORT(attend_grad)(const struct attend_grad *a, word t, word wanted) {
  const word n = least(wanted, a->threads);
  if (t >= n) return;
  T *pull = (T *)(a->memory + t * a->bytes);
  for (word i = a->count * t / n; i < a->count * (t + 1) / n; i++) {
    const struct attend_head *u = a->heads + i;
    const word keys = u->keys, width = u->width;
    multiply(&u->to_value, u->weights, u->out_grad, u->value_grad);  /* weights^T out_grad */
    multiply(&u->to_weights, u->out_grad, u->value, pull);  /* out_grad value^T */
    const int pulls = u->to_query.function || u->to_key.function;
    for (word r = 0; pulls && r < u->queries; r++) {
      const T *out = u->out + r * u->out_step, *grad = u->out_grad + r * u->grad_step;
      const T *w = u->weights + r * keys;
      SUM(total, width, out[j] * grad[j])
      const T edge = total;
      T *p = pull + r * keys;
#pragma omp simd
      for (word j = 0; j < keys; j++) p[j] = (p[j] - edge) * w[j];
    }
    multiply(&u->to_query, pull, u->key, u->query_grad);  /* scale pull key */
    multiply(&u->to_key, pull, u->query, u->key_grad);  /* scale pull^T query */
  }
}
