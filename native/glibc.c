/* What the whole library takes from glibc, so that it runs with versions from before this machine's.

   A linker writes the newest version of each function into a library: that of `exp` is of glibc
   2.29, that of `pthread_create` of 2.34, and nearly all vector functions, which compilers call for
   a loop with `tanhf`, came with 2.35. The library would want that version as a whole. Here they
   are defined anew, for its own files alone: a function goes on to its oldest version, and a vector
   function to that of the system, or, where the system has none, to the function of one number. */
#undef __FAST_MATH__           /* a loop over lanes would become the vector function that it serves */
#define _GNU_SOURCE
#include "base.h"
#include <math.h>
#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>

#ifdef __x86_64__
#define OLDEST "GLIBC_2.2.5"
#else
#define OLDEST "GLIBC_2.17"
#endif
#define OLD(result, name, parameters, arguments)             \
  __asm__(".symver oldest_" #name "," #name "@" OLDEST);     \
  extern result oldest_##name parameters;                    \
  result name parameters { return oldest_##name arguments; }

OLD(double, exp, (double x), (x))
OLD(double, exp2, (double x), (x))
OLD(double, log, (double x), (x))
OLD(double, log2, (double x), (x))
OLD(double, lgamma, (double x), (x))
OLD(double, pow, (double x, double y), (x, y))
OLD(double, fmod, (double x, double y), (x, y))
OLD(double, hypot, (double x, double y), (x, y))
OLD(float, expf, (float x), (x))
OLD(float, exp2f, (float x), (x))
OLD(float, logf, (float x), (x))
OLD(float, log2f, (float x), (x))
OLD(float, lgammaf, (float x), (x))
OLD(float, powf, (float x, float y), (x, y))
OLD(float, fmodf, (float x, float y), (x, y))
OLD(float, hypotf, (float x, float y), (x, y))
OLD(int, pthread_sigmask, (int how, const sigset_t *set, sigset_t *old), (how, set, old))
OLD(int, pthread_create,
    (pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument),
    (thread, attributes, run, argument))

#ifdef __x86_64__
OLD(void *, dlopen, (const char *name, int flags), (name, flags))
OLD(void *, dlsym, (void *library, const char *name), (library, name))

/* Vectors of a number of lanes, by the letter that names of vector functions have for a kind of
   processor, and what such a processor is called by compilers. */
#define VECTORS(letter, isa, bytes)                                            \
  typedef float float_##letter __attribute__((vector_size(bytes)));            \
  typedef double double_##letter __attribute__((vector_size(bytes)));
VECTORS(b, "sse4.2", 16)
VECTORS(d, "avx2", 32)
VECTORS(e, "avx512f", 64)

#define PARAMETERS_v(type) (type x)
#define PARAMETERS_vv(type) (type x, type y)
#define PASSED_v (x)
#define PASSED_vv (x, y)
#define LANE_v (x[i])
#define LANE_vv (x[i], y[i])
/* Of one vector function: its lanes one by one, the one that serves, and its name for compilers. */
#define FUNCTION(letter, isa, lanes, type, kind, name)                                        \
  __attribute__((target(isa))) static type##_##letter lanes_##letter##_##name                 \
      PARAMETERS_##kind(type##_##letter) {                                                    \
    for (int i = 0; i < lanes; i++) x[i] = name LANE_##kind;                                  \
    return x;                                                                                 \
  }                                                                                           \
  static type##_##letter(*serving_##letter##_##name) PARAMETERS_##kind(type##_##letter) =     \
      lanes_##letter##_##name;                                                                \
  __attribute__((target(isa))) type##_##letter _ZGV##letter##N##lanes##kind##_##name          \
      PARAMETERS_##kind(type##_##letter) { return serving_##letter##_##name PASSED_##kind; }
#define NAMED(letter, isa, lanes, type, kind, name) \
  {"_ZGV" #letter "N" #lanes #kind "_" #name, (void **)&serving_##letter##_##name},

#define EACH_KIND(DO, kind, name)             \
  DO(b, "sse4.2", 2, double, kind, name)      \
  DO(d, "avx2", 4, double, kind, name)        \
  DO(e, "avx512f", 8, double, kind, name)     \
  DO(b, "sse4.2", 4, float, kind, name##f)    \
  DO(d, "avx2", 8, float, kind, name##f)      \
  DO(e, "avx512f", 16, float, kind, name##f)
#define EACH_FUNCTION(DO)                                                                       \
  EACH_KIND(DO, v, acos) EACH_KIND(DO, v, acosh) EACH_KIND(DO, v, asin) EACH_KIND(DO, v, asinh) \
  EACH_KIND(DO, v, atan) EACH_KIND(DO, v, atanh) EACH_KIND(DO, v, cbrt) EACH_KIND(DO, v, cos)   \
  EACH_KIND(DO, v, cosh) EACH_KIND(DO, v, erf) EACH_KIND(DO, v, erfc) EACH_KIND(DO, v, exp)     \
  EACH_KIND(DO, v, exp2) EACH_KIND(DO, v, expm1) EACH_KIND(DO, v, log) EACH_KIND(DO, v, log10)  \
  EACH_KIND(DO, v, log1p) EACH_KIND(DO, v, log2) EACH_KIND(DO, v, sin) EACH_KIND(DO, v, sinh)   \
  EACH_KIND(DO, v, tan) EACH_KIND(DO, v, tanh) EACH_KIND(DO, vv, atan2)                         \
  EACH_KIND(DO, vv, hypot) EACH_KIND(DO, vv, pow)

EACH_FUNCTION(FUNCTION)

static const struct { const char *name; void **serving; } FUNCTIONS[] = {EACH_FUNCTION(NAMED)};

__attribute__((constructor)) static void take_vector_functions(void) {
  void *library = oldest_dlopen("libmvec.so.1", RTLD_NOW);
  for (int i = 0; library && i < sizeof(FUNCTIONS) / sizeof(*FUNCTIONS); i++) {
    void *found = oldest_dlsym(library, FUNCTIONS[i].name);
    if (found) *FUNCTIONS[i].serving = found;
  }
}
#endif
#endif
