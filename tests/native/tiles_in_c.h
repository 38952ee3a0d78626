/* The tiles of AMX in plain C, for processors that lack them: put before a C file that uses them
   (tests/tiles.py). What an instruction does is written from its description in Intel's manual of
   instruction set extensions, chapter 3. What the processor answers with a fault ends the process
   here, with a message. */
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define __AMX_TILE__ 1

enum { TILES_ = 8, TILE_ROWS_ = 16, TILE_BYTES_ = 64 };

typedef struct {
  int configured;
  uint16_t bytes[TILES_]; /* of a row */
  uint8_t rows[TILES_];
  char tile[TILES_][TILE_ROWS_][TILE_BYTES_] __attribute__((aligned(64)));
} tiles_state_;

static __thread tiles_state_ tiles_;

static inline void tiles_want_(int holds, const char *fault) {
  if (holds) return;
  fprintf(stderr, "tiles in C: %s\n", fault);
  abort();
}

/* LDTILECFG: palette, first row, 14 zeros, bytes of a row for 8 tiles and 16 zeros, rows for 8 tiles
   and 8 zeros. It makes all tiles zero. */
static __attribute__((noinline)) void tiles_loadconfig_(const void *from) {
  static const uint8_t zeros[16];
  const uint8_t *b = from;
  memset(&tiles_, 0, sizeof tiles_);
  tiles_want_(b[0] <= 1, "a palette that is not there");
  if (b[0] == 0) return;
  tiles_want_(b[1] == 0, "a first row");
  tiles_want_(!memcmp(b + 2, zeros, 14), "a byte that is reserved");
  tiles_want_(!memcmp(b + 32, zeros, 16), "bytes of a row of a tile that is not there");
  tiles_want_(!memcmp(b + 56, zeros, 8), "rows of a tile that is not there");
  memcpy(tiles_.bytes, b + 16, sizeof tiles_.bytes);
  memcpy(tiles_.rows, b + 48, sizeof tiles_.rows);
  for (int t = 0; t < TILES_; t++) {
    tiles_want_(tiles_.bytes[t] <= TILE_BYTES_, "a row of more than 64 bytes");
    tiles_want_(tiles_.rows[t] <= TILE_ROWS_, "a tile of more than 16 rows");
    tiles_want_(!tiles_.bytes[t] == !tiles_.rows[t], "rows without bytes, or bytes without rows");
  }
  tiles_.configured = 1;
}

static inline void tiles_release_(void) { memset(&tiles_, 0, sizeof tiles_); }

static inline void tiles_used_(int t) {
  tiles_want_(tiles_.configured, "no configuration is loaded");
  tiles_want_(t >= 0 && t < TILES_, "a tile that is not there");
  tiles_want_(tiles_.rows[t] > 0, "a tile without rows");
}

static __attribute__((noinline)) void tiles_zero_(int t) {
  tiles_used_(t);
  memset(tiles_.tile[t], 0, sizeof tiles_.tile[t]);
}

/* TILELOADD: rows `step` bytes apart; zeros beyond the rows and bytes of the tile */
static __attribute__((noinline)) void tiles_load_(int t, const void *from, int64_t step) {
  tiles_zero_(t);
  for (int r = 0; r < tiles_.rows[t]; r++)
    memcpy(tiles_.tile[t][r], (const char *)from + r * step, tiles_.bytes[t]);
}

static __attribute__((noinline)) void tiles_store_(int t, void *to, int64_t step) {
  tiles_used_(t);
  for (int r = 0; r < tiles_.rows[t]; r++)
    memcpy((char *)to + r * step, tiles_.tile[t][r], tiles_.bytes[t]);
}

/* 0, of the same sign, for a number below the normal ones: the product neither takes nor gives any */
static inline float tiles_flushed_(float x) {
  return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

static inline float tiles_bf16_(const char *from) {
  uint16_t half;
  memcpy(&half, from, 2);
  const uint32_t bits = (uint32_t)half << 16;
  float x;
  memcpy(&x, &bits, 4);
  return tiles_flushed_(x);
}

static inline void tiles_agree_(int c, int a, int b) {
  tiles_used_(c), tiles_used_(a), tiles_used_(b);
  tiles_want_(c != a && a != b && b != c, "a tile is two of a product's three");
  tiles_want_(tiles_.bytes[c] % 4 == 0 && tiles_.bytes[a] % 4 == 0 && tiles_.bytes[b] % 4 == 0,
              "a row of a part of a number");
  tiles_want_(tiles_.rows[c] == tiles_.rows[a], "other rows in a sum than in its first factor");
  tiles_want_(tiles_.bytes[c] == tiles_.bytes[b], "other columns in a sum than in its second factor");
  tiles_want_(tiles_.bytes[a] / 4 == tiles_.rows[b], "factors of different inner dimensions");
}

/* TDPBF16PS: a row of c plus that row of a times b, pairs of bf16. The first numbers of the pairs are
   added up from 0, and the second ones beside them, by operations that multiply and add with one
   rounding; then these two sums; then c. */
static __attribute__((noinline)) void tiles_dpbf16ps_(int c, int a, int b) {
  tiles_agree_(c, a, b);
  /* All columns that a tile may have, which is faster: those beyond its own are not written. */
  enum { COLUMNS = TILE_BYTES_ / 4 };
  float second[TILE_ROWS_][2][COLUMNS];
  const int pairs = tiles_.rows[b];
  for (int k = 0; k < pairs; k++)
    for (int i = 0; i < 2; i++)
      for (int n = 0; n < COLUMNS; n++)
        second[k][i][n] = tiles_bf16_(tiles_.tile[b][k] + 4 * n + 2 * i);
  for (int m = 0; m < tiles_.rows[c]; m++) {
    float sums[2][COLUMNS] = {{0}}, row[COLUMNS];
    for (int k = 0; k < pairs; k++)
      for (int i = 0; i < 2; i++) {
        const float first = tiles_bf16_(tiles_.tile[a][m] + 4 * k + 2 * i);
        for (int n = 0; n < COLUMNS; n++)
          sums[i][n] = tiles_flushed_(__builtin_fmaf(first, second[k][i][n], sums[i][n]));
      }
    memcpy(row, tiles_.tile[c][m], sizeof row);
    for (int n = 0; n < COLUMNS; n++)
      row[n] = tiles_flushed_(tiles_flushed_(row[n]) + tiles_flushed_(sums[0][n] + sums[1][n]));
    memcpy(tiles_.tile[c][m], row, tiles_.bytes[c]);
  }
}

/* TDPBUSD and TDPBSSD: the same of bytes, four side by side, with sums of 32 bits that wrap around */
static __attribute__((noinline)) void tiles_dpbytes_(int c, int a, int b, int is_signed) {
  tiles_agree_(c, a, b);
  enum { COLUMNS = TILE_BYTES_ / 4 };
  for (int m = 0; m < tiles_.rows[c]; m++) {
    uint32_t row[COLUMNS];
    memcpy(row, tiles_.tile[c][m], sizeof row);
    for (int k = 0; k < tiles_.rows[b]; k++)
      for (int i = 0; i < 4; i++) {
        const char one = tiles_.tile[a][m][4 * k + i];
        const int first = is_signed ? (signed char)one : (unsigned char)one;
        for (int n = 0; n < COLUMNS; n++)
          row[n] += (uint32_t)(first * (signed char)tiles_.tile[b][k][4 * n + i]);
      }
    memcpy(tiles_.tile[c][m], row, tiles_.bytes[c]);
  }
}

#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#undef _tile_dpbusd
#undef _tile_dpbssd
#define _tile_loadconfig tiles_loadconfig_
#define _tile_release tiles_release_
#define _tile_zero tiles_zero_
#define _tile_loadd tiles_load_
#define _tile_stream_loadd tiles_load_
#define _tile_stored tiles_store_
#define _tile_dpbf16ps tiles_dpbf16ps_
#define _tile_dpbusd(c, a, b) tiles_dpbytes_(c, a, b, 0)
#define _tile_dpbssd(c, a, b) tiles_dpbytes_(c, a, b, 1)
