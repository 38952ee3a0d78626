/* The steps of chains.c for one number of vectors: how many elements a step computes. A step takes
   its result so far in registers, as arguments that the next step takes over, which is a jump where
   the compiler makes tail calls. So a value that the next step reads is in no memory. */

#define STEP(name) static void NAME(name)(const step *s, const frame *f, word j, ARGUMENTS)
#define NEXT ((RUN *)s[1].run[SIZE])(s + 1, f, j, PASSED)
#define AT_X (f->at[s->x] + j * s->x_size)
#define AT_Y (f->at[s->y] + j * s->y_size)
#define AT_Z (f->at[s->z] + j * s->z_size)
#define X(i) (((const row_t *)AT_X)[i])
#define Y(i) (((const row_t *)AT_Y)[i])
#define Z(i) (((const row_t *)AT_Z)[i])

#define LOAD(i, g) a##i = X(i);
#define SPLAT(i, g) a##i = x;
#define STORE(i, g) to[i] = a##i;
#define APPLY1(i, g) a##i = g(a##i);
#define APPLY2(i, g) a##i = g(a##i, X(i));
#define APPLY2_NUMBER(i, g) a##i = g(a##i, x);
#define APPLY2_SELF(i, g) a##i = g(a##i, a##i);

STEP(load) { EACH(LOAD, ) NEXT; }
STEP(load_number) { const vec_t x = splat(f->numbers[s->x]); EACH(SPLAT, ) NEXT; }
STEP(store) {
  row_t *to = (row_t *)AT_X;  /* found once: what is stored might lie over the frame */
  EACH(STORE, )
  NEXT;
}
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

/* Operands by what they are: registers, memory, or a number, which NUMBER_n reads for them all. */
#define a_OF(i, at, number) a##i
#define m_OF(i, at, number) at(i)
#define n_OF(i, at, number) number
#define NUMBER_a(number, place)
#define NUMBER_m(number, place)
#define NUMBER_n(number, place) const vec_t number = splat(f->numbers[place]);
#define NAMES(...) __VA_ARGS__
#define APPLIED(macro, ...) macro(__VA_ARGS__)

#define OF_PRODUCT(i, g) APPLIED(OF_PRODUCT_OF, i, NAMES g)
#define OF_PRODUCT_OF(i, name, with, other) \
  a##i = op_##name(a##i, with##_OF(i, X, x), other##_OF(i, Y, y));
#define DEFINE4(name, with, other)                   \
  STEP(name##_##with##other) {                       \
    NUMBER_##with(x, s->x) NUMBER_##other(y, s->y)   \
    EACH(OF_PRODUCT, (name, with, other)) NEXT;      \
  }
OF_PRODUCTS(DEFINE4)
#undef DEFINE4

#define CHOSEN(i, g) APPLIED(CHOSEN_OF, i, NAMES g)
#define CHOSEN_OF(i, name, with, then, otherwise) \
  a##i = by_##name(a##i, with##_OF(i, X, x), then##_OF(i, Y, y), otherwise##_OF(i, Z, z));
#define DEFINE5(name, with, then, otherwise)                                   \
  STEP(name##_##with##_##then##otherwise) {                                    \
    NUMBER_##with(x, s->x) NUMBER_##then(y, s->y) NUMBER_##otherwise(z, s->z)  \
    EACH(CHOSEN, (name, with, then, otherwise)) NEXT;                          \
  }
CHOICES(DEFINE5)
#undef DEFINE5

/* the registers are one of what is chosen from; X is compared with Y, and Z is the other */
#define HELD(i, g) APPLIED(HELD_OF, i, NAMES g)
#define HELD_OF(i, name, with, then, otherwise) \
  a##i = by_##name(X(i), with##_OF(i, Y, y), then##_OF(i, Z, z), otherwise##_OF(i, Z, z));
#define DEFINE5(name, with, then, otherwise)                                   \
  STEP(held_##name##_##with##_##then##otherwise) {                             \
    NUMBER_##with(y, s->y) NUMBER_##then(z, s->z) NUMBER_##otherwise(z, s->z)  \
    EACH(HELD, (name, with, then, otherwise)) NEXT;                            \
  }
HELD_CHOICES(DEFINE5)
#undef DEFINE5

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
#undef AT_Z
#undef X
#undef Y
#undef Z
#undef LOAD
#undef SPLAT
#undef STORE
#undef APPLY1
#undef APPLY2
#undef APPLY2_NUMBER
#undef APPLY2_SELF
#undef PRODUCT
#undef PRODUCT_NUMBER
#undef a_OF
#undef m_OF
#undef n_OF
#undef NUMBER_a
#undef NUMBER_m
#undef NUMBER_n
#undef NAMES
#undef APPLIED
#undef OF_PRODUCT
#undef OF_PRODUCT_OF
#undef CHOSEN
#undef CHOSEN_OF
#undef HELD
#undef HELD_OF
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
