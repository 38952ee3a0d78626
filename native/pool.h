/* The pool of threads that compiled code shares.

   A region is a list of items; an item is a function of (argument, part, parts). The thread that
   calls runs the list, and idle threads of the pool help it: whoever is free takes the next part,
   each thread first those of its own share, so that data stay in its cache. It takes one of another
   share only when that thread seems late: what it reads and writes there lies in the other's cache,
   and so it is again for the lists that follow. Beyond that the caller waits for nobody who has no
   part in hand. A thread that is late, as another process has its core, costs nothing then.

   A helper that the machine stops inside a part makes the caller wait, and one that wakes on the
   caller's core takes it away. Where that happens regions run on the calling thread alone for a
   while, which doubles each time that a millisecond is lost, up to a second. It ends before, where
   the system says that cores are idle: a look every few milliseconds costs nothing, while a region
   with helpers beside a core that is taken would cost what it has just cost.

   Between regions a thread looks for work for OPSCOPE_SPIN microseconds, and then sleeps. It is not
   woken for less than that gains: for one long list, or for short ones that follow each other so
   closely that it would have stayed awake, once these come to as much. The parts of an item do not
   depend on who computes them, and so no result does. */
#pragma once
#include "base.h"
#include "team_arguments.h"
#include <time.h>
#if (defined(__unix__) || defined(__APPLE__)) && !defined(__wasm__)
#define THREADS 1
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#endif
#ifdef __linux__
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

typedef void (*function)(const void *argument, word t, word n);

/* the most threads, and how many are in use (framework/base/cpu/threads.py); 0: one thread */
VISIBLE int64_t *opscope_pool = 0;
/* nanoseconds that an idle thread waits awake */
VISIBLE int64_t *opscope_spin = 0;

/* up to so many threads for a region, of those that are left, one in any case; give_threads takes
   them back */
static inline word take_threads(word wanted) {
  word used = __atomic_load_n(&opscope_pool[1], __ATOMIC_RELAXED), left;
  do {
    left = opscope_pool[0] - used;
    left = left < 1 ? 1 : left < wanted ? left : wanted;
  } while (!__atomic_compare_exchange_n(&opscope_pool[1], &used, used + left, 1, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED));
  return left;
}

static inline void give_threads(word count) {
  if (count) __atomic_fetch_sub(&opscope_pool[1], count, __ATOMIC_RELAXED);
}

static inline void run_part(const struct item *one, word t, word n) {
  ((function)one->function)(one->argument, t, n);
}

/* Arguments of a long list lie wherever there was room, and are out of the cache when their turn
   comes: an item of few numbers waited longer for its argument than it computed. */
enum { SOON = 2, LINES = 3, LINE = 64 };  /* items; cache lines of most arguments */
INLINE void expect(const struct list *list, word at) {
  if (at + SOON >= list->count) return;
  const char *argument = (const char *)list->items[at + SOON].argument;
  for (int line = 0; line < LINES; line++) __builtin_prefetch(argument + line * LINE);
}

static void run_alone(const struct list *list) {
  for (word i = 0; i < list->count; i++) {
    expect(list, i);
    run_part(list->items + i, 0, 1);
  }
}

#ifndef THREADS
EXPORT(opscope_region)(const struct list *list) { run_alone(list); }
EXPORT(opscope_forget_pool)(const void *nothing) {}
#else
enum { MOST = 128, REGIONS = 16 };
enum { LATE = 80000, LONG = 1000000, FIRST = 20000000, LONGEST = 1000000000 };  /* ns */
/* ns: two short lists that are late so far apart tell of a neighbor, unless there is none. Nearer
   ones have one reason, and a lone one is a tick of the system. */
enum { APART_LEAST = 1000000, APART_MOST = 100000000 };
enum { GOOD = 50 };  /* regions */
enum { PATIENCE = 50000 };  /* ns: for late threads, before their parts are taken */
/* ns: from one look at the machine to the next; for how long helpers must be in time after one that
   found idle cores. If they are not, the next looks are farther apart. */
enum { LOOK = 4000000, RIGHT = 20000000 };
/* Work of a list from which a sleeping thread is woken: some 100 us. Waking one costs the caller 25
   us, and it comes 25 later. Lists that follow each other at once count together. */
enum { WAKE_WORK = 4000000 };
enum { WORK_RATE = 40 };  /* work done in a nanosecond; see PARALLEL_WORK */
#define READ(x) __atomic_load_n(&(x), __ATOMIC_SEQ_CST)
#define WRITE(x, value) __atomic_store_n(&(x), value, __ATOMIC_SEQ_CST)
#define ADD(x, value) __atomic_fetch_add(&(x), value, __ATOMIC_SEQ_CST)
#define SWAP(x, was, to) \
  __atomic_compare_exchange_n(&(x), &(was), to, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)
#define APART __attribute__((aligned(64)))

/* refs: who may still look at it; 0: free. shares: parts that are one thread's. done: parts, of all
   items. claims: for each part, how many items' have been taken. brief: whether a thread would not
   be woken for it. */
struct region {
  APART word refs;
  const struct list *list;
  uint32_t count, parts, shares, brief;
  APART uint32_t done;
  uint32_t waiting;
  struct { APART uint32_t taken; } claims[MOST];
};
/* home: the part that it begins with. Between the taking of a job and its reading another caller,
   who comes too late with a region of other parts, may have written it: it says which share comes
   first, and nothing that a result depends on. */
struct worker {
  APART struct region *job;
  uint32_t home, signal, asleep;
};
static struct region regions[REGIONS];
static struct worker workers[MOST];
static uint32_t hired, hiring;
static int64_t quiet_until, quiet_for = FIRST, late_at;
static int64_t look_at, look_every = LOOK, resumed_at = -RIGHT;
static int64_t alone, alone_until;
static uint32_t good;

static int64_t now(void) {
  struct timespec s;
  clock_gettime(CLOCK_MONOTONIC, &s);
  return s.tv_sec * INT64_C(1000000000) + s.tv_nsec;
}

static inline void pause_briefly(void) {
  for (int i = 0; i < 8; i++) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
  }
}

#ifdef __linux__
static void sleep_on(uint32_t *at, uint32_t value) {
  syscall(SYS_futex, at, FUTEX_WAIT_PRIVATE, value, 0, 0, 0);
}
static void wake(uint32_t *at) { syscall(SYS_futex, at, FUTEX_WAKE_PRIVATE, MOST, 0, 0, 0); }
#else
static pthread_mutex_t bed = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t bell = PTHREAD_COND_INITIALIZER;
static void sleep_on(uint32_t *at, uint32_t value) {
  pthread_mutex_lock(&bed);
  if (READ(*at) == value) pthread_cond_wait(&bell, &bed);
  pthread_mutex_unlock(&bed);
}
static void wake(uint32_t *at) {
  pthread_mutex_lock(&bed);
  pthread_cond_broadcast(&bell);
  pthread_mutex_unlock(&bed);
}
#endif

/* waits until `done` is at least `target`; returns for how long, or 0 where that was short */
static int64_t await(struct region *r, uint32_t target) {
  for (int i = 0; i < 16; i++) {
    if (READ(r->done) >= target) return 0;
    pause_briefly();
  }
  const int64_t begun = now(), end = begun + opscope_spin[0];
  while (READ(r->done) < target) {
    pause_briefly();
    if (now() < end) continue;
    ADD(r->waiting, 1);
    const uint32_t seen = READ(r->done);
    if (seen < target) sleep_on(&r->done, seen);
    ADD(r->waiting, -1);
  }
  return now() - begun;
}

/* Waits a little for the threads whose parts are left: as long as one of its own took, `own` of
   them since `begun`. On a Zen 4 a part that copies 256 KB takes 10 us on the core that wrote them,
   150 on the other one. */
static void spare(struct region *r, uint32_t target, int64_t begun, uint32_t own) {
  const int64_t end = now(), part = (end - begun) / own;
  while (READ(r->done) < target && now() - end < (part < PATIENCE ? part : PATIENCE))
    pause_briefly();
}

/* takes parts until all are done, first those of the share that `from` lies in, whatever that is;
   returns how long it waited for others */
static int64_t take_part(struct region *r, uint32_t from) {
  const uint32_t parts = r->parts, all = r->count * parts, shares = r->shares;
  const uint32_t home = from % parts / shares * shares;
  int64_t waited = 0;
  for (uint32_t done; (done = READ(r->done)) < all;) {
    const uint32_t at = done / parts;
    const int64_t begun = shares > 1 ? now() : 0;
    uint32_t own = 0;
    for (uint32_t k = 0; k < parts; k++) {
      /* of others the last first: they take their first ones */
      const uint32_t t = k < shares ? home + k : (home + parts - 1 - (k - shares)) % parts;
      uint32_t was = at;
      if (k == shares && shares > 1 && own) spare(r, (at + 1) * parts, begun, own);
      if (READ(r->claims[t].taken) != at || !SWAP(r->claims[t].taken, was, at + 1)) continue;
      expect(r->list, at);
      run_part(r->list->items + at, t, parts);
      own += k < shares;
      ADD(r->done, 1);
      if (READ(r->waiting)) wake(&r->done);
    }
    waited += await(r, (at + 1) * parts);
  }
  return waited;
}

static struct region *next_job(struct worker *me) {
  for (;;) {
    const int64_t end = now() + opscope_spin[0];
    do {
      if (READ(me->job)) return __atomic_exchange_n(&me->job, 0, __ATOMIC_SEQ_CST);
      pause_briefly();
    } while (now() < end);
    const uint32_t seen = READ(me->signal);
    WRITE(me->asleep, 1);
    if (!READ(me->job)) sleep_on(&me->signal, seen);
    WRITE(me->asleep, 0);
  }
}

#ifdef __linux__
/* threads of the whole machine that run or want to, the caller among them; 0: not known */
static long runnable(void) {
  char text[96];
  const int file = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t size = read(file, text, sizeof text - 1);
  close(file);
  text[size > 0 ? size : 0] = 0;
  const char *at = text;  /* the fourth word is "runnable/all" */
  for (int spaces = 0; *at && spaces < 3; at++) spaces += *at == ' ';
  return strtol(at, 0, 10);
}
/* whether the caller and its helpers could each have a core */
static int cores_are_idle(void) {
  const long count = runnable();
  word wanted = count - 1 + opscope_pool[0];
  for (uint32_t w = 0; w < READ(hired); w++) wanted -= !READ(workers[w].asleep);
  return count > 0 && wanted <= sysconf(_SC_NPROCESSORS_ONLN);
}
#else
static int cores_are_idle(void) { return 0; }
#endif

/* whether regions shall run alone since helpers were late */
static int is_quiet(int64_t at) {
  if (at >= READ(quiet_until)) return 0;
  int64_t look = READ(look_at);
  if (at < look || !SWAP(look_at, look, at + READ(look_every)) || !cores_are_idle()) return 1;
  WRITE(resumed_at, at);
  WRITE(quiet_until, at);
  return 0;
}

static void begin_quiet(int64_t at, int64_t duration) {
  int64_t next = READ(look_every);
  if (at - READ(resumed_at) < RIGHT)
    next = next < LONGEST / 2 ? 2 * next : LONGEST;
  else if (at - READ(quiet_until) >= RIGHT)
    next = LOOK;
  WRITE(look_every, next);
  WRITE(look_at, at + next);
  WRITE(quiet_until, at + duration);
}

/* helpers kept the caller waiting, or took its core when they woke, as long as no fair share of the
   work takes */
static void judge(int64_t lost, int64_t whole, int brief) {
  if (lost > (brief ? LATE : LONG) && lost > (whole - lost) / 2) {
    const int64_t at = now(), since = at - READ(late_at);
    if (lost <= LONG && since < APART_LEAST) return;
    WRITE(late_at, at);
    if (lost <= LONG && (since > APART_MOST || cores_are_idle())) return;
    begin_quiet(at, lost > LONG ? quiet_for : FIRST);
    if (lost <= LONG) return;
    WRITE(quiet_for, quiet_for < LONGEST / 2 ? 2 * quiet_for : LONGEST);
    WRITE(good, 0);
  } else if (ADD(good, 1) == GOOD) {
    WRITE(quiet_for, FIRST);
  }
}

static void *serve(void *worker) {
  struct worker *me = worker;
  for (;;) {
    struct region *r = next_job(me);
    if (!r) continue;
    const int64_t begun = now(), waited = take_part(r, READ(me->home));
    if (r->brief) judge(waited, now() - begun, 1);  /* the caller may have lost its core to this */
    ADD(r->refs, -1);
  }
  return 0;
}

/* so many workers, or as many as the system grants */
static void hire(uint32_t wanted) {
  uint32_t was = 0;
  if (READ(hired) >= wanted || !SWAP(hiring, was, 1)) return;
  sigset_t all, before;
  pthread_attr_t how;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  /* signals are for the threads of the program */
  pthread_attr_init(&how);
  pthread_attr_setdetachstate(&how, PTHREAD_CREATE_DETACHED);
  for (pthread_t made; hired < wanted; ADD(hired, 1))
    if (pthread_create(&made, &how, serve, &workers[hired])) break;
  pthread_attr_destroy(&how);
  pthread_sigmask(SIG_SETMASK, &before, 0);
  WRITE(hiring, 0);
}

/* whether a sleeping thread is worth its waking: for this list, or for what came right before it,
   which was done alone */
static int worth_waking(word work, int64_t at) {
  const int64_t sum = work + (at < READ(alone_until) ? READ(alone) : 0);
  const int wakes = sum >= WAKE_WORK;
  WRITE(alone, wakes ? 0 : sum);
  WRITE(alone_until, at + work / WORK_RATE + opscope_spin[0]);
  return wakes;
}

/* threads that a list is worth */
static word worth(word work) {
  const word most = opscope_pool ? opscope_pool[0] : 1;
  if (most < 2 || work < PARALLEL_WORK) return 1;
  const int64_t at = now();
  if (is_quiet(at)) return 1;
  if (READ(hired) && READ(workers[0].asleep) && !worth_waking(work, at)) return 1;
  const word useful = 1 + work / PARALLEL_WORK;
  return most < useful ? most < MOST ? most : MOST : useful;
}

static struct region *free_region(void) {
  for (int i = 0; i < REGIONS; i++) {
    word was = 0;
    if (!READ(regions[i].refs) && SWAP(regions[i].refs, was, 1)) return &regions[i];
  }
  return 0;
}

static void run_shared(const struct list *list, word threads) {
  struct region *r = free_region();
  if (!r) {
    run_alone(list);
    return;
  }
  const int long_items = list->count == 1 || list->work >= WAKE_WORK * list->count;
  const uint32_t shares = long_items && SHARES * threads <= MOST ? SHARES : 1;
  struct worker *helpers[MOST];
  uint32_t asked = 0;
  r->list = list, r->count = list->count, r->parts = shares * threads, r->shares = shares;
  r->brief = list->work < WAKE_WORK;
  WRITE(r->waiting, 0);
  for (uint32_t t = 0; t < r->parts; t++) WRITE(r->claims[t].taken, 0);
  WRITE(r->done, 0);
  hire(threads - 1);
  const int64_t begun = now();
  for (uint32_t w = 0; w < READ(hired) && asked < threads - 1; w++) {
    struct region *was = 0;
    if (READ(workers[w].job)) continue;
    ADD(r->refs, 1);
    WRITE(workers[w].home, (asked + 1) * shares);
    if (!SWAP(workers[w].job, was, r)) {
      ADD(r->refs, -1);
      continue;
    }
    helpers[asked++] = &workers[w];
    if (READ(workers[w].asleep)) {
      ADD(workers[w].signal, 1);
      wake(&workers[w].signal);
    }
  }
  const int64_t asking = now() - begun, waited = take_part(r, 0);
  for (uint32_t i = 0; i < asked; i++) {
    struct region *was = r;
    if (SWAP(helpers[i]->job, was, 0)) ADD(r->refs, -1);
  }
  judge(asking + waited, now() - begun, r->brief);
  ADD(r->refs, -1);
}

EXPORT(opscope_region)(const struct list *list) {
  const word wanted = worth(list->work), threads = wanted > 1 ? take_threads(wanted) : 0;
  if (threads > 1)
    run_shared(list, threads);
  else
    run_alone(list);
  give_threads(threads);
}

/* for the child of a fork, which has none of the threads */
EXPORT(opscope_forget_pool)(const void *nothing) {
  memset(regions, 0, sizeof regions);
  memset(workers, 0, sizeof workers);
  hired = hiring = good = 0, quiet_until = late_at = alone = alone_until = 0, quiet_for = FIRST;
  look_at = 0, look_every = LOOK, resumed_at = -RIGHT;
}
#endif
