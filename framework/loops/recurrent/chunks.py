"""Long sequences in chunks: forward-only runs need memory for a few steps, however many there are.

Each chunk is a run over whole sequences of its own (stages.py); states are carried from one
to the next as initial states. The chunks share their memory, so what a run needs does not grow with
its steps.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from ...base.options.settings import Options
from ...base.sequence import Schedule
from ...fusion.rows.row_copies import fill_call, take_call
from ...fusion.team import merge
from ...ir.kernel_args import Call
from .description import StepNet
from .frame import run_calls
from .links import RecurrentBinding, Track
from .stages import RecurrentProgram

ROWS = 512
"""Rows of a chunk, about: enough for products of full speed, few enough to stay in the caches."""


def chunk_steps(binding: RecurrentBinding) -> int:
    """Steps of a chunk; 0 where the run stays whole: it is short, or the gradient needs it all."""
    steps = binding.schedule.steps
    # A gradient reads the values of all steps, and a sum over steps would be begun anew by each
    # chunk.
    if binding.steps is not None or binding.saved is not None or binding.step.sums or not steps:
        return 0
    length = chunk_length(int(binding.schedule.sizes[0]))
    return length if length < steps else 0


def chunk_length(rows: int) -> int:
    """Steps of a chunk, by the rows of its first step."""
    return max(ROWS // rows, 1)


class ChunkedProgram:
    """A forward-only run in chunks of `length` steps; calling it runs all of them.

    Raises:
        CannotFuseError: as `bind_recurrent`.
    """

    def __init__(self, binding: RecurrentBinding, options: Options, length: int) -> None:
        carried, calls = _carried_states(binding)
        self._title = binding.step.title
        self._chunks = [
            RecurrentProgram(chunk, options) for chunk in _chunks(binding, length, carried)
        ]
        arenas: list[Any] = []
        for program in self._chunks:
            # Weights are packed once for all chunks that share an arena.
            first = all(program.arena is not arena for arena in arenas)
            calls += program.all_calls(prepare=first)
            arenas.append(program.arena)
        inverse = np.argsort(binding.schedule.order, kind="stable")
        for memory, array in zip(binding.step.memories, carried, strict=True):
            if memory.final >= 0 and binding.final_states[memory.final] is not None:
                target = binding.final_states[memory.final]
                calls.append(take_call(binding.frame.xp, array, inverse, target))
        self._calls = merge(calls)

    def __call__(self) -> None:
        for program in self._chunks:
            program.begin()
        frames = chain.from_iterable(chunk.frames for chunk in self._chunks)
        run_calls(self._calls, self._title, frames)


def _carried_states(binding: RecurrentBinding) -> tuple[list[Any], list[Call]]:
    """States between chunks in the schedule's order, and calls that set them to initial states."""
    xp = binding.frame.xp
    arrays = []
    calls = []
    for memory, (row, dtype) in zip(binding.step.memories, binding.memory_specs, strict=True):
        array = xp.empty((binding.sequences, *row), dtype)
        if memory.boot < 0:
            calls.append(fill_call(array, memory.boot_value))
        else:
            initial = binding.initial_states[memory.boot]
            calls.append(take_call(xp, initial, binding.schedule.order, array))
        arrays.append(array)
    return arrays, calls


def _chunks(
    binding: RecurrentBinding, length: int, carried: Sequence[Any]
) -> list[RecurrentBinding]:
    """The operator over `length` steps at a time, in the order in which these run."""
    schedule = binding.schedule
    step = _carrying(binding.step)
    chunks = []
    begins = range(0, schedule.steps, length)
    for begin in begins[::-1] if step.reverse else begins:
        span = slice(begin, min(begin + length, schedule.steps))
        size = int(schedule.sizes[begin])
        chunks.append(_chunk(binding, step, span, [array[:size] for array in carried]))
    return chunks


def _carrying(step: StepNet) -> StepNet:
    """The step net with boot and final variables of its own for each memory."""
    # A shallow copy keeps the remembered analyses and plans, which do not depend on boot variables.
    new = copy.copy(step)
    new.memories = [
        replace(memory, boot=number, final=number) for number, memory in enumerate(step.memories)
    ]
    return new


def _chunk(
    binding: RecurrentBinding, step: StepNet, span: slice, states: list[Any]
) -> RecurrentBinding:
    """The operator over some of its steps, for the sequences that have the first of these."""
    schedule = binding.schedule
    sizes = schedule.sizes[span]
    order = np.arange(sizes[0])
    starts = schedule.starts[span.start : span.stop + 1] - schedule.starts[span.start]
    return replace(
        binding,
        step=step,
        offsets=np.arange(len(order) + 1),
        schedule=Schedule(order, sizes, starts, schedule.rows[: starts[-1]]),
        tracks=[_part(track, span) for track in binding.tracks],
        static_tracks=[
            track and Track(track.rows, track.starts[span], track.inner[span])
            for track in binding.static_tracks
        ],
        out_tracks=[_part(track, span) for track in binding.out_tracks],
        initial_states=states,
        # The same arrays as the initial states: a chunk leaves its states where the next one
        # begins.
        final_states=states,
    )


def _part(track: Track, span: slice) -> Track:
    first, last = int(track.starts[span.start]), int(track.starts[span.stop])
    starts = track.starts[span.start : span.stop + 1] - first
    return Track(track.rows[first:last], starts, track.inner[span])
