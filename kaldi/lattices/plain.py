"""Lattices as arrays and as tuples: what determinization reads and makes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from ...framework.base.algorithms.strongly_connected import depth_first
from ...framework.base.errors import ShapeError
from ...framework.base.sequence import repeated
from .lattice import NO_PATH, Arc, CompactLattice, Weight, single, split, top_sorted
from .operations import connected
from .raw_lattice import RawLattice
from .unfold import check_lattice

PlainArc = tuple[int, int, tuple[int, ...], float, float]
"""Label, target, transition-ids, whole cost, graph cost."""


@dataclass(eq=False)
class LatticeColumns:
    """A lattice whose arcs have one transition-id at most, as arrays; state 0 is the first one.

    Attributes:
        states: how many.
        source, target, label, id: of arcs, int32; an id of -1: none. Arcs of a state have their
            order.
        cost, graph: whole and graph cost of arcs, float64.
        final: final states, int32. final_cost, final_graph: of ending there, float64.
        is_sorted: whether all arcs lead to states of greater numbers. Else states are numbered
            anew, those that state 0 leads to.
    """

    states: int
    source: np.ndarray
    target: np.ndarray
    label: np.ndarray
    id: np.ndarray
    cost: np.ndarray
    graph: np.ndarray
    final: np.ndarray
    final_cost: np.ndarray
    final_graph: np.ndarray
    is_sorted: bool = True

    def plain(self) -> PlainLattice:
        """The same as tuples, in topological order.

        Raises:
            ShapeError: there is a loop.
        """
        lattice = PlainLattice([[] for _ in range(self.states)], [None] * self.states)
        columns = (self.source, self.label, self.target, self.id, self.cost, self.graph)
        for source, label, target, number, cost, graph in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            ids = () if number < 0 else (number,)
            lattice.arcs[source].append((label, target, ids, cost, graph))
        for state, cost, graph in zip(
            self.final.tolist(), self.final_cost.tolist(), self.final_graph.tolist(), strict=True
        ):
            lattice.final[state] = cost, graph
        return lattice if self.is_sorted else _sorted(lattice)


def _sorted(lattice: PlainLattice) -> PlainLattice:
    """The states that state 0 leads to, in topological order."""
    order = sorted_states([[arc[1] for arc in group] for group in lattice.arcs])
    number = {state: place for place, state in enumerate(order)}
    return PlainLattice(
        [
            [(label, number[to], ids, cost, graph) for label, to, ids, cost, graph in group]
            for group in map(lattice.arcs.__getitem__, order)
        ],
        [lattice.final[state] for state in order],
    )


@dataclass(eq=False)
class PlainLattice:
    """A lattice in topological order, from state 0 on.

    Attributes:
        arcs: of each state. final: whole and graph cost of ending in each state; None: it is not
            final. Costs are in double precision.
    """

    arcs: list[list[PlainArc]] = field(default_factory=list)
    final: list[tuple[float, float] | None] = field(default_factory=list)

    def add_state(self) -> int:
        """A new state without arcs; returns its number."""
        self.arcs.append([])
        self.final.append(None)
        return len(self.arcs) - 1

    def columns(self) -> LatticeColumns:
        """The same as arrays; arcs have one transition-id at most.

        Raises:
            ShapeError: a label or an id is not one of 32 bits, or an id is below zero.
        """
        arcs = list(chain.from_iterable(self.arcs))
        counts = [len(group) for group in self.arcs]
        ends = [(state, *end) for state, end in enumerate(self.final) if end is not None]
        label, target, ids, cost, graph = zip(*arcs, strict=True) if arcs else [()] * 5
        end, end_cost, end_graph = zip(*ends, strict=True) if ends else [()] * 3
        if any(each and each[0] < 0 for each in ids):
            raise ShapeError("the lattice has a transition-id below zero")
        try:
            return LatticeColumns(
                len(self.arcs),
                repeated(np.arange(len(counts), dtype=np.int32), np.array(counts, np.int64)),
                np.array(target, np.int32),
                np.array(label, np.int32),
                np.array([each[0] if each else -1 for each in ids], np.int32),
                np.array(cost, np.float64),
                np.array(graph, np.float64),
                np.array(end, np.int32),
                np.array(end_cost, np.float64),
                np.array(end_graph, np.float64),
            )
        except OverflowError:
            raise ShapeError("the lattice has a label or a transition-id beyond 32 bits") from None

    def rest(self) -> list[float]:
        """The least cost from each state to an end."""
        costs = [math.inf] * len(self.arcs)
        for state in range(len(self.arcs) - 1, -1, -1):
            end = self.final[state]
            least = math.inf if end is None else end[0]
            for _, target, _, cost, _ in self.arcs[state]:
                if cost + costs[target] < least:
                    least = cost + costs[target]
            costs[state] = least
        return costs


def sorted_states(targets: Sequence[Sequence[int]]) -> list[int]:
    """The states that state 0 leads to, in the topological order that OpenFst finds.

    Args:
        targets: of the arcs of each state.

    Raises:
        ShapeError: there is a loop.
    """
    left = depth_first(targets, [0] if targets else [])
    if left is None:
        raise ShapeError("the lattice has a loop")
    return left[::-1]


def from_raw(raw: RawLattice) -> LatticeColumns:
    """The lattice of a search.

    Raises:
        ShapeError: an arc does not lead from a state to one of a greater number, a label is below
            zero, a cost is NaN, or no state is final.
    """
    states = len(raw.final)
    bad = (raw.source < 0) | (raw.target <= raw.source) | (raw.target >= states)
    if bad.any():
        place = int(np.flatnonzero(bad)[0])
        raise ShapeError(
            f"arc {place} of the lattice leads from state {raw.source[place]} to"
            f" {raw.target[place]}, of {states}: arcs must lead to states of greater numbers"
        )
    if min(raw.ilabel.min(initial=0), raw.olabel.min(initial=0)) < 0:
        raise ShapeError("the lattice has a label below zero")
    if np.isnan(raw.graph).any() or np.isnan(raw.acoustic).any() or np.isnan(raw.final).any():
        raise ShapeError("the lattice has a cost that is NaN")
    if not np.isfinite(raw.final).any():
        raise ShapeError(NO_PATH)
    graph = raw.graph.astype(np.float64)
    whole = graph + raw.acoustic
    arcs = raw.source, raw.target, raw.olabel, np.where(raw.ilabel, raw.ilabel, -1)
    kept = whole < math.inf
    ends = np.flatnonzero(raw.final < math.inf)
    costs = raw.final[ends].astype(np.float64)
    source, target, label, number = (column[kept].astype(np.int32) for column in arcs)
    return LatticeColumns(
        states,
        source,
        target,
        label,
        number,
        whole[kept],
        graph[kept],
        ends.astype(np.int32),
        costs,
        costs,
    )


def from_lattice(lattice: CompactLattice) -> PlainLattice:
    """A lattice of either kind; arcs have one transition-id at most.

    Raises:
        ShapeError: it is empty, has a loop, or a label below zero.
    """
    check_lattice(lattice)
    lattice = top_sorted(split(connected(lattice)))
    if lattice.start != 0:
        raise ShapeError(NO_PATH)
    return PlainLattice(
        [
            [(a.label, a.target, a.weight.ids, a.weight.cost, a.weight.graph) for a in group]
            for group in lattice.arcs
        ],
        [None if end is None else (end.cost, end.graph) for end in lattice.final],
    )


def to_lattice(
    plain: PlainLattice, end_ids: Sequence[tuple[int, ...]] | None = None
) -> CompactLattice:
    """The same with costs rounded to single precision.

    Args:
        end_ids: transition-ids of ending, for each state.
    """
    compact = CompactLattice(0 if plain.arcs else -1)
    for state, (group, end) in enumerate(zip(plain.arcs, plain.final, strict=True)):
        arcs = [
            Arc(label, Weight(single(graph), single(cost - graph), ids), target)
            for label, target, ids, cost, graph in group
        ]
        compact.arcs.append(arcs)
        weight = None
        if end is not None:
            ids = end_ids[state] if end_ids else ()
            weight = Weight(single(end[1]), single(end[0] - end[1]), ids)
        compact.final.append(weight)
    return connected(compact)


def pruned(plain: PlainLattice, beam: float) -> PlainLattice:
    """Without the arcs on no path whose cost is within `beam` of the best path's."""
    rest = plain.rest()
    if not rest:
        return plain
    most = rest[0] + beam
    begin = [math.inf] * len(plain.arcs)
    begin[0] = 0.0
    kept = PlainLattice([[] for _ in plain.arcs], list(plain.final))
    for state, group in enumerate(plain.arcs):
        for arc in group:
            label, target, ids, cost, graph = arc
            if begin[state] + cost + rest[target] <= most:
                kept.arcs[state].append((label, target, ids, cost, graph))
                begin[target] = min(begin[target], begin[state] + cost)
        end = plain.final[state]
        if end is not None and begin[state] + end[0] > most:
            kept.final[state] = None
    return kept
