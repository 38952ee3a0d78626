"""Fills of matrices of which most is written before it is read: only the rest is filled.

A matrix that holds all steps of an unrolled loop is set to zero for the sake of its first step.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ...fusion.rows.row_copies import fill_call
from ...fusion.team import in_order
from ...ir.infer import view_slices
from ...ir.kernel_args import Call
from .plan import Plan, PlanStep

_MOST_PARTS = 8
"""Rectangles above which the whole is filled."""


def narrow_fill(plan: Plan, step: PlanStep, arrays: dict[str, Any]) -> Call | None:
    """The call of a `fill_constant` that fills what is read before it is written.

    None for other operators, and where little would be saved.
    """
    op = step.operators[0]
    if op.type != "fill_constant" or len(step.operators) > 1:
        return None
    (name,) = op.output_vars()
    array = arrays.get(name)
    declared = plan.declared.get(name)
    if array is None or array.ndim != 2:
        return None
    if declared is not None and declared.view is not None:
        return None
    parts = _read_first(plan, step, name, array.shape)
    if parts is None:
        return None
    value = op.attrs["value"]
    return in_order(*(fill_call(array[rows, cols], value) for rows, cols in parts))


@dataclass
class _Accesses:
    """When the variables of a plan are read and written: found once, for all of its fills.

    Attributes:
        times: of each variable; that of a read is twice the number of its operator, that of a
            write one more.
        ends: the time after each step, by its id.
        views: base -> its views.
    """

    times: dict[str, list[int]]
    ends: dict[int, int]
    views: dict[str, list[str]]


def _find_accesses(plan: Plan) -> _Accesses:
    accesses = _Accesses({}, {}, {})
    time = 0
    for step in plan.steps:
        for op in step.operators:
            reads = [*op.input_vars(), *(op.output_vars() if op.accumulate else ())]
            for name in reads:
                accesses.times.setdefault(name, []).append(time)
            for name in op.output_vars():
                accesses.times.setdefault(name, []).append(time + 1)
            time += 2
        accesses.ends[id(step)] = time
    for name, var in plan.declared.items():
        if var.view is not None and name in plan.specs:
            accesses.views.setdefault(var.view.base, []).append(name)
    return accesses


def _read_first(
    plan: Plan, fill: PlanStep, name: str, shape: tuple[int, ...]
) -> list[tuple[slice, slice]] | None:
    """The parts of a matrix that are read before they are written; None for most of it."""
    places: dict[str, tuple[slice, ...]] = {name: (slice(0, shape[0]), slice(0, shape[1]))}
    if plan.accesses is None:
        plan.accesses = _find_accesses(plan)
    accesses: _Accesses = plan.accesses
    for other in accesses.views.get(name, ()):
        view = plan.declared[other].view
        assert view is not None
        slices = view_slices(other, view, shape)
        places[other] = tuple(
            slice(*one.indices(size)) for one, size in zip(slices, shape, strict=True)
        )
    # The edges of all views cut the matrix into a few cells that are read or written whole: much
    # fewer than its elements.
    edges = [
        sorted({edge for place in places.values() for edge in (place[i].start, place[i].stop)})
        for i in range(2)
    ]
    at = [{edge: number for number, edge in enumerate(one)} for one in edges]
    cells = {
        other: tuple(slice(at[i][one.start], at[i][one.stop]) for i, one in enumerate(place))
        for other, place in places.items()
    }
    written = np.zeros([len(one) - 1 for one in edges], bool)
    needed = np.zeros_like(written)
    begin = accesses.ends[id(fill)]
    times = [(when, other) for other in places for when in accesses.times.get(other, ())]
    # Reads sort before the writes of one operator: it reads what was there.
    for when, other in sorted(one for one in times if one[0] >= begin):
        if when % 2:
            written[cells[other]] = True
        else:
            needed[cells[other]] |= ~written[cells[other]]
    for other in places:
        if other in plan.live_out:  # somebody reads it later
            needed[cells[other]] |= ~written[cells[other]]
    parts: list[tuple[slice, slice]] = []
    for column, (left, right) in enumerate(pairwise(edges[1])):
        flags = np.flatnonzero(np.diff(needed[:, column], prepend=False, append=False))
        for begin, end in flags.reshape(-1, 2).tolist():
            parts.append((slice(edges[0][begin], edges[0][end]), slice(left, right)))
    area = sum((r.stop - r.start) * (c.stop - c.start) for r, c in parts)
    return parts if len(parts) <= _MOST_PARTS and 2 * area <= shape[0] * shape[1] else None
