"""Shortcut compilation: a request for many sequences is compiled for two, and the result expanded.

It is for requests that ask the same of every n = 0, 1, ..., N - 1. In every matrix of such a
computation the rows that differ in n alone lie at one distance, its stride: blocks of stride rows
with n = 0, as many with n = 1, and so on. So the place of every row among N sequences is known from
its place among two. Source: Kaldi's ExpandComputation (nnet-optimize-utils.cc).
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...framework.base.sequence import repeated
from ..components.base.precompute import precompute_indexes
from ..graph.request import ComputationRequest, IoSpecification
from ..index.indexes import Columns, IndexList, distinct
from ..index.sequences import ExpandedIndexes, n_stride
from .analyze import ROWS_MULTI
from .command import OF_MANY, Command
from .computation import Computation, MatrixInfo, SubMatrix, matrices_of, submatrices_of

_FEW = 2  # sequences that are compiled
_END = np.array((0, 1), np.int32)  # from a first and a last row to a range
_PAIRS = ROWS_MULTI | {"AddRowRanges"}  # types of commands whose lists have two columns


def decompose(request: ComputationRequest) -> tuple[ComputationRequest, int] | None:
    """The request for two sequences, and how many there are; None where they are not all alike."""
    counts = set()
    few = []
    for io in (*request.inputs, *request.outputs):
        count = int(io.indexes[-1, 0]) + 1 if len(io.indexes) else 0
        if count <= _FEW:
            return None
        stride = n_stride(io.indexes)
        if not stride:
            return None
        counts.add(count)
        part = copy(io)  # whose rows need not be looked at again
        part.indexes = io.indexes.reshape(-1, count, stride, 3)[:, :_FEW].reshape(-1, 3)
        few.append(part)
    if len(counts) != 1:
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


class _Place(NamedTuple):
    """Rows of a matrix: the first one, and how many."""

    row: int
    rows: int


class _Source(NamedTuple):
    """Where a list's row numbers, of a sub-matrix for two sequences, are among all.

    Attributes:
        row, new_row: the sub-matrix's first row in its matrix, for two and for all sequences.
        stride: rows between one sequence and the next.
        span, new_span: rows of a block, for two and for all sequences.
    """

    row: Any
    new_row: Any
    stride: Any
    span: Any
    new_span: Any


class _IrregularError(Exception):
    """The rows of a matrix are not in the order of two equal sequences."""


class _Expander:
    """Attributes:
    lists: the id of the list of all sequences' indexes, by the id of the list of two sequences'.
    strides: of the lists of all matrices.
    n: of all sequences, [count, 1, 1].
    places: of sub-matrices, by stride, row and number of rows: the new row and number of rows.
    submatrices: the new ones.
    """

    def __init__(self, computation: Computation, count: int):
        self.before = computation
        self.count = count
        self.lists: dict[int, ExpandedIndexes] = {}
        self.strides = [1]
        self.n = np.arange(count, dtype=np.int32)[:, None, None]
        self.places: dict[tuple[int, int, int], _Place] = {}

    def expanded(self) -> Computation:
        """See `expand`."""
        before = self.before
        result = Computation(
            before.topology,
            self._matrices(),
            self._submatrices(),
            list(before.commands),
            self._precomputed(),
            need_model_derivative=before.need_model_derivative,
        )
        self.submatrices = result.submatrices
        self._move_rows(result.commands)
        return result

    def _matrices(self) -> list[MatrixInfo]:
        first, *matrices = self.before.matrices
        wide = [self.lists.get(id(m.listed)) or self._expand_list(m.listed) for m in matrices]
        self.strides += [each.stride for each in wide]
        moved = matrices_of(
            (w.size, m.cols, m.contiguous, m.is_deriv, m.node, w)
            for m, w in zip(matrices, wide, strict=True)
        )
        return [first._replace(rows=0, listed=None), *moved]

    def _expand_list(self, few: IndexList | None) -> ExpandedIndexes:
        """A list for all sequences."""
        if few is None or not few.size or few.size % _FEW:
            raise _IrregularError
        stride = 1
        within = None
        if few.sequences != _FEW:
            stride = n_stride(few.indexes)
            if not stride or few.indexes[-1, 0] != _FEW - 1:
                raise _IrregularError
        elif isinstance(few, Columns) and few.within is not None:
            whole, begin = few.within
            if id(whole) not in self.lists:
                self.lists[id(whole)] = ExpandedIndexes(whole, 1, self.count)
            within = self.lists[id(whole)], begin // _FEW * self.count
        wide = self.lists[id(few)] = ExpandedIndexes(few, stride, self.count, within)
        return wide

    def _submatrices(self) -> list[SubMatrix]:
        strides = self.strides
        places = self.places
        count = self.count
        moved = []
        for matrix, row, rows, col, cols in self.before.submatrices:
            stride = strides[matrix]
            if stride == 1 and not (row & 1 or rows & 1):  # n innermost, as mostly
                moved.append((matrix, row // _FEW * count, rows // _FEW * count, col, cols))
                continue
            key = stride, row, rows
            place = places.get(key) or self._place(*key)
            moved.append((matrix, place.row, place.rows, col, cols))
        return submatrices_of(moved)

    def _place(self, stride: int, row: int, rows: int) -> _Place:
        """Rows with n = 0 stay in their block; those with n = 1 go to the last n of theirs."""
        span = _FEW * stride
        end = row + rows
        if rows and (row % span >= stride or (end - 1) % span < stride):
            raise _IrregularError
        more = (self.count - _FEW) * stride
        new_row = row + row // span * more
        place = _Place(new_row, end + -(-end // span) * more - new_row)
        self.places[stride, row, rows] = place
        return place

    def _precomputed(self) -> list[Any]:
        before = self.before
        nodes = before.topology.nodes
        if len(before.precomputed) != len(before.precomputed_from) + 1:
            raise _IrregularError
        steps = []
        for node, *sides in before.precomputed_from:
            wide = [self.lists.get(id(few)) or self._expand_list(few) for few in sides]
            steps.append((nodes[node].component, *wide))
        return [None, *precompute_indexes(steps)]

    # Row numbers

    def _move_rows(self, commands: list[Command]) -> None:
        """Replace the commands that have lists of rows; all commands of a kind at once."""
        kinds: dict[tuple[str, int], list[int]] = {}
        for number in [number for number, c in enumerate(commands) if c.rows is not None]:
            command = commands[number]
            if command.type in OF_MANY:  # they list sub-matrices, whose numbers stay
                continue
            kind = command.type if command.type in _PAIRS else "AddRows"
            stride = self.strides[self.submatrices[command.target].matrix]
            kinds.setdefault((kind, stride), []).append(number)
        for (kind, stride), numbers in kinds.items():
            listed = [self._blocks(commands[number], stride) for number in numbers]
            sources = [commands[number].source for number in numbers]
            moved = self._moved(kind, stride, listed, sources)
            begin = 0
            for number, few in zip(numbers, listed, strict=True):
                target = self.submatrices[commands[number].target]
                first = begin + target.row % (self.count * stride)
                commands[number] = commands[number].changed(rows=moved[first : first + target.rows])
                begin += len(few) // _FEW * self.count

    def _blocks(self, command: Command, stride: int) -> np.ndarray:
        """A command's list for the whole of all blocks that its target lies in; -1: nothing."""
        listed = command.rows
        assert listed is not None
        target = self.before.submatrices[command.target]
        before = target.row % (_FEW * stride)
        after = -(target.row + target.rows) % (_FEW * stride)
        if not before and not after:
            return listed
        nothing = np.full((max(before, after), *listed.shape[1:]), -1, listed.dtype)
        return np.concatenate((nothing[:before], listed, nothing[:after]))

    def _moved(
        self, kind: str, stride: int, listed: list[np.ndarray], sources: list[int]
    ) -> np.ndarray:
        """The lists of commands of one kind, with targets of one stride, one after the other.

        Of the rows in a block those with n = 0 show where the others are.
        """
        few = np.concatenate(listed)
        rows = few = few.reshape(len(few) // (_FEW * stride), _FEW, stride, -1)[:, :1]
        missing = few[..., :1] < 0
        if kind in ROWS_MULTI:
            rows = few[..., 1:]
            numbered = distinct(few[..., 0].ravel())
            sources = np.maximum(numbered, 0).tolist()
        elif kind == "AddRowRanges":  # whose ends are the ends of their last rows
            rows = few - _END
            missing = rows[..., 1:] < rows[..., :1]
        each = [self._source(s) for s in sources]
        if len(set(each)) == 1:  # as mostly
            source = each[0]
        else:
            if kind in ROWS_MULTI:
                which = np.searchsorted(numbered, few[..., 0].ravel())
            else:
                which = repeated(np.arange(len(sources)), [len(one) // _FEW for one in listed])
            source = _Source(*np.array(each, np.int32).T[:, which.reshape(-1, 1, stride, 1)])
        block, within = np.divmod(rows + source.row, source.span)
        is_other = within >= source.stride
        some_missing = np.count_nonzero(missing)
        if some_missing:
            is_other &= ~missing
        if np.count_nonzero(is_other):
            raise _IrregularError
        first = block * source.new_span + within - source.new_row
        if kind == "AddRowRanges":
            first += _END
        wide = np.empty((len(few), self.count, *few.shape[2:]), np.int32)
        moved = wide[..., 1:] if kind in ROWS_MULTI else wide
        np.add(first, self.n * source.stride, out=moved)
        if some_missing:
            np.copyto(moved, -1, where=missing)
        if kind in ROWS_MULTI:
            wide[..., :1] = few[..., :1]
        return wide.reshape((-1, 2) if kind in _PAIRS else -1)

    def _source(self, s: int) -> _Source:
        """The sub-matrix that rows are read from."""
        after = self.submatrices[s]
        stride = self.strides[after.matrix]
        row = self.before.submatrices[s].row
        return _Source(row, after.row, stride, _FEW * stride, self.count * stride)
