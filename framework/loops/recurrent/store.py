"""Where the values of all steps of a recurrent net are, and the memory that its runs share.

Each variable of the loop has an array with a slot for every step, of as many rows as the largest
step has. So the arrays that step t with n rows works on are the same in every batch, and what is
bound to them can be used again. A memory is one array for both its sides: `previous` of a step is
the slot where the neighboring step has put its `state`, and nothing is copied between steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...base.backend import Place, same_memory
from ...base.python.bounded_cache import BoundedCache
from ...base.scope import Scope
from ...base.sequence import Schedule, runs
from ...base.sizes.shape import ArraySpec, Levels
from ...fusion.rows.prepared import Prepared
from ...ir.kernel_args import RunState
from ...runtime.executor import OPERATOR_BYTES
from ...runtime.plans.memory import Held, Panels, ScratchPool, as_view
from ...runtime.plans.plan import Plan
from .step_calls import StepCalls

_MOST_OPERATORS = 3 * 4096
"""Operators of an arena's bound steps: of a step for each number of rows that it had."""


@dataclass(frozen=True, eq=False)
class WholeArray:
    """One array for all steps."""

    array: Any

    def at(self, step: int) -> Any:
        return self.array


@dataclass(frozen=True, eq=False)
class RowPrefixes:
    """At each step the first rows of one array; `ends`: how many."""

    array: Any
    ends: Sequence[int]

    def at(self, step: int) -> Any:
        return self.array[: self.ends[step]]


@dataclass(frozen=True, eq=False)
class PerStepArrays:
    """An array of its own for each step."""

    arrays: list[Any]

    def at(self, step: int) -> Any:
        return self.arrays[step]


@dataclass(frozen=True, eq=False)
class StepSlices:
    """The rows of each step in one array: begins[step]:ends[step]."""

    array: Any
    begins: Sequence[int]
    ends: Sequence[int]

    def at(self, step: int) -> Any:
        return self.array[self.begins[step] : self.ends[step]]

    def columns(self, begin: int, end: int) -> StepSlices:
        """A view of some columns."""
        return StepSlices(self.array[:, begin:end], self.begins, self.ends)

    @property
    def rows(self) -> np.ndarray:
        """Row of the array for each time-major row."""
        begins = np.array(self.begins, np.int64)
        return runs(begins, np.array(self.ends, np.int64) - begins)


@dataclass(frozen=True, eq=False)
class DoubleBuffer:
    """A memory that nothing reads after its step: two arrays, which steps use in turn.

    Attributes:
        sizes: rows of each step.
        phase: 0 for `previous`; for `state` 1 in ascending order, -1 in descending order.
    """

    pair: tuple[Any, Any]
    sizes: Sequence[int]
    phase: int

    def at(self, step: int) -> Any:
        return self.pair[(step + self.phase) % 2][: self.sizes[step]]

    def columns(self, begin: int, end: int) -> DoubleBuffer:
        """A view of some columns."""
        first, second = (array[:, begin:end] for array in self.pair)
        return DoubleBuffer((first, second), self.sizes, self.phase)


Slots = StepSlices | DoubleBuffer


@dataclass(frozen=True, eq=False)
class StepValues:
    """The values of a variable that has one row for each sequence of a step, in one or two forms.

    Attributes:
        slots: by slot, as the loop reads and writes them; None: not in this form.
        compact: all steps one after the other without gaps, as operators that run once read and
            write them; None: not in this form.
    """

    slots: Slots | None = None
    compact: Any = None

    def at(self, step: int) -> Any:
        assert self.slots is not None
        return self.slots.at(step)

    @property
    def spec(self) -> ArraySpec:
        """Shape and dtype of an array that holds the values."""
        if self.compact is not None:
            array = self.compact
        else:
            array = self.at(0)
        return array.shape, array.dtype


def row_of(spec: ArraySpec) -> tuple[tuple[int, ...], Any]:
    """Shape and dtype of one row."""
    return spec[0][1:], spec[1]


Storage = WholeArray | RowPrefixes | PerStepArrays | StepValues
"""Where the values of one variable are."""

Values = Mapping[str, Storage]
"""Variable of the step net -> where its values are."""


@dataclass(frozen=True, eq=False)
class Stage:
    """The result of a stage of binding.

    Attributes:
        values: those that the stage was given and those that it added.
        calls: what brings the added values into their place, in the order in which it runs.
    """

    values: Values
    calls: list[Callable[[], Any]]


class SlotRanges:
    """Which rows of an array with slots of `room` rows belong to each step of a schedule.

    Attributes:
        sizes: rows of each step. begins, ends: the range of rows that they take.
        total: rows of all steps.
        gapless: whether all slots are full, so that both forms of step values are one memory.
    """

    def __init__(self, schedule: Schedule, room: int) -> None:
        self._schedule = schedule
        self.room = room
        self.sizes: list[int] = schedule.sizes.tolist()
        self.begins = [room * step for step in range(schedule.steps)]
        self.ends = [begin + size for begin, size in zip(self.begins, self.sizes, strict=True)]
        self.total = int(schedule.starts[-1])
        # Sizes never grow from step to step: if the last slot is full, all are.
        self.gapless = self.sizes[-1] == room

    @property
    def filling(self) -> np.ndarray:
        """Time-major row for each row in slots; where no sequence is, the last row of the step."""
        # A gap needs an index in range, too; what it holds is never read.
        starts = self._schedule.starts[:-1, None]
        last = self._schedule.sizes[:, None] - 1
        return (starts + np.minimum(np.arange(self.room), last)).reshape(-1)

    def slices(self, array: Any) -> StepSlices:
        """The slots of an array."""
        return StepSlices(array, self.begins, self.ends)


def _are_one(new: Any, old: Any) -> bool:
    """Whether what is bound to one of two arrays, or other things, is bound to the other, too.

    Weights that a net computes lie in memory that its plans for several shapes share.
    """
    arrays = isinstance(new, np.ndarray) and type(new) is type(old)
    return new is old or (arrays and same_memory(new, old))


class Arena(Held):
    """The memory of a recurrent operator in one scope, and the frames that are bound to it.

    Args:
        room, steps: the largest step and the longest sequence it serves.
        fixed: arrays from outside that frames are bound to.
        trains: whether a gradient follows, whose arrays are about as many; it is bound when it
            runs, and counts here.

    Attributes:
        panels: memory for factors that products of the loop pack: loops may run side by side.
        traced: traces of the loop's operators, by the steps of their plans, see `LoopTraces`.
        even: the loop for sequences that are all equally long, see `EvenLoop`; None without it.
    """

    def __init__(
        self, place: Place, room: int, steps: int, fixed: Iterable[Any], *, trains: bool = False
    ) -> None:
        self._trains = trains
        self.room = room
        self.steps = steps
        self.fixed = list(fixed)
        self.scratch = ScratchPool(place.xp)
        self.state = RunState(place)
        self.frames: BoundedCache[Any, StepCalls] = BoundedCache(
            nbytes=lambda steps: OPERATOR_BYTES * len(steps)
        )
        self.prepared = Prepared()
        self.panels = Panels()
        self.traced: dict[int, Any] = {}
        self.even: Any = None
        self._xp = place.xp
        self._arrays: dict[Any, Any] = {}

    def serves(self, room: int, steps: int, fixed: Sequence[Any]) -> bool:
        """Whether a batch of this size finds its memory and the same arrays here."""
        return (
            room <= self.room
            and steps <= self.steps
            and len(fixed) == len(self.fixed)
            and all(_are_one(*pair) for pair in zip(fixed, self.fixed, strict=True))
        )

    def array(self, key: Any, spec: ArraySpec) -> Any:
        """The array of a key; its values last until the next call with this key."""
        array = self._arrays.get(key)
        if array is None or array.shape != spec[0] or array.dtype != spec[1]:
            array = self._arrays[key] = self._xp.empty(*spec)
        return array

    def trim(self) -> None:
        """Let go of bound steps of the numbers of rows that came least recently, where there are
        too many."""
        count = 0
        for key, steps in reversed(self.frames.items()):
            if count + len(steps) > _MOST_OPERATORS and count:
                self.frames.give_up(key)
            else:
                count += len(steps)

    @property
    def nbytes(self) -> int:
        own = (
            self.scratch.nbytes
            + self.panels.nbytes
            + sum(array.nbytes for array in self._arrays.values())
        )
        return 2 * own if self._trains else own

    def arrays(self) -> list[Any]:
        """All its arrays."""
        return list(self._arrays.values())

    def slots(self, key: Any, row: Sequence[int], dtype: Any, extra: int = 0) -> Any:
        """The array of a key, with slots for all steps and `extra` more."""
        return self.array(key, ((self.room * (self.steps + extra), *row), dtype))

    def temporaries(self, plan: Plan, tag: str) -> dict[str, Any]:
        """The arrays of a plan's temporaries; plans of one tag share their memory."""
        return {
            name: as_view(self.block((tag, number), plan.blocks[number]), plan.specs[name])
            for name, number in plan.placement.items()
        }

    def block(self, key: Any, size: int) -> Any:
        """Bytes for temporaries; the same ones for equal keys, unless these were too few."""
        block = self._arrays.get(key)
        if block is None or block.nbytes < size:
            block = self._arrays[key] = self._xp.empty(max(size, 1), np.uint8)
        return block


class SavedSteps(list[Scope]):
    """Values that a run over whole sequences saves for the gradient, instead of step scopes.

    The list holds scopes, one for each step, only where the step net holds nets itself.

    Attributes:
        values: of the variables that are saved.
        specs: shapes in some step, also of variables that are not saved.
        rows: which of them have one row for each sequence of a step.
        ragged: whether steps see sequences.
        offsets: offsets of these sequences, for each step.
        arena: where the values are; None: nothing was saved.
    """

    def __init__(
        self,
        scopes: Iterable[Scope] = (),
        values: Values | None = None,
        specs: Mapping[str, ArraySpec] | None = None,
        rows: Iterable[str] = (),
        ragged: bool = False,
        offsets: Sequence[Mapping[str, Levels]] = (),
        arena: Arena | None = None,
    ) -> None:
        super().__init__(scopes)
        self.values: Values = values or {}
        self.specs: Mapping[str, ArraySpec] = specs or {}
        self.rows = frozenset(rows)
        self.ragged = ragged
        self.offsets = list(offsets)
        self.arena = arena
