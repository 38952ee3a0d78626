/* Products in blocks of rows, whose second factor is packed once: operators/backends/products/row_products.py. */
#include "packed_gemm.h"
#include "turned.h"
#include "row_products_arguments.h"

/* packs one panel of what pack_panels packs; columns after the last vector are not read */
static void one_panel(const struct pack *a, word panel, T *to) {
  const word k = a->k, down = a->down, right = a->right, cols = least(COLS, a->n - panel * COLS);
  const T alpha = a->alpha, *x = a->b + panel * COLS * right;
  if (cols % LANES == 0 && right == 1) {
    for (word j = 0; j < k; j++)
#pragma GCC unroll 4
      for (word i = 0; i < cols; i += LANES)
        *(vec_t *)(to + j * cols + i) = alpha * *(const row_t *)(x + j * down + i);
  } else if (cols % LANES == 0 && down == 1) {
    word j = 0;
    for (; j + LANES <= k; j += LANES)
      for (word i = 0; i < cols; i += LANES) turn(x + i * right + j, right, to + j * cols + i, cols);
    for (; j < k; j++)
      for (word i = 0; i < cols; i++) to[j * cols + i] = x[i * right + j];
    for (word i = 0; alpha != 1 && i < k * cols; i += LANES) *(vec_t *)(to + i) *= alpha;
  } else {
    const struct pack one = {
        .k = k, .n = cols, .b = x, .down = down, .right = right, .panels = to, .alpha = a->alpha};
    pack_panels(&one, 0, 1);
  }
}

/* asks for part `part` of 8 of what a panel is packed from */
static void ask(const struct pack *a, word panel, int part) {
  const word k = a->k, n = a->n, down = a->down, right = a->right, first = panel * COLS;
  if (first >= n) return;
  const word cols = least(COLS, n - first), line = 64 / sizeof(T);
  const char *x = (const char *)(a->b + first * right);
  const word long_side = right == 1 ? k : cols, short_side = right == 1 ? cols : k;
  const word step = (right == 1 ? down : right) * sizeof(T);
  for (word i = long_side * part / 8; i < long_side * (part + 1) / 8; i++)
    for (word j = 0; j < short_side; j += line)
      __builtin_prefetch(x + i * step + j * sizeof(T), 0, 2);
}

/* asks for rows of a matrix */
static void near(const T *x, word step, word rows, word cols) {
  for (word i = 0; i < rows; i++)
    for (word j = 0; j < cols; j += 64 / sizeof(T)) __builtin_prefetch(x + i * step + j);
}

enum { TURNED = 1 << 17 };  /* bytes of rows of a that lie in columns, and are packed together */
/* where these are packed: not on the stack, which threads of a program may have little of */
static __thread T turned_rows[TURNED / sizeof(T)] __attribute__((aligned(64)));

/* Rows that lie in columns, as tiles read them: HIGH rows side by side, for one number of the inner
   dimension after another. As they lie, a tile reads a line of memory for each of these, which are
   far apart. */
static void pack_turned(const T *a, word next_k, word rows, word k, T *to) {
  for (word j = 0; j < k; j++, a += next_k, to += HIGH) {
    word i = 0;
    for (; i + HIGH <= rows; i += HIGH) memcpy(to + i * k, a + i, HIGH * sizeof(T));
    if (i < rows) memcpy(to + i * k, a + i, (rows - i) * sizeof(T));
  }
}

/* piece by piece of the inner dimension */
EXPORT(rows)(const struct rows *b, word c, word blocks) {
  T *const own = turned_rows;
  const word m = b->m, n = b->n, ldc = b->out_step, r0 = m * c / blocks, r1 = m * (c + 1) / blocks;
  const word lda = b->down, next_k = b->right;
  const int packing = !b->packed && !c;
  const T *from = b->begin;
  T *out = b->out;
  word step = b->begin_step;
  for (word i = 0; i < b->count; i++) {
    const struct pack *how = b->pieces + i;
    const word k = how->k;
    const word room = k ? least(TURNED / (k * sizeof(T)) / HIGH, 8) * HIGH : 0;
    const int turned = lda == 1 && next_k != 1 && room;
    /* rows of a that panels pass by */
    const word high = turned ? room : packing ? r1 - r0 : CHUNK;
    const T *a = b->a + i * b->each * next_k;
    for (word r = r0; r < r1; r += high) {
      const word end = least(r + high, r1);
      const int fresh = packing && (!turned || r == r0);
      if (turned) pack_turned(a + r, next_k, end - r, k, own);
      for (word j = 0; j < n; j += COLS) {
        /* panels that nobody asks for again all take the same memory, which stays near */
        T *p = how->panels + (packing && blocks == 1 && !turned ? 0 : j * k);
        const word cols = least(COLS, n - j);
        const T *begin = from ? from + j : 0;
        if (fresh) one_panel(how, j / COLS, p);
        for (word at = r; at < end; at += HIGH) {
          const word next = least(at + HIGH, end);
          if (fresh && at - r < 8 * HIGH) ask(how, j / COLS + 1, (at - r) / HIGH);
          if (blocks > 1) near(out + next * ldc + j, ldc, least(HIGH, end - next), cols);
          if (blocks > 1 && !j && next_k == 1)
            near(a + next * lda, lda, least(HIGH, r1 - next), k);
          if (turned)
            panel_rows(0, next - at, cols, k, own + (at - r) * k, 1, HIGH, p, p,
                       out + at * ldc + j, ldc, begin ? begin + at * step : 0, step);
          else
            panel_rows(at, next, cols, k, a, lda, next_k, p, p, out + j, ldc, begin, step);
        }
      }
    }
    from = out, step = ldc;
  }
}

/* A product on one thread, as a function of four addresses. Each panel is packed right before it is
   used, so small products, as the heads of attention have them, need no memory of their own. Of
   128x64 by 64x128 and then 128x128 by 128x64, MKL took a third of the time on a Zen 4 to pack
   factors and to clear the result. */
EXPORT(small_product)(const struct small_product *h, const T *a, const T *b, T *c) {
  enum { DEEP = 256 };  /* of the inner dimension in a panel */
  static __thread T panel[COLS * DEEP] __attribute__((aligned(64)));
  const word m = h->m, n = h->n, ldc = h->c_step;
  const word lda = h->a_turned ? 1 : h->a_step, next_k = h->a_turned ? h->a_step : 1;
  for (word k0 = 0; k0 < h->k || !k0; k0 += DEEP) {
    const word k = least(DEEP, h->k - k0);
    const struct pack how = {
        .k = k, .n = n, .down = h->b_turned ? 1 : h->b_step, .right = h->b_turned ? h->b_step : 1,
        .b = b + k0 * (h->b_turned ? 1 : h->b_step), .alpha = h->alpha};
    const int adds = k0 || h->beta != 0, turned = h->a_turned && k;
    const word high = turned ? (word)(TURNED / (k * sizeof(T)) / HIGH) * HIGH : m;
    for (word r = 0; r < m; r += high) {
      const word end = least(r + high, m);
      if (turned) pack_turned(a + r + k0 * next_k, next_k, end - r, k, turned_rows);
      for (word j = 0; j < n; j += COLS) {
        const word cols = least(COLS, n - j);
        one_panel(&how, j / COLS, panel);
        if (!turned)
          panel_rows(r, end, cols, k, a + k0 * next_k, lda, next_k, panel, panel, c + j, ldc,
                     adds ? c + j : 0, ldc);
        for (word at = r; turned && at < end; at += HIGH)
          panel_rows(0, least(HIGH, end - at), cols, k, turned_rows + (at - r) * k, 1, HIGH, panel,
                     panel, c + at * ldc + j, ldc, adds ? c + at * ldc + j : 0, ldc);
      }
    }
  }
}

/* Several threads pack all panels first; one packs each when it gets there. */
EXPORT(panels)(struct rows *b, word t, word threads) {
  if (threads > 1)
    for (word i = 0; i < b->count; i++) {
      const struct pack *how = b->pieces + i;
      const word panels = (how->n + COLS - 1) / COLS;
      for (word p = panels * t / threads; p < panels * (t + 1) / threads; p++)
        one_panel(how, p, how->panels + p * COLS * how->k);
    }
  if (!t) b->packed = threads > 1;
}
