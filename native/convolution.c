/* Direct convolutions: operators/direct/convolutions.py.

   All three directions work on images whose channels lie side by side:

       out[pixel, o] = bias[o] + sum over taps and c of image[pixel + tap, c] * weight[tap, c, o]

   A tile of pixels times one, two or four vectors of outputs stays in registers; the weights are
   packed so that a vector of outputs is one load. The gradient by data is the same sum with the
   weights turned round, once for each remainder of the places modulo the stride. The gradient by
   weights keeps a tile of (tap, c) times o in registers while it goes over the pixels.

   Tiles: Georganas et al. 2018, "Anatomy of high-performance deep learning convolutions on SIMD
   architectures". */
#include "images.h"
#include "pooling.h"
#include "epilogue.h"
#include "convolution_arguments.h"

/* Whether there are 32 registers of vectors, and not 16, which sums, weights and a pixel share: taller
   or wider tiles go through memory then and take 1.5 times as long. */
#if defined(__AVX512F__) || defined(__aarch64__)
enum { MANY = 1 };
#else
enum { MANY = 0 };
#endif

/* where nothing has changed since the panels were made, nothing is done */
EXPORT(pack_weights)(const struct pack_weights *a, word t, word threads) {
  const word outs = a->outs, inner = a->inner, taps = a->taps, so = a->out_step, si = a->in_step;
  const word end = a->overlap ? outs - LANES : outs;  /* where the last vector begins, at most */
  const word *tap = a->places;
  const T *w = a->w;
  const word vectors = (outs + LANES - 1) / LANES;
  if (a->overlap) {  /* the last vector reads what others are made of, too */
    if (t) return;
    threads = 1;
  }
  const word v0 = vectors * t / threads, v1 = vectors * (t + 1) / threads;
  if (a->old && v0 < v1) {  /* weights whose outs lie one behind the other */
    const word o0 = v0 * LANES * so, o1 = least(v1 * LANES, outs) * so;
    T *old = a->old;
    if (!memcmp(old + o0, w + o0, (o1 - o0) * sizeof(T))) return;
    memcpy(old + o0, w + o0, (o1 - o0) * sizeof(T));
  }
  for (word v = v0; v < v1; v++) {
    T *to = a->panels + v * a->panel;
    const word o = least(v * LANES, end), lanes = least(LANES, outs - o);
    const T *from = w + o * so;
    for (word k = 0; k < taps; k++)
      for (word i = 0; i < inner; i++, to += LANES) {
        const T *x = from + i * si + tap[k];
        for (word o = 0; o < lanes; o++) to[o] = x[o * so];
        for (word o = lanes; o < LANES; o++) to[o] = 0;
      }
  }
}

/* What the tiles of a phase share; of `outs` outputs from some on are w, bias, factor and out, which
   lies `far` from the first two caches; other: what is added to the results, in places as theirs, or
   0. It may be in the memory of out. */
typedef struct tiles {
  const struct phase *phase;
  const struct activation *activation;
  word step, channels, outs;
  word tap, end_tap, from, to;  /* taps and channels that are added now */
  int far, begins, ends;        /* whether these are the first, and the last */
  const T *x, *w, *bias, *factor, *other;
  T *out;
} tiles;

/* `high` pixels (px: their places) times `wide` vectors of outputs. apart: distance of the pixels
   where that is known when this is compiled, as addresses then take no registers; 1: they have one
   channel, and a loop over it took as long as its one element; -1: `step`; 0: they lie anyhow */
INLINE void tile(const int high, const int wide, const int apart, const tiles *a, const word *px,
                 const word *po) {
  const word step = a->step, from = a->from, to = a->to, panel = a->phase->panel;
  const word outs = a->outs, *tap = a->phase->tap_places, end = a->end_tap;
  const T *x = a->x, *w = a->w + (a->tap * a->channels + from) * LANES;
  const T *bias = a->bias, *factor = a->factor;
  const T *other = a->other;
  T *out = a->out;
  vec_t s[16][4];
  word at[16];
#pragma GCC unroll 16
  for (int i = 0; i < high; i++) {
    if (!apart) at[i] = px[i];
#pragma GCC unroll 4
    for (int v = 0; v < wide; v++)
      s[i][v] = bias && !factor ? (vec_t) * (const row_t *)(bias + v * LANES) : (vec_t){0};
  }
  if (!a->begins)
#pragma GCC unroll 16
    for (int i = 0; i < high; i++)
#pragma GCC unroll 4
      for (int v = 0; v < wide; v++) s[i][v] = *(const row_t *)(out + po[i] + v * LANES);
  else if (a->far)
#pragma GCC unroll 16
    for (int i = 0; i < high; i++)
#pragma GCC unroll 4
      for (int v = 0; v < wide; v++) __builtin_prefetch(out + po[i] + v * LANES, 1);
  if (other)
#pragma GCC unroll 16
    for (int i = 0; i < high; i++)
#pragma GCC unroll 4
      for (int v = 0; v < wide; v++) __builtin_prefetch(other + po[i] + v * LANES);
  if (apart) x += px[0];
  for (word k = a->tap; k < end; k++) {
    const T *base = x + tap[k];
    /* a place, not an index: the sums of that and of each pixel took a register and an operation */
    __asm__("" : "+r"(base));
    for (word j = apart == 1 ? 0 : from; j < (apart == 1 ? 1 : to); j++, w += LANES) {
      vec_t b[4];
      /* loaded anew by each: pixels that stay in registers take shuffles to be spread from there */
      if (apart == 1) __asm__ volatile("" ::: "memory");
#pragma GCC unroll 4
      for (int v = 0; v < wide; v++) b[v] = *(const row_t *)(w + v * panel);
#pragma GCC unroll 16
      for (int i = 0; i < high; i++) {
        const T value = base[(apart > 0 ? i * apart : apart ? i * step : at[i]) + j];
#pragma GCC unroll 4
        for (int v = 0; v < wide; v++) s[i][v] += value * b[v];
      }
    }
  }
  if (factor && a->ends)
#pragma GCC unroll 4
    for (int v = 0; v < wide; v++) {
      const vec_t f = *(const row_t *)(factor + v * LANES);
      const vec_t term = *(const row_t *)(bias + v * LANES);
#pragma GCC unroll 16
      for (int i = 0; i < high; i++) s[i][v] = s[i][v] * f + term;
    }
  if (other)
#pragma GCC unroll 16
    for (int i = 0; i < high; i++)
#pragma GCC unroll 4
      for (int v = 0; v < wide; v++) s[i][v] += *(const row_t *)(other + po[i] + v * LANES);
  if (a->ends)
#pragma GCC unroll 16
    for (int i = 0; i < high; i++) activate(a->activation, wide, s[i]);
  if (outs >= wide * LANES) {
#pragma GCC unroll 16
    for (int i = 0; i < high; i++)
#pragma GCC unroll 4
      for (int v = 0; v < wide; v++) *(row_t *)(out + po[i] + v * LANES) = s[i][v];
    return;
  }
#pragma GCC unroll 16
  for (int i = 0; i < high; i++)
#pragma GCC unroll 4
    for (int v = 0; v < wide; v++) store_lanes(out + po[i] + v * LANES, s[i][v], outs - v * LANES);
}

typedef void (*tiler_t)(const tiles *a, const word *px, const word *po);
#define TILE(high, wide, name, apart)                                                          \
  static void tile_##high##_##wide##_##name(const tiles *a, const word *px, const word *po) {  \
    tile(high, wide, apart, a, px, po);                                                        \
  }
#define ROW(high, wide)                                                                           \
  TILE(high, wide, 1, 1) TILE(high, wide, 3, 3) TILE(high, wide, 16, 16) TILE(high, wide, 32, 32) \
  TILE(high, wide, 64, 64) TILE(high, wide, even, -1)                                             \
  static tiler_t tiler_##high##_##wide(word step, word channels) {                              \
    return step == 16   ? tile_##high##_##wide##_16                                             \
           : step == 32 ? tile_##high##_##wide##_32                                             \
           : step == 64 ? tile_##high##_##wide##_64                                             \
           : step == 1 && channels == 1 ? tile_##high##_##wide##_1                             \
           : step == 3  ? tile_##high##_##wide##_3                                              \
                        : tile_##high##_##wide##_even;                                          \
  }
ROW(16, 1) ROW(12, 1) ROW(8, 1) ROW(8, 2) ROW(6, 2) ROW(6, 4)
#undef ROW
TILE(1, 1, any, -1) TILE(2, 1, any, 0) TILE(4, 1, any, 0) TILE(8, 1, any, 0)
TILE(1, 2, any, -1) TILE(2, 2, any, 0) TILE(4, 2, any, 0) TILE(6, 2, any, 0)
TILE(8, 2, any, 0)
TILE(1, 4, any, -1) TILE(2, 4, any, 0) TILE(4, 4, any, 0) TILE(6, 4, any, 0)
#undef TILE

/* `count` pixels of `wide` vectors of outputs */
static void tiled(word wide, word count, const tiles *a, const word *px, const word *po) {
  const word step = a->step;
  for (word i = 0, high; i < count; i += high) {
    const word rest = count - i;
    tiler_t f;
#define EVEN(high) (px[i + high - 1] - px[i] == (high - 1) * step)
    if (wide == 4) {
      high = rest >= 6 ? 6 : rest >= 4 ? 4 : rest >= 2 ? 2 : 1;
      f = high == 6   ? (EVEN(6) ? tiler_6_4(step, a->channels) : tile_6_4_any)
          : high == 4 ? tile_4_4_any
          : high == 2 ? tile_2_4_any
                      : tile_1_4_any;
    } else if (wide == 2) {
      high = MANY && rest >= 8 ? 8 : rest >= 6 ? 6 : rest >= 4 ? 4 : rest >= 2 ? 2 : 1;
      f = high == 8   ? (EVEN(8) ? tiler_8_2(step, a->channels) : tile_8_2_any)
          : high == 6 ? (EVEN(6) ? tiler_6_2(step, a->channels) : tile_6_2_any)
          : high == 4 ? tile_4_2_any
          : high == 2 ? tile_2_2_any
                      : tile_1_2_any;
    } else {
      high = MANY && rest >= 16 && EVEN(16)   ? 16
             : rest >= 12 && EVEN(12) ? 12
             : rest >= 8              ? 8
             : rest >= 4              ? 4
             : rest >= 2              ? 2
                                      : 1;
      f = high == 16   ? tiler_16_1(step, a->channels)
          : high == 12 ? tiler_12_1(step, a->channels)
          : high == 8  ? (EVEN(8) ? tiler_8_1(step, a->channels) : tile_8_1_any)
          : high == 4  ? tile_4_1_any
          : high == 2  ? tile_2_1_any
                       : tile_1_1_any;
    }
#undef EVEN
    f(a, px + i, po + i);
  }
}

/* Bytes of weights that all tiles read from the second cache as fast as they need them; of more they
   take so many at a time that these stay in the first cache from tile to tile, while the image and the
   sums of as many pixels stay in the second. On an Intel Xeon 9 taps of 512 channels
   and outputs of 7x7 pixels take 0.93 times as long so, and 0.85 times where weights come from memory; of
   256 channels and 14x14 pixels 1.04 and 0.87 to 1.01 times (a busy machine). */
enum { STREAMED = 256 << 10, FIRST = 32 << 10, SECOND = 512 << 10 };

/* pixels i0 to i1 of all outputs */
static void pixels(word i0, word i1, const tiles *all, const word *po) {
  const word *px = all->phase->pixel_places, c = all->channels, taps = all->phase->taps;
  for (word o = 0, wide; o < all->outs; o += wide * LANES) {
    const word left = (all->outs - o + LANES - 1) / LANES;
    wide = MANY && left >= 4 ? 4 : left >= 2 ? 2 : 1;
    tiles a = *all;
    a.w += o / LANES * a.phase->panel, a.outs -= o, a.out += o;
    if (a.bias) a.bias += o;
    if (a.factor) a.factor += o;
    if (a.other) a.other += o;
    const word row = wide * LANES * sizeof(T), most = FIRST / row;
    /* sums wait where their results will be, which have whole vectors then */
    const int fit = taps * c * row <= STREAMED || a.outs < wide * LANES || i1 - i0 < 16;
    const int whole = fit || a.other;
    const word few = whole ? taps : c < most ? most / c : 1;
    const word cut = whole || c < most ? 1 : (c + most - 1) / most;
    const word parts = whole ? 1 : (taps + few - 1) / few * cut;
    const word many = SECOND / (c * sizeof(T) + row);
    const word block = whole ? i1 - i0 : many < 48 ? 48 : many - many % 48;
    for (word i = i0; i < i1; i += block)
      for (word k = 0; k < parts; k++) {
        a.tap = k / cut * few, a.end_tap = least(a.tap + few, taps);
        a.from = k % cut * c / cut, a.to = (k % cut + 1) * c / cut;
        a.begins = k == 0, a.ends = k + 1 == parts;
        tiled(wide, least(block, i1 - i), &a, px + i, po + i);
      }
  }
}

/* as pixels, where each output has one channel of its own */
static void depthwise(word i0, word i1, const tiles *a, const word *po) {
  const struct phase *p = a->phase;
  const word taps = p->taps, *tap = p->tap_places, *px = p->pixel_places;
  const T *w = a->w;
  for (word o = 0; o < a->outs; o += LANES, w += p->panel) {
    const vec_t zero = {0};
    const vec_t term = a->bias ? (vec_t) * (const row_t *)(a->bias + o) : zero;
    const vec_t begin = a->factor ? zero : term;
    const word lanes = least(LANES, a->outs - o);
    for (word i = i0; i < i1; i += 4) {
      const word *at = px + i, few = least(4, i1 - i);
      vec_t s[4] = {begin, begin, begin, begin};
      if (few == 4)
        for (word k = 0; k < taps; k++) {
          const vec_t b = *(const row_t *)(w + k * LANES);
          const T *base = a->x + tap[k] + o;
          for (int j = 0; j < 4; j++) s[j] += *(const row_t *)(base + at[j]) * b;
        }
      else
        for (word j = 0; j < few; j++)
          for (word k = 0; k < taps; k++)
            s[j] += *(const row_t *)(a->x + tap[k] + o + at[j]) * *(const row_t *)(w + k * LANES);
      if (a->factor)
        for (word j = 0; j < 4; j++) s[j] = s[j] * *(const row_t *)(a->factor + o) + term;
      activate(a->activation, 4, s);
      for (word j = 0; j < few; j++) store_lanes(a->out + po[i + j] + o, s[j], lanes);
    }
  }
}

/* the pixels that a part of the windows of pool_windows reads, counted from phase to phase: each has
   some rows of the plane */
static void pixels_of(const struct windows *b, word part, word parts, word *begin, word *end) {
  const word stride = b->stride_down, before = b->before_down;
  const word first = b->high * part / parts * stride;
  const word last = (b->high * (part + 1) / parts - 1) * stride;
  *begin = (first < before ? 0 : first - before) * b->width;
  *end = least(last - before + b->kernel_down, b->height) * b->width;
}

/* where a part of `count` pixels begins: parts are of whole tiles, as far as they are large enough */
static word edge(word count, word part, word parts) {
  const word at = count * part / parts, tiles = count >= 48 * parts ? 48 : count >= 6 * parts ? 6 : 1;
  return part < parts ? at - at % tiles : count;
}

/* Parts of an image that follow each other are done as one: more of their tiles are whole. */
EXPORT(conv)(const struct conv *b, word t, word threads) {
  threads = least(threads, b->threads);
  if (t >= threads) return;
  const word parts = b->parts, outs = b->outs, vectors = (outs + LANES - 1) / LANES;
  const word end_unit = b->images * parts * (t + 1) / threads;
  T *own = b->memory + t * b->room;
  for (word u = b->images * parts * t / threads, next; u < end_unit; u = next) {
    const word n = u / parts, part = u % parts;
    next = b->pool ? u + 1 : least((n + 1) * parts, end_unit);
    const word until = next - n * parts;
    const word o0 = b->sliced ? vectors * part / parts * LANES : 0;
    const word o1 = b->sliced ? least(vectors * until / parts * LANES, outs) : outs;
    const T *x = image(&b->image, n, t);
    T *out = b->out + n * b->out_image;
    const struct phase *p = b->phases;
    word begin = 0, end = 0;
    if (b->pool) pixels_of(&b->pool->windows, part, parts, &begin, &end);
    for (word phase = 0; phase < b->count && o0 < o1; phase++, p++) {
      const word count = p->pixels;
      word i0 = 0, i1 = count;
      if (b->pool)
        i0 = least(begin, count), i1 = least(end, count), begin -= i0, end -= i1;
      else if (!b->sliced)
        i0 = edge(count, part, parts), i1 = edge(count, until, parts);
      const word *po = p->memory_places, *places = p->places;
      const word few = b->block ? b->block : i1 - i0;
      /* The last block has up to half as many pixels more: of a few alone weights take longest. */
      for (word j0 = i0, j1; j0 < i1; j0 = j1) {
        j1 = i1 - j0 <= few + few / 2 ? i1 : j0 + few;
        const tiles all = {
            .phase = p, .activation = &b->activation, .step = b->step, .channels = b->channels,
            .outs = o1 - o0, .far = !b->block && count * outs * sizeof(T) > FAR,
            .x = b->deep ? x + o0 : x, .w = p->panels + o0 / LANES * p->panel,
            .bias = b->bias ? b->bias + o0 : 0, .factor = b->factors ? b->factors + o0 : 0,
            .other = b->other ? b->other + n * b->out_image + o0 : 0,
            .out = (b->block ? own - po[j0] : b->memory ? own : out) + o0};
        (b->deep ? depthwise : pixels)(j0, j1, &all, po);
        if (!b->block) continue;
        const int turned = b->out_channel != 1 && outs > 1;
        if (b->epilogue) {
          const struct epilogue *e = b->epilogue;
          const word number = turned ? 0 : n * e->plane + places[j0] / e->pixel;
          end_pixels(e, number, j1 - j0, o0, o1, own, outs, turned);
        }
        for (word i = j0, count; turned && i < j1; i += count) {
          for (count = 1; i + count < j1 && places[i + count] == places[i] + count;) count++;
          turn_all(own + (i - j0) * outs, outs, count, outs, out + places[i], b->out_channel);
        }
      }
    }
    if (b->pool) {
      struct pool of_one = *b->pool;
      const struct windows *w = &of_one.windows;
      of_one.x = own, of_one.out = out;
      if (of_one.winners) of_one.winners += n * w->channels * w->high * w->wide;
      pool_windows(&of_one, part, parts);
    }
  }
}

/* s[high][wide] += values at `at` (side: side by side) of each pixel times its gradients */
INLINE void sums(const int high, const int wide, const int side, word count, const T *x,
                   const word *px, const word *at, const T *g, word gstep, T *to, word outs) {
  vec_t s[16][4];
#pragma GCC unroll 16
  for (int i = 0; i < high; i++)
#pragma GCC unroll 4
    for (int v = 0; v < wide; v++) s[i][v] = *(const row_t *)(to + i * outs + v * LANES);
  const word first = at[0];
  for (word j = 0; j < count; j++) {
    const T *base = x + px[j];
    vec_t b[4];
#pragma GCC unroll 4
    for (int v = 0; v < wide; v++) b[v] = *(const row_t *)(g + j * gstep + v * LANES);
#pragma GCC unroll 16
    for (int i = 0; i < high; i++) {
      const T value = base[side ? first + i : at[i]];
#pragma GCC unroll 4
      for (int v = 0; v < wide; v++) s[i][v] += value * b[v];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < high; i++)
#pragma GCC unroll 4
    for (int v = 0; v < wide; v++) *(row_t *)(to + i * outs + v * LANES) = s[i][v];
}

#define ARGS word count, const T *x, const word *px, const word *at, const T *g, word gstep, \
             T *to, word outs
typedef void (*summer_t)(ARGS);
#define SUMS(high, wide, side)                                    \
  static void sums_##high##_##wide##_##side(ARGS) {             \
    sums(high, wide, side, count, x, px, at, g, gstep, to, outs); \
  }
SUMS(1, 1, 0) SUMS(4, 1, 0) SUMS(8, 1, 0) SUMS(12, 1, 1) SUMS(16, 1, 1)
SUMS(1, 2, 0) SUMS(4, 2, 0) SUMS(6, 2, 0) SUMS(6, 2, 1) SUMS(8, 2, 0) SUMS(8, 2, 1)
SUMS(1, 4, 0) SUMS(4, 4, 0) SUMS(4, 4, 1)
#undef SUMS
#undef ARGS

/* to[high] += values at `at` of each pixel times its gradients, lane by lane */
static void products(word high, word count, const T *x, const word *px, const word *at,
                       const T *g, word gstep, T *to, word outs) {
  vec_t s[8];
  word place[8];
  for (int i = 0; i < 8; i++) {
    s[i] = (vec_t){0};
    place[i] = at[i < high ? i : 0];
  }
  for (word j = 0; j < count; j++) {
    const T *base = x + px[j];
    const vec_t b = *(const row_t *)(g + j * gstep);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) s[i] += *(const row_t *)(base + place[i]) * b;
  }
  for (int i = 0; i < high; i++) *(row_t *)(to + i * outs) += s[i];
}

static int side_by_side(const word *at, word count) {
  for (word i = 1; i < count; i++)
    if (at[i] != at[0] + i) return 0;
  return 1;
}
/* sums of each row (tap, channel), and of the gradients alone */
EXPORT(sums_of)(const struct sums_of *b, word t, word threads) {
  threads = least(threads, b->threads);
  if (t >= threads) return;
  const word parts = b->parts, rows = b->rows, count = b->pixels, outs = b->outs;
  const word *at = b->row_places, *px = b->pixel_places, gstep = b->grad_step;
  for (word part = parts * t / threads; part < parts * (t + 1) / threads; part++) {
    word o0 = 0, o1 = outs, n0 = b->images * part / parts, n1 = b->images * (part + 1) / parts;
    T *sums = b->sums + part * (rows + 1) * outs;
    if (b->sets < parts) {
      o0 = outs / LANES * part / parts * LANES, o1 = outs / LANES * (part + 1) / parts * LANES;
      n0 = 0, n1 = b->images;
      sums = b->sums;
    }
    for (word r = 0; r <= rows; r++) memset(sums + r * outs + o0, 0, (o1 - o0) * sizeof(T));
    for (word n = n0; n < n1; n++) {
      const T *x = image(&b->image, n, t), *g = image(&b->grad, n, t);
      for (word j0 = 0; j0 < count; j0 += b->few) {
        const word few = least(b->few, count - j0);
        const word *pixel = px + j0;
        const T *from = g + j0 * gstep;
        for (word o = o0, wide; o < o1; o += wide * LANES) {
          const word left = (o1 - o) / LANES;
          wide = MANY && left >= 4 ? 4 : left >= 2 ? 2 : 1;
          for (word r = 0; b->deep && r < rows; r += 8)
            for (word v = o; v < o + wide * LANES; v += LANES)
              products(least(8, rows - r), few, x + v, pixel, at + r, from + v, gstep,
                         sums + r * outs + v, outs);
          for (word r = 0, high; !b->deep && r < rows; r += high) {
            const word rest = rows - r;
            summer_t f;
#define SIDE(high) side_by_side(at + r, high)
            if (wide == 4) {
              high = rest >= 4 ? 4 : 1;
              f = high == 4 ? (SIDE(4) ? sums_4_4_1 : sums_4_4_0) : sums_1_4_0;
            } else if (wide == 2) {
              high = MANY && rest >= 8 ? 8 : rest >= 6 ? 6 : rest >= 4 ? 4 : 1;
              f = high == 8   ? (SIDE(8) ? sums_8_2_1 : sums_8_2_0)
                  : high == 6 ? (SIDE(6) ? sums_6_2_1 : sums_6_2_0)
                  : high == 4 ? sums_4_2_0
                              : sums_1_2_0;
            } else {
              high = MANY && rest >= 16 && SIDE(16) ? 16
                     : rest >= 12 && SIDE(12)       ? 12
                     : rest >= 8                    ? 8
                     : rest >= 4                    ? 4
                                                    : 1;
              f = high == 16   ? sums_16_1_1
                  : high == 12 ? sums_12_1_1
                  : high == 8 ? sums_8_1_0
                  : high == 4 ? sums_4_1_0
                              : sums_1_1_0;
            }
#undef SIDE
            f(few, x, pixel, at + r, from + o, gstep, sums + r * outs + o, outs);
          }
          for (word v = o; v < o + wide * LANES; v += LANES) {
            row_t *total = (row_t *)(sums + rows * outs + v);
            vec_t s[4] = {*total};
            word j = 0;
            for (; j + 4 <= few; j += 4)
              for (int i = 0; i < 4; i++) s[i] += *(const row_t *)(from + v + (j + i) * gstep);
            for (; j < few; j++) s[0] += *(const row_t *)(from + v + j * gstep);
            *total = (s[0] + s[1]) + (s[2] + s[3]);
          }
        }
      }
    }
  }
}

EXPORT(total)(const struct total *b, word t, word threads) {
  const word parts = b->parts, rows = b->rows, outs = b->outs, all = (rows + 1) * outs;
  const word r0 = (rows + 1) * t / threads, r1 = (rows + 1) * (t + 1) / threads;
  const word filters = least(r1, rows) - r0;
  for (word part = 1; part < parts; part++)
    for (word i = r0 * outs; i < r1 * outs; i++) b->sums[i] += b->sums[part * all + i];
  if (b->w_grad && b->in_order)
    turn_all(b->sums + r0 * outs, outs, filters, b->wanted, b->w_grad + r0, b->w_step);
  for (word r = r0; b->w_grad && !b->in_order && r < r0 + filters; r++)
    for (word o = 0; o < b->wanted; o++)
      b->w_grad[b->places[r] + o * b->w_step] = b->sums[r * outs + o];
  for (word o = 0; b->b_grad && r0 <= rows && rows < r1 && o < b->wanted; o++)
    b->b_grad[o * b->b_step] = b->sums[rows * outs + o];
}
