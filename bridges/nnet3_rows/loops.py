"""Loops that are no plain recurrent layers: several offsets, `Failover`, late members."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from ...nnet3.graph.loops import IrregularError, Loop, Term, loop_of, order_of, parts_of
from ...nnet3.graph.topology import Topology
from ...nnet3.graph.units import Candidate
from ...nnet3.language.descriptor import (
    BinarySumDescriptor,
    ConstantSumDescriptor,
    OptionalSumDescriptor,
    SimpleSumDescriptor,
    SumDescriptor,
)

_LATEST = 100
"""Steps after which all members of a loop have begun."""


@dataclass(frozen=True)
class GeneralLoop(Loop):
    """A loop whose steps are alike except for the first ones.

    `offset` is the greatest common divisor of those at which it reads itself; a state of `states`
    with n times that offset is what a member was n steps before.

    Attributes:
        lags: by member, the number of steps before its first row.
        instead: by term, what stands for it where it is not there; others are zeros.
    """

    lags: dict[int, int]
    instead: dict[Term, tuple[Term, ...]]

    @property
    def fallbacks(self) -> list[Term]:
        """The terms outside that stand for others."""
        listed = [term for terms in self.instead.values() for term in terms]
        return [term for term in listed if term.node >= 0 and term.node not in self.members]

    def steps(self, term: Term) -> int:
        """How many steps before a row a term reads."""
        return term.offset // self.offset

    def begins(self, term: Term) -> int:
        """The first step at which a term inside is there."""
        return self.lags[term.node] + self.steps(term)


def loop_in(topology: Topology, members: list[int]) -> Loop:
    """The loop with some members, as a recurrent layer where it is one.

    Raises:
        IrregularError: it reads both ways, by rules that depend on time, or never begins.
    """
    try:
        return loop_of(topology, members)
    except IrregularError:
        return _general(topology, members)


def _general(topology: Topology, members: list[int]) -> GeneralLoop:
    inside = set(members)
    instead: dict[Term, tuple[Term, ...]] = {}

    def summands(part: SumDescriptor, places: Iterator[Candidate]) -> Iterator[Term]:
        return _terms(part, places, instead)

    parts = parts_of(topology, members, summands)
    stand_ins = [term for terms in instead.values() for term in terms]
    terms = [term for sums in parts.values() for part in sums for term in part] + stand_ins
    terms = [term for term in terms if term.node >= 0]
    offsets = {term.offset for term in terms if term.node in inside and term.offset}
    if not offsets or (min(offsets) < 0 < max(offsets)):
        raise IrregularError("a loop reads itself at earlier and later times, or at no offset")
    for term in instead:
        if term.node not in inside:
            raise IrregularError("Failover inside of a loop begins with a node outside")
    unit = gcd(*offsets) * (-1 if min(offsets) < 0 else 1)
    own = {term.node: 0 for term in terms if term.node in inside and term.offset}
    for term in terms:
        if term.node in own:
            own[term.node] = max(own[term.node], term.offset // unit)
    states = [
        Term(1.0, node, unit * step, True)
        for node, last in own.items()
        for step in range(1, last + 1)
    ]
    outside = list(dict.fromkeys(t._replace(scale=1.0) for t in terms if t.node not in inside))
    if not outside:
        raise IrregularError("a loop reads nothing but itself")
    order = order_of(topology, members)
    lags = _lags(topology, order, parts, instead, unit)
    return GeneralLoop(order, unit, parts, states, outside, lags, instead)


def _terms(
    part: SumDescriptor, places: Iterator[Candidate], instead: dict[Term, tuple[Term, ...]]
) -> Iterator[Term]:
    """The summands of a part of a descriptor; what stands for them goes into `instead`."""
    if isinstance(part, BinarySumDescriptor) and part.op == "Sum":
        yield from _terms(part.a, places, instead)
        yield from _terms(part.b, places, instead)
    elif isinstance(part, BinarySumDescriptor):
        (first,) = listed if len(listed := list(_terms(part.a, places, instead))) == 1 else [None]
        second = tuple(_terms(part.b, places, instead))
        if first is None or first.optional or any(term.optional for term in second):
            raise IrregularError(f"'{part}' is no choice between rows")
        first = first._replace(optional=True)
        if instead.setdefault(first, second) != second:
            raise IrregularError(f"'{part}' is a second choice for the same row")
        yield first
    elif isinstance(part, ConstantSumDescriptor):
        yield Term(part.constant())
    elif isinstance(part, OptionalSumDescriptor):
        for term in _terms(part.src, places, instead):
            if term.node < 0 or term.optional or not isinstance(part.src, SimpleSumDescriptor):
                raise IrregularError(f"'{part}' is no sum of rows")
            # the scale tells it from the same row with something in its stead
            if term._replace(optional=True) in instead:
                raise IrregularError(f"'{part}' is a second choice for the same row")
            yield term._replace(optional=True)
    else:
        assert isinstance(part, SimpleSumDescriptor)
        (scale,) = part.scales().values()
        node, t, x = next(places)
        if x:
            raise IrregularError(f"'{part}' reads at an offset in x")
        yield Term(scale, node, t)


def _lags(
    topology: Topology,
    order: list[int],
    parts: dict[int, list[list[Term]]],
    instead: dict[Term, tuple[Term, ...]],
    unit: int,
) -> dict[int, int]:
    """By member, how many steps the loop makes before its first row."""
    lags = dict.fromkeys(order, 0)

    def begins(term: Term) -> int:
        if term.node not in lags:
            return 0
        own = lags[term.node] + term.offset // unit
        if not term.optional:
            return own
        stand_ins = instead.get(term)
        return 0 if stand_ins is None else min(own, max(map(begins, stand_ins), default=0))

    for _ in range(_LATEST):
        changed = False
        for number in order:
            node = topology.nodes[number]
            if node.kind == "dim-range":
                lag = lags.get(node.source, 0)
            elif node.kind == "component":
                lag = lags.get(number - 1, 0)
            else:
                listed = [term for part in parts[number] for term in part]
                lag = max(map(begins, listed), default=0)
            changed |= lag != lags[number]
            lags[number] = lag
        if not changed:
            return lags
    raise IrregularError("a loop reads rows of its own that are never there")
