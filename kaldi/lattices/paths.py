"""Sums over all paths of a lattice: log-probabilities, posteriors, expected accuracies.

A state that all paths meet in cuts the lattice; the pieces between such states are independent and
are gone through side by side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import ShapeError
from .lattice import CompactLattice
from .layers import layers
from .operations import connected, state_times


@dataclass(eq=False)
class Arcs:
    """The arcs of a lattice from state 0 to one end, the last state.

    Attributes:
        source, target: states in topological order, int64 [arcs]; all are on paths to the end.
        ids: transition-ids, 0: none. frame: before which the source is.
        cost: of the graph, and the acoustic one where there is no transition-id.
    """

    source: np.ndarray
    target: np.ndarray
    ids: np.ndarray
    frame: np.ndarray
    cost: np.ndarray

    @classmethod
    def of(cls, lattice: CompactLattice) -> Arcs:
        """The arcs of a plain lattice; final weights become arcs to the end.

        Raises:
            ShapeError: paths differ in length.
        """
        lattice = connected(lattice)
        times, _ = state_times(lattice)
        end = lattice.states
        rows = []
        for state, group in enumerate(lattice.arcs):
            time = times[state]
            for _, weight, target in group:
                number = sum(weight.ids)
                rows.append((state, target, number, time, weight.graph if number else weight.cost))
            ending = lattice.final[state]
            if ending is not None:
                rows.append((state, end, 0, time, ending.graph))
        source, target, ids, frame, cost = zip(*rows, strict=True)
        columns = (np.array(column, np.int64) for column in (source, target, ids, frame))
        return cls(*columns, cost=np.array(cost))


class Paths:
    """All paths from state 0 to the last state, for any number of scores.

    Args:
        source, target: of the arcs, int64 [arcs]; states are in topological order.

    Raises:
        ShapeError: there is no arc, or one does not lead to a later state.
    """

    def __init__(self, source: np.ndarray, target: np.ndarray) -> None:
        if not len(source) or (source >= target).any() or source.min() < 0:
            raise ShapeError("the arcs of a lattice must lead from states to later ones")
        states = int(target.max(initial=0)) + 1
        over = np.zeros(states + 1, np.int64)  # arcs that pass over each state
        np.add.at(over, source + 1, 1)
        np.add.at(over, target, -1)
        cuts = np.flatnonzero(np.cumsum(over)[:states] == 0)
        end_of = np.full(states, -1)
        end_of[cuts[1:]] = states + np.arange(len(cuts) - 1)  # the end of a piece is its own state
        self._begins = cuts[:-1]
        self._pieces = len(cuts) - 1
        self._states = states
        self.source = source
        self.target = np.where(end_of[target] >= 0, end_of[target], target)
        self.piece = np.searchsorted(cuts, source, side="right") - 1
        level = [0] * (states + self._pieces)
        order = np.argsort(source, kind="stable")
        for a, b in zip(source[order].tolist(), self.target[order].tolist(), strict=True):
            level[b] = max(level[b], level[a] + 1)
        depth = np.array(level)
        self._forward = layers(depth[self.target], source, self.target)
        self._backward = layers(depth[source], self.target, source)[::-1]

    def sums(self, score: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Logarithms of the sums over paths to each state and from it on, within its piece, and of
        all paths of each piece. Scores are logarithms, float64 [arcs]."""
        size = self._states + self._pieces
        alpha, beta = np.full(size, -np.inf), np.full(size, -np.inf)
        alpha[self._begins] = 0.0
        beta[self._states :] = 0.0
        with np.errstate(invalid="ignore"):  # scores that are not finite: the caller sees NaN
            for arcs, source, starts, target in self._forward:
                alpha[target] = np.logaddexp.reduceat(alpha[source] + score[arcs], starts)
            for arcs, target, starts, source in self._backward:
                beta[source] = np.logaddexp.reduceat(beta[target] + score[arcs], starts)
        return alpha, beta, alpha[self._states :]

    def posteriors(self, score: np.ndarray) -> tuple[float, np.ndarray]:
        """The log-probability of all paths, and the share of those through each arc."""
        alpha, beta, totals = self.sums(score)
        return float(totals.sum()), self._shares(score, alpha, beta, totals)

    def accuracies(self, score: np.ndarray, accuracy: np.ndarray) -> tuple[float, np.ndarray]:
        """The expected accuracy of a path, and its derivative by each arc's score: the posterior
        times what the paths through the arc are better than all."""
        alpha, beta, totals = self.sums(score)
        before, after = np.zeros(len(alpha)), np.zeros(len(alpha))
        for arcs, source, starts, target in self._forward:
            share = np.exp(alpha[source] + score[arcs] - alpha[self.target[arcs]])
            before[target] = np.add.reduceat(share * (before[source] + accuracy[arcs]), starts)
        for arcs, target, starts, source in self._backward:
            share = np.exp(beta[target] + score[arcs] - beta[self.source[arcs]])
            after[source] = np.add.reduceat(share * (after[target] + accuracy[arcs]), starts)
        expected = before[self._states :]
        gain = before[self.source] + accuracy + after[self.target] - expected[self.piece]
        return float(expected.sum()), self._shares(score, alpha, beta, totals) * gain

    def _shares(
        self, score: np.ndarray, alpha: np.ndarray, beta: np.ndarray, totals: np.ndarray
    ) -> np.ndarray:
        return np.exp(alpha[self.source] + score + beta[self.target] - totals[self.piece])


def log_sums(lattice: CompactLattice) -> tuple[list[float], list[float]]:
    """Logarithms of the sums over paths to each state of a sorted lattice, and from it to the
    ends; acoustic costs count."""
    alpha, beta = [-math.inf] * lattice.states, [-math.inf] * lattice.states
    alpha[0] = 0.0
    for state, group in enumerate(lattice.arcs):
        for _, weight, target in group:
            alpha[target] = _log_add(alpha[target], alpha[state] - weight.cost)
    for state in range(lattice.states - 1, -1, -1):
        end = lattice.final[state]
        total = -math.inf if end is None else -end.cost
        for _, weight, target in lattice.arcs[state]:
            total = _log_add(total, beta[target] - weight.cost)
        beta[state] = total
    return alpha, beta


def _log_add(a: float, b: float) -> float:
    if a < b:
        a, b = b, a
    return a if b == -math.inf else a + math.log1p(math.exp(b - a))
