"""Shortcut compilation: a request for many sequences is compiled for two, and the result expanded.

It is for requests that ask the same of every n = 0, 1, ..., N - 1. In every matrix of such a
computation the rows that differ in n alone lie at one distance, its stride: blocks of stride rows
with n = 0, as many with n = 1, and so on. So the place of every row among N sequences is known from
its place among two. Source: Kaldi's ExpandComputation (nnet-optimize-utils.cc).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .computation import Command, Computation, MatrixInfo, SubMatrix
from .compute.time_grid import precompute_indexes
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
        counts.add(int(io.indexes[-1, 0]) + 1)
        few.append(replace(io, indexes=_with_sequences(io.indexes, stride, _FEW)))
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
    blocks = indexes.reshape(-1, count, stride, 3)
    if not (blocks[..., 0] == np.arange(count)[:, None]).all():
        return False
    return bool((blocks[..., 1:] == blocks[:, :1, :, 1:]).all())


def _with_sequences(indexes: np.ndarray, stride: int, count: int) -> np.ndarray:
    """The same rows for `count` sequences, at the same stride."""
    before = int(indexes[-1, 0]) + 1
    blocks = indexes.reshape(-1, before, stride, 3)
    result = np.repeat(blocks[:, :1], count, axis=1)
    result[..., 0] = np.arange(count)[:, None]
    return result.reshape(-1, 3)


def expand(computation: Computation, count: int) -> Computation | None:
    """The computation for `count` sequences, from that for two; None where it is not regular."""
    try:
        return _Expander(computation, count).expanded()
    except _IrregularError:
        return None


class _IrregularError(Exception):
    """Rows of a computation do not lie as those of two equal sequences."""


class _Expander:
    def __init__(self, computation: Computation, count: int):
        self.before = computation
        self.count = count
        self._lists: dict[int, tuple[int, np.ndarray]] = {}
        strides = [1, *(self._list(matrix.indexes)[0] for matrix in computation.matrices[1:])]
        self._places: dict[tuple[int, ...], tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        row, rows = np.array([(s.row, s.rows) for s in computation.submatrices], np.int64).T
        stride = np.array([strides[s.matrix] for s in computation.submatrices])
        first, first_n, first_within = self._split(row, stride)
        last, last_n, last_within = self._split(row + rows - 1, stride)
        if first_n[1:].any() or (last_n[1:] != _FEW - 1).any():
            raise _IrregularError
        self.stride, self.row = stride, row
        self.new_row = first * count * stride + first_within
        end = (last * count + count - 1) * stride + last_within + 1
        self.new_rows = end - self.new_row
        self.new_row[0] = self.new_rows[0] = 0

    @staticmethod
    def _split(rows: np.ndarray, stride: np.ndarray) -> tuple[np.ndarray, ...]:
        """Rows of the computation for two: their blocks, their n, and the place within these."""
        block, within = np.divmod(rows, _FEW * stride)
        return block, within // stride, within % stride

    def _list(self, indexes: np.ndarray | None) -> tuple[int, np.ndarray]:
        """The stride of a list of indexes, and the list for all sequences; many share one list."""
        found = self._lists.get(id(indexes))
        if found is None:
            stride = 0 if indexes is None else n_stride(indexes)
            if indexes is None or not stride or indexes[-1, 0] != _FEW - 1:
                raise _IrregularError
            found = stride, _with_sequences(indexes, stride, self.count)
            self._lists[id(indexes)] = found
        return found

    def expanded(self) -> Computation:
        """See `expand`."""
        before = self.before
        result = replace(
            before,
            matrices=[before.matrices[0], *map(self._matrix, before.matrices[1:])],
            submatrices=[
                SubMatrix(s.matrix, row, rows, s.col, s.cols)
                for s, row, rows in zip(
                    before.submatrices, self.new_row.tolist(), self.new_rows.tolist(), strict=True
                )
            ],
            commands=[c if c.rows is None else self._command(c) for c in before.commands],
            precomputed=list(before.precomputed),
            step_indexes={},
        )
        self._precompute(result)
        return result

    def _matrix(self, matrix: MatrixInfo) -> MatrixInfo:
        indexes = self._list(matrix.indexes)[1]
        of = matrix
        return MatrixInfo(
            len(indexes), of.cols, of.contiguous, of.is_deriv, of.node, indexes=indexes
        )

    def _precompute(self, result: Computation) -> None:
        for command in result.commands:
            number = command.precomputed
            if command.type != "Propagate" or not number:
                continue
            sides = (self._list(indexes)[1] for indexes in self.before.step_indexes[command.step])
            component = result.topology.nodes[command.node].component
            result.precomputed[number] = precompute_indexes(component, *sides)

    # Row numbers

    def _command(self, command: Command) -> Command:
        place, n, known = self._target(command.target)
        rows = command.rows[place]  # type: ignore[index]
        if command.type.endswith("Multi"):
            there = known & (rows[:, 0] >= 0)
            moved = self._moved(rows[:, 0], rows[:, 1], n, there)
            rows = np.stack((rows[:, 0], moved), axis=1)
        elif command.type == "AddRowRanges":
            there = known & (rows[:, 1] > rows[:, 0])
            first = self._moved(command.source, rows[:, 0], n, there)
            last = self._moved(command.source, rows[:, 1] - 1, n, there)
            rows = np.stack((first, last + 1), axis=1)
        else:
            there = known & (rows >= 0)
            rows = self._moved(command.source, rows, n, there)
        rows[~there] = -1
        return command.changed(rows=rows.astype(np.int32))

    def _target(self, submatrix: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For the new rows of a sub-matrix: the old row with n = 0, their n, and if it is there."""
        stride, row = int(self.stride[submatrix]), int(self.row[submatrix])
        rows = self.before.submatrices[submatrix].rows
        key = stride, row, rows
        found = self._places.get(key)
        if found is None:
            new = self.new_row[submatrix] + np.arange(self.new_rows[submatrix])
            block, within = np.divmod(new, self.count * stride)
            old = block * _FEW * stride + within % stride - row
            known = (old >= 0) & (old < rows)
            found = self._places[key] = np.where(known, old, 0), within // stride, known
        return found

    def _moved(
        self, submatrix: int | np.ndarray, rows: np.ndarray, n: np.ndarray, there: np.ndarray
    ) -> np.ndarray:
        """The new numbers of the rows n that stand for old rows with n = 0; any where not there."""
        stride = self.stride[submatrix]
        block, old_n, within = self._split(rows + self.row[submatrix], stride)
        if (old_n[there] != 0).any():
            raise _IrregularError
        return (block * self.count + n) * stride + within - self.new_row[submatrix]
