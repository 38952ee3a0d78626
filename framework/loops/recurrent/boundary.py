"""Values that enter and leave the loop of a recurrent net: links, memories, boundary states.

Outside, sequences come in the order of the batch; inside, in the schedule's order, by falling
length, and their rows step by step. Each function here takes a value and returns one: arrays, and
the calls that fill them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...base.scope import Scope
from ...base.sizes.shape import Levels
from ...fusion.rows.row_copies import copy_call, fill_call, put_call, take_call
from ...ir.kernel_args import Call
from ..inner_links import Memory
from .frame import LoopContext
from .links import RecurrentBinding, Track
from .store import (
    DoubleBuffer,
    RowPrefixes,
    SavedSteps,
    Stage,
    StepSlices,
    StepValues,
    Storage,
    Values,
    WholeArray,
    row_of,
)

# -- states before the first and after the last step ---------------------------------------------


@dataclass(frozen=True, eq=False)
class BoundaryStates:
    """Initial and final states in the schedule's order.

    Attributes:
        initial: by position in the slot of boot variables.
        final: for each memory; None where nothing needs its last state.
        opening: calls before the loop. They bring initial states into order, and give sequences
            without a step their final states.
        closing: calls after the loop. They bring final states into the order of the batch.
    """

    initial: Sequence[Any]
    final: Sequence[Any]
    opening: list[Call]
    closing: list[Call]


def bind_states(binding: RecurrentBinding) -> BoundaryStates:
    """Initial and final states of a bound operator."""
    xp, order = binding.frame.xp, binding.schedule.order
    opening: list[Call] = []
    closing: list[Call] = []
    initial = list(binding.initial_states)
    in_order = np.array_equal(order, np.arange(binding.sequences))
    # Inside the longest sequence comes first; in a batch that is ordered so nothing is copied.
    if not in_order:
        for number, array in enumerate(initial):
            initial[number] = xp.empty(array.shape, array.dtype)
            opening.append(take_call(xp, array, order, initial[number]))
    inverse = np.argsort(order, kind="stable")
    idle = slice(binding.running, None)
    final: list[Any] = []
    for memory in binding.step.memories:
        wanted = binding.final_states[memory.final] if memory.final >= 0 else None
        array = wanted
        if wanted is not None and not in_order:
            array = xp.empty(wanted.shape, wanted.dtype)
            closing.append(take_call(xp, array, inverse, wanted))
        if array is not None and binding.running < len(array):
            # A sequence without a step ends with the state that it began with.
            opening.append(initial_call(xp, memory, initial, array[idle], idle))
        final.append(array)
    return BoundaryStates(initial, final, opening, closing)


def initial_call(
    xp: Any, memory: Memory, initial: Sequence[Any], target: Any, places: slice
) -> Call:
    """A call that fills `target` with a memory's initial states of the sequences at `places`."""
    if memory.boot < 0:
        return fill_call(target, memory.boot_value)
    return copy_call(xp, initial[memory.boot][places], target)


# -- links ---------------------------------------------------------------------------------------


def bind_links(context: LoopContext) -> Stage:
    """First stage: values of in-links, static links, and what the forward run saved.

    In-links are brought into slots where the loop reads them, and side by side where operators
    that run once do.
    """
    binding, about, slots = context.binding, context.analysis, context.slots
    values: dict[str, Storage] = {}
    calls: list[Call] = []
    inputs = zip(binding.step.inputs, binding.arrays, binding.tracks, strict=False)
    for name, array, track in inputs:
        if about.ragged:
            ends = track.starts.tolist()
            gathered = _gathered(context, calls, array, track)
            values[name] = StepValues(StepSlices(gathered, ends[:-1], ends[1:]))
            continue
        in_slots = compact = None
        # Two forms where both are read: what runs once wants rows without gaps, the loop wants
        # slots.
        if name in about.once_reads or name in about.saved:
            compact = _gathered(context, calls, array, track, ("compact", name))
        if name in about.step_reads:
            rows = track.rows if slots.gapless else track.rows[slots.filling]
            target = context.arena.slots(("slots", name), array.shape[1:], array.dtype)
            calls.append(take_call(context.xp, array, rows, target[: len(rows)]))
            in_slots = slots.slices(target)
        values[name] = StepValues(in_slots, compact)
    statics = zip(binding.step.statics, binding.statics, binding.static_tracks, strict=True)
    for name, array, track in statics:
        if track is None:
            values[name] = WholeArray(array)
        else:
            gathered = _gathered(context, calls, array, track)
            values[name] = RowPrefixes(gathered, track.starts.tolist())
    saved = context.forward.values
    values.update((name, saved[name]) for name in binding.saved_names if name in saved)
    return Stage(values, calls)


def _gathered(
    context: LoopContext, calls: list[Call], array: Any, track: Track, key: Any = None
) -> Any:
    """The rows of a track, step by step: the array itself, or one that a new call fills.

    Args:
        key: of the arena's array to fill; None: an array of its own.
    """
    if track.in_order:
        return array[: len(track.rows)]
    spec = ((len(track.rows), *array.shape[1:]), array.dtype)
    if key is None:
        target = context.xp.empty(*spec)
    else:
        target = context.arena.slots(key, *row_of(spec))[: len(track.rows)]
    calls.append(take_call(context.xp, array, track.rows, target))
    return target


# -- memories ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Memories:
    """The second stage: values of both sides of each memory.

    Attributes:
        values: those given, and the added ones.
        copies: memories whose state has values elsewhere already, from which each step copies it.
    """

    values: Values
    copies: list[tuple[Memory, StepValues]]


def bind_memories(context: LoopContext, values: Values) -> Memories:
    """Second stage: memories that live on are one array for all steps, others a double buffer."""
    step, arena, slots = context.step, context.arena, context.slots
    live_out, reverse = context.analysis.live_out, context.step.reverse
    bound = dict(values)
    copies: list[tuple[Memory, StepValues]] = []
    for number, memory in enumerate(step.memories):
        row, dtype = context.binding.memory_specs[number]
        if memory.state in live_out or memory.previous in live_out:
            # One slot more than steps: the state after the last, or the one before the first.
            buffer = arena.slots(("memory", number), row, dtype, extra=1)
            here = slots.slices(buffer)
            further = slots.slices(buffer[arena.room :])
            # The neighbor's slot is read where it was written, so a state is never copied.
            previous, state = (further, here) if reverse else (here, further)
        else:
            spec = ((arena.room, *row), dtype)
            pair = arena.array(("turn", number, 0), spec), arena.array(("turn", number, 1), spec)
            previous = DoubleBuffer(pair, slots.sizes, 0)
            state = DoubleBuffer(pair, slots.sizes, -1 if reverse else 1)
        bound[memory.previous] = StepValues(previous)
        # An operator before the loop, or another memory, has its memory already.
        if memory.state in bound:
            copies.append((memory, StepValues(state)))
        else:
            bound[memory.state] = StepValues(state)
    return Memories(bound, copies)


# -- results -------------------------------------------------------------------------------------


def bind_outputs(context: LoopContext, values: Values) -> list[Call]:
    """Last stage: out-links go back to the order of the batch; sums wanted twice are copied."""
    binding, xp = context.binding, context.xp
    calls: list[Call] = []
    outputs = zip(binding.step.outputs, binding.outputs, binding.out_tracks, strict=True)
    for name, array, track in outputs:
        if array is None:
            continue
        source, rows = _source_of(values[name])
        if len(track.rows) == len(array):
            inverse = np.argsort(track.rows, kind="stable")
            rows = inverse if rows is None else rows[inverse]
            calls.append(take_call(xp, source, rows, array))
        else:  # one chunk of a longer run
            calls.append(put_call(xp, source, rows, track.rows, array))
    for name, total in zip(binding.step.sums, binding.sums, strict=True):
        if total is not None and name in context.analysis.phases.sums:
            value = values[name]
            assert isinstance(value, WholeArray)
            # Two links may take one sum; the second is a copy.
            if value.array is not total:
                calls.append(copy_call(xp, value.array, total))
    return calls


def _source_of(value: Storage) -> tuple[Any, np.ndarray | None]:
    """An array with a variable's values, and its row for each time-major row; None: the same."""
    assert isinstance(value, StepValues)
    if value.compact is not None:
        return value.compact, None
    assert isinstance(value.slots, StepSlices)
    return value.slots.array, value.slots.rows


def saved_steps(
    context: LoopContext,
    values: Values,
    scopes: Sequence[Scope],
    offsets: Sequence[Mapping[str, Levels]],
) -> SavedSteps:
    """The values that the run saves for its gradient.

    Args:
        scopes, offsets: of each step, where the loop has made them.
    """
    about = context.analysis
    saved = {name: values[name] for name in about.saved if name in values}
    return SavedSteps(scopes, saved, about.specs, about.rows, about.ragged, offsets, context.arena)
