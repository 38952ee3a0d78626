"""Arcs of graph states as arrays, for the search in NumPy: of static graphs, or made lazily."""

from __future__ import annotations

import numpy as np

from ..fst.arcs import ARC
from ..fst.composition import Composition, State
from ..fst.graph import Graph, StaticGraph


class ArcTable:
    """Where the arcs of states lie: those with an input label first, then the epsilons.

    Attributes:
        arcs: `ARC`; grows while a lazy graph is searched.
        begin, emitting, epsilons: int64, [states]: of each state, where its arcs begin (-1: not
            made yet) and how many there are of either sort.
    """

    def __init__(self, graph: Graph) -> None:
        self._composition: Composition | None = None
        if isinstance(graph, StaticGraph):
            self.arcs = graph.fst.arcs
            self.begin = graph.fst.begin[:-1]
            self.emitting = graph.emitting.astype(np.int64)
            self.epsilons = np.diff(graph.fst.begin) - self.emitting
            self._final, self._start = graph.fst.final, graph.fst.start
        else:
            self._composition = Composition(graph)
            self._clear()

    def _clear(self) -> None:
        self.arcs = np.empty(1 << 12, ARC)
        self.begin = np.full(1 << 12, -1, np.int64)
        self.emitting, self.epsilons = np.zeros((2, 1 << 12), np.int64)
        self._used = 0
        self._tuples: list[State] = []
        self._numbers: dict[State, int] = {}

    @property
    def used(self) -> int:
        """How many arcs were composed."""
        return 0 if self._composition is None else self._used

    def start(self) -> int:
        """The start state."""
        if self._composition is None:
            return self._start
        return self._number(self._composition.start())

    def _number(self, state: State) -> int:
        found = self._numbers.setdefault(state, len(self._tuples))
        if found == len(self._tuples):
            self._tuples.append(state)
            if found >= len(self.begin):
                self.begin = np.concatenate([self.begin, np.full(found, -1, np.int64)])
                self.emitting = np.concatenate([self.emitting, np.zeros(found, np.int64)])
                self.epsilons = np.concatenate([self.epsilons, np.zeros(found, np.int64)])
        return found

    def make(self, states: np.ndarray) -> None:
        """Make the arcs of states that have none yet."""
        if self._composition is None:
            return
        for state in states[self.begin[states] < 0].tolist():
            if self.begin[state] >= 0:  # twice in the list
                continue
            made = self._composition.arcs(self._tuples[state])
            numbered = [(i, o, cost, self._number(to)) for i, o, cost, to in made]
            ordered = [arc for arc in numbered if arc[0]]
            self.emitting[state] = len(ordered)
            ordered += [arc for arc in numbered if not arc[0]]
            self.epsilons[state] = len(ordered) - self.emitting[state]
            end = self._used + len(ordered)
            if end > len(self.arcs):
                self.arcs = np.concatenate([self.arcs, np.empty(end, ARC)])
            self.arcs[self._used : end] = ordered
            self.begin[state] = self._used
            self._used = end

    def finals(self, states: np.ndarray) -> np.ndarray:
        """Costs of ending in states, float32."""
        if self._composition is None:
            return self._final[states]
        costs = [self._composition.final(self._tuples[state]) for state in states.tolist()]
        return np.array(costs, np.float32)

    def shrink(self, states: np.ndarray) -> np.ndarray:
        """Forget all arcs, and all states but these; their new numbers."""
        kept = [self._tuples[state] for state in states.tolist()]
        self._clear()
        return np.array([self._number(state) for state in kept], np.int32)
