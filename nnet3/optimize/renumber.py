"""Leaving out what no command names any more, and the order of inputs and outputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..analyze import BACKPROPS, ROWS_MULTI, rows_of
from ..computation import Command, Computation, SubMatrix, inputs_first
from .options import OptimizeOptions


def renumber(computation: Computation, options: OptimizeOptions) -> Computation:
    """Matrices and sub-matrices that are used, numbered anew; equal sub-matrices become one."""
    named = {0}
    for command in computation.commands:
        named.add(command.target)
        named.add(command.source)
        kind = command.type
        if kind in BACKPROPS:
            named.update(command.deriv)
        elif kind in ROWS_MULTI:
            named.update(rows_of(command))
    submatrices = [(old, computation.submatrices[old]) for old in sorted(named)]
    matrices = sorted({s[0] for _, s in submatrices})
    matrix_number = [0] * len(computation.matrices)
    for new, matrix in enumerate(matrices):
        matrix_number[matrix] = new
    numbers = [0] * len(computation.submatrices)
    known: dict[tuple[int, ...], int] = {}
    for old, (matrix, row, rows, col, cols) in submatrices:
        s = matrix_number[matrix], row, rows, col, cols
        numbers[old] = known.setdefault(s, len(known))
    return replace(
        computation,
        matrices=[computation.matrices[m] for m in matrices],
        submatrices=list(map(SubMatrix._make, known)),
        commands=[_renumbered(command, numbers) for command in computation.commands],
    )


def _renumbered(command: Command, numbers: list[int]) -> Command:
    kind, rows, deriv = command.type, command.rows, command.deriv
    if kind in BACKPROPS:
        a, b, c, d = deriv
        deriv = numbers[a], numbers[b], numbers[c], numbers[d]
    elif kind in ROWS_MULTI:
        rows = rows.copy()  # type: ignore[union-attr]
        real = rows[:, 0] > 0
        rows[real, 0] = np.array(numbers)[rows[real, 0]]
    return Command(
        kind,
        numbers[command.target],
        numbers[command.source],
        command.alpha,
        rows,
        command.node,
        command.step,
        command.precomputed,
        deriv,
        command.store_stats,
        command.use_memo,
        command.storage,
    )


def consolidate_io(computation: Computation, options: OptimizeOptions) -> Computation:
    """Within each segment and the backward part: inputs first, outputs last."""
    return replace(computation, commands=inputs_first(computation.commands))
