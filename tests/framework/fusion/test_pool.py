"""The pool of threads: every part once and in order, for many callers, after a fork, beside late
helpers."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opscope.framework.base.cpu import threads
from opscope.framework.base.errors import OpscopeError
from opscope.framework.fusion import team
from opscope.framework.fusion.compiled.compiler import _library
from opscope.framework.fusion.compiled.libraries import Library, find_compiler
from opscope.native import units
from opscope.native.constants import PARALLEL_WORK, macros

pytestmark = pytest.mark.skipif(find_compiler("") is None, reason="there is no C compiler")

_SOURCE = """\
#include <stdint.h>
#include <time.h>
#define EXPORT __attribute__((visibility("default")))
typedef int64_t word;
/* where to count; number of this run, counters of the item before or 0, nanoseconds to take */
EXPORT void note(const word *b, word t, word n) {
  word *counts = (word *)b[0], *before = (word *)b[2];
  __atomic_fetch_add(&counts[t], 1, __ATOMIC_RELAXED);
  __atomic_store_n(&counts[202 + t], b[1], __ATOMIC_RELAXED);
  for (word i = 0; before && i < n; i++)  /* all parts of the item before are done in this run */
    if (__atomic_load_n(&before[202 + i], __ATOMIC_RELAXED) != b[1]) counts[200] = 1;
  if (t == n - 1 && n > 1 && b[3]) nanosleep(&(struct timespec){0, b[3]}, 0);
  /* the caller's first part lasts until a helper, not the caller, has the part that takes long */
  for (int i = 0; t == 0 && n > 1 && b[3] && i < 20000; i++) {
    if (__atomic_load_n(&counts[202 + n - 1], __ATOMIC_RELAXED) == b[1]) break;
    nanosleep(&(struct timespec){0, 50000}, 0);
  }
  counts[201] = n;
}
"""
_BROKEN, _PARTS, _WORDS = 200, 201, 402
_FOUND = re.search(r"WAKE_WORK = (\d+)", units.text("team"))
assert _FOUND is not None
WAKE_WORK = int(_FOUND[1])
MUCH = 100 * WAKE_WORK


@pytest.fixture(params=[2, 3])
def several(request: Any, monkeypatch: Any) -> Iterator[int]:
    """So many threads, whatever the machine has; nothing that was late counts any more."""
    monkeypatch.setattr(threads, "usable_cores", lambda: 8)
    with threads.threads_set(request.param):
        forget()
        yield request.param


def forget() -> None:
    """Wait until regions may use threads again."""
    time.sleep(0.03)


@functools.cache
def note_library() -> Library:
    compiler = find_compiler("")
    assert compiler is not None
    return _library(compiler, _SOURCE)


class Counted:
    """A list of items that count their parts."""

    def __init__(self, items: int, nanoseconds: int = 0, work: int = MUCH) -> None:
        function = note_library().addresses["note"]
        self.counts = np.zeros((items, _WORDS), np.int64)
        self.runs = 0
        self.arguments = np.zeros((items, 4), np.int64)
        for number, words in enumerate(self.arguments):
            words[0] = self.counts[number].ctypes.data
            words[2] = self.counts[number - 1].ctypes.data if number else 0
            words[3] = nanoseconds
        found = tuple((function, words.ctypes.data) for words in self.arguments)
        self.call = team.ParallelTask(found, work, self)

    def run(self) -> None:
        self.runs += 1
        self.arguments[:, 1] = self.runs
        self.call()

    @property
    def parts(self) -> int:
        return int(self.counts[0, _PARTS])


def run_until_shared(counted: Counted, times: int = 1) -> None:
    """Run, so often at once, until threads share it: after late helpers that may take a second."""
    end = time.monotonic() + 120
    while counted.parts < 2:
        assert time.monotonic() < end, "no run used threads"
        time.sleep(0.01)
        for _ in range(times):
            counted.run()
            if counted.parts > 1:
                break


def check(counted: Counted) -> None:
    """Every run has done each part of each item once, after all of the item before."""
    assert not counted.counts[:, _BROKEN].any()
    done = counted.counts[:, :_BROKEN]
    assert (done.sum(axis=1) >= counted.runs).all()
    assert (done == done[0]).all()
    assert set(done[0]) <= {0, *range(1, counted.runs + 1)}
    assert done[0, 0] == counted.runs


@pytest.mark.parametrize("items", [1, 2, 7])
def test_every_part_runs_once_and_in_order(items: int, several: int) -> None:
    counted = Counted(items)
    run_until_shared(counted)
    assert counted.parts % several == 0
    for _ in range(300):
        counted.run()
    check(counted)


def test_little_work_runs_alone(several: int) -> None:
    counted = Counted(1, work=PARALLEL_WORK - 1)
    counted.run()
    assert counted.parts == 1


def test_sleeping_threads_are_woken_for_enough_work(several: int) -> None:
    counted = Counted(1, work=WAKE_WORK // 4)
    long = Counted(1, work=WAKE_WORK)
    run_until_shared(long)
    alone = 0
    for _ in range(5):
        time.sleep(0.05)  # the threads sleep
        counted.run()
        alone += counted.parts == 1
    assert alone, "a thread is woken for too little"
    time.sleep(0.05)
    run_until_shared(counted, 100)  # one after another they are enough
    check(counted)


def test_one_thread_runs_alone() -> None:
    with threads.threads_set(1):
        counted = Counted(3)
        counted.run()
    assert counted.parts == 1
    check(counted)


def test_several_callers_at_once(several: int) -> None:
    # Also of short items, whose parts are fewer: they are one each for a thread.
    works = MUCH, WAKE_WORK
    lists = [Counted(1 + number % 3, work=works[number % 2]) for number in range(5)]

    def work(counted: Counted) -> None:
        for _ in range(400):
            counted.run()

    callers = [threading.Thread(target=work, args=(counted,)) for counted in lists]
    for one in callers:
        one.start()
    for one in callers:
        one.join()
    for counted in lists:
        check(counted)
    assert threads.POOL[1] == 0


def test_late_helpers_are_left_out_for_a_while(several: int) -> None:
    late, prompt = Counted(1, nanoseconds=30_000_000), Counted(1)
    for _ in range(100):  # beside other work, more than this one helper may be late
        late.run()
        began = time.monotonic()
        prompt.run()
        if prompt.parts == 1:
            break
        forget()
    assert prompt.parts == 1, "a late helper is asked again at once"
    run_until_shared(prompt)
    assert time.monotonic() - began > 0.005
    check(prompt)


def test_a_fork_of_a_program_with_threads(several: int) -> None:
    counted = Counted(3)
    for _ in range(10):
        counted.run()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for _ in range(10):
                counted.run()
            check(counted)
            code = 0 if counted.parts == 1 else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    for _ in range(10):
        counted.run()
    check(counted)


@pytest.mark.parametrize("text", ["-1", "some", "1.5"])
def test_a_wrong_spin(text: str, monkeypatch: Any) -> None:
    monkeypatch.setenv("OPSCOPE_SPIN", text)
    with pytest.raises(OpscopeError, match=f"OPSCOPE_SPIN={text}: want a whole number from 0 on"):
        threads.set_threads(1)
    monkeypatch.delenv("OPSCOPE_SPIN")
    threads.set_threads(None)


@pytest.mark.parametrize("text", ["0", "5"])
def test_spins(text: str, several: int, monkeypatch: Any) -> None:
    monkeypatch.setenv("OPSCOPE_SPIN", text)
    with threads.threads_set(several):
        assert threads.SPIN.value == int(text) * 1000
        counted = Counted(5)
        for _ in range(50):
            counted.run()
    check(counted)


def test_idle_threads_sleep(several: int) -> None:
    """A pool that has nothing to do takes no time of the processor."""
    counted = Counted(2)
    for _ in range(20):
        counted.run()
    # New threads of OpenBLAS, which follows the number, wait awake for 2^26 cycles and more; on a
    # busy machine that takes long.
    begin = time.process_time()
    while True:
        before = time.process_time()
        time.sleep(0.2)
        if time.process_time() - before < 0.05:
            break
        assert before - begin < 2


# -- when helpers are left out, on a clock of the test's own ---------------------------------------

_POLICY = """\
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static int64_t time_now, tick;
static const char *loadavg;
static int told_time(int which, struct timespec *to) {
  time_now += tick;
  to->tv_sec = time_now / 1000000000, to->tv_nsec = time_now % 1000000000;
  return 0;
}
#define clock_gettime told_time
#define open(path, how) open(loadavg, how)
#define sysconf(name) 2L
#include "pool.h"
static int64_t threads_of_pool[2] = {2, 0}, spin = 0;
void begin(const char *file) {
  loadavg = strdup(file), opscope_pool = threads_of_pool, opscope_spin = &spin, time_now = 0;
  opscope_forget_pool(0);
}
int is_shared(int64_t at, int64_t work) { return time_now = at, worth(work) > 1; }
/* how long a thread waits, which took that long for `own` parts, with `done` of 8 done */
int64_t spared(int64_t took, int own, int done) {
  struct region *r = &regions[0];
  r->done = done, time_now = took, tick = 1000;
  spare(r, 8, 0, own);
  return tick = 0, time_now - took;
}
void end(int64_t at, int64_t lost, int64_t whole, int brief) {
  time_now = at, judge(lost, whole, brief);
}
static void note(const void *notes, word t, word n) {
  int64_t *to = (int64_t *)notes;
  to[++to[0]] = t;
}
/* the parts that a thread alone takes of two items, which begins with part `from`: how many, and
   these */
void walk(uint32_t from, uint32_t parts, uint32_t shares, int64_t *notes) {
  const struct item one = {.function = (void *)note, .argument = notes}, items[2] = {one, one};
  const struct list list = {.items = items, .count = 2};
  struct region *r = &regions[0];
  memset(r, 0, sizeof *r), notes[0] = 0;
  r->list = &list, r->count = 2, r->parts = parts, r->shares = shares;
  take_part(r, from);
}
"""
_MS = 1_000_000


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("policy")
    units.write_headers(folder)
    target = folder / "policy.so"
    given = ["-I", str(units.FOLDER), "-I", str(folder)]
    given += [f"-D{name}={text}" for name, text in macros().items()]
    command = [str(find_compiler("")), *given, *units.COMMON_FLAGS, "-shared", "-x", "c", "-"]
    subprocess.run([*command, "-o", target], input=_POLICY, text=True, check=True)
    found = ctypes.CDLL(str(target))
    found.is_shared.argtypes = (ctypes.c_int64,) * 2
    found.spared.argtypes = (ctypes.c_int64, ctypes.c_int, ctypes.c_int)
    found.spared.restype = ctypes.c_int64
    found.end.argtypes = (*(ctypes.c_int64,) * 3, ctypes.c_int)
    found.walk.argtypes = (*(ctypes.c_uint32,) * 3, ctypes.c_void_p)
    return found


class Simulated:
    """Regions of 2 ms with a helper and 4 ms without one, beside a neighbor; a helper is 6 ms late
    where the neighbor runs.

    Attributes:
        seconds: that `count` regions took. late: helpers. alone: regions without a helper while
            the neighbor did not run.
    """

    def __init__(
        self, policy: ctypes.CDLL, file: Path, busy: Callable[[int], bool], count: int = 1000
    ) -> None:
        policy.begin(str(file).encode())
        at = self.late = self.alone = 0
        for _ in range(count):
            runs = busy(at)
            if file.exists():
                file.write_text(f"0.50 0.40 0.30 {2 if runs else 1}/99 1234\n")
            if not policy.is_shared(at, MUCH):
                self.alone += not runs
                at += 4 * _MS
                continue
            lost = 6 * _MS if runs else 0
            self.late += runs
            at += 2 * _MS + lost
            policy.end(at, lost, 2 * _MS + lost, 0)
        self.seconds = at / 1e9


@pytest.mark.skipif(not os.path.exists("/proc/loadavg"), reason="the system does not tell its load")
@pytest.mark.parametrize("period, part", [(200, 0.1), (200, 0.5), (1000, 0.5), (50, 0.2)])
def test_helpers_are_back_soon_after_a_neighbor(
    policy: ctypes.CDLL, tmp_path: Path, period: int, part: float
) -> None:
    """The time is within a tenth of that of a pool that knows when the neighbor runs, and of what
    it costs to find that out each time."""
    file = tmp_path / "loadavg"
    file.touch()

    def busy(at: int) -> bool:
        return at % (period * _MS) < part * period * _MS

    found = Simulated(policy, file, busy)
    regions = 1000 / (found.seconds * 1000)  # in a millisecond
    best = part / 4 + (1 - part) / 2 - 12 / period / 4
    assert regions > 0.9 * best, (regions, best)
    assert found.alone <= 20
    assert found.late <= (5 if part * period > 100 else 1.5) * found.seconds * 1000 / period + 2


def test_a_neighbor_that_never_rests_costs_little(policy: ctypes.CDLL, tmp_path: Path) -> None:
    """Whether or not the system tells what runs."""
    for name in ("there", "missing"):
        if name == "there":
            (tmp_path / name).touch()
        found = Simulated(policy, tmp_path / name, lambda at: True)
        assert found.seconds < 1.05 * 4.0
        assert found.late < 15


def test_helpers_that_are_late_on_an_idle_machine(policy: ctypes.CDLL, tmp_path: Path) -> None:
    """As where a quota stops the process: looks that are wrong each time become rare."""
    file = tmp_path / "loadavg"
    file.write_text("0.00 0.00 0.00 1/99 1\n")
    policy.begin(str(file).encode())
    at = late = 0
    while at < 10_000 * _MS:
        if policy.is_shared(at, MUCH):
            late += 1
            at += 8 * _MS
            policy.end(at, 6 * _MS, 8 * _MS, 0)
        else:
            at += 4 * _MS
    assert late < 25


@pytest.mark.parametrize("others", [0, 1])
def test_short_lists_that_are_late(policy: ctypes.CDLL, tmp_path: Path, others: int) -> None:
    """Twice within 0.1 s they tell of a neighbor, but where the system says that none runs."""
    file = tmp_path / "loadavg"
    file.write_text(f"0.00 0.00 0.00 {1 + others}/99 1\n")
    policy.begin(str(file).encode())
    for at in (200 * _MS, 210 * _MS):
        assert policy.is_shared(at, MUCH)
        policy.end(at, 200_000, 250_000, 1)
    assert policy.is_shared(211 * _MS, MUCH) == (not others)


def test_threads_are_waited_for_before_their_parts_are_taken(policy: ctypes.CDLL) -> None:
    """For as long as a part takes, or 50 us; not at all where they have done theirs."""
    ticks = 4000
    assert 20_000 <= policy.spared(80_000, 4, 4) <= 20_000 + ticks
    assert 50_000 <= policy.spared(4_000_000, 4, 4) <= 50_000 + ticks
    assert policy.spared(80_000, 4, 8) <= ticks


@pytest.mark.parametrize("parts, shares", [(2, 1), (3, 1), (8, 4), (12, 4), (128, 4), (128, 1)])
def test_a_thread_takes_every_part_once_wherever_it_begins(
    policy: ctypes.CDLL, tmp_path: Path, parts: int, shares: int
) -> None:
    """Another caller may have written for another region where it begins."""
    policy.begin(str(tmp_path / "loadavg").encode())
    for start in [*range(2 * parts), 2**32 - 1]:
        notes = np.zeros(1 + 2 * parts, np.int64)
        policy.walk(start, parts, shares, notes.ctypes.data)
        assert notes[0] == 2 * parts
        own = start % parts // shares * shares
        for taken in notes[1:].reshape(2, parts).tolist():
            assert sorted(taken) == list(range(parts)), (start, taken)
            assert taken[:shares] == list(range(own, own + shares))
