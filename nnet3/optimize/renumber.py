"""Leaving out what no command names any more, and the order of inputs and outputs."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import numpy as np

from ..analyze import BACKPROPS, ROWS_MULTI, rows_of
from ..computation import Command, Computation, SubMatrix, inputs_first, submatrices_of
from ..indexes import distinct
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
    numbers = [0] * len(computation.submatrices)
    known: dict[SubMatrix, int] = {}
    for old in sorted(named):
        numbers[old] = known.setdefault(computation.submatrices[old], len(known))
    table = np.fromiter(chain.from_iterable(known), np.intp).reshape(-1, 5)
    matrices = distinct(table[:, 0])
    table[:, 0] = matrices.searchsorted(table[:, 0])
    return replace(
        computation,
        matrices=[computation.matrices[m] for m in matrices.tolist()],
        submatrices=submatrices_of(table.tolist()),
        commands=[_renumbered(command, numbers) for command in computation.commands],
    )


def _renumbered(c: Command, numbers: list[int]) -> Command:
    kind, rows, deriv = c.type, c.rows, c.deriv
    if kind in BACKPROPS:
        value_in, value_out, out_deriv, in_deriv = deriv
        deriv = numbers[value_in], numbers[value_out], numbers[out_deriv], numbers[in_deriv]
    elif rows is not None and kind in ROWS_MULTI:
        rows = rows.copy()
        real = rows[:, 0] > 0
        rows[real, 0] = np.array(numbers)[rows[real, 0]]
    # Positions, as keywords would take twice the time.
    return Command(
        kind,
        numbers[c.target],
        numbers[c.source],
        c.alpha,
        rows,
        c.node,
        c.step,
        c.precomputed,
        deriv,
        c.store_stats,
        c.use_memo,
        c.storage,
    )


def consolidate_io(computation: Computation, options: OptimizeOptions) -> Computation:
    """Within each segment and the backward part: inputs first, outputs last."""
    return replace(computation, commands=inputs_first(computation.commands))
