"""Arcs of graph states as arrays, for the search in NumPy: of static graphs, or made lazily.

Arcs that were composed are kept for all decoders of a graph.
"""

from __future__ import annotations

import numpy as np

from ...framework.base.python.cached import new_waiting_rlock
from ...framework.base.sequence import repeated
from ..fst.composition import Composition, StateArcs
from ..fst.grammar_graph import GrammarArcs, GrammarGraph, SearchGraph
from ..fst.graph import LookaheadGraph, StaticGraph
from ..fst.key_table import KeyTable

_LEAST = 1 << 12

_growing = new_waiting_rlock()
"""Held while arcs are made, which a fork must not find half done."""


class StaticArcs:
    """The arcs of a static graph; see `ComposedArcs`. Rows are its states."""

    def __init__(self, graph: StaticGraph) -> None:
        arcs = graph.fst.arcs
        self.ilabel = arcs["ilabel"]
        self.olabel = arcs["olabel"]
        self.weight = arcs["weight"]
        self.target = arcs["nextstate"]
        self.begin = graph.fst.begin[:-1]
        self.emitting = graph.emitting.astype(np.int64)
        self.epsilons = np.diff(graph.fst.begin) - self.emitting
        self._final = graph.fst.final
        self._start = graph.fst.start

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.begin)

    def start(self) -> int:
        """The start state's row."""
        return self._start

    def make(self, rows: np.ndarray) -> None:
        """They are all there."""

    def finals(self, rows: np.ndarray) -> np.ndarray:
        """Costs of ending in states, float32."""
        return self._final[rows]


class ComposedArcs:
    """Arcs of states that are made as they are met: those with an input label first, then epsilons.

    States have rows, as they come. Threads may share this: what one of them learned of rows
    stays true while others make more.

    Attributes:
        ilabel, olabel, weight, target: of each arc; target is a row. They grow.
        met: the same targets, each row's in OpenFst's order, which mixes both sorts of arcs.
        begin, emitting, epsilons: int64, [rows]: of each row, where its arcs begin (-1: not made
            yet) and how many there are of either sort.
        used: how many arcs there are.
    """

    def __init__(self, graph: LookaheadGraph | GrammarGraph) -> None:
        is_grammar = isinstance(graph, GrammarGraph)
        self._composition = GrammarArcs(graph) if is_grammar else Composition(graph)
        self._keys = KeyTable(2)
        self.ilabel, self.olabel, self.target, self.met = np.empty((4, _LEAST), np.int32)
        self.weight = np.empty(_LEAST, np.float32)
        self.begin = np.full(_LEAST, -1)
        self.emitting, self.epsilons = np.zeros((2, _LEAST), np.int64)
        self.used = 0

    @property
    def rows(self) -> int:
        """How many rows there is room for."""
        return len(self.begin)

    def start(self) -> int:
        """The start state's row."""
        return int(self.rows_of(*self._composition.start())[0])

    def make(self, rows: np.ndarray) -> None:
        """Make the arcs of rows that have none yet; each is given once."""
        if (self.begin[rows] >= 0).all():
            return
        with _growing:
            new = rows[self.begin[rows] < 0]
            if len(new):
                self._put(new, self._composition.arcs(*self.keys(new)))

    def finals(self, rows: np.ndarray) -> np.ndarray:
        """Costs of ending in states, float32."""
        return self._composition.finals(*self.keys(rows))

    def keys(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The keys of composed states."""
        first, second = self._keys.keys
        return first[rows], second[rows]

    def rows_of(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """The rows of composed states by their keys; new ones are put after the others."""
        with _growing:
            return self._rows_of(first, second)

    def _rows_of(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        numbers = self._keys.numbers(first, second)
        if self._keys.count > self.rows:
            more = max(self._keys.count, 2 * self.rows) - self.rows
            nothing = np.zeros(more, np.int64)
            self.emitting = np.concatenate([self.emitting, nothing])
            self.epsilons = np.concatenate([self.epsilons, nothing])
            self.begin = np.concatenate([self.begin, nothing - 1])
        return numbers

    def _put(self, rows: np.ndarray, arcs: StateArcs) -> None:
        """Take the arcs of rows in."""
        target = self._rows_of(arcs.first, arcs.second)
        end = self.used + len(target)
        if end > len(self.target):
            more = max(end, 2 * len(self.target)) - len(self.target)
            for name in ("ilabel", "olabel", "target", "met"):
                wide = np.concatenate([getattr(self, name), np.empty(more, np.int32)])
                setattr(self, name, wide)
            self.weight = np.concatenate([self.weight, np.empty(more, np.float32)])
        ends = np.cumsum(arcs.counts)
        quiet = arcs.ilabel == 0
        before = np.concatenate([[0], np.cumsum(quiet)])  # epsilons before each arc
        begins = ends - arcs.counts
        epsilons = before[ends] - before[begins]
        # Arcs with a label come forward by the epsilons of their state that stand before them.
        owner = repeated(np.arange(len(rows)), arcs.counts)
        inside = before[:-1] - before[begins][owner]
        place = np.where(quiet, (ends - epsilons)[owner] + inside, np.arange(len(quiet)) - inside)
        place += self.used
        self.ilabel[place] = arcs.ilabel
        self.olabel[place] = arcs.olabel
        self.weight[place] = arcs.weight
        self.target[place] = target
        self.met[self.used : end] = target
        self.epsilons[rows] = epsilons
        self.emitting[rows] = arcs.counts - epsilons
        self.begin[rows] = self.used + begins  # last: who sees it may read the rest
        self.used = end


def arcs_of(graph: SearchGraph, most: int) -> StaticArcs | ComposedArcs:
    """The arcs of a graph that its decoders share; others where more than `most` were composed."""
    if isinstance(graph, StaticGraph):
        return StaticArcs(graph)
    with _growing:
        kept = graph.kept.get(ComposedArcs)
        if kept is None or kept.used > most:
            kept = graph.kept[ComposedArcs] = ComposedArcs(graph)
        return kept
