"""Where the values of all steps of a recurrent net are: whole arrays with a part for each step.

Time-major arrays hold the rows of all steps, one step after the other. A memory is one such array
for both its sides: `previous` at a step is `state` of the step before, a prefix of the same rows,
so that nothing is copied from step to step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .recurrent_links import take_into
from .scope import Scope
from .sequence import Schedule
from .shape import Levels, Meta


class Whole:
    """One value for all steps."""

    by_rows = False

    def __init__(self, array: Any) -> None:
        self.array = array

    def at(self, step: int) -> Any:
        return self.array


class Rows:
    """A time-major array; `starts`: where the rows of each step begin."""

    by_rows = True

    def __init__(self, array: Any, starts: np.ndarray) -> None:
        self.array = array
        self._starts = starts.tolist()

    def at(self, step: int) -> Any:
        return self.array[self._starts[step] : self._starts[step + 1]]


class Prefixes:
    """At each step the first rows of one array; `ends`: how many."""

    by_rows = False

    def __init__(self, array: Any, ends: np.ndarray) -> None:
        self.array = array
        self._ends = ends.tolist()

    def at(self, step: int) -> Any:
        return self.array[: self._ends[step]]


class Each:
    """Arrays of their own for each step."""

    by_rows = False

    def __init__(self, arrays: list[Any]) -> None:
        self.arrays = arrays

    def at(self, step: int) -> Any:
        return self.arrays[step]


class Shifted:
    """The other side of a memory: the rows of each step lie where those of its neighbour do.

    The buffer holds a first step's rows, then time-major rows. Step 0 is the buffer's beginning,
    step t > 0 lies with the first rows of step t - 1 of the time-major part.
    """

    by_rows = True

    def __init__(self, buffer: Any, schedule: Schedule) -> None:
        self.buffer = buffer
        sizes, first = schedule.sizes, int(schedule.sizes[0])
        begins = np.concatenate([[0], first + schedule.starts[:-2]])
        self._begins, self._sizes = begins.tolist(), sizes.tolist()
        self.rows = np.repeat(begins - schedule.starts[:-1], sizes) + np.arange(sizes.sum())
        self._whole: Any = None
        if sizes[-1] == first:
            self._whole = buffer[: len(self.rows)]

    def at(self, step: int) -> Any:
        begin = self._begins[step]
        return self.buffer[begin : begin + self._sizes[step]]

    def whole(self, xp: Any, calls: list[Any]) -> Any:
        """All rows as a time-major array; `calls` gets what brings them there."""
        if self._whole is not None:
            return self._whole
        target = xp.empty((len(self.rows), *self.buffer.shape[1:]), self.buffer.dtype)
        calls.append(take_into(xp, self.buffer, self.rows, target))
        return target


class Alternating:
    """A memory that nobody looks at afterwards: two steps' rows, used in turn.

    Args:
        phase: 0 for `previous`, 1 for `state` in ascending order, -1 in descending order.
    """

    by_rows = True

    def __init__(self, pair: tuple[Any, Any], schedule: Schedule, phase: int) -> None:
        self._pair, self._phase = pair, phase
        self._sizes = schedule.sizes.tolist()

    def at(self, step: int) -> Any:
        return self._pair[(step + self._phase) % 2][: self._sizes[step]]


Stored = Whole | Rows | Prefixes | Each | Shifted | Alternating


def time_major(stored: Stored, xp: Any, calls: list[Any]) -> Any:
    """The value of all steps as one array; `calls` gets what brings it there, if anything."""
    if isinstance(stored, Shifted):
        return stored.whole(xp, calls)
    return stored.array


class KeptSteps(list[Scope]):
    """What a fast run keeps for the gradient, in place of a list of step scopes.

    The list holds scopes, one for each step, only where the step net holds nets itself.

    Attributes:
        stored: inner variable -> its values.
        metas: shapes in step 0, also of what is not stored. rows: which of them count sequences.
        ragged: whether steps see sequences; offsets: theirs, for each step.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stored: dict[str, Stored] = {}
        self.metas: dict[str, Meta] = {}
        self.rows: set[str] = set()
        self.ragged = False
        self.offsets: list[dict[str, Levels]] = []
