"""A team of threads runs a list of C functions, with one call from Python for the whole list.

The loop of a recurrent net is hundreds of short calls: products, fused loops, copies. One by one,
each costs a call from Python, and those that use threads wake and join them every time. Kernels
whose work a C function does attach a `Share` to their callable; `merge` makes one callable of
neighbouring ones, in which every thread does its share of an item and waits for the others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from . import compiler
from .codegen import PARALLEL_WORK

_SOURCE = """\
#include <stdint.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif
typedef int64_t word;
typedef void (*item)(const word *b, word t, word n);
typedef void (*four)(void *, void *, void *, void *);

/* number of items, then function and argument of each */
static void run(const word *b, word t, word n) {
  for (word i = 0; i < b[0]; i++) {
    ((item)b[2 * i + 1])((const word *)b[2 * i + 2], t, n);
#ifdef _OPENMP
    if (n > 1) {
#pragma omp barrier
    }
#endif
  }
}

EXPORT void opscope_alone(const word *b) { run(b, 0, 1); }

EXPORT void opscope_team(const word *b) {
#ifdef _OPENMP
  if (!opscope_serial && omp_get_max_threads() > 1) {
#pragma omp parallel
    run(b, omp_get_thread_num(), omp_get_num_threads());
    return;
  }
#endif
  run(b, 0, 1);
}

/* rows, bytes of one; then address, step in bytes and index (or 0) of the target and the source */
EXPORT void opscope_copy(const word *b, word t, word n) {
  const word *to = (const word *)b[4], *from = (const word *)b[7];
  for (word i = b[0] * t / n; i < b[0] * (t + 1) / n; i++)
    memcpy((char *)b[2] + (to ? to[i] : i) * b[3], (const char *)b[5] + (from ? from[i] : i) * b[6],
           b[1]);
}

/* number of parts; for each a function and its four addresses, and what comes before: a row that
   is copied into the last of them, or 0, how often, its bytes, the step of the target in bytes */
EXPORT void opscope_parts(const word *b, word t, word n) {
  for (word i = b[0] * t / n; i < b[0] * (t + 1) / n; i++) {
    const word *p = b + 1 + 9 * i;
    for (word row = 0; p[5] && row < p[6]; row++)
      memcpy((char *)p[4] + row * p[8], (const char *)p[5], p[7]);
    ((four)p[0])((void *)p[1], (void *)p[2], (void *)p[3], (void *)p[4]);
  }
}
"""

ITEM_WORK = 100_000
"""Work that the items of a list must have on average to be worth threads, which wait for each
other after each of them."""

_COPY_WORK = 8
"""Work of copying one row, beside a quarter for each byte."""


@dataclass(frozen=True)
class Share:
    """What a callable does, for a team: (C function, address of its argument) one after another.

    Attributes:
        work: rough work, as in codegen.py. memory: what the addresses point to.
    """

    items: tuple[tuple[int, int], ...]
    work: int
    memory: Any


@functools.cache
def library() -> Any:
    """The compiled functions; None where there is no C compiler."""
    return load(_SOURCE)


def load(source: str) -> Any:
    """The library of C functions that threads may share; None where it cannot be compiled."""
    return compiler.library(source) if compiler.available() else None


@functools.cache
def function(name: str) -> int:
    """Address of one of the functions of the library."""
    return library().address(name)


def shared(call: Callable[[], Any], share: Share | None) -> Callable[[], Any]:
    """`call`, which can be run by a team as well."""
    if share is not None:
        if not isinstance(call, partial):
            call = partial(call)
        call.share = share
    return call


def share_of(call: Callable[[], Any]) -> Share | None:
    """How a team runs it, where it can."""
    return getattr(call, "share", None)


def merge(calls: Sequence[Callable[[], Any]]) -> list[Callable[[], Any]]:
    """The calls, with neighbours that a team can run made one."""
    merged: list[Callable[[], Any]] = []
    neighbours: list[Share] = []
    for call in calls:
        share = share_of(call)
        if share is not None:
            neighbours.append(share)
            continue
        if neighbours:
            merged.append(run_together(neighbours))
            neighbours = []
        merged.append(call)
    if neighbours:
        merged.append(run_together(neighbours))
    return merged


def run_together(shares: Sequence[Share]) -> Callable[[], Any]:
    """One call that runs them in this order."""
    items = [item for share in shares for item in share.items]
    work = sum(share.work for share in shares)
    words = np.array([len(items), *(word for item in items for word in item)], np.int64)
    threads = work >= PARALLEL_WORK and work >= len(items) * ITEM_WORK
    run = _runner("opscope_team" if threads else "opscope_alone")
    call = partial(run, words.ctypes.data)
    call.share = Share(tuple(items), work, (words, [share.memory for share in shares]))
    return call


@functools.cache
def _runner(name: str) -> Any:
    return library().function(name)


def copying(
    target: Any, source: Any, target_rows: Any = None, source_rows: Any = None
) -> Share | None:
    """target[target_rows] = source[source_rows]; without rows all of them.

    None where the arrays do not suit: other dtypes, rows whose elements do not lie side by side.
    """
    arrays = target, source
    if library() is None or any(
        type(array) is not np.ndarray or not array.ndim for array in arrays
    ):
        return None
    if target.dtype != source.dtype or target.shape[1:] != source.shape[1:]:
        return None
    words = []
    memory: list[Any] = [target, source]
    for array, rows in ((target, target_rows), (source, source_rows)):
        if not array[:1].flags.c_contiguous:
            return None
        index = None if rows is None else np.ascontiguousarray(rows, np.int64)
        memory.append(index)
        words += [array.ctypes.data, array.strides[0], 0 if index is None else index.ctypes.data]
    count = len(target) if target_rows is None else len(target_rows)
    size = target.dtype.itemsize * int(np.prod(target.shape[1:], dtype=np.int64))
    argument = np.array([count, size, *words], np.int64)
    work = count * (_COPY_WORK + size // 4)
    return Share(((function("opscope_copy"), argument.ctypes.data),), work, (argument, memory))


def filling(target: Any, value: float) -> Share | None:
    """target = value; None where the array does not suit."""
    if type(target) is not np.ndarray or not target.ndim:
        return None
    row = np.full((1, *target.shape[1:]), value, target.dtype)
    return copying(target, row, None, np.zeros(len(target), np.int64))


@dataclass(frozen=True)
class Part:
    """Part of an operator's work: a C function of four addresses, `bias` copied to each row of the
    target before."""

    function: int
    addresses: tuple[int, ...]
    target: Any = None
    bias: Any = None


def parts_share(parts: Sequence[Part], work: int, memory: Any) -> Share | None:
    """Parts that may run side by side."""
    if library() is None:
        return None
    words = [len(parts)]
    for part in parts:
        words += [part.function, *part.addresses]
        if part.bias is None:
            words += [0, 0, 0, 0]
        else:
            words += [part.bias.ctypes.data, len(part.target), part.bias.nbytes]
            words.append(part.target.strides[0])
    argument = np.array(words, np.int64)
    item = (function("opscope_parts"), argument.ctypes.data)
    return Share((item,), work, (argument, list(parts), memory))


def aligned(size: int) -> Any:
    """So many bytes of memory that begin with a cache line."""
    whole = np.empty(size + 64, np.uint8)
    start = -whole.ctypes.data % 64
    return whole[start : start + size]


class Prepared:
    """What is made before a loop runs of arrays that stay the same while it does."""

    def __init__(self) -> None:
        self._constant: dict[int, Any] = {}
        self._made: dict[Any, tuple[Any, Share]] = {}
        self._buffer: Any = None

    def declare(self, arrays: Iterable[Any]) -> None:
        """Nothing writes to these arrays while the loop runs."""
        for array in arrays:
            if type(array) is np.ndarray and array.size:
                self._constant[array.ctypes.data] = array  # so that no other one takes its place

    def holds(self, array: Any) -> bool:
        """Whether an array is one of them, or begins where one of them does."""
        return type(array) is np.ndarray and array.ctypes.data in self._constant

    def get(self, key: Any, make: Callable[[], tuple[Any, Share]]) -> Any:
        """Memory that `make` gives together with what fills it; the same for equal keys."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key][0]

    def buffer(self, size: int) -> Any:
        """Memory for use within one call; its contents do not last."""
        if self._buffer is None or self._buffer.nbytes < size:
            self._buffer = aligned(size)
        return self._buffer

    def calls(self) -> list[Callable[[], Any]]:
        """What has to run before the loop."""
        return [run_together([share]) for _, share in self._made.values()]
