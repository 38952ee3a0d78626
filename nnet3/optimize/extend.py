"""Copies of all but the last rows of a matrix become copies of the whole of it.

The target's matrix gets the missing rows, which nothing else looks at. Then the two can be merged,
as happens where a TDNN layer reads its input at several offsets.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..computation import Command, Computation, SubMatrix
from ..indexes import NO_TIME
from .options import OptimizeOptions

LEAST_SHARE = 0.8
"""Of a matrix's rows that must have been copied: extending costs memory."""

_OF_WHOLE = frozenset({"AllocMatrix", "DeallocMatrix", "SetConst"})


def extend_matrices(computation: Computation, options: OptimizeOptions) -> Computation:
    """See above; only copies to the end of their matrix can be extended."""
    result = computation.copy()
    submatrices, matrices = result.submatrices, result.matrices
    bound = None
    changed: dict[int, int] = {}  # matrix -> its rows before
    for number, command in enumerate(computation.commands):
        if command.type != "MatrixCopy" or command.alpha != 1:
            continue
        home, row, rows, col, cols = submatrices[command.source]
        whole = matrices[home]
        if rows == whole.rows or row or col or cols != whole.cols:
            continue
        if rows < LEAST_SHARE * changed.get(home, whole.rows):
            continue
        target = submatrices[command.target]
        matrix = target.matrix
        bound = _bound(computation) if bound is None else bound
        end = changed.get(matrix, matrices[matrix].rows)
        if matrix == home or matrix in bound or target.row + target.rows != end:
            continue
        changed[matrix] = end
        _grow(result, matrix, target.row + whole.rows)
        larger = Command("MatrixCopy", len(submatrices), len(submatrices) + 1)
        submatrices.append(SubMatrix(matrix, target.row, whole.rows, target.col, target.cols))
        submatrices.append(SubMatrix(home, 0, whole.rows, 0, cols))
        result.commands[number] = larger
    if changed:
        _of_whole_matrices(result, changed)
    return result


def _bound(computation: Computation) -> set[int]:
    """The matrices that the caller gives or takes."""
    return {
        computation.submatrices[c.target].matrix
        for c in computation.commands
        if c.type in ("AcceptInput", "ProvideOutput")
    }


def _grow(computation: Computation, number: int, rows: int) -> None:
    """More rows for a matrix. They say of themselves what those before them say, but no time."""
    matrix = computation.matrices[number]
    extra = rows - matrix.rows
    if extra <= 0:
        return
    indexes = matrix.indexes
    if indexes is not None:
        indexes = np.concatenate((indexes, indexes[-extra:]))
        indexes[-extra:, 1] = NO_TIME
    computation.matrices[number] = replace(matrix, rows=rows, indexes=indexes)
    computation.submatrices.append(SubMatrix(number, 0, rows, 0, matrix.cols))


def _of_whole_matrices(computation: Computation, before: dict[int, int]) -> None:
    """What took, gave up or zeroed a whole matrix that has grown does so with the new whole.

    Args:
        before: of the matrices that have grown, the rows that they had.
    """
    submatrices, whole = computation.submatrices, computation.whole_submatrices()
    for number, command in enumerate(computation.commands):
        kind = command.type
        if kind not in _OF_WHOLE or (kind == "SetConst" and command.alpha):
            continue
        s = submatrices[command.target]
        old = before.get(s.matrix)
        if s.rows == old and s.cols == computation.matrices[s.matrix].cols:
            computation.commands[number] = command.changed(target=whole[s.matrix])
