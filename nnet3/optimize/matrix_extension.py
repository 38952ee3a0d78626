"""Copies of all but the last rows of a matrix become copies of the whole of it.

The target's matrix gets the missing rows, which nothing else looks at. Then the two can be merged,
as happens where a TDNN layer reads its input at several offsets.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..compiler.analyze import BOUNDS, SIZING
from ..compiler.command import OF_MANY, Command
from ..compiler.computation import Computation, MatrixInfo, SubMatrix
from ..index.indexes import NO_TIME, LazyIndexes
from .options import OptimizeOptions

LEAST_SHARE = 0.8
"""Of a matrix's rows that must have been copied: extending costs memory."""


def extend_matrices(computation: Computation, options: OptimizeOptions) -> Computation:
    """Extend copies of most rows of a matrix to copies of all; they must end with their target's
    matrix.
    """
    result = computation.copy()
    submatrices, matrices = result.submatrices, result.matrices
    bound = None  # not asked for yet
    before: dict[int, int] = {}  # of the matrices that have grown, the rows that they had
    for number, command in enumerate(computation.commands):
        if command.type != "MatrixCopy" or command.alpha != 1:
            continue
        home, row, rows, col, cols = submatrices[command.source]
        whole = matrices[home]
        if rows == whole.rows or row or col or cols != whole.cols:
            continue
        # A source that has grown is measured by the rows that it had: nothing reads the others.
        if rows < LEAST_SHARE * before.get(home, whole.rows):
            continue
        matrix, row, rows, col, width = submatrices[command.target]
        bound = _bound(computation) if bound is None else bound
        end = before.get(matrix, matrices[matrix].rows)
        if matrix == home or matrix in bound or row + rows != end:
            continue
        if row + whole.rows > matrices[matrix].rows:
            before[matrix] = end
            matrices[matrix] = _grown(matrices[matrix], row + whole.rows)
        last = len(submatrices)
        result.commands[number] = Command.matrix_copy(last, last + 1)
        submatrices.append(SubMatrix(matrix, row, whole.rows, col, width))
        submatrices.append(SubMatrix(home, 0, whole.rows, 0, cols))
    if before:
        _of_whole_matrices(result, before)
    return result if len(submatrices) > len(computation.submatrices) else computation


def _bound(computation: Computation) -> set[int]:
    """The matrices of inputs and outputs, and those with memory commands of their own."""
    submatrices = computation.submatrices
    bound = BOUNDS | SIZING
    listed = [c for c in computation.commands if c.type in bound]
    return {submatrices[s].matrix for c in listed for s in (c.target, c.source)}


def _grown(matrix: MatrixInfo, rows: int) -> MatrixInfo:
    """A matrix with more rows: their indexes repeat the last rows', without a time."""
    listed = matrix.listed
    extra = rows - matrix.rows
    if listed is None:
        return matrix._replace(rows=rows)

    def indexes() -> np.ndarray:
        grown = np.concatenate((listed.indexes, listed.indexes[-extra:]))
        grown[-extra:, 1] = NO_TIME
        return grown

    sequences = listed.sequences
    if sequences and extra % sequences:
        sequences = 0
    return matrix._replace(rows=rows, listed=LazyIndexes(rows, sequences, indexes))


def _of_whole_matrices(computation: Computation, grown: Iterable[int]) -> None:
    """Let the commands that take and give back memory name the new wholes of grown matrices."""
    submatrices = computation.submatrices
    wholes = {}
    for matrix in grown:
        info = computation.matrices[matrix]
        wholes[matrix] = len(submatrices)
        submatrices.append(SubMatrix(matrix, 0, info.rows, 0, info.cols))
    for number, command in enumerate(computation.commands):
        if command.type in OF_MANY:
            rows = [wholes.get(submatrices[s][0], s) for s in command.of_many()]
            computation.commands[number] = command.changed(rows=np.array(rows))
