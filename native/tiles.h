/* Tiles of AMX: eight registers of up to 16 rows of 64 bytes. The system is asked for them before code
   that uses them is loaded (processor.h). */
#pragma once
#include "base.h"

enum { TILE = 1024 };

#ifdef __AMX_TILE__
#include <immintrin.h>

typedef struct { uint8_t palette, start, zero[14]; uint16_t bytes[16]; uint8_t rows[16]; } tiles;

/* The intrinsics of some compilers do not say that they read memory, or say so of 8 bytes of a
   configuration (gcc's bug 114098): what is stored before them could be left out, or be stored later. */
#define WRITTEN(place) __asm__ volatile("" ::"r"(place) : "memory")

/* Tiles of a product of `upper` and `lower` rows, up to 16 each, and 32 columns of 32 bits. Sums are 0 to
   3, rows 4 and 5, columns 6 and 7: 0, 1 and 4 are of the upper rows, 2, 3 and 5 of the lower ones.
   `inner` bytes of each row, up to 64, are multiplied at a time. */
static void configure_both(word upper, word lower, word inner) {
  tiles t;
  memset(&t, 0, sizeof t);
  t.palette = 1;
  for (int i = 0; i < 8; i++) t.bytes[i] = 64, t.rows[i] = 16;
  t.rows[0] = t.rows[1] = t.rows[4] = upper;
  t.rows[2] = t.rows[3] = t.rows[5] = lower;
  t.bytes[4] = t.bytes[5] = inner;
  t.rows[6] = t.rows[7] = inner / 4;
  WRITTEN(&t);
  _tile_loadconfig(&t);
}

/* the same of up to 32 rows in all */
static void configure(word rows, word inner) {
  configure_both(least(rows, 16), rows > 16 ? rows - 16 : 16, inner);
}
#endif
