"""Steps that differ in nothing but where their arrays lie: one trace binds all of them.

A net of thousands of layers has few kinds of steps. The first one of a kind is bound by its kernel,
and once more to what stands for its arrays (tracing.py), with all addresses left open. The structs
of the others are computed, as rows of one matrix.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...base.sizes.many_dims import ManyDims
from ...fusion.compiled.arguments import NotTracedError
from ..binding import BoundSteps
from ..plans.memory import memory_of, padded
from ..plans.plan import Plan, PlanStep
from .tracing import Bound, Operands, Traced, flags_of, variables_of

_log = logging.getLogger(__name__)

_LEAST = 48
"""Steps of a kind from which it is traced: that takes as long as to bind some 30 of them."""
_Call = Callable[[], Any]


class _Member(NamedTuple):
    """A step, and its variables, each once."""

    step: PlanStep
    names: list[str]


def bind_alike(frame: Any, bound: Mapping[int, Any]) -> dict[int, _Call]:
    """The calls of steps of a frame that are alike, by the id of each step.

    Args:
        bound: those that are bound already.

    Raises:
        RunError: with OPSCOPE_VERIFY=1, where the kernel binds a step to something else.
    """
    plan = frame.plan
    kinds = plan.steps.fact("alike", lambda: _kinds(plan, frame.makes_lists))
    calls: dict[int, _Call] = {}
    for kind in kinds:
        left = [member for member in kind if id(member.step) not in bound]
        if len(left) >= _LEAST:
            for members in _of_arrays(frame, left):
                if len(members) >= _LEAST:
                    calls.update(_bound(frame, members))
    return calls


def _kinds(plan: Plan, makes_lists: bool) -> list[list[_Member]]:
    """Steps of a plan that kernels treat alike where their arrays lie alike; few ones left out."""
    kinds: dict[Any, list[_Member]] = {}
    facts: dict[str, int] = {}  # the same number for equal ones
    alike: dict[Any, int] = {}
    for step in plan.steps:
        key: list[Any] = []
        every: list[str] = []
        for op in step.operators:
            key += op.signature(), op.accumulate, op.device, op.role
            every += op.input_vars()
            every += op.output_vars()
        # What holds nets, or runs in Python, may keep what stands for arrays. Of a list, fills look
        # at what other steps read.
        if None in key or (makes_lists and step.operators[0].type == "fill_constant"):
            continue
        names = list(dict.fromkeys(every))
        if len(names) < len(every) or len(step.operators) > 1:
            number = {name: at for at, name in enumerate(names)}
            key += [number[name] for name in every]
            key += [number[name] for name in step.writes]
        for name in names:
            if name not in facts:
                facts[name] = alike.setdefault(_facts(plan, name), len(alike))
        key += [facts[name] for name in names]
        kinds.setdefault(tuple(key), []).append(_Member(step, names))
    return [members for members in kinds.values() if len(members) >= _LEAST]


def _facts(plan: Plan, name: str) -> tuple[Any, ...]:
    """What kernels may know of a variable beside its array."""
    return (
        plan.specs.get(name),
        name in plan.placement,
        name in plan.channels_last,
        name in plan.parts and plan.specs[plan.parts[name].whole],
        name in plan.live_out,
        name in plan.steps.read,
        plan.views.get(name) is not None or name in plan.bases,
    )


def _of_arrays(frame: Any, members: Iterable[_Member]) -> list[list[_Member]]:
    """Steps of a kind, cut into those that read the same packed weights, and whose other arrays lie
    alike."""
    arrays, addresses = frame.arrays, frame.addresses
    known: dict[str, Any] = {}

    def lies(name: str) -> Any:
        if name in addresses or name not in arrays:
            return None  # as the kind says
        if name not in known:
            array = arrays[name]
            known[name] = (
                id(array)
                if _is_packed(frame, array)
                else (type(array), array.strides, flags_of(array) if _is_host(array) else 0)
            )
        return known[name]

    found: dict[Any, list[_Member]] = {}
    for member in members:
        found.setdefault(tuple([lies(name) for name in member.names]), []).append(member)
    return list(found.values())


def _is_host(array: Any) -> bool:
    return type(array) is np.ndarray


def _is_packed(frame: Any, array: Any) -> bool:
    """Whether kernels may read a packed form of an array."""
    return any(one is not None and one.holds(array) for one in (frame.kept, frame.prepared))


class _Operands(Operands):
    """The variables of a step, of which packed weights alone are known."""

    def is_fixed(self, name: str) -> bool:
        """See `Operands.is_fixed`."""
        return _is_packed(self._frame, self._frame.arrays[name])

    def __init__(self, frame: Any, step: PlanStep) -> None:
        self._frame = frame
        super().__init__(frame.plan, step, frame.arrays)


def _bound(frame: Any, members: Sequence[_Member]) -> dict[int, _Call]:
    """The calls of steps that one trace binds; none where its kernel cannot be traced."""
    first = members[0].step
    operands = _Operands(frame, first)
    if not operands.suits(frame.arrays):
        return {}
    call = BoundSteps._bind(frame, first)
    try:
        traced = Traced(frame, first, operands, set())
        found = _Kind(frame, traced, members)
    except (NotTracedError, OverflowError) as error:
        _log.debug("%s is bound step by step: %s", first.operators[0], error)
        return {id(first): call}
    checked = members if frame.plan.options.verify else members[:1]
    for number, member in enumerate(checked):
        own = found.calls.get(number)
        by_kernel = call if member.step is first else BoundSteps._bind(frame, member.step)
        if own is not None and not traced.agrees(found.bound(number), own, by_kernel):
            _log.warning("bound step by step: %s", first.operators[0])
            return {id(first): call}
    return {id(members[number].step): own for number, own in found.calls.items()}


class _Kind:
    """What a trace of one step is for others, all at once.

    Attributes:
        calls: by the number of the step; those left out do not meet its conditions.
    """

    def __init__(self, frame: Any, traced: Traced, members: Sequence[_Member]) -> None:
        self._traced = traced
        operands = traced.operands
        count, size = len(members), len(traced.words)
        names = variables_of(members[0].step)
        at_of = {name: names.index(name) for name in operands.ranks}
        own_sizes = operands.sizes(frame.arrays)
        sizes = np.zeros((len(own_sizes) + 1 + len(traced.memory), count), np.int64)
        sizes[: len(own_sizes)] = np.array(own_sizes, np.int64)[:, None]
        at = -1
        for name, rank in operands.ranks.items():
            at += 2 * rank + 1
            sizes[at] = [_address(frame, member.names[at_of[name]]) for member in members]
        self._words = words = np.tile(traced.words, (count, 1))
        self._begin, self._step = words.ctypes.data, words.strides[0]
        sizes[len(own_sizes)] = self._begin + self._step * np.arange(count)
        dims = ManyDims([traced.table], [np.arange(len(sizes))])
        numbers, met = dims.numbers(sizes)
        self._places, owners = self._memory(frame, dims.values[0].values(numbers)[:, 0].tolist())
        for place, (address, _) in enumerate(self._places, len(own_sizes) + 1):
            sizes[place] = address
        dims.put(sizes, numbers)
        words[:, traced.at] = dims.values[1].values(numbers).T
        given = dims.values[2].values(numbers).T.tolist()
        held = words, owners, frame.arrays, traced
        arrays = frame.arrays
        self.calls: dict[int, _Call] = {}
        needs = any([one.reads for one in traced.calls])
        begin, step = (self._begin, self._step) if size else (0, 0)
        for number in met[0].nonzero()[0].tolist():
            own = {}
            if needs:
                own = {
                    name: arrays[other]
                    for name, other in zip(names, members[number].names, strict=True)
                    if other in arrays
                }
            self.calls[number] = traced.call(begin + step * number, iter(given[number]), own, held)

    def _memory(self, frame: Any, sizes: list[int]) -> tuple[list[tuple[int, int]], list[Any]]:
        """Address and bytes of what the steps have beside their arrays, and its owners."""
        places: list[tuple[int, int]] = []
        owners: list[Any] = []
        wanted = iter(sizes)
        begin = frame._pool.span(int(sum(padded(size) for size in sizes)))
        for kind, first, second in self._traced.memory:
            if kind == "scratch":
                size = next(wanted)
                places.append((begin, size))
                begin += padded(size)
            elif kind == "held":
                owners.append(memory_of(first, second))
                places.append((owners[-1].ctypes.data, owners[-1].nbytes))
            else:
                raise NotTracedError("memory that depends on sizes, where none varies")
        return places, owners

    def bound(self, number: int) -> Bound:
        """What a step has been bound to."""
        return Bound(self._begin + self._step * number, self._places)


def _address(frame: Any, name: str) -> int:
    address = frame.addresses.get(name)
    return frame.arrays[name].ctypes.data if address is None else address
