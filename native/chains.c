/* Chains of elementwise operators, interpreted: framework/fusion/chains.py writes their programs.

   A program is a list of steps over blocks of elements: the vectors of a block stay in registers
   from step to step, what is read again later goes to a buffer in the first cache. Numbers are
   those of a compiled loop to the last bit: operations round as IEEE 754 says, one by one (this
   file is compiled without contraction), and functions are those of one table, which compiled loops
   call as well. What a function gives depends on its argument alone, not on the element's place. */
#include "vectors.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include "halves.h"

#define F(name) _Generic((T)0, float: name##f, double: name)

/* -- functions of arrays and of single numbers --------------------------------------------------- */

typedef void function(word n, T *to, const T *x, const T *y, const T *z);
typedef double number_function(double x, double y, double z);

#define UNARY(D)                                                                                 \
  D(acos) D(acosh) D(asin) D(asinh) D(atan) D(atanh) D(cbrt) D(ceil) D(cos) D(cosh) D(erf) D(erfc) \
  D(exp) D(exp2) D(expm1) D(floor) D(lgamma) D(log) D(log10) D(log1p) D(log2) D(rint) D(round)   \
  D(sin) D(sinh) D(sqrt) D(tan) D(tanh) D(tgamma) D(trunc)
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
VISIBLE const char EXPORTED(chain_functions)[] = UNARY(TEXT) BINARY(TEXT) TERNARY(TEXT);
VISIBLE const char EXPORTED(chain_number_functions)[] = UNARY(TEXT) BINARY(TEXT) TERNARY(TEXT)
    ON_NUMBERS(TEXT);
static function *const functions[] = {UNARY(ARRAY_FUNCTION) BINARY(ARRAY_FUNCTION)
                                          TERNARY(ARRAY_FUNCTION)};
static number_function *const number_functions[] = {
    UNARY(NUMBER_FUNCTION) BINARY(NUMBER_FUNCTION) TERNARY(NUMBER_FUNCTION)
        ON_NUMBERS(NUMBER_FUNCTION)};

/* -- operations on vectors ----------------------------------------------------------------------- */

/* A truth value is a vector of whole bits, all set or none. */
#define TRUTH(comparison) (vec_t)(flags_t)(comparison)
INLINE flags_t bits(vec_t a) { return (flags_t)a; }
INLINE vec_t splat(T x) { return x - (vec_t){}; }
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
INLINE vec_t op_isnan(vec_t a) { return TRUTH(a != a); }
INLINE vec_t op_isinf(vec_t a) { return TRUTH(op_fabs(a) == splat((T)INFINITY)); }
INLINE vec_t op_isfinite(vec_t a) { return TRUTH(op_fabs(a) < splat((T)INFINITY)); }
INLINE vec_t op_signbit(vec_t a) { return TRUTH(bits(a) < 0); }
#define ONE_OPERAND(D) \
  D(neg) D(fabs) D(sqrt) D(not) D(as_number) D(as_truth) D(isnan) D(isinf) D(isfinite) D(signbit)

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
/* Comparisons, then what is compared with and chosen: a register, an array in memory, a number. */
#define BRANCHES(D, name, with)                                                                \
  D(name, with, a, m) D(name, with, a, n) D(name, with, m, a) D(name, with, n, a)              \
  D(name, with, m, m) D(name, with, m, n) D(name, with, n, m) D(name, with, n, n)
#define HELD_BRANCHES(D, name, with) \
  D(name, with, a, m) D(name, with, a, n) D(name, with, m, a) D(name, with, n, a)
#define COMPARISONS(D, each)                                                                   \
  D(each, lt, m) D(each, gt, m) D(each, le, m) D(each, ge, m) D(each, eq, m) D(each, ne, m)    \
  D(each, lt, n) D(each, gt, n) D(each, le, n) D(each, ge, n) D(each, eq, n) D(each, ne, n)
#define CHOICES(each) COMPARISONS(BRANCHES, each)
#define HELD_CHOICES(each) COMPARISONS(HELD_BRANCHES, each)

/* What is done with a product of two others; both operations round. */
INLINE vec_t op_add_product(vec_t a, vec_t b, vec_t c) { return a + b * c; }
INLINE vec_t op_sub_product(vec_t a, vec_t b, vec_t c) { return a - b * c; }
INLINE vec_t op_sub_from_product(vec_t a, vec_t b, vec_t c) { return b * c - a; }
INLINE vec_t op_mul_product(vec_t a, vec_t b, vec_t c) { return a * (b * c); }
INLINE vec_t op_div_into_product(vec_t a, vec_t b, vec_t c) { return b * c / a; }
#define PRODUCTS(D) \
  D(add_product) D(sub_product) D(sub_from_product) D(mul_product) D(div_into_product)
/* What is done with the product of the result so far. */
INLINE vec_t op_mul_add(vec_t a, vec_t b, vec_t c) { return a * b + c; }
INLINE vec_t op_mul_sub(vec_t a, vec_t b, vec_t c) { return a * b - c; }
INLINE vec_t op_mul_sub_from(vec_t a, vec_t b, vec_t c) { return c - a * b; }
#define OF_PRODUCTS(D)                                                                   \
  D(mul_add, m, m) D(mul_add, m, n) D(mul_add, n, m) D(mul_add, n, n) D(mul_sub, m, m)   \
  D(mul_sub, m, n) D(mul_sub, n, m) D(mul_sub, n, n) D(mul_sub_from, m, m)               \
  D(mul_sub_from, m, n) D(mul_sub_from, n, m) D(mul_sub_from, n, n)
#define TWO_OPERANDS(D)                                                                         \
  D(add) D(sub) D(sub_from) D(mul) D(div) D(div_into) D(lt) D(gt) D(le) D(ge) D(eq) D(ne) D(and) \
  D(or) D(copysign) D(fmax) D(fmin) D(at_least) D(at_most)

/* -- programs ------------------------------------------------------------------------------------ */

enum { WIDE = 8 };  /* vectors of a block: as many as the calling convention has in registers */
typedef struct step {
  word run[2];   /* functions for blocks of WIDE vectors and of one; first the number of the step */
  word x, x_size, y, y_size, z, z_size;  /* places or numbers; bytes from element to element */
  word function; /* for calls: of an array; first its number */
} step;
/* What the steps of a part work on: where operands and buffers are now, single numbers, and the
   block that functions are called with. */
typedef struct frame {
  char **at;
  const T *numbers;
  vec_t *passed;
  const step *steps;
  word last;  /* where the last block begins */
} frame;

#define EACH(D, g) D(0, g) D(1, g) D(2, g) D(3, g) D(4, g) D(5, g) D(6, g) D(7, g)
#define ARGUMENTS \
  vec_t a0, vec_t a1, vec_t a2, vec_t a3, vec_t a4, vec_t a5, vec_t a6, vec_t a7
#define PASSED a0, a1, a2, a3, a4, a5, a6, a7
#define NAME(name) name##_wide
enum { SIZE_wide = 0, SIZE_one = 1 };
#define SIZE SIZE_wide
#define COUNT WIDE
typedef void wide_run(const step *s, const frame *f, word j, ARGUMENTS);
#define RUN wide_run
#include "chain_steps.h"
#undef EACH
#undef ARGUMENTS
#undef PASSED
#undef NAME
#undef SIZE
#undef COUNT
#undef RUN

#define EACH(D, g) D(0, g)
#define ARGUMENTS vec_t a0
#define PASSED a0
#define NAME(name) name##_one
#define SIZE SIZE_one
#define COUNT 1
typedef void one_run(const step *s, const frame *f, word j, ARGUMENTS);
#define RUN one_run
#include "chain_steps.h"

#define ALL_STEPS(D)                                                                             \
  D(end) D(load) D(load_number) D(store) D(call) D(choose_aa) D(choose_an) D(choose_na)          \
  D(choose_nn) D(then_a) D(then_n) D(else_a) D(else_n) D(load_float16) D(load_bfloat16)          \
  D(store_float16) D(store_bfloat16) ONE_OPERAND(D)
#define BOTH(name) {name##_wide, name##_one},
#define BOTH_OF_TWO(name) BOTH(name) BOTH(name##_self) BOTH(name##_number)
#define TEXTS_OF_TWO(name) TEXT(name) TEXT(name##_self) TEXT(name##_number)
#define BOTH_PRODUCTS(name) BOTH(name) BOTH(name##_number)
#define TEXTS_OF_PRODUCTS(name) TEXT(name) TEXT(name##_number)
#define BOTH_OF_PRODUCTS(name, y, z) BOTH(name##_##y##z)
#define TEXTS_OF_OF_PRODUCTS(name, y, z) TEXT(name##_##y##z)
#define BOTH_CHOICES(name, with, then, otherwise) BOTH(name##_##with##_##then##otherwise)
#define TEXTS_OF_CHOICES(name, with, then, otherwise) TEXT(name##_##with##_##then##otherwise)
#define BOTH_HELD(name, with, then, otherwise) BOTH(held_##name##_##with##_##then##otherwise)
#define TEXTS_OF_HELD(name, with, then, otherwise) TEXT(held_##name##_##with##_##then##otherwise)
static void *const steps[][2] = {
    ALL_STEPS(BOTH) TWO_OPERANDS(BOTH_OF_TWO) PRODUCTS(BOTH_PRODUCTS)
        OF_PRODUCTS(BOTH_OF_PRODUCTS) CHOICES(BOTH_CHOICES) HELD_CHOICES(BOTH_HELD)};
VISIBLE const char EXPORTED(chain_steps)[] =
    ALL_STEPS(TEXT) TWO_OPERANDS(TEXTS_OF_TWO) PRODUCTS(TEXTS_OF_PRODUCTS)
        OF_PRODUCTS(TEXTS_OF_OF_PRODUCTS) CHOICES(TEXTS_OF_CHOICES) HELD_CHOICES(TEXTS_OF_HELD);

enum { ARRAY, COLUMN, ONE };  /* an element for each place, for each row, or one */
enum { FLOAT16, BFLOAT16, FLOAT, DOUBLE, INT32, INT64 };
typedef struct operand {
  word kind, dtype;
  word bytes;  /* of an element */
  word size;   /* the same for arrays, by which their places move on; else 0 */
  word stored; /* 1: it is written; 3: it is also read */
} operand;
/* to = function(x, y, z), all of them registers of numbers in double */
typedef struct head_step {
  word function, to, x, y, z;
} head_step;
/* Then come literals (doubles), operands, steps of the head, the numbers that the steps read
   (registers of the head, or -1 - operand of a column), and the steps. Registers are at first the
   literals, then the operands that are one number. */
typedef struct program {
  word compiled;  /* function of a compiled loop that does the same, or 0 */
  word done;      /* work that was interpreted; from `enough` on `*hot` becomes 1 */
  word work;      /* of one element */
  word enough;
  word *hot;
  word literals, operands, head, numbers, steps, registers, buffers;
} program;

typedef struct parts {
  const double *literals;
  operand *operands;
  head_step *head;
  const word *numbers;
  step *steps;
} parts;
static parts parts_of(const program *p) {
  parts own;
  own.literals = (const double *)(p + 1);
  own.operands = (operand *)(own.literals + p->literals);
  own.head = (head_step *)(own.operands + p->operands);
  own.numbers = (const word *)(own.head + p->head);
  own.steps = (step *)(own.numbers + p->numbers);
  return own;
}

/* address of a program as Python writes it: numbers of functions become their addresses */
EXPORT(chain_prepare)(const word *b) {
  program *p = (program *)b[0];
  const parts own = parts_of(p);
  for (word i = 0; i < p->head; i++)
    own.head[i].function = (word)number_functions[own.head[i].function];
  for (word i = 0; i < p->steps; i++) {
    void *const *run = steps[own.steps[i].run[0]];
    own.steps[i].run[0] = (word)run[0], own.steps[i].run[1] = (word)run[1];
    own.steps[i].function = (word)functions[own.steps[i].function];
  }
}

static double number_at(const char *at, word dtype) {
  switch (dtype) {
    case FLOAT16: return from_float16(*(const uint16_t *)at);
    case BFLOAT16: return from_bfloat16(*(const uint16_t *)at);
    case FLOAT: return *(const float *)at;
    case DOUBLE: return *(const double *)at;
    case INT32: return *(const int32_t *)at;
    default: return *(const int64_t *)at;
  }
}

/* `at` has the place of every operand in a row; the numbers of columns are set */
static void run_row(const program *p, const parts *own, frame *f, char *stage, word n,
                    int apart) {
  const operand *o = own->operands;
  const step *s = own->steps;
  const vec_t a = {0};
  word j = 0;
  f->last = n - WIDE * LANES;
  if (f->last >= 0) ((wide_run *)s->run[SIZE_wide])(s, f, 0, a, a, a, a, a, a, a, a);
  j = n / (WIDE * LANES) * (WIDE * LANES);
  if (j == n) return;
  /* The last block may compute some elements once more, where it reads what it has read before. */
  if (apart && n >= WIDE * LANES) {
    ((wide_run *)s->run[SIZE_wide])(s, f, n - WIDE * LANES, a, a, a, a, a, a, a, a);
    return;
  }
  f->last = n - LANES;
  if (j <= f->last) ((one_run *)s->run[SIZE_one])(s, f, j, a);
  j = n / LANES * LANES;
  if (j == n) return;
  if (apart && n >= LANES) {
    ((one_run *)s->run[SIZE_one])(s, f, n - LANES, a);
    return;
  }
  /* What is less than a vector is copied to one, whose other lanes hold ones. */
  char *places[p->operands];
  for (word i = 0; i < p->operands; i++) {
    char *to = stage + i * BYTES;
    places[i] = f->at[i] + j * o[i].size;
    if (!o[i].size) continue;
    *(vec_t *)to = splat(1);
    memcpy(to, places[i], (n - j) * o[i].size);
    f->at[i] = to;
  }
  f->last = 0;
  ((one_run *)s->run[SIZE_one])(s, f, 0, a);
  for (word i = 0; i < p->operands; i++)
    if (o[i].stored) memcpy(places[i], f->at[i], (n - j) * o[i].size);
}

/* whether nothing that is written lies over what is read: it would all of it (loop_arrays.py) */
static int lies_apart(const program *p, const operand *o, const word *places) {
  for (word i = 0; i < p->operands; i++)
    for (word k = 0; o[i].stored && k < p->operands; k++)
      if (k == i ? o[i].stored == 3 : places[2 * i] == places[2 * k]) return 0;
  return 1;
}

enum { A_CALL = 8000, A_ROW = 1000, A_STEP = 100 };  /* in the units of work, 40 of which are a ns */

static void interpret(program *p, const word *b, word r0, word r1, word c0, word c1) {
  const parts own = parts_of(p);
  const operand *o = own.operands;
  const word *places = b + 3;  /* address and step of each operand */
  double registers[p->registers + 1];
  T numbers[p->numbers + 1];
  char *at[p->operands + p->buffers];
  vec_t passed[WIDE], buffers[p->buffers * WIDE + 1];
  vec_t stage[p->operands];
  frame f = {at, numbers, passed, own.steps, 0};
  word used = p->literals;
  memcpy(registers, own.literals, used * sizeof(double));
  for (word i = 0; i < p->operands; i++)
    if (o[i].kind == ONE) registers[used++] = number_at((const char *)places[2 * i], o[i].dtype);
  for (word i = 0; i < p->head; i++) {
    const head_step *h = own.head + i;
    registers[h->to] = ((number_function *)h->function)(registers[h->x], registers[h->y],
                                                        registers[h->z]);
  }
  for (word i = 0; i < p->numbers; i++)
    if (own.numbers[i] >= 0) numbers[i] = registers[own.numbers[i]];
  for (word i = 0; i < p->buffers; i++) at[p->operands + i] = (char *)(buffers + i * WIDE);
  const int apart = lies_apart(p, o, places);
  for (word i = r0; i < r1; i++) {
    for (word k = 0; k < p->operands; k++)
      at[k] = (char *)places[2 * k] + (i * places[2 * k + 1] + c0) * o[k].size;
    for (word k = 0; k < p->numbers; k++)
      if (own.numbers[k] < 0) {
        const word c = -1 - own.numbers[k];
        const char *column = (const char *)places[2 * c];
        numbers[k] = number_at(column + i * places[2 * c + 1] * o[c].bytes, o[c].dtype);
      }
    run_row(p, &own, &f, (char *)stage, c1 - c0, apart);
  }
  /* Short rows cost more than their elements: each step is a jump, each row and call is prepared. */
  const word work = A_CALL + (r1 - r0) * (A_ROW + p->steps * A_STEP + (c1 - c0) * p->work);
  if (__atomic_add_fetch(&p->done, work, __ATOMIC_RELAXED) >= p->enough)
    __atomic_store_n(p->hot, 1, __ATOMIC_RELAXED);
}

typedef void compiled_loop(const word *b, word r0, word r1, word c0, word c1,
                           function *const *functions, number_function *const *number_functions);

/* rows, columns, program; then address and step in elements of each operand */
EXPORT(chain)(const word *b, word t, word n) {
  const word rows = b[0], columns = b[1];
  program *p = (program *)b[2];
  word r0 = 0, r1 = rows, c0 = 0, c1 = columns;
  if (rows >= n) {
    r0 = rows * t / n, r1 = rows * (t + 1) / n;
  } else {
    const word wide = ((columns + n - 1) / n + 63) / 64 * 64;
    c0 = least(wide * t, columns), c1 = least(c0 + wide, columns);
  }
  const word compiled = __atomic_load_n(&p->compiled, __ATOMIC_ACQUIRE);
  if (compiled)
    ((compiled_loop *)compiled)(b, r0, r1, c0, c1, functions, number_functions);
  else
    interpret(p, b, r0, r1, c0, c1);
}
