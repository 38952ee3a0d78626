"""What the call of a traced step does: native functions, and functions of NumPy.

A call is native functions (`ParallelTask`), a function of NumPy with its arguments
(`functools.partial`), or several of these in order (`team.in_order`). Whatever else a kernel
returns may keep what stands for arrays, and is not traced.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from types import ModuleType
from typing import Any

import numpy as np

from ...base.sizes.dims import Dim
from ...fusion.compiled.arguments import NotTracedError
from ...fusion.laid import Laid
from ...fusion.rows.row_blocks import ByRows, Span
from ...fusion.team import (
    Marked,
    OfArrays,
    ParallelTask,
    in_order,
    nothing,
    of_arrays,
    parts_of,
    task_of,
)

_BEGIN = 64
_MEMORY: Any = (ctypes.c_char * (sys.maxsize - _BEGIN)).from_address(_BEGIN)
"""All memory but what no array has: arrays are made at addresses whose owners the frame holds."""
_PLAIN = (int, float, str, type(None), np.generic, np.dtype)
_Call = Callable[[], Any]


class NativeCall:
    """Native functions of a step; see `ParallelTask`.

    Args:
        own: where the words of the step's structs begin. names: of its arrays, by id.

    Attributes:
        numbers: what `bound` is given, for the sizes at hand: the work.
        items: functions, and bytes from the begin of the words to their arguments.
        reads: variables whose arrays `bound` is to be given. short: how many items are.
        goes_by_rows: whether it may be done a block of rows after another.
        names_step: whether its errors name the operators of the step.
    """

    def __init__(self, task: ParallelTask, own: Dim, names: Mapping[int, str]) -> None:
        self._check = None
        if task.check is not None:
            if not isinstance(task.check, Marked):
                raise NotTracedError("numbers that are looked at")
            self._check = task.check.address - own, plain_partial(task.check.complain)
        self.names_step = self._check is not None
        self.numbers = [task.work]
        self.items: list[tuple[int, int]] = []
        for function, address in task.items:
            away = address - own
            if not isinstance(address, Dim) or isinstance(away, Dim):
                raise NotTracedError("an argument that was bound before")
            self.items.append((function, away))
        self._rows = self._by = None
        self.reads: list[str] = []
        if isinstance(task.rows, ByRows):
            self._by = _TracedRows(task.rows, own)
            self.numbers += self._by.numbers
        else:
            self._rows = _rows_of(task, names)
            self.reads = [] if self._rows is None else self._rows[-1]
        self.short = task.short
        self.goes_by_rows = self._by is not None or self._rows is not None

    def bound(
        self, own: int, numbers: Iterator[int], arrays: Mapping[str, Any], held: Any
    ) -> _Call:
        """The call for other sizes.

        Args:
            own: where the words are. numbers: see there. arrays: of the frame.
            held: owners of memory.
        """
        items = tuple([(function, own + away) for function, away in self.items])
        work, rows = next(numbers), None
        if self._rows is not None:
            make, loop, names = self._rows
            rows = partial(make, loop, [arrays[name] for name in names])
        elif self._by is not None:
            rows = partial(self._by.made, own, list(islice(numbers, len(self._by.numbers))), held)
        check = None
        if self._check is not None:
            check = Marked(own + self._check[0], self._check[1], arrays)
        return ParallelTask(items, work, held, rows, check, self.short)


class _TracedRows:
    """Work in blocks of rows, of a step that is traced.

    Attributes:
        numbers: the rows, and where what it touches begins, its step and width.
    """

    def __init__(self, by: ByRows, own: Dim) -> None:
        self.numbers = [by.rows, *chain(*by.reads, *by.writes, *by.given, *by.panels)]
        self._counts = [len(spans) for spans in (by.reads, by.writes, by.given, by.panels)]
        self._items, self._before = (
            [(function, address - own) for function, address in items]
            for items in (by.items, by.before)
        )
        if any(isinstance(away, Dim) for _, away in (*self._items, *self._before)):
            raise NotTracedError("an argument that was bound before")

    def made(self, own: int, numbers: Sequence[int], held: Any) -> ByRows:
        """The work for other sizes; arguments as of `NativeCall.bound`."""
        rest = iter(numbers)
        rows = next(rest)
        spans = [
            tuple([Span(next(rest), next(rest), next(rest)) for _ in range(count)])
            for count in self._counts
        ]
        items, before = (
            tuple([(function, own + away) for function, away in some])
            for some in (self._items, self._before)
        )
        reads, writes, given, panels = spans
        return ByRows(rows, items, reads, writes, held, before, given, panels)


class RemadeCall:
    """A call that is made of the arrays of variables; see `team.of_arrays`.

    Attributes:
        as of `NativeCall`.
    """

    goes_by_rows = False
    names_step = True

    def __init__(self, call: OfArrays) -> None:
        self._make = plain_partial(call.make)
        self.numbers: list[Any] = []
        self.reads: list[str] = []

    def bound(
        self, own: int, numbers: Iterator[int], arrays: Mapping[str, Any], held: Any
    ) -> _Call:
        """See `NativeCall.bound`."""
        del own, numbers, held
        return of_arrays(self._make, arrays)


def plain_partial(function: Any) -> Any:
    """A function with arguments that are the same whatever the sizes are.

    Raises:
        NotTracedError: it has others.
    """
    given = (*function.args, *function.keywords.values())
    if any(isinstance(one, (Dim, Laid)) for one in given):
        raise NotTracedError("a check by a size that varies")
    return function


class NumpyCall:
    """A function of NumPy with its arguments.

    Args:
        fixed: arrays that all frames have.

    Attributes:
        numbers: what `bound` is given: of each array its shape, strides and address.
    """

    names_step = False

    def __init__(self, call: Any, fixed: Sequence[Any]) -> None:
        if not isinstance(call, partial) or not _is_of_numpy(call.func):
            raise NotTracedError("a function of Python")
        self._fixed = fixed
        self.reads: list[str] = []
        self.numbers: list[Any] = []
        self._function = call.func
        self._given = [self._argument(one) for one in call.args]
        self._named = {name: self._argument(one) for name, one in call.keywords.items()}

    def _argument(self, value: Any) -> Callable[[Iterator[int]], Any]:
        """What gives an argument for other sizes."""
        if isinstance(value, Laid):
            self.numbers += [*value.shape, *value.strides, value.address - _BEGIN]
            return partial(_array, value.dtype, value.ndim)
        if isinstance(value, Dim):
            self.numbers.append(value)
            return next
        if isinstance(value, (list, tuple)):
            parts = [self._argument(one) for one in value]
            return partial(_several, type(value), parts)
        if isinstance(value, _PLAIN) or any(value is one for one in self._fixed):
            return partial(_same, value)
        raise NotTracedError("an argument that is no plain value")

    def bound(
        self, own: int, numbers: Iterator[int], arrays: Mapping[str, Any], held: Any
    ) -> _Call:
        """See `NativeCall.bound`."""
        del arrays, own
        given = [make(numbers) for make in self._given]
        named = {name: make(numbers) for name, make in self._named.items()}
        call = partial(self._function, *given, **named)
        vars(call)["held"] = held
        return call


def _array(dtype: np.dtype, rank: int, numbers: Iterator[int]) -> np.ndarray:
    shape, strides = tuple(islice(numbers, rank)), tuple(islice(numbers, rank))
    return np.ndarray(shape, dtype, _MEMORY, next(numbers), strides)


def _several(kind: Any, parts: Sequence[Callable[..., Any]], numbers: Iterator[int]) -> Any:
    return kind([make(numbers) for make in parts])


def _same(value: Any, numbers: Iterator[int]) -> Any:
    del numbers
    return value


def _is_of_numpy(function: Any) -> bool:
    """Whether a function is one of NumPy's, and no method of an array."""
    owner = getattr(function, "__self__", None)
    if isinstance(function, np.ufunc) or isinstance(owner, np.ufunc):
        return True
    module = getattr(function, "__module__", None) or ""
    plain = owner is None or isinstance(owner, ModuleType)
    return plain and module.partition(".")[0] == "numpy"


TracedCall = NativeCall | NumpyCall | RemadeCall


def traced_calls(
    call: _Call, own: Dim, names: Mapping[int, str], fixed: Sequence[Any]
) -> list[TracedCall]:
    """The parts of a call, in order; none for one that does nothing.

    Raises:
        NotTracedError: one cannot be made for other sizes.
    """
    calls: list[TracedCall] = []
    for one in parts_of(call):
        task = task_of(one)
        if task is not None:
            calls.append(NativeCall(task, own, names))
        else:
            calls.append(RemadeCall(one) if isinstance(one, OfArrays) else NumpyCall(one, fixed))
    return calls


def binder_of(parts: Sequence[TracedCall]) -> Callable[..., _Call]:
    """What gives the call of a step for other sizes; see `NativeCall.bound`."""
    if not parts:
        return _nothing_bound
    return parts[0].bound if len(parts) == 1 else partial(_bound_in_order, parts)


def _nothing_bound(*given: Any) -> _Call:
    del given
    return nothing


def _bound_in_order(parts: Sequence[TracedCall], *given: Any) -> _Call:
    return in_order(*[part.bound(*given) for part in parts])


_Places = Sequence[tuple[int, int]]


def same_calls(call: Any, other: Any, anywhere: _Places = (), alike: _Places = ()) -> bool:
    """Whether two functions of NumPy, or that are made of arrays, have the same arguments.

    Args:
        anywhere: addresses and bytes of memory in whose place the other one may have any.
        alike: and of such that the other one has with the same contents.
    """
    call, other = (getattr(one, "made_by", one) for one in (call, other))
    if not isinstance(call, partial) or not isinstance(other, partial):
        return False
    ours, theirs = (one.args + tuple(one.keywords.values()) for one in (call, other))
    return (
        call.func == other.func
        and len(ours) == len(theirs)
        and call.keywords.keys() == other.keywords.keys()
        and all(_same_argument(*pair, anywhere, alike) for pair in zip(ours, theirs, strict=True))
    )


def _same_argument(one: Any, other: Any, anywhere: _Places, alike: _Places) -> bool:
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(
            _same_argument(*pair, anywhere, alike) for pair in zip(one, other, strict=True)
        )
    if isinstance(one, (float, complex, np.inexact)):
        return repr(one) == repr(other)  # NaN differs from itself, and 0.0 equals -0.0
    if not isinstance(one, np.ndarray):
        return bool(one == other)
    if not isinstance(other, np.ndarray) or one.dtype != other.dtype or one.shape != other.shape:
        return False
    if is_within(one.ctypes.data, alike):
        return one.tobytes() == other.tobytes()
    return not one.size or (
        (one.ctypes.data == other.ctypes.data or is_within(one.ctypes.data, anywhere))
        and all(
            a == b for a, b, n in zip(one.strides, other.strides, one.shape, strict=True) if n > 1
        )
    )


def is_within(address: int, places: Sequence[tuple[int, int]]) -> bool:
    """Whether an address lies in memory of which addresses and bytes are given."""
    return any(0 <= address - begin < nbytes for begin, nbytes in places)


def _rows_of(task: ParallelTask, names: Mapping[int, str]) -> tuple[Any, Any, list[str]] | None:
    """What finds a loop in blocks of rows: a function, the loop, its variables; None without it."""
    if task.rows is None:
        return None
    if not isinstance(task.rows, partial):
        raise NotTracedError("blocks of rows")
    bound, arrays = task.rows.args
    if arrays[bound.loop.stores[0][0]].ndim != 2:
        return None  # no matrices: nothing that `by_rows` finds
    return task.rows.func, bound, [names[id(array)] for array in arrays]
