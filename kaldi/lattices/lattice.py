"""Lattices: acyclic graphs of words or phones with the transition-ids of each arc.

One class serves both of Kaldi's kinds. In a compact lattice each arc has a sequence of
transition-ids; in a plain one it has one or none, and ends have none. `joined` and `split` turn
one into the other.

Source: Kaldi's `lat/kaldi-lattice.h`, `fstext/lattice-weight.h`, `fstext/lattice-utils-inl.h`,
`fstext/factor-inl.h`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ...framework.base.algorithms.strongly_connected import depth_first
from ...framework.base.errors import ShapeError


class Weight(NamedTuple):
    """Costs of an arc or an end, negated logarithms of probabilities, and its transition-ids.

    The costs are rounded to float32: `graph` is the cost of the language model, pronunciations and
    transitions, `acoustic` the cost of the frames.
    """

    graph: float = 0.0
    acoustic: float = 0.0
    ids: tuple[int, ...] = ()

    @property
    def cost(self) -> float:
        """Both costs added, in double precision."""
        return self.graph + self.acoustic

    def times(self, other: Weight) -> Weight:
        """The weight of this arc and the `other` after it."""
        graph, acoustic = single(self.graph + other.graph), single(self.acoustic + other.acoustic)
        return Weight(graph, acoustic, self.ids + other.ids)

    def plus(self, other: Weight) -> Weight:
        """The better one: less cost, then less graph cost, then fewer ids, then greater ids."""
        ours, theirs = single(self.cost), single(other.cost)
        mine = (ours, self.graph, len(self.ids), tuple(-i for i in self.ids))
        yours = (theirs, other.graph, len(other.ids), tuple(-i for i in other.ids))
        return self if mine <= yours else other

    def scaled(self, graph: float, acoustic: float) -> Weight:
        """With the costs multiplied by factors."""
        return Weight(single(graph * self.graph), single(acoustic * self.acoustic), self.ids)


ONE = Weight()
NO_PATH = "the lattice is empty: it has no path"
_LARGEST = float(np.finfo(np.float32).max)


def single(value: float) -> float:
    """A number rounded to float32."""
    if -_LARGEST <= value <= _LARGEST:  # most are; to change what NumPy warns of takes its time
        return float(np.float32(value))
    with np.errstate(over="ignore"):
        return float(np.float32(value))


class Arc(NamedTuple):
    """An arc: its word or phone (0: none), its weight and the state that it leads to."""

    label: int
    weight: Weight
    target: int


@dataclass(eq=False)
class CompactLattice:
    """A lattice.

    Attributes:
        start: the first state, -1 where there is none.
        arcs: of each state.
        final: the weight of ending in each state; None: no path ends there.
    """

    start: int = -1
    arcs: list[list[Arc]] = field(default_factory=list)
    final: list[Weight | None] = field(default_factory=list)

    @property
    def states(self) -> int:
        """How many states it has."""
        return len(self.arcs)

    @property
    def num_arcs(self) -> int:
        """How many arcs it has."""
        return sum(map(len, self.arcs))

    def add_state(self) -> int:
        """A new state without arcs; returns its number."""
        self.arcs.append([])
        self.final.append(None)
        return len(self.arcs) - 1

    def scaled(self, graph: float = 1.0, acoustic: float = 1.0) -> CompactLattice:
        """With all costs multiplied by factors."""
        if graph == acoustic == 1.0:
            return self
        return self.with_weights(lambda weight: weight.scaled(graph, acoustic))

    def with_weights(self, change: Callable[[Weight], Weight]) -> CompactLattice:
        """With what becomes of each weight, of arcs and ends."""
        return CompactLattice(
            self.start,
            [[arc._replace(weight=change(arc.weight)) for arc in group] for group in self.arcs],
            [end and change(end) for end in self.final],
        )


def split(lattice: CompactLattice) -> CompactLattice:
    """The plain lattice: the ids of an arc one after the other, its costs and label at the first.

    States keep their numbers; those between the ids of an arc come after.
    """
    plain = CompactLattice(lattice.start, [[] for _ in lattice.arcs], [None] * lattice.states)
    for state, group in enumerate(lattice.arcs):
        end = lattice.final[state]
        if end is not None:
            last, left = state, end
            for number in end.ids:
                new = plain.add_state()
                plain.arcs[last].append(Arc(0, left._replace(ids=(number,)), new))
                last, left = new, ONE
            plain.final[last] = left._replace(ids=())
        for label, weight, target in group:
            last = state
            for number in weight.ids[:-1]:
                new = plain.add_state()
                plain.arcs[last].append(Arc(label, weight._replace(ids=(number,)), new))
                last = new
                label = 0
                weight = Weight(ids=weight.ids)
            plain.arcs[last].append(Arc(label, weight._replace(ids=weight.ids[-1:]), target))
    return plain


def joined(lattice: CompactLattice) -> CompactLattice:
    """The compact lattice of a plain one: chains of arcs without words become one arc.

    Raises:
        ShapeError: it has a loop.
    """
    if lattice.start < 0:
        return CompactLattice()
    order = topological_order(lattice)
    if order is None:
        raise ShapeError("the lattice has a loop")
    reached = _depth_first(lattice)
    incoming = [0] * lattice.states
    for group in lattice.arcs:
        for arc in group:
            incoming[arc.target] += 1
    inside = [
        state != lattice.start
        and incoming[state] == 1
        and len(group) == 1
        and group[0].label == 0
        and lattice.final[state] is None
        for state, group in enumerate(lattice.arcs)
    ]
    number: dict[int, int] = {}
    compact = CompactLattice()

    def place(state: int) -> int:
        if state not in number:
            number[state] = compact.add_state()
        return number[state]

    for state in reached:
        if inside[state]:
            continue
        here = place(state)
        for label, weight, target in lattice.arcs[state]:
            ids = list(weight.ids)
            total = weight
            while inside[target]:
                following = lattice.arcs[target][0]
                total = total._replace(ids=()).times(following.weight._replace(ids=()))
                ids += following.weight.ids
                target = following.target
            compact.arcs[here].append(Arc(label, total._replace(ids=tuple(ids)), place(target)))
        compact.final[here] = lattice.final[state]
    compact.start = number[lattice.start]
    return top_sorted(compact)


def _depth_first(lattice: CompactLattice) -> list[int]:
    """The states that paths from the start meet, in the order in which they are met first."""
    seen = {lattice.start}
    order = [lattice.start]
    stack = [iter(lattice.arcs[lattice.start])]
    while stack:
        arc = next(stack[-1], None)
        if arc is None:
            stack.pop()
        elif arc.target not in seen:
            seen.add(arc.target)
            order.append(arc.target)
            stack.append(iter(lattice.arcs[arc.target]))
    return order


def topological_order(
    lattice: CompactLattice, followed: list[list[int]] | None = None
) -> list[int] | None:
    """The states so that arcs lead from earlier to later ones, as OpenFst finds them; None where
    there is a loop.

    Args:
        followed: the targets of each state, in place of all of its arcs.
    """
    targets = followed or [[arc.target for arc in group] for group in lattice.arcs]
    roots = range(lattice.states)
    left = depth_first(targets, [lattice.start, *roots] if lattice.start >= 0 else roots)
    return None if left is None else left[::-1]


def is_top_sorted(lattice: CompactLattice) -> bool:
    """Whether all arcs lead from a state to one of a greater number."""
    return all(arc.target > state for state, group in enumerate(lattice.arcs) for arc in group)


def top_sorted(lattice: CompactLattice) -> CompactLattice:
    """With states in topological order; unchanged if they are.

    Raises:
        ShapeError: it has a loop.
    """
    if is_top_sorted(lattice):
        return lattice
    order = topological_order(lattice)
    if order is None:
        raise ShapeError("the lattice has a loop")
    return renumbered(lattice, order)


def renumbered(lattice: CompactLattice, order: list[int]) -> CompactLattice:
    """With the states of `order`, in this order; arcs to others are left out."""
    number = {state: place for place, state in enumerate(order)}
    return CompactLattice(
        number.get(lattice.start, -1),
        [
            [
                Arc(arc.label, arc.weight, number[arc.target])
                for arc in lattice.arcs[state]
                if arc.target in number
            ]
            for state in order
        ],
        [lattice.final[state] for state in order],
    )
