/* What processor this is: the number of the best kind of it in PROCESSORS of units.py, from 1 on; 0
   where it has less than the first. */
#pragma once
#include "base.h"
#include "team_arguments.h"
#if defined(__x86_64__)
#include <cpuid.h>

enum { EAX, EBX, ECX, EDX };

/* whether the processor has all of these features: bits of a register of a leaf of `cpuid` */
static int has(uint32_t leaf, uint32_t part, int which, uint32_t bits) {
  uint32_t found[4] = {0};
  if (!__get_cpuid_count(leaf, part, &found[0], &found[1], &found[2], &found[3])) return 0;
  return (found[which] & bits) == bits;
}

/* which registers the system saves: those of AVX, of AVX-512, tiles */
static int saves(uint32_t bits) {
  uint32_t low, high;
  if (!has(1, 0, ECX, bit_OSXSAVE)) return 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & bits) == bits;
}

static word best_processor(void) {
  if (!has(1, 0, ECX, bit_SSE3 | bit_SSSE3 | bit_SSE4_1 | bit_SSE4_2 | bit_POPCNT | bit_CMPXCHG16B))
    return 0;
  if (!saves(0x6) || !has(1, 0, ECX, bit_AVX | bit_FMA | bit_F16C | bit_MOVBE) ||
      !has(7, 0, EBX, bit_AVX2 | bit_BMI | bit_BMI2) || !has(0x80000001, 0, ECX, bit_LZCNT))
    return 1;
  if (!saves(0xe6) ||
      !has(7, 0, EBX, bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL))
    return 2;
  enum { BF16 = 1 << 5, VNNI = 1 << 11, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, AMX_INT8 = 1 << 25 };
  if (!has(7, 1, EAX, BF16) || !has(7, 0, ECX, VNNI)) return 3;
  return saves(0x60000) && has(7, 0, EDX, AMX_BF16 | AMX_TILE | AMX_INT8) ? 5 : 4;
}
#else
static word best_processor(void) { return 1; }
#endif

EXPORT(opscope_processor)(struct opscope_processor *a) { a->number = best_processor(); }
