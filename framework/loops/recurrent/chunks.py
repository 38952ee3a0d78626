"""Long sequences in pieces: forward-only runs need memory for a few steps, however many there are.

Each piece is a run of the fast program of its own; states are carried from one to the next as boot
values. The pieces share their memory, so what a run needs does not grow with its steps.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np

from ...base.sequence import Schedule
from ...fusion.team import merge
from ...runtime.plan import PlanOptions
from .description import StepNet
from .fast import FastProgram
from .links import Bound, Track, fill, take_into

ROWS = 512
"""Rows of a piece, about: enough for products of full speed, few enough to stay in the caches."""


def piece_steps(bound: Bound) -> int:
    """Steps of a piece; 0 where the run stays whole: it is short, or the gradient needs it all."""
    steps = bound.schedule.steps
    if bound.steps is not None or bound.kept is not None or bound.step.sums or not steps:
        return 0
    length = max(ROWS // int(bound.schedule.sizes[0]), 1)
    return length if length < steps else 0


class PiecewiseProgram:
    """A forward-only run in pieces of `length` steps; calling it runs all of them."""

    def __init__(self, bound: Bound, options: PlanOptions, length: int) -> None:
        self.bound = bound
        self.xp = bound.frame.xp
        self.calls: list[Any] = []
        self.programs: list[FastProgram] = []
        schedule, step = bound.schedule, _carrying(bound.step)
        carried = self._carried()
        begins = range(0, schedule.steps, length)
        for begin in begins[::-1] if step.reverse else begins:
            span = slice(begin, min(begin + length, schedule.steps))
            size = int(schedule.sizes[begin])
            states = [array[:size] for array in carried]
            self.programs.append(FastProgram(_piece(bound, step, span, states), options))
        prepared: list[Any] = []
        for program in self.programs:
            first = all(program.arena is not arena for arena in prepared)
            self.calls += program.all_calls(prepare=first)
            prepared.append(program.arena)
        inverse = np.argsort(schedule.order, kind="stable")
        for memory, array in zip(bound.step.memories, carried, strict=True):
            if memory.final >= 0 and bound.finals[memory.final] is not None:
                target = bound.finals[memory.final]
                self.calls.append(take_into(self.xp, array, inverse, target))
        self.calls = merge(self.calls)

    def __call__(self) -> None:
        for program in self.programs:
            program.begin()
        for call in self.calls:
            call()

    def _carried(self) -> list[Any]:
        """States between pieces in the schedule's order: boot values at first."""
        b, arrays = self.bound, []
        for memory, (row, dtype) in zip(b.step.memories, b.memory_metas, strict=True):
            array = self.xp.empty((b.sequences, *row), dtype)
            if memory.boot < 0:
                self.calls.append(fill(array, memory.boot_value))
            else:
                boot = b.boots[memory.boot]
                self.calls.append(take_into(self.xp, boot, b.schedule.order, array))
            arrays.append(array)
        return arrays


def _carrying(step: StepNet) -> StepNet:
    """The step net with boot and final variables of its own for each memory."""
    new = copy.copy(step)
    new.memories = [
        replace(memory, boot=number, final=number) for number, memory in enumerate(step.memories)
    ]
    return new


def _piece(bound: Bound, step: StepNet, span: slice, states: list[Any]) -> Bound:
    """The operator over some of its steps, for the sequences that have the first of these."""
    sizes = bound.schedule.sizes[span]
    order = np.arange(sizes[0])
    starts = bound.schedule.starts[span.start : span.stop + 1] - bound.schedule.starts[span.start]
    return replace(
        bound,
        step=step,
        offsets=np.arange(len(order) + 1),
        schedule=Schedule(order, sizes, starts, bound.schedule.rows[: starts[-1]]),
        tracks=[_part(track, span) for track in bound.tracks],
        static_tracks=[
            track and Track(track.rows, track.starts[span], track.inner[span])
            for track in bound.static_tracks
        ],
        out_tracks=[_part(track, span) for track in bound.out_tracks],
        boots=states,
        finals=states,
    )


def _part(track: Track, span: slice) -> Track:
    first, last = int(track.starts[span.start]), int(track.starts[span.stop])
    starts = track.starts[span.start : span.stop + 1] - first
    return Track(track.rows[first:last], starts, track.inner[span])
