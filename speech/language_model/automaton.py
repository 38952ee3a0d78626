"""Language models as automata whose states are made when they are asked for.

Source: Kaldi's `fstext/deterministic-fst.h`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from typing import Protocol

import numpy as np

from ...framework.base.errors import FormatError
from ...kaldi.fst.fst import Fst
from ...kaldi.lattices.lattice import single

_MOST_SILENT = 100
"""Arcs without labels in a row that no model needs: its order is far below."""


class LanguageModel(Protocol):
    """What gives costs to words.

    Attributes:
        start: the first state.
    """

    start: int

    def arcs(self, state: int, word: int) -> list[tuple[int, float, int]]:
        """The ways to continue from a state with a word, or, by 0, without one: what is said, its
        cost, the state after."""
        ...

    def final(self, state: int) -> float:
        """The cost of ending in a state; infinity: nothing ends there."""
        ...


class Automaton(ABC):
    """A language model: at most one arc for a word leaves a state. Costs are rounded to float32.

    Attributes:
        start: the first state.
    """

    def __init__(self, start: int = 0) -> None:
        self.start = start

    @abstractmethod
    def arc(self, state: int, word: int) -> tuple[int, float] | None:
        """The state after a word, and the word's cost; None: the word cannot come here."""

    @abstractmethod
    def final(self, state: int) -> float:
        """The cost of ending in a state; infinity: nothing ends there."""

    def arcs(self, state: int, word: int) -> list[tuple[int, float, int]]:
        """As `LanguageModel` says: the one arc, if there is one."""
        found = self.arc(state, word) if word else None
        return [] if found is None else [(word, found[1], found[0])]


class Histories:
    """The words before each state, and the state of words."""

    def __init__(self, first: tuple[int, ...]) -> None:
        self._words = [first]
        self._states = {first: 0}

    def __getitem__(self, state: int) -> tuple[int, ...]:
        return self._words[state]

    def state(self, words: tuple[int, ...]) -> int:
        """The state of a history, which may be new."""
        known = self._states.setdefault(words, len(self._words))
        if known == len(self._words):
            self._words.append(words)
        return known


class FstModel:
    """An FST as a language model: arcs without input label may be taken or not.

    Attributes:
        start: its first state.
    """

    def __init__(self, fst: Fst) -> None:
        fst = fst.ordered(fst.ilabel)
        self.start = fst.start
        self._begin = np.ascontiguousarray(fst.begin).data
        self._final = np.ascontiguousarray(fst.final).data
        self._columns = tuple(
            np.ascontiguousarray(column).data
            for column in (fst.ilabel, fst.olabel, fst.weight, fst.nextstate)
        )

    def arcs(self, state: int, word: int) -> list[tuple[int, float, int]]:
        """As `LanguageModel` says."""
        labels, outputs, weights, targets = self._columns
        end = self._begin[state + 1]
        at = bisect_left(labels, word, self._begin[state], end)
        found = []
        while at < end and labels[at] == word:
            found.append((outputs[at], weights[at], targets[at]))
            at += 1
        return found

    def final(self, state: int) -> float:
        """As `LanguageModel` says."""
        return self._final[state]


class Backoff(Automaton):
    """An n-gram model's FST: where a state has no arc for a word, its arc without label is taken.

    Args:
        fst: an acceptor, such as `projected` gives.

    Raises:
        FormatError: when arcs are asked for: such arcs form a loop.
    """

    def __init__(self, fst: Fst) -> None:
        self._fst = FstModel(fst)
        super().__init__(fst.start)

    def arc(self, state: int, word: int) -> tuple[int, float] | None:
        passed: list[float] = []
        while not (found := self._fst.arcs(state, word)):
            state = self._shorter(state, passed)
            if state < 0:
                return None
        _, cost, target = found[0]
        for weight in reversed(passed):
            cost = single(cost + weight)
        return target, cost

    def final(self, state: int) -> float:
        passed: list[float] = []
        while (cost := self._fst.final(state)) == np.inf:
            state = self._shorter(state, passed)
            if state < 0:
                return np.inf
        for weight in reversed(passed):
            cost = single(cost + weight)
        return cost

    def _shorter(self, state: int, passed: list[float]) -> int:
        """Where the arc without label leads, whose cost is appended; -1: there is none."""
        arcs = self._fst.arcs(state, 0)
        if not arcs:
            return -1
        passed.append(arcs[0][1])
        if len(passed) > _MOST_SILENT:
            raise FormatError("arcs without labels of the language model form a loop")
        return arcs[0][2]


class Scaled(Automaton):
    """The same words, their costs times a factor."""

    def __init__(self, model: Automaton, factor: float) -> None:
        super().__init__(model.start)
        self._model = model
        self._factor = single(factor)

    def arc(self, state: int, word: int) -> tuple[int, float] | None:
        found = self._model.arc(state, word)
        return found and (found[0], single(self._factor * found[1]))

    def final(self, state: int) -> float:
        cost = self._model.final(state)
        return cost if cost == np.inf else single(self._factor * cost)


class Both(Automaton):
    """What two models agree on; their costs are added."""

    def __init__(self, first: Automaton, second: Automaton) -> None:
        super().__init__()
        self._models = first, second
        self._pairs = Histories((first.start, second.start))

    def arc(self, state: int, word: int) -> tuple[int, float] | None:
        pair = self._pairs[state]
        one = self._models[0].arc(pair[0], word)
        two = one and self._models[1].arc(pair[1], word)
        if not one or not two:
            return None
        return self._pairs.state((one[0], two[0])), single(one[1] + two[1])

    def final(self, state: int) -> float:
        pair = self._pairs[state]
        costs = [model.final(each) for model, each in zip(self._models, pair, strict=True)]
        return single(sum(costs))


def projected(fst: Fst) -> Fst:
    """The acceptor of an FST's output labels."""
    return fst.with_columns(ilabel=fst.olabel)
