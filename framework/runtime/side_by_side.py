"""Loops that do not depend on each other, side by side on the threads of the team.

The two directions of a recurrent layer of ONNX are such loops. A step of a loop over one sequence
is too short for threads to share it. So each thread does a loop of its own: the first one waits
until the second one begins, which is right where nothing reads what it gives in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from ..base.cpu.threads import most_threads
from ..fusion.team import beside, in_order, nothing
from .plans.plan import Plan

_Call = Callable[[], Any]


def with_loops_beside(plan: Plan, calls: Sequence[_Call]) -> Sequence[_Call]:
    """The calls of a plan's steps, with loops done side by side where they may be.

    A loop's call has `in_parts`: what comes before the loop, the loop, which touches memory of its
    own alone, and what follows.
    """
    if most_threads() < 2 or plan.views or plan.joined:
        return calls
    found = ((at, getattr(call, "in_parts", None)) for at, call in enumerate(calls))
    loops: dict[int, Any] = {at: parts for at, parts in found if parts is not None}
    result = list(calls)
    for first, second in pairwise(loops):
        if result[first] is calls[first] and _may_wait(plan, calls, first, second):
            one, other = (loops[at] for at in (first, second))
            result[first] = one[0]
            result[second] = in_order(other[0], beside([one[1], other[1]]), one[2], other[2])
    return result


def _may_wait(plan: Plan, calls: Sequence[_Call], first: int, second: int) -> bool:
    """Whether a step may write its results together with a later one: no other step reads them
    before, or writes to where they lie."""
    names = set(plan.steps[first].writes)
    blocks = {plan.placement.get(name, -1) for name in names}
    for at in range(first + 1, second + 1):
        step = plan.steps[at]
        touched = names.intersection((*step.reads, *step.writes))
        if calls[at] is nothing:
            if touched:  # its result is the same memory
                names.update(step.writes)
        elif touched or any(plan.placement.get(name, -2) in blocks for name in step.writes):
            return False
    return True
