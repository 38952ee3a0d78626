"""Shortcut compilation: a request for many sequences is compiled for two, and the result expanded.

It is for requests that ask the same of every n = 0, 1, ..., N - 1. In every matrix of such a
computation the rows that differ in n alone lie at one distance, its stride: blocks of stride rows
with n = 0, as many with n = 1, and so on. So the place of every row among N sequences is known from
its place among two. Source: Kaldi's ExpandComputation (nnet-optimize-utils.cc).
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cached_property
from itertools import chain

import numpy as np

from .computation import Command, Computation, MatrixInfo, submatrices_of
from .compute.time_grid import precompute_indexes
from .indexes import NO_TIME, Columns, distinct
from .request import ComputationRequest, IoSpecification

_FEW = 2  # sequences that are compiled


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
        part.indexes = _with_sequences(io.indexes, stride, count, _FEW)
        few.append(part)
    if len(counts) != 1 or min(counts) <= _FEW:
        return None
    inputs: list[IoSpecification] = few[: len(request.inputs)]
    outputs: list[IoSpecification] = few[len(request.inputs) :]
    return replace(request, inputs=inputs, outputs=outputs), counts.pop()


def n_stride(indexes: np.ndarray) -> int:
    """The distance of rows that differ in n alone; 0 where it is not one for all rows.

    Args:
        indexes: int32 [rows, 3]: n, t, x, with n = 0 .. N - 1 and N the last row's n + 1.
    """
    rows = len(indexes)
    count = int(indexes[-1, 0]) + 1 if rows else 0
    if count < 2 or rows % count or indexes[0, 0]:
        return 0
    size = rows // count
    second = np.array([1, *indexes[0, 1:]], indexes.dtype)
    for stride in dict.fromkeys((1, size)):
        if (indexes[stride] == second).all() and _is_stride(indexes, stride, count):
            return stride
    for stride in np.flatnonzero((indexes[: size + 1] == second).all(axis=1)).tolist():
        if _is_stride(indexes, stride, count):
            return stride
    return 0


def _is_stride(indexes: np.ndarray, stride: int, count: int) -> bool:
    if len(indexes) % (stride * count):
        return False
    n, t, x = (np.ascontiguousarray(part).reshape(-1, count, stride) for part in indexes.T)
    if not (n == np.arange(count)[:, None]).all():
        return False
    return bool((t == t[:, :1]).all() and (x == x[:, :1]).all())


def _with_sequences(indexes: np.ndarray, stride: int, before: int, count: int) -> np.ndarray:
    """The rows of `before` sequences for `count` of them, at the same stride."""
    blocks = indexes.reshape(-1, before, stride, 3)
    result = np.empty((len(blocks), count, stride, 3), indexes.dtype)
    result[..., 0] = np.arange(count, dtype=indexes.dtype)[:, None]
    for column in (1, 2):  # in turn, as loops over three numbers are slow
        result[..., column] = blocks[:, :1, :, column]
    return result.reshape(-1, 3)


def expand(computation: Computation, count: int) -> Computation | None:
    """The computation for `count` sequences, from that for two; None where it is not regular."""
    try:
        return _Expander(computation, count).expanded()
    except _IrregularError:
        return None


class _IrregularError(Exception):
    """Rows of a computation do not lie as those of two equal sequences."""


class _Many(Columns):
    """The columns of a list for many sequences; its times and images follow from one of them."""

    def __init__(self, indexes: np.ndarray, few: np.ndarray):
        super().__init__(*indexes.T)
        self.indexes = indexes
        self._one = few[few[:, 0] == 0]

    @cached_property
    def times(self) -> np.ndarray:
        """See `Columns`."""
        t = self._one[:, 1]
        if t[0] != NO_TIME and (t[1:] > t[:-1]).all():
            return t.astype(np.int64)
        return Columns.of(self._one).times

    @cached_property
    def images(self) -> np.ndarray:
        """See `Columns`."""
        x = distinct(self._one[:, 2])
        images = np.empty((int(self.indexes[-1, 0]) + 1, len(x), 2), np.int32)
        images[..., 0] = np.arange(len(images))[:, None]
        images[..., 1] = x
        return images.reshape(-1, 2)


class _Expander:
    """Attributes, each with an entry for every sub-matrix, but for the first three:

    n: the numbers of the sequences, int32 [count, 1].
    lists: by the id of a list of indexes, its stride and the list for all sequences.
    table: the new sub-matrices.
    stride: of its matrix.
    row, rows: as it was.
    first, end: the blocks of its matrix that it lies in.
    new_row, new_rows: as it will be.
    """

    def __init__(self, computation: Computation, count: int):
        self.before = computation
        self.count = count
        self.n = np.arange(count, dtype=np.int32)[:, None]
        self.lists: dict[int, tuple[int, np.ndarray]] = {}
        self._widen()
        strides = [1, *[self.lists[id(m.indexes)][0] for m in computation.matrices[1:]]]
        self.table = np.fromiter(chain.from_iterable(computation.submatrices), np.int64)
        self.table = self.table.reshape(-1, 5)
        self.row, self.rows = row, rows = self.table[:, 1].copy(), self.table[:, 2].copy()
        self.stride = stride = np.array(strides)[self.table[:, 0]]
        self.first, first_n, first_within = self._split(row, stride)
        last, last_n, last_within = self._split(row + rows - 1, stride)
        if first_n[1:].any() or (last_n[1:] != _FEW - 1).any():
            raise _IrregularError
        self.end = last + 1
        self.new_row = self.first * count * stride + first_within
        self.new_rows = (last * count + count - 1) * stride + last_within + 1 - self.new_row
        self.new_row[0] = self.new_rows[0] = 0
        self.table[:, 1], self.table[:, 2] = self.new_row, self.new_rows

    def _widen(self) -> None:
        """Finds the stride of every list of indexes, and makes the list for all sequences."""
        listed = [matrix.indexes for matrix in self.before.matrices[1:]]
        listed += chain.from_iterable(self.before.step_indexes.values())
        lists = {id(indexes): indexes for indexes in listed}
        if any(indexes is None or not len(indexes) or len(indexes) % _FEW for indexes in listed):
            raise _IrregularError
        # Mostly all have the stride 1. So much is seen, and done, for all of them at once.
        pairs = np.concatenate(list(lists.values())).reshape(-1, _FEW, 3)
        counts = [len(indexes) // _FEW for indexes in lists.values()]
        starts = np.cumsum([0, *counts[:-1]])
        (n, t, x), (other_n, other_t, other_x) = pairs.transpose(1, 2, 0)
        regular = (n == 0) & (other_n == 1) & (t == other_t) & (x == other_x)
        regular = np.logical_and.reduceat(regular, starts)
        wide = _with_sequences(pairs.reshape(-1, 3), 1, _FEW, self.count)
        wide = wide.reshape(-1, self.count, 3)
        each = zip(lists.items(), regular.tolist(), starts.tolist(), counts, strict=True)
        for (key, indexes), is_regular, start, size in each:
            if is_regular:
                self.lists[key] = 1, wide[start : start + size].reshape(-1, 3)
                continue
            stride = n_stride(indexes)
            if not stride or indexes[-1, 0] != _FEW - 1:
                raise _IrregularError
            self.lists[key] = stride, _with_sequences(indexes, stride, _FEW, self.count)

    @staticmethod
    def _split(rows: np.ndarray, stride: int | np.ndarray) -> tuple[np.ndarray, ...]:
        """Rows of the computation for two: their blocks, their n, and the place within these."""
        block, within = np.divmod(rows, _FEW * stride)
        return block, within // stride, within % stride

    def expanded(self) -> Computation:
        """See `expand`."""
        before = self.before
        result = replace(
            before,
            matrices=[before.matrices[0], *map(self._matrix, before.matrices[1:])],
            submatrices=submatrices_of(self.table.tolist()),
            commands=list(before.commands),
            precomputed=list(before.precomputed),
            step_indexes={},
        )
        self._precompute(result)
        self._move_rows(result.commands)
        return result

    def _matrix(self, matrix: MatrixInfo) -> MatrixInfo:
        indexes, of = self.lists[id(matrix.indexes)][1], matrix
        return MatrixInfo(len(indexes), of.cols, of.contiguous, of.is_deriv, of.node, indexes)

    def _precompute(self, result: Computation) -> None:
        if len(result.precomputed) == 1:
            return
        many: dict[int, Columns] = {}  # by the id of the list for two
        for few in chain.from_iterable(self.before.step_indexes.values()):
            if id(few) not in many:
                many[id(few)] = _Many(self.lists[id(few)][1], few)
        for command in result.commands:
            number = command.precomputed
            if number and command.type == "Propagate":
                sides = [many[id(few)] for few in self.before.step_indexes[command.step]]
                component = result.topology.nodes[command.node].component
                result.precomputed[number] = precompute_indexes(component, *sides)

    # Row numbers

    def _move_rows(self, commands: list[Command]) -> None:
        """Replaces the commands that have lists of rows; rows of all lists are moved together."""
        few = {i: self._few_rows(c) for i, c in enumerate(commands) if c.rows is not None}
        if not few:
            return
        subs, rows, there = map(np.concatenate, zip(*few.values(), strict=True))
        first, step = self._moved(subs, rows, there)
        subs = np.where(there, subs, -1).astype(np.int32)
        begin = 0
        for number, (mine, _, _) in few.items():
            command, part = commands[number], slice(begin, begin + len(mine))
            begin += len(mine)
            moved = self._wide(command, first[part], step[part])
            if command.type.endswith("Multi"):
                listed = self._wide(command, subs[part], np.zeros_like(subs[part]))
                moved = np.concatenate((listed, moved))
            elif command.type == "AddRowRanges":
                moved[1] += moved[0] >= 0  # the last row becomes the end
            listed = moved[0] if len(moved) == 1 else np.ascontiguousarray(moved.T)
            commands[number] = command.changed(rows=listed)

    def _few_rows(self, command: Command) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What a command reads for the rows with n = 0 of the blocks that its target lies in.

        Returns:
            Sub-matrices, rows in them, and whether they are there: for each block its rows in turn;
            of ranges the first rows of all and then the last rows.
        """
        target, stride = command.target, int(self.stride[command.target])
        if stride == 1:
            rows, inside = command.rows[::_FEW], True  # type: ignore[index]
        else:
            starts = np.arange(self.first[target], self.end[target]) * (_FEW * stride)
            place = ((starts - self.row[target])[:, None] + np.arange(stride)).ravel()
            inside = (place >= 0) & (place < self.rows[target])
            rows = command.rows[np.where(inside, place, 0)]  # type: ignore[index]
        if command.type.endswith("Multi"):
            return rows[:, 0], rows[:, 1], inside & (rows[:, 0] >= 0)
        if command.type == "AddRowRanges":
            there = inside & (rows[:, 1] > rows[:, 0])
            rows = np.concatenate((rows[:, 0], rows[:, 1] - 1))
            there = np.concatenate((there, there))
        else:
            there = inside & (rows >= 0)
        return np.full(len(rows), command.source, np.int32), rows, there

    def _moved(
        self, subs: np.ndarray, rows: np.ndarray, there: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The new numbers of rows with n = 0, and how far from each other those with the next n
        are; -1 and 0 where a row is not there."""
        stride = self.stride[subs]
        block, n, within = self._split(rows + self.row[subs], stride)
        if (n[there] != 0).any():
            raise _IrregularError
        first = block * (self.count * stride) + within - self.new_row[subs]
        first, step = np.where(there, first, -1), np.where(there, stride, 0)
        return first.astype(np.int32), step.astype(np.int32)

    def _wide(self, command: Command, first: np.ndarray, step: np.ndarray) -> np.ndarray:
        """The numbers [columns, rows of the target] from those with n = 0 and their steps."""
        target = command.target
        columns, stride = 2 if command.type == "AddRowRanges" else 1, int(self.stride[target])
        shape = columns, -1, 1, stride
        # Mostly all steps are equal; then they are multiplied once and not for each row.
        step = step[:1] if (step == step[0]).all() else step.reshape(shape)
        wide = (first.reshape(shape) + step * self.n).reshape(columns, -1)
        skipped = int(self.new_row[target]) - int(self.first[target]) * self.count * stride
        return wide[:, skipped : skipped + int(self.new_rows[target])]
