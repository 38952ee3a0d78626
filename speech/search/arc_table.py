"""Arcs of graph states as arrays, for the search in NumPy: of static graphs, or made lazily."""

from __future__ import annotations

import numpy as np

from ..fst.arcs import ARC
from ..fst.composition import STATE, Composition
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
        self._tuples = np.empty(1 << 12, STATE)
        self._numbers: dict[tuple[int, int, int, int, float], int] = {}

    @property
    def used(self) -> int:
        """How many arcs were composed."""
        return 0 if self._composition is None else self._used

    def start(self) -> int:
        """The start state."""
        if self._composition is None:
            return self._start
        return int(self._numbered(self._composition.start())[0])

    def _numbered(self, states: np.ndarray) -> np.ndarray:
        """The numbers of composed states; new ones are put behind the others."""
        numbers, count = self._numbers, len(self._numbers)
        found = np.array(
            [numbers.setdefault(state, len(numbers)) for state in states.tolist()], np.int32
        )
        if len(numbers) > count:
            new, first = np.unique(found, return_index=True)
            first = first[new >= count]  # in the order of their numbers
            if len(numbers) > len(self._tuples):
                more = max(len(numbers), 2 * len(self._tuples)) - len(self._tuples)
                self._tuples = np.concatenate([self._tuples, np.empty(more, STATE)])
                self.begin = np.concatenate([self.begin, np.full(more, -1, np.int64)])
                self.emitting = np.concatenate([self.emitting, np.zeros(more, np.int64)])
                self.epsilons = np.concatenate([self.epsilons, np.zeros(more, np.int64)])
            self._tuples[count : len(numbers)] = states[first]
        return found

    def make(self, states: np.ndarray) -> None:
        """Make the arcs of states that have none yet."""
        if self._composition is None:
            return
        new, first = np.unique(states[self.begin[states] < 0], return_index=True)
        new = new[np.argsort(first)]  # in the order in which they are met
        if not len(new):
            return
        made = self._composition.arcs(self._tuples[new])
        target = self._numbered(made["target"])
        end = self._used + len(made)
        if end > len(self.arcs):
            self.arcs = np.concatenate([self.arcs, np.empty(end, ARC)])
        arcs = self.arcs[self._used : end]
        for name in ("ilabel", "olabel", "weight"):
            arcs[name] = made[name]
        arcs["nextstate"] = target
        counts = np.bincount(made["state"], minlength=len(new))
        self.emitting[new] = np.bincount(made["state"][made["ilabel"] > 0], minlength=len(new))
        self.epsilons[new] = counts - self.emitting[new]
        self.begin[new] = self._used + np.cumsum(counts) - counts
        self._used = end

    def finals(self, states: np.ndarray) -> np.ndarray:
        """Costs of ending in states, float32."""
        if self._composition is None:
            return self._final[states]
        return self._composition.finals(self._tuples[states])

    def shrink(self, states: np.ndarray) -> np.ndarray:
        """Forget all arcs, and all states but these; their new numbers."""
        if self._composition is None:
            return states
        kept = self._tuples[states]
        self._clear()
        self._composition.forget()
        return self._numbered(kept)
