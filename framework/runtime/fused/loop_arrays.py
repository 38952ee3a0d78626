"""The arrays of fused loops: how they lie in memory, and the arguments of a loop over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from ...base.backend import address
from ...base.sizes.dims import hint_of
from ...fusion import chains
from ...fusion.compiled.arguments import TRACING, Block
from ...fusion.rows import row_blocks
from ...fusion.rows.row_blocks import ByRows, Span
from ...fusion.scalars.codegen import COLUMN, FULL, ONE, ROW, Loop
from ..plans.layouts import is_of_channels

_Span = tuple[int, int, int, bool, str, Any]
"""Where an array begins and ends, the number of its loop, whether that writes to it, its name, and
the array."""


@dataclass(frozen=True)
class BoundLoop:
    """A loop and the variables that are its operands."""

    loop: Loop
    variables: tuple[str, ...]

    def columns(self, arrays: Sequence[Any]) -> int | None:
        """The width of a row, where rows or columns are among the operands; else None."""
        for array, operand in zip(arrays, self.loop.operands, strict=True):
            if operand.kind == ROW:
                return array.size
            if operand.kind == COLUMN:
                return arrays[self.loop.stores[0][0]].size // max(array.size, 1)
        return None


def by_rows(bound: BoundLoop, arrays: Sequence[np.ndarray]) -> ByRows | None:
    """A loop over the rows of matrices as work in blocks of them."""
    shape = arrays[bound.loop.stores[0][0]].shape
    if len(shape) != 2 or bound.columns(arrays) not in (None, shape[1]):
        return None
    block = argument_of(bound, arrays, shape[1])
    # A single row cannot be cut into blocks of rows.
    if block is None or block.struct.rows < 2:
        return None
    stores = {operand for operand, _ in bound.loop.stores}
    reads: list[Span] = []
    writes: list[Span] = []
    for number, (array, operand) in enumerate(zip(arrays, bound.loop.operands, strict=True)):
        one = row_blocks.whole(array)
        if operand.kind == FULL:
            step = getattr(block.struct, f"step{number}") * array.itemsize
            one = Span(one.start, step, shape[1] * array.itemsize)
        (writes if number in stores else reads).append(one)
    return ByRows(shape[0], (block.item,), tuple(reads), tuple(writes), block)


def in_memory_order(bound: BoundLoop, arrays: list[Any]) -> list[tuple[BoundLoop, list[Any]]]:
    """The loop and its arrays as they lie in memory: with their channels last, where all that it
    goes over lie so. Numbers of channels are rows there, of each image by itself."""
    operands = bound.loop.operands
    full = [i for i, operand in enumerate(operands) if operand.kind == FULL]
    same = [(bound, arrays)]
    if all(arrays[i].flags.c_contiguous for i in full):
        return same
    # All or none: a loop goes over its operands by one counter, so they must lie alike.
    moved = {i: np.moveaxis(arrays[i], 1, -1) for i in full if arrays[i].ndim > 2}
    if len(moved) < len(full) or not all(a.flags.c_contiguous for a in moved.values()):
        return same
    shape = arrays[full[0]].shape
    channels = [i for i, operand in enumerate(operands) if operand.kind == COLUMN]
    if bound.columns(arrays) is None:
        return [(bound, [moved.get(i, array) for i, array in enumerate(arrays)])]
    if any(operand.kind == ROW for operand in operands) or not all(
        is_of_channels(arrays[i].shape, shape) for i in channels
    ):
        return same
    rows = [
        replace(operand, kind=ROW) if i in channels else operand
        for i, operand in enumerate(operands)
    ]
    loop = replace(bound, loop=replace(bound.loop, operands=tuple(rows)))
    return [
        (loop, [moved[i][n] if i in moved else array.reshape(shape[:2])[n] if i in channels
                else array
                for i, array in enumerate(arrays)])
        for n in range(shape[0])
    ]  # fmt: skip


def argument_of(
    bound: BoundLoop, arrays: Sequence[np.ndarray], width: int | None = None
) -> Block | None:
    """The argument of a loop; None where it has no program, or an array's strides do not suit it.

    Args:
        width: columns of a row; None: as many as can be taken as one row.
    """
    program = chains.program(bound.loop)
    if program is None:
        return None
    shape = arrays[bound.loop.stores[0][0]].shape
    total = prod(shape)
    full = [a for a, o in zip(arrays, bound.loop.operands, strict=True) if o.kind == FULL]
    columns = bound.columns(arrays) if width is None else width
    if columns is None:
        # Contiguous throughout: one long row saves the outer loop.
        one_row = all(array.flags.c_contiguous for array in full)
        columns = max(total, 1) if one_row else shape[-1]
    rows = total // columns if columns else 0
    placed = []
    for array, operand in zip(arrays, bound.loop.operands, strict=True):
        # C may assume that elements are aligned; NumPy takes any.
        if not array.flags.aligned:
            return None
        step = {FULL: columns, COLUMN: 1}.get(operand.kind, 0)
        if operand.kind != ONE and not array.flags.c_contiguous:
            steps = [stride // array.itemsize for stride in array.strides]
            if operand.kind == ROW and array.size == array.shape[-1] and steps[-1] == 1:
                step = 0
            elif operand.kind == COLUMN and array.ndim == 2:
                step = steps[0]
            elif operand.kind == FULL and array.shape == (rows, columns) and steps[1] == 1:
                step = steps[0]
            else:
                return None
        placed.append((array, step))
    return chains.argument(program, (rows, columns), placed)


def no_overlap(bound: Sequence[BoundLoop], arrays: Sequence[Sequence[Any]]) -> bool:
    """Whether arrays under different names that are written share no memory, or all of it."""
    spans: list[_Span] = []
    for number, (b, operands) in enumerate(zip(bound, arrays, strict=True)):
        written = {operand for operand, _ in b.loop.stores}
        for i, (name, array) in enumerate(zip(b.variables, operands, strict=True)):
            first = address(array)
            steps = zip(array.shape, array.strides, strict=True)
            end = first + sum((dim - 1) * step for dim, step in steps) + array.itemsize
            if array.size:
                spans.append((first, end, number, i in written, name, array))
    if TRACING.trace is None:
        return _are_right(spans)
    # Which comes first is not noted: it is no matter, and other frames have another order.
    groups: list[list[_Span]] = []
    last = 0
    for span in sorted(spans, key=lambda span: (hint_of(span[0]), hint_of(span[1]))):
        if not groups or hint_of(span[0]) >= last:
            groups.append([])
        groups[-1].append(span)
        last = max(last, hint_of(span[1]))
    TRACING.trace.keep_apart([[span[:2] for span in group] for group in groups])
    return all([_are_right(group) for group in groups])


def _are_right(spans: list[_Span]) -> bool:
    """See `no_overlap`."""
    # Sorted by address, only neighbors can overlap: a plan's updates may have hundreds of arrays.
    spans.sort(key=lambda span: span[:3])
    for at, (_, end, number, writes, name, array) in enumerate(spans):
        for first, _, other_number, other_writes, other_name, other in spans[at + 1 :]:
            if first >= end:
                break
            # The same place exactly is what in-place operators want: each element is read before it
            # is written.
            right = number == other_number and _same_memory(array, other)
            # Their address ranges interleave row by row, but no element is in both.
            right = right or _side_by_side(array, other)
            if (writes or other_writes) and name != other_name and not right:
                return False
    return True


def _same_memory(a: Any, b: Any) -> bool:
    same = address(a) == address(b) and a.nbytes == b.nbytes
    both = a.flags.c_contiguous and b.flags.c_contiguous
    return same and (both or (a.shape == b.shape and a.strides == b.strides))


def _side_by_side(a: Any, b: Any) -> bool:
    """Whether both are columns of one matrix, and no column is in both."""
    if a.ndim != 2 or b.ndim != 2 or a.strides != b.strides or a.strides[1] != a.itemsize:
        return False
    row = a.strides[0]
    apart = (address(b) - address(a)) % row if row > 0 else 0
    return a.shape[1] * a.itemsize <= apart and apart + b.shape[1] * b.itemsize <= row
