"""Zeros that nothing reads need not be set."""

from __future__ import annotations

from collections.abc import Sequence

from ..analyze import READ, Access, Analysis, Cover
from ..computation import SubMatrix


def needless_zeroing(analysis: Analysis) -> set[int]:
    """The commands that set a matrix to zeros that nothing reads."""
    submatrices, of_matrix, taken = analysis.submatrices, analysis.of_matrix, analysis.taken
    wholes = {m: submatrices[analysis.commands[n].target] for m, n in analysis.zeroed.items()}
    return {
        number
        for m, number in analysis.zeroed.items()
        if not reads_zeros(of_matrix[m], submatrices, wholes[m], m in taken)
    }


def reads_zeros(
    accesses: Sequence[Access], submatrices: Sequence[SubMatrix], whole: SubMatrix, taken: bool
) -> bool:
    """Whether something reads the zeros that a matrix begins with.

    Args:
        accesses: of the matrix, in order.
        whole: all of it.
        taken: whether it is read in the end.
    """
    written = None
    for _, s, mode in accesses:
        part = submatrices[s]
        if mode & READ and not (written and written.contains(part)):
            return True
        if part == whole:
            return False
        written = written or Cover(whole.cols)
        if not mode & READ:
            written.add(part)
    return taken and not (written and written.contains(whole))
