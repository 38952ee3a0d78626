"""Which labels can come next from the states of a graph that new words are joined to."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...framework.base.sequence import bincount, repeated
from ..fst.graph import NextLabels

_Intervals = list[tuple[int, int]]
Union = tuple[frozenset[int], frozenset[int]]
"""Labels, and the numbers of sets whose labels there are besides."""


class MoreSets:
    """The sets of a graph, and unions of them with further labels."""

    def __init__(self, following: NextLabels) -> None:
        _, self._begin, self._intervals = following
        self._made: list[_Intervals] = []
        self._numbers: dict[Union, int] = {}

    def number(self, labels: frozenset[int], sets: frozenset[int]) -> int:
        """The number of the set with these labels and those of other sets."""
        key = labels, sets
        if key not in self._numbers:
            known = {one: self._pairs(one) for one in sets}
            pairs = [pair for each in known.values() for pair in each]
            whole = _union((*_intervals(labels), *pairs))
            same = [one for one, each in known.items() if each == whole]
            if not same:
                same = [len(self._begin) - 1 + len(self._made)]
                self._made.append(whole)
            self._numbers[key] = same[0]
        return self._numbers[key]

    def following(self, sets: np.ndarray) -> NextLabels:
        """The sets, and which one each state has."""
        sizes = [len(each) for each in self._made]
        pairs = np.array([pair for each in self._made for pair in each], np.int32).reshape(-1, 2)
        return NextLabels(
            sets.astype(np.int32),
            np.append(self._begin, self._begin[-1] + np.cumsum(sizes, dtype=np.int64)),
            np.concatenate((self._intervals, pairs)),
        )

    def _pairs(self, number: int) -> _Intervals:
        rows = self._intervals[self._begin[number] : self._begin[number + 1]]
        return [(first, end) for first, end in rows.tolist()]


def with_labels(following: NextLabels, entries: np.ndarray, first: int, count: int) -> NextLabels:
    """With labels that are larger than all others, and can come next where a word can begin."""
    sets, begin, intervals = following
    rows = np.flatnonzero(_with_all_of(following, np.unique(sets[entries])))
    intervals, end = intervals.copy(), first + count
    last = begin[rows + 1] - 1
    touches = intervals[last, 1] == first
    intervals[last[touches], 1] = end
    others = rows[~touches]
    sizes = np.diff(begin)
    intervals = np.insert(intervals, begin[others + 1], (first, end), axis=0)
    sizes[others] += 1
    return NextLabels(sets, np.append(0, np.cumsum(sizes)), intervals)


def _with_all_of(following: NextLabels, inner: np.ndarray) -> np.ndarray:
    """Whether each set holds one of the sets `inner`.

    A state from which a word can begin before another one has ended has all labels of the state
    where it begins. One inside of a word lacks some, unless all words begin alike; looking ahead
    then sees a word there that does not come, which costs no more than time.
    """
    _, begin, intervals = following
    owner = repeated(np.arange(len(begin) - 1), np.diff(begin))
    found = np.zeros(len(begin) - 1, bool)
    for one in inner.tolist():
        mine = intervals[begin[one] : begin[one + 1]]
        holds = np.zeros(len(found), np.int64)
        for low, high in mine.tolist():
            holds += bincount(
                owner[(intervals[:, 0] <= low) & (high <= intervals[:, 1])], minlength=len(found)
            )
        found |= holds == len(mine)
    return found


def _intervals(labels: Iterable[int]) -> _Intervals:
    found: _Intervals = []
    for label in sorted(labels):
        if found and found[-1][1] == label:
            found[-1] = found[-1][0], label + 1
        else:
            found.append((label, label + 1))
    return found


def _union(pairs: Iterable[tuple[int, int]]) -> _Intervals:
    found: _Intervals = []
    for first, end in sorted(pairs):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((first, end))
    return found
