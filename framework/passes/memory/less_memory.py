"""Which activations to compute again, or to move to the host, so that a training takes less memory.

The operators are walked through with the sizes of all variables. Where most memory is taken, of
the variables that live there and are not used for a while those are computed again whose
operators cost least for each byte that it frees. An operator whose operands have gone by then is
repeated with what computes these: a segment of the net between variables that are kept. On a
device, what cannot be freed so is copied to the host's memory after its last use in the forward
pass, and back before its first use in the backward pass.

Source: Chen and others, Training Deep Nets with Sublinear Memory Cost (2016); Kirisame and others,
Dynamic Tensor Rematerialization (2021), for the order by cost and size.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ...base.sizes.shape import ArraySpec, nbytes_of
from ...ir.desc import TEMPORARY
from ...ir.names import again_name, kept_name
from ...ir.op_list import OpList, OpNode
from ...ir.operation import Operator
from .offload import moved
from .recompute import CHEAP, repeatable, repeated

_AT_ONCE = 0.03
"""Share of the memory that is freed before the net is walked through again."""
_NO_BETTER = 24
"""Walks without a better result after which no more is tried."""
_FLOPS_A_BYTE = 10.0
"""Multiplications in the time in which a byte is read or written."""


@dataclass(frozen=True)
class LessMemory:
    """What is done to need less memory.

    Attributes:
        repeated: see `Recompute.chosen`. moved: variables that are moved to the host, each with the
            number of the first operator that reads it afterwards.
        units: of each operator, see `repeated`.
    """

    repeated: Mapping[int, int] = field(default_factory=dict)
    moved: Mapping[str, int] = field(default_factory=dict)
    units: Sequence[int] = ()
    name: str = "less-memory"

    def apply(self, net: OpList) -> OpList:
        """The net with operators that run again, and copies between device and host."""
        known = repeatable(net)
        return moved(repeated(net, known, self.repeated, units=self.units), self.moved).net


class _Walk(NamedTuple):
    """What a walk through a net has found.

    Attributes:
        peak: bytes of the temporaries that live at one time, at most. at: the operator where.
        reads: temporary -> the operators that use it, in order.
    """

    peak: int
    at: int
    reads: dict[str, list[int]]


class _Candidate(NamedTuple):
    """Operators that may be repeated, of which the first frees so many bytes at such a cost."""

    score: float
    operators: tuple[int, ...]
    freed: int


class Chooser:
    """Finds what to do in a net for less memory; later choices do more, and need less.

    Args:
        specs: of all variables.
        in_memory: variables that take memory; others live inside of fused loops.
        live_out: temporaries that are results.
        to_host: whether variables may be moved to the host.
        units: of each operator, see `repeated`.
    """

    def __init__(
        self,
        net: OpList,
        specs: Mapping[str, ArraySpec],
        in_memory: Collection[str],
        live_out: Collection[str],
        *,
        to_host: bool,
        units: Sequence[int] = (),
    ) -> None:
        self._net = net
        self._live_out = frozenset(live_out)
        self._units = units
        self._known = repeatable(net, live_out)
        together: dict[int, list[int]] = {}
        for number, unit in enumerate(units or range(len(net.ops))):
            together.setdefault(unit, []).append(number)
        for members in together.values():
            if not all(number in self._known for number in members):
                for number in members:
                    self._known.pop(number, None)
        self._members = {
            number: members
            for members in together.values()
            for number in members
            if number in self._known
        }
        self._bases = {v.name: v.view.base for v in net.vars if v.view is not None}
        temporary = {v.name for v in net.vars if v.kind == TEMPORARY} - self._live_out
        temporary -= self._bases.keys()
        self._sizes = {
            name: nbytes_of(spec) if name in in_memory else 0
            for name, spec in specs.items()
            if name in temporary
        }
        self._specs = specs
        self._to_host = to_host
        self._costs = {number: self._cost(node) for number, node in self._known.items()}
        self._made_by = {
            name: number for number, node in self._known.items() for name in node.output_names()
        }

    def choices(self) -> Iterator[tuple[int, LessMemory]]:
        """The bytes of temporaries that live at one time, and what is done for that; each time
        fewer bytes."""
        best = LessMemory(units=self._units)
        least = -1
        for more in (self._repeat, self._move) if self._to_host else (self._repeat,):
            chosen, copied = dict(best.repeated), dict(best.moved)
            failed = 0
            while failed < _NO_BETTER:
                made = repeated(self._net, self._known, chosen, units=self._units)
                net, origins, _ = moved(made, copied)
                walk = self._walk(net)
                if least < 0 or walk.peak < least:
                    least, failed = walk.peak, 0
                    best = LessMemory(dict(chosen), dict(copied), self._units)
                    yield least, best
                else:
                    failed += 1
                if not more(walk, origins, chosen, copied):
                    break

    def _walk(self, net: OpList) -> _Walk:
        used: dict[str, list[int]] = {}
        for index, node in enumerate(net.ops):
            op = Operator(node, index)
            for name in (*op.value_reads(), *op.output_vars()):
                root = self._bases.get(name, name)
                places = used.setdefault(root, [])
                if not places or places[-1] != index:
                    places.append(index)
        change = np.zeros(len(net.ops) + 1, np.int64)
        reads = {}
        for name, places in used.items():
            size = self._size(name)
            if size:
                reads[name] = places
                change[places[0]] += size
                change[places[-1] + 1] -= size
        live = np.cumsum(change[:-1])
        at = int(live.argmax()) if len(live) else 0
        return _Walk(int(live[at]) if len(live) else 0, at, reads)

    def _size(self, name: str) -> int:
        return self._sizes.get(kept_name(name), 0)

    def _repeat(
        self,
        walk: _Walk,
        origins: Sequence[int],
        chosen: dict[int, int],
        copied: Mapping[str, int],
    ) -> bool:
        """Choose some more operators to repeat; False where none helps."""
        del copied  # nothing yet
        now = origins[walk.at]
        found: dict[int, _Candidate] = {}
        for name in self._idle(walk):
            number = self._made_by.get(name)
            if number is None or number in found or chosen.get(number, now + 2) <= now + 1:
                continue
            candidate = self._candidate(number, walk, origins, chosen)
            if candidate is not None:
                found[number] = candidate
        wanted = _AT_ONCE * walk.peak
        touched: set[int] = set()
        for one in sorted(found.values()):
            read = [name for number in one.operators for name in self._reads(number)]
            beside = {self._made_by[name] for name in read if name in self._made_by}
            if not touched.isdisjoint((*one.operators, *beside)):
                continue  # a segment would grow of which the cost is not known
            touched.update(one.operators, beside)
            chosen.update(dict.fromkeys(one.operators, now + 1))
            wanted -= one.freed
            if wanted <= 0:
                break
        return bool(touched)

    def _idle(self, walk: _Walk) -> list[str]:
        """Temporaries that live where most memory is taken, and are used before and after it."""
        return [
            name
            for name, places in walk.reads.items()
            if places[0] < walk.at < places[-1] and walk.at not in places
        ]

    def _candidate(
        self, number: int, walk: _Walk, origins: Sequence[int], chosen: Mapping[int, int]
    ) -> _Candidate | None:
        idle = [
            name
            for name in self._known[number].output_names()
            if name in walk.reads and walk.reads[name][0] < walk.at < walk.reads[name][-1]
        ]
        if any(walk.at in walk.reads[name] for name in idle):
            return None
        need = min(origins[next(p for p in walk.reads[n] if p > walk.at)] for n in idle)
        freed = sum(self._size(name) for name in idle)
        cost = 0.0
        operators = [*self._members[number]]
        waiting = [*operators]
        seen = set(operators)
        while waiting:
            one = waiting.pop()
            cost += self._costs[one]
            for name in self._reads(one):
                if name not in self._sizes:
                    continue  # it outlives the run
                places = walk.reads.get(name, [0])
                if origins[places[-1]] >= need:
                    continue  # it is there anyway
                maker = self._made_by.get(name)
                if maker is None:
                    freed -= nbytes_of(self._specs[name])
                elif maker not in seen:
                    members = self._members[maker]
                    seen.update(members)
                    again = walk.reads.get(again_name(name))
                    if maker in chosen and again and origins[again[0]] <= need:
                        continue  # repeated before
                    waiting += members
                    if maker not in chosen:
                        operators += members
        if freed <= 0:
            return None
        return _Candidate(cost / freed, tuple(operators), freed)

    def _reads(self, number: int) -> list[str]:
        return Operator(self._known[number], number).value_reads()

    def _move(
        self,
        walk: _Walk,
        origins: Sequence[int],
        chosen: Mapping[int, int],
        copied: dict[str, int],
    ) -> bool:
        """Choose some more variables to move to the host; False where none helps."""
        del chosen  # they stay
        now = origins[walk.at]
        idle = [
            name
            for name in self._idle(walk)
            if name in self._sizes and name not in copied and again_name(name) not in walk.reads
        ]
        wanted = _AT_ONCE * walk.peak
        for name in sorted(idle, key=lambda name: (-self._size(name), name)):
            copied[name] = now + 1
            wanted -= self._size(name)
            if wanted <= 0:
                break
        return bool(idle)

    def _cost(self, node: OpNode) -> float:
        """The time of an operator, in bytes that are read or written in it."""
        op = Operator(node)
        sizes = [math.prod(self._specs[n][0]) for n in op.value_reads() if n in self._specs]
        made = [math.prod(self._specs[n][0]) for n in op.output_vars() if n in self._specs]
        moved_bytes = 4.0 * (sum(sizes) + sum(made))
        if op.entry.expressions or op.type in CHEAP or len(sizes) < 2:
            return moved_bytes
        # Of a product [m, k] x [k, n] it is m k n, of a convolution about that.
        largest = sorted(sizes)[-2:]
        products = math.sqrt(float(math.prod(largest)) * max(made, default=1))
        return max(moved_bytes, products * 4 / _FLOPS_A_BYTE)
