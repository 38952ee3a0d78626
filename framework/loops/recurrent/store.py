"""Where the values of all steps of a recurrent net are, and the memory that runs share.

Each variable of the loop has an array with a slot for every step, of as many rows as the largest
step has. So the arrays that step t with n rows works on are the same in every batch, and what is
bound to them can be used again. A memory is one array for both its sides: `previous` of a step is
the slot where the neighbouring step has put its `state`, and nothing is copied between steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...base.backend import Place
from ...base.scope import Scope
from ...base.sequence import Schedule
from ...base.shape import Levels, Meta
from ...fusion.team import Prepared
from ...ir.kernel_args import RunState
from ...runtime.executor import ScratchPool


class Whole:
    """One value for all steps."""

    by_rows = False

    def __init__(self, array: Any) -> None:
        self.array = array

    def at(self, step: int) -> Any:
        return self.array


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

    def __init__(self) -> None:
        self.arrays: list[Any] = []

    def at(self, step: int) -> Any:
        return self.arrays[step]


class Rows:
    """The rows of a step in an array: begins[step]:ends[step]."""

    by_rows = True

    def __init__(self, array: Any, begins: Sequence[int], ends: Sequence[int]) -> None:
        self.array, self.begins, self.ends = array, begins, ends

    def at(self, step: int) -> Any:
        return self.array[self.begins[step] : self.ends[step]]

    def columns(self, begin: int, end: int) -> Rows:
        """Some columns of each row."""
        return Rows(self.array[:, begin:end], self.begins, self.ends)

    @property
    def rows(self) -> np.ndarray:
        """Row of the array for each time-major row."""
        begins, sizes = np.array(self.begins), np.array(self.ends) - self.begins
        total = int(sizes.sum())
        return np.repeat(begins - (np.cumsum(sizes) - sizes), sizes) + np.arange(total)


class Alternating:
    """A memory that nobody looks at afterwards: two steps' rows, used in turn.

    Args:
        phase: 0 for `previous`; for `state` 1 in ascending order, -1 in descending order.
    """

    by_rows = True

    def __init__(self, pair: tuple[Any, Any], sizes: Sequence[int], phase: int) -> None:
        self._pair, self._sizes, self._phase = pair, sizes, phase

    def at(self, step: int) -> Any:
        return self._pair[(step + self._phase) % 2][: self._sizes[step]]

    def columns(self, begin: int, end: int) -> Alternating:
        """Some columns of each row."""
        first, second = (array[:, begin:end] for array in self._pair)
        return Alternating((first, second), self._sizes, self._phase)


class Sheet:
    """A variable with one row for each sequence of a step, in one or two forms.

    Attributes:
        slots: in slots, as the loop wants it, or None.
        compact: one step after the other without gaps, as operators over all rows want it, or None.
    """

    by_rows = True

    def __init__(self, slots: Rows | Alternating | None = None, compact: Any = None) -> None:
        self.slots, self.compact = slots, compact

    def at(self, step: int) -> Any:
        assert self.slots is not None
        return self.slots.at(step)

    @property
    def meta(self) -> Meta:
        """Shape and dtype of an array that holds it."""
        array = self.compact if self.compact is not None else self.slots.at(0)
        return array.shape, array.dtype


def row_of(meta: Meta) -> tuple[tuple[int, ...], Any]:
    """Shape and dtype of one row."""
    return meta[0][1:], meta[1]


Stored = Whole | Prefixes | Each | Sheet


class Layout:
    """Where the rows of a schedule's steps lie in slots of `room` rows."""

    def __init__(self, schedule: Schedule, room: int) -> None:
        self._schedule, self.room = schedule, room
        self.sizes: list[int] = schedule.sizes.tolist()
        self.begins = [room * step for step in range(schedule.steps)]
        self.ends = [begin + size for begin, size in zip(self.begins, self.sizes, strict=True)]
        self.total = int(schedule.starts[-1])
        self.gapless = self.sizes[-1] == room
        """Whether slots are full, so that both forms of a sheet are the same memory."""

    @property
    def filling(self) -> np.ndarray:
        """Time-major row for each row in slots; any valid one for those without a meaning."""
        starts, last = self._schedule.starts[:-1, None], self._schedule.sizes[:, None] - 1
        return (starts + np.minimum(np.arange(self.room), last)).reshape(-1)


class Arena:
    """The memory of a recurrent operator in one scope, and the frames that are bound to it.

    Args:
        room, steps: the largest step and the longest sequence it serves.
        fixed: arrays from outside that frames are bound to.
    """

    def __init__(self, place: Place, room: int, steps: int, fixed: Sequence[Any]) -> None:
        self.room, self.steps, self.fixed = room, steps, list(fixed)
        self.scratch = ScratchPool(place.xp)
        self.state = RunState(place)
        self.frames: dict[Any, list[Any]] = {}
        self.prepared = Prepared()
        self._xp = place.xp
        self._held: dict[Any, Any] = {}

    def serves(self, room: int, steps: int, fixed: Sequence[Any]) -> bool:
        """Whether a batch of this size finds its memory and the same arrays here."""
        return (
            room <= self.room
            and steps <= self.steps
            and len(fixed) == len(self.fixed)
            and all(new is old for new, old in zip(fixed, self.fixed, strict=True))
        )

    def array(self, key: Any, meta: Meta) -> Any:
        """An array of its own for each key; its values last until the key is asked for again."""
        held = self._held.get(key)
        if held is None or held.shape != meta[0] or held.dtype != meta[1]:
            held = self._held[key] = self._xp.empty(*meta)
        return held

    def arrays(self) -> list[Any]:
        """All its arrays."""
        return list(self._held.values())

    def slots(self, key: Any, row: Sequence[int], dtype: Any, extra: int = 0) -> Any:
        """An array with room for all steps, and `extra` more."""
        return self.array(key, ((self.room * (self.steps + extra), *row), dtype))

    def block(self, key: Any, size: int) -> Any:
        """Bytes for temporaries; the same ones for equal keys, unless these were too few."""
        held = self._held.get(key)
        if held is None or held.nbytes < size:
            held = self._held[key] = self._xp.empty(max(size, 1), np.uint8)
        return held


class KeptSteps(list[Scope]):
    """What a fast run keeps for the gradient, in place of a list of step scopes.

    The list holds scopes, one for each step, only where the step net holds nets itself.

    Attributes:
        stored: inner variable -> its values.
        metas: shapes in some step, also of what is not stored. rows: which of them count sequences.
        ragged: whether steps see sequences; offsets: theirs, for each step.
        arena: where the values are.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stored: dict[str, Stored] = {}
        self.metas: dict[str, Meta] = {}
        self.rows: set[str] = set()
        self.ragged = False
        self.offsets: list[dict[str, Levels]] = []
        self.arena: Arena | None = None
