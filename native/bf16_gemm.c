/* Products of bf16 numbers with sums in float32, by tiles of AMX or by the vectors of AVX512-BF16:
   operators/backends/bfloat16/bf16_gemm.py. KIND is the number of terms of a number, bf16 numbers whose sum
   it is: 3, or 1, the nearest one. */
#include "base.h"
#include "bf16_gemm_arguments.h"
#define TERMS KIND
#include "terms.h"

#ifdef __AMX_TILE__
enum { ROWS = 64, WIDE = 24, INNER = TERMS == 3 ? 8 : 16, PRODUCTS = 6 };
/* the same bytes of a block for each number of terms */
enum { DEEP = 256 * 3 / TERMS, BROAD = 512 };
#define UPPER _tile_dpbf16ps(0, 4, 6); _tile_dpbf16ps(1, 4, 7);
#define LOWER _tile_dpbf16ps(2, 5, 6); _tile_dpbf16ps(3, 5, 7);
#define A1(part) _tile_loadd(4, a + part * 2 * TILE, 64);
#define A2(part) A1(part) _tile_loadd(5, a + part * 2 * TILE + TILE, 64);
#define P(part) \
  _tile_loadd(6, p + part * 2 * TILE, 64); _tile_loadd(7, p + part * 2 * TILE + TILE, 64);

#if TERMS == 3
/* After more than 5 chunks without one, the next stores of tiles took 300 ns where they were
   measured; with one that nobody reads, every other chunk, 10. */
#define STORE if (chunks & 1) _tile_stored(0, aside, 64);
#define BOTH                                                                        \
  P(0) A2(0) UPPER LOWER A2(1) UPPER LOWER A2(2) UPPER LOWER P(1) A2(1) UPPER LOWER \
  A2(0) UPPER LOWER P(2) UPPER LOWER STORE
#define ONE_OF_BOTH \
  P(0) A1(0) UPPER A1(1) UPPER A1(2) UPPER P(1) A1(1) UPPER A1(0) UPPER P(2) UPPER STORE
#else
#define BOTH P(0) A2(0) UPPER LOWER
#define ONE_OF_BOTH P(0) A1(0) UPPER
#endif

/* 17 to 32 rows and 32 columns, over some chunks */
static void both(word chunks, const char *a, const char *p) {
  char aside[TILE] __attribute__((aligned(64)));
  for (; chunks--; a += CHUNK, p += CHUNK) { BOTH }
}

/* up to 16 rows */
static void upper(word chunks, const char *a, const char *p) {
  char aside[TILE] __attribute__((aligned(64)));
  for (; chunks--; a += CHUNK, p += CHUNK) { ONE_OF_BOTH }
}

static void release(void) { _tile_release(); }

/* up to 32 rows and 32 columns, over chunks that hold so much of the inner dimension */
static void block(word rows, word inner, const char *a, const char *p, float *c, word ldc,
                  const float *from, word step) {
  WRITTEN(from);
  if (from) {
    _tile_loadd(0, from, step * 4);
    _tile_loadd(1, from + 16, step * 4);
    if (rows > 16) {
      _tile_loadd(2, from + 16 * step, step * 4);
      _tile_loadd(3, from + 16 * step + 16, step * 4);
    }
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  if (rows > 16) {
    both((inner + 31) / 32, a, p);
    _tile_stored(2, c + 16 * ldc, ldc * 4);
    _tile_stored(3, c + 16 * ldc + 16, ldc * 4);
  } else {
    upper((inner + 31) / 32, a, p);
  }
  _tile_stored(0, c, ldc * 4);
  _tile_stored(1, c + 16, ldc * 4);
}
#else
/* Vectors are multiplied as fast with a panel from L2 as from L1, so pieces are as long as the sums of
   a tile need the fewest passes through memory. */
enum { ROWS = 128, WIDE = 32, INNER = 32, PRODUCTS = 2, HIGH = 8, AHEAD = 4 };
enum { DEEP = 1024, BROAD = 1024 };

static void configure(word rows, word inner) {}
static void release(void) {}

/* some rows and 32 columns; a row of a tile is a vector, beside the pairs of a row of a. What the sums
   begin with is asked for first and added last, as in packed_gemm.h. */
INLINE void rows_of(const int high, word inner, const char *a, const char *p, float *c, word ldc,
                    const float *from, word step) {
  __m512 s[HIGH][2];
#pragma GCC unroll 8
  for (int i = 0; i < high; i++)
#pragma GCC unroll 2
    for (int v = 0; v < 2; v++) {
      s[i][v] = _mm512_setzero_ps();
      __builtin_prefetch(c + i * ldc + v * 16, 1);
      if (from && from != c) __builtin_prefetch(from + i * step + v * 16);
    }
  for (; inner > 0; inner -= 32, a += CHUNK, p += CHUNK) {
    /* Eight lines of every 32 are no stream that processors follow. */
#pragma GCC unroll 8
    for (int i = 0; i < high; i++) __builtin_prefetch(a + AHEAD * CHUNK + i * 64);
    for (int pair = 0; pair < least(inner, 16); pair++) {
      const __m512bh left = (__m512bh)_mm512_load_si512(p + pair * 64);
      const __m512bh right = (__m512bh)_mm512_load_si512(p + TILE + pair * 64);
#pragma GCC unroll 8
      for (int i = 0; i < high; i++) {
        int both;
        memcpy(&both, a + i * 64 + pair * 4, 4);
        const __m512bh x = (__m512bh)_mm512_set1_epi32(both);
        s[i][0] = _mm512_dpbf16_ps(s[i][0], x, left);
        s[i][1] = _mm512_dpbf16_ps(s[i][1], x, right);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < high; i++)
#pragma GCC unroll 2
    for (int v = 0; v < 2; v++) {
      if (from) s[i][v] += _mm512_loadu_ps(from + i * step + v * 16);
      _mm512_storeu_ps(c + i * ldc + v * 16, s[i][v]);
    }
}

#define ROWS_OF(high)                                                                     \
  static void rows_##high(word inner, const char *a, const char *p, float *c, word ldc,   \
                          const float *from, word step) {                                 \
    if (from)                                                                             \
      rows_of(high, inner, a, p, c, ldc, from, step);                                     \
    else                                                                                  \
      rows_of(high, inner, a, p, c, ldc, 0, 0);                                           \
  }
ROWS_OF(1) ROWS_OF(2) ROWS_OF(4) ROWS_OF(8)
#undef ROWS_OF

/* up to 32 rows and 32 columns, over chunks that hold so much of the inner dimension */
static void block(word rows, word inner, const char *a, const char *p, float *c, word ldc,
                  const float *from, word step) {
  static void (*const by[])(word, const char *, const char *, float *, word, const float *, word) = {
      rows_1, rows_2, rows_4, rows_8};
  for (int size = 3; size >= 0; size--)
    for (; rows >= 1 << size; rows -= 1 << size) {
      by[size](inner, a, p, c, ldc, from, step);
      a += 64 << size, c += ldc << size;
      if (from) from += step << size;
    }
}
#endif

/* bytes of the tiles of 32 rows and columns */
VISIBLE word EXPORTED(JOIN(chunk, UNIT)) = CHUNK;

/* products of one term that take as long as one of float32 by AVX-512; inner dimension and columns of
   a block whose tiles stay in the cache */
VISIBLE word EXPORTED(sizes)[] = {PRODUCTS, DEEP, BROAD};

/* a 16x16 matrix of 32 bits, transposed */
static inline __attribute__((always_inline)) void transpose(__m512i *x) {
  __m512i y[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {
    x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
    x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
    x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
    x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 4; i++) {
    y[i] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0x88);
    y[i + 4] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0xdd);
    y[i + 8] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0x88);
    y[i + 12] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 4; i++) {
    x[i] = _mm512_shuffle_i32x4(y[i], y[i + 8], 0x88);
    x[i + 4] = _mm512_shuffle_i32x4(y[i + 4], y[i + 12], 0x88);
    x[i + 8] = _mm512_shuffle_i32x4(y[i], y[i + 8], 0xdd);
    x[i + 12] = _mm512_shuffle_i32x4(y[i + 4], y[i + 12], 0xdd);
  }
}

/* The terms of a tile: 16 vectors `step` apart, and 16 more `apart` from these. Of the first
   ones `count` are there, `more` of the others; `lanes` of the elements of a vector are there, and
   `further` of those of the others. Those that lie `ahead` are asked for: vectors of many rows are more
   streams than processors follow. Whether a number cannot be split. */
static inline __attribute__((always_inline)) int parts_of(
    const int full, const int turned, const float *x, word step, word apart, word count, word more,
    word lanes, word further, float alpha, char *to, word ahead) {
  const __mmask16 first = (1u << (lanes < 0 ? 0 : least(lanes, 16))) - 1;
  const __mmask16 second = (1u << (further < 0 ? 0 : least(further, 16))) - 1;
  const __m512 factor = _mm512_set1_ps(alpha);
  const __m512i sign = _mm512_set1_epi32(0x7fffffff);
  __m512i parts[TERMS][16], terms[TERMS], top = _mm512_setzero_si512();
#pragma GCC unroll 16
  for (int i = 0; i < 16; i++, x += step) {
    __m512 a, b;
    if (full) {
      __asm__("" : "+r"(x));  /* else all 16 addresses wait in registers of vectors */
      __builtin_prefetch(x + ahead, 0, 2), __builtin_prefetch(x + apart + ahead, 0, 2);
      a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + apart);
    } else {
      a = _mm512_maskz_loadu_ps(i < count ? first : 0, x);
      b = _mm512_maskz_loadu_ps(i < more ? second : 0, x + apart);
    }
    a = _mm512_mul_ps(a, factor), b = _mm512_mul_ps(b, factor);
    top = _mm512_max_epu32(top, _mm512_and_si512(_mm512_castps_si512(a), sign));
    top = _mm512_max_epu32(top, _mm512_and_si512(_mm512_castps_si512(b), sign));
    terms_of(a, b, terms);
#pragma GCC unroll 3
    for (int part = 0; part < TERMS; part++) {
      if (turned) parts[part][i] = terms[part];
      else _mm512_store_si512(to + part * 2 * TILE + i * 64, terms[part]);
    }
  }
  for (int part = 0; turned && part < TERMS; part++) {
    transpose(parts[part]);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
      _mm512_store_si512(to + part * 2 * TILE + i * 64, parts[part][i]);
  }
  return TERMS == 3 && _mm512_cmpge_epu32_mask(top, _mm512_set1_epi32(0x7f000000)) != 0;
}

static int split(const float *x, word step, word apart, word count, word more, word lanes,
                 word further, float alpha, int turned, char *to, word ahead) {
  if (count < 16 || more < 16 || lanes < 16 || further < 16)
    return turned ? parts_of(0, 1, x, step, apart, count, more, lanes, further, alpha, to, 0)
                  : parts_of(0, 0, x, step, apart, count, more, lanes, further, alpha, to, 0);
  return turned ? parts_of(1, 1, x, step, apart, 16, 16, 16, 16, alpha, to, ahead)
                : parts_of(1, 0, x, step, apart, 16, 16, 16, 16, alpha, to, ahead);
}

/* the tiles of rows r0 to r1 of the first factor over chunks c0 to c1; whether one is unusual */
static int split_rows(word r0, word r1, word c0, word c1, word k, const float *a, word lda,
                      word next, char *to) {
  int unusual = 0;
  const word high = (r1 - r0 + 15) / 16, wide = c1 - c0;
  for (word u = 0; u < high * wide; u++) {  /* along what lies side by side */
    const word i = r0 + (next == 1 ? u / wide : u % high) * 16;
    const word c = c0 + (next == 1 ? u % wide : u / high);
    const float *x = a + i * lda + c * 32 * next;
    const word rows = r1 - i, left = k - c * 32, above = (i - r0) / 32 * (c1 - c0);
    char *own = to + (above + c - c0) * CHUNK + ((i - r0) / 16 & 1) * TILE;
    unusual |= next == 1 ? split(x, lda, 16, rows, rows, left, left - 16, 1, 0, own, 16 * lda)
                         : split(x, next, 16 * next, left, left - 16, rows, rows, 1, 1, own,
                                 32 * next);
  }
  return unusual;
}

/* Behind the panels, of 32 columns each, there is for each of them whether one of its numbers is
   unusual. */
EXPORT(pack_tiles)(const struct pack_tiles *b, word t, word threads) {
  const word k = b->k, n = b->n, down = b->down, right = b->right, chunks = (k + 31) / 32;
  const word panels = (n + 31) / 32;
  const float *from = b->b, alpha = b->alpha;
  word *unusual = (word *)(b->panels + panels * chunks * CHUNK);
  const word first = panels * t / threads, count = panels * (t + 1) / threads - first;
  memset(unusual + first, 0, count * sizeof(word));
  for (word u = 0; u < count * chunks; u++) {  /* along what lies side by side */
    const word j = first + (right == 1 ? u % count : u / chunks);
    const word c = right == 1 ? u / count : u % chunks, left = k - c * 32;
    for (int half = 0; half < 2; half++) {
      const word col = j * 32 + half * 16, cols = n - col;
      const float *x = from + c * 32 * down + col * right;
      char *to = b->panels + (j * chunks + c) * CHUNK + half * TILE;
      unusual[j] |= right == 1
                        ? split(x, down, 16 * down, left, left - 16, cols, cols, alpha, 0, to,
                                32 * down)
                        : split(x, right, 16, cols, cols, left, left - 16, alpha, 1, to,
                                32 * right);
    }
  }
}

/* rows of a panel's columns, number by number: over the chunks that begin at k0 */
static void plainly(word rows, word cols, word k0, word k1, const float *a, word lda, word next,
                    const float *x, word down, word right, float alpha, float *c, word ldc,
                    const float *from, word step) {
  for (word i = 0; i < rows; i++) {
    float s[32];
    for (word j = 0; j < cols; j++) s[j] = from ? from[i * step + j] : 0;
    for (word l = k0; l < k1; l++)
      for (word j = 0; j < cols; j++)
        s[j] += a[i * lda + l * next] * (alpha * x[l * down + j * right]);
    memcpy(c + i * ldc, s, cols * sizeof(float));
  }
}

/* the same through memory of the stack where they are fewer columns */
static void edge(word rows, word cols, word inner, const char *a, const char *p, float *c,
                 word ldc, const float *from, word step) {
  float whole[32 * 32];
  for (word i = 0; from && i < rows; i++)
    memcpy(whole + i * 32, from + i * step, cols * sizeof(float));
  block(rows, inner, a, p, whole, 32, from ? whole : 0, 32);
  for (word i = 0; i < rows; i++) memcpy(c + i * ldc, whole + i * 32, cols * sizeof(float));
}

/* The tiles of the first factor beforehand, for threads that take columns each, and for several
   products of one factor. Behind them there is for each whether one of its numbers is unusual. The
   argument is that of the product. */
EXPORT(split_tiles)(const struct product_tiles *b, word t, word threads) {
  const word m = b->m, k = b->k, chunks = (k + 31) / 32, high = (m + 31) / 32;
  const word units = high * chunks;
  word *unusual = (word *)(b->tiles + units * CHUNK);
  for (word u = units * t / threads; u < units * (t + 1) / threads; u++) {
    const word across = b->a_right == 1;  /* along what lies side by side */
    const word i = across ? u / chunks : u % high, c = across ? u % chunks : u / high;
    const word to = i * chunks + c, r = i * 32;
    unusual[to] = split_rows(r, least(r + 32, m), c, c + 1, k, b->a, b->a_down, b->a_right,
                             b->tiles + to * CHUNK);
  }
}

/* whether one of some rows of tiles that split_tiles made is unusual */
static int unusual_rows(const struct product_tiles *b, word r0, word r1, word c0, word c1) {
  const word chunks = (b->k + 31) / 32, units = (b->m + 31) / 32 * chunks;
  const word *unusual = (const word *)(b->tiles + units * CHUNK);
  word found = 0;
  for (word r = r0; r < r1; r++)
    for (word c = c0; c < c1; c++) found |= unusual[r * chunks + c];
  return found != 0;
}

/* rows r0 to r1 of panels p0 to p1 */
static void part_of(const struct product_tiles *b, word r0, word r1, word p0, word p1) {
  const word n = b->n, k = b->k, lda = b->a_down, next = b->a_right, ldc = b->out_step;
  const word panels = (n + 31) / 32, chunks = (k + 31) / 32;
  const float *a = b->a, alpha = b->alpha;
  const char *packed = b->panels;
  const word *unusual = (const word *)(packed + panels * chunks * CHUNK);
  float *c = b->out;
  /* not on the stack, which threads of a program may have little of */
  static __thread char own[ROWS / 32 * INNER * CHUNK] __attribute__((aligned(64)));
  const char *given = b->tiles;
  const word pieces = (chunks + INNER - 1) / INNER, wide = (p1 - p0 + WIDE - 1) / WIDE;
  word configured = 0;
  /* the tiles of a piece stay in the cache while all rows pass */
  for (word w = 0; w < wide; w++)
    for (word piece = 0; piece < pieces; piece++) {
      const word j0 = p0 + (p1 - p0) * w / wide, j1 = p0 + (p1 - p0) * (w + 1) / wide;
      const word c0 = chunks * piece / pieces, c1 = chunks * (piece + 1) / pieces;
      const word inner = least(c1 * 32, k) - c0 * 32;
      const float *from = piece ? c : b->begin;
      const word step = piece ? ldc : b->begin_step;
      for (word r = r0; r < r1; r += ROWS) {
        const word end = least(r + ROWS, r1);
        const word first_tile = r / 32 * chunks + c0, line = (given ? chunks : c1 - c0) * CHUNK;
        const int odd = given ? unusual_rows(b, r / 32, (end + 31) / 32, c0, c1)
                              : split_rows(r, end, c0, c1, k, a, lda, next, own);
        for (word j = j0; j < j1; j++) {
          const char *tiles = given ? given + first_tile * CHUNK : own;
          const word cols = least(32, n - j * 32);
          for (word i = r; i < end; i += 32, tiles += line) {
            const word rows = least(32, end - i);
            float *to = c + i * ldc + j * 32;
            const float *first = from ? from + i * step + j * 32 : 0;
            if (odd || unusual[j]) {
              const float *plain = b->b + j * 32 * b->b_right;
              plainly(rows, cols, c0 * 32, c0 * 32 + inner, a + i * lda, lda, next, plain, b->b_down,
                      b->b_right, alpha, to, ldc, first, step);
              continue;
            }
            if (rows != configured) configure(configured = rows, 64);
            const char *panel = packed + (j * chunks + c0) * CHUNK;
            if (cols < 32)
              edge(rows, cols, inner, tiles, panel, to, ldc, first, step);
            else
              block(rows, inner, tiles, panel, to, ldc, first, step);
          }
        }
      }
    }
  if (configured) release();
}

EXPORT(product_tiles)(const struct product_tiles *b, word t, word parts) {
  const word m = b->m, panels = (b->n + 31) / 32, high = (m + 31) / 32;
  /* Parts are a grid. Each splits its rows again, so these are cut first, as long as a block is left
     to each; the parts of a thread have the columns in common. Panels of three terms take as long to
     get as rows: of both together a part has the fewest. Where a thread has just packed them they are
     in its cache, and rows take less long to split again than the others' panels to get. */
  word down = TERMS == 3 && b->fresh && m < 2 * b->n ? 1 : parts;
  const word few = TERMS == 3 ? b->n : 0;
  while (down > 1 && (parts % down || m < ROWS * down || 2 * m * parts < few * down * down)) down--;
  const word across = parts / down, row = t % down, column = t / down;
  part_of(b, high * row / down * 32, least(high * (row + 1) / down * 32, m),
          panels * column / across, panels * (column + 1) / across);
}

/* a block of rows of several; see framework/fusion/rows/row_blocks.py */
EXPORT(rows_tiles)(const struct product_tiles *b, word c, word blocks) {
  part_of(b, b->m * c / blocks, b->m * (c + 1) / blocks, 0, (b->n + 31) / 32);
}
