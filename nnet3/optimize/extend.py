"""Copies of all but the last rows of a matrix become copies of the whole of it.

The target's matrix gets the missing rows, which nothing else looks at. Then the two can be merged,
as happens where a TDNN layer reads its input at several offsets.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..analyze import is_zeroing
from ..computation import Computation, SubMatrix
from ..indexes import NO_TIME
from .options import OptimizeOptions

LEAST_SHARE = 0.8
"""Of a matrix's rows that must have been copied: extending costs memory."""


def extend_matrices(computation: Computation, options: OptimizeOptions) -> Computation:
    """See above; only copies to the end of their matrix can be extended."""
    result = computation.copy()
    submatrices = result.submatrices
    before = [matrix.rows for matrix in computation.matrices]
    bound = {
        submatrices[c.target].matrix
        for c in result.commands
        if c.type in ("AcceptInput", "ProvideOutput")
    }
    changed: set[int] = set()
    for number, command in enumerate(result.commands):
        if command.type != "MatrixCopy" or command.alpha != 1:
            continue
        target, source = submatrices[command.target], submatrices[command.source]
        whole = result.matrices[source.matrix]
        if (
            source.matrix == target.matrix
            or target.matrix in bound
            or source.rows < LEAST_SHARE * before[source.matrix]
            or (source.row, source.col, source.cols) != (0, 0, whole.cols)
            or source.rows >= whole.rows
            or target.row + target.rows != before[target.matrix]
        ):
            continue
        _grow(result, target.matrix, target.row + whole.rows)
        changed.add(target.matrix)
        larger = command.changed(target=len(submatrices), source=len(submatrices) + 1)
        submatrices.append(target._replace(rows=whole.rows))
        submatrices.append(SubMatrix(source.matrix, 0, whole.rows, 0, whole.cols))
        result.commands[number] = larger
    if changed:
        _of_whole_matrices(result, before, changed)
    return result


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


def _of_whole_matrices(computation: Computation, before: list[int], changed: set[int]) -> None:
    """What took, gave up or zeroed a whole matrix that has grown does so with the new whole."""
    whole = computation.whole_submatrices()
    for number, command in enumerate(computation.commands):
        if command.type not in ("AllocMatrix", "DeallocMatrix") and not is_zeroing(command):
            continue
        s = computation.submatrices[command.target]
        if s.matrix in changed and (s.rows, s.cols) == (
            before[s.matrix],
            computation.matrices[s.matrix].cols,
        ):
            computation.commands[number] = command.changed(target=whole[s.matrix])
