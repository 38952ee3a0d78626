/* Convolutions of 3x3 taps with fewer multiplications: operators/direct/winograd.py.

   A tile is 2x2 pixels of the result, and 4x4 pixels of the image go into it:

       tile = A' [(G filter G') * (B' pixels B)] A

   The middle has 16 products for each channel and output, where taps have 36. Those of a block of tiles
   are 16 products of matrices: tiles and channels times channels and outputs.

   Tiles whose results are not all finite are computed tap by tap: where numbers are infinite, or become
   so on the way, differences are NaN. That always shows, as a result is made of the same pixels and
   weights as tap by tap.

   Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016. */
#include "packed_gemm.h"
#include "functions.h"
#include "epilogue.h"
#include "winograd_arguments.h"

enum { POINTS = 16, TAPS = 9, MOST = 64 };

VISIBLE word EXPORTED(JOIN(group, UNIT)) = HIGH;
VISIBLE word EXPORTED(JOIN(most, UNIT)) = MOST;

static word vectors_of(word count) { return (count + LANES - 1) / LANES; }

/* Panels are as wide as each other, or a vector wider. Their number is even, so that two threads have
   equally much to do. */
static word panels_of(word outs) {
  const word panels = (vectors_of(outs) + WIDE - 1) / WIDE;
  return panels > 1 ? panels + panels % 2 : panels;
}

/* where a panel's outputs begin */
static word begin_of(word outs, word panel) {
  return vectors_of(outs) * panel / panels_of(outs) * LANES;
}

/* G of three numbers */
INLINE void spread_three(const vec_t a, const vec_t b, const vec_t c, vec_t *to) {
  const T half = (T)0.5;
  const vec_t sum = half * (a + c);
  to[0] = a, to[1] = sum + half * b, to[2] = sum - half * b, to[3] = c;
}

/* Panels: for each of the points, channels times the panel's outputs. */
EXPORT(spread_filters)(const struct spread_filters *a, word t, word threads) {
  const struct filters *f = &a->filters;
  const word panels = panels_of(f->outs);
  for (word p = panels * t / threads; p < panels * (t + 1) / threads; p++) {
    const word first = begin_of(f->outs, p), cols = begin_of(f->outs, p + 1) - first;
    T *panel = a->panels + POINTS * f->channels * first;
    for (word o = 0; o < cols; o += LANES)
      for (word c = 0; c < f->channels; c++) {
        const T *w = f->w + (first + o) * f->out_step + c * f->in_step;
        vec_t taps[3][3], down[3][4], point[4];
        for (int i = 0; i < 3; i++)
          for (int j = 0; j < 3; j++)
            for (int l = 0; l < LANES; l++)
              taps[i][j][l] = first + o + l < f->outs
                                  ? w[l * f->out_step + i * f->down + j * f->right] : 0;
        for (int j = 0; j < 3; j++) spread_three(taps[0][j], taps[1][j], taps[2][j], down[j]);
        for (int i = 0; i < 4; i++) {
          spread_three(down[0][i], down[1][i], down[2][i], point);
          for (int j = 0; j < 4; j++)
            *(row_t *)(panel + ((i * 4 + j) * f->channels + c) * cols + o) = point[j];
        }
      }
  }
}

/* Tiles of all images, row by row. */
typedef struct { word n, y, x; } place_of_tile;

static place_of_tile find_tile(const struct winograd *a, word tile) {
  const word down = (a->high + 1) / 2, right = (a->across + 1) / 2;
  return (place_of_tile){tile / (down * right), tile / right % down, tile % right};
}

static inline void next_tile(const struct winograd *a, place_of_tile *p) {
  if (++p->x < (a->across + 1) / 2) return;
  p->x = 0;
  if (++p->y < (a->high + 1) / 2) return;
  p->y = 0, p->n++;
}

/* where the pixels are that a tile reads; those around the image are zeros */
static inline void find_pixels(const struct winograd *a, const place_of_tile *p, const T *zeros,
                               const T **at) {
  const T *x = a->x + p->n * a->x_image;
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) {
      const word y = 2 * p->y - a->top + i, q = 2 * p->x - a->left + j;
      const int outside = y < 0 || y >= a->height || q < 0 || q >= a->width;
      at[i * 4 + j] = outside ? zeros : x + y * a->x_row + q * a->x_pixel;
    }
}

/* B' of four numbers */
INLINE void mix_four(vec_t *a, vec_t *b, vec_t *c, vec_t *d) {
  const vec_t first = *a - *c, sum = *b + *c, difference = *c - *b, last = *b - *d;
  *a = first, *b = sum, *c = difference, *d = last;
}

/* one vector of a tile's channels, or `count` lanes of one */
INLINE void mix_pixels(const T *const *at, word c, word count, T *to, word plane) {
  vec_t d[4][4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++)
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) d[i][j] = load_lanes(at[i * 4 + j] + c, count, 0);
#pragma GCC unroll 4
  for (int j = 0; j < 4; j++) mix_four(&d[0][j], &d[1][j], &d[2][j], &d[3][j]);
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    mix_four(&d[i][0], &d[i][1], &d[i][2], &d[i][3]);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) *(row_t *)(to + (i * 4 + j) * plane + c) = d[i][j];
  }
}

static void mix_tile(const T *const *at, word channels, T *to, word plane) {
  word c = 0;
  for (; c + LANES <= channels; c += LANES) mix_pixels(at, c, LANES, to, plane);
  if (c < channels) mix_pixels(at, c, channels - c, to, plane);
}

/* A' of four numbers */
INLINE void join_four(vec_t a, vec_t b, vec_t c, vec_t d, vec_t *first, vec_t *second) {
  *first = a + b + c, *second = b - c - d;
}

/* the four pixels of a tile, of a vector of outputs */
INLINE void join_points(const T *from, word plane, vec_t *a, vec_t *b, vec_t *c, vec_t *d) {
  vec_t m[4], upper[4], lower[4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; j++) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) m[i] = *(const row_t *)(from + (i * 4 + j) * plane);
    join_four(m[0], m[1], m[2], m[3], upper + j, lower + j);
  }
  join_four(upper[0], upper[1], upper[2], upper[3], a, b);
  join_four(lower[0], lower[1], lower[2], lower[3], c, d);
}

/* a block of tiles: where their numbers are, and their results where an epilogue reads them */
typedef struct {
  const struct winograd *conv;
  word first, count;
  const T *zeros;
  T *mixed, *sums, *made;
} block;

/* What follows the sums of a tile: `wide` vectors of outputs from o on, of its four pixels. */
INLINE void end_tile(const int wide, const block *b, const place_of_tile *p, word tile, word o,
                     vec_t (*s)[WIDE]) {
  const struct winograd *a = b->conv;
  const word outs = a->filters.outs;
#pragma GCC unroll 4
  for (int k = 0; k < 4; k++) {
    const word y = 2 * p->y + k / 2, x = 2 * p->x + k % 2;
    if (y >= a->high || x >= a->across) continue;
    const word place = p->n * a->out_image + y * a->out_row + x * a->out_pixel + o;
    T *to = b->made ? b->made + ((k / 2 * b->count + tile) * 2 + k % 2) * outs + o : a->out + place;
#pragma GCC unroll 4
    for (int v = 0; v < wide; v++) {
      if (a->factors) s[k][v] *= *(const row_t *)(a->factors + o + v * LANES);
      if (a->bias) s[k][v] += *(const row_t *)(a->bias + o + v * LANES);
      if (a->other) s[k][v] += *(const row_t *)(a->other + place + v * LANES);
    }
    activate(&a->activation, wide, s[k]);
#pragma GCC unroll 4
    for (int v = 0; v < wide; v++) store_lanes(to + v * LANES, s[k][v], outs - o - v * LANES);
  }
}

/* The sums of a block's tiles in `odd`, in the first four points. */
static void add_taps(const block *b, const word *odd, word count, word o, word cols, word plane) {
  enum { FEW = 8 };
  const struct winograd *a = b->conv;
  const struct filters *f = &a->filters;
  T w[TAPS][FEW][COLS];
  for (word i = 0; i < count; i++)
    for (word k = 0; k < 4; k++) memset(b->sums + k * plane + odd[i] * cols, 0, cols * sizeof(T));
  for (word first = 0; first < f->channels; first += FEW) {
    const word few = least(FEW, f->channels - first);
    for (word l = 0; l < cols; l++)
      for (word c = 0; c < few; c++)
        for (word k = 0; k < TAPS; k++) {
          const word place = (o + l) * f->out_step + (first + c) * f->in_step;
          w[k][c][l] = o + l < f->outs ? f->w[place + k / 3 * f->down + k % 3 * f->right] : 0;
        }
    for (word i = 0; i < count; i++) {
      const place_of_tile p = find_tile(a, b->first + odd[i]);
      const T *at[POINTS];
      find_pixels(a, &p, b->zeros, at);
      for (word k = 0; k < 4; k++)
        for (word v = 0; v < cols; v += LANES) {
          row_t *to = (row_t *)(b->sums + k * plane + odd[i] * cols + v);
          vec_t sum = *to;
          for (word tap = 0; tap < TAPS; tap++) {
            const T *x = at[(k / 2 + tap / 3) * 4 + k % 2 + tap % 3] + first;
            for (word c = 0; c < few; c++) sum += x[c] * *(const row_t *)(w[tap][c] + v);
          }
          *to = sum;
        }
    }
  }
}

/* whether a lane is NaN */
INLINE int has_nan(vec_t a) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_UNORD_Q) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_ps(_mm256_cmp_ps((__m256)a, (__m256)a, _CMP_UNORD_Q)) != 0;
#else
  const flags_t odd = a != a;
  int any = 0;
  for (int l = 0; l < LANES; l++) any |= odd[l] != 0;
  return any;
#endif
}

/* the results of a block, `wide` vectors of outputs from o on */
INLINE void end_block(const int wide, const block *b, word o, word plane) {
  const struct winograd *a = b->conv;
  const word cols = wide * LANES;
  word odd[MOST], count = 0;
  place_of_tile p = find_tile(a, b->first);
  for (word i = 0; i < b->count; i++, next_tile(a, &p)) {
    vec_t s[4][WIDE], zero = {0};
#pragma GCC unroll 4
    for (int v = 0; v < wide; v++) {
      join_points(b->sums + i * cols + v * LANES, plane, s[0] + v, s[1] + v, s[2] + v, s[3] + v);
#pragma GCC unroll 4
      for (int k = 0; k < 4; k++) zero += s[k][v] * 0;
    }
    if (__builtin_expect(has_nan(zero), 0))
      odd[count++] = i;
    else
      end_tile(wide, b, &p, i, o, s);
  }
  if (!count) return;
  add_taps(b, odd, count, o, cols, plane);
  for (word i = 0; i < count; i++) {
    vec_t s[4][WIDE];
    for (int k = 0; k < 4; k++)
      for (int v = 0; v < wide; v++)
        s[k][v] = *(const row_t *)(b->sums + k * plane + odd[i] * cols + v * LANES);
    p = find_tile(a, b->first + odd[i]);
    end_tile(wide, b, &p, odd[i], o, s);
  }
}

/* the epilogue of a block: of rows of pixels of tiles side by side */
static void end_made(const block *b, word o0, word o1) {
  const struct winograd *a = b->conv;
  const word right = (a->across + 1) / 2, outs = a->filters.outs;
  place_of_tile p = find_tile(a, b->first);
  for (word i = 0, many; i < b->count; i += many) {
    many = least(right - p.x, b->count - i);
    for (word y = 2 * p.y; y < least(2 * p.y + 2, a->high); y++)
      end_pixels(a->epilogue, p.n * a->epilogue->plane + y * a->across + 2 * p.x,
                 least(2 * many, a->across - 2 * p.x), o0, o1,
                 b->made + (y % 2 * b->count + i) * 2 * outs, outs, 0);
    p = find_tile(a, b->first + i + many);
  }
}

EXPORT(winograd)(const struct winograd *a, word t, word threads) {
  const word channels = a->filters.channels, outs = a->filters.outs, panels = panels_of(outs);
  const word tiles = a->images * ((a->high + 1) / 2) * ((a->across + 1) / 2);
  /* groups of as many tiles as a product takes at a time */
  const word groups = (tiles + HIGH - 1) / HIGH, blocks = (groups + a->block - 1) / a->block;
  const word units = blocks * a->slices;
  /* Points are a line more than a block apart: else they have the same places in the first cache. */
  const word row = vectors_of(channels) * LANES, plane = a->block * HIGH * row + LANES;
  threads = least(threads, a->threads);
  if (t >= threads) return;
  T *memory = a->memory + t * a->room;
  block b = {.conv = a, .zeros = memory, .mixed = memory + row};
  b.sums = b.mixed + POINTS * plane;
  b.made = a->epilogue ? b.sums + POINTS * (a->block * HIGH * COLS + LANES) : 0;
  memset(memory, 0, row * sizeof(T));
  for (word u = units * t / threads, done = -1; u < units * (t + 1) / threads; u++) {
    const word number = u / a->slices, slice = u % a->slices;
    if (number != done) {
      done = number;
      b.first = groups * number / blocks * HIGH;
      b.count = least(groups * (number + 1) / blocks * HIGH, tiles) - b.first;
      place_of_tile p = find_tile(a, b.first);
      for (word i = 0; i < b.count; i++, next_tile(a, &p)) {
        const T *at[POINTS];
        find_pixels(a, &p, b.zeros, at);
        mix_tile(at, channels, b.mixed + i * row, plane);
      }
    }
    const word p0 = panels * slice / a->slices, p1 = panels * (slice + 1) / a->slices;
    for (word p = p0; p < p1; p++) {
      const word o = begin_of(outs, p), cols = begin_of(outs, p + 1) - o;
      const word apart = b.count * cols + LANES;
      const T *w = a->panels + POINTS * channels * o;
      for (word k = 0; k < POINTS; k++, w += channels * cols)
        panel_rows(0, b.count, cols, channels, b.mixed + k * plane, row, 1, w, w + channels * cols,
                   b.sums + k * apart, cols, 0, 0);
      if (cols == LANES)
        end_block(1, &b, o, apart);
      else if (WIDE > 2 && cols == 2 * LANES)
        end_block(2, &b, o, apart);
      else
        end_block(WIDE, &b, o, apart);
    }
    if (b.made) end_made(&b, begin_of(outs, p0), least(begin_of(outs, p1), outs));
  }
}
