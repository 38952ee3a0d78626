"""Loops of a network that are the same step again and again: recurrent layers.

Such a loop reads itself at one offset in time alone, zeros where there is nothing yet, and all else
in a row depends on what is read at the times of that row. So a step can be written down once
(`lower/step_net.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ..components.base.dependence import SAME
from ..language.descriptor import (
    BinarySumDescriptor,
    ConstantSumDescriptor,
    OptionalSumDescriptor,
    SimpleSumDescriptor,
    SumDescriptor,
)
from .topology import Topology
from .topology_node import FLAGS
from .units import Candidate


class IrregularError(Exception):
    """What a request asks for is no repetition of equal steps."""


class Term(NamedTuple):
    """A summand of a part of a descriptor.

    Attributes:
        node: whose row is read; -1: none, `scale` is a constant.
        offset: in time, of the row.
        optional: zeros stand for the row where it cannot be computed.
    """

    scale: float
    node: int = -1
    offset: int = 0
    optional: bool = False


@dataclass(frozen=True)
class Loop:
    """A recurrent layer.

    Attributes:
        members: its nodes in the order in which a step computes them.
        offset: in time, at which it reads itself.
        parts: for each descriptor node the parts that it appends, each a sum of terms.
        states: the terms that read the step before, each once, without their scales.
        reads: those that read nodes outside.
    """

    members: list[int]
    offset: int
    parts: dict[int, list[list[Term]]]
    states: list[Term]
    reads: list[Term]


def find_loops(topology: Topology) -> list[Loop]:
    """The loops of a network, those that read others after these.

    A component without an input that is said to read itself, a dropout mask, is none.

    Raises:
        IrregularError: one of its loops is something else than a recurrent layer.
    """
    return [
        loop_of(topology, members)
        for members, is_loop in topology.stages
        if is_loop and not is_source(topology, members)
    ]


def is_source(topology: Topology, members: list[int]) -> bool:
    """Whether nodes are a component that reads nothing, and its descriptor."""
    return len(members) == 2 and topology.steps[members[1]] == []


def loop_of(topology: Topology, members: list[int]) -> Loop:
    """A loop with some members.

    Raises:
        IrregularError: it is no recurrent layer.
    """
    inside = set(members)
    parts = parts_of(topology, members, _terms)
    listed = [term for sums in parts.values() for part in sums for term in part if term.node >= 0]
    terms = list(dict.fromkeys([term._replace(scale=1.0) for term in listed]))
    own = [term for term in terms if term.node in inside and term.offset]
    offsets = {term.offset for term in own}
    if len(offsets) != 1 or not all(term.optional for term in own):
        raise IrregularError("a loop reads itself at several offsets, or rows that must be there")
    outside = [term for term in terms if term.node not in inside]
    if not outside:
        raise IrregularError("a loop reads nothing but itself")
    order = order_of(topology, members)
    return Loop(order, offsets.pop(), parts, own, outside)


def parts_of(
    topology: Topology,
    members: list[int],
    terms: Callable[[SumDescriptor, Iterator[Candidate]], Iterator[Term]],
) -> dict[int, list[list[Term]]]:
    """By descriptor among the members of a loop, the summands of each of its parts.

    Args:
        terms: the summands of a part, from the places that it reads.

    Raises:
        IrregularError: a component computes across rows, a descriptor reads more than offsets.
    """
    parts: dict[int, list[list[Term]]] = {}
    for number in members:
        node = topology.nodes[number]
        if node.kind == "component":
            if node.reads is not SAME or node.properties & FLAGS.REORDERS_INDEXES:
                raise IrregularError(f"'{node.name}' does not compute row by row")
        elif node.kind == "descriptor":
            steps = topology.steps[number]
            if steps is None:
                raise IrregularError(f"'{node.name}' reads more than offsets")
            places = iter(steps)
            parts[number] = [list(terms(part, places)) for part in node.expression().parts]
    return parts


def _terms(part: SumDescriptor, places: Iterator[Candidate]) -> Iterator[Term]:
    """The summands of a part of a descriptor whose rows are at most offsets.

    Raises:
        IrregularError: rows stand in for others, or are left out together.
    """
    if isinstance(part, BinarySumDescriptor) and part.op == "Sum":
        yield from _terms(part.a, places)
        yield from _terms(part.b, places)
    elif isinstance(part, ConstantSumDescriptor):
        yield Term(part.constant())
    else:
        optional = isinstance(part, OptionalSumDescriptor)
        simple = part.src if isinstance(part, OptionalSumDescriptor) else part
        if not isinstance(simple, SimpleSumDescriptor):
            raise IrregularError(f"'{part}' is no sum of rows")
        (scale,) = simple.scales().values()
        node, t, x = next(places)
        if x:
            raise IrregularError(f"'{part}' reads at an offset in x")
        yield Term(scale, node, t, optional)


def order_of(topology: Topology, members: list[int]) -> list[int]:
    """The members, each after the members whose row of the same time it reads."""
    left = members
    order = list[int]()
    done = set[int]()
    inside = set(members)
    while left:
        ready = [
            number
            for number in left
            if all(
                node in done or node not in inside or t
                for node, t, _ in topology.steps[number] or ()
            )
        ]
        if not ready:
            raise IrregularError("rows of one time wait for each other")
        order += ready
        done.update(ready)
        left = [number for number in left if number not in done]
    return order
