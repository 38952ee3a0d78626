/* Convolutions of float32 numbers by tiles of AMX: operators/direct/tile_convolutions.py.

   Numbers are sums of three bf16 numbers, as in bf16_gemm.c. The image is split once, with zeros around
   it; for each 32 channels it has a plane, whose pixels are rows of 64 bytes for each term. A tile is up
   to 16 pixels a stride apart, read where they lie, for each tap elsewhere: nothing is copied. Two such
   groups of pixels times 32 outputs stay in registers over all taps and channels, or over as many as
   have weights that stay in the cache for all groups.

   What cannot be split, infinity, NaN and numbers from 2^127 on, lies there as it is, with a third term
   that is NaN; groups that read some are computed by vectors. */
#define TERMS 3
#include "terms.h"
#include "epilogue.h"
#include "tile_convolution_arguments.h"

enum { PIXEL = TERMS * 64, ROWS = 32, WIDE = 32, SUMS = 16 * WIDE };
/* chunks of 32 channels of a tap whose weights are multiplied with all groups at a time */
enum { PIECE = 36, NUMBERS = ROWS * WIDE };
/* elements: weights of whole nets are in no near cache, and processors look less far ahead. On an Intel
   Xeon 9 taps of 512 channels and outputs of 7x7 pixels take 1.1 ms so, instead of 1.55. */
enum { AHEAD = 1024 };

VISIBLE word EXPORTED(JOIN(pixel, UNIT)) = PIXEL;
VISIBLE word EXPORTED(JOIN(piece, UNIT)) = PIECE;

/* the terms of 16 pairs of numbers, `apart` from each other; whether they cannot be split */
INLINE int split_pairs(__m512 a, __m512 b, char *to, word apart) {
  const __m512i sign = _mm512_set1_epi32(0x7fffffff), upper = _mm512_set1_epi32(0xffff0000);
  const __m512i x = _mm512_castps_si512(a), y = _mm512_castps_si512(b);
  const __m512i top = _mm512_max_epu32(_mm512_and_si512(x, sign), _mm512_and_si512(y, sign));
  const int odd = _mm512_cmpge_epu32_mask(top, _mm512_set1_epi32(0x7f000000)) != 0;
  __m512i terms[TERMS];
  if (__builtin_expect(odd, 0)) {
    terms[0] = _mm512_or_si512(_mm512_srli_epi32(x, 16), _mm512_and_si512(y, upper));
    terms[1] = _mm512_or_si512(_mm512_andnot_si512(upper, x), _mm512_slli_epi32(y, 16));
    terms[2] = _mm512_set1_epi32(-1);
  } else {
    terms_of(a, b, terms);
  }
#pragma GCC unroll 3
  for (int i = 0; i < TERMS; i++) _mm512_storeu_si512(to + i * apart, terms[i]);
  return odd;
}

static int are_odd(const char *from, word apart) {
  uint16_t mark;
  memcpy(&mark, from + 2 * apart, 2);
  return mark == 0xffff;
}

/* the numbers that split_pairs had */
static void join_pairs(const char *from, word apart, float *first, word distance) {
  const __m512i upper = _mm512_set1_epi32(0xffff0000);
  __m512i t[TERMS], x, y;
  for (int i = 0; i < TERMS; i++) t[i] = _mm512_loadu_si512(from + i * apart);
  if (are_odd(from, apart)) {
    x = _mm512_or_si512(_mm512_slli_epi32(t[0], 16), _mm512_andnot_si512(upper, t[1]));
    y = _mm512_or_si512(_mm512_and_si512(t[0], upper), _mm512_srli_epi32(t[1], 16));
  } else {
    __m512 a = _mm512_setzero_ps(), b = a;
    for (int i = 0; i < TERMS; i++) {
      a = _mm512_add_ps(a, _mm512_castsi512_ps(_mm512_slli_epi32(t[i], 16)));
      b = _mm512_add_ps(b, _mm512_castsi512_ps(_mm512_and_si512(t[i], upper)));
    }
    x = _mm512_castps_si512(a), y = _mm512_castps_si512(b);
  }
  _mm512_storeu_si512(first, x);
  _mm512_storeu_si512(first + distance, y);
}

/* Panels of 32 outputs: for each 32 channels, and each tap, rows of pairs of channels as tiles have
   them. Behind all of them there is for each panel whether it has what cannot be split. */
EXPORT(pack_filters)(const struct pack_filters *a, word t, word threads) {
  const word panels = (a->outs + 31) / 32, chunks = (a->channels + 31) / 32;
  const word taps = a->kernel_down * a->kernel_right;
  float *odd = a->panels + panels * chunks * taps * NUMBERS;
  for (word j = panels * t / threads; j < panels * (t + 1) / threads; j++) {
    float *to = a->panels + j * chunks * taps * NUMBERS;
    odd[j] = 0;
    for (word c = 0; c < chunks; c++)
      for (word tap = 0; tap < taps; tap++)
        for (word row = 0; row < ROWS; row++, to += WIDE) {
          const word o = j * 32 + row / 16 * 16, lanes = least(16, a->outs - o);
          const word place = tap / a->kernel_right * a->down + tap % a->kernel_right * a->right;
          for (word i = 0; i < 2; i++) {
            const word channel = c * 32 + i * 16 + row % 16;
            const float *from = a->w + o * a->out_step + channel * a->in_step + place;
            for (word l = 0; l < 16; l++) {
              const float x = channel < a->channels && l < lanes ? from[l * a->out_step] : 0;
              to[i * 16 + l] = x;
              if (!(fabsf(x) < 0x1p127f)) odd[j] = 1;
            }
          }
        }
  }
}

/* `count` pixels of the plane with its zeros from one on, of channels 32 c0 to 32 c1 of an image: a
   plane of tiles for 32 of them */
static int split_pixels(const struct tile_conv *a, word n, word c0, word c1, word first, word count,
                        char *tiles, word plane) {
  const word wide = a->wide, left = a->left, rest = a->channels - (c1 - 1) * 32;
  const __mmask16 low = rest < 16 ? (1u << rest) - 1 : -1;
  const __mmask16 high = rest >= 32 ? -1 : rest > 16 ? (1u << (rest - 16)) - 1 : 0;
  int odd = 0;
  for (word i = 0, some; i < count; i += some) {
    const word y = (first + i) / wide - a->top, q = (first + i) % wide;
    some = least(wide - q, count - i);
    word begin = q > left ? q : left, end = least(q + some, left + a->width);
    if (y < 0 || y >= a->height || begin >= end) begin = end = q + some;
    char *to = tiles + (i - q) * PIXEL;
    for (word c = c0; c < c1; c++) {
      char *there = to + (c - c0) * plane;
      memset(there + q * PIXEL, 0, (begin - q) * PIXEL);
      memset(there + end * PIXEL, 0, (q + some - end) * PIXEL);
    }
    const float *x = a->x + n * a->x_image + y * a->x_row + (begin - left) * a->x_pixel;
    for (word k = begin; k < end; k++, x += a->x_pixel) {
      char *there = to + k * PIXEL;
      for (word c = c0; c < c1; c++, there += plane) {
        const __mmask16 one = c + 1 < c1 ? -1 : low, other = c + 1 < c1 ? -1 : high;
        odd |= split_pairs(_mm512_maskz_loadu_ps(one, x + c * 32),
                           _mm512_maskz_loadu_ps(other, x + c * 32 + 16), there, 64);
      }
    }
  }
  return odd;
}

/* pixels that the groups of `lines` lines read, from their first on */
static word span_of(const struct tile_conv *a, word lines) {
  return (lines - 1) * a->line_step + (a->per_line * a->group - 1) * a->step +
         (a->kernel_down - 1) * a->tap_down + (a->kernel_right - 1) * a->tap_right + 1;
}

/* where a group begins in its block */
static word place_of(const struct tile_conv *a, word g) {
  return (g / a->per_line * a->line_step + g % a->per_line * a->group * a->step) * PIXEL;
}

/* The tiles of one image and, behind them, whether they have what cannot be split: of each 32
   channels. */
EXPORT(split_image)(const struct tile_conv *a, word t, word threads) {
  const word chunks = (a->channels + 31) / 32, span = span_of(a, a->lines), units = a->images * chunks;
  for (word u = units * t / threads; u < units * (t + 1) / threads; u++) {
    const word n = u / chunks, c = u % chunks;
    char *tiles = a->tiles + n * a->room;
    word *odd = (word *)(tiles + chunks * span * PIXEL);
    odd[c] = split_pixels(a, n, c, c + 1, 0, span, tiles + c * span * PIXEL, 0);
  }
}

/* Rows of sums whose results are not written yet: while tiles are multiplied, vectors have nothing else
   to do, and wait for no tiles. */
typedef struct {
  const struct tile_conv *conv;
  word left, o, x, y, row, pixel;
  const float *sums;
  float *to;
  vec_t factor[2], term[2];
} ending;

/* Weights to be split, row by row of tiles: those of the next piece, while tiles are multiplied. Read so,
   weights come from memory in their order, and 4 bytes of each; kept split they had 6. */
typedef struct {
  const float *from;
  char *to;
  word row, left;
} splitting;

INLINE void split_weights(splitting *s, word count) {
  for (; count && s->left; count--, s->left--, s->from += WIDE) {
    __m512i terms[TERMS];
    __builtin_prefetch(s->from + AHEAD, 0, 2), __builtin_prefetch(s->from + AHEAD + 16, 0, 2);
    terms_of(_mm512_loadu_ps(s->from), _mm512_loadu_ps(s->from + 16), terms);
#pragma GCC unroll 3
    for (int i = 0; i < TERMS; i++) _mm512_store_si512(s->to + i * 2 * TILE + s->row * 64, terms[i]);
    if (++s->row == ROWS) s->row = 0, s->to += CHUNK;
  }
}

/* What multiplies two groups of pixels by chunks k0 to k1 of a panel, whose weights are split at p. */
typedef struct {
  const char *upper, *lower, *p;
  word k0, k1, plane;
  float *sums;       /* of 16 and 16 pixels */
  int begins;        /* whether there are none yet */
  word ends, splits; /* rows of sums to end with each chunk, of weights to split with each sixth of it */
} work;

/* the way from tap to tap, and from the last one to the next plane */
typedef struct { word across, down, next, right, rows, z, y; } walk;

static walk walk_from(const struct tile_conv *a, word k0, word plane, word *place) {
  const word right = a->kernel_right, taps = a->kernel_down * right, tap = k0 % taps;
  const word across = a->tap_right * PIXEL, back = (right - 1) * across;
  walk w = {across, a->tap_down * PIXEL - back, 0, right, a->kernel_down, tap % right, tap / right};
  w.next = plane - back - (a->kernel_down - 1) * a->tap_down * PIXEL;
  *place = k0 / taps * plane + w.y * a->tap_down * PIXEL + w.z * across;
  return w;
}

static inline word step_of(walk *w) {
  if (++w->z < w->right) return w->across;
  w->z = 0;
  if (++w->y < w->rows) return w->down;
  w->y = 0;
  return w->next;
}

/* Panel j of a group: its pixels go to `to`, a pixel `row` and `pixel` from its neighbors. */
static void begin_ending(ending *e, const struct tile_conv *a, word j, float *to, word row, word pixel) {
  *e = (ending){.conv = a, .o = j * 32, .row = row, .pixel = pixel, .to = to};
  for (int i = 0; i < 2 && e->o + i * 16 < a->outs; i++) {
    if (a->factors) e->factor[i] = *(const row_t *)(a->factors + e->o + i * 16);
    if (a->bias) e->term[i] = *(const row_t *)(a->bias + e->o + i * 16);
  }
}

static void add_group(ending *e, word g, const float *sums) {
  const struct tile_conv *a = e->conv;
  e->sums = sums, e->left = a->group, e->x = g * a->group % a->pitch, e->y = g * a->group / a->pitch;
}

INLINE void end_rows(ending *e, word count) {
  const struct tile_conv *a = e->conv;
  for (; count && e->left; count--, e->left--, e->sums += 32, e->x++) {
    if (e->x == a->pitch) e->x = 0, e->y++;
    if (e->x >= a->across || e->y >= a->high) continue;
    float *to = e->to + e->y * e->row + e->x * e->pixel;
    vec_t v[2] = {*(const row_t *)e->sums, *(const row_t *)(e->sums + 16)};
    for (int i = 0; i < 2; i++)
      v[i] = a->factors ? v[i] * e->factor[i] + e->term[i] : v[i] + e->term[i];
    if (a->other) {
      const float *other = a->other + (to - a->out);
      v[0] += *(const row_t *)other;
      if (a->outs > e->o + 16) v[1] += *(const row_t *)(other + 16);
    }
    activate(&a->activation, 2, v);
    if (a->outs >= e->o + 32) {
      *(row_t *)to = v[0], *(row_t *)(to + 16) = v[1];
      continue;
    }
    store_lanes(to, v[0], a->outs - e->o);
    store_lanes(to + 16, v[1], a->outs - e->o - 16);
  }
}

#define P(part) \
  _tile_loadd(6, p + part * 2 * TILE, 64); _tile_loadd(7, p + part * 2 * TILE + TILE, 64);
#define UPPER(part) _tile_loadd(4, upper + part * 64, step);
#define BOTH(part) UPPER(part) _tile_loadd(5, lower + part * 64, step);
#define ADD_UPPER _tile_dpbf16ps(0, 4, 6); _tile_dpbf16ps(1, 4, 7);
#define ADD_BOTH \
  _tile_dpbf16ps(0, 4, 6); _tile_dpbf16ps(2, 5, 6); _tile_dpbf16ps(1, 4, 7); _tile_dpbf16ps(3, 5, 7);
/* six products of terms; of the three terms of an image one stays in its tiles twice */
#define PRODUCTS(LOAD, ADD) \
  P(0) LOAD(2) ADD LOAD(0) ADD LOAD(1) ADD P(1) ADD LOAD(0) ADD P(2) ADD
#define SPLIT split_weights(&next, b->splits);

static void multiply(const struct tile_conv *a, const work *b, int two, ending *before,
                     splitting *weights) {
  char aside[TILE] __attribute__((aligned(64)));
  splitting next = *weights;
  float *s = b->sums;
  word place;
  walk w = walk_from(a, b->k0, b->plane, &place);
  const word step = a->step * PIXEL;
  const char *upper = b->upper + place, *lower = b->lower + place, *p = b->p;
  WRITTEN(s);
  if (b->begins) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, s, 128);
    _tile_loadd(1, s + 16, 128);
    _tile_loadd(2, s + SUMS, 128);
    _tile_loadd(3, s + SUMS + 16, 128);
  }
  for (word k = b->k1 - b->k0; k--; p += CHUNK) {
    if (two) {
      PRODUCTS(BOTH, ADD_BOTH SPLIT)
    } else {
      PRODUCTS(UPPER, ADD_UPPER SPLIT)
    }
    if (k & 1) _tile_stored(0, aside, 64);  /* see bf16_gemm.c */
    end_rows(before, b->ends), end_rows(before + 1, b->ends);
    const word on = step_of(&w);
    upper += on, lower += on;
  }
  _tile_stored(0, s, 128);
  _tile_stored(1, s + 16, 128);
  if (two) {
    _tile_stored(2, s + SUMS, 128);
    _tile_stored(3, s + SUMS + 16, 128);
  }
  *weights = next;
}

/* the same for one group, by vectors, of the weights themselves */
static void multiply_plainly(const struct tile_conv *a, const work *b, const char *from,
                             const float *weights, float *s) {
  word place;
  walk w = walk_from(a, b->k0, b->plane, &place);
  const word step = a->step * PIXEL;
  if (b->begins) memset(s, 0, SUMS * sizeof(float));
  from += place;
  for (word k = b->k0; k < b->k1; k++, weights += NUMBERS, from += step_of(&w))
    for (word r = 0; r < a->group; r++) {
      float x[32];
      join_pairs(from + r * step, 64, x, 16);
      for (int half = 0; half < 2; half++) {
        const float *row = weights + half * 16 * WIDE;
        vec_t sum = *(row_t *)(s + r * WIDE + half * 16);
        for (int i = 0; i < 32; i++)
          sum += x[i] * *(const row_t *)(row + i % 16 * WIDE + i / 16 * 16);
        *(row_t *)(s + r * WIDE + half * 16) = sum;
      }
    }
}

/* whether a group reads what cannot be split */
static int reads_odd(const struct tile_conv *a, const char *from, word plane) {
  const word chunks = (a->channels + 31) / 32, taps = a->kernel_down * a->kernel_right;
  word place;
  walk w = walk_from(a, 0, plane, &place);
  for (word k = 0; k < chunks * taps; k++, from += step_of(&w))
    for (word r = 0; r < a->group; r++)
      if (are_odd(from + r * a->step * PIXEL, 64)) return 1;
  return 0;
}

/* pixels before a position: positions are pixels of rows that lie `pitch` apart */
static word pixels_before(const struct tile_conv *a, word position) {
  const word y = position / a->pitch, x = position % a->pitch;
  return y < a->high ? y * a->across + least(x, a->across) : a->high * a->across;
}

/* Panels j0 to j1 of lines l0 to l1 of image n, whose tiles begin with the first of these lines; `odd`:
   whether some of them cannot be split. `made`: memory for what the epilogue reads; with one panel
   alone, 32 elements of each pixel. */
static void lines_of(const struct tile_conv *a, word n, word l0, word l1, word j0, word j1,
                     const char *tiles, word plane, int odd, float *made, float *sums) {
  static __thread char split[2][PIECE * CHUNK] __attribute__((aligned(64)));
  const word chunks = (a->channels + 31) / 32, depth = chunks * a->kernel_down * a->kernel_right;
  const word panels = (a->outs + 31) / 32, g0 = l0 * a->per_line, g1 = l1 * a->per_line;
  const word pieces = (depth + PIECE - 1) / PIECE, pairs = (g1 - g0 + 1) / 2;
  const float *odd_panels = a->panels + panels * depth * NUMBERS;
  const word first = pixels_before(a, g0 * a->group), count = pixels_before(a, g1 * a->group) - first;
  const word step = a->shared ? 32 : a->outs, end = j1 * pieces;
  word row = a->out_row, pixel = a->out_pixel;
  if (made) row = a->across * step, pixel = step;
  splitting next = {a->panels + j0 * depth * NUMBERS, split[j0 * pieces % 2], 0, depth / pieces * ROWS};
  split_weights(&next, next.left);
  for (word u = j0 * pieces; u < end; u++) {
    const word j = u / pieces, piece = u % pieces, on = (u + 1) % pieces;
    const float *weights = a->panels + (j * depth + depth * piece / pieces) * NUMBERS;
    work b = {.k0 = depth * piece / pieces, .k1 = depth * (piece + 1) / pieces, .plane = plane};
    const word many = b.k1 - b.k0;
    next = (splitting){weights + many * NUMBERS, split[(u + 1) % 2]};
    if (u + 1 < end) next.left = (depth * (on + 1) / pieces - depth * on / pieces) * ROWS;
    b.p = split[u % 2], b.begins = !piece, b.ends = (a->group + many - 1) / many;
    b.splits = (next.left + 6 * many * pairs - 1) / (6 * many * pairs);
    float *to = made ? made - first * step + (a->shared ? 0 : j * 32)
                     : a->out + n * a->out_image + j * 32;
    ending before[2] = {{a}, {a}};
    for (word g = g0; g < g1; g += 2) {
      const int two = g + 1 < g1;
      b.sums = sums + (g - g0) % (pieces > 1 ? g1 : 4) * SUMS;
      b.upper = tiles + place_of(a, g - g0);
      b.lower = two ? tiles + place_of(a, g + 1 - g0) : b.upper;
      if (odd_panels[j] || (odd && (reads_odd(a, b.upper, plane) || reads_odd(a, b.lower, plane)))) {
        multiply_plainly(a, &b, b.upper, weights, b.sums);
        if (two) multiply_plainly(a, &b, b.lower, weights, b.sums + SUMS);
      } else {
        multiply(a, &b, two, before, &next);
      }
      end_rows(before, 16), end_rows(before + 1, 16);
      if (piece + 1 < pieces) continue;
      begin_ending(before, a, j, to, row, pixel);
      before[1] = before[0];
      add_group(before, g, b.sums);
      if (two) add_group(before + 1, g + 1, b.sums + SUMS);
    }
    end_rows(before, 16), end_rows(before + 1, 16);
    split_weights(&next, next.left);
  }
  if (!made) return;
  const word o0 = j0 * 32, o1 = least(j1 * 32, a->outs);
  const struct epilogue *e = a->epilogue;
  end_pixels(e, n * e->plane + first, count, o0, o1, made - (a->shared ? o0 : 0), step, 0);
}

EXPORT(tile_conv)(const struct tile_conv *a, word t, word threads) {
  const word panels = (a->outs + 31) / 32, chunks = (a->channels + 31) / 32;
  const word blocks = (a->lines + a->block - 1) / a->block;
  const word units = a->shared ? panels : a->images * blocks;
  threads = least(threads, a->threads);
  const word u0 = units * t / threads, u1 = units * (t + 1) / threads;
  if (t >= threads || u0 == u1) return;
  float *made = a->memory ? a->memory + t * a->made : 0, *sums = a->sums + t * a->room_of_sums;
  configure_both(a->group, a->group, 64);
  /* With an epilogue a panel after the other, whose results it has memory for. */
  for (word u = u0, next; a->shared && u < u1; u = next) {
    const word plane = span_of(a, a->lines) * PIXEL;
    next = made || a->images > 1 ? u + 1 : u1;
    for (word n = 0; n < a->images; n++) {
      const char *tiles = a->tiles + n * a->room;
      const word *odd_chunks = (const word *)(tiles + chunks * plane);
      word odd = 0;
      for (word c = 0; c < chunks; c++) odd |= odd_chunks[c];
      lines_of(a, n, 0, a->lines, u, next, tiles, plane, odd != 0, made, sums);
    }
  }
  for (word u = u0; !a->shared && u < u1; u++) {
    const word n = u / blocks, l0 = u % blocks * a->block, l1 = least(l0 + a->block, a->lines);
    const word span = span_of(a, l1 - l0), plane = span * PIXEL;
    char *tiles = a->tiles + t * a->room;
    const int odd = split_pixels(a, n, 0, chunks, l0 * a->line_step, span, tiles, plane);
    lines_of(a, n, l0, l1, 0, panels, tiles, plane, odd, made, sums);
  }
  _tile_release();
}
