"""Steps that differ in nothing but where their arrays lie: one trace binds all of them.

A net of thousands of layers has few kinds of steps. The first one of a kind is bound by its kernel,
and once more to what stands for its arrays (tracing.py), with all addresses left open. The structs
of the others are computed, as rows of one matrix.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from ...fusion.compiled.arguments import NotTracedError
from ..binding import BoundSteps
from ..externals import externals_of
from ..plans.plan import Plan, PlanStep
from .cases import Cases
from .operands import Operands, flags_of, variables_of
from .tracing import Traced

_log = logging.getLogger(__name__)

_LEAST = 48
"""Steps of a kind from which it is traced: that takes as long as to bind some 30 of them."""
_Call = Callable[[], Any]


class _Kind(NamedTuple):
    """Steps that kernels treat alike where their arrays lie alike.

    Attributes:
        steps: of which there are few kinds. table [variables, steps]: the numbers of the variables
            of each, in the order of `variables_of`.
    """

    steps: list[PlanStep]
    table: np.ndarray


class _Kinds:
    """The kinds of steps of a plan; those of few steps are left out.

    Args:
        makes_lists: see `BoundSteps`.

    Attributes:
        names: of the variables, in the order of their numbers.
        fixed, others: the numbers of those whose arrays stay, and of all others.
    """

    def __init__(self, plan: Plan, makes_lists: bool) -> None:
        found: dict[Any, list[tuple[PlanStep, list[int]]]] = {}
        numbers: dict[str, int] = {}
        facts: list[int] = []  # of each variable, the same number for equal ones
        alike: dict[Any, int] = {}
        facts_of = _facts_of(plan)
        for step in plan.steps:
            # Of a list, fills look at what other steps read.
            if makes_lists and step.operators[0].type == "fill_constant":
                continue
            key, names = _structure_of(step)
            if key is None:
                continue
            for name in names:
                if name not in numbers:
                    numbers[name] = len(facts)
                    facts.append(alike.setdefault(facts_of(name), len(alike)))
            own = [numbers[name] for name in names]
            key += [facts[one] for one in own]
            found.setdefault(tuple(key), []).append((step, own))
        self.names = list(numbers)
        fixed = plan.fixed
        self.fixed = [number for name, number in numbers.items() if name in fixed]
        self.others = [number for name, number in numbers.items() if name not in fixed]
        self._kinds = [
            _Kind([step for step, _ in own], np.array([numbers for _, numbers in own], np.int32).T)
            for own in found.values()
            if len(own) >= _LEAST
        ]

    def left(self, bound: Mapping[int, Any]) -> Iterator[_Kind]:
        """The kinds without steps that are bound already, by their id."""
        for kind in self._kinds:
            at = [n for n, step in enumerate(kind.steps) if id(step) not in bound] if bound else []
            yield kind if not bound else _part(kind, at)


def _part(kind: _Kind, at: Sequence[int]) -> _Kind:
    """Some steps of a kind, by their numbers in it."""
    return _Kind([kind.steps[number] for number in at], kind.table[:, at])


def bind_alike(frame: Any, bound: Mapping[int, Any]) -> dict[int, _Call]:
    """The calls of steps of a frame that are alike, by the id of each step.

    Args:
        bound: those that are bound already.

    Raises:
        RunError: with OPSCOPE_VERIFY=1, where the kernel binds a step to something else.
    """
    plan = frame.plan
    kinds = plan.steps.fact("alike", lambda: _Kinds(plan, frame.makes_lists))
    lying = None
    calls: dict[int, _Call] = {}
    for kind in kinds.left(bound):
        if len(kind.steps) >= _LEAST:
            lying = lying or _Lying(frame, kinds)
            for at in lying.alike(kind):
                if len(at) >= _LEAST:
                    part = kind if len(at) == len(kind.steps) else _part(kind, at)
                    calls.update(_bound(frame, kinds.names, part, lying.addresses[part.table]))
    return calls


def _structure_of(step: PlanStep) -> tuple[list[Any] | None, list[str]]:
    """What a step does with its variables, whatever these are, and their names in order; None for
    one that is never traced."""
    key: list[Any] = []
    every: list[str] = []
    for op in step.operators:
        key += op.signature(), op.accumulate, op.device, op.role
        every += op.input_vars()
        every += op.output_vars()
    names = list(dict.fromkeys(every))
    if None in key:  # what holds nets, or runs in Python, may keep what stands for arrays
        return None, names
    if len(names) < len(every) or len(step.operators) > 1:
        number = {name: at for at, name in enumerate(names)}
        key += [number[name] for name in every]
        key += [number[name] for name in step.writes]
    return key, names


def layers_of(plan: Plan) -> dict[int, int]:
    """By the id of each step that differs from others in its variables alone, the number of what it
    is one of: steps of layers, of which one trace may serve all."""
    facts_of = _facts_of(plan)
    numbers: dict[Any, int] = {}
    found: dict[int, int] = {}
    for step in plan.steps:
        key, names = _structure_of(step)
        if key is not None:
            own = (*key, *map(facts_of, names))
            found[id(step)] = numbers.setdefault(own, len(numbers))
    counts = Counter(found.values())
    return {key: number for key, number in found.items() if counts[number] > 1}


def _facts_of(plan: Plan) -> Callable[[str], tuple[Any, ...]]:
    """What gives all that kernels may know of a variable beside its array."""
    specs, placement, live_out, read = plan.specs, plan.placement, plan.live_out, plan.steps.read
    last, parts, views, bases = plan.channels_last, plan.parts, plan.views, plan.bases
    few = not (last or views)  # most nets have neither, and thousands of variables

    def facts(name: str) -> tuple[Any, ...]:
        own = specs.get(name), name in placement, name in live_out, name in read
        if few:
            return own
        whole = specs[parts[name].whole] if name in parts else None
        return *own, name in last, whole, name in views or name in bases

    return facts


class _Lying:
    """Where and how the arrays of a frame lie that steps of some kinds read and write.

    Those of parameters and constants are looked at once for all frames that have them.

    Attributes:
        addresses: of all variables, by their numbers; 0 for one without an array.
    """

    def __init__(self, frame: Any, kinds: _Kinds) -> None:
        self._frame = frame
        kept = frame.kept
        constants = externals_of(frame.plan.externals, frame.scope).constants
        # Weak: it holds variables, and so the scopes of which the traces are kept while they live.
        packs = kept and (ref(kept), len(kept.dropped))
        known = None if frame.prepared is not None else frame.traces.lying
        if known is None or known[0] is not constants or known[1] != packs:
            addresses, lies = np.zeros((2, len(kinds.names)), np.int64)
            numbers: dict[Any, int] = {None: 0}  # of ways to lie; None: as the kind says
            self._look(kinds.names, kinds.fixed, addresses, lies, numbers)
            # All at once: frames of several threads ask.
            frame.traces.lying = known = constants, packs, addresses, lies, numbers
        _, _, addresses, lies, numbers = known
        self.addresses, self._lies = addresses.copy(), lies.copy()
        placed = list(map(frame.addresses.get, map(kinds.names.__getitem__, kinds.others)))
        self.addresses[kinds.others] = [address or 0 for address in placed]
        rest = [n for n, at in zip(kinds.others, placed, strict=True) if at is None]
        self._look(kinds.names, rest, self.addresses, self._lies, dict(numbers))

    def _look(
        self,
        names: Sequence[str],
        which: Iterable[int],
        addresses: np.ndarray,
        lies: np.ndarray,
        numbers: dict[Any, int],
    ) -> None:
        """Note where some arrays lie, and in which way: equal numbers for equal ways."""
        frame, arrays = self._frame, self._frame.arrays
        for number in which:
            name = names[number]
            array = arrays.get(name)
            if name in frame.addresses or array is None:
                continue
            how: Any = type(array), array.strides, 0
            if type(array) is np.ndarray:
                addresses[number] = array.ctypes.data
                is_packed = _is_packed(frame, array)
                how = id(array) if is_packed else (type(array), array.strides, flags_of(array))
            lies[number] = numbers.setdefault(how, len(numbers))

    def alike(self, kind: _Kind) -> list[Sequence[int]]:
        """The steps of a kind, by their numbers in it, cut into those that read the same packed
        weights, and whose other arrays lie alike."""
        lies = self._lies[kind.table]
        if (lies == lies[:, :1]).all():
            return [range(len(kind.steps))]
        found = np.unique(lies, axis=1, return_inverse=True, return_counts=True)
        order = np.argsort(found[1].reshape(-1), kind="stable")
        return [part.tolist() for part in np.split(order, np.cumsum(found[2])[:-1])]


def _is_packed(frame: Any, array: Any) -> bool:
    """Whether kernels may read a packed form of an array."""
    kept, prepared = frame.kept, frame.prepared
    return bool((kept and kept.holds(array)) or (prepared and prepared.holds(array)))


class PackedOperands(Operands):
    """The variables of a step, of which packed weights alone are known."""

    def is_fixed(self, name: str) -> bool:
        """See `Operands.is_fixed`."""
        return _is_packed(self._frame, self._frame.arrays[name])

    def __init__(self, frame: Any, step: PlanStep) -> None:
        self._frame = frame
        super().__init__(frame.plan, step, frame.arrays)


def _bound(
    frame: Any, names: Sequence[str], kind: _Kind, addresses: np.ndarray
) -> dict[int, _Call]:
    """The calls of steps that one trace binds; none where its kernel cannot be traced.

    Args:
        names: of the variables, by number. addresses [variables, steps]: of their arrays.
    """
    first = kind.steps[0]
    operands = PackedOperands(frame, first)
    if not operands.suits(frame.arrays):
        return {}
    call = BoundSteps._bind(frame, first)
    try:
        traced = Traced(frame, first, operands, set())
        if traced.levels or any(one.names_step for one in traced.calls):
            raise NotTracedError("offsets of its variables, or errors that name its operator")
        found = _BoundKind(frame, traced, names, kind, addresses)
    except (NotTracedError, OverflowError) as error:
        _log.debug("%s is bound step by step: %s", first.operators[0], error)
        return {id(first): call}
    checked = kind.steps if frame.plan.options.verify else kind.steps[:1]
    for number, step in enumerate(checked):
        own = found.calls.get(number)
        by_kernel = call if step is first else BoundSteps._bind(frame, step)
        if own is not None and not traced.agrees(found.cases.bound(number), own, by_kernel):
            _log.warning("bound step by step: %s", first.operators[0])
            return {id(first): call}
    return {id(kind.steps[number]): own for number, own in found.calls.items()}


class _BoundKind:
    """What a trace of one step is for others, all at once.

    Args:
        names, addresses: see `_bound`.

    Attributes:
        cases: the steps, by their numbers.
        calls: by the number of the step; those left out do not meet its conditions.
    """

    def __init__(
        self,
        frame: Any,
        traced: Traced,
        names: Sequence[str],
        kind: _Kind,
        addresses: np.ndarray,
    ) -> None:
        operands = traced.operands
        first = variables_of(kind.steps[0])
        sizes = np.tile(np.array(operands.sizes(frame.arrays), np.int64), (len(kind.steps), 1)).T
        at = -1
        for name, rank in operands.ranks.items():
            at += 2 * rank + 1
            sizes[at] = addresses[first.index(name)]
        self.cases = cases = Cases(traced, sizes, frame._pool)
        arrays = frame.arrays
        held = cases.held, arrays
        self.calls: dict[int, _Call] = {}
        needs = any([one.reads for one in traced.calls])
        given, begins = cases.given.tolist(), cases.own.tolist()
        for number in cases.met.nonzero()[0].tolist():
            own = {}
            if needs:
                others = [names[one] for one in kind.table[:, number].tolist()]
                pairs = zip(first, others, strict=True)
                own = {name: arrays[other] for name, other in pairs if other in arrays}
            self.calls[number] = traced.call(begins[number], iter(given[number]), own, held)
