"""Row blocks: products, loops and copies of equally many rows, a block of rows after another.

What reads row r of what came before, and nothing else of it, may take a block of rows as soon as
that block is there: it is still in the cache. A product's result is rectified, scaled and added
to others without going to memory and back; the rows that threads take need no waiting in between.

A function that does its part t of n of something with R rows, `R * t / n` to `R * (t + 1) / n`, is
called with the numbers of a block instead of a thread's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...base.cpu.threads import most_threads
from ..compiled.arguments import Block, Several, bind
from ..compiled.libraries import Library

_BYTES = 1 << 20
"""Bytes of a block's rows: some of the second cache is left for the factors of products."""
_FEWEST, _MOST = 192, 384
"""Rows of a block: fewer make packed factors be read too often, more leave the cache."""
_TILE = 8
"""Rows that products like best: where it can be, a block has a multiple of them."""
MOST_ITEMS = 24
"""Pieces of work that a block goes through at most."""


class Span(NamedTuple):
    """Memory that is touched row by row: `width` bytes every `step`; all of it where `step` is 0.

    With a step of 0 any row may touch any of its bytes.
    """

    start: int
    step: int
    width: int


@dataclass(frozen=True)
class ByRows:
    """Work that may be done a block of rows after another.

    Attributes:
        rows: how many there are.
        items: functions that do a part, with their arguments.
        before: items that run once before, and read `given`; they write to `panels`, which nothing
            reads but `items`.
        reads, writes: what the items touch.
        memory: owners of all addresses.
    """

    rows: int
    items: tuple[tuple[int, int], ...]
    reads: tuple[Span, ...]
    writes: tuple[Span, ...]
    memory: Any
    before: tuple[tuple[int, int], ...] = ()
    given: tuple[Span, ...] = ()
    panels: tuple[Span, ...] = ()


def span(array: Any) -> Span | None:
    """The rows of a matrix; None where their elements do not lie side by side."""
    if array.ndim != 2 or array.strides[0] < 0:
        return None
    rows, columns = array.shape
    if columns > 1 and array.strides[1] != array.itemsize:
        return None
    # NumPy gives the stride of an axis of length 1 any value.
    step = array.strides[0] if rows > 1 else max(array.strides[0], columns * array.itemsize)
    return Span(array.ctypes.data, step, columns * array.itemsize)


def whole(array: Any) -> Span:
    """All memory of an array, for what reads it in any order."""
    first = last = array.ctypes.data
    for size, step in zip(array.shape, array.strides, strict=True):
        if step < 0:
            first += (size - 1) * step
        else:
            last += (size - 1) * step
    return Span(first, 0, last + array.itemsize - first)


def join(parts: Sequence[ByRows]) -> ByRows | None:
    """The parts as one, in this order; None where a block of one may not precede the rest."""
    rows = parts[0].rows
    items = tuple(item for part in parts for item in part.items)
    if any(part.rows != rows for part in parts) or len(items) > MOST_ITEMS:
        return None
    if rows < _TILE * most_threads():  # threads may take columns instead
        return None
    for number, part in enumerate(parts):
        for earlier in parts[:number]:
            if not _may_follow(earlier, part, rows):
                return None
    return ByRows(
        rows,
        items,
        tuple(one for part in parts for one in part.reads),
        tuple(one for part in parts for one in part.writes),
        [part.memory for part in parts],
        tuple(item for part in parts for item in part.before),
        tuple(one for part in parts for one in part.given),
        tuple(one for part in parts for one in part.panels),
    )


def _may_follow(earlier: ByRows, later: ByRows, rows: int) -> bool:
    """Whether blocks of both may alternate: they meet in equal rows only."""
    if not all(_apart(a, b, rows) for a in earlier.panels for b in later.panels):
        return False
    written = earlier.writes
    touched = (*later.reads, *later.writes)
    if not all(_apart(a, b, rows) for a in written for b in later.given):
        return False
    # What the later part writes must not be read by a later block of the earlier one, and the other
    # way round.
    return all(_apart(a, b, rows) or _level(a, b) for a in written for b in touched) and all(
        _apart(a, b, rows) or _level(a, b) for a in later.writes for b in earlier.reads
    )


def _apart(a: Span, b: Span, rows: int) -> bool:
    ends = (one.start + (rows - 1) * one.step + one.width for one in (a, b))
    end_a, end_b = ends
    return end_a <= b.start or end_b <= a.start


def _level(a: Span, b: Span) -> bool:
    """Whether no row of one touches another row of the other."""
    if a.step != b.step or a.step == 0:
        return False
    apart = b.start - a.start
    return apart + b.width <= a.step and apart - a.width >= -a.step


def argument(library: Library, by: ByRows, threads: int) -> Block:
    """The argument of `opscope_blocks` for this work, of so many threads at most."""
    fields = {"blocks": _blocks(by, threads), "count": len(by.items)}
    return bind(library, "opscope_blocks", items=Several.items(by.items), **fields)


def _blocks(by: ByRows, threads: int) -> int:
    """How many blocks; a multiple of the number of threads, which take equally many."""
    # Of what is written twice the width counts once; what is traced is no key.
    writes = [one for n, one in enumerate(by.writes) if one.step and one not in by.writes[:n]]
    bytes_of_row = sum(width for _, _, width in writes)
    most = min(max(_BYTES // max(bytes_of_row, 1), _FEWEST), _MOST)
    count = max(-(-by.rows // (most * threads)) * threads, 1)
    counts = range(count, 2 * count, threads)
    for more in counts if len(counts) > 1 else ():
        if by.rows % (more * _TILE) == 0:
            return more
    return min(count, by.rows)
