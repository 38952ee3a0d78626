/* What processor this is: a bit for each kind of PROCESSORS in units.py that it is, that of the first
   one 1; and whether the system lets it use its tiles. */
#pragma once
#include "base.h"
#include "team_arguments.h"
#if defined(__x86_64__)
#include <cpuid.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

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

static word kinds_of_processor(void) {
  enum { SSE4 = 1, AVX2 = 2, AVX512 = 4, AVXVNNI = 8, AVX512BF16 = 16, AMX = 32 };
  word kinds = 0;
  if (!has(1, 0, ECX, bit_SSE3 | bit_SSSE3 | bit_SSE4_1 | bit_SSE4_2 | bit_POPCNT | bit_CMPXCHG16B))
    return kinds;
  kinds |= SSE4;
  if (!saves(0x6) || !has(1, 0, ECX, bit_AVX | bit_FMA | bit_F16C | bit_MOVBE) ||
      !has(7, 0, EBX, bit_AVX2 | bit_BMI | bit_BMI2) || !has(0x80000001, 0, ECX, bit_LZCNT))
    return kinds;
  kinds |= AVX2;
  enum { AVX_VNNI = 1 << 4, BF16 = 1 << 5 };
  if (has(7, 1, EAX, AVX_VNNI)) kinds |= AVXVNNI;
  if (!saves(0xe6) ||
      !has(7, 0, EBX, bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL))
    return kinds;
  kinds |= AVX512;
  enum { VNNI = 1 << 11, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, AMX_INT8 = 1 << 25 };
  if (!has(7, 1, EAX, BF16) || !has(7, 0, ECX, VNNI)) return kinds;
  kinds |= AVX512BF16;
  if (saves(0x60000) && has(7, 0, EDX, AMX_BF16 | AMX_TILE | AMX_INT8)) kinds |= AMX;
  return kinds;
}
#else
static word kinds_of_processor(void) { return 1; }
#endif

EXPORT(opscope_processor)(struct opscope_processor *a) { a->kinds = kinds_of_processor(); }

/* Linux wants to be asked for the tiles by each process, once, before the first instruction. */
EXPORT(opscope_tiles)(struct opscope_tiles *a) {
#if defined(__x86_64__) && defined(__linux__)
  enum { PERMIT = 0x1023, TILE_DATA = 18 };
  a->granted = syscall(SYS_arch_prctl, PERMIT, TILE_DATA) == 0;
#else
  a->granted = 0;
#endif
}
