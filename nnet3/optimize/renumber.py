"""Removal of unused matrices and sub-matrices, and the order of inputs and outputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..compiler.analyze import BACKPROPS, ROWS_MULTI, SIZING, rows_of
from ..compiler.command import Command, inputs_first
from ..compiler.computation import Computation, SubMatrix, submatrices_of
from .options import OptimizeOptions

_PLAIN = SIZING | {"SetConst", "MatrixCopy", "MatrixAdd"}  # commands with nothing but a scale


def renumber(computation: Computation, options: OptimizeOptions) -> Computation:
    """Number the used matrices and sub-matrices anew; equal sub-matrices become one."""
    commands = computation.commands
    named = {0}
    named.update([c.target for c in commands], [c.source for c in commands])
    named.update(*[c.deriv for c in commands if c.type in BACKPROPS])
    named.update(*[rows_of(c) for c in commands if c.type in ROWS_MULTI])
    numbers = [0] * len(computation.submatrices)
    known: dict[SubMatrix, int] = {}
    for old in sorted(named):
        numbers[old] = known.setdefault(computation.submatrices[old], len(known))
    matrices = sorted({s[0] for s in known})
    number_of = dict(zip(matrices, range(len(matrices)), strict=True))
    return replace(
        computation,
        matrices=[computation.matrices[matrix] for matrix in matrices],
        submatrices=submatrices_of(
            [(number_of[matrix], row, rows, col, cols) for matrix, row, rows, col, cols in known]
        ),
        commands=_renumbered(commands, numbers),
    )


def _renumbered(commands: list[Command], numbers: list[int]) -> list[Command]:
    """The commands with these numbers of sub-matrices."""
    result = []
    array = None
    for c in commands:
        kind = c.type
        if kind in _PLAIN:  # most are
            result.append(c.as_type(kind, numbers[c.target], numbers[c.source]))
            continue
        rows, deriv = c.rows, c.deriv
        if kind in BACKPROPS:
            value_in, value_out, out_deriv, in_deriv = deriv
            deriv = numbers[value_in], numbers[value_out], numbers[out_deriv], numbers[in_deriv]
        elif rows is not None and kind in ROWS_MULTI:
            rows = rows.copy()
            real = rows[:, 0] > 0
            array = np.array(numbers) if array is None else array
            rows[real, 0] = array[rows[real, 0]]
        result.append(c.on_submatrices(numbers[c.target], numbers[c.source], rows, deriv))
    return result


def consolidate_io(computation: Computation, options: OptimizeOptions) -> Computation:
    """Put inputs first and outputs last in each segment and in the backward part."""
    return replace(computation, commands=inputs_first(computation.commands))
