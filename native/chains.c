/* Chains of elementwise operators, interpreted: framework/fusion/chains.py writes their programs.

   A program is a list of steps over blocks of elements: the vectors of a block stay in registers
   from step to step, what is read again later goes to a buffer in the first cache. Numbers are
   those of a compiled loop to the last bit: operations round as IEEE 754 says, one by one (this
   file is compiled without contraction), and functions are those of one table, which compiled loops
   call as well. What a function gives depends on its argument alone, not on the element's place. */
#include <stddef.h>
#include "functions.h"
#include "chains_arguments.h"
#include "halves.h"

#define F(name) _Generic((T)0, float: name##f, double: name)

/* -- functions of arrays and of single numbers --------------------------------------------------- */

typedef void function(word n, T *to, const T *x, const T *y, const T *z);
typedef double number_function(double x, double y, double z);

#define OWN(D) D(exp) D(tanh) D(sigmoid)
static inline double sigmoid(double x) { return 1 / (1 + exp(-x)); }
#define UNARY(D)                                                                                 \
  D(acos) D(acosh) D(asin) D(asinh) D(atan) D(atanh) D(cbrt) D(ceil) D(cos) D(cosh) D(erf) D(erfc) \
  D(exp2) D(expm1) D(floor) D(lgamma) D(log) D(log10) D(log1p) D(log2) D(rint) D(round) D(sin)   \
  D(sinh) D(sqrt) D(tan) D(tgamma) D(trunc)
#define BINARY(D) D(atan2) D(fmod) D(hypot) D(pow)
#define TERNARY(D) D(fma)

/* Always whole vectors: the last elements would else go through a function for single numbers,
   whose last bit is another. */
#define DEFINE(name, of_element, of_number)                                                   \
  static void name##_array(word n, T *to, const T *x, const T *y, const T *z) {              \
    word j = 0;                                                                               \
    for (; j + LANES <= n; j += LANES)                                                        \
      _Pragma("omp simd") for (int l = 0; l < LANES; l++) {                                   \
        const word i = j + l;                                                                 \
        to[i] = of_element;                                                                   \
      }                                                                                       \
    if (j < n) {                                                                              \
      T rest[4][LANES];                                                                       \
      for (int l = 0; l < LANES; l++) {                                                       \
        const word i = j + l < n ? j + l : j;                                                 \
        rest[0][l] = x[i], rest[1][l] = y ? y[i] : 0, rest[2][l] = z ? z[i] : 0;              \
      }                                                                                       \
      name##_array(LANES, rest[3], rest[0], rest[1], rest[2]);                                \
      for (word i = j; i < n; i++) to[i] = rest[3][i - j];                                    \
    }                                                                                         \
  }                                                                                           \
  static double name##_number(double x, double y, double z) { return of_number; }
#define DEFINE1(name) DEFINE(name, F(name)(x[i]), name(x))
#define DEFINE2(name) DEFINE(name, F(name)(x[i], y[i]), name(x, y))
#define DEFINE3(name) DEFINE(name, F(name)(x[i], y[i], z[i]), name(x, y, z))
UNARY(DEFINE1) BINARY(DEFINE2) TERNARY(DEFINE3)
/* those of functions.h */
#define DEFINE_OWN(name)                                                         \
  static void name##_array(word n, T *to, const T *x, const T *y, const T *z) { \
    for (word j = 0; j < n; j += LANES)                                          \
      store_lanes(to + j, name##_of(load_lanes(x + j, n - j, 0)), n - j);        \
  }                                                                              \
  static double name##_number(double x, double y, double z) { return name(x); }
OWN(DEFINE_OWN)
#undef DEFINE_OWN
#undef DEFINE1
#undef DEFINE2
#undef DEFINE3

/* C leaves the order of zeros open, and compilers differ: the second operand where none is larger */
static inline double larger(double x, double y) { return x > y || y != y ? x : y; }
static inline double smaller(double x, double y) { return x < y || y != y ? x : y; }
#define ON_NUMBERS(D)                                                                            \
  D(neg, -x) D(add, x + y) D(sub, x - y) D(mul, x * y) D(div, x / y) D(lt, x < y) D(gt, x > y)   \
  D(le, x <= y) D(ge, x >= y) D(eq, x == y) D(ne, x != y) D(and, x && y) D(or, x || y)           \
  D(not, !x) D(choose, x ? y : z) D(fabs, fabs(x)) D(copysign, copysign(x, y))                   \
  D(fmax, larger(x, y)) D(fmin, smaller(x, y)) D(isnan, x != x) D(isinf, isinf(x) != 0)          \
  D(isfinite, isfinite(x) != 0) D(signbit, signbit(x) != 0)
#define DEFINE_NUMBER(name, of_number) \
  static double name##_number(double x, double y, double z) { return of_number; }
ON_NUMBERS(DEFINE_NUMBER)

/* Functions of arrays, then those of single numbers in double, as compiled loops know them. */
#define ARRAY_FUNCTION(name) name##_array,
#define NUMBER_FUNCTION(name, ...) name##_number,
#define TEXT(name, ...) #name " "
VISIBLE const char EXPORTED(chain_functions)[] = OWN(TEXT) UNARY(TEXT) BINARY(TEXT) TERNARY(TEXT);
VISIBLE const char EXPORTED(chain_number_functions)[] = OWN(TEXT) UNARY(TEXT) BINARY(TEXT)
    TERNARY(TEXT) ON_NUMBERS(TEXT);
static function *const functions[] = {OWN(ARRAY_FUNCTION) UNARY(ARRAY_FUNCTION)
                                          BINARY(ARRAY_FUNCTION) TERNARY(ARRAY_FUNCTION)};
static number_function *const functions_of_numbers[] = {
    OWN(NUMBER_FUNCTION) UNARY(NUMBER_FUNCTION) BINARY(NUMBER_FUNCTION) TERNARY(NUMBER_FUNCTION)
        ON_NUMBERS(NUMBER_FUNCTION)};
#define LENGTH(name, array) \
  VISIBLE word EXPORTED(JOIN(name, UNIT)) = sizeof array / sizeof *array;
LENGTH(array_functions, functions)
LENGTH(number_functions, functions_of_numbers)

/* -- operations on vectors ----------------------------------------------------------------------- */

/* A truth value is a vector of whole bits, all set or none. */
#define TRUTH(comparison) (vec_t)(flags_t)(comparison)
INLINE flags_t bits(vec_t a) { return (flags_t)a; }
INLINE vec_t choice(vec_t truth, vec_t a, vec_t b) {
  return (vec_t)((bits(truth) & bits(a)) | (~bits(truth) & bits(b)));
}
INLINE vec_t op_neg(vec_t a) { return -a; }
INLINE vec_t op_fabs(vec_t a) { return (vec_t)(bits(a) & ~bits(splat((T)-0.0))); }
INLINE vec_t op_not(vec_t a) { return (vec_t)~bits(a); }
INLINE vec_t op_as_number(vec_t a) { return (vec_t)(bits(a) & bits(splat(1))); }
INLINE vec_t op_as_truth(vec_t a) { return TRUTH(a != splat(0)); }
INLINE vec_t op_sqrt(vec_t a) {
#if defined(__AVX512F__)
  return _Generic((T)0, float: (vec_t)_mm512_sqrt_ps((__m512)a),
                  double: (vec_t)_mm512_sqrt_pd((__m512d)a));
#elif defined(__AVX2__)
  return _Generic((T)0, float: (vec_t)_mm256_sqrt_ps((__m256)a),
                  double: (vec_t)_mm256_sqrt_pd((__m256d)a));
#elif defined(__x86_64__)
  return _Generic((T)0, float: (vec_t)_mm_sqrt_ps((__m128)a),
                  double: (vec_t)_mm_sqrt_pd((__m128d)a));
#else
  for (int l = 0; l < LANES; l++) a[l] = F(sqrt)(a[l]);
  return a;
#endif
}
INLINE vec_t op_exp(vec_t a) { return exp_of(a); }
INLINE vec_t op_tanh(vec_t a) { return tanh_of(a); }
INLINE vec_t op_sigmoid(vec_t a) { return sigmoid_of(a); }
INLINE vec_t op_isnan(vec_t a) { return TRUTH(a != a); }
INLINE vec_t op_isinf(vec_t a) { return TRUTH(op_fabs(a) == splat((T)INFINITY)); }
INLINE vec_t op_isfinite(vec_t a) { return TRUTH(op_fabs(a) < splat((T)INFINITY)); }
INLINE vec_t op_signbit(vec_t a) { return TRUTH(bits(a) < 0); }

INLINE vec_t op_add(vec_t a, vec_t b) { return a + b; }
INLINE vec_t op_sub(vec_t a, vec_t b) { return a - b; }
INLINE vec_t op_sub_from(vec_t a, vec_t b) { return b - a; }
INLINE vec_t op_mul(vec_t a, vec_t b) { return a * b; }
INLINE vec_t op_div(vec_t a, vec_t b) { return a / b; }
INLINE vec_t op_div_into(vec_t a, vec_t b) { return b / a; }
INLINE vec_t op_lt(vec_t a, vec_t b) { return TRUTH(a < b); }
INLINE vec_t op_gt(vec_t a, vec_t b) { return TRUTH(a > b); }
INLINE vec_t op_le(vec_t a, vec_t b) { return TRUTH(a <= b); }
INLINE vec_t op_ge(vec_t a, vec_t b) { return TRUTH(a >= b); }
INLINE vec_t op_eq(vec_t a, vec_t b) { return TRUTH(a == b); }
INLINE vec_t op_ne(vec_t a, vec_t b) { return TRUTH(a != b); }
INLINE vec_t op_and(vec_t a, vec_t b) { return (vec_t)(bits(a) & bits(b)); }
INLINE vec_t op_or(vec_t a, vec_t b) { return (vec_t)(bits(a) | bits(b)); }
INLINE vec_t op_copysign(vec_t a, vec_t b) {
  const flags_t sign = bits(splat((T)-0.0));
  return (vec_t)((bits(a) & ~sign) | (bits(b) & sign));
}
INLINE vec_t op_fmax(vec_t a, vec_t b) { return choice(TRUTH((a > b) | (b != b)), a, b); }
INLINE vec_t op_fmin(vec_t a, vec_t b) { return choice(TRUTH((a < b) | (b != b)), a, b); }
INLINE vec_t op_at_least(vec_t a, vec_t b) { return at_least(a, b); }
INLINE vec_t op_at_most(vec_t a, vec_t b) { return at_most(a, b); }
/* a where it is more, or less; else b */
INLINE vec_t op_more(vec_t a, vec_t b) { return at_least(b, a); }
INLINE vec_t op_less(vec_t a, vec_t b) { return at_most(b, a); }
/* What a comparison chooses: a processor with masks need not make a vector of its truth. */
#if defined(__AVX512F__)
#define CHOICE_BY(name, sign, code)                                                            \
  INLINE vec_t by_##name(vec_t a, vec_t b, vec_t then, vec_t otherwise) {                      \
    return _Generic((T)0,                                                                      \
        float: (vec_t)_mm512_mask_blend_ps(                                                    \
            _mm512_cmp_ps_mask((__m512)a, (__m512)b, code), (__m512)otherwise, (__m512)then),  \
        double: (vec_t)_mm512_mask_blend_pd(_mm512_cmp_pd_mask((__m512d)a, (__m512d)b, code),  \
                                            (__m512d)otherwise, (__m512d)then));               \
  }
#else
#define CHOICE_BY(name, sign, code)                                       \
  INLINE vec_t by_##name(vec_t a, vec_t b, vec_t then, vec_t otherwise) { \
    return choice(TRUTH(a sign b), then, otherwise);                      \
  }
#endif
CHOICE_BY(lt, <, _CMP_LT_OQ) CHOICE_BY(gt, >, _CMP_GT_OQ) CHOICE_BY(le, <=, _CMP_LE_OQ)
CHOICE_BY(ge, >=, _CMP_GE_OQ) CHOICE_BY(eq, ==, _CMP_EQ_OQ) CHOICE_BY(ne, !=, _CMP_NEQ_UQ)
#undef CHOICE_BY
/* As leaky relus choose, and their gradients: what is scaled is one of both. */
#define SCALED_BY(name)                                                                     \
  INLINE vec_t by_##name##_scaled(vec_t a, vec_t b, vec_t then, vec_t scale) {              \
    return by_##name(a, b, then, then * scale);                                             \
  }
SCALED_BY(lt) SCALED_BY(gt) SCALED_BY(le) SCALED_BY(ge)
#undef SCALED_BY
/* As Huber's loss chooses, and what shrinks values. */
#define SHRUNK_BY(name)                                                                     \
  INLINE vec_t by_##name##_shrunk(vec_t a, vec_t b, vec_t then, vec_t less) {               \
    return by_##name(op_fabs(a), b, then, op_fabs(a) - less);                               \
  }
SHRUNK_BY(lt) SHRUNK_BY(le)
#undef SHRUNK_BY
/* What is done with a product of two others; both operations round. */
INLINE vec_t op_add_product(vec_t a, vec_t b, vec_t c) { return a + b * c; }
INLINE vec_t op_sub_product(vec_t a, vec_t b, vec_t c) { return a - b * c; }
INLINE vec_t op_sub_from_product(vec_t a, vec_t b, vec_t c) { return b * c - a; }
INLINE vec_t op_mul_product(vec_t a, vec_t b, vec_t c) { return a * (b * c); }
INLINE vec_t op_div_into_product(vec_t a, vec_t b, vec_t c) { return b * c / a; }
/* What is done with the product of the result so far. */
INLINE vec_t op_mul_add(vec_t a, vec_t b, vec_t c) { return a * b + c; }
INLINE vec_t op_mul_sub(vec_t a, vec_t b, vec_t c) { return a * b - c; }
INLINE vec_t op_mul_sub_from(vec_t a, vec_t b, vec_t c) { return c - a * b; }
INLINE vec_t op_choose(vec_t truth, vec_t a, vec_t b) { return choice(truth, a, b); }

/* Which operands each of them has: see chain_steps.h. */
#define KINDS1(D, name) D(name, a) D(name, m) D(name, b)
#define OF_HELD(D, name) D(name, a, m) D(name, a, n) D(name, a, b)
#define KINDS2(D, name)                                                                        \
  OF_HELD(D, name) D(name, a, a) D(name, m, m) D(name, m, n) D(name, b, b) D(name, b, m)       \
  D(name, b, n)
#define ORDERED(D, name) KINDS2(D, name) D(name, n, m) D(name, m, b) D(name, n, b)
#define PRODUCTS(D, name, k) \
  D(name, k, m, m) D(name, k, m, n) D(name, k, b, b) D(name, k, b, m) D(name, k, b, n)
#define KINDS3(D, name) \
  PRODUCTS(D, name, a) PRODUCTS(D, name, m) PRODUCTS(D, name, n) PRODUCTS(D, name, b)
#define KINDS_OF_PRODUCT(D, name)                                                              \
  D(name, a, m, m) D(name, a, m, n) D(name, a, n, m) D(name, a, n, n)                          \
  D(name, a, b, b) D(name, a, b, m) D(name, a, b, n) D(name, a, m, b) D(name, a, n, b)
#define BRANCHES(D, name, k, l)                                                                \
  D(name, k, l, a, m) D(name, k, l, a, n) D(name, k, l, m, a) D(name, k, l, n, a)              \
  D(name, k, l, m, m) D(name, k, l, m, n) D(name, k, l, n, m) D(name, k, l, n, n)              \
  D(name, k, l, a, b) D(name, k, l, m, b) D(name, k, l, n, b) D(name, k, l, b, a)              \
  D(name, k, l, b, m) D(name, k, l, b, n)
#define KINDS4(D, name)                                                                        \
  BRANCHES(D, name, a, m) BRANCHES(D, name, a, n) BRANCHES(D, name, m, m)                      \
  BRANCHES(D, name, m, n) BRANCHES(D, name, b, m) BRANCHES(D, name, b, n)
#define UNARY_STEPS(D)                                                                         \
  KINDS1(D, neg) KINDS1(D, fabs) KINDS1(D, sqrt) KINDS1(D, not) KINDS1(D, as_number)           \
  KINDS1(D, as_truth) KINDS1(D, isnan) KINDS1(D, isinf) KINDS1(D, isfinite) KINDS1(D, signbit) \
  D(exp, a) D(exp, m) D(tanh, a) D(tanh, m) D(sigmoid, a) D(sigmoid, m)
#define BINARY_STEPS(D)                                                                        \
  KINDS2(D, add) ORDERED(D, sub) OF_HELD(D, sub_from) KINDS2(D, mul) ORDERED(D, div)           \
  OF_HELD(D, div_into) KINDS2(D, lt) KINDS2(D, gt) KINDS2(D, le) KINDS2(D, ge) KINDS2(D, eq)   \
  KINDS2(D, ne) KINDS2(D, and) KINDS2(D, or) ORDERED(D, copysign) ORDERED(D, fmax)             \
  ORDERED(D, fmin) ORDERED(D, more) ORDERED(D, less) KINDS2(D, at_least) KINDS2(D, at_most)
#define TERNARY_STEPS(D)                                                                       \
  D(mul_product, a, a, n) D(mul_product, a, a, m)                                              \
  KINDS3(D, add_product) KINDS3(D, sub_product) KINDS3(D, sub_from_product)                    \
  KINDS3(D, mul_product) KINDS3(D, div_into_product) KINDS_OF_PRODUCT(D, mul_add)              \
  KINDS_OF_PRODUCT(D, mul_sub) KINDS_OF_PRODUCT(D, mul_sub_from) D(choose, a, m, m)            \
  D(choose, a, m, n) D(choose, a, n, m) D(choose, a, n, n) D(choose, m, a, m)                  \
  D(choose, m, a, n) D(choose, m, m, a) D(choose, m, n, a)                                     \
  D(choose, a, b, m) D(choose, a, b, n) D(choose, a, m, b) D(choose, a, n, b)
#define SCALED(D, name)                                                                        \
  D(name, a, n, a, n) D(name, a, n, m, n) D(name, a, n, b, n) D(name, m, n, a, n)              \
  D(name, m, n, m, n) D(name, m, n, b, n) D(name, b, n, a, n) D(name, b, n, m, n)              \
  D(name, b, n, b, n)
#define SHRUNK(D, name) \
  D(name, a, n, m, n) D(name, a, n, n, n) D(name, m, n, a, n) D(name, b, n, a, n)
#define CHOICE_STEPS(D)                                                                        \
  KINDS4(D, lt) KINDS4(D, gt) KINDS4(D, le) KINDS4(D, ge) KINDS4(D, eq) KINDS4(D, ne)          \
  SCALED(D, lt_scaled) SCALED(D, gt_scaled) SCALED(D, le_scaled) SCALED(D, ge_scaled)          \
  SHRUNK(D, lt_shrunk) SHRUNK(D, le_shrunk)

/* -- programs ------------------------------------------------------------------------------------ */

/* Vectors are computed in their order, which compilers turn round: prefetchers want it ascending. */
#if defined(__x86_64__)
#define IN_ORDER(vector) __asm__ volatile("" : "+v"(vector))
#elif defined(__aarch64__)
#define IN_ORDER(vector) __asm__ volatile("" : "+w"(vector))
#else
#define IN_ORDER(vector)
#endif

/* Under sanitizers a function makes each access to an array: gcc took more than 10 minutes for their
   checks in all steps, and takes half a minute for calls. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static __attribute__((noinline)) vec_t vector_at(const row_t *from, word i) { return from[i]; }
static __attribute__((noinline)) void put_vector(row_t *to, word i, vec_t a) { to[i] = a; }
#else
#define vector_at(from, i) (from)[i]
#define put_vector(to, i, a) (to)[i] = (a)
#endif

enum { WIDE = 8 };  /* vectors of a block: as many as the calling convention has in registers */
/* A second block stays in registers where there are enough of them, and a third one, which is only
   stored. Functions that are called may change these, and a caller expects nothing of them. Elsewhere
   the second block is a part of the frame, whose address steps need not load. */
#if defined(__AVX512F__) && !defined(__clang__)
#define IN_REGISTERS(...) __VA_ARGS__
register vec_t b0 __asm__("xmm16"), b1 __asm__("xmm17"), b2 __asm__("xmm18"), b3 __asm__("xmm19"),
    b4 __asm__("xmm20"), b5 __asm__("xmm21"), b6 __asm__("xmm22"), b7 __asm__("xmm23"),
    d0 __asm__("xmm24"), d1 __asm__("xmm25"), d2 __asm__("xmm26"), d3 __asm__("xmm27"),
    d4 __asm__("xmm28"), d5 __asm__("xmm29"), d6 __asm__("xmm30"), d7 __asm__("xmm31");
#else
#define IN_REGISTERS(...)
#define b0 f->beside[0]
#define b1 f->beside[1]
#define b2 f->beside[2]
#define b3 f->beside[3]
#define b4 f->beside[4]
#define b5 f->beside[5]
#define b6 f->beside[6]
#define b7 f->beside[7]
#endif
/* A step as it runs, a ChainRun: its function for blocks of some size, and for each operand where
   element 0 of a row would be, or the number. What a step calls takes the place of the last one. */
typedef union operand {
  char *at;
  T number;
  void *called;
  word whole;  /* as long as those of ChainRun, where addresses are shorter */
} operand;
typedef struct step {
  word run;
  operand x, y, z, w;
} step;
_Static_assert(sizeof(step) == sizeof(ChainRun) && sizeof(operand) == sizeof(word), "one record");
/* What the steps of a part work on: the block that functions are called with, and what rows and
   buffers change. */
typedef struct frame {
  word last;               /* where the last block begins that follows without a turn */
  word last_of_row, end;   /* where the last block of a row begins, and whence on none does */
  word rows, row;          /* those that are left, this one included; that at hand */
  word room;               /* elements of a buffer, 0 where there are none */
  const struct chain_program *program;
  const struct chain_place *places;
  T *buffers;
  char **at;               /* of each operand, the first row */
  const word *moves;       /* and bytes to the next one, where there is one */
  vec_t passed[WIDE], beside[WIDE];
  step steps[];
} frame;

static double number_at(const char *at, word dtype) {
  switch (dtype) {
    case OF_FLOAT16: return from_float16(*(const uint16_t *)at);
    case OF_BFLOAT16: return from_bfloat16(*(const uint16_t *)at);
    case OF_FLOAT32: return *(const float *)at;
    case OF_FLOAT64: return *(const double *)at;
    case OF_INT32: return *(const int32_t *)at;
    default: return *(const int64_t *)at;
  }
}

/* the operand of a step that a seat is of */
INLINE operand *sat_on(step *steps, const ChainSeat *k) { return (operand *)((char *)steps + k->to); }

/* the numbers of columns in the row at hand */
static void take_columns(frame *f) {
  const struct chain_program *p = f->program;
  for (const ChainSeat *k = p->seats + p->columns_from; k < p->seats + p->numbers_from; k++)
    sat_on(f->steps, k)->number = number_at(
        f->at[k->of] + (f->row ? f->row * f->moves[k->of] : 0), p->operands[k->of].dtype);
}

/* lets steps know where operands are in the first row, and the numbers of columns there */
static void take_seats(frame *f) {
  const struct chain_program *p = f->program;
  for (const ChainSeat *k = p->seats; k < p->seats + p->buffers_from; k++)
    sat_on(f->steps, k)->at = f->at[k->of];
  f->row = 0;
  take_columns(f);
}

/* buffers hold the blocks from element j on that they have room for, and no others */
static void place_buffers(frame *f, word j, word block) {
  const struct chain_program *p = f->program;
  for (const ChainSeat *k = p->seats + p->buffers_from; k < p->seats + p->columns_from; k++)
    sat_on(f->steps, k)->at = (char *)(f->buffers + k->of * f->room - j);
  f->last = least(f->last_of_row, j + f->room - block);
}

/* whether there is another row, which is then at hand */
static int next_row(frame *f) {
  if (!--f->rows) return 0;
  const struct chain_program *p = f->program;
  for (const ChainSeat *k = p->seats; k < p->seats + p->buffers_from; k++)
    sat_on(f->steps, k)->at += f->moves[k->of];
  f->row++;
  if (p->column_count) take_columns(f);
  return 1;
}

#define EACH(D, g) D(0, g) D(1, g) D(2, g) D(3, g) D(4, g) D(5, g) D(6, g) D(7, g)
#define ARGUMENTS \
  vec_t a0, vec_t a1, vec_t a2, vec_t a3, vec_t a4, vec_t a5, vec_t a6, vec_t a7
#define PASSED a0, a1, a2, a3, a4, a5, a6, a7
#define NAME(name) name##_wide
#define COUNT WIDE
typedef void wide_run(const step *s, frame *f, word j, ARGUMENTS);
#define RUN wide_run
#include "chain_steps.h"

#define EACH(D, g) D(0, g) D(1, g) D(2, g) D(3, g)
#define ARGUMENTS vec_t a0, vec_t a1, vec_t a2, vec_t a3
#define PASSED a0, a1, a2, a3
#define NAME(name) name##_four
#define COUNT 4
typedef void four_run(const step *s, frame *f, word j, ARGUMENTS);
#define RUN four_run
#include "chain_steps.h"

#define EACH(D, g) D(0, g) D(1, g) D(2, g)
#define ARGUMENTS vec_t a0, vec_t a1, vec_t a2
#define PASSED a0, a1, a2
#define NAME(name) name##_three
#define COUNT 3
typedef void three_run(const step *s, frame *f, word j, ARGUMENTS);
#define RUN three_run
#include "chain_steps.h"

#define EACH(D, g) D(0, g) D(1, g)
#define ARGUMENTS vec_t a0, vec_t a1
#define PASSED a0, a1
#define NAME(name) name##_two
#define COUNT 2
typedef void two_run(const step *s, frame *f, word j, ARGUMENTS);
#define RUN two_run
#include "chain_steps.h"

#define EACH(D, g) D(0, g)
#define ARGUMENTS vec_t a0
#define PASSED a0
#define NAME(name) name##_one
#define COUNT 1
typedef void one_run(const step *s, frame *f, word j, ARGUMENTS);
#define RUN one_run
#include "chain_steps.h"

#define OTHER_STEPS(D)                                                                        \
  D(end, "") D(store_end, "m") D(load_m, "m") D(load_n, "n") D(load_b, "b") D(hold_a, "a")    \
  IN_REGISTERS(D(hold_m, "m") D(keep_a, "a") D(kept_m, "m")) D(spill_m, "m") D(store_m, "m") D(call_a, "a") D(call_am, "am") \
  D(call_amm, "amm") D(load_float16, "m") D(load_bfloat16, "m") D(store_float16, "m")         \
  D(store_bfloat16, "m")
#define ALL_STEPS(D0, D1, D2, D3, D4) \
  OTHER_STEPS(D0) UNARY_STEPS(D1) BINARY_STEPS(D2) TERNARY_STEPS(D3) CHOICE_STEPS(D4)
#define ALL(name, kinds) {{name##_wide, name##_four, name##_three, name##_two, name##_one}, kinds},
#define ALL1(name, k) ALL(name##_##k, #k)
#define ALL2(name, k, l) ALL(name##_##k##l, #k #l)
#define ALL3(name, k, l, m) ALL(name##_##k##l##m, #k #l #m)
#define ALL4(name, k, l, m, n) ALL(choose_##name##_##k##l##m##n, #k #l #m #n)
#define TEXT1(name, k) TEXT(name##_##k)
#define TEXT2(name, k, l) TEXT(name##_##k##l)
#define TEXT3(name, k, l, m) TEXT(name##_##k##l##m)
#define TEXT4(name, k, l, m, n) TEXT(choose_##name##_##k##l##m##n)
static const struct operation {
  void *runs[5];
  char kinds[5];  /* of its operands */
} operations[] = {ALL_STEPS(ALL, ALL1, ALL2, ALL3, ALL4)};
VISIBLE const char EXPORTED(chain_steps)[] = ALL_STEPS(TEXT, TEXT1, TEXT2, TEXT3, TEXT4);
LENGTH(operations, operations)

/* The numbers of steps that are known before the loop. places: of operands, or 0 where no operand
   is a number. */
static void take_numbers(const struct chain_program *p, const struct chain_place *places,
                         step *steps) {
  double registers[p->literal_count + p->operand_count + p->head_count + 1];
  word used = p->literal_count;
  memcpy(registers, p->literals, used * sizeof(double));
  for (word i = 0; places && i < p->operand_count; i++)
    if (p->operands[i].kind == ONE)
      registers[used++] = number_at(places[i].at, p->operands[i].dtype);
  for (word i = 0; i < p->head_count; i++) {
    const ChainHead *h = p->head + i;
    registers[used++] =
        ((number_function *)h->address)(registers[h->x], registers[h->y], registers[h->z]);
  }
  for (const ChainSeat *k = p->seats + p->numbers_from; k < p->seats + p->seat_count; k++)
    sat_on(steps, k)->number = registers[k->of];
}

static const struct {
  word count;  /* vectors */
  void (*begin)(frame *f, word j);
} sizes[] = {{WIDE, begin_wide}, {4, begin_four}, {3, begin_three}, {2, begin_two}, {1, begin_one}};
enum { SIZES = sizeof sizes / sizeof *sizes };
LENGTH(block_sizes, sizes)
enum { FEW = 3 };  /* blocks of a row that are one size rather than the largest ones */

/* Programs of one operation on arrays, a good part of those of a net, are loops of their own: their
   elements often take less time than a run is prepared in. */
typedef void direct_loop(word rows, word n, T *to, word to_step, const T *x, word x_step, const T *y,
                         word y_step);
#define DIRECT(name, of_element)                                                                \
  static void name##_directly(word rows, word n, T *to, word to_step, const T *x, word x_step, \
                              const T *y, word y_step) {                                        \
    for (; rows > 0; rows--, to += to_step, x += x_step, y += y_step)                           \
      _Pragma("omp simd") for (word j = 0; j < n; j++) to[j] = of_element;                      \
  }
DIRECT(load, x[j]) DIRECT(add, x[j] + y[j]) DIRECT(sub, x[j] - y[j]) DIRECT(mul, x[j] * y[j])
#undef DIRECT
static const struct {
  void *run;  /* of the operation */
  direct_loop *loop;
} direct_loops[] = {{load_m_one, load_directly}, {add_mm_one, add_directly},
                    {sub_mm_one, sub_directly}, {mul_mm_one, mul_directly}};

/* the loop that a program is, or 0 */
static direct_loop *direct_of(const struct chain_program *p) {
  const ChainStep *s = p->steps;
  const word own = p->operand_count;
  if (p->step_count != 2 || operations[s[1].operation].runs[0] != (void *)store_end_wide) return 0;
  if (s->x >= own || s->y >= own || s[1].x >= own) return 0;
  for (int i = 0; i < sizeof direct_loops / sizeof *direct_loops; i++)
    if (operations[s->operation].runs[SIZES - 1] == direct_loops[i].run)
      return direct_loops[i].loop;
  return 0;
}

static void run_directly(const struct chain_program *p, const struct chain_place *places, word r0,
                         word r1, word c0, word c1) {
  const ChainStep *s = p->steps;
  const struct chain_place *to = places + s[1].x, *x = places + s->x, *y = places + s->y;
  const word rows = r1 - r0, columns = c1 - c0;
  const int is_flat = to->step == columns && x->step == columns && y->step == columns;
  ((direct_loop *)p->direct)(is_flat ? 1 : rows, is_flat ? rows * columns : columns,
                             (T *)to->at + r0 * to->step + c0, to->step,
                             (const T *)x->at + r0 * x->step + c0, x->step,
                             (const T *)y->at + r0 * y->step + c0, y->step);
}

enum { FOR_BUFFERS = 8192 };  /* bytes of all buffers, which stay in the first cache */

/* elements of a buffer: of a few blocks, after which it is placed anew */
static word room_of(const struct chain_program *p) {
  if (!p->buffers) return 0;
  const word blocks = least(8, FOR_BUFFERS / (p->buffers * WIDE * BYTES));
  return (blocks ? blocks : 1) * WIDE * LANES;
}

/* What an operand of a step is, in the order of seats; the numbers that steps read are some
   registers, then elements of columns. */
enum { IN_ARRAY, IN_BUFFER, IN_COLUMN, IN_REGISTER, SEATS };

/* What C knows of a program beside what Python writes: addresses and sizes, and all of a run that
   does not depend on where its operands are. A call of few elements takes no longer than that. */
EXPORT(chain_prepare)(struct chain_program *p) {
  static const int32_t bytes[] = {
      [OF_FLOAT16] = 2, [OF_BFLOAT16] = 2, [OF_FLOAT32] = 4, [OF_FLOAT64] = 8, [OF_INT32] = 4,
      [OF_INT64] = 8};
  const word own = p->operand_count, known = p->register_count;
  p->ones = 0;
  for (word i = 0; i < own; i++) {
    ChainOperand *o = p->operands + i;
    o->bytes = o->kind == ONE ? 0 : bytes[o->dtype], o->size = o->kind == ARRAY ? o->bytes : 0;
    p->ones += o->kind == ONE;
  }
  for (word i = 0; i < p->head_count; i++)
    p->head[i].address = (word)functions_of_numbers[p->head[i].function];
  p->room = room_of(p);
  word count = 0, begins[SEATS];
  for (int which = 0; which < SEATS; which++) {
    begins[which] = count;
    for (word i = 0; i < p->step_count; i++) {
      const ChainStep *from = p->steps + i;
      const int32_t places[] = {from->x, from->y, from->z, from->w};
      const int32_t numbers[] = {from->number_x, from->number_y, from->number_z, from->number_w};
      const char *kind = operations[from->operation].kinds;
      for (word k = 0; kind[k]; k++) {
        const int is_column = numbers[k] >= known;
        const int to = i * sizeof(step) + offsetof(step, x) + k * sizeof(operand);
        if (kind[k] == 'm' && which == (places[k] < own ? IN_ARRAY : IN_BUFFER))
          p->seats[count++] = (ChainSeat){to, places[k] < own ? places[k] : places[k] - own};
        if (kind[k] == 'n' && which == (is_column ? IN_COLUMN : IN_REGISTER))
          if (!is_column || numbers[k] - known < p->column_count)
            p->seats[count++] = (ChainSeat){
                to, is_column ? p->columns[numbers[k] - known] : p->registers[numbers[k]]};
      }
    }
  }
  p->buffers_from = begins[IN_BUFFER], p->columns_from = begins[IN_COLUMN];
  p->numbers_from = begins[IN_REGISTER], p->seat_count = count;
  step *to = (step *)p->runs;
  for (int size = 0; size < SIZES; size++, to += p->step_count) {
    for (word i = 0; i < p->step_count; i++) {
      const ChainStep *from = p->steps + i;
      to[i] = (step){(word)operations[from->operation].runs[size]};
      to[i].w.called = functions[from->function];
    }
    if (!p->ones) take_numbers(p, 0, to);
  }
  p->direct = (word)direct_of(p);
}

/* whether nothing that is written lies over what is read: it would all of it (loop_arrays.py) */
static int lies_apart(const struct chain_program *p, const struct chain_place *places) {
  const ChainOperand *o = p->operands;
  for (word i = 0; i < p->operand_count; i++)
    for (word k = 0; o[i].written && k < p->operand_count; k++)
      if (k == i ? o[i].read : places[i].at == places[k].at) return 0;
  return 1;
}

enum { MORE = (BYTES - 1) / sizeof(step) + 1 };  /* steps that are touched behind all, as below */
VISIBLE word EXPORTED(JOIN(more_steps, UNIT)) = MORE;

/* Steps for blocks of some size, their numbers among them. By whole vectors: the steps of most
   programs take less time than a call of memcpy. */
static inline void take_steps(frame *f, int size) {
  const struct chain_program *p = f->program;
  const word bytes = p->step_count * sizeof(step);
  const char *from = (const char *)p->runs + size * bytes;
  for (word i = 0; i < bytes; i += BYTES) {
    vec_t part = *(const row_t *)(from + i);
    IN_ORDER(part);
    *(row_t *)((char *)f->steps + i) = part;
  }
  if (p->ones) take_numbers(p, f->places, f->steps);
}

/* The rows of a frame, each by blocks of several sizes, the last of which is less than a vector. */
static __attribute__((noinline)) void run_in_parts(frame *f, word n) {
  const struct chain_program *p = f->program;
  const ChainOperand *o = p->operands;
  const word own = p->operand_count, rows = f->rows;
  vec_t stage[own];
  char *row[own], *places[own];
  for (word i = 0; i < rows; i++) {
    word done = 0;
    for (int size = 0; size < SIZES; size++) {
      const word block = sizes[size].count * LANES, end = done + (n - done) / block * block;
      if (end == done) continue;
      take_steps(f, size);
      take_seats(f);
      f->rows = 1;
      f->last_of_row = end - block, f->end = end;
      sizes[size].begin(f, done);
      done = end;
    }
    if (done < n) {
      /* What is less than a vector is copied to one, whose other lanes hold ones. */
      memcpy(row, f->at, sizeof row);
      for (word k = 0; k < own; k++) {
        places[k] = row[k] + done * o[k].size;
        if (!o[k].size) continue;
        stage[k] = splat(1);
        memcpy(stage + k, places[k], (n - done) * o[k].size);
        f->at[k] = (char *)(stage + k);
      }
      f->rows = 1;
      f->last_of_row = f->end = 0;
      take_steps(f, SIZES - 1);
      take_seats(f);
      begin_one(f, 0);
      for (word k = 0; k < own; k++)
        if (o[k].written) memcpy(places[k], f->at[k], (n - done) * o[k].size);
      memcpy(f->at, row, sizeof row);
    }
    for (word k = 0; i + 1 < rows && k < own; k++) f->at[k] += f->moves[k];
  }
}

/* The rows of a frame. */
static inline void run_rows(frame *f, word n) {
  for (int size = 0; size < SIZES; size++) {
    const word block = sizes[size].count * LANES;
    /* The last block may compute some elements once more, where it reads what it has read before.
       A row of an odd number of vectors is better off with blocks of several sizes. */
    if (n < block) continue;
    if ((n % block || (size && n > FEW * block)) && !lies_apart(f->program, f->places)) continue;
    f->last_of_row = n - block, f->end = n;
    take_steps(f, size);
    take_seats(f);
    sizes[size].begin(f, 0);
    return;
  }
  run_in_parts(f, n);
}

enum { REPEATED = 4096 };  /* bytes of rows that are repeated, which stay in the first cache */

/* How many rows may be one: those of all arrays follow one another, or are one row that is read
   again and again. A few columns would else be a part of a block, and a part of a vector the more. */
static word rows_at_once(const struct chain_program *p, const struct chain_place *places, word rows,
                         word columns) {
  const ChainOperand *o = p->operands;
  word repeated = 0;
  if (rows < 2 || p->column_count) return 1;
  for (word i = 0; i < p->operand_count; i++) {
    if (o[i].kind != ARRAY || places[i].step == columns) continue;
    if (places[i].step || o[i].written) return 1;
    repeated += columns * o[i].bytes;
  }
  if (!repeated) return rows;
  const word most = REPEATED / repeated;
  if (most < 2) return 1;
  word even = WIDE * LANES;  /* rows of which whole blocks are made */
  while (even > 1 && even / 2 * columns % (WIDE * LANES) == 0) even /= 2;
  return least(rows, most > even ? most - most % even : most);
}

/* a row, `count` times */
static void repeat(char *to, const char *row, word bytes, word count) {
  memcpy(to, row, bytes);
  for (word done = 1; done < count; done *= 2)
    memcpy(to + done * bytes, to, least(done, count - done) * bytes);
}

enum { A_CALL = 1000, A_ROW = 400, A_STEP = 40 };  /* in the units of work, 40 of which are a ns */

static void interpret(struct chain_program *p, const struct chain_place *places, word r0, word r1,
                      word c0, word c1) {
  const ChainOperand *o = p->operands;
  const word own = p->operand_count, rows = r1 - r0, columns = c1 - c0;
  _Alignas(frame) char memory[sizeof(frame) + (p->step_count + MORE) * sizeof(step)];
  _Alignas(vec_t) T buffers[p->buffers * p->room + 1];
  word moves[own];
  char *at[own];
  frame *f = (frame *)memory;
  f->room = p->room, f->buffers = buffers, f->at = at, f->moves = moves;
  f->program = p, f->places = places;
  const word together = c0 ? 1 : rows_at_once(p, places, rows, columns);
  _Alignas(vec_t) char repeated[together > 1 ? REPEATED : 1], *next = repeated;
  for (word i = 0; i < own; i++) {
    const word way = places[i].step * o[i].bytes;
    at[i] = places[i].at + r0 * way + c0 * o[i].size;
    if (together > 1 && o[i].size && !way) {
      repeat(next, at[i], columns * o[i].bytes, together);
      at[i] = next;
      next += together * columns * o[i].bytes;
    }
  }
  word taken = 0;  /* rows of the program */
  for (word done = 0, at_once = together; done < rows && columns > 0; at_once = rows - done) {
    const word count = at_once > 1 ? (rows - done) / at_once : rows - done;
    for (word i = 0; rows > 1 && i < own; i++) {
      const word way = places[i].step * o[i].bytes;
      moves[i] = at_once * way;
      if (way) at[i] = places[i].at + (r0 + done) * way + c0 * o[i].size;
    }
    f->rows = count;
    run_rows(f, at_once * columns);
    done += count * at_once, taken += count;
  }
  /* Short rows cost more than their elements: each step is a jump, each row and call is prepared. */
  const word work =
      A_CALL + taken * (A_ROW + p->step_count * A_STEP) + rows * columns * p->work;
  /* Work that two threads add at once counts once: a locked sum took as long as some steps. */
  const word done = __atomic_load_n(&p->done, __ATOMIC_RELAXED) + work;
  __atomic_store_n(&p->done, done, __ATOMIC_RELAXED);
  if (done >= p->enough)
    __atomic_store_n((word *)p->hot, 1, __ATOMIC_RELAXED);
}

typedef void compiled_loop(const struct chain *a, word r0, word r1, word c0, word c1,
                           function *const *functions, number_function *const *number_functions);

EXPORT(chain)(const struct chain *a, word t, word n) {
  struct chain_program *p = a->program;
  word r0 = 0, r1 = a->rows, c0 = 0, c1 = a->columns;
  if (n == 1) {
    /* divisions take as long as some steps */
  } else if (a->rows >= n) {
    r0 = a->rows * t / n, r1 = a->rows * (t + 1) / n;
  } else {
    const word wide = ((a->columns + n - 1) / n + 63) / 64 * 64;
    c0 = least(wide * t, a->columns), c1 = least(c0 + wide, a->columns);
  }
  compiled_loop *compiled = __atomic_load_n(&p->compiled, __ATOMIC_ACQUIRE);
  if (compiled)
    compiled(a, r0, r1, c0, c1, functions, functions_of_numbers);
  else if (p->direct)
    run_directly(p, a->places, r0, r1, c0, c1);
  else
    interpret(p, a->places, r0, r1, c0, c1);
}
