"""Removal of unused matrices and sub-matrices, and the order of inputs and outputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..compiler.analyze import BACKPROPS, ROWS_MULTI, rows_of
from ..compiler.command import Command, inputs_first
from ..compiler.computation import Computation, SubMatrix, submatrices_of
from .options import OptimizeOptions

_NAMING_MORE = BACKPROPS | ROWS_MULTI  # commands with more sub-matrices than target and source


def renumber(computation: Computation, options: OptimizeOptions) -> Computation:
    """Renumber the used matrices and sub-matrices; equal sub-matrices become one."""
    commands = computation.own_commands()
    named = {0, *[c.target for c in commands], *[c.source for c in commands]}
    naming_more = [c for c in commands if c.type in _NAMING_MORE]
    for c in naming_more:
        named.update(c.deriv if c.type in BACKPROPS else rows_of(c))
    numbers = [0] * len(computation.submatrices)
    known: dict[SubMatrix, int] = {}
    submatrices, numbered = computation.submatrices, known.setdefault
    for old in sorted(named):
        numbers[old] = numbered(submatrices[old], len(known))
    for c in commands:
        c.target = numbers[c.target]
        c.source = numbers[c.source]
    _renumber_more(naming_more, numbers)
    matrices = sorted({s[0] for s in known})
    number_of = dict(zip(matrices, range(len(matrices)), strict=True))
    return replace(
        computation,
        matrices=[computation.matrices[matrix] for matrix in matrices],
        submatrices=submatrices_of(
            [(number_of[matrix], row, rows, col, cols) for matrix, row, rows, col, cols in known]
        ),
        commands=commands,
    )


def _renumber_more(commands: list[Command], numbers: list[int]) -> None:
    """Gives these numbers to the sub-matrices that are neither target nor source."""
    array = None
    for c in commands:
        if c.type in BACKPROPS:
            value_in, value_out, out_deriv, in_deriv = c.deriv
            c.deriv = numbers[value_in], numbers[value_out], numbers[out_deriv], numbers[in_deriv]
        elif c.rows is not None:
            rows = c.rows = c.rows.copy()
            # -1 stands for no sub-matrix, and 0, the empty one, comes first when all are sorted:
            # both keep their numbers.
            real = rows[:, 0] > 0
            array = np.array(numbers) if array is None else array
            rows[real, 0] = array[rows[real, 0]]


def consolidate_io(computation: Computation, options: OptimizeOptions) -> Computation:
    """Put inputs first and outputs last in each segment and in the backward part."""
    return replace(computation, commands=inputs_first(computation.commands))
