"""Operators of a step net bound to given arrays: frames without a scope's variables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ...base.scope import Scope
from ...base.shape import Levels, Meta
from ...ir.operation import Operator
from ...runtime.executor import Frame
from ...runtime.plain_net import bind_chain, grouping
from ...runtime.plan import Plan, PlanOptions, Range, make_plan
from .description import StepNet
from .store import Arena

_MOST_PLANS = 512


class StepFrame(Frame):
    """A plan bound to arrays; `calls` does the work.

    Args:
        arrays: of all externals and survivors of the plan; temporaries are added.
        outer: the frame of the recurrent operator, whose place and phase hold here too.
        arena: holds temporaries; frames of one `tag` share the memory of their temporaries.
        scope: where operators that hold nets find their variables.
    """

    least_cost = 1  # so that a team can run them

    def __init__(
        self,
        plan: Plan,
        arrays: dict[str, Any],
        outer: Frame,
        arena: Arena,
        tag: str,
        scope: Scope,
    ) -> None:
        self.plan, self.scope = plan, scope
        self.place, self.xp = outer.place, outer.xp
        self.train, self.state = outer.train, arena.state
        self.arrays = arrays
        self._scratch = arena.scratch
        self._fused = bind_chain
        self.prepared = arena.prepared
        for name, number in plan.placement.items():
            shape, dtype = plan.metas[name]
            size = plan.nbytes(name)
            block = arena.block((tag, number), plan.blocks[number])
            arrays[name] = block[:size].view(dtype).reshape(shape)
        self.calls: list[Callable[[], Any]] = [self._bind(step) for step in plan.steps]


def step_plan(
    step: StepNet,
    operators: Sequence[Operator],
    known: Mapping[str, Meta],
    survivors: Collection[str],
    options: PlanOptions,
    place: Any,
    offsets: Mapping[str, Levels] | None = None,
) -> Plan:
    """The plan of some of a step net's operators; remembered with the net.

    Args:
        known: shapes of what they read from outside. survivors: what must be in memory afterwards.
    """
    written: set[str] = set()
    externals: dict[str, None] = {}
    for op in operators:
        externals.update((name, None) for name in op.input_vars() if name not in written)
        written.update(op.output_vars())
    known = {name: known[name] for name in externals}
    kept = written.intersection(survivors)
    levels = {name: own for name, own in (offsets or {}).items() if own}
    key = (
        tuple(map(id, operators)),
        tuple(known.items()),
        frozenset(kept),
        options,
        place,
    )
    plan = None if levels else step.plans.get(key)
    if plan is None:
        span = Range(list(operators), list(externals), kept, {})
        plan = make_plan(span, known, step.vars, options, grouping(place), levels)
        if not levels:
            while len(step.plans) >= _MOST_PLANS:
                step.plans.pop(next(iter(step.plans)), None)
            step.plans[key] = plan
    return plan
