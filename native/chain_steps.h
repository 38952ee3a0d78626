/* The steps of chains.c for one number of vectors: how many elements a step computes. A step takes
   its result so far in registers, as arguments that the next step takes over, which is a jump where
   the compiler makes tail calls. So a value that the next step reads is in no memory.

   The name of a step ends with what its operands are: "a", the registers; "m", an array in memory;
   "n", a number; "b", the second block. They are those of the slots x, y, z and w of a step, in this
   order. Loads bound most steps, two in a cycle: so a step has the address of each operand itself. */

#define STEP(name) static void NAME(name)(const step *s, frame *f, word j, ARGUMENTS)
#define NEXT ((RUN *)s[1].run)(s + 1, f, j, PASSED)
/* Of a call at one of several ends of a function, which clang makes no jump for WebAssembly else. */
#undef TAIL
#if defined(__wasm__)
#define TAIL __attribute__((musttail))
#else
#define TAIL
#endif
/* Arrays are addressed from where they begin, so that j is the index of all of them: where a step
   found each address by a product, it took as long for that as for its vectors. */
#define AT(type, slot) ((type *)s->slot.at + j)

/* what a step reads before its vectors, and of each of them */
#define READ_a(slot)
#define READ_m(slot) const row_t *const slot = (const row_t *)AT(const T, slot);
#define READ_b(slot)
#define READ_n(slot) const vec_t slot = splat(s->slot.number);
#define OF_a(i, slot) a##i
#define OF_m(i, slot) vector_at(slot, i)
#define OF_n(i, slot) slot
#define OF_b(i, slot) b##i
#define NAMES(...) __VA_ARGS__
#define APPLIED(macro, ...) macro(__VA_ARGS__)

#define LOAD(i, g) a##i = vector_at(x, i); IN_ORDER(a##i);
#define SPLAT(i, g) a##i = x;
#define STORE(i, g) put_vector(to, i, a##i);

STEP(load_m) { READ_m(x) EACH(LOAD, ) NEXT; }
STEP(load_n) { READ_n(x) EACH(SPLAT, ) NEXT; }
STEP(store_m) {
  row_t *to = (row_t *)AT(T, x);  /* found once: what is stored might lie over the frame */
  EACH(STORE, )
  NEXT;
}
#define FROM_b(i, g) a##i = b##i;
#define HOLD(i, g) { vec_t held = OF_##g(i, x); IN_ORDER(held); b##i = held; }
#define SPILL(i, g) put_vector(to, i, b##i);
STEP(load_b) { EACH(FROM_b, ) NEXT; }
STEP(hold_a) { EACH(HOLD, a) NEXT; }
#define KEEP(i, g) d##i = a##i; IN_ORDER(d##i);
#define STORE_KEPT(i, g) put_vector(to, i, d##i);
IN_REGISTERS(
  STEP(hold_m) { READ_m(x) EACH(HOLD, m) NEXT; }
  STEP(keep_a) { EACH(KEEP, ) NEXT; }
  STEP(kept_m) {
    row_t *to = (row_t *)AT(T, x);
    EACH(STORE_KEPT, )
    NEXT;
  }
)
STEP(spill_m) {
  row_t *to = (row_t *)AT(T, x);
  EACH(SPILL, )
  NEXT;
}
#define NOTHING(i, g) , a
static void NAME(begin)(frame *f, word j) {
  const vec_t a = {0};
  f->last = f->last_of_row;
  if (f->room) place_buffers(f, j, COUNT * LANES);
  ((RUN *)f->steps->run)(f->steps, f, j EACH(NOTHING, ));
}
/* The blocks that buffers have room for next; the last block of a row, which may begin within the
   one before; the next row, or back to run_rows. It is no part of a step: registers that the calls of
   this need were saved for every block. */
static __attribute__((noinline)) void NAME(turn)(frame *f, word j) {
  if (j <= f->last_of_row)
    TAIL return NAME(begin)(f, j);
  if (j < f->end)
    TAIL return NAME(begin)(f, f->last_of_row);
  if (next_row(f))
    TAIL return NAME(begin)(f, 0);
}
#define NEXT_BLOCK                         \
  j += COUNT * LANES;                      \
  if (j > f->last) return NAME(turn)(f, j); \
  TAIL return ((RUN *)f->steps->run)(f->steps, f, j, PASSED);
STEP(end) { NEXT_BLOCK }
STEP(store_end) {
  row_t *to = (row_t *)AT(T, x);
  EACH(STORE, )
  NEXT_BLOCK
}

#define APPLY1(i, g) APPLIED(APPLY1_OF, i, NAMES g)
#define APPLY1_OF(i, name, k) a##i = op_##name(OF_##k(i, x)); IN_ORDER(a##i);
#define DEFINE(name, k) STEP(name##_##k) { READ_##k(x) EACH(APPLY1, (name, k)) NEXT; }
UNARY_STEPS(DEFINE)
#undef DEFINE

#define APPLY2(i, g) APPLIED(APPLY2_OF, i, NAMES g)
#define APPLY2_OF(i, name, k, l) a##i = op_##name(OF_##k(i, x), OF_##l(i, y)); IN_ORDER(a##i);
#define DEFINE(name, k, l) \
  STEP(name##_##k##l) { READ_##k(x) READ_##l(y) EACH(APPLY2, (name, k, l)) NEXT; }
BINARY_STEPS(DEFINE)
#undef DEFINE

#define APPLY3(i, g) APPLIED(APPLY3_OF, i, NAMES g)
#define APPLY3_OF(i, name, k, l, m) a##i = op_##name(OF_##k(i, x), OF_##l(i, y), OF_##m(i, z)); IN_ORDER(a##i);
#define DEFINE(name, k, l, m)                                       \
  STEP(name##_##k##l##m) {                                          \
    READ_##k(x) READ_##l(y) READ_##m(z) EACH(APPLY3, (name, k, l, m)) NEXT; \
  }
TERNARY_STEPS(DEFINE)
#undef DEFINE

#define APPLY4(i, g) APPLIED(APPLY4_OF, i, NAMES g)
#define APPLY4_OF(i, name, k, l, m, n) \
  a##i = by_##name(OF_##k(i, x), OF_##l(i, y), OF_##m(i, z), OF_##n(i, w)); IN_ORDER(a##i);
#define DEFINE(name, k, l, m, n)                                     \
  STEP(choose_##name##_##k##l##m##n) {                               \
    READ_##k(x) READ_##l(y) READ_##m(z) READ_##n(w)                  \
    EACH(APPLY4, (name, k, l, m, n)) NEXT;                           \
  }
CHOICE_STEPS(DEFINE)
#undef DEFINE

/* a function of the table; its further arguments are arrays */
#define OUT(i, g) f->passed[i] = a##i;
#define BACK(i, g) a##i = f->passed[i];
#define CALL(kinds, y, z)                                                            \
  STEP(call_##kinds) {                                                               \
    T *passed = (T *)f->passed;                                                      \
    EACH(OUT, )                                                                      \
    ((function *)s->w.called)(COUNT * LANES, passed, passed, (const T *)y, (const T *)z); \
    EACH(BACK, )                                                                     \
    NEXT;                                                                            \
  }
CALL(a, 0, 0)
CALL(am, AT(const T, y), 0)
CALL(amm, AT(const T, y), AT(const T, z))

/* halves: of float chains alone */
#define HALVES(type)                                                               \
  STEP(load_##type) {                                                              \
    T *to = (T *)f->passed;                                                        \
    const uint16_t *from = AT(const uint16_t, x);                                  \
    _Pragma("omp simd") for (word l = 0; l < COUNT * LANES; l++)                   \
      to[l] = from_##type(from[l]);                                                \
    EACH(BACK, )                                                                   \
    NEXT;                                                                          \
  }                                                                                \
  STEP(store_##type) {                                                             \
    const T *from = (const T *)f->passed;                                          \
    uint16_t *to = AT(uint16_t, x);                                                \
    EACH(OUT, )                                                                    \
    _Pragma("omp simd") for (word l = 0; l < COUNT * LANES; l++)                   \
      to[l] = to_##type(from[l]);                                                  \
    NEXT;                                                                          \
  }
HALVES(float16)
HALVES(bfloat16)

#undef STEP
#undef NEXT
#undef AT
#undef NEXT_BLOCK
#undef NOTHING
#undef READ_a
#undef READ_m
#undef READ_n
#undef READ_b
#undef OF_b
#undef FROM_b
#undef HOLD
#undef SPILL
#undef KEEP
#undef STORE_KEPT
#undef OF_a
#undef OF_m
#undef OF_n
#undef NAMES
#undef APPLIED
#undef LOAD
#undef SPLAT
#undef STORE
#undef APPLY1
#undef APPLY1_OF
#undef APPLY2
#undef APPLY2_OF
#undef APPLY3
#undef APPLY3_OF
#undef APPLY4
#undef APPLY4_OF
#undef OUT
#undef BACK
#undef CALL
#undef HALVES
#undef EACH
#undef ARGUMENTS
#undef PASSED
#undef NAME
#undef COUNT
#undef RUN
