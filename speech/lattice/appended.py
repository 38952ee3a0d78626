"""A deterministic lattice that grows chunk by chunk, while a search continues.

A chunk of the search's lattice begins with the part of the lattice so far that may still change:
the states from which arcs to the newest tokens leave, and all that lies after them. It is
determinized, and takes their place. Two sorts of labels hold both together, besides words: a
state's label marks where a chunk is entered, a token's label where it is left.

Source: `LatticeIncrementalDeterminizer` in Kaldi's `decoder/lattice-incremental-decoder.cc`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ...kaldi.lattices.lattice import Arc, CompactLattice, Weight, single, top_sorted
from ...kaldi.lattices.operations import connected
from ...kaldi.lattices.plain import PlainArc, PlainLattice, sorted_states

STATE_LABEL = 100_000_000
TOKEN_LABEL = 200_000_000
"""Labels of states and tokens count from here; words have smaller ones."""


@dataclass(eq=False)
class Chunk:
    """A part of a search's lattice in the making; state 0 is the start, in no order otherwise.

    Attributes:
        arcs: of each state. final: cost of ending, by state.
    """

    arcs: list[list[PlainArc]] = field(default_factory=list)
    final: dict[int, float] = field(default_factory=dict)

    def add_state(self) -> int:
        """A new state without arcs; returns its number."""
        self.arcs.append([])
        return len(self.arcs) - 1

    def add(self, source: int, target: int, label: int, weight: Weight) -> None:
        """An arc; more than one transition-id makes states between."""
        cost, graph = weight.cost, weight.graph
        for number in weight.ids[:-1]:
            between = self.add_state()
            self.arcs[source].append((label, between, (number,), cost, graph))
            source = between
            label = 0
            cost = 0.0
            graph = 0.0
        self.arcs[source].append((label, target, weight.ids[-1:], cost, graph))

    def sorted(self) -> PlainLattice:
        """The states that the start leads to, in topological order.

        Raises:
            ShapeError: there is a loop.
        """
        order = sorted_states([[arc[1] for arc in group] for group in self.arcs])
        number = {state: place for place, state in enumerate(order)}
        lattice = PlainLattice()
        for state in order:
            lattice.arcs.append(
                [(arc[0], number[arc[1]], arc[2], arc[3], arc[4]) for arc in self.arcs[state]]
            )
            end = self.final.get(state)
            lattice.final.append(None if end is None else (end, end))
        return lattice


class _Exit(NamedTuple):
    """An arc to a token: the state that it leaves, the token's label, and its weight."""

    source: int
    token: int
    weight: Weight


class AppendedLattice:
    """The lattice so far.

    Args:
        determinize: makes a sorted, deterministic lattice of a chunk.
    """

    def __init__(self, determinize: Callable[[PlainLattice], CompactLattice]) -> None:
        self._determinize = determinize
        self.clear()

    def clear(self) -> None:
        """Begin with an empty lattice."""
        self._lattice = CompactLattice()
        self._forward: list[float] = []  # cost of the best way to each state
        self._before: list[list[tuple[int, int]]] = []  # arcs to each state: source and place
        self._exits: list[_Exit] = []
        # states whose arcs the next chunk makes anew, in the order in which the search reached them
        self._open: dict[int, None] = {}

    @property
    def states(self) -> int:
        """How many states there are."""
        return self._lattice.states

    @property
    def can_grow(self) -> bool:
        """Whether the next chunk can be appended: the first state must not change any more."""
        return bool(self.states) and all(way.source for way in self._exits)

    def begin_chunk(self) -> tuple[Chunk, dict[int, int]]:
        """The beginning of a chunk, and its states by label of token.

        Arcs to tokens lead to these states. The search's links are to be added, and arcs with
        labels of new tokens to final states.
        """
        chunk = Chunk()
        start = chunk.add_state()
        number = {state: chunk.add_state() for state in self._open}
        for state in self._open:
            for label, weight, target in self._lattice.arcs[state]:
                if target not in number:
                    number[target] = chunk.add_state()
                chunk.add(number[state], number[target], label, weight)
        tokens: dict[int, int] = {}
        for source, token, weight in self._exits:
            if self._forward[source] == math.inf:
                continue
            if token not in tokens:
                tokens[token] = chunk.add_state()
            chunk.add(number[source], tokens[token], 0, weight)
        for state in self._open:
            # The cost of the way there guides pruning; `accept` takes it off again.
            cost = Weight(self._forward[state])
            chunk.add(start, number[state], STATE_LABEL + state, cost)
        return chunk, tokens

    def accept(self, chunk: Chunk, end_costs: dict[int, float]) -> None:
        """Determinize a chunk and append it.

        Args:
            chunk: from `begin_chunk`, or one with the search's links only if it is the first.
            end_costs: of the final states after labels of tokens: they guide pruning, and are
                taken off again.
        """
        piece = top_sorted(self._determinize(chunk.sorted()))
        if not piece.states:
            self.clear()
            return
        lattice = self._lattice
        exits = {arc.target for group in piece.arcs for arc in group if arc.label >= TOKEN_LABEL}
        number: dict[int, int] = {}
        first = not lattice.states
        if not first:
            self._enter(piece, number)
        for state in self._open:
            lattice.arcs[state], lattice.final[state] = [], None
        for state in range(0 if first else 1, piece.states):
            if state not in exits and state not in number:
                number[state] = lattice.add_state()
                self._forward.append(math.inf)
                self._before.append([])
        if first:
            lattice.start = number[0]
            self._forward[number[0]] = 0.0
        self._exits = []
        for state in range(0 if first else 1, piece.states):
            if state not in exits:
                self._take(piece, state, number, end_costs)
        self._open = self._reached()

    def _enter(self, piece: CompactLattice, number: dict[int, int]) -> None:
        """Number the states that a chunk is entered by, and lead arcs of earlier chunks to them."""
        lattice = self._lattice
        for label, weight, target in piece.arcs[0]:
            state = label - STATE_LABEL
            # Two states may have become one.
            kept = number.setdefault(target, state)
            more = weight._replace(graph=single(weight.graph - self._forward[state]))
            self._forward[state] = math.inf
            before = self._before[state]
            self._before[state] = []
            for source, place in before:
                # Arcs between states that may change are gone, or others by now.
                group = lattice.arcs[source] if source not in self._open else []
                if place >= len(group) or group[place].target != state:
                    continue
                arc = group[place]
                group[place] = Arc(arc.label, arc.weight.times(more), kept)
                cost = single(self._forward[source] + single(group[place].weight.cost))
                self._forward[kept] = min(self._forward[kept], cost)
                self._before[kept].append((source, place))

    def _take(
        self,
        piece: CompactLattice,
        state: int,
        number: dict[int, int],
        end_costs: dict[int, float],
    ) -> None:
        """Take the arcs of a state of a chunk over."""
        here = number[state]
        self._lattice.final[here] = piece.final[state]
        for label, weight, target in piece.arcs[state]:
            if target in number:
                self._add(here, Arc(label, weight, number[target]))
                continue
            end = piece.final[target]
            if end is not None:
                weight = weight.times(end)
            graph = single(weight.graph - end_costs[label])
            self._exits.append(_Exit(here, label, weight._replace(graph=graph)))

    def _add(self, state: int, arc: Arc) -> None:
        cost = single(self._forward[state] + single(arc.weight.cost))
        if cost == math.inf:
            return
        self._before[arc.target].append((state, len(self._lattice.arcs[state])))
        self._lattice.arcs[state].append(arc)
        self._forward[arc.target] = min(self._forward[arc.target], cost)

    def _reached(self) -> dict[int, None]:
        """The states that arcs to tokens leave, and those after them."""
        states = dict.fromkeys(
            way.source for way in self._exits if self._forward[way.source] < math.inf
        )
        waiting = list(states)
        while waiting:
            for arc in self._lattice.arcs[waiting.pop()]:
                if arc.target not in states:
                    states[arc.target] = None
                    waiting.append(arc.target)
        return states

    def ended(self, costs: dict[int, float] | None) -> CompactLattice:
        """The lattice as it is now, with ends at the newest tokens.

        Args:
            costs: of ending, by label of token; others end no path. None: all end, at no cost.
        """
        final = list(self._lattice.final)
        for source in {way.source for way in self._exits}:
            final[source] = None
        for source, token, weight in self._exits:
            cost = 0.0 if costs is None else costs.get(token, math.inf)
            if cost < math.inf:
                end = weight.times(Weight(cost))
                known = final[source]
                final[source] = end if known is None else known.plus(end)
        arcs = [list(group) for group in self._lattice.arcs]
        return connected(CompactLattice(self._lattice.start, arcs, final))
