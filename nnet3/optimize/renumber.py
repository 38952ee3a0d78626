"""Leaving out what no command names any more, and the order of inputs and outputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..analyze import rows_of
from ..computation import Command, Computation, SubMatrix, inputs_first
from .options import OptimizeOptions


def renumber(computation: Computation, options: OptimizeOptions) -> Computation:
    """Matrices and sub-matrices that are used, numbered anew; equal sub-matrices become one."""
    named = {0}
    for command in computation.commands:
        named.update((command.target, command.source, *command.deriv))
        if command.type.endswith("Multi"):
            named.update(rows_of(command))
    matrices = sorted({computation.submatrices[s].matrix for s in named})
    matrix_number = {old: new for new, old in enumerate(matrices)}
    numbers = [0] * len(computation.submatrices)
    known: dict[SubMatrix, int] = {}
    for old in sorted(named):
        s = computation.submatrices[old]
        s = SubMatrix(matrix_number[s.matrix], *s[1:])
        numbers[old] = known.setdefault(s, len(known))
    array = np.array(numbers)
    return replace(
        computation,
        matrices=[computation.matrices[m] for m in matrices],
        submatrices=list(known),
        commands=[_renumbered(command, numbers, array) for command in computation.commands],
    )


def _renumbered(command: Command, numbers: list[int], array: np.ndarray) -> Command:
    rows = command.rows
    if command.type.endswith("Multi"):
        rows = rows.copy()  # type: ignore[union-attr]
        real = rows[:, 0] > 0
        rows[real, 0] = array[rows[real, 0]]
    a, b, c, d = command.deriv
    return Command(
        command.type,
        numbers[command.target],
        numbers[command.source],
        command.alpha,
        rows,
        command.node,
        command.step,
        command.precomputed,
        (numbers[a], numbers[b], numbers[c], numbers[d]),
        command.store_stats,
        command.use_memo,
        command.storage,
    )


def consolidate_io(computation: Computation, options: OptimizeOptions) -> Computation:
    """Within each segment and the backward part: inputs first, outputs last."""
    return replace(computation, commands=inputs_first(computation.commands))
