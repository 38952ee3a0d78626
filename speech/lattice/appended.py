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
from typing import Any, NamedTuple

import numpy as np

from ...kaldi.lattices.lattice import Arc, CompactLattice, Weight, single
from ...kaldi.lattices.operations import connected
from ...kaldi.lattices.plain import LatticeColumns

STATE_LABEL = 100_000_000
TOKEN_LABEL = 200_000_000
"""Labels of states and tokens count from here; words have smaller ones."""


_COLUMNS: dict[str, type] = {
    **dict.fromkeys(("source", "target", "label", "id"), np.int32),
    **dict.fromkeys(("cost", "graph"), np.float64),
}


class Chunk:
    """A part of a search's lattice in the making; state 0 is the start, in no order otherwise."""

    def __init__(self) -> None:
        self._states = 0
        # Columns of arcs: sources, targets, labels, ids, whole and graph costs.
        self._blocks: list[tuple[np.ndarray, ...]] = []
        self._rows: list[tuple[int, int, int, int, float, float]] = []  # arcs after these blocks
        self._ends = np.empty(0, np.int32), np.empty(0)

    def add_states(self, count: int = 1) -> int:
        """New states without arcs; returns the number of the first one."""
        self._states += count
        return self._states - count

    def add(self, source: int, target: int, label: int, weight: Weight) -> None:
        """An arc; more than one transition-id makes states between."""
        cost, graph = weight.cost, weight.graph
        for number in weight.ids[:-1]:
            between = self.add_states()
            self._rows.append((source, between, label, number, cost, graph))
            source = between
            label = 0
            cost = 0.0
            graph = 0.0
        number = weight.ids[-1] if weight.ids else -1
        self._rows.append((source, target, label, number, cost, graph))

    def add_arcs(self, *columns: Any) -> None:
        """Arcs: sources, targets, labels, ids, costs and graph costs as `LatticeColumns` has them,
        arrays or what all of them have."""
        self._gather()
        self._blocks.append(tuple(np.broadcast_arrays(*columns)))

    def end_in(self, states: np.ndarray, costs: np.ndarray) -> None:
        """Let paths end in these states, at these costs, float64, and no others."""
        self._ends = states, costs

    def columns(self) -> LatticeColumns:
        """The lattice as it is now."""
        self._gather()
        parts = zip(*self._blocks, strict=True)
        arcs: dict[str, Any] = {
            name: np.concatenate(part, dtype=dtype, casting="same_kind")
            for (name, dtype), part in zip(_COLUMNS.items(), parts, strict=True)
        }
        ends, costs = self._ends
        final = {"final": ends, "final_cost": costs, "final_graph": costs}
        return LatticeColumns(self._states, is_sorted=False, **arcs, **final)

    def _gather(self) -> None:
        """Make a block of the rows."""
        if self._rows:
            self._blocks.append(tuple(map(np.array, zip(*self._rows, strict=True))))
            self._rows = []


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

    def __init__(self, determinize: Callable[[LatticeColumns], CompactLattice]) -> None:
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
        start = chunk.add_states()
        number = {state: chunk.add_states() for state in self._open}
        for state in self._open:
            for label, weight, target in self._lattice.arcs[state]:
                if target not in number:
                    number[target] = chunk.add_states()
                chunk.add(number[state], number[target], label, weight)
        tokens: dict[int, int] = {}
        for source, token, weight in self._exits:
            if self._forward[source] == math.inf:
                continue
            if token not in tokens:
                tokens[token] = chunk.add_states()
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
        piece = self._determinize(chunk.columns())
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
