/* Products of a few rows with a matrix that lies in columns: operators/backends/products/vector_products.py. */
#if defined(__GNUC__) && !defined(__clang__)  /* vectors are shuffled as GCC does it */
#include "vectors.h"
#include "dot_products_arguments.h"

#if defined(__AVX512F__)
enum { MOST = 8, ROWS = 32, ROWS_BY_MKL = 20 };
#elif defined(__AVX2__)
enum { MOST = 4, ROWS = 16, ROWS_BY_MKL = 0 };
#else
enum { MOST = 4, ROWS = 32, ROWS_BY_MKL = 0 };
#endif
enum { HIGH = 3, CHUNK = 48, COLS = LANES < MOST ? LANES : MOST };

/* rows up to which dot products are faster than OpenBLAS, and than MKL; the least columns */
VISIBLE word EXPORTED(dot_rows)[] = {ROWS, ROWS_BY_MKL};
VISIBLE word EXPORTED(JOIN(least, UNIT)) = COLS;

typedef T some_t __attribute__((vector_size(COLS * sizeof(T)), aligned(sizeof(T)), may_alias));

/* lanes of the last vector of a row that no other has; how sums of columns are put in order; at
   each level of adding up: lanes of the second vector, and each lane's neighbor */
typedef struct { flags_t rest, order, second[4], other[4]; } lanes_t;

static lanes_t lanes_of(word k) {
  static const flag_t NUMBERS[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  flags_t lane;
  lanes_t lanes;
  memcpy(&lane, NUMBERS, sizeof lane);
  lanes.rest = lane >= (flag_t)(LANES - k % LANES), lanes.order = (flags_t){0};
  for (int i = 0, s = LANES / 2; s; s /= 2, i++) {
    lanes.second[i] = (lane & s) != 0;
    lanes.other[i] = (lane ^ s) + (lanes.second[i] & LANES);
  }
  for (int bit = 1; bit < COLS; bit *= 2)
    lanes.order += ((lane & bit) != 0) & (LANES / 2 / bit);
  return lanes;
}

/* sums of pairs of lanes: those of a, and in the lanes of `second` those of b */
INLINE vec_t joined(vec_t a, vec_t b, const lanes_t *lanes, int level) {
  const flags_t second = lanes->second[level];
  const vec_t own = (vec_t)(((flags_t)a & ~second) | ((flags_t)b & second));
  return own + __builtin_shuffle(a, b, lanes->other[level]);
}

INLINE vec_t masked(const T *x, flags_t mask) {
  return (vec_t)((flags_t) * (const row_t *)x & mask);
}

/* out[high][COLS] = alpha a w^T, plus what `from` points to */
INLINE void dots_of(const int high, word k, const T *a, word lda, const T *w, word ldw, T *out,
                      word ldc, const T *from, word step, T alpha, const lanes_t *lanes) {
  vec_t s[HIGH][COLS];
  for (int i = 0; i < high; i++)
    for (int v = 0; v < COLS; v++) s[i][v] = (vec_t){0};
  word j = 0;
  for (; j + LANES <= k; j += LANES) {
    vec_t x[HIGH];
    for (int i = 0; i < high; i++) x[i] = *(const row_t *)(a + i * lda + j);
#pragma GCC unroll 8
    for (int v = 0; v < COLS; v++) {
      const vec_t b = *(const row_t *)(w + v * ldw + j);
#pragma GCC unroll 4
      for (int i = 0; i < high; i++) s[i][v] += x[i] * b;
    }
  }
  if (j < k) {  /* a whole vector that ends where the row does */
    j = k - LANES;
#pragma GCC unroll 8
    for (int v = 0; v < COLS; v++) {
      const vec_t b = masked(w + v * ldw + j, lanes->rest);
#pragma GCC unroll 4
      for (int i = 0; i < high; i++) s[i][v] += masked(a + i * lda + j, lanes->rest) * b;
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < high; i++) {
    int level = 0, left = LANES;
#pragma GCC unroll 4
    for (int c = COLS / 2; c; c /= 2, left /= 2, level++)
#pragma GCC unroll 4
      for (int v = 0; v < c; v++)
        s[i][v] = joined(s[i][2 * v], s[i][2 * v + 1], lanes, level);
#pragma GCC unroll 4
    for (; left > 1; left /= 2, level++)
      s[i][0] += __builtin_shuffle(s[i][0], lanes->other[level]);
    const vec_t sums = alpha * __builtin_shuffle(s[i][0], lanes->order);
    some_t x = *(const some_t *)&sums;
    if (from) x += *(const some_t *)(from + i * step);
    *(some_t *)(out + i * ldc) = x;
  }
}

typedef void (*dotter_t)(word, const T *, word, const T *, word, T *, word, const T *, word, T,
                         const lanes_t *);
#define DOTS(high)                                                                               \
  static void dots_##high(word k, const T *a, word lda, const T *w, word ldw, T *out,          \
                            word ldc, const T *from, word step, T alpha, const lanes_t *lanes) { \
    dots_of(high, k, a, lda, w, ldw, out, ldc, from, step, alpha, lanes);                        \
  }
DOTS(1) DOTS(2) DOTS(3)
#undef DOTS
static const dotter_t dotters[] = {dots_1, dots_2, dots_3};

EXPORT(dots)(const struct dots *b, word t, word threads) {
  const word m = b->m, n = b->n, k = b->k, lda = b->a_step, ldw = b->w_step, ldc = b->out_step;
  const word step = b->begin_step;
  const word units = (n + COLS - 1) / COLS;
  const T *a = b->a, *w = b->w, *from = b->begin;
  const T alpha = b->alpha;
  T *out = b->out;
  const lanes_t lanes = lanes_of(k);
  for (word r = 0; r < m; r += CHUNK) {
    const word end = least(r + CHUNK, m);
    for (word u = units * t / threads; u < units * (t + 1) / threads; u++) {
      const word j = u * COLS, first = least(j, n - COLS);
      for (word i = r; i < end; i += HIGH) {
        const word high = least(end - i, HIGH);
        const T *begin = from ? from + i * step + j : 0;
        T *to = out + i * ldc + j;
        if (first == j) {
          dotters[high - 1](k, a + i * lda, lda, w + j * ldw, ldw, to, ldc, begin, step, alpha,
                              &lanes);
        } else {  /* the last columns, with some before them that are there */
          T whole[HIGH * COLS];
          dotters[high - 1](k, a + i * lda, lda, w + first * ldw, ldw, whole, COLS, 0, 0, alpha,
                              &lanes);
          for (word h = 0; h < high; h++)
            for (word c = 0; c < n - j; c++)
              to[h * ldc + c] =
                  whole[h * COLS + j - first + c] + (begin ? begin[h * step + c] : 0);
        }
      }
    }
  }
}
#endif
