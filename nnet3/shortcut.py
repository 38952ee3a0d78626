"""Shortcut compilation: a request for many sequences is compiled for two, and the result expanded.

It is for requests that ask the same of every n = 0, 1, ..., N - 1. In every matrix of such a
computation the rows that differ in n alone lie at one distance, its stride: blocks of stride rows
with n = 0, as many with n = 1, and so on. So the place of every row among N sequences is known from
its place among two. Source: Kaldi's ExpandComputation (nnet-optimize-utils.cc).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from .analyze import ROWS_MULTI
from .computation import Command, Computation, matrices_of, submatrices_of
from .compute.time_grid import precompute_indexes
from .indexes import Columns, IndexList
from .request import ComputationRequest, IoSpecification
from .sequences import Widened, n_stride, with_sequences

_FEW = 2  # sequences that are compiled
_PAIRS = ROWS_MULTI | {"AddRowRanges"}  # types of commands whose lists have two columns


def decompose(request: ComputationRequest) -> tuple[ComputationRequest, int] | None:
    """The request for two sequences, and how many there are; None where they are not all alike."""
    counts = set()
    few = []
    for io in (*request.inputs, *request.outputs):
        stride = n_stride(io.indexes)
        if not stride:
            return None
        count = int(io.indexes[-1, 0]) + 1
        counts.add(count)
        part = copy(io)  # whose rows need not be looked at again
        part.indexes = with_sequences(io.indexes, stride, count, _FEW)
        few.append(part)
    if len(counts) != 1 or min(counts) <= _FEW:
        return None
    inputs: list[IoSpecification] = few[: len(request.inputs)]
    outputs: list[IoSpecification] = few[len(request.inputs) :]
    return replace(request, inputs=inputs, outputs=outputs), counts.pop()


def expand(computation: Computation, count: int) -> Computation | None:
    """The computation for `count` sequences, from that for two; None where it is not regular."""
    try:
        return _Expander(computation, count).expanded()
    except _IrregularError:
        return None


class _IrregularError(Exception):
    """Rows of a computation do not lie as those of two equal sequences."""


class _Expander:
    """Attributes, those of sub-matrices being arrays with an entry for each:

    strides: of the lists of every matrix.
    matrices: the new ones.
    stride: of the matrix of a sub-matrix.
    row: the first, as it was.
    new_row, new_rows: the first, and how many, as they will be.
    """

    def __init__(self, computation: Computation, count: int):
        self.before = computation
        self.count = count
        self._lists: dict[int, Widened] = {}  # by the id of the list for two
        _, cols, contiguous, is_deriv, node, listed = zip(*computation.matrices, strict=True)
        wide = [self._lists.get(id(few)) or self._widened(few) for few in listed[1:]]
        self.strides = [1, *(each.stride for each in wide)]
        sizes = [0, *(each.size for each in wide)]
        described = zip(sizes, cols, contiguous, is_deriv, node, [None, *wide], strict=True)
        self.matrices = matrices_of(described)
        self.columns = matrix, row, rows, _, _ = list(zip(*computation.submatrices, strict=True))
        self.row, last = _integers(row), _integers(rows)
        last += self.row - 1
        self.stride = np.array(self.strides)[_integers(matrix)]
        # Rows with n = 0 stay in their block; those with n = 1 go to the last n of theirs.
        span, more = _FEW * self.stride, (count - _FEW) * self.stride
        first, end = self.row // span, last // span + 1
        regular = (self.row - first * span < self.stride) & (last - end * span >= -self.stride)
        if not regular[1:].all():
            raise _IrregularError
        self.new_row = self.row + first * more
        self.new_rows = last + 1 + end * more - self.new_row
        self.new_row[0] = self.new_rows[0] = 0

    def _widened(self, few: IndexList | None) -> Widened:
        """A list for all sequences."""
        if few is None or not few.size or few.size % _FEW:
            raise _IrregularError
        stride, within = 1, None
        if few.sequences != _FEW:
            stride = n_stride(few.indexes)
            if not stride or few.indexes[-1, 0] != _FEW - 1:
                raise _IrregularError
        elif isinstance(few, Columns) and few.within is not None:
            whole, begin = few.within
            if id(whole) not in self._lists:
                self._lists[id(whole)] = Widened(whole, 1, self.count)
            within = self._lists[id(whole)], begin // _FEW * self.count
        wide = self._lists[id(few)] = Widened(few, stride, self.count, within)
        return wide

    def expanded(self) -> Computation:
        """See `expand`."""
        before = self.before
        self.columns[1:3] = self.new_row.tolist(), self.new_rows.tolist()
        result = replace(
            before,
            matrices=self.matrices,
            submatrices=submatrices_of(zip(*self.columns, strict=True)),
            commands=list(before.commands),
            precomputed=[None, *self._precomputed()],
            precomputed_from=[],
        )
        self._move_rows(result)
        return result

    def _precomputed(self) -> list[Any]:
        nodes, computation = self.before.topology.nodes, self.before
        if len(computation.precomputed) != len(computation.precomputed_from) + 1:
            raise _IrregularError
        steps = []
        for node, *sides in computation.precomputed_from:
            wide = [self._lists.get(id(few)) or self._widened(few) for few in sides]
            steps.append((nodes[node].component, *wide))
        return precompute_indexes(steps)

    # Row numbers

    def _move_rows(self, result: Computation) -> None:
        """Replaces the commands that have lists of rows; those of one kind are moved together."""
        commands, submatrices = result.commands, result.submatrices
        kinds: dict[tuple[str, int, int], list[int]] = {}
        for number, c in enumerate(commands):
            if c.rows is not None:
                kind = c.type if c.type in _PAIRS else "AddRows"
                target, source = submatrices[c.target].matrix, submatrices[c.source].matrix
                key = kind, self.strides[target], self.strides[source]
                kinds.setdefault(key, []).append(number)
        for (kind, stride, _), numbers in kinds.items():
            listed = [self._blocks(commands[number], stride) for number in numbers]
            moved = self._moved(
                kind, stride, [commands[number].source for number in numbers], listed
            )
            begin = 0
            for number, few in zip(numbers, listed, strict=True):
                _, row, rows, _, _ = submatrices[commands[number].target]
                first = begin + row % (self.count * stride)
                commands[number] = commands[number].changed(rows=moved[first : first + rows])
                begin += len(few) // _FEW * self.count

    def _blocks(self, command: Command, stride: int) -> np.ndarray:
        """A command's list for the whole of all blocks that its target lies in; -1: nothing."""
        listed = command.rows
        assert listed is not None
        _, row, rows, _, _ = self.before.submatrices[command.target]
        before, behind = row % (_FEW * stride), -(row + rows) % (_FEW * stride)
        if not before and not behind:
            return listed
        nothing = np.full((max(before, behind), *listed.shape[1:]), -1, listed.dtype)
        return np.concatenate((nothing[:before], listed, nothing[:behind]))

    def _moved(
        self, kind: str, stride: int, sources: list[int], listed: list[np.ndarray]
    ) -> np.ndarray:
        """Lists of one kind, for targets of one stride and sources of one: all one after another.

        Of the rows in a block those with n = 0 tell where the others are.
        """
        few = np.concatenate(listed)
        few = few.reshape(len(few) // (_FEW * stride), _FEW, stride, -1)[:, 0]
        shift: Any = 0
        if kind in ROWS_MULTI:
            subs, rows = few[..., :1], few[..., 1:]
            there = subs >= 0
        else:
            subs = np.repeat(sources, [len(rows) // _FEW for rows in listed])
            subs, rows = subs.reshape(-1, stride, 1), few
            there = rows >= 0
            if kind == "AddRowRanges":  # whose ends are those of their last rows
                there, shift = few[..., 1:] > few[..., :1], np.array((0, 1), few.dtype)
        strides, rows = self.stride[subs], self.row[subs] + (rows - shift)
        if (strides == strides[0, 0]).all():
            strides = strides[:1, :1]
        block = rows // (_FEW * strides)
        if (there & (rows - block * (_FEW * strides) >= strides)).any():
            raise _IrregularError
        rows += block * ((self.count - _FEW) * strides) - self.new_row[subs] + shift
        wide = np.empty((len(few), self.count, stride, few.shape[-1]), np.int32)
        moved = wide[..., -rows.shape[-1] :]
        each = (
            strides.astype(np.int32)[:, None] * np.arange(self.count, dtype=np.int32)[:, None, None]
        )
        np.add(rows.astype(np.int32)[:, None], each, out=moved)
        if not there.all():
            np.copyto(moved, -1, where=~there[:, None])
            subs = np.where(there, subs, -1)
        if kind in ROWS_MULTI:
            wide[..., :1] = subs[:, None]
        return wide.ravel() if few.shape[-1] == 1 else wide.reshape(-1, 2)


def _integers(values: Sequence[int]) -> np.ndarray:
    return np.fromiter(values, np.int64, len(values))
