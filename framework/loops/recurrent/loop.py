"""The loop of a recurrent net: what states depend on, bound step by step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, groupby, pairwise
from typing import Any

import numpy as np

from ...base.scope import Scope
from ...base.sizes.shape import ArraySpec, Levels
from ...fusion.rows.row_copies import (
    copy_call,
    fill_call,
    fill_rows_call,
    put_call,
    take_call,
)
from ...ir.kernel_args import Call
from ...runtime.plans.memory import shared_panels
from ...runtime.plans.plan import Plan
from .analysis import given_at
from .boundary import BoundaryStates, Memories, initial_call
from .frame import LoopContext, StepFrame
from .links import RecurrentBinding, Track
from .once import bring_into_slots
from .sharing import shared_values
from .step_calls import FEW, MANY, StepCalls
from .store import (
    PerStepArrays,
    StepSlices,
    StepValues,
    Storage,
    Values,
    WholeArray,
    row_of,
)

_AHEAD = 16
"""Steps that are bound with a batch, before and after its own."""


@dataclass(frozen=True, eq=False)
class Loop:
    """The result of binding the loop.

    Attributes:
        values: the given ones, and what the loop writes.
        calls: everything that runs step by step, in the order in which it runs.
        scopes: a scope for each step where operators hold nets; else empty.
        offsets: for each step, of the variables that hold sequences; empty where none does.
        serves_others: whether its steps do no more than what is bound to arrays of the arena.
    """

    values: Values
    calls: list[Call]
    scopes: list[Scope]
    offsets: list[Mapping[str, Levels]]
    serves_others: bool = False


def bind_loop(
    context: LoopContext, values: Values, memories: Memories, states: BoundaryStates
) -> Loop:
    """The loop's stage: every step begins with initial states, ends with final states and sums.

    Args:
        values: of links, memories, and what operators before the loop write.
    """
    binding, about = context.binding, context.analysis
    opening = bring_into_slots(context, values)
    known = dict(opening.values)
    known |= shared_values(
        context.sharing, known, about.specs, about.live_out, context.arena, context.slots
    )
    sums = StepSums(binding, about.phases.sums)
    live_out = _step_live_out(context)
    known |= _reserved(context, known, live_out)
    nested = about.nested
    # Steps of an earlier batch serve where they are bound to arrays of the arena alone.
    reusable = about.key is not None and live_out <= known.keys() and not nested
    scopes = _step_scopes(context, nested)
    binder = _StepBinder(context, known, live_out, scopes)
    calls = [*opening.calls, *sums.first_calls()]
    initial = _initial_rows(context, known, states)
    calls += initial or []
    spans = _runs(context.slots.sizes)
    ends = bool(memories.copies) or any([final is not None for final in states.final])
    serves_others = reusable and not memories.copies and not sums
    if not serves_others:  # each step has more to do
        spans = [range(step, step + 1) for step in range(binding.schedule.steps)]
    if reusable:
        binder.bind_ahead()
    # In ascending order, also where a reverse net runs the other way: `PerStepArrays` grow step by
    # step.
    bound = [binder.reused(span) if reusable else binder.bind(span.start) for span in spans]
    context.arena.trim()
    way = -1 if binding.step.reverse else 1
    for span, operators in list(zip(spans, bound, strict=True))[::way]:
        first, last = span[::way][0], span[::way][-1]
        calls += _initial_calls(context, known, states, first) if initial is None else []
        calls += operators
        calls += _ending_calls(context, known, memories, states, last) if ends else []
        calls += sums.calls(last, known)
    calls += sums.last_calls()
    if context.xp is not np:
        from ...fusion.cuda.device_lists import in_row_lists  # without a GPU it is not needed

        calls = in_row_lists(context.xp, calls)
    return Loop(known, calls, scopes if nested else [], binder.offsets, serves_others)


def _step_scopes(context: LoopContext, nested: bool) -> list[Scope]:
    """The scope that each step runs in: the forward run's, a new one, or the one outside."""
    if context.forward:
        return list(context.forward)
    outer = context.binding.frame.scope
    steps = range(context.binding.schedule.steps)
    return [Scope(parent=outer) if nested else outer for _ in steps]


def _step_live_out(context: LoopContext) -> frozenset[str]:
    """Variables that the loop writes and that are read after their step."""
    step, sharing = context.step, context.sharing
    states = {memory.state for memory in step.memories}
    return sharing.written & {*context.analysis.live_out, *states, *step.sums, *sharing.names}


def _reserved(
    context: LoopContext, values: Values, live_out: Collection[str]
) -> dict[str, Storage]:
    """Memory for what outlives its step, where its shape is known before steps are bound."""
    about, arena = context.analysis, context.arena
    storages: dict[str, Storage] = {}
    if about.ragged:
        return storages
    for name in sorted(set(live_out) - values.keys()):
        if name in about.rows:
            array = arena.slots(("slots", name), *row_of(about.specs[name]))
            storages[name] = StepValues(context.slots.slices(array))
        elif name not in about.live_out and name not in about.odd:
            storages[name] = WholeArray(arena.array(("step", name), about.specs[name]))
    return storages


class _StepBinder:
    """Binds the loop's operators step by step, in ascending order.

    Attributes:
        values: gets memory for what is not there before its shape at a step is known.
        offsets: of each step that has been bound, where steps see sequences.
    """

    def __init__(
        self,
        context: LoopContext,
        values: dict[str, Storage],
        live_out: frozenset[str],
        scopes: list[Scope],
    ) -> None:
        self._context = context
        self._live_out = live_out
        self._scopes = scopes
        self._of_sizes: dict[int, StepCalls] = {}
        self.values = values
        self.offsets: list[Mapping[str, Levels]] = []

    def reused(self, span: range) -> list[Call]:
        """The operators of steps with one number of rows, in the order in which they run, as they
        were bound for an earlier batch, or are bound now."""
        known = self._known(span.start)
        for step in known.missing(span):
            known.put(step, self.bind(step))
        return known.over(span)

    def _known(self, step: int) -> StepCalls:
        """What is bound of steps with as many rows."""
        arena, slots = self._context.arena, self._context.slots
        size = slots.sizes[step]
        known = self._of_sizes.get(size)
        if known is None:
            # Without gaps both forms of a value are one memory: steps are bound to other arrays
            # then.
            key = slots.gapless, size
            make = partial(StepCalls, arena.steps, self._context.step.reverse)
            known = self._of_sizes[size] = arena.frames.get_or_make(key, make)
        return known

    def bind_ahead(self) -> None:
        """Bind many steps at once, as far as one is like another: those that the batch has, and of
        their numbers of rows some before and after them, which the next batches will have."""
        context, arena = self._context, self._context.arena
        operators = context.sharing.operators
        if context.xp is not np or not context.options.rebind or not operators:
            return
        spans = [(span, self._known(span.start)) for span in _runs(context.slots.sizes)]
        missing = [(span, calls) for span, calls in spans if calls.missing(span)]
        count = sum([len(calls.missing(span)) for span, calls in missing])
        if count < (FEW if arena.traced else MANY):
            return
        from .traced_steps import LoopTraces, MissingSteps  # for loops of many steps

        groups: dict[int, list[MissingSteps]] = {}
        for span, calls in missing:
            plan = context.plan(operators, self._specs_at(span.start), self._live_out)
            more = range(max(span.start - _AHEAD, 0), min(span.stop + _AHEAD, arena.steps))
            arrays = self._arrays_at(plan, span.start)
            arrays |= arena.temporaries(plan, "loop")
            own = MissingSteps(calls, calls.missing(more), span, plan, arrays)
            groups.setdefault(id(plan.steps), []).append(own)
        for key, group in groups.items():
            steps = group[0].plan.steps
            traces = arena.traced.setdefault(key, LoopTraces(steps))
            if not traces.failed:
                with shared_panels(arena.panels):
                    traces.bind(group, self.values, arena.room, arena.scratch, self._frame_of)

    def bind(self, step: int) -> list[Call]:
        """The step's operators, bound to its rows."""
        return self._frame_of(step).calls if self._context.sharing.operators else []

    def _frame_of(self, step: int) -> StepFrame:
        """The frame of a step's operators."""
        context = self._context
        operators = context.sharing.operators
        if context.analysis.ragged:
            known, offsets = given_at(context.binding, context.forward, step)
            plan = context.plan(operators, known, self._live_out, offsets)
            self.offsets.append(dict(plan.offsets))
        else:
            plan = context.plan(operators, self._specs_at(step), self._live_out)
        for name in sorted(plan.live_out):
            self._make_room(name, plan.specs[name])
        return context.frame(plan, self._arrays_at(plan, step), "loop", self._scopes[step])

    def _arrays_at(self, plan: Plan, step: int) -> dict[str, Any]:
        """The arrays of a step, its temporaries aside."""
        names = (*plan.externals, *plan.live_out)
        return {name: self.values[name].at(step) for name in names if self._at_hand(name)}

    def _specs_at(self, step: int) -> dict[str, ArraySpec]:
        size = self._context.slots.sizes[step]
        specs = self._context.analysis.specs_at(size, self._context.sharing.given)
        for name, value in self.values.items():
            if isinstance(value, PerStepArrays) and len(value.arrays) > step:
                specs[name] = (value.arrays[step].shape, value.arrays[step].dtype)
        return specs

    def _at_hand(self, name: str) -> bool:
        value = self.values.get(name)
        return value is not None and not (isinstance(value, StepValues) and value.slots is None)

    def _make_room(self, name: str, spec: ArraySpec) -> None:
        """Memory for a variable that outlives this step and has none yet."""
        value = self.values.get(name)
        binding = self._context.binding
        if value is None and name in binding.step.outputs:
            track = binding.out_tracks[binding.step.outputs.index(name)]
            array = self._context.xp.empty((len(track.rows), *spec[0][1:]), spec[1])
            bounds = track.starts.tolist()
            self.values[name] = StepValues(StepSlices(array, bounds[:-1], bounds[1:]))
        elif value is None or isinstance(value, PerStepArrays):
            if value is None:
                value = self.values[name] = PerStepArrays([])
            value.arrays.append(self._context.xp.empty(*spec))


def _runs(sizes: Sequence[int]) -> list[range]:
    """The steps, those together that have the same number of rows: within them no sequence begins
    or ends."""
    lengths = [len(list(run)) for _, run in groupby(sizes)]
    return [range(*ends) for ends in pairwise(accumulate(lengths, initial=0))]


def _initial_rows(
    context: LoopContext, values: Values, states: BoundaryStates
) -> list[Call] | None:
    """Initial states of all sequences, at the steps at which they begin; None where a memory has no
    slots for all steps."""
    binding, step = context.binding, context.step
    if context.xp is not np:
        return None
    previous = [values[memory.previous] for memory in step.memories]
    arrays = [
        one.slots.array
        for one in previous
        if isinstance(one, StepValues) and isinstance(one.slots, StepSlices)
    ]
    if len(arrays) < len(previous):
        return None
    places = np.arange(binding.running)
    begins = np.zeros(len(places), np.int64)
    if step.reverse:  # with the last of their steps
        sizes = binding.schedule.sizes
        begins = len(sizes) - np.searchsorted(sizes[::-1], places, "right") - 1
    rows = begins * context.slots.room + places
    calls = []
    for memory, array in zip(step.memories, arrays, strict=True):
        if memory.boot < 0:
            calls.append(fill_rows_call(context.xp, array, rows, memory.boot_value))
        else:
            initial = states.initial[memory.boot][: len(places)]
            calls.append(put_call(context.xp, initial, None, rows, array))
    return calls


def _initial_calls(
    context: LoopContext, values: Values, states: BoundaryStates, step: int
) -> list[Call]:
    """Initial states of the sequences that begin at a step."""
    places = context.binding.begins(step)
    if places.start == places.stop:
        return []
    return [
        initial_call(
            context.xp, memory, states.initial, values[memory.previous].at(step)[places], places
        )
        for memory in context.step.memories
    ]


def _ending_calls(
    context: LoopContext, values: Values, memories: Memories, states: BoundaryStates, step: int
) -> list[Call]:
    """Copies of states, and final states of the sequences that end with a step."""
    copy = partial(copy_call, context.xp)
    calls = [
        copy(values[memory.state].at(step), state.at(step)) for memory, state in memories.copies
    ]
    places = context.binding.ends(step)
    if places.start < places.stop:
        calls += [
            copy(values[memory.state].at(step)[places], final[places])
            for memory, final in zip(context.step.memories, states.final, strict=True)
            if final is not None
        ]
    return calls


@dataclass(frozen=True, eq=False)
class _StepSum:
    """A sum link: `total` is where the sum is wanted, `gathered` where steps are added up."""

    name: str
    gathered: Any
    total: Any
    track: Track | None


class StepSums:
    """Sums over steps of what the loop computes, added up step by step from zero.

    Args:
        done: links whose sums are made by an operator that runs on the rows of all steps.
    """

    def __init__(self, binding: RecurrentBinding, done: Collection[str]) -> None:
        self._xp = binding.frame.xp
        self._sums: list[_StepSum] = []
        links = zip(binding.step.sums, binding.sums, binding.sum_tracks, strict=True)
        for name, total, track in links:
            if total is None or name in done:
                continue
            gathered = total
            if track is not None and not track.in_order:
                # In the schedule's order the sequences of a step are the first rows: a slice and no
                # index for each step.
                gathered = self._xp.empty(total.shape, total.dtype)
            self._sums.append(_StepSum(name, gathered, total, track))

    def __len__(self) -> int:
        return len(self._sums)

    def first_calls(self) -> list[Call]:
        """Before the loop: sums begin with zero."""
        return [fill_call(one.gathered, 0) for one in self._sums]

    def calls(self, step: int, values: Values) -> list[Call]:
        """After a step: its values are added."""
        calls: list[Call] = []
        for one in self._sums:
            target = one.gathered
            if one.track is not None:
                target = target[: int(one.track.starts[step])]
            calls.append(partial(self._xp.add, target, values[one.name].at(step), target))
        return calls

    def last_calls(self) -> list[Call]:
        """After the loop: sums that belong to sequences are brought into the order of the batch."""
        return [
            take_call(self._xp, one.gathered, np.argsort(one.track.rows, kind="stable"), one.total)
            for one in self._sums
            if one.gathered is not one.total and one.track is not None
        ]
