"""Steps of a plan for other shapes, without their kernels: the fields that vary are computed.

Where a step comes with other shapes, its kernel is traced once (tracing.py). Shapes that follow,
and meet the conditions of the trace, take one evaluation of the polynomials of all steps, whose
values are written over a copy of their structs. Other shapes, and kernels that need more of an
array than how it lies, are bound again.
"""

from __future__ import annotations

import logging
import math
import weakref
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from operator import is_not
from typing import Any, NamedTuple

import numpy as np

from ...base.cpu.threads import most_threads
from ...base.errors import RunError
from ...base.sizes.many_dims import ManyDims
from ...fusion.compiled.arguments import NotTracedError, fill_grids, made_grid
from ...fusion.team import library
from ..binding import BoundSteps
from ..plans.memory import memory_of, padded, panel_memory
from ..plans.plan import PlanStep
from .alike import PackedOperands, layers_of
from .apart import Apart
from .evaluating import Evaluation, Evaluations, Fixed
from .operands import FLAGS, Operands, flags_of, variables_of
from .tracing import Bound, Traced, sizes_of

_log = logging.getLogger(__name__)

_FREE = 2
"""Memory of places that waits for the next shape, at most."""
_MOST_TRACES = 6
"""Of a step: for sizes that lead its kernel to other decisions."""
_Call = Callable[[], Any]


class _Room:
    """Memory for places, which the next shape takes once no frame has it: new memory costs more
    than what is written to it.

    Args:
        free: memory that no frame has. count: of places.
    """

    def __init__(self, free: deque[np.ndarray], count: int) -> None:
        self._free = free
        try:
            self.places = free.pop()
        except IndexError:
            self.places = np.empty(count, np.int64)
        if len(self.places) < count:
            self.places = np.empty(count, np.int64)

    def __del__(self) -> None:
        self._free.append(self.places)


_LINES: weakref.WeakValueDictionary[int, np.ndarray] = weakref.WeakValueDictionary()
"""By their step, places that lie evenly from 0 on: those of fewer are the first ones of more."""


def _line(count: int, step: int) -> np.ndarray:
    """As many places as that, or more."""
    line = _LINES.get(step)
    if line is None or len(line) < count:
        most = count + count // 4
        line = _LINES[step] = np.arange(0, most * step, step, dtype=np.int64)
    return line


class _Grids:
    """The grids of traces, which one function makes.

    Args:
        grids: of each the trace, the place of its address, and those of its sizes.
    """

    def __init__(self, grids: Sequence[tuple[int, int, range]]) -> None:
        self._free: deque[np.ndarray] = deque(maxlen=_FREE)
        self._grids = grids
        self._axes = max([len(own) // 2 for _, _, own in grids], default=0)

    def put(
        self, row: np.ndarray, nbytes: np.ndarray, sizes: Sequence[int], served: Collection[int]
    ) -> list[Any]:
        """Make those of the traces that serve; puts addresses and bytes into two rows. The owners
        of what was made."""
        owners: list[Any] = []
        known: dict[tuple[int, ...], tuple[int, int]] = {}  # steps have the same ones
        apart: list[tuple[int, tuple[int, ...]]] = []
        for number, place, at in self._grids:
            if number not in served:
                continue
            own = tuple([sizes[n] for n in at])
            lies = known.get(own)
            if lies is None:
                count, step = _as_one(own)
                if not step:
                    apart.append((place, own))
                    continue
                line = _line(count, step)
                owners.append(line)
                lies = known[own] = line.ctypes.data, 8 * count
            row[place], nbytes[place] = lies
        if apart:
            owners.append(self._apart(row, nbytes, apart))
        return owners

    def _apart(
        self, row: np.ndarray, nbytes: np.ndarray, grids: Sequence[tuple[int, tuple[int, ...]]]
    ) -> _Room:
        """Make grids whose places are not all evenly apart; the owner."""
        begins: dict[tuple[int, ...], tuple[int, int]] = {}
        count = 0
        rows = []
        for _, own in grids:
            if own not in begins:
                half = 1 + len(own) // 2
                begins[own] = count, math.prod(own[1:half])
                count += begins[own][1]
                ones = [1] * (self._axes - len(own) // 2)
                rows.append([*own[:half], *ones, *own[half:], *ones])
        room = _Room(self._free, count)
        fill_grids(library(), np.array(rows, np.int64), room.places)
        address = room.places.ctypes.data
        for place, own in grids:
            row[place], nbytes[place] = address + 8 * begins[own][0], 8 * begins[own][1]
        return room


def _as_one(sizes: Sequence[int]) -> tuple[int, int]:
    """How many places a grid has, and their step, where they lie evenly from 0 on; else a step
    of 0."""
    half = 1 + len(sizes) // 2
    count, step = 1, 0
    for own, apart in zip(sizes[half - 1 : 0 : -1], sizes[:-half:-1], strict=True):
        if own == 1:
            continue
        if apart <= 0 or (step and apart != count * step):
            return 0, 0
        step = step or apart
        count *= own
    return (0, 0) if sizes[0] else (count, step)


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
        # One row has all sizes: of each variable its sizes, strides, address and flags; then, for
        # each trace, the addresses of its words and of the memory that it has beside its arrays.
        ends = list(accumulate([2 * rank + 2 for rank in self._ranks.values()], initial=0))
        begins = dict(zip(self._ranks, ends, strict=False))
        self._late = list(accumulate([1 + len(one.memory) for one in traced], initial=ends[-1]))
        # Traces count strides in elements.
        itemsizes = {name: size for one in traced for name, size in one.operands.itemsizes.items()}
        units = np.ones(self._late[-1], np.int64)
        for name, rank in self._ranks.items():
            units[begins[name] + rank : begins[name] + 2 * rank] = itemsizes[name]
        places = []
        fixed: list[tuple[int, int, int]] = []
        for number, one in enumerate(traced):
            ranges = [(begins[name], 2 * rank + 1) for name, rank in one.operands.ranks.items()]
            places.append(_ranges([*ranges, (self._late[number], 1 + len(one.memory))]))
            for at, size in one.fixed_sizes:
                place = int(places[-1][at])
                fixed.append((number, place, size * int(units[place])))
            ends = [begin + length for begin, length in ranges]
            fixed += [(number, at, flags) for at, flags in zip(ends, one.flags, strict=True)]
        dims = ManyDims([one.table for one in traced], places)
        of_traces = Fixed(*np.array(fixed, np.int64).reshape(-1, 3).T)
        self._evaluations = Evaluations(dims, self._late[-1], units, of_traces)
        self._ends = list(accumulate(map(len, dims.values), initial=0))
        self._words = np.concatenate([one.words for one in traced])
        begins_of = list(accumulate([len(one.words) for one in traced], initial=0))
        self._bytes = 8 * np.array(begins_of[:-1], np.int64)
        self._own = np.array(self._late[:-1], np.int64)
        self._at = np.concatenate(
            [one.at + begin for one, begin in zip(traced, begins_of, strict=False)]
        )
        self._steps_of = [step for step, many in enumerate(steps.values()) for _ in many]
        self._fixed_names = list(dict.fromkeys([n for one in traced for n in one.operands.fixed]))
        self._leveled = list(dict.fromkeys([n for one in traced for n in one.levels]))
        self._apart = Apart([one.apart for one in traced])
        self._served: tuple[Any, list[Any], np.ndarray] | None = None
        self._numbers = [
            slice(*ends)
            for ends in pairwise(accumulate([len(o.table.values[2]) for o in traced], initial=0))
        ]
        # Of all memory: the trace, its place in the row, what gives it, and places of its sizes.
        self._makes: list[tuple[int, int, str, Any, Any, slice]] = []
        self._scratch: list[tuple[int, int, int]] = []
        grids: list[tuple[int, int, range]] = []
        at = 0
        for number, one in enumerate(traced):
            for place, (kind, first, second) in enumerate(one.memory, self._late[number] + 1):
                end = at + len(sizes_of(kind, first, second))
                if kind == "scratch":
                    self._scratch.append((number, place, at))
                elif first is made_grid and library() is not None:
                    grids.append((number, place, range(at, end)))
                else:
                    self._makes.append((number, place, kind, first, second, slice(at, end)))
                at = end
        self._grids = _Grids(grids)

    def bound(self, frame: Any) -> _BoundSteps | None:
        """The steps of a frame whose shapes the traces serve; None where an array is none of NumPy,
        or lies between elements."""
        sizes = self._sizes(frame)
        if sizes is None:
            return None
        try:
            with self._evaluations.lent() as evaluation:
                evaluation.row[: len(sizes)] = sizes
                return self._bound(frame, evaluation)
        except OverflowError:
            return None

    def _sizes(self, frame: Any) -> list[int] | None:
        """Sizes, strides, addresses and flags of all variables; None where an array is none of
        NumPy."""
        sizes: list[int] = []
        arrays, addresses = frame.arrays, frame.addresses
        for name in self._ranks:
            array = arrays[name]
            address = addresses.get(name)
            if address is not None:
                sizes += (*array.shape, *array.strides, address, FLAGS)
            elif type(array) is np.ndarray:
                sizes += (*array.shape, *array.strides, array.ctypes.data, flags_of(array))
            else:
                return None
        return sizes

    def _bound(self, frame: Any, evaluation: Evaluation) -> _BoundSteps:
        evaluation.run()
        _, sizes, words_end, end, last = self._ends
        apart = self._apart.met(evaluation.values[None, end:last])[0]
        chosen: dict[int, int] = {}  # of the traces of a step the first one
        for number in (evaluation.met * self._serving(frame) * apart).nonzero()[0].tolist():
            chosen.setdefault(self._steps_of[number], number)
        served = chosen.values()
        row, words = evaluation.row, self._words.copy()
        own = words.ctypes.data + self._bytes
        row[self._own] = own
        nbytes = np.zeros(len(row), np.int64)
        owners = self._memory(frame, row, nbytes, evaluation.values[:sizes].tolist(), set(served))
        evaluation.run()
        words[self._at] = evaluation.values[sizes:words_end]
        given = evaluation.values[words_end:end].tolist()
        row = row.copy()  # the next frame writes over it
        arrays = frame.arrays
        # The mapping, not its arrays: the frame drops inputs that are large.
        held = words, owners, arrays, self._traced
        calls: dict[int, _Call] = {}
        owns = own.tolist()
        for number in served:
            bind, numbers_of = self._traced[number].call, iter(given[self._numbers[number]])
            calls[self._keys[number]] = bind(owns[number], numbers_of, arrays, held)

        def trace_of(key: int) -> tuple[Traced, Bound]:
            number = next(n for n in served if self._keys[n] == key)
            at = slice(self._late[number] + 1, self._late[number + 1])
            places = list(zip(row[at].tolist(), nbytes[at].tolist(), strict=True))
            return self._traced[number], Bound(owns[number], places)

        return _BoundSteps(calls, trace_of)

    def _memory(
        self,
        frame: Any,
        row: np.ndarray,
        nbytes: np.ndarray,
        sizes: Sequence[int],
        served: Collection[int],
    ) -> list[Any]:
        """Put the addresses of memory that steps have beside their arrays into a row, and its
        bytes into another; the owners of what was made."""
        begins: list[tuple[int, int, int]] = []
        begin = top = last = 0
        for number, place, at in self._scratch:
            if number in served:
                begin = begin if number == last else 0  # each step begins at the same place
                begins.append((place, begin, sizes[at]))
                top = max(top, begin + sizes[at])
                begin += padded(sizes[at])
                last = number
        base = frame._pool.span(top) if begins else 0
        for place, begin, size in begins:
            row[place], nbytes[place] = base + begin, size
        owners: list[Any] = self._grids.put(row, nbytes, sizes, served)
        known: dict[Any, tuple[int, int]] = {}  # addresses and bytes
        for number, place, kind, first, second, at in self._makes:
            if number not in served:
                continue
            if kind == "made":
                make, name = first
                thing = make(*second[:-1], tuple(sizes[at]))
                owners.append(thing)
                row[place] = getattr(thing, name)
                continue
            if kind == "panels":  # another memory for each product, where they have it in turn
                (size,) = sizes[at]
                owners.append(panel_memory(size, in_turn=second))
                row[place], nbytes[place] = owners[-1].ctypes.data, size
                continue
            # Rows are made of offsets, too, which several variables have in common.
            what, names = first if kind == "rows" else (first, ())
            given = [frame.offsets(name)[-1] for name in names]
            key = what, *map(id, given), *sizes[at]
            lies = known.get(key)
            if lies is None:
                make = partial(memory_of, what, second) if kind == "held" else what
                array = make(*given, *sizes[at])
                owners.append(array)
                lies = known[key] = array.ctypes.data, array.nbytes
            row[place], nbytes[place] = lies
        return owners

    def _serving(self, frame: Any) -> np.ndarray:
        """Which traces are of the parameters, packed weights and sequences of a frame."""
        arrays = [frame.arrays[name] for name in self._fixed_names]
        kept = frame.kept
        levels = [len(frame.offsets(name)) for name in self._leveled]
        # Weak: it holds variables, and so the scopes of which the traces are kept while they live.
        state = kept and (weakref.ref(kept), len(kept.dropped)), levels, most_threads()
        known = self._served
        if known is None or known[0] != state or any(map(is_not, known[1], arrays)):
            serving = [one.threads == state[-1] and one.serves(frame) for one in self._traced]
            # All at once: frames of several threads ask.
            self._served = known = state, arrays, np.array(serving, bool)
        return known[2]


class _BoundSteps(NamedTuple):
    """Steps that traces have bound.

    Attributes:
        calls: by key. trace_of: gives the trace of a key, and what it has bound.
    """

    calls: dict[int, _Call]
    trace_of: Callable[[int], tuple[Traced, Bound]]


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
        self._differs = False  # whether traces of steps of other layers do not serve it
        self._ranks = {} if operands is None else operands.ranks
        self._first = [] if operands is None else operands.sizes(frame.arrays)

    def bound(self, frame: Any) -> _Call | None:
        """The step of a frame whose shapes a trace serves; else None."""
        if not self.traced:
            return None
        if self._joint is None or self._joint.count < len(self.traced):
            self._joint = _Joint({0: self.traced})
        found = self._joint.bound(frame)
        if found is None or not found.calls:
            return None
        if frame.plan.options.verify:
            self.check(frame, found, 0)
        return found.calls[0]

    def check(self, frame: Any, found: _BoundSteps, key: int) -> None:
        """Compare what a trace has bound with what the kernel binds.

        Raises:
            RunError: the kernel binds the step to something else.
        """
        traced, bound = found.trace_of(key)
        if not traced.agrees(bound, found.calls[key], BoundSteps._bind(frame, self._step)):
            raise RunError(self._disagreement(frame))

    def _disagreement(self, frame: Any) -> str:
        op = self._step.operators[0]
        return op.describe("its kernel binds it to other fields", frame.plan.specs)

    def trace(self, frame: Any) -> Traced | None:
        """The step as it is traced for the shapes of a frame; None where that serves no others."""
        if self._failed or len(self.traced) >= _MOST_TRACES:
            return None
        layer = _layer_of(frame, self._step)
        operands = _operands_of(frame, self._step)
        if operands.ranks != self._ranks or not operands.suits(frame.arrays):
            self._failed = True
            return None
        sizes = operands.sizes(frame.arrays)
        addresses = operands.addresses()
        try:
            pairs = enumerate(zip(sizes, self._first, strict=True))
            self._varying |= {at for at, (a, b) in pairs if a != b and at not in addresses}
            if layer is None or self._differs:
                return Traced(frame, self._step, operands, self._varying)
            return self._as_other(frame, layer, operands, sizes, addresses)
        except (NotTracedError, OverflowError) as error:
            _log.debug("%s is bound again for each shape: %s", self._step.operators[0], error)
            self._failed = True
            return None

    def _as_other(
        self, frame: Any, layer: int, operands: Operands, sizes: list[int], addresses: set[int]
    ) -> Traced:
        """The trace of a step of another layer, where the arrays of both lie alike; else its own.

        Raises:
            NotTracedError: it cannot be traced.
        """
        lies = tuple([size for at, size in enumerate(sizes) if at not in addresses])
        flags = tuple([flags_of(frame.arrays[name]) for name in operands.ranks])
        key = layer, lies, flags, frozenset(self._varying)
        other, names = frame.layers.get(key, (None, []))
        own = variables_of(self._step)
        if other is not None:
            found = other.of(operands, dict(zip(names, own, strict=True)))
            if found is not None:
                return found
        traced = Traced(frame, self._step, operands, self._varying)
        frame.layers[key] = traced, own
        return traced

    def add(
        self, frame: Any, traced: Traced, call: _Call, found: _BoundSteps | None, key: int
    ) -> None:
        """Keep a trace of a frame's step, where it binds it to the same as the kernel.

        Args:
            call: the step as its kernel has bound it. found, key: what traces have bound.

        Raises:
            RunError: with OPSCOPE_VERIFY=1, where the trace disagrees with the kernel.
        """
        if found is not None and key in found.calls:
            by, bound = found.trace_of(key)
            if by is not traced:
                return  # another thread has traced it for these shapes meanwhile
            if traced.agrees(bound, found.calls[key], call):
                self.traced.append(traced)
                return
        if any(
            [traced.table is one.table for one, _ in frame.layers.values() if one is not traced]
        ):
            self._differs = True  # from the step of another layer
            return
        self._failed = True
        if frame.plan.options.verify:
            raise RunError(self._disagreement(frame))
        _log.warning("bound again for each shape: %s", self._disagreement(frame))


def _layer_of(frame: Any, step: PlanStep) -> int | None:
    """What a step is one of, see `layers_of`; None where it is alone."""
    plan = frame.plan
    return plan.steps.fact("layers", lambda: layers_of(plan)).get(id(step))


def _operands_of(frame: Any, step: PlanStep) -> Operands:
    """The variables of a step, with parameters left open where other layers have the step, too."""
    alone = _layer_of(frame, step) is None
    return Operands(frame.plan, step, frame.arrays) if alone else PackedOperands(frame, step)


def note(frame: Any, step: PlanStep, call: _Call) -> None:
    """Note how a step was bound to a frame by its kernel, for shapes that follow."""
    traces = frame.traces.get(id(step))
    if traces is None:
        # What holds nets, or runs in Python, may keep what stands for arrays.
        plain = all(op.signature() is not None for op in step.operators)
        operands = _operands_of(frame, step)
        suits = plain and operands.suits(frame.arrays)
        frame.traces[id(step)] = StepTraces(frame, step, operands if suits else None)
    elif (traced := traces.trace(frame)) is not None:
        frame.traced[id(step)] = traced, call


def keep(frame: Any) -> None:
    """Keep the new traces of a frame, where they bind it to the same as the kernels: all of them
    are looked at together, by what binds the frames that follow."""
    new, known = frame.traced, frame.traces
    of_steps = {key: list(one.traced) for key, one in list(known.items()) if one}
    for key, (traced, _) in new.items():
        of_steps[key].append(traced)
    joint = _Joint(of_steps)
    found = joint.bound(frame)
    for key, (traced, call) in new.items():
        known[key].add(frame, traced, call, found, key)
    frame.traced, frame.layers = {}, {}
    if all([known[key].traced[-1:] == [traced] for key, (traced, _) in new.items()]):
        known.joint = joint


def bound(frame: Any) -> dict[int, _Call]:
    """The steps of a frame, by id, whose shapes traces serve."""
    known = frame.traces
    count = sum([len(traces.traced) for traces in known.values() if traces])
    if not count:
        return {}
    if known.joint is None or known.joint.count < count:
        known.joint = _Joint({key: list(one.traced) for key, one in known.items() if one})
    found = known.joint.bound(frame)
    if found is None:
        return {}
    if frame.plan.options.verify:
        for key in found.calls:
            known[key].check(frame, found, key)
    return found.calls
