"""What one search knows of a graph's states: the order in which it met them."""

from __future__ import annotations

import numpy as np

from ...kaldi.fst.arcs import spread
from ..fst.grammar_graph import SearchGraph
from .composed_arcs import StaticArcs, arcs_of


class ArcTable:
    """States by rows, and numbers by which Kaldi's hash of tokens sorts them.

    Rows are as they come, and depend on what other decoders did. Numbers are given in the order in
    which a search that takes one state after the other meets them, see `visit`. In a static graph
    both are the same.

    Args:
        graph: to search. most: composed arcs that are kept, of those that are there already.

    Attributes:
        arcs: of rows. numbers: of rows, [rows]; -1: none yet.
        scratch: int32, [rows]: for whoever needs it for a moment.
    """

    def __init__(self, graph: SearchGraph, most: int) -> None:
        self._graph = graph
        self.arcs = arcs_of(graph, most)
        self._static = isinstance(self.arcs, StaticArcs)
        self._clear()

    def _clear(self) -> None:
        rows = self.arcs.rows
        self.scratch = np.empty(rows, np.int32)
        self.numbers = np.arange(rows) if self._static else np.full(rows, -1)
        self._visited = np.zeros(rows, bool)
        self._numbered = self._used = 0

    def start(self) -> int:
        """The start state's row."""
        row = self.arcs.start()
        self._number(np.array([row]))
        return row

    def make(self, rows: np.ndarray) -> None:
        """Make the arcs of rows that have none yet; each is given once."""
        self.arcs.make(rows)
        self._widen()

    def visit(self, rows: np.ndarray) -> None:
        """Number the states that the arcs of rows lead to, row by row; each is given once."""
        arcs = self.arcs
        if isinstance(arcs, StaticArcs):
            return
        new = rows[~self._visited[rows]]
        if len(new):
            self._visited[new] = True
            self.make(new)
            counts = arcs.emitting[new] + arcs.epsilons[new]
            self._used += int(counts.sum())
            self._number(arcs.met[spread(arcs.begin[new], counts)[1]])

    def shrink(self, rows: np.ndarray, most: int) -> np.ndarray:
        """Forget all states but these where more than `most` arcs were met.

        Returns:
            Their new rows, numbered in this order.
        """
        old = self.arcs
        if isinstance(old, StaticArcs) or self._used <= most:
            return rows
        self.arcs = new = arcs_of(self._graph, most)
        if new is not old and not isinstance(new, StaticArcs):
            rows = new.rows_of(*old.keys(rows))
        self._clear()
        self._number(rows)
        return rows

    def _widen(self) -> None:
        more = self.arcs.rows - len(self.numbers)
        if more > 0:
            self.scratch = np.empty(self.arcs.rows, np.int32)
            self.numbers = np.concatenate([self.numbers, np.full(more, -1)])
            self._visited = np.concatenate([self._visited, np.zeros(more, bool)])

    def _number(self, rows: np.ndarray) -> None:
        """Give the next numbers to those that have none, in this order."""
        self._widen()
        new = first_ones(rows[self.numbers[rows] < 0], self.numbers)
        self.numbers[new] = np.arange(self._numbered, self._numbered + len(new))
        self._numbered += len(new)


def first_ones(values: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Each of some values once, in the order in which they come.

    Args:
        values: indexes of `room`, whose elements there are written over with nonsense.
    """
    places = np.arange(len(values))
    room[values[::-1]] = places[::-1]
    return values[room[values] == places]
