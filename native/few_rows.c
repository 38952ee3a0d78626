/* Products of few rows with a large matrix: operators/backends/products/few_rows.py. */
#include "vectors.h"
#include "few_rows_arguments.h"

#if defined(__AVX512F__)
enum { LINE = 4 };
#else
enum { LINE = 2 };
#endif
/* bytes in which memory answers, and of a matrix that the second cache does not hold */
enum { SUMS = 4, TILE = 64, WIDE = LINE * LANES, AHEAD = 2048, LARGE = 1 << 21 };

/* elements of a row of a packed block of columns */
VISIBLE word EXPORTED(JOIN(wide, UNIT)) = WIDE;

/* the products of pieces of k */
EXPORT(few)(const struct few *a, word t, word parts) {
  const word m = a->m, n = a->n, k = a->k, step = a->b_step;
  const word first = a->pieces * t / parts, last = a->pieces * (t + 1) / parts;
  for (word c = first; c < last; c++) {
    const word piece = *a->backward ? first + last - 1 - c : c;
    const word end = k * (piece + 1) / a->pieces;
    T *sums = a->sums + piece * m * n;
    memset(sums, 0, m * n * sizeof(T));
    for (word j = k * piece / a->pieces; j < end;) {
      const T *p = a->b + j * step;
      const word many = j + 8 <= end ? 8 : 1;
      for (word i = 0; i < m; i++) {
        const T *x = a->a + i * a->a_step + j;
        T *s = sums + i * n;
        if (many == 8) {
          const T x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3], x4 = x[4], x5 = x[5], x6 = x[6];
          const T x7 = x[7];
#pragma omp simd
          for (word q = 0; q < n; q++)
            s[q] += x0 * p[q] + x1 * p[step + q] + x2 * p[2 * step + q] + x3 * p[3 * step + q] +
                    x4 * p[4 * step + q] + x5 * p[5 * step + q] + x6 * p[6 * step + q] +
                    x7 * p[7 * step + q];
        } else {
#pragma omp simd
          for (word q = 0; q < n; q++) s[q] += x[0] * p[q];
        }
      }
      j += many;
    }
  }
}

/* out = alpha times the sums of all pieces, and the bias; the next run goes the other way */
EXPORT(few_added)(const struct few_added *a, word t, word parts) {
  const word m = a->m, n = a->n, begin = n * t / parts, end = n * (t + 1) / parts;
  const T alpha = a->alpha, *bias = a->bias;
  for (word i = 0; i < m; i++) {
    T *s = a->sums + i * n, *out = a->out + i * a->step;
    for (word piece = 1; piece < a->pieces; piece++) {
      const T *more = s + piece * m * n;
#pragma omp simd
      for (word q = begin; q < end; q++) s[q] += more[q];
    }
    for (word q = begin; q < end; q++) out[q] = alpha * s[q] + (bias ? bias[q] : 0);
  }
  if (!t) *a->backward ^= 1;
}

/* sums over k of a block of `wide` vectors, and `from` (or 0); several of each are under way, as an
   addition waits for the one before. `ahead`: whether what follows is asked for. */
INLINE void sums(const word wide, const int ahead, word k, const T *a, const T *p, T *out,
                 const T *from) {
  vec_t s[SUMS][LINE];
#pragma GCC unroll 4
  for (int q = 0; q < SUMS; q++)
#pragma GCC unroll 4
    for (int v = 0; v < wide; v++)
      s[q][v] = from && !q ? (vec_t) * (const row_t *)(from + v * LANES) : (vec_t){0};
  word j = 0;
  for (; j + SUMS <= k; j += SUMS, p += SUMS * wide * LANES)
#pragma GCC unroll 4
    for (int q = 0; q < SUMS; q++)
#pragma GCC unroll 4
      for (int v = 0; v < wide; v++) {
        const T *w = p + (q * wide + v) * LANES;
        if (ahead) __builtin_prefetch((const char *)w + AHEAD);
        s[q][v] += a[j + q] * *(const vec_t *)w;
      }
  for (; j < k; j++, p += wide * LANES)
#pragma GCC unroll 4
    for (int v = 0; v < wide; v++) s[0][v] += a[j] * *(const vec_t *)(p + v * LANES);
#pragma GCC unroll 4
  for (int v = 0; v < wide; v++)
    *(row_t *)(out + v * LANES) = (s[0][v] + s[1][v]) + (s[2][v] + s[3][v]);
}

/* vectors of a block of columns that begins with column j of n */
INLINE word wide_at(word n, word j) { return least(LINE, (n - j + LANES - 1) / LANES); }

EXPORT(line)(const struct line *b, word t, word parts) {
  const word k = b->k, n = b->n, blocks = (n + WIDE - 1) / WIDE;
  const word first = blocks * t / parts, last = blocks * (t + 1) / parts;
  const T *a = b->a, *from = b->begin;
  const int is_large = n * k * (word)sizeof(T) > LARGE;
  if (first == last) return;
  word *back = b->ways + 8 * first;
  for (word i = first; i < last; i++) {
    const word j = (*back ? first + last - 1 - i : i) * WIDE, wide = wide_at(n, j);
    const T *p = b->panels + j * k, *begin = from ? from + j : 0;
    T whole[WIDE] = {0}, *out = b->out + j;
    const word odd = n - j < wide * LANES ? n - j : 0;  /* vectors would reach over the edge */
    if (odd && from) begin = memcpy(whole, begin, odd * sizeof(T));
    T *to = odd ? whole : out;
    if (wide == 1)
      sums(1, 0, k, a, p, to, begin);
    else if (wide == 2 && LINE > 2)
      sums(2, 0, k, a, p, to, begin);
    else if (wide == 3)
      sums(3, 0, k, a, p, to, begin);
    else if (is_large)
      sums(LINE, 1, k, a, p, to, begin);
    else
      sums(LINE, 0, k, a, p, to, begin);
    memcpy(out, whole, odd * sizeof(T));
  }
  *back ^= 1;
}

EXPORT(pack_line)(const struct pack_line *a, word t, word parts) {
  const word k = a->k, n = a->n, down = a->down, right = a->right, blocks = (n + WIDE - 1) / WIDE;
  const T factor = a->alpha;
  for (word block = blocks * t / parts; block < blocks * (t + 1) / parts; block++) {
    const word c = block * WIDE, step = wide_at(n, c) * LANES, columns = least(step, n - c);
    const T *from = a->b + c * right;
    T *to = a->panels + c * k;
    memset(to, 0, k * step * sizeof(T));
    for (word r = 0; r < k; r += TILE)  /* of either layout some stays in the cache */
      for (word i = 0; i < columns; i++)
        for (word j = r; j < least(r + TILE, k); j++)
          to[j * step + i] = factor * from[j * down + i * right];
  }
}
