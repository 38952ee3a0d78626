"""Steps of a plan for other shapes, without their kernels: the fields that vary are computed.

Where a step comes with other shapes, its kernel is traced once (tracing.py). Shapes that follow,
and meet the conditions of the trace, take one evaluation of the polynomials of all steps, whose
values are written over a copy of their structs. Other shapes, and kernels that need more of an
array than how it lies, are bound again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from operator import is_not
from typing import Any
from weakref import ref

import numpy as np

from ..base.cpu.threads import most_threads
from ..base.errors import RunError
from ..base.sizes.many_dims import ManyDims
from ..fusion.arguments import NotTracedError
from .binding import BoundSteps
from .plans.plan import PlanStep
from .tracing import Bound, Operands, Traced, flags_of

_log = logging.getLogger(__name__)

_MOST_TRACES = 3
"""Of a step: for sizes that lead its kernel to other decisions."""
_Call = Callable[[], Any]


class _Joint:
    """The traces of steps, by which all of these are bound at once.

    Args:
        steps: by a key, the traces of each step, of which the first serves that can.

    Attributes:
        count: of the traces.
    """

    def __init__(self, steps: Mapping[int, Sequence[Traced]]) -> None:
        self._traced = traced = [one for many in steps.values() for one in many]
        self._keys = [key for key, many in steps.items() for _ in many]
        self.count = len(traced)
        self._ranks = {name: rank for one in traced for name, rank in one.operands.ranks.items()}
        # One row has all sizes: of each variable its sizes, steps, address and flags; then, for
        # each trace, the addresses of its words and of the memory that it has beside its arrays.
        ends = list(accumulate([2 * rank + 2 for rank in self._ranks.values()], initial=0))
        begins = dict(zip(self._ranks, ends, strict=False))
        self._late = list(accumulate([one.later for one in traced], initial=ends[-1]))
        self._steps = _ranges([(begins[name] + rank, rank) for name, rank in self._ranks.items()])
        places = []
        fixed: list[tuple[int, int, int]] = []
        for number, one in enumerate(traced):
            ranges = [(begins[name], 2 * rank + 1) for name, rank in one.operands.ranks.items()]
            places.append(_ranges([*ranges, (self._late[number], one.later)]))
            fixed += [(number, places[-1][at], size) for at, size in one.fixed_sizes]
            ends = [begin + length for begin, length in ranges]
            fixed += [(number, at, flags) for at, flags in zip(ends, one.flags, strict=True)]
        self._fixed_of, self._fixed_at, self._fixed = np.array(fixed, np.int64).reshape(-1, 3).T
        self._dims = ManyDims([one.table for one in traced], places)
        self._words = np.concatenate([one.words for one in traced])
        begins_of = list(accumulate([len(one.words) for one in traced], initial=0))
        self._bytes = [8 * begin for begin in begins_of]
        self._at = np.concatenate(
            [one.at + begin for one, begin in zip(traced, begins_of, strict=False)]
        )
        self._steps_of = np.repeat(np.arange(len(steps)), [len(many) for many in steps.values()])
        self._fixed_names = list(dict.fromkeys([n for one in traced for n in one.operands.fixed]))
        self._served: tuple[Any, list[Any], np.ndarray] | None = None
        self._sizes, self._numbers = (
            [slice(*ends) for ends in pairwise(accumulate(counts, initial=0))]
            for counts in (
                [len(one.table.values[0]) for one in traced],
                [len(one.table.values[2]) for one in traced],
            )
        )

    def bound(self, frame: Any) -> dict[int, tuple[Traced, Bound, _Call]]:
        """The steps of a frame whose shapes the traces serve, by key."""
        row = self._row(frame.arrays)
        if row is None:
            return {}
        try:
            return self._bound(frame, row)
        except OverflowError:
            return {}

    def _row(self, arrays: Mapping[str, Any]) -> np.ndarray | None:
        """Sizes, steps in elements, addresses and flags of all variables; None where an array is
        none of NumPy, or lies between elements."""
        sizes: list[int] = []
        itemsizes: list[int] = []
        for name in self._ranks:
            array = arrays[name]
            if type(array) is not np.ndarray:
                return None
            sizes += array.shape
            sizes += array.strides
            sizes += array.ctypes.data, flags_of(array)
            itemsizes += [array.itemsize] * array.ndim
        row = np.zeros(self._late[-1], np.int64)
        row[: len(sizes)] = sizes
        row[self._steps], rests = np.divmod(row[self._steps], np.array(itemsizes, np.int64))
        return None if rests.any() else row

    def _bound(self, frame: Any, row: np.ndarray) -> dict[int, tuple[Traced, Bound, _Call]]:
        dims = self._dims
        numbers, met = dims.numbers(row)
        met[self._fixed_of[row[self._fixed_at] != self._fixed]] = False
        chosen = (met & self._serving(frame)).nonzero()[0]
        chosen = chosen[np.unique(self._steps_of[chosen], return_index=True)[1]].tolist()
        sizes = dims.values[0].values(numbers).tolist()
        words = self._words.copy()
        begin = words.ctypes.data
        bound: list[Bound] = []
        for number in chosen:
            one = self._traced[number]
            own = begin + self._bytes[number]
            late = self._late[number]
            row[late] = own
            if one.later == 1:
                bound.append(Bound(words, own, [], []))
                continue
            places, owners = one.memory(frame, iter(sizes[self._sizes[number]]))
            row[late + 1 : late + 1 + len(places)] = [address for address, _ in places]
            bound.append(Bound(words, own, places, owners))
        dims.put(row, numbers)
        words[self._at] = dims.values[1].values(numbers)
        given = dims.values[2].values(numbers).tolist()
        arrays = frame.arrays
        found: dict[int, tuple[Traced, Bound, _Call]] = {}
        for number, parts in zip(chosen, bound, strict=True):
            one = self._traced[number]
            call = one.call(parts, iter(given[self._numbers[number]]), arrays)
            found[self._keys[number]] = one, parts, call
        return found

    def _serving(self, frame: Any) -> np.ndarray:
        """Which traces are of the parameters and packed weights of a frame."""
        arrays = [frame.arrays[name] for name in self._fixed_names]
        kept = frame.kept
        # Weak: it holds variables, and so the scopes of which the traces are kept while they live.
        state = kept and (ref(kept), len(kept.dropped)), most_threads()
        known = self._served
        if known is None or known[0] != state or any(map(is_not, known[1], arrays)):
            serving = [one.threads == state[-1] and one.serves(frame) for one in self._traced]
            # All at once: frames of several threads ask.
            self._served = known = state, arrays, np.array(serving, bool)
        return known[2]


def _ranges(ranges: Sequence[tuple[int, int]]) -> np.ndarray:
    """The numbers of ranges, each given by its first and its length."""
    # None where all variables of a step are parameters or states, whose arrays stay.
    parts = [np.arange(begin, begin + length) for begin, length in ranges]
    return np.concatenate([np.arange(0), *parts])


class StepTraces:
    """The traces of one step of a form.

    Args:
        frame: where the step was bound first. operands: its variables there; None for a step that
            is bound again for each shape.

    Attributes:
        traced: the traces.
    """

    def __init__(self, frame: Any, step: PlanStep, operands: Operands | None) -> None:
        self.traced: list[Traced] = []
        self._step = step
        self._joint: _Joint | None = None
        self._varying: set[int] = set()
        self._failed = operands is None
        self._ranks = {} if operands is None else operands.ranks
        self._first = [] if operands is None else operands.sizes(frame.arrays)

    def bound(self, frame: Any) -> _Call | None:
        """The step of a frame whose shapes a trace serves; else None."""
        if not self.traced:
            return None
        if self._joint is None or self._joint.count < len(self.traced):
            self._joint = _Joint({0: self.traced})
        return next((self.checked(frame, *one) for one in self._joint.bound(frame).values()), None)

    def checked(self, frame: Any, traced: Traced, bound: Bound, call: _Call) -> _Call:
        """A call that a trace has bound.

        Raises:
            RunError: with OPSCOPE_VERIFY=1, where the kernel binds the step to something else.
        """
        if frame.plan.options.verify:
            self._check(traced, frame, bound, call)
        return call

    def _check(self, traced: Traced, frame: Any, bound: Bound, call: _Call) -> None:
        if not traced.agrees(bound, call, BoundSteps._bind(frame, self._step)):
            raise RunError(self._disagreement(frame))

    def _disagreement(self, frame: Any) -> str:
        op = self._step.operators[0]
        return op.describe("its kernel binds it to other fields", frame.plan.specs)

    def add(self, frame: Any, call: _Call) -> None:
        """Trace the step for the shapes of a frame, where that may serve others.

        Args:
            call: the step as its kernel has bound it to the frame.

        Raises:
            RunError: with OPSCOPE_VERIFY=1, where the trace disagrees with the kernel.
        """
        if self._failed or len(self.traced) >= _MOST_TRACES:
            return
        operands = Operands(frame.plan, self._step, frame.arrays)
        if operands.ranks != self._ranks or not operands.suits(frame.arrays):
            self._failed = True
            return
        sizes = operands.sizes(frame.arrays)
        addresses = operands.addresses()
        try:
            pairs = enumerate(zip(sizes, self._first, strict=True))
            self._varying |= {at for at, (a, b) in pairs if a != b and at not in addresses}
            traced = Traced(frame, self._step, operands, self._varying)
        except (NotTracedError, OverflowError) as error:
            _log.debug("%s is bound again for each shape: %s", self._step.operators[0], error)
            self._failed = True
            return
        again = _Joint({0: [traced]}).bound(frame)
        if again and traced.agrees(again[0][1], again[0][2], call):
            self.traced.append(traced)
            return
        self._failed = True
        if frame.plan.options.verify:
            raise RunError(self._disagreement(frame))
        _log.warning("bound again for each shape: %s", self._disagreement(frame))


def note(frame: Any, step: PlanStep, call: _Call) -> None:
    """Note how a step was bound to a frame by its kernel, for shapes that follow."""
    traces = frame.traces.get(id(step))
    if traces is None:
        # What holds nets, or runs in Python, may keep what stands for arrays.
        plain = all(op.signature() is not None for op in step.operators)
        operands = Operands(frame.plan, step, frame.arrays)
        suits = plain and operands.suits(frame.arrays)
        frame.traces[id(step)] = StepTraces(frame, step, operands if suits else None)
    else:
        traces.add(frame, call)


def bound(frame: Any) -> dict[int, _Call]:
    """The steps of a frame, by id, whose shapes traces serve."""
    known = frame.traces
    count = sum([len(traces.traced) for traces in known.values() if traces])
    if not count:
        return {}
    if known.joint is None or known.joint.count < count:
        known.joint = _Joint({key: list(one.traced) for key, one in known.items() if one})
    found = known.joint.bound(frame)
    if not frame.plan.options.verify:
        return {key: call for key, (_, _, call) in found.items()}
    return {key: known[key].checked(frame, *one) for key, one in found.items()}
