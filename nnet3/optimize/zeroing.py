"""Zeros that nothing reads are not set."""

from __future__ import annotations

from dataclasses import replace

from ..analyze import READ, Analysis, Grid, is_zeroing
from ..computation import Computation
from .options import OptimizeOptions


def remove_unnecessary_zeroing(computation: Computation, options: OptimizeOptions) -> Computation:
    """Drops x = 0 where every part of x is next set without being read, or not used at all."""
    needless = needless_zeroing(Analysis(computation))
    left = [c for number, c in enumerate(computation.commands) if number not in needless]
    return replace(computation, commands=left)


def needless_zeroing(analysis: Analysis) -> set[int]:
    """The commands that set a matrix to zeros that nothing reads."""
    computation = analysis.computation
    needless = set()
    for matrix in range(1, len(computation.matrices)):
        listed = analysis.of_matrix[matrix]
        if not listed or not computation.is_whole(listed[0][1]):
            continue
        first = listed[0][0]
        if is_zeroing(computation.commands[first]) and not _needed(analysis, matrix):
            needless.add(first)
    return needless


def _needed(analysis: Analysis, matrix: int) -> bool:
    """Whether something reads what the first access of a matrix has set."""
    computation = analysis.computation
    listed = analysis.of_matrix[matrix][1:]
    if listed and (listed[0][2] & READ or computation.is_whole(listed[0][1])):
        return bool(listed[0][2] & READ)
    info = computation.matrices[matrix]
    parts = [computation.submatrices[s] for _, s, _ in listed]
    grid = Grid(info.rows, info.cols, parts)
    for (_, _, mode), part in zip(listed, parts, strict=True):
        marks = grid.of(part)
        if mode & READ:
            if not marks.all():
                return True
        else:
            marks[...] = True
    return matrix in analysis.taken and not grid.marks.all()
