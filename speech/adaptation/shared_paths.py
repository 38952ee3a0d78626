"""The paths of a graph that new words take with others, as far as they begin alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...kaldi.fst.fst import Fst
from ...kaldi.graphs.hmms import PhoneHmms
from .contexts import Pair
from .junctions import Junctions

_ROUNDING = 1e-2  # by which costs of paths to one state may differ


class Spelling(NamedTuple):
    """A word to be joined to a graph.

    Attributes:
        label: its output label. phones: its pronunciation. cost: -log of the probability of it.
        silence: see `Entry`.
    """

    label: int
    phones: tuple[int, ...]
    cost: float = 0.0
    silence: tuple[float, float, float] | None = None

    @property
    def begun(self) -> float:
        """What the word costs where it begins after another word."""
        return self.cost - (0.0 if self.silence is None else math.log(self.silence[2]))

    @property
    def shift(self) -> float:
        """By how much it costs more after silence."""
        return 0.0 if self.silence is None else math.log(self.silence[2] / self.silence[1])


class WordTree:
    """The new words as a tree of phones; node 0 is where all begin.

    Attributes:
        words: those that are in it.
        phone, parent, depth: of each node. ends: the words that end there, as places in `words`.
        below: the words that end there or later.
        shift: by how much the words cost more after silence, of the nodes after the first one. It
            is what they share, since a path does not know anymore where it began.
    """

    def __init__(self, words: Sequence[Spelling]) -> None:
        self.words = words
        self.phone, self.parent, self.depth = [0], [-1], [0]
        self.ends: list[list[int]] = [[]]
        self.shift = [0.0]
        known: dict[tuple[int, int, float], int] = {}
        for number, word in enumerate(words):
            node = 0
            for phone in word.phones:
                after = known.setdefault((node, phone, word.shift), len(self.phone))
                if after == len(self.phone):
                    self.phone.append(phone)
                    self.parent.append(node)
                    self.depth.append(self.depth[node] + 1)
                    self.ends.append([])
                    self.shift.append(word.shift)
                node = after
            self.ends[node].append(number)
        self.below = [list(each) for each in self.ends]
        for node in range(len(self.below) - 1, 0, -1):
            self.below[self.parent[node]] += self.below[node]

    def labels(self, node: int) -> frozenset[int]:
        """The labels that can come after a node."""
        return frozenset(self.words[number].label for number in self.below[node])


class SharedPaths:
    """The states of the graph that beginnings of new words come to on paths of others.

    Attributes:
        branches: rows of node, state, HMM and cost: the words go on from there on paths of their
            own, and this is to be added to what these cost.
        used: pairs of phones in the words.
    """

    def __init__(self, fst: Fst, words: WordTree, junctions: Junctions, hmms: PhoneHmms) -> None:
        self._fst, self._words, self._junctions, self._hmms = fst, words, junctions, hmms
        # For each node of the words, the states, and what is to be added there to what the path has
        # cost, besides the words' own costs.
        self._costs: list[dict[int, float]] = [{}]
        self.branches: list[tuple[int, int, int, float]] = []
        self._passed: set[tuple[int, int]] = set()
        self.used: set[Pair] = set()
        entries = junctions.entries.tolist()
        after = junctions.after_silence.tolist()
        for node in range(1, len(words.phone)):
            phone, parent = words.phone[node], words.parent[node]
            ways: dict[int, list[tuple[int, int, float, float, list[int]]]] = {}
            if parent:
                starts = [
                    (state, {self.hmm(words.phone[parent], phone)}, cost)
                    for state, cost in self._costs[parent].items()
                ]
            else:
                starts = [
                    (
                        entry,
                        {self.hmm(left, phone) for left in lefts},
                        float(base) - float(junctions.leave[entry]) + words.shift[node] * silent,
                    )
                    for entry, lefts, base, silent in zip(
                        entries, junctions.lefts, junctions.base, after, strict=True
                    )
                ]
            for state, numbers, cost in starts:
                for number in sorted(numbers):
                    end, more, states = self._step(state, number)
                    ways.setdefault(end, []).append((state, number, cost, cost - more, states))
            self._costs.append({})
            for end, rows in ways.items():
                costs = [cost for *_, cost, _ in rows]
                # Paths that come to a state at different costs cannot leave it at one.
                if end < 0 or max(costs) - min(costs) > _ROUNDING:
                    self.branches += [
                        (node, state, number, float(junctions.leave[state]) + cost)
                        for state, number, cost, *_ in rows
                    ]
                    continue
                self._costs[node][end] = costs[0]
                self._passed |= {(state, node) for row in rows for state in row[-1]}

    def ends(self) -> list[tuple[int, float, int]]:
        """The states that words end in, what they cost there, the words."""
        words = self._words
        return [
            (state, more + words.words[word].begun, word)
            for node, costs in enumerate(self._costs)
            for state, more in costs.items()
            for word in words.ends[node]
        ]

    def labels(self) -> dict[int, frozenset[int]]:
        """The labels of new words that can come next from each state of the paths."""
        of_node = [self._words.labels(node) for node in range(len(self._costs))]
        found: dict[int, set[int]] = {}
        for state, node in self._passed:
            found.setdefault(state, set()).update(of_node[node])
        return {state: frozenset(labels) for state, labels in found.items()}

    def hmm(self, left: int, phone: int) -> int:
        """The number of the HMM of a phone after another one."""
        self.used.add((left, phone))
        return self._hmms.of_window((left, phone))

    def _step(self, state: int, number: int) -> tuple[int, float, list[int]]:
        """The state that the only path of an HMM without words leads to, or -1; what it costs
        beside the HMM, and the states on it."""
        fst, junctions = self._fst, self._junctions
        hmm, place, cost, passed = self._hmms.hmms[number], 0, 0.0, []
        while place < len(hmm) - 1:
            if len(hmm[place]) != 1:
                return -1, 0.0, []
            ((ident, own, place),) = hmm[place]
            begin, end = fst.begin[state], fst.begin[state + 1]
            silent = begin + int(np.searchsorted(fst.olabel[begin:end], 1))
            found = begin + np.flatnonzero(fst.ilabel[begin:silent] == ident)
            if len(found) != 1 or not ident:
                return -1, 0.0, []
            cost += float(fst.weight[found[0]] - own - junctions.leave[state])
            state = int(fst.nextstate[found[0]])
            passed.append(state)
        if junctions.is_entry(state):
            return -1, 0.0, []
        return state, cost, passed
