/* The steps of chains.c for one number of vectors: how many elements a step computes. A step takes
   its result so far in registers, as arguments that the next step takes over, which is a jump where
   the compiler makes tail calls. So a value that the next step reads is in no memory. */

#define STEP(name) static void NAME(name)(const step *s, const frame *f, word j, ARGUMENTS)
#define NEXT ((RUN *)s[1].run[SIZE])(s + 1, f, j, PASSED)
#define AT_X (f->at[s->x] + j * s->x_size)
#define AT_Y (f->at[s->y] + j * s->y_size)
#define X(i) (((const row_t *)AT_X)[i])
#define Y(i) (((const row_t *)AT_Y)[i])

#define LOAD(i, g) a##i = X(i);
#define SPLAT(i, g) a##i = x;
#define STORE(i, g) ((row_t *)AT_X)[i] = a##i;
#define APPLY1(i, g) a##i = g(a##i);
#define APPLY2(i, g) a##i = g(a##i, X(i));
#define APPLY2_NUMBER(i, g) a##i = g(a##i, x);
#define APPLY2_SELF(i, g) a##i = g(a##i, a##i);

STEP(load) { EACH(LOAD, ) NEXT; }
STEP(load_number) { const vec_t x = splat(f->numbers[s->x]); EACH(SPLAT, ) NEXT; }
STEP(store) { EACH(STORE, ) NEXT; }
/* the next block, or back to run_row */
STEP(end) {
  j += COUNT * LANES;
  if (j <= f->last) ((RUN *)f->steps->run[SIZE])(f->steps, f, j, PASSED);
}

#define DEFINE1(name) STEP(name) { EACH(APPLY1, op_##name) NEXT; }
ONE_OPERAND(DEFINE1)
#undef DEFINE1

#define DEFINE2(name)                                        \
  STEP(name) { EACH(APPLY2, op_##name) NEXT; }               \
  STEP(name##_self) { EACH(APPLY2_SELF, op_##name) NEXT; }   \
  STEP(name##_number) {                                      \
    const vec_t x = splat(f->numbers[s->x]);                 \
    EACH(APPLY2_NUMBER, op_##name) NEXT;                     \
  }
TWO_OPERANDS(DEFINE2)
#undef DEFINE2

#define PRODUCT(i, g) a##i = g(a##i, X(i), Y(i));
#define PRODUCT_NUMBER(i, g) a##i = g(a##i, X(i), y);
#define DEFINE3(name)                                   \
  STEP(name) { EACH(PRODUCT, op_##name) NEXT; }         \
  STEP(name##_number) {                                 \
    const vec_t y = splat(f->numbers[s->y]);            \
    EACH(PRODUCT_NUMBER, op_##name) NEXT;               \
  }
PRODUCTS(DEFINE3)
#undef DEFINE3

/* choices: the operand that the registers hold; whether the others are arrays or numbers */
#define CHOOSE_AA(i, g) a##i = choice(a##i, X(i), Y(i));
#define CHOOSE_AN(i, g) a##i = choice(a##i, X(i), y);
#define CHOOSE_NA(i, g) a##i = choice(a##i, x, Y(i));
#define CHOOSE_NN(i, g) a##i = choice(a##i, x, y);
#define THEN_A(i, g) a##i = choice(X(i), a##i, Y(i));
#define THEN_N(i, g) a##i = choice(X(i), a##i, y);
#define ELSE_A(i, g) a##i = choice(X(i), Y(i), a##i);
#define ELSE_N(i, g) a##i = choice(X(i), y, a##i);
STEP(choose_aa) { EACH(CHOOSE_AA, ) NEXT; }
STEP(choose_an) { const vec_t y = splat(f->numbers[s->y]); EACH(CHOOSE_AN, ) NEXT; }
STEP(choose_na) { const vec_t x = splat(f->numbers[s->x]); EACH(CHOOSE_NA, ) NEXT; }
STEP(choose_nn) {
  const vec_t x = splat(f->numbers[s->x]), y = splat(f->numbers[s->y]);
  EACH(CHOOSE_NN, ) NEXT;
}
STEP(then_a) { EACH(THEN_A, ) NEXT; }
STEP(then_n) { const vec_t y = splat(f->numbers[s->y]); EACH(THEN_N, ) NEXT; }
STEP(else_a) { EACH(ELSE_A, ) NEXT; }
STEP(else_n) { const vec_t y = splat(f->numbers[s->y]); EACH(ELSE_N, ) NEXT; }

/* a function of the table; its further arguments are arrays */
#define OUT(i, g) f->passed[i] = a##i;
#define BACK(i, g) a##i = f->passed[i];
STEP(call) {
  T *passed = (T *)f->passed;
  EACH(OUT, )
  ((function *)s->function)(COUNT * LANES, passed, passed, (const T *)AT_X,
                            (const T *)AT_Y);
  EACH(BACK, )
  NEXT;
}

/* halves: of float chains alone */
#define HALVES(type)                                                               \
  STEP(load_##type) {                                                              \
    T *to = (T *)f->passed;                                                        \
    const uint16_t *from = (const uint16_t *)AT_X;                                 \
    _Pragma("omp simd") for (word l = 0; l < COUNT * LANES; l++)                   \
      to[l] = from_##type(from[l]);                                                \
    EACH(BACK, )                                                                   \
    NEXT;                                                                          \
  }                                                                                \
  STEP(store_##type) {                                                             \
    const T *from = (const T *)f->passed;                                          \
    uint16_t *to = (uint16_t *)AT_X;                                               \
    EACH(OUT, )                                                                    \
    _Pragma("omp simd") for (word l = 0; l < COUNT * LANES; l++)                   \
      to[l] = to_##type(from[l]);                                                  \
    NEXT;                                                                          \
  }
HALVES(float16)
HALVES(bfloat16)

#undef STEP
#undef NEXT
#undef AT_X
#undef AT_Y
#undef X
#undef Y
#undef LOAD
#undef SPLAT
#undef STORE
#undef APPLY1
#undef APPLY2
#undef APPLY2_NUMBER
#undef APPLY2_SELF
#undef PRODUCT
#undef PRODUCT_NUMBER
#undef CHOOSE_AA
#undef CHOOSE_AN
#undef CHOOSE_NA
#undef CHOOSE_NN
#undef THEN_A
#undef THEN_N
#undef ELSE_A
#undef ELSE_N
#undef OUT
#undef BACK
#undef HALVES
