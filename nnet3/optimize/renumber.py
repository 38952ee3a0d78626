"""Leaving out what no command names any more, and the order of inputs and outputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..computation import Command, Computation, SubMatrix
from .options import OptimizeOptions

_RANK = {"AcceptInput": 0, "ProvideOutput": 2}


def renumber(computation: Computation, options: OptimizeOptions) -> Computation:
    """Matrices and sub-matrices that are used, numbered anew; equal sub-matrices become one."""
    named = np.zeros(len(computation.submatrices), bool)
    for command in computation.commands:
        named[[command.target, command.source, *command.deriv]] = True
        if command.type.endswith("Multi"):
            named[np.maximum(command.rows[:, 0], 0)] = True  # type: ignore[index]
    named[0] = True
    matrices = sorted({computation.submatrices[s].matrix for s in np.flatnonzero(named)} | {0})
    matrix_number = {old: new for new, old in enumerate(matrices)}
    numbers = np.zeros(len(named), np.int64)
    known: dict[SubMatrix, int] = {}
    for old in np.flatnonzero(named).tolist():
        s = computation.submatrices[old]
        s = replace(s, matrix=matrix_number[s.matrix]) if s.matrix else s
        numbers[old] = known.setdefault(s, len(known))
    return replace(
        computation,
        matrices=[computation.matrices[m] for m in matrices],
        submatrices=list(known),
        commands=[_renumbered(command, numbers) for command in computation.commands],
    )


def _renumbered(command: Command, numbers: np.ndarray) -> Command:
    rows = command.rows
    if command.type.endswith("Multi"):
        rows = rows.copy()  # type: ignore[union-attr]
        real = rows[:, 0] > 0
        rows[real, 0] = numbers[rows[real, 0]]
    deriv = command.deriv
    if any(deriv):
        deriv = tuple(numbers[list(deriv)].tolist())
    return replace(
        command,
        target=int(numbers[command.target]),
        source=int(numbers[command.source]),
        deriv=deriv,
        rows=rows,
    )


def consolidate_io(computation: Computation, options: OptimizeOptions) -> Computation:
    """Within each segment and the backward part: inputs first, outputs last."""
    segments: list[list[Command]] = [[]]
    for command in computation.commands:
        if command.type == "NoOperationMarker":
            segments.append([])
        segments[-1].append(command)
    ordered: list[Command] = []
    for segment in segments:
        marker = segment[:1] if segment and segment[0].type == "NoOperationMarker" else []
        rest = segment[len(marker) :]
        ordered += marker + sorted(rest, key=lambda c: _RANK.get(c.type, 1))
    return replace(computation, commands=ordered)
