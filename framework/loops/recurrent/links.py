"""What joins a recurrent operator to the outside: the rows each step sees, and bound arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...base.scope import Variable
from ...base.sequence import Schedule, make_schedule, offsets_of
from ...base.shape import Levels, Meta
from ...fusion.team import copying, filling, shared
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
        """Whether inside and outside the rows stand in the same order."""
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
    rows = np.repeat(offsets[:-1][order] - begins[:-1], lengths) + np.arange(begins[-1])
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


@dataclass
class Bound:
    """A recurrent operator bound to the arrays of one frame.

    Attributes:
        tracks, arrays: of the in-links. static_tracks: None for those that are the same at every
            step; sum_tracks likewise, for sums that belong to sequences.
        memory_metas: shape without rows, and dtype, of each memory.
        boots: by position in the slot, one row for each sequence. finals likewise.
        out_tracks, outputs: of the out-links; None for outputs that nobody needs.
        steps: variable that receives what the forward run keeps for the gradient, or None.
        kept: what the forward run kept: its step scopes; `kept_names`: what to read from there.
        keep: names that must be kept; None = all. owner: the operator.
    """

    step: StepNet
    frame: Any
    offsets: np.ndarray
    schedule: Schedule
    tracks: list[Track]
    arrays: list[Any]
    statics: list[Any]
    static_levels: list[Levels]
    static_tracks: list[Track | None]
    memory_metas: list[Meta]
    boots: list[Any]
    outputs: list[Any]
    out_tracks: list[Track]
    finals: list[Any]
    sums: list[Any]
    sum_tracks: list[Track | None]
    steps: Variable | None = None
    keep: frozenset[str] | None = None
    owner: Any = None
    kept: list[Any] | None = None
    kept_names: tuple[str, ...] = ()

    @property
    def order(self) -> range:
        """Steps in the order in which they run."""
        steps = range(self.schedule.steps)
        return steps[::-1] if self.step.reverse else steps

    @property
    def sequences(self) -> int:
        return len(self.offsets) - 1

    def begins(self, step: int) -> slice:
        """Places of the sequences that take their boot value at this step."""
        size = int(self.schedule.sizes[step])
        if not self.step.reverse:
            return slice(0, size if step == 0 else 0)
        last = step + 1 == self.schedule.steps
        return slice(0 if last else int(self.schedule.sizes[step + 1]), size)

    def ends(self, step: int) -> slice:
        """Places of the sequences whose last state this step computes."""
        size = int(self.schedule.sizes[step])
        if self.step.reverse:
            return slice(0, size if step == 0 else 0)
        last = step + 1 == self.schedule.steps
        return slice(0 if last else int(self.schedule.sizes[step + 1]), size)


def plain_schedule(offsets: np.ndarray) -> Schedule:
    """`make_schedule`, remembered with the offsets: one batch binds several operators."""
    key = offsets.tobytes()
    found = _schedules.get(key)
    if found is None:
        found = make_schedule(offsets)
        while len(_schedules) >= _MOST:
            _schedules.pop(next(iter(_schedules)), None)
        _schedules[key] = found
    return found


_MOST = 16
_schedules: dict[bytes, Schedule] = {}


def take_into(xp: Any, source: Any, rows: np.ndarray, target: Any) -> Any:
    """A callable for target = source[rows]."""
    index = xp.asarray(rows)
    # "clip", as "raise" would go through a buffer; the rows are in range by construction.
    mode = ("clip",) if xp is np else ()
    call = partial(source.take, index, 0, target, *mode)
    return shared(call, copying(target, source, source_rows=rows))


def put_into(
    xp: Any, source: Any, rows: np.ndarray | None, target_rows: np.ndarray, target: Any
) -> Any:
    """A callable for target[target_rows] = source[rows]; without `rows` all of them."""
    index = xp.asarray(target_rows)
    held = slice(None) if rows is None else xp.asarray(rows)

    def put() -> None:
        target[index] = source[held]

    return shared(put, copying(target, source, target_rows, rows))


def copy_into(xp: Any, source: Any, target: Any) -> Any:
    """A callable for target[...] = source."""
    return shared(partial(xp.copyto, target, source), copying(target, source))


def fill(target: Any, value: float) -> Any:
    """A callable for target[...] = value."""
    return shared(partial(target.fill, value), filling(target, value))
