/* Lists of functions that a team of threads runs together: framework/fusion/team.py. There is one
   pool of threads and one count of lists in a process, so this file is there once. */
#include "pool.h"
#include "processor.h"

typedef void (*four)(void *, void *, void *, void *);

/* Functions that read and set the number of threads of a BLAS; 0: none. While a list runs, or a net
   whose products are left to NumPy, it has one: lists have their own, and results must not follow
   what else runs. */
static void *blas[2] = {0, 0};
VISIBLE int64_t opscope_lists[2] = {0, 0};  /* whether somebody is counting; what runs of these */
static int before;  /* what it had before, and gets back; 0: it is as it was */

static int get_blas(void) { return ((int (*)(void))blas[0])(); }
static void set_blas(int number) { ((void (*)(int))blas[1])(number); }

static void begin(void) {
  while (__atomic_test_and_set(opscope_lists, __ATOMIC_ACQUIRE)) {}
}

static void end(void) { __atomic_clear(opscope_lists, __ATOMIC_RELEASE); }

static void lower(void) {
  if (blas[0] && (before = get_blas()) > 1) set_blas(1);
}

EXPORT(opscope_enter)(const word *b) {
  begin();
  if (!opscope_lists[1]++) lower();
  end();
}

EXPORT(opscope_leave)(const word *b) {
  begin();
  if (opscope_lists[1] && !--opscope_lists[1]) {
    if (before > 1) set_blas(before);
    before = 0;
  }
  end();
}

/* for the child of a fork, where nothing runs */
EXPORT(opscope_forget)(const word *b) {
  opscope_lists[0] = opscope_lists[1] = before = 0;
}

/* the two functions of the BLAS */
EXPORT(opscope_use_blas)(const word *b) {
  begin();
  if (!blas[0]) {
    blas[0] = (void *)b[0], blas[1] = (void *)b[1];
    if (opscope_lists[1]) lower();
  }
  end();
}

/* how many threads the BLAS shall have while nothing runs, or 0: it says how many it has then */
EXPORT(opscope_blas_threads)(word *b) {
  begin();
  if (b[0] && before)
    before = b[0];
  else if (b[0])
    set_blas(b[0]);
  else
    b[0] = before ? before : get_blas();
  end();
}

/* a list of pool.h with the work of all after it */
EXPORT(opscope_alone)(const word *b) {
  opscope_enter(b);
  run_alone(b);
  opscope_leave(b);
}

EXPORT(opscope_team)(const word *b) {
  opscope_enter(b);
  opscope_region(b, b[2 * b[0] + 1]);
  opscope_leave(b);
}

/* rows, bytes of one; then address, step in bytes and index (or 0) of the target and the source */
EXPORT(opscope_copy)(const word *b, word t, word n) {
  const word *to = (const word *)b[4], *from = (const word *)b[7];
  for (word i = b[0] * t / n; i < b[0] * (t + 1) / n; i++)
    memcpy((char *)b[2] + (to ? to[i] : i) * b[3], (const char *)b[5] + (from ? from[i] : i) * b[6],
           b[1]);
}

/* number of parts; for each a function and its four addresses, and what comes before: a row that
   is copied into the last of them, or 0, how often, its bytes, the step of the target in bytes */
EXPORT(opscope_parts)(const word *b, word t, word n) {
  for (word i = b[0] * t / n; i < b[0] * (t + 1) / n; i++) {
    const word *p = b + 1 + 9 * i;
    for (word row = 0; p[5] && row < p[6]; row++)
      memcpy((char *)p[4] + row * p[8], (const char *)p[5], p[7]);
    ((four)p[0])((void *)p[1], (void *)p[2], (void *)p[3], (void *)p[4]);
  }
}

/* blocks and number of items, then function and argument of each */
EXPORT(opscope_blocks)(const word *b, word t, word n) {
  for (word c = b[0] * t / n; c < b[0] * (t + 1) / n; c++)
    for (word i = 0; i < b[1]; i++)
      ((item)b[2 + 2 * i])((const word *)b[3 + 2 * i], c, b[0]);
}
