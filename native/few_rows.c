/* Products of few rows with a large matrix: operators/backends/few_rows.py. */
#include "vectors.h"

#if defined(__AVX512F__)
enum { LINE = 4 };
#else
enum { LINE = 2 };
#endif
enum { SUMS = 4, TILE = 64, WIDE = LINE * LANES };

/* bytes of a packed block of columns, and of its vectors */
VISIBLE word EXPORTED(block_bytes)[] = {LINE * BYTES, BYTES};

/* rows of a, n, k; a and its step, matrix and its step, pieces of k, their sums; direction */
EXPORT(few)(const word *b, word t, word parts) {
  const word m = b[0], n = b[1], k = b[2], step = b[6];
  const word first = b[7] * t / parts, last = b[7] * (t + 1) / parts;
  for (word c = first; c < last; c++) {
    const word piece = b[9] ? first + last - 1 - c : c;
    const word end = k * (piece + 1) / b[7];
    T *sums = (T *)b[8] + piece * m * n;
    memset(sums, 0, m * n * sizeof(T));
    for (word j = k * piece / b[7]; j < end;) {
      const T *p = (const T *)b[5] + j * step;
      const word many = j + 8 <= end ? 8 : 1;
      for (word i = 0; i < m; i++) {
        const T *x = (const T *)b[3] + i * b[4] + j;
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

/* pieces, m, n, sums; out and its step, bias or 0, alpha, where the direction is */
EXPORT(few_added)(const word *b, word t, word parts) {
  const word m = b[1], n = b[2], begin = n * t / parts, end = n * (t + 1) / parts;
  const T alpha = real(b[7]), *bias = (const T *)b[6];
  for (word i = 0; i < m; i++) {
    T *s = (T *)b[3] + i * n, *out = (T *)b[4] + i * b[5];
    for (word piece = 1; piece < b[0]; piece++) {
      const T *more = s + piece * m * n;
#pragma omp simd
      for (word q = begin; q < end; q++) s[q] += more[q];
    }
    for (word q = begin; q < end; q++) out[q] = alpha * s[q] + (bias ? bias[q] : 0);
  }
  if (!t) *(word *)b[8] ^= 1;
}

/* sums over k of a block of `wide` vectors, and `from` (or 0); several of each are under way, as an
   addition waits for the one before */
INLINE void sums(const word wide, word k, const T *a, const T *p, T *out, const T *from) {
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
      for (int v = 0; v < wide; v++)
        s[q][v] += a[j + q] * *(const vec_t *)(p + (q * wide + v) * LANES);
  for (; j < k; j++, p += wide * LANES)
#pragma GCC unroll 4
    for (int v = 0; v < wide; v++) s[0][v] += a[j] * *(const vec_t *)(p + v * LANES);
#pragma GCC unroll 4
  for (int v = 0; v < wide; v++)
    *(row_t *)(out + v * LANES) = (s[0][v] + s[1][v]) + (s[2][v] + s[3][v]);
}

/* vectors of a block of columns that begins with column j of n */
INLINE word wide_at(word n, word j) { return least(LINE, (n - j + LANES - 1) / LANES); }

/* k, n; a, packed blocks, out, what to begin with or 0; direction: of the thread that begins with a
   block, in a cache line of its own */
EXPORT(line)(const word *b, word t, word parts) {
  const word k = b[0], n = b[1], blocks = (n + WIDE - 1) / WIDE;
  const word first = blocks * t / parts, last = blocks * (t + 1) / parts;
  const T *a = (const T *)b[2], *from = (const T *)b[5];
  if (first == last) return;
  word *back = (word *)b[6] + 8 * first;
  for (word i = first; i < last; i++) {
    const word j = (*back ? first + last - 1 - i : i) * WIDE, wide = wide_at(n, j);
    const T *p = (const T *)b[3] + j * k, *begin = from ? from + j : 0;
    T whole[WIDE] = {0}, *out = (T *)b[4] + j;
    const word odd = n - j < wide * LANES ? n - j : 0;  /* vectors would reach over the edge */
    if (odd && from) begin = memcpy(whole, begin, odd * sizeof(T));
    T *to = odd ? whole : out;
    if (wide == 1)
      sums(1, k, a, p, to, begin);
    else if (wide == 2)
      sums(2, k, a, p, to, begin);
    else if (wide == 3)
      sums(3, k, a, p, to, begin);
    else
      sums(LINE, k, a, p, to, begin);
    memcpy(out, whole, odd * sizeof(T));
  }
  *back ^= 1;
}

/* k, n; matrix, its steps along both; packed blocks; a factor */
EXPORT(pack_line)(const word *b, word t, word parts) {
  const word k = b[0], n = b[1], down = b[3], right = b[4], blocks = (n + WIDE - 1) / WIDE;
  const T factor = real(b[6]);
  for (word block = blocks * t / parts; block < blocks * (t + 1) / parts; block++) {
    const word c = block * WIDE, step = wide_at(n, c) * LANES, columns = least(step, n - c);
    const T *from = (const T *)b[2] + c * right;
    T *to = (T *)b[5] + c * k;
    memset(to, 0, k * step * sizeof(T));
    for (word r = 0; r < k; r += TILE)  /* of either layout some stays in the cache */
      for (word i = 0; i < columns; i++)
        for (word j = r; j < least(r + TILE, k); j++)
          to[j * step + i] = factor * from[j * down + i * right];
  }
}
