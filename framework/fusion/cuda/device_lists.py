"""Lists of work on a GPU of which each row is computed by itself, as one kernel.

A loop over time starts a handful of small kernels a step, and waits for each to start. Where its
steps are products with weights and elementwise loops, a row needs nothing of other rows: a block
takes a row through the whole list, from one step to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ...ir.kernel_args import Call
from ..scalars.codegen import COLUMN, FULL, Loop
from .cuda_source import TYPES, row_source
from .device_kernels import by_blocks, cuda_text

_MOST_WEIGHTS = 1 << 16
"""Elements of a factor that each block reads by itself; cuBLAS is faster with larger ones."""
_OPERANDS = 3
"""Words of a work before its operands."""


@dataclass(frozen=True, eq=False)
class RowProduct:
    """out = a b, plus `bias` in each row; or with `adds` out = out + a b. Matrices."""

    a: Any
    b: Any
    out: Any
    bias: Any = None
    adds: bool = False

    def by_row(self) -> list[Any]:
        return [self.a, self.out]

    def whole(self) -> list[Any]:
        return [self.b] if self.bias is None else [self.b, self.bias]

    def written(self) -> list[Any]:
        return [self.out]

    def words(self, kind: int) -> list[int]:
        size = self.a.itemsize
        steps = [step // size for one in (self.a, self.b, self.out) for step in one.strides]
        bias = 0 if self.bias is None else self.bias.data.ptr
        pointers = [self.a.data.ptr, self.b.data.ptr, self.out.data.ptr, bias]
        return [kind, *self.out.shape, self.a.shape[1], *pointers, *steps[:5], int(self.adds)]


@dataclass(frozen=True, eq=False)
class RowLoop:
    """An elementwise loop over a matrix."""

    loop: Loop
    arrays: Sequence[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.arrays[self.loop.stores[0][0]].shape

    def by_row(self) -> list[Any]:
        return [a for a, o in self._operands() if o.kind in (FULL, COLUMN)]

    def whole(self) -> list[Any]:
        return [a for a, o in self._operands() if o.kind not in (FULL, COLUMN)]

    def written(self) -> list[Any]:
        return [self.arrays[operand] for operand, _ in self.loop.stores]

    def words(self, kind: int) -> list[int]:
        words = [kind, *self.shape]
        for array, operand in self._operands():
            step = array.strides[0] // array.itemsize if operand.kind in (FULL, COLUMN) else 0
            words += [array.data.ptr, step]
        return words

    def _operands(self) -> Iterator[tuple[Any, Any]]:
        return zip(self.arrays, self.loop.operands, strict=True)


RowWork = RowProduct | RowLoop


def work_of(call: Call) -> RowWork | None:
    """The work that a call stands for; None where rows are not known to be independent."""
    return getattr(call, "row_work", None)


def standing_for(call: Any, work: RowWork) -> Call:
    """The call, which remembers that it does this work."""
    call.row_work = work
    return call


def product_call(call: Call, work: RowProduct) -> Call:
    """The call of a product, which remembers what it does where a list may take it."""
    takes = work.b.size <= _MOST_WEIGHTS and _fits(work.a, work.b, work.out) and _floats(work.out)
    return standing_for(call, work) if takes else call


def loop_call(call: Call, loop: Loop, arrays: Sequence[Any]) -> Call:
    """The call of an elementwise loop, likewise."""
    plain = all(operand.dtype in TYPES for operand in loop.operands)
    full = [a for a, o in zip(arrays, loop.operands, strict=True) if o.kind == FULL]
    takes = plain and all(a.ndim == 2 and a.strides[1] == a.itemsize for a in full)
    return standing_for(call, RowLoop(loop, arrays)) if takes else call


def _fits(*arrays: Any) -> bool:
    return all(array.ndim == 2 for array in arrays) and arrays[2].strides[1] == arrays[2].itemsize


def _floats(array: Any) -> bool:
    return array.dtype in (np.float32, np.float64)


def in_row_lists(xp: Any, calls: Sequence[Call]) -> list[Call]:
    """The calls, with neighbors that work on rows made one kernel."""
    merged: list[Call] = []
    group: list[Call] = []
    for call in calls:
        if work_of(call) is not None:
            group.append(call)
            continue
        merged += [*_joined(xp, group), call]
        group = []
    return [*merged, *_joined(xp, group)]


def _joined(xp: Any, calls: Sequence[Call]) -> Sequence[Call]:
    works = [work for call in calls if (work := work_of(call)) is not None]
    dtypes = {work.written()[0].dtype for work in works}
    if len(calls) < 2 or len(dtypes) > 1 or not _independent(works):
        return calls
    loops = list(dict.fromkeys(work.loop for work in works if isinstance(work, RowLoop)))
    kinds = {loop: number for number, loop in enumerate(loops, 1)}
    listed = [work.words(kinds[work.loop] if isinstance(work, RowLoop) else 0) for work in works]
    width = max(map(len, listed))
    words = np.zeros((len(works), width), np.int64)
    for row, own in zip(words, listed, strict=True):
        row[: len(own)] = own
    rows = max(int(words[:, 1].max()), 1)
    given = xp.asarray(words), np.int64(len(works)), np.int64(width)
    return [by_blocks(xp, _text(tuple(loops)), "row_list", dtypes.pop(), rows, given)]


def _independent(works: Sequence[RowWork]) -> bool:
    """Whether no row reads what another row of the list writes."""
    written = np.array([_span(array) for work in works for array in work.written()])
    for work in works:
        for array in work.whole():
            if _meets(written, _span(array)).any():
                return False
        for array in (*work.by_row(), *work.written()):
            start, _, step = span = _span(array)
            other = written[_meets(written, span)]
            if ((other[:, 2] != step) | (abs(other[:, 0] - start) >= step)).any():
                return False
    return True


def _span(array: Any) -> tuple[int, int, int]:
    """Where the memory of an array begins and ends, and the bytes from row to row."""
    begin = array.data.ptr
    last = sum((size - 1) * step for size, step in zip(array.shape, array.strides, strict=True))
    end = begin + last + array.itemsize if array.size else begin
    return begin, end, array.strides[0] if array.ndim else 0


def _meets(spans: np.ndarray, span: tuple[int, int, int]) -> np.ndarray:
    return (spans[:, 0] < span[1]) & (span[0] < spans[:, 1])


@lru_cache(maxsize=256)
def _text(loops: tuple[Loop, ...]) -> str:
    """The kernel of lists of products and of these loops."""
    functions = [row_source(loop, f"loop_{n}", _OPERANDS) for n, loop in enumerate(loops, 1)]
    cases = [f"        case {n}: loop_{n}(words, row); break;" for n in range(1, len(loops) + 1)]
    text = cuda_text("row_lists").split("\n\n", 1)[1]  # without the remark on the two words
    return text.replace("LOOPS", "\n".join(functions)).replace("CASES", "\n".join(cases))
