/* Attention head by head, or block of queries by block: operators/backends/attention.py. */
#include "rows.h"
#include "attention_arguments.h"

typedef void (*product_t)(void *, const void *, const void *, void *);
static void multiply(const struct gemm *p, const T *a, const T *b, T *c) {
  if (p->function) ((product_t)p->function)(p->handle, a, b, c);
}

/* of an array, where the head u begins whose places along the two axes are o and h */
#define AT(array, step) (u->array + o * u->step##_n + h * u->step##_h)

/* the softmax of a row of products, under the masks of its head */
static void attend_row(const struct attend *a, const struct attend_block *u, const char *mask,
                       const char *key_mask, word i, T *w) {
  const word n = u->keys, seen = a->causal ? least(n, u->first + i + 1) : n;
  mask += i * u->mask_down;
  if (u->mask && a->flags) {
    for (word j = 0; j < seen; j++)
      if (!mask[j * u->mask_right]) w[j] = -INFINITY;
  } else if (u->mask) {
    for (word j = 0; j < seen; j++) w[j] += *(const T *)(mask + j * u->mask_right);
  }
  if (u->key_mask)
    for (word j = 0; j < seen; j++)
      if (!key_mask[j * u->key_mask_step]) w[j] = -INFINITY;
  T top = top_of(w, seen);
  if (top == -INFINITY) top = 0;  /* it sees nothing */
  const double total = powers_of(w, w, seen, top);
  const T share = total == 0 ? 0 : 1 / total;
#pragma omp simd
  for (word j = 0; j < seen; j++) w[j] *= share;
  for (word j = seen; j < n; j++) w[j] = 0;
}

EXPORT(attend)(const struct attend *a, word t, word wanted) {
  const word n = least(wanted, a->threads), count = a->count * a->heads;
  if (t >= n) return;
  for (word i = count * t / n; i < count * (t + 1) / n; i++) {
    const struct attend_block *u = a->blocks + i / a->heads;
    const word o = i % a->heads / u->inner, h = i % u->inner;
    T *w = u->weights ? AT(weights, weights) : (T *)(a->memory + t * a->bytes);
    multiply(&u->scores, AT(query, query), AT(key, key), w);
    for (word r = 0; r < u->rows; r++)
      attend_row(a, u, AT(mask, mask), AT(key_mask, key_mask), r, w + r * u->keys);
    multiply(&u->sums, w, AT(value, value), AT(out, out));
  }
}

/* Four keys at a time: a row of the query is read once for all of them, and so is a row of out for
   four values. */
static void cached_row(const struct attend_cached *a, const T *q, const T *key, const T *value, T *out,
                       word seen, T *w) {
  const word width = a->width, columns = a->columns, down = a->key_t, step = a->value_t;
  const T scale = a->scale;
  word j = 0;
  for (; j + 4 <= seen; j += 4) {
    const T *k0 = key + j * down, *k1 = k0 + down, *k2 = k1 + down, *k3 = k2 + down;
    T s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
    for (word c = 0; c < width; c++) {
      s0 += q[c] * k0[c];
      s1 += q[c] * k1[c];
      s2 += q[c] * k2[c];
      s3 += q[c] * k3[c];
    }
    w[j] = scale * s0, w[j + 1] = scale * s1, w[j + 2] = scale * s2, w[j + 3] = scale * s3;
  }
  for (; j < seen; j++) {
    T s = 0;
#pragma omp simd reduction(+ : s)
    for (word c = 0; c < width; c++) s += q[c] * key[j * down + c];
    w[j] = scale * s;
  }
  const T top = top_of(w, seen);
  const double total = powers_of(w, w, seen, top);
  const T share = 1 / total;
  for (word c = 0; c < columns; c++) out[c] = 0;
  for (j = 0; j + 4 <= seen; j += 4) {
    const T *v0 = value + j * step, *v1 = v0 + step, *v2 = v1 + step, *v3 = v2 + step;
    const T w0 = w[j], w1 = w[j + 1], w2 = w[j + 2], w3 = w[j + 3];
#pragma omp simd
    for (word c = 0; c < columns; c++)
      out[c] += w0 * v0[c] + w1 * v1[c] + w2 * v2[c] + w3 * v3[c];
  }
  for (; j < seen; j++) {
#pragma omp simd
    for (word c = 0; c < columns; c++) out[c] += w[j] * value[j * step + c];
  }
#pragma omp simd
  for (word c = 0; c < columns; c++) out[c] *= share;
}

EXPORT(attend_cached)(const struct attend_cached *a, word t, word wanted) {
  const word n = least(wanted, a->threads), parts = a->count * a->heads;
  if (t >= n) return;
  T *w = (T *)(a->memory + t * a->bytes);
  for (word i = parts * t / n; i < parts * (t + 1) / n; i++) {
    const word s = i / a->heads, h = i % a->heads;
    const T *query = a->query + s * a->query_n + h * a->query_h;
    const T *key = a->key + s * a->key_n + h * a->key_h;
    const T *value = a->value + s * a->value_n + h * a->value_h;
    T *out = a->out + s * a->out_n + h * a->out_h;
    for (word r = 0; r < a->queries; r++) {
      const word seen = least(a->keys, a->past[s] + r + 1);
      cached_row(a, query + r * a->query_t, key, value, out + r * a->out_t, seen < 0 ? 0 : seen, w);
    }
  }
}

EXPORT(attend_grad)(const struct attend_grad *a, word t, word wanted) {
  const word n = least(wanted, a->threads);
  if (t >= n) return;
  T *pull = (T *)(a->memory + t * a->bytes);
  const word count = a->count * a->each;
  for (word i = count * t / n; i < count * (t + 1) / n; i++) {
    const struct attend_heads *u = a->heads + i / a->each;
    const word o = i % a->each / u->inner, h = i % u->inner, keys = u->keys, width = u->width;
    const T *weights = AT(weights, weights), *outs = AT(out, out), *grads = AT(out_grad, grad);
    multiply(&u->to_value, weights, grads, AT(value_grad, to_value));  /* weights^T out_grad */
    multiply(&u->to_weights, grads, AT(value, value), pull);  /* out_grad value^T */
    const int pulls = u->to_query.function || u->to_key.function;
    for (word r = 0; pulls && r < u->queries; r++) {
      const T *out = outs + r * u->out_step, *grad = grads + r * u->grad_step;
      const T *w = weights + r * keys;
      SUM(total, width, out[j] * grad[j])
      const T edge = total;
      T *p = pull + r * keys;
#pragma omp simd
      for (word j = 0; j < keys; j++) p[j] = (p[j] - edge) * w[j];
    }
    multiply(&u->to_query, pull, AT(key, key), AT(query_grad, to_query));  /* scale pull key */
    multiply(&u->to_key, pull, AT(query, query), AT(key_grad, to_key));  /* scale pull^T query */
  }
}
