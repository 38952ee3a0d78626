"""Steps of a loop that are bound many at once, by a trace of their operators.

Steps differ in how many rows they have and where these lie. The kernels bind one step, and bind it
once more to what stands for its arrays (runtime/other_shapes/tracing.py), with both left open. The
structs of all other steps are computed from that, as rows of one matrix, and put into the tables of
their numbers of rows (step_calls.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np

from ...base.cpu.threads import most_threads
from ...base.errors import RunError
from ...fusion.compiled.arguments import NotTracedError
from ...runtime.other_shapes.cases import Cases
from ...runtime.other_shapes.operands import Operands
from ...runtime.other_shapes.traced_calls import NativeCall
from ...runtime.other_shapes.tracing import Traced
from ...runtime.plans.plan import Plan, PlanStep
from .step_calls import MANY, StepCalls
from .store import DoubleBuffer, StepValues, Values

_log = logging.getLogger(__name__)

_MOST_TRACES = 6
"""Of the operators of a loop: for one row and for several, for buffers that steps use in turn."""


@dataclass(eq=False)
class MissingSteps:
    """Steps with one number of rows that are to be bound.

    Attributes:
        calls: of that number of rows. steps: their numbers; `here` are those that have as many in
            the batch at hand.
        plan: of such a step. arrays: of one of the steps, temporaries among them.
    """

    calls: StepCalls
    steps: list[int]
    here: Collection[int]
    plan: Plan
    arrays: dict[str, Any]


class _Operands(Operands):
    """The variables of an operator of a step, of which some have one array at all steps."""

    def __init__(
        self, plan: Plan, step: PlanStep, arrays: Mapping[str, Any], moving: Collection[str]
    ) -> None:
        self._moving = moving
        super().__init__(plan, step, arrays)

    def is_fixed(self, name: str) -> bool:
        """See `Operands.is_fixed`."""
        return name not in self._moving


@dataclass(eq=False)
class LoopTraces:
    """The traces of what a loop runs in a step, in one arena.

    Attributes:
        steps: of the plans that they are for.
        traces: for each kind of steps, one of each of the plan's steps.
        failed: whether the operators cannot be traced.
    """

    steps: Sequence[PlanStep]
    traces: list[list[Traced]] = field(default_factory=list)
    failed: bool = False

    def bind(
        self,
        missing: Sequence[MissingSteps],
        values: Values,
        room: int,
        pool: Any,
        by_kernels: Callable[[int], Any],
    ) -> None:
        """Bind steps of plans with these steps, as far as traces serve them.

        Args:
            values: where variables lie at all steps. room: rows of a slot.
            pool: scratch memory. by_kernels: gives the frame of a step.

        Raises:
            RunError: with OPSCOPE_VERIFY=1, where the kernels bind a step to something else.
        """
        try:
            cases = _Steps(self.steps, missing, values, room, pool)
            for traces in self.traces:
                self._serve(cases, traces, by_kernels)
            while len(self.traces) < _MOST_TRACES and len(cases.left) >= MANY:
                if not self._trace(cases, by_kernels):
                    return
        except (NotTracedError, OverflowError) as error:
            _log.debug("each step is bound: %s", error)
            self.failed = True

    def _trace(self, cases: _Steps, by_kernels: Callable[[int], Any]) -> bool:
        """Trace the operators for the first step that is left; whether there was one."""
        here = [at for at in cases.left.tolist() if cases.steps[at] in cases.of(at).here]
        if not here:
            return False
        first = here[0]
        own, step = cases.of(first), int(cases.steps[first])
        frame = by_kernels(step)
        own.calls.put(step, frame.calls)
        traces = [
            Traced(frame, one, operands, varying)
            for one, operands, varying in zip(
                self.steps, cases.operands, cases.varying(), strict=True
            )
        ]
        self.traces.append(traces)
        self._serve(cases, traces, by_kernels, {first: frame})
        if first in cases.left:
            raise NotTracedError("another step than the one that was traced")
        return True

    def _serve(
        self,
        cases: _Steps,
        traces: Sequence[Traced],
        by_kernels: Callable[[int], Any],
        bound: Mapping[int, Any] | None = None,
    ) -> None:
        """Bind the steps that traces serve.

        Args:
            bound: frames of steps that kernels have bound, by the number of the case.
        """
        if traces[0].threads != most_threads() or not len(cases.left):
            return
        left, found = cases.bound_by(traces)
        met = np.logical_and.reduce([one.met for one in found])
        checked = dict(bound or {})
        if cases.of(0).plan.options.verify:
            steps = [(at, int(cases.steps[at])) for at in left[met].tolist()]
            checked |= {at: by_kernels(n) for at, n in steps if n in cases.of(at).here}
        for at, frame in checked.items():
            number = int(np.flatnonzero(left == at)[0])
            for traced, one, call in zip(traces, found, frame.calls, strict=True):
                if met[number] and not _agrees(traced, one, number, cases.of(at), call):
                    why = "the kernels bind a step of a loop to other fields than its trace"
                    if frame.plan.options.verify:
                        raise RunError(frame.plan.operators[0].describe(why, frame.plan.specs))
                    raise NotTracedError(why)
        cases.put(left, met, traces, found)


def _agrees(traced: Traced, found: Cases, number: int, own: MissingSteps, call: Any) -> bool:
    """Whether a trace binds a case to what a kernel has bound."""
    numbers = iter(found.given[number].tolist())
    computed = traced.call(int(found.own[number]), numbers, own.arrays, found.held)
    return traced.agrees(found.bound(number), computed, call)


class _Steps:
    """Steps that are to be bound, and how their arrays lie.

    Args:
        steps, missing, values, room, pool: see `LoopTraces.bind`.

    Attributes:
        operands: of each of the plan's steps. steps: the number of each step.
        left: of them those that are not bound yet, by their places.

    Raises:
        NotTracedError: arrays do not suit.
    """

    def __init__(
        self,
        steps: Sequence[PlanStep],
        missing: Sequence[MissingSteps],
        values: Values,
        room: int,
        pool: Any,
    ) -> None:
        self._missing = missing
        self._pool = pool
        first = missing[0]
        moving = {n for n in first.arrays if isinstance(values.get(n), StepValues)}
        self._rows = moving | first.plan.placement.keys()
        self.operands = [_Operands(first.plan, one, first.arrays, self._rows) for one in steps]
        counts = [len(one.steps) for one in missing]
        self.steps = np.array([n for one in missing for n in one.steps], np.int64)
        self._of = np.repeat(np.arange(len(missing)), counts)
        self.left = np.arange(len(self.steps))
        places = {name: _addresses(values[name], self.steps, room) for name in moving}
        self._sizes = []
        for operands in self.operands:
            if not all(operands.suits(one.arrays) for one in missing):
                raise NotTracedError("arrays that lie between elements")
            rows = np.array([operands.sizes(one.arrays) for one in missing], np.int64)
            sizes = np.repeat(rows, counts, axis=0).T
            at = -1
            for name, rank in operands.ranks.items():
                at += 2 * rank + 1
                if name in places:
                    sizes[at] = places[name]
            self._sizes.append(sizes)

    def of(self, at: int) -> MissingSteps:
        """What the step at a place is one of."""
        return self._missing[self._of[at]]

    def varying(self) -> list[set[int]]:
        """Of each of the plan's steps the places of sizes that are to be left open: numbers of
        rows, and what differs between steps."""
        found = []
        for operands, sizes in zip(self.operands, self._sizes, strict=True):
            differ = set(np.flatnonzero((sizes != sizes[:, :1]).any(axis=1)).tolist())
            at = 0
            for name, rank in operands.ranks.items():
                if rank and name in self._rows and name not in self._missing[0].plan.placement:
                    differ.add(at)
                at += 2 * rank + 1
            found.append(differ - operands.addresses())
        return found

    def bound_by(self, traces: Sequence[Traced]) -> tuple[np.ndarray, list[Cases]]:
        """The steps that are left, and what traces are for them."""
        pairs = zip(traces, self._sizes, strict=True)
        return self.left, [Cases(one, sizes[:, self.left], self._pool) for one, sizes in pairs]

    def put(
        self, left: np.ndarray, met: np.ndarray, traces: Sequence[Traced], found: Sequence[Cases]
    ) -> None:
        """Keep what traces are for the steps that they serve.

        Raises:
            NotTracedError: it is no list of native functions.
        """
        parts = [
            (call, one.own)
            for traced, one in zip(traces, found, strict=True)
            for call in traced.calls
        ]
        native = [(call, own) for call, own in parts if isinstance(call, NativeCall)]
        # Those that all go by rows may become blocks of rows with what is around them.
        checked = any(call.names_step for call, _ in parts)
        if checked or len(native) < len(parts) or all(call.goes_by_rows for call, _ in native):
            raise NotTracedError("calls that no table of a loop holds")
        words = [
            np.stack([np.full(len(own), function), own + away], axis=1)
            for call, own in native
            for function, away in call.items
        ]
        items = np.stack(words, axis=1)
        work = np.sum([_works(*pair) for pair in zip(traces, found, strict=True)], axis=0)
        short = sum([call.short for call, _ in native])
        held = [one.held for one in found], [one.arrays for one in self._missing]
        for number, one in enumerate(self._missing):
            at = np.flatnonzero(met & (self._of[left] == number))
            # Of those that kernels have bound the calls stay.
            steps = self.steps[left[at]].tolist()
            new = [
                n
                for n, step in zip(at.tolist(), steps, strict=True)
                if one.calls.missing(range(step, step + 1))
            ]
            if new:
                own = self.steps[left[new]].tolist()
                if not one.calls.put_many(own, items[new], work[new], short, held):
                    raise NotTracedError("steps of other calls")
        self.left = left[~met]


def _works(traced: Traced, found: Cases) -> Any:
    """The work of each case."""
    counts = [len(call.numbers) for call in traced.calls]
    return found.given[:, list(accumulate(counts, initial=0))[:-1]].sum(axis=1)


def _addresses(value: Any, steps: np.ndarray, room: int) -> np.ndarray:
    """Where the rows of a variable begin at some steps."""
    slots = value.slots
    if isinstance(slots, DoubleBuffer):
        pair = np.array([one.ctypes.data for one in slots.pair], np.int64)
        return pair[(steps + slots.phase) % 2]
    return slots.array.ctypes.data + room * slots.array.strides[0] * steps
