"""Zeros that nothing reads are not set."""

from __future__ import annotations

from dataclasses import replace

from ..analyze import READ, Analysis, Cover, analysed
from ..computation import Computation
from .options import OptimizeOptions


def remove_unnecessary_zeroing(computation: Computation, options: OptimizeOptions) -> Computation:
    """Drops x = 0 where every part of x is next set without being read, or not used at all."""
    analysis = analysed(computation)
    analysis = analysis.without_zeroing(needless_zeroing(analysis))
    result = replace(computation, commands=analysis.left())
    result.analysis = analysis
    return result


def needless_zeroing(analysis: Analysis) -> set[int]:
    """The commands that set a matrix to zeros that nothing reads."""
    return {
        number
        for matrix, number in enumerate(analysis.zeroed)
        if number >= 0 and not _needed(analysis, matrix)
    }


def _needed(analysis: Analysis, matrix: int) -> bool:
    """Whether something reads the zeros that a matrix begins with."""
    submatrices = analysis.submatrices
    whole = submatrices[analysis.commands[analysis.zeroed[matrix]].target]
    written = None
    for _, s, mode in analysis.of_matrix[matrix]:
        part = submatrices[s]
        if mode & READ and not (written and written.contains(part)):
            return True
        if part == whole:
            return False
        written = written or Cover(whole.cols)
        if not mode & READ:
            written.add(part)
    return matrix in analysis.taken and not (written and written.contains(whole))
