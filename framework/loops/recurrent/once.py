"""Operators of a recurrent net that run once on the rows of all steps, not step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base.sizes.shape import ArraySpec
from ...fusion.rows.row_copies import take_call
from ...ir.kernel_args import Call
from ...ir.operation import Operator
from .frame import LoopContext
from .store import (
    PerStepArrays,
    Stage,
    StepSlices,
    StepValues,
    Storage,
    Values,
    WholeArray,
    row_of,
)


def bind_once(context: LoopContext, operators: Sequence[Operator], values: Values) -> Stage:
    """Stage for the operators of one phase: their results are added to the values.

    Args:
        operators: of a phase that is not the loop; none: the values stay as they are.
        values: of everything that the operators read.
    """
    if not operators:
        return Stage(values, [])
    bound = dict(values)
    calls: list[Call] = []
    written = {name for op in operators for name in op.output_vars()}
    inputs = {name for op in operators for name in op.input_vars()} - written
    reads = {name for op in operators for name in op.value_reads()} - written
    known = context.analysis.specs_at(context.slots.total, inputs)
    arrays = {name: _compact(context, bound, calls, name) for name in sorted(reads)}
    plan = context.plan(operators, known, _read_elsewhere(context, operators, written))
    for name in sorted(plan.live_out):
        arrays[name], bound[name] = _result(context, name, plan.specs[name])
    calls += context.bind(plan, arrays, "once", context.binding.frame.scope)
    return Stage(bound, calls)


def bring_into_slots(context: LoopContext, values: Values) -> Stage:
    """Stage before the loop: what it reads and does not write itself is brought into slots."""
    slots = context.slots
    bound = dict(values)
    calls: list[Call] = []
    for name in sorted(context.analysis.step_reads - context.sharing.written):
        value = bound.get(name)
        if not isinstance(value, StepValues) or value.slots is not None:
            continue
        target = context.arena.slots(("slots", name), *row_of(value.spec))
        rows = slots.filling
        calls.append(take_call(context.xp, value.compact, rows, target[: len(rows)]))
        bound[name] = StepValues(slots.slices(target), value.compact)
    return Stage(bound, calls)


def _compact(context: LoopContext, values: dict[str, Storage], calls: list[Call], name: str) -> Any:
    """A variable's values for all steps at once; `values` gets this form, `calls` what fills it."""
    value = values[name]
    assert not isinstance(value, PerStepArrays)
    if not isinstance(value, StepValues):
        return value.array
    if value.compact is not None:
        return value.compact
    assert isinstance(value.slots, StepSlices)
    source, total = value.slots.array, context.slots.total
    if context.slots.gapless:
        compact = source[:total]
    else:
        compact = context.arena.slots(("compact", name), source.shape[1:], source.dtype)[:total]
        calls.append(take_call(context.xp, source, value.slots.rows, compact))
    values[name] = StepValues(value.slots, compact)
    return compact


def _read_elsewhere(
    context: LoopContext, operators: Sequence[Operator], names: set[str]
) -> set[str]:
    """The names that something besides these operators reads."""
    about, step = context.analysis, context.step
    phases = (about.phases.static, about.phases.pre, about.phases.loop, about.phases.post)
    others = [op for phase in phases if phase is not operators for op in phase]
    reads = {name for op in others for name in op.value_reads()}
    return names & (reads | about.saved | {*step.outputs, *step.sums})


def _result(context: LoopContext, name: str, spec: ArraySpec) -> tuple[Any, Storage]:
    """The array that an operator writes its result to, and the variable's values."""
    about, binding, arena = context.analysis, context.binding, context.arena
    if name in about.phases.sums:
        # Written where it is wanted: no copy of a gradient of weights.
        for inner, total in zip(binding.step.sums, binding.sums, strict=True):
            if inner == name and total is not None:
                return total, WholeArray(total)
    if name not in about.rows:
        array = arena.array(("whole", name), spec)
        return array, WholeArray(array)
    # Without gaps the loop works on the same memory; else this is another form of it.
    if context.slots.gapless:
        array = arena.slots(("slots", name), *row_of(spec))
        compact = array[: spec[0][0]]
        return compact, StepValues(context.slots.slices(array), compact)
    compact = arena.slots(("compact", name), *row_of(spec))[: spec[0][0]]
    return compact, StepValues(None, compact)
