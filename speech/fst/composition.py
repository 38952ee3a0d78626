"""Composition on the fly in NumPy: what `native/graph.h` does in C, arc for arc.

A state is a pair of states with what was looked ahead: a word that is already passed and still has
to be met in the first FST, or the cost of all words that can come, already counted. Epsilons of the
grammar, which lead to shorter contexts, stand before epsilons of the first FST.

Source: OpenFst's `compose.h`, `lookahead-filter.h` (label and weight pushing),
`lookahead-matcher.h`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...framework.base.sequence import bincount
from ...kaldi.fst.arcs import spread
from .graph import LookaheadGraph, joined_key
from .look_ahead import LookAhead

NONE = -1
_WORD_SHIFT, _FILTER_SHIFT, _LOW = 33, 32, 0xFFFFFFFF


@dataclass(frozen=True, eq=False)
class States:
    """Composed states.

    Attributes:
        s1, s2: states of both FSTs, int64. word: the one that was passed, int64; -1: none.
        filter: 1 where the grammar's epsilons are over, int64. ahead: the cost that is looked
            ahead, float32.
    """

    s1: np.ndarray
    s2: np.ndarray
    word: np.ndarray
    filter: np.ndarray
    ahead: np.ndarray

    @classmethod
    def of(cls, first: np.ndarray, second: np.ndarray) -> States:
        """The states that have these keys."""
        ahead = (second & _LOW).astype(np.uint32).view(np.float32)
        word = ((second >> _WORD_SHIFT) & 0x7FFFFFFF) - 1
        return cls(first >> 32, first & _LOW, word, (second >> _FILTER_SHIFT) & 1, ahead)


def second_key(word: np.ndarray, over: np.ndarray | int, ahead: np.ndarray) -> np.ndarray:
    """The second key of states; the first one is made of `s1` and `s2`."""
    bits = (ahead + np.float32(0)).view(np.uint32).astype(np.int64)  # -0 is 0
    passed = word.astype(np.int64, copy=False) + 1  # NumPy's own integers may have 32 bits
    return (passed << _WORD_SHIFT) | (np.int64(over) << _FILTER_SHIFT) | bits


@dataclass(frozen=True, eq=False)
class StateArcs:
    """The arcs of states, in OpenFst's order, state by state.

    Attributes:
        counts: how many each state has, int64, [states].
        ilabel, olabel: int32. weight: float32. first, second: keys of the states that they lead to.
    """

    counts: np.ndarray
    ilabel: np.ndarray
    olabel: np.ndarray
    weight: np.ndarray
    first: np.ndarray
    second: np.ndarray


@dataclass(frozen=True, eq=False)
class _Part:
    """Arcs of one sort, sorted by owner."""

    owner: np.ndarray
    phase: np.ndarray | int
    ilabel: np.ndarray | int
    olabel: np.ndarray | int
    weight: np.ndarray
    first: np.ndarray
    second: np.ndarray | int


class Composition:
    """The arcs of composed states, of many at once."""

    def __init__(self, graph: LookaheadGraph) -> None:
        self._graph = graph
        self._one = graph.first
        self._two = graph.second
        self._words = graph.word_keys
        self._outputs = graph.output_keys
        self.forget()

    def forget(self) -> None:
        """Forget what was looked ahead."""
        self._ahead = LookAhead(self._graph)

    def start(self) -> tuple[np.ndarray, np.ndarray]:
        """The keys of the start state, [1] each."""
        first = np.array([self._one.start << 32 | self._two.start], np.int64)
        return first, second_key(np.array([NONE]), 0, np.zeros(1, np.float32))

    def finals(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Costs of ending in states, float32, by their keys."""
        states = States.of(first, second)
        costs = self._one.final[states.s1] - states.ahead + self._two.final[states.s2]
        return np.where(states.word == NONE, costs, np.float32(np.inf))

    def arcs(self, first: np.ndarray, second: np.ndarray) -> StateArcs:
        """The arcs of states, by their keys."""
        states = States.of(first, second)
        s1, s2 = states.s1, states.s2
        begin = self._one.begin[s1]
        sizes = self._one.begin[s1 + 1] - begin, self._two.begin[s2 + 1] - self._two.begin[s2]
        by_first = sizes[0] <= sizes[1]
        waiting = states.word != NONE
        free = ~waiting
        silent = self._graph.silent[s1]
        parts: list[_Part] = []
        stuck = (sizes[1] == self._graph.epsilons[s2]) & np.isinf(self._two.final[s2])
        chosen = np.flatnonzero(free & ~stuck & (silent > 0))
        if len(chosen):
            parts.append(self._silent(states, chosen, silent[chosen], by_first))
        chosen = np.flatnonzero(free & (states.filter == 0) & (self._graph.epsilons[s2] > 0))
        if len(chosen):
            parts.append(self._shorter(states, chosen, by_first))
        chosen = np.flatnonzero(free & by_first & (sizes[0] > silent))
        if len(chosen):
            parts.append(self._matches(states, chosen, (sizes[0] - silent)[chosen]))
        chosen = np.flatnonzero(free & ~by_first & (sizes[0] > silent))
        if len(chosen):
            parts.append(self._matches_of_words(states, chosen, sizes[1][chosen]))
        chosen = np.flatnonzero(waiting)
        if len(chosen):
            parts.append(self._passed(states, chosen, by_first))
            parts.append(
                self._waiting(states, chosen, silent[chosen], by_first, sizes[0][chosen] == 1)
            )
        return _merged(parts, len(first))

    def _silent(
        self, states: States, chosen: np.ndarray, counts: np.ndarray, by_first: np.ndarray
    ) -> _Part:
        """Arcs of the first FST without a word, while the grammar stays or a word is passed."""
        which, place = spread(self._one.begin[states.s1[chosen]], counts)
        owner = chosen[which]
        after = self._one.arcs["nextstate"][place].astype(np.int64)
        s2 = states.s2[owner]
        cost, only = self._ahead.costs(after, s2)
        good = np.flatnonzero((only >= 0) | (cost < np.inf))
        owner, after, s2, cost, only = (x[good] for x in (owner, after, s2, cost, only))
        arcs = self._one.arcs[place[good]]
        kept = np.floor(cost * np.float32(1024) + np.float32(0.5)) / np.float32(1024)
        olabel = np.zeros(len(owner), np.int32)
        word = np.full(len(owner), NONE)
        ahead = states.ahead[owner]
        weight = arcs["weight"] + (cost - ahead)
        pushed = np.flatnonzero(only >= 0)
        if len(pushed):
            words = self._two.arcs[only[pushed]]
            olabel[pushed] = words["olabel"]
            price = (np.float32(0) - ahead[pushed]) + words["weight"]
            weight[pushed] = arcs["weight"][pushed] + price
            s2[pushed], word[pushed], kept[pushed] = words["nextstate"], words["ilabel"], 0
        over = self._graph.epsilons[states.s2[owner]] > 0
        second = second_key(word, over, kept)
        return _Part(
            owner,
            by_first[owner],
            arcs["ilabel"],
            olabel,
            weight,
            joined_key(after, s2),
            second,
        )

    def _shorter(self, states: States, chosen: np.ndarray, by_first: np.ndarray) -> _Part:
        s2 = states.s2[chosen]
        which, place = spread(self._two.begin[s2], self._graph.epsilons[s2])
        owner = chosen[which]
        arcs = self._two.arcs[place]
        weight = (arcs["weight"] - states.ahead[owner]) + np.float32(0)
        first = joined_key(states.s1[owner], arcs["nextstate"])
        return _Part(owner, ~by_first[owner], 0, arcs["olabel"], weight, first, 0)

    def _matches(self, states: States, chosen: np.ndarray, counts: np.ndarray) -> _Part:
        """Arcs with words of both FSTs, looked up for each arc of the first."""
        s1 = states.s1[chosen]
        which, place = spread(self._one.begin[s1] + self._graph.silent[s1], counts)
        owner = chosen[which]
        wanted = joined_key(states.s2[owner], self._one.arcs["olabel"][place])
        low, high = (np.searchsorted(self._words, wanted, side) for side in ("left", "right"))
        which, other = spread(low, high - low)
        return self._pairs(states, owner[which], place[which], other)

    def _matches_of_words(self, states: States, chosen: np.ndarray, counts: np.ndarray) -> _Part:
        """The same, looked up for each arc of the grammar."""
        s2 = states.s2[chosen]
        skipped = np.minimum(self._graph.epsilons[s2], counts)
        which, other = spread(self._two.begin[s2] + skipped, counts - skipped)
        owner = chosen[which]
        wanted = joined_key(states.s1[owner], self._graph.labels[other])
        low, high = (np.searchsorted(self._outputs, wanted, side) for side in ("left", "right"))
        which, place = spread(low, high - low)
        return self._pairs(states, owner[which], place, other[which])

    def _pairs(
        self, states: States, owner: np.ndarray, place: np.ndarray, other: np.ndarray
    ) -> _Part:
        first, second = self._one.arcs[place], self._two.arcs[other]
        weight = first["weight"] + (second["weight"] - states.ahead[owner])
        key = joined_key(first["nextstate"], second["nextstate"])
        return _Part(owner, 2, first["ilabel"], second["olabel"], weight, key, 0)

    def _passed(self, states: States, chosen: np.ndarray, by_first: np.ndarray) -> _Part:
        """Arcs with the word that was passed before."""
        wanted = joined_key(states.s1[chosen], states.word[chosen])
        low, high = (np.searchsorted(self._outputs, wanted, side) for side in ("left", "right"))
        which, place = spread(low, high - low)
        owner = chosen[which]
        arcs = self._one.arcs[place]
        first = joined_key(arcs["nextstate"], states.s2[owner])
        return _Part(owner, by_first[owner], arcs["ilabel"], 0, arcs["weight"], first, 0)

    def _waiting(
        self,
        states: States,
        chosen: np.ndarray,
        counts: np.ndarray,
        by_first: np.ndarray,
        alone: np.ndarray,
    ) -> _Part:
        """Arcs without a word, from where the word that was passed can still come."""
        which, place = spread(self._one.begin[states.s1[chosen]], counts)
        owner = chosen[which]
        after = self._one.arcs["nextstate"][place].astype(np.int64)
        good = np.flatnonzero(alone[which] | self._ahead.reaches(after, states.word[owner]))
        owner, after = owner[good], after[good]
        arcs = self._one.arcs[place[good]]
        second = second_key(states.word[owner], states.filter[owner], states.ahead[owner])
        first = joined_key(after, states.s2[owner])
        return _Part(owner, ~by_first[owner], arcs["ilabel"], 0, arcs["weight"], first, second)


def _merged(parts: list[_Part], states: int) -> StateArcs:
    """The arcs of all parts, by state and phase; arcs of a state and a phase are of one part."""
    cells = [part.owner * 3 + part.phase for part in parts]
    sizes = np.zeros(3 * states, np.int64)
    runs = [bincount(cell, minlength=3 * states) for cell in cells]
    for run in runs:
        sizes += run
    ends = np.cumsum(sizes)
    begins = ends - sizes
    total = int(ends[-1]) if states else 0
    ilabel, olabel = np.empty((2, total), np.int32)
    weight = np.empty(total, np.float32)
    first, second = np.empty((2, total), np.int64)
    for part, cell, run in zip(parts, cells, runs, strict=True):
        # within a part, cells rise: arcs of one lie side by side
        before = np.cumsum(run) - run
        at = begins[cell] + (np.arange(len(cell)) - before[cell])
        ilabel[at], olabel[at], weight[at] = part.ilabel, part.olabel, part.weight
        first[at], second[at] = part.first, part.second
    counts = sizes.reshape(states, 3).sum(axis=1)
    return StateArcs(counts, ilabel, olabel, weight, first, second)
