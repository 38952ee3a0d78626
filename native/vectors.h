/* Vectors of T, as wide as the processor has them. */
#pragma once
#include "typed.h"

#if defined(__AVX512F__)
enum { BYTES = 64 };
#elif defined(__AVX2__)
enum { BYTES = 32 };
#else
enum { BYTES = 16 };
#endif
enum { LANES = BYTES / sizeof(T) };
VISIBLE word EXPORTED(JOIN(lanes, UNIT)) = LANES;
typedef T vec_t __attribute__((vector_size(BYTES)));
typedef T row_t __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));
/* what comparisons of vectors give */
typedef __typeof__(_Generic((T)0, float: (int32_t)0, double: (int64_t)0)) flag_t;
typedef flag_t flags_t __attribute__((vector_size(BYTES)));
