"""Composition on the fly in Python: what `compose_source.py` does in C, arc for arc.

A state is a pair of states with what was looked ahead: a word that is already passed and still has
to be met in the first FST, or the cost of all words that can come, already counted. Epsilons of the
grammar, which lead to shorter contexts, stand before those of the first FST.

Source: OpenFst's `compose.h`, `lookahead-filter.h` (label and weight pushing),
`lookahead-matcher.h`, `label-reachable.h`.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right

import numpy as np

from .graph import LookaheadGraph
from .sums import ARC_PERIOD, log_add, log_subtract

_INFINITY = math.inf
_NONE = -1
_f32 = np.float32

State = tuple[int, int, int, float, int]  # two states, filter, cost looked ahead, word passed
Arc = tuple[int, int, float, State]


def _log_plus(total: float, cost: float) -> float:
    return cost if total == _INFINITY else float(_f32(log_add(total, cost)))


def _minus(first: float, second: float) -> float:
    return float(_f32(first) - _f32(second))


def _plus(first: float, second: float) -> float:
    return float(_f32(first) + _f32(second))


class Composition:
    """The arcs of composed states."""

    def __init__(self, graph: LookaheadGraph) -> None:
        self._graph = graph
        self._one, self._two = graph.first, graph.second
        self._columns = [
            [fst.arcs[name] for name in ("ilabel", "olabel", "weight", "nextstate")]
            for fst in (self._one, self._two)
        ]

    def start(self) -> State:
        """The start state."""
        return self._one.start, self._two.start, 0, 0.0, _NONE

    def final(self, state: State) -> float:
        """The cost of ending in a state."""
        s1, s2, _, cost, word = state
        if word != _NONE:
            return _INFINITY
        return _plus(_minus(float(self._one.final[s1]), cost), float(self._two.final[s2]))

    def arcs(self, state: State) -> list[Arc]:
        """The arcs of a state, in OpenFst's order."""
        s1, s2, _, _, word = state
        low, high = int(self._one.begin[s1]), int(self._one.begin[s1 + 1])
        low2, high2 = int(self._two.begin[s2]), int(self._two.begin[s2 + 1])
        ilabels, olabels, weights, nexts = (c[low:high].tolist() for c in self._columns[0])
        silent = bisect_left(olabels, 1)
        first = list(zip(ilabels, olabels, weights, nexts, strict=True))
        by_first = high - low <= high2 - low2
        if word != _NONE:
            return self._pending(state, first, silent, not by_first)
        words = self._columns[1][0][low2:high2]
        if by_first:
            found = self._shorter(state) + self._silent(state, first[:silent])
            for arc in first[silent:]:
                at = int(np.searchsorted(words, arc[1]))
                while at < len(words) and words[at] == arc[1]:
                    found.append(self._match(state, arc, low2 + at))
                    at += 1
            return found
        found = self._silent(state, first[:silent]) + self._shorter(state)
        for at in range(int(self._graph.epsilons[s2]), high2 - low2):
            label = int(words[at])
            for p in range(bisect_left(olabels, label), bisect_right(olabels, label)):
                found.append(self._match(state, first[p], low2 + at))
        return found

    def _match(self, state: State, arc: tuple[int, int, float, int], at: int) -> Arc:
        _, olabel, weight, next_state = (column[at].item() for column in self._columns[1])
        cost = _plus(arc[2], _minus(weight, state[3]))
        return arc[0], olabel, cost, (arc[3], next_state, 0, 0.0, _NONE)

    def _shorter(self, state: State) -> list[Arc]:
        s1, s2, taken, ahead, _ = state
        found: list[Arc] = []
        if taken == 1:
            return found
        low = int(self._two.begin[s2])
        for at in range(low, low + int(self._graph.epsilons[s2])):
            _, olabel, weight, next_state = (column[at].item() for column in self._columns[1])
            found.append((0, olabel, _minus(weight, ahead), (s1, next_state, 0, 0.0, _NONE)))
        return found

    def _silent(self, state: State, arcs: list[tuple[int, int, float, int]]) -> list[Arc]:
        _, s2, _, ahead, _ = state
        epsilons = int(self._graph.epsilons[s2])
        count = int(self._two.begin[s2 + 1] - self._two.begin[s2])
        found: list[Arc] = []
        if count == epsilons and np.isinf(self._two.final[s2]):
            return found
        taken = 1 if epsilons else 0
        for ilabel, _, weight, next_state in arcs:
            reached, cost, only = self._look_ahead(next_state, s2)
            if not reached:
                continue
            if only >= 0:
                word, olabel, price, after = (column[only].item() for column in self._columns[1])
                pushed = _plus(_minus(0.0, ahead), price)
                target = (next_state, after, taken, 0.0, word)
                found.append((ilabel, olabel, _plus(weight, pushed), target))
            elif cost != _INFINITY:
                kept = math.floor(float(_f32(cost * 1024) + _f32(0.5))) / 1024
                target = (next_state, s2, taken, kept, _NONE)
                found.append((ilabel, 0, _plus(weight, _minus(cost, ahead)), target))
        return found

    def _pending(
        self,
        state: State,
        arcs: list[tuple[int, int, float, int]],
        silent: int,
        words_first: bool,
    ) -> list[Arc]:
        _, s2, _, _, word = state
        passed = [
            (ilabel, 0, weight, (next_state, s2, 0, 0.0, _NONE))
            for ilabel, olabel, weight, next_state in arcs[silent:]
            if olabel == word
        ]
        waiting = [
            (ilabel, 0, weight, (next_state, *state[1:]))
            for ilabel, _, weight, next_state in arcs[:silent]
            if len(arcs) == 1 or self._reaches(next_state, word)
        ]
        return passed + waiting if words_first else waiting + passed

    def _intervals(self, s1: int) -> np.ndarray:
        begin, number = self._graph.interval_begin, int(self._graph.interval_set[s1])
        return self._graph.intervals[begin[number] : begin[number + 1]]

    def _reaches(self, s1: int, label: int) -> bool:
        intervals = self._intervals(s1)
        at = int(np.searchsorted(intervals[:, 0], label, "right"))
        return at > 0 and label < intervals[at - 1, 1]

    def _look_ahead(self, s1: int, s2: int) -> tuple[bool, float, int]:
        """Whether a word can come next; the cost of them all; the arc of the only one, else -1."""
        low2, high2 = int(self._two.begin[s2]), int(self._two.begin[s2 + 1])
        words, costs = self._columns[1][0][low2:high2], self._columns[1][2][low2:high2]
        intervals = self._intervals(s1)
        begin = end = -1
        total = _INFINITY
        if 2 * len(words) < len(intervals):
            for at, word in enumerate(words.tolist()):
                if word and self._reaches(s1, word):
                    begin = at if begin < 0 else begin
                    end = at + 1
                    total = _log_plus(total, float(costs[at]))
        else:
            places = np.searchsorted(words, intervals)
            for start, stop in places[places[:, 0] < places[:, 1]].tolist():
                begin = start if begin < 0 else begin
                end = stop
                total = self._run_sum(total, s2, costs, start, stop)
        final = float(self._two.final[s2])
        to_end = final != _INFINITY and self._reaches(s1, self._graph.final_label)
        if begin >= 0 and end - begin == 1 and not to_end:
            return True, 0.0, low2 + begin
        if begin < 0:
            return to_end, final, -1
        return True, min(total, final) if to_end else total, -1

    def _run_sum(self, total: float, s2: int, costs: np.ndarray, begin: int, end: int) -> float:
        start = stop = end
        place = int(self._graph.sum_place[s2])
        if place >= 0:
            sums = self._graph.sums[place:]
            i, j = (-(-begin // ARC_PERIOD), end // ARC_PERIOD)
            start, stop = i * ARC_PERIOD, j * ARC_PERIOD
        for cost in costs[begin : min(start, end)].tolist():
            total = _log_plus(total, cost)
        if place >= 0:
            if start < stop and sums[j] < sums[i]:
                total = _log_plus(total, float(_f32(log_subtract(float(sums[j]), float(sums[i])))))
            for cost in costs[max(start, stop) : end].tolist():
                total = _log_plus(total, cost)
        return total
