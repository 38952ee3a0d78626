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

/* Keys or values at once: a row of a query is read once for all of them, and so is one of out. Bytes
   in which memory answers. */
enum { FEW = 4, LINE = 64 / sizeof(T), AHEAD = 2048 };

/* out, `step` apart: the sums of all lanes of some vectors, times a factor */
INLINE void add_lanes(const vec_t sums[FEW], T factor, T *out, word step) {
  T lanes[FEW][LANES];
  memcpy(lanes, sums, sizeof lanes);
#pragma GCC unroll 4
  for (int left = LANES / 2; left; left /= 2)
#pragma GCC unroll 4
    for (int v = 0; v < FEW; v++)
#pragma omp simd
      for (int i = 0; i < left; i++) lanes[v][i] += lanes[v][i + left];
  for (word v = 0; v < FEW; v++) out[v * step] = factor * lanes[v][0];
}

/* One query of some heads. Those of a row of the cache follow each other before the next rows come,
   as a row has them side by side and memory answers fastest from the first byte to the last. Rows at
   once are far apart: streams within a page or two are fetched no faster than one. w: a row for each
   head. */
static void cached_rows(const struct attend_cached *a, const T *query, const T *key, const T *value,
                        T *out, word heads, word seen, T *w) {
  const word width = a->width, columns = a->columns, down = a->key_t, step = a->value_t;
  const word far = seen / FEW;
  for (word j = 0; j < far; j++)
    for (word h = 0; h < heads; h++) {
      const T *q = query + h * a->query_h, *k = key + h * a->key_h + j * down;
      vec_t sums[FEW] = {0};
      word c = 0;
      for (; c + LANES <= width; c += LANES)
#pragma GCC unroll 4
        for (int i = 0; i < FEW; i++) {
          const T *x = k + i * far * down + c;
          __builtin_prefetch((const char *)x + AHEAD);
          sums[i] += *(const row_t *)(q + c) * *(const row_t *)x;
        }
      if (c < width)
        for (int i = 0; i < FEW; i++)
          sums[i] += load_lanes(q + c, width - c, 0) * load_lanes(k + i * far * down + c, width - c, 0);
      add_lanes(sums, a->scale, w + h * a->keys + j, far);
    }
  for (word j = far * FEW; j < seen; j++)
    for (word h = 0; h < heads; h++) {
      const T *q = query + h * a->query_h, *k = key + h * a->key_h + j * down;
      T sum = 0;
#pragma omp simd reduction(+ : sum)
      for (word c = 0; c < width; c++) sum += q[c] * k[c];
      w[h * a->keys + j] = a->scale * sum;
    }
  for (word h = 0; h < heads; h++) {
    T *own = w + h * a->keys;
    const double total = powers_of(own, own, seen, top_of(own, seen));
    const T share = 1 / total;
    for (word j = 0; j < seen; j++) own[j] *= share;
    for (word c = 0; c < columns; c++) out[h * a->out_h + c] = 0;
  }
  for (word j = 0; j < far; j++)
    for (word h = 0; h < heads; h++) {
      const T *own = w + h * a->keys + j, *v0 = value + h * a->value_h + j * step;
      const T *v1 = v0 + far * step, *v2 = v1 + far * step, *v3 = v2 + far * step;
      const T w0 = own[0], w1 = own[far], w2 = own[2 * far], w3 = own[3 * far];
      T *o = out + h * a->out_h;
      for (word c = 0; c < columns; c += LINE) {
        const word after = c + AHEAD / sizeof(T);
        __builtin_prefetch(v0 + after), __builtin_prefetch(v1 + after);
        __builtin_prefetch(v2 + after), __builtin_prefetch(v3 + after);
      }
#pragma omp simd
      for (word c = 0; c < columns; c++)
        o[c] += w0 * v0[c] + w1 * v1[c] + w2 * v2[c] + w3 * v3[c];
    }
  for (word j = far * FEW; j < seen; j++)
    for (word h = 0; h < heads; h++) {
      const T *v = value + h * a->value_h + j * step, share = w[h * a->keys + j];
      T *o = out + h * a->out_h;
#pragma omp simd
      for (word c = 0; c < columns; c++) o[c] += share * v[c];
    }
}

EXPORT(attend_cached)(const struct attend_cached *a, word t, word wanted) {
  const word n = least(wanted, a->threads), parts = a->count * a->heads;
  if (t >= n) return;
  T *w = a->memory + t * a->heads * a->keys;
  const word together = a->key_h < a->key_t ? a->heads : 1;
  for (word i = parts * t / n, end = parts * (t + 1) / n, some; i < end; i += some) {
    const word s = i / a->heads, h = i % a->heads;
    some = least(least(together, a->heads - h), end - i);
    const T *query = a->query + s * a->query_n + h * a->query_h;
    const T *key = a->key + s * a->key_n + h * a->key_h;
    const T *value = a->value + s * a->value_n + h * a->value_h;
    T *out = a->out + s * a->out_n + h * a->out_h;
    for (word r = 0; r < a->queries; r++) {
      const word seen = least(a->keys, a->past[s] + r + 1);
      cached_rows(a, query + r * a->query_t, key, value, out + r * a->out_t, some,
                  seen < 0 ? 0 : seen, w);
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
