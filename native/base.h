/* What every C file begins with. A file is compiled for one kind of numbers (KIND, for some files)
   and one kind of processor (PROCESSOR, for most): both end the names that it exports.

   A function takes the address of its argument, a struct that declarations.py declares; one that
   threads share takes in addition the number of the part that it shall do, and of how many. No
   result may depend on these two. */
#pragma once
#include <stdint.h>
#include <string.h>

typedef int64_t word;

#define JOIN_PLAINLY(a, b) a##_##b
#define JOIN(a, b) JOIN_PLAINLY(a, b)
#if defined(KIND) && defined(PROCESSOR)
#define EXPORTED(name) JOIN(JOIN(name, KIND), PROCESSOR)
#elif defined(PROCESSOR)
#define EXPORTED(name) JOIN(name, PROCESSOR)
#elif defined(KIND)
#define EXPORTED(name) JOIN(name, KIND)
#else
#define EXPORTED(name) name
#endif

#ifdef _WIN32
#define VISIBLE __declspec(dllexport)
#else
#define VISIBLE __attribute__((visibility("default")))
#endif
#define EXPORT(name) VISIBLE void EXPORTED(name)
#define INLINE static inline __attribute__((always_inline))

/* by which a loader sees that the file is there */
VISIBLE const char EXPORTED(JOIN(unit, UNIT)) = 1;

static inline word least(word a, word b) { return a < b ? a : b; }
