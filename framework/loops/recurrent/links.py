"""How a recurrent operator is linked to the outside: the rows of each step, and the arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...base.python.bounded_cache import BoundedCache
from ...base.scope import Scope, Variable
from ...base.sequence import Schedule, make_schedule, offsets_of, repeated
from ...base.sizes.shape import ArraySpec, Levels
from ...runtime.binding import BoundSteps
from .description import StepNet


@dataclass(frozen=True)
class Track:
    """The rows of a linked variable, step by step.

    Attributes:
        rows: row outside of each row inside, steps one after the other.
        starts: [steps + 1], where the rows of each step begin.
        inner: offsets of the sequences that a step sees in its rows; () where it sees plain rows.
    """

    rows: np.ndarray
    starts: np.ndarray
    inner: list[Levels]

    def span(self, step: int) -> slice:
        return slice(int(self.starts[step]), int(self.starts[step + 1]))

    @property
    def in_order(self) -> bool:
        """Whether the rows have the same order inside and outside."""
        return np.array_equal(self.rows, np.arange(len(self.rows)))


def make_track(levels: Levels, schedule: Schedule) -> Track:
    """The track of a sequence variable: its outermost level is the one that steps run along."""
    steps = schedule.steps
    if len(levels) == 1:
        return Track(schedule.rows, schedule.starts, [()] * steps)
    return _track_of_sequences(levels[1], schedule.rows, schedule.starts)


def make_static_track(levels: Levels, schedule: Schedule) -> Track:
    """The track of a static variable with one sequence for each of the links' sequences.

    Each step sees the sequences that have that step, in the schedule's order; the rows of a step
    are the first ones of `rows`, so `starts` holds ends.
    """
    whole = _track_of_sequences(levels[0], schedule.order, np.array([0, len(schedule.order)]))
    offsets = whole.inner[0][0]
    ends = offsets[schedule.sizes]
    inner: list[Levels] = [(offsets[: size + 1],) for size in schedule.sizes]
    return Track(whole.rows, ends, inner)


def _track_of_sequences(offsets: np.ndarray, order: np.ndarray, bounds: np.ndarray) -> Track:
    """Sequences in a new order, cut into groups at `bounds`."""
    lengths = np.diff(offsets)[order]
    begins = offsets_of(lengths)
    rows = repeated(offsets[:-1][order] - begins[:-1], lengths) + np.arange(begins[-1])
    inner: list[Levels] = [
        (offsets_of(lengths[a:b]),) for a, b in zip(bounds[:-1], bounds[1:], strict=True)
    ]
    return Track(rows, begins[bounds], inner)


def outer_levels(schedule: Schedule, outer: np.ndarray, inner: Sequence[Levels]) -> Levels:
    """Offsets of a linked output, from those that each step gives to its rows."""
    if not inner or not inner[0]:
        return (outer,)
    lengths = np.empty(len(schedule.rows), np.int64)
    lengths[schedule.rows] = np.concatenate([np.diff(levels[0]) for levels in inner])
    return (outer, offsets_of(lengths))


@dataclass(frozen=True, eq=False)
class RecurrentBinding:
    """A recurrent operator bound to the arrays of one frame, for the sequences of one batch.

    Attributes:
        step: the step net. owner: the operator; its frames and memory are remembered under it.
        frame: the frame of the net around, whose place, phase and scope also hold inside.
        offsets: of the sequences; schedule: which of their rows run at each step.
        tracks, arrays: of the in-links.
        statics, static_levels: arrays and offsets of the static links. static_tracks: None for
            those that are the same at every step.
        memory_specs: shape without rows, and dtype, of each memory.
        initial_states: boot variables by position in the slot, one row for each sequence.
        out_tracks, outputs: of the out-links; None for outputs that nothing needs.
        final_states: last states by position in the slot, one row for each sequence; None for
            those that nothing needs.
        sums: results of the sum links, None for those that nothing needs. sum_tracks: None for sums
            that do not belong to sequences.
        steps: the variable that receives what the run saves for the gradient, or None.
        to_save: names that the gradient reads; None: all names.
        saved: in a gradient, what the forward run saved. saved_names: what to read from there.
    """

    step: StepNet
    owner: Any
    frame: BoundSteps
    offsets: np.ndarray
    schedule: Schedule
    tracks: Sequence[Track]
    arrays: Sequence[Any]
    statics: Sequence[Any]
    static_levels: Sequence[Levels]
    static_tracks: Sequence[Track | None]
    memory_specs: Sequence[ArraySpec]
    initial_states: Sequence[Any]
    outputs: Sequence[Any]
    out_tracks: Sequence[Track]
    final_states: Sequence[Any]
    sums: Sequence[Any]
    sum_tracks: Sequence[Track | None]
    steps: Variable | None = None
    to_save: frozenset[str] | None = None
    saved: list[Scope] | None = None
    saved_names: tuple[str, ...] = ()

    @property
    def order(self) -> range:
        """Steps in the order in which they run."""
        steps = range(self.schedule.steps)
        return steps[::-1] if self.step.reverse else steps

    @property
    def sequences(self) -> int:
        return len(self.offsets) - 1

    @property
    def running(self) -> int:
        """Sequences that have a step at all: the first ones in the schedule's order."""
        return int(self.schedule.sizes[0]) if self.schedule.steps else 0

    def begins(self, step: int) -> slice:
        """Places of the sequences that take their initial state at this step."""
        return self._ended_after(step) if self.step.reverse else self._first(step)

    def ends(self, step: int) -> slice:
        """Places of the sequences whose final state this step computes."""
        return self._first(step) if self.step.reverse else self._ended_after(step)

    def _first(self, step: int) -> slice:
        return slice(0, int(self.schedule.sizes[step]) if step == 0 else 0)

    def _ended_after(self, step: int) -> slice:
        last = step + 1 == self.schedule.steps
        begin = 0 if last else int(self.schedule.sizes[step + 1])
        return slice(begin, int(self.schedule.sizes[step]))


_SCHEDULES: BoundedCache[bytes, Schedule] = BoundedCache(16)


def plain_schedule(offsets: np.ndarray) -> Schedule:
    """`make_schedule`, remembered with the offsets: one batch binds several operators."""
    key = offsets.tobytes()
    return _SCHEDULES.get(key) or _SCHEDULES.add(key, make_schedule(offsets))
