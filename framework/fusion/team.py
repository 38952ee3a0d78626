"""A team of threads runs a list of C functions, with one call from Python for the whole list.

The loop of a recurrent net is hundreds of short calls: products, fused loops, copies. One by one,
each costs a call from Python, and those that use threads wake and join them every time. Kernels
whose work a C function does attach a `ParallelTask` to their callable; `merge` makes one callable
of neighboring ones, in which every thread does its part of an item and waits for the others.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType
from typing import Any, NamedTuple, cast

import numpy as np

from ...native.constants import PARALLEL_WORK
from ..base.cpu import threads
from ..base.cpu.numpy_blas import OpenBlas, hold, openblas
from .compiled import native
from .compiled.arguments import (
    TRACING,
    Block,
    Several,
    bind,
    is_host_array,
    lists_at,
    lists_of_items,
)
from .rows import row_blocks
from .rows.row_blocks import ByRows

ITEM_WORK = 280_000
"""Work that the items of a list must have on average to be worth threads, which wait for each
other after each of them: some 7 us."""

SHORT = 20_000
"""Work of an item that takes no longer than threads wait for each other: some 0.5 us."""

_TOGETHER = 4_000_000
"""Work of a list up to which it is better one list than several: some 100 us. In a longer one parts
of an item may not wait for those of the one before; alone it has parts for whoever is free."""

_PIECE = 1024
"""Elements in a row of a filled array, as one copy."""

_COPY_WORK = 8
"""Work of copying one row, beside a quarter for each byte."""


@dataclass(eq=False, slots=True)
class ParallelTask:
    """The work of a callable as C functions that the threads of a team run together.

    It is itself a call that does it. Most tasks become part of a longer list and never run alone: a
    loop over 4,000 steps makes 12,000 of them, so the argument of a list is made when one is first
    called.

    Attributes:
        items: (address of a C function, address of its argument), one after another.
        work: a rough measure of the time it takes, in the units of native/constants.py.
        memory: owners of everything that the addresses point to.
        rows: the same in blocks of rows, where that is possible, or what finds it: most tasks are
            never asked, as their neighbors cannot be done so.
        check: raises an error where the items found numbers that they refuse, which C functions
            cannot (`Marked`); nothing may run before it, so a list ends with such a task.
        short: how many of the items take less time than waiting.
    """

    items: tuple[tuple[int, int], ...]
    work: int
    memory: Any
    rows: ByRows | Callable[[], ByRows | None] | None = None
    check: Callable[[], Any] | None = None
    short: int = 0
    _call: Callable[[], Any] | None = field(default=None, init=False, repr=False)

    @property
    def task(self) -> ParallelTask:
        """Itself; see `task_of`."""
        return self

    @property
    def by_rows(self) -> ByRows | None:
        """The same in blocks of rows; None where that is not possible."""
        if callable(self.rows):
            self.rows = self.rows()
        return self.rows

    def __call__(self) -> None:
        if self._call is None:
            (call,) = _bound([self])
            del vars(call)["task"]  # which holds the call: memory would wait for the collector
            self._call = call
        self._call()


class Marked:
    """A check that asks whether a C function has met a number that it refuses.

    Args:
        address: of the field in which it marks that.
        complain: looks for the number and raises an error; called with `arrays`. It keeps nothing
            of a frame: traces serve others by it.
        arrays: of the variables of a frame, by name.
    """

    def __init__(
        self, address: Any, complain: Callable[[Mapping[str, Any]], Any], arrays: Mapping[str, Any]
    ) -> None:
        self.address = address
        self.complain = complain
        self._arrays = arrays
        # A size that varies stands for an address while a step is traced.
        self._mark = ctypes.c_int64.from_address(address) if type(address) is int else None

    def __call__(self) -> None:
        mark = self._mark
        if mark is not None and mark.value:
            mark.value = 0  # before the error: the next run must not see it
            self.complain(self._arrays)


class OfArrays:
    """A call that is made of the arrays of variables, while its step is traced.

    Args:
        make: makes it; called with the arrays of a frame, by name. It keeps nothing of one.
    """

    def __init__(self, make: Callable[[Mapping[str, Any]], Callable[[], Any]]) -> None:
        self.make = make


def of_arrays(
    make: Callable[[Mapping[str, Any]], Callable[[], Any]], arrays: Mapping[str, Any]
) -> Callable[[], Any]:
    """The call that a function makes of the arrays of variables; see `OfArrays`."""
    if TRACING.trace is not None:
        return cast(Any, OfArrays(make))
    call: Any = partial(make(arrays))
    vars(call)["made_by"] = make
    return call


def parts_of(call: Callable[[], Any]) -> list[Callable[[], Any]]:
    """The calls that one consists of, see `in_order`, without those that do nothing."""
    if call is nothing:
        return []
    parts = None
    if isinstance(call, FunctionType) and task_of(call) is None:
        parts = getattr(call, "parts", None)
    return [call] if parts is None else [part for one in parts for part in parts_of(one)]


def block_task(work: int, *blocks: Block) -> ParallelTask:
    """The task of native functions, one after another, by their bound arguments."""
    # How long it is that varies, nobody knows yet.
    short = len(blocks) if isinstance(work, int) and work < SHORT else 0
    return ParallelTask(tuple(block.item for block in blocks), work, blocks, short=short)


@functools.cache
def library() -> Any:
    """The functions of lists; None where there is no native library."""
    team_library = native.load("team")
    if team_library is not None:
        if hasattr(os, "register_at_fork"):
            # Neither threads nor lists that ran in them are there in the child of a fork.
            for name in ("opscope_forget", "opscope_forget_pool"):
                os.register_at_fork(after_in_child=partial(team_library.function(name), 0))
    return team_library


@functools.cache
def hold_blas() -> OpenBlas | None:
    """NumPy's OpenBLAS, from now on at one thread while lists run; None where there is none.

    Its products differ in the last bits with the number of its threads, which must not follow what
    other threads of Python run at the moment.
    """
    lists, blas = library(), openblas()
    if lists is None or blas is None:
        return None
    bind(lists, "opscope_use_blas", get=blas.get, set=blas.set).run()

    def blas_threads(wanted: int) -> int:
        asked = bind(lists, "opscope_blas_threads", number=wanted)
        asked.run()
        return asked.struct.number

    hold(blas.path, blas_threads)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=partial(hold, blas.path, blas_threads))
    return blas


@functools.cache
def one_blas_thread() -> tuple[Callable[[int], None], Callable[[int], None]] | None:
    """What begins and what ends a while in which NumPy's OpenBLAS has one thread, each called
    with 0; None where it has no threads that follow anything."""
    if hold_blas() is None:
        return None
    return library().function("opscope_enter"), library().function("opscope_leave")


def with_task(call: Callable[[], Any], task: ParallelTask | None) -> Callable[[], Any]:
    """A callable that does the same and carries its task, if there is one."""
    if task is None:
        return call
    if not isinstance(call, partial):
        call = partial(call)
    vars(call)["task"] = task  # a plain partial: a subclass with an attribute is slower to call
    return call


def task_of(call: Callable[[], Any]) -> ParallelTask | None:
    """The task that a callable carries; None where no team can run it."""
    return getattr(call, "task", None)


def merge(calls: Sequence[Callable[[], Any]]) -> list[Callable[[], Any]]:
    """The calls, with neighbors that a team can run made one."""
    return in_lists(calls)[0]


def in_lists(calls: Sequence[Callable[[], Any]]) -> tuple[list[Callable[[], Any]], list[int]]:
    """As `merge`; and for each call that is left the number of the first that it stands for."""
    merged: list[Callable[[], Any]] = []
    firsts: list[int] = []
    neighbors: list[ParallelTask] = []
    for number, call in enumerate(calls):
        if call is nothing:
            continue
        if (task := task_of(call)) is not None:
            if not neighbors:
                firsts.append(number)
            neighbors.append(task)
            if task.check is None:
                continue
        if neighbors:
            merged.append(run_together(neighbors))
            neighbors = []
        if task is None:
            merged.append(call)
            firsts.append(number)
    if neighbors:
        merged.append(run_together(neighbors))
    return _bound(merged), firsts


def nothing() -> None:
    """A call that does nothing, for kernels whose result is there already."""


def recordable(call: Callable[[], Any]) -> Callable[[], Any]:
    """Mark a call that launches the same on a GPU in each run: a CUDA graph may record it."""
    call.recordable = True  # type: ignore[attr-defined]
    return call


def in_order(*calls: Callable[[], Any] | None) -> Callable[[], Any]:
    """One call that runs several one after the other; None among them is skipped."""
    left = [call for call in calls if call is not None]
    if not left:
        return nothing
    if len(left) == 1:
        return left[0]
    tasks = [task for call in left if (task := task_of(call)) is not None]
    if len(tasks) == len(left) and all(task.check is None for task in tasks[:-1]):
        return run_together(tasks)
    if len(left) == 2:
        first, second = left

        def both() -> None:
            first()
            second()

        both.parts = left
        return both

    def every() -> None:
        for call in left:
            call()

    every.parts = left
    return every


def rows_task(by: ByRows, work: int) -> ParallelTask:
    """The task of work that is done a block of rows after another."""
    most = threads.most_threads() if work >= PARALLEL_WORK else 1
    block = row_blocks.argument(library(), by, most)
    return ParallelTask((*by.before, block.item), work, (block, by.memory), by)


def in_blocks(
    calls: Sequence[Callable[[], Any]],
) -> tuple[list[Callable[[], Any]], list[int]]:
    """The calls, with neighbors made one that may do a block of rows after another, or that are
    short; and the number of the first call that each of them does."""
    merged: list[Callable[[], Any]] = []
    firsts: list[int] = []
    group: list[ParallelTask] = []  # what the last of the calls made does
    work = items = 0  # of the group; items that are short do not count
    one_thread = threads.most_threads() == 1
    for number, call in enumerate(calls):
        if call is nothing:
            continue
        task = call if isinstance(call, ParallelTask) else task_of(call)
        if task is not None and group and group[-1].check is None:
            # Two that were not joined are a list, which can be joined with nothing either.
            joined = None
            if task.rows is not None and len(group) == 1 and group[0].rows is not None:
                joined = _joined([group[0], task])
            work = work + task.work
            items = items + _long_items(task)
            if joined is not None:
                merged[-1], group, items = run_together([joined]), [joined], _long_items(joined)
                continue
            # On one thread a list spares calls from Python. What may be done in blocks of rows
            # stays for its neighbors.
            plain = one_thread and task.rows is None and group[-1].rows is None
            if plain or _worth_a_list(work, items):
                group.append(task)
                continue
        if len(group) > 1:
            merged[-1] = run_together(group)  # once, not for each task that joins it
        merged.append(call)
        firsts.append(number)
        group = [] if task is None else [task]
        work, items = (0, 0) if task is None else (task.work, _long_items(task))
    if len(group) > 1:
        merged[-1] = run_together(group)
    return _bound(merged), firsts


def _long_items(task: ParallelTask) -> int:
    return len(task.items) - task.short


def _worth_a_list(work: int, items: int) -> bool:
    """Whether tasks are one list: all too short for threads, or short ones that threads share
    without waking and gathering for each of them.

    Args:
        items: those that are not short.
    """
    return work < PARALLEL_WORK or items * ITEM_WORK <= work < _TOGETHER


def takes_blocks(calls: Sequence[Callable[[], Any]]) -> bool:
    """Whether each of the calls can be done a block of rows after another."""
    tasks = map(task_of, calls)
    return all(task is not None and task.by_rows is not None for task in tasks)


def _joined(tasks: Sequence[ParallelTask]) -> ParallelTask | None:
    """The tasks as one that does all of a block of rows before the next; None where not right."""
    parts: list[ByRows] = []
    for task in tasks:
        part = None if task.rows is None else task.by_rows
        if part is None:
            return None
        parts.append(part)
    joined = row_blocks.join(parts)
    return None if joined is None else rows_task(joined, sum(task.work for task in tasks))


def run_together(tasks: Sequence[ParallelTask]) -> Callable[[], Any]:
    """One call that runs the tasks in this order, of which the last may have a check."""
    joined = tasks[0] if len(tasks) == 1 else _joined(tasks)
    return joined or in_a_row(tasks)


def in_a_row(tasks: Sequence[ParallelTask]) -> ParallelTask:
    """As `run_together`, never in blocks of rows: for tasks that become part of a longer list."""
    items = tuple([item for task in tasks for item in task.items])
    work = sum([task.work for task in tasks])
    memory = [task.memory for task in tasks]
    short = sum([task.short for task in tasks])
    return ParallelTask(items, work, memory, None, tasks[-1].check, short)


def _bound(calls: Sequence[Callable[[], Any]]) -> list[Callable[[], Any]]:
    """Calls that are to run often: lists have their arguments, which are made together."""
    tasks = [call for call in calls if isinstance(call, ParallelTask)]
    if not tasks:
        return list(calls)
    work = [task.work for task in tasks]
    table = lists_of_items(library(), [task.items for task in tasks], work)
    addresses = itertools.count(table.address, table.words.strides[0])
    return [
        _list_call(call, _runner(call.work, _long_items(call)), table, next(addresses))
        if isinstance(call, ParallelTask)
        else call
        for call in calls
    ]


def _runner(work: int, items: int) -> Callable[[int], Any]:
    """What runs a list: on several threads where there is enough work in all, and enough in each
    item, after which the threads wait for each other's share.

    Args:
        items: those that are not short.
    """
    return library().function("opscope_team" if _is_shared(work, items) else "opscope_alone")


def _is_shared(work: int, items: int) -> bool:
    return work >= PARALLEL_WORK and work >= items * ITEM_WORK


class TaskTable:
    """Tasks with equally many items in a row, of which a list may do any that are neighbors: it is
    made without a look at each of them.

    Args:
        count: of the tasks. items: of each.
    """

    def __init__(self, count: int, items: int) -> None:
        self._words = np.zeros((count, items, 2), np.int64)
        self._work, self._long_items = np.zeros((2, count), np.int64)
        self._memory: list[Any] = [None] * count

    def put(self, at: int, task: ParallelTask) -> bool:
        """Put a task there; False where it has another number of items."""
        if len(task.items) != self._words.shape[1]:
            return False
        self._words[at] = task.items
        self._work[at], self._long_items[at] = task.work, _long_items(task)
        self._memory[at] = task.memory
        return True

    def put_many(
        self, at: np.ndarray, words: np.ndarray, work: np.ndarray, short: int, memory: Any
    ) -> bool:
        """As `put`, of tasks of which each is at one of the places.

        Args:
            words [tasks, items, 2]: functions and their arguments. work [tasks]: see
                `ParallelTask`. short: items of each that are. memory: owners, of all.
        """
        if words.shape[1:] != self._words.shape[1:]:
            return False
        self._words[at] = words
        self._work[at], self._long_items[at] = work, words.shape[1] - short
        for place in at.tolist():
            self._memory[place] = memory
        return True

    def task(self, begin: int, end: int) -> ParallelTask:
        """The tasks begin:end as one, which becomes part of a longer list."""
        part = slice(begin, end)
        pairs = self._words[part].reshape(-1, 2).tolist()
        items = tuple([(function, argument) for function, argument in pairs])
        work, long_items = int(self._work[part].sum()), int(self._long_items[part].sum())
        return ParallelTask(items, work, self._memory[part], short=len(items) - long_items)

    def call(self, begin: int, end: int) -> Callable[[], Any]:
        """A call of the tasks begin:end."""
        part = slice(begin, end)
        work, long_items = int(self._work[part].sum()), int(self._long_items[part].sum())
        words = self._words[part].reshape(-1, 2)
        table = lists_at(library(), words.ctypes.data, [len(words)], work, words)
        listed: Any = partial(_runner(work, long_items), table.address)
        vars(listed)["held"] = table, self._memory
        if not _is_shared(work, long_items):
            vars(listed)["alone"] = Alone(table, work, self._memory)
        return listed


class Alone(NamedTuple):
    """A list that is done by one thread.

    Attributes:
        table: the list, which `TaskTable.call` has made. memory: owners of its arguments.
    """

    table: Several
    work: int
    memory: Any


def beside(lists: Sequence[Alone]) -> ParallelTask:
    """The task of lists that do not depend on each other, each done by one thread."""
    tables = Several.joined([one.table for one in lists])
    block = bind(library(), "opscope_beside", count=len(lists), lists=tables)
    work = sum([one.work for one in lists])
    return ParallelTask((block.item,), work, (block, [one.memory for one in lists]))


def _list_call(
    task: ParallelTask, run: Callable[[int], Any], table: Several, address: int
) -> Callable[[], Any]:
    """The call of a list that lies there in a table."""
    listed: Any = partial(run, address)
    vars(listed)["table"] = table
    check = task.check
    if check is None:
        vars(listed)["task"] = task
        return listed

    def run_and_check() -> None:
        listed()
        check()

    return with_task(run_and_check, task)


def copy_task(
    target: Any, source: Any, target_rows: Any = None, source_rows: Any = None
) -> ParallelTask | None:
    """The task target[target_rows] = source[source_rows]; without rows, of all of them. A source of
    one row is copied to all.

    None where the arrays do not suit: they have different dtypes, or the elements of a row do not
    lie side by side.
    """
    arrays = target, source
    if library() is None or any(not is_host_array(array) or not array.ndim for array in arrays):
        return None
    if target.dtype != source.dtype or target.shape[1:] != source.shape[1:]:
        return None
    if not all(array[:1].flags.c_contiguous for array in arrays):
        return None
    count = target.shape[0] if target_rows is None else len(target_rows)
    size = target.dtype.itemsize * math.prod(target.shape[1:])
    if not size:
        count = 0  # there may be more rows without elements than a loop could visit
    fields: dict[str, Any] = {"rows": count, "bytes": size, "target": target, "source": source}
    again = source_rows is None and source.shape[0] == 1
    fields |= {"target_step": target.strides[0], "source_step": 0 if again else source.strides[0]}
    for name, rows in (("target_rows", target_rows), ("source_rows", source_rows)):
        fields[name] = None if rows is None else np.ascontiguousarray(rows, np.int64)
    return block_task(copy_work(count, size), bind(library(), "opscope_copy", **fields))


def copy_work(count: int, size: int) -> int:
    """The work of copying so many rows of so many bytes."""
    return count * (_COPY_WORK + size // 4)


def fill_task(target: Any, value: float) -> ParallelTask | None:
    """The task target[...] = value; None where the array does not suit."""
    if type(target) is not np.ndarray or not target.ndim:
        return None
    if not target.size:
        target = target[:0]  # there may be more rows without elements than memory for their places
    # Rows of an array may be few and long, or single numbers: equal pieces are shared among threads
    # better.
    if target.flags.c_contiguous and target.size >= _PIECE:
        target = target.reshape(-1)
        left = target.size % _PIECE  # elements before the first whole piece
        start = target[None, :left]
        pieces = target[left:].reshape(-1, _PIECE)
        tasks = [_repeat(start, value)] if left else []
        return _in_turn([*tasks, _repeat(pieces, value)])
    return _repeat(target, value)


def _repeat(target: Any, value: float) -> ParallelTask | None:
    # A fill is a copy of one row to all places, so that no function of its own is needed for each
    # dtype.
    row = np.full((1, *target.shape[1:]), value, target.dtype)
    return copy_task(target, row)


def _in_turn(tasks: Sequence[ParallelTask | None]) -> ParallelTask | None:
    """Tasks one after the other as one; None where one of them is missing."""
    present = [task for task in tasks if task is not None]
    if len(present) < len(tasks):
        return None
    items = tuple(item for task in present for item in task.items)
    return ParallelTask(
        items, sum(task.work for task in present), [task.memory for task in present]
    )


def parts_task(parts: Several, work: int, memory: Any) -> ParallelTask:
    """A task of products that may run side by side, see `gemm_part` of native/declarations.py."""
    block = bind(library(), "opscope_parts", count=len(parts), parts=parts)
    return ParallelTask((block.item,), work, (block, memory))


def aligned(size: int) -> Any:
    """`size` bytes of memory that begin with a cache line."""
    return aligned_part(np.empty(size + 64, np.uint8))


def aligned_part(whole: Any) -> Any:
    """The bytes that `aligned` gives, of the array that owns them, which is their `base`."""
    start = -whole.ctypes.data % 64
    return whole[start : start + whole.size - 64]
