"""What can come next in a composition: of many pairs of states at once, each computed once.

Source: OpenFst's `lookahead-matcher.h`, `label-reachable.h`.
"""

from __future__ import annotations

import numpy as np

from ...framework.base.sequence import bincount
from ...kaldi.fst.arcs import spread
from ...native.constants import PRECISE
from .graph import LookaheadGraph, joined_key
from .key_table import KeyTable

_LOW = 0xFFFFFFFF
_NONE = -1
_MANY = 32  # intervals from which on a set has a bit for each label
_BIT_BYTES = 64 << 20  # of all these sets
_FEW = 2  # intervals up to which a set is searched for each time
_LABELS_EACH = 8  # times as many labels are looked up in bits as intervals are searched for

_Runs = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Runs of arcs that lie side by side: owners, in which order runs rise, begins and ends."""


class LabelSets:
    """Which labels are in sets of intervals; the largest sets have a bit for each label."""

    def __init__(self, graph: LookaheadGraph) -> None:
        self._begin = graph.interval_begin
        self._intervals = graph.intervals
        self._starts = graph.set_keys
        self._labels = int(graph.intervals[:, 1].max(initial=0))  # all are smaller
        self._bytes = self._labels // 8 + 1
        self._large = np.diff(self._begin) > _MANY
        most = min(int(self._large.sum()), _BIT_BYTES // self._bytes)
        self._bits = np.zeros(most * self._bytes, np.uint8)  # one set after the other
        self._at = np.full(len(self._large), -1)  # where the bits of each set begin; -1: none
        self._used = 0
        self._most = most

    def have_bits(self, sets: np.ndarray) -> np.ndarray:
        """Which of some sets have bits from now on."""
        if self._used < self._most:
            new = np.unique(sets[np.flatnonzero(self._large[sets] & (self._at[sets] < 0))])
            new = new[: self._most - self._used]
            self._at[new] = np.arange(self._used, self._used + len(new)) * self._bytes
            self._used += len(new)
            which, number = spread(self._begin[new], self._begin[new + 1] - self._begin[new])
            first, upto = self._intervals[number].T
            owner, labels = spread(first, upto - first)
            place = self._at[new][which[owner]] + (labels >> 3)
            np.add.at(self._bits, place, np.left_shift(1, labels & 7).astype(np.uint8))
        return self._at[sets] >= 0

    def places(self, sets: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """The last interval, of all sets, that does not begin after each label."""
        return np.searchsorted(self._starts, joined_key(sets, labels), "right") - 1

    def searched(self, sets: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Whether labels are in sets."""
        at = self.places(sets, labels)
        inside = at >= self._begin[sets]
        if not len(self._starts):
            return inside
        return inside & (labels < self._intervals[np.maximum(at, 0), 1])

    def having(self, label: int) -> np.ndarray:
        """Whether each set has a label, [sets]."""
        inside = (self._intervals[:, 0] <= label) & (label < self._intervals[:, 1])
        having = np.zeros(len(self._large), bool)
        having[self._starts[inside] >> 32] = True
        return having

    def looked_up(self, sets: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """The same, for sets that have bits."""
        labels = np.minimum(labels, self._labels)
        place = self._at[sets] + (labels >> 3)
        return (self._bits[place] >> (labels & 7)) & 1 > 0


class LookAhead:
    """Looks ahead in a graph, and keeps the results by set of intervals and grammar state."""

    def __init__(self, graph: LookaheadGraph) -> None:
        self._graph = graph
        self._two = graph.second
        self._words = graph.word_keys
        self._sets = LabelSets(graph)
        self._few = np.diff(graph.interval_begin) <= _FEW  # not to have labels one by one
        self._ends = self._sets.having(graph.final_label)
        self._known = KeyTable(1)
        self._costs = np.empty(0, np.float32)
        self._only = np.empty(0, np.int64)

    def reaches(self, s1: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Whether labels can come next from states of the first FST."""
        return self._sets.searched(self._graph.interval_set[s1], labels)

    def costs(self, s1: np.ndarray, s2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What can come next from pairs of states.

        Returns:
            The cost of all words and ends, float32 (infinity: nothing can come); the arc of the
            second FST that has the only word, int64, -1 where there are others or an end.
        """
        sets = self._graph.interval_set[s1].astype(np.int64)  # int32 is a slow index
        few = self._few[sets]
        cost, only = np.empty(len(sets), np.float32), np.empty(len(sets), np.int64)
        for where, costs_of in (
            (np.flatnonzero(few), self._of_few),
            (np.flatnonzero(~few), self._of_many),
        ):
            cost[where], only[where] = costs_of(sets[where], s2[where])
        return cost, only

    def _of_few(self, sets: np.ndarray, s2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of sets with so few intervals that searching takes less than remembering."""
        return self._summed([self._runs(np.arange(len(sets)), sets, s2)], sets, s2)

    def _of_many(self, sets: np.ndarray, s2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of other sets, each computed once."""
        known = self._known
        before = self._known.count
        keys = joined_key(s2, sets)
        row = known.numbers(keys)
        if known.count > before:
            if known.count > len(self._costs):
                more = len(known.keys[0]) - len(self._costs)
                self._costs = np.concatenate([self._costs, np.empty(more, np.float32)])
                self._only = np.concatenate([self._only, np.empty(more, np.int64)])
            keys = known.keys[0][before : known.count]
            order = np.argsort(keys)  # neighbors are searched for in the same arcs
            keys = keys[order]
            cost, only = self._search(keys & _LOW, keys >> 32)
            self._costs[before + order], self._only[before + order] = cost, only
        return self._costs[row], self._only[row]

    def _search(self, sets: np.ndarray, s2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        graph = self._graph
        begin = self._two.begin[s2]
        counts = self._two.begin[s2 + 1] - begin
        sizes = graph.interval_begin[sets + 1] - graph.interval_begin[sets]
        single = 2 * counts < sizes  # labels count one by one
        bits = self._sets.have_bits(sets)
        by_bits = bits & (counts <= _LABELS_EACH * sizes)
        parts = [self._runs(np.flatnonzero(~single & ~by_bits), sets, s2)]
        for chosen, inside in (
            (single & ~by_bits, self._sets.searched),
            (by_bits, self._sets.looked_up),
        ):
            where = np.flatnonzero(chosen)
            if len(where):
                which, place = spread(begin[where], counts[where])
                owner = where[which]
                labels = graph.labels[place]
                good = np.flatnonzero(inside(sets[owner], labels))
                owner, place, labels = owner[good], place[good], labels[good]
                parts.append(self._joined(owner, place, labels, sets, single))
        return self._summed(parts, sets, s2)

    def _summed(
        self, parts: list[_Runs], sets: np.ndarray, s2: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """What `costs` gives, by the runs of arcs that can come next."""
        owner, low, high = (np.concatenate(each) for each in zip(*parts, strict=True))
        mass = bincount(owner, self._masses(self._two.begin[s2[owner]], low, high), len(sets))
        # runs of an owner rise: the first one begins where they all do
        first = np.full(len(sets), len(self._words))
        last = np.full(len(sets), -1)
        first[owner[::-1]], last[owner] = low[::-1], high
        reached = last >= 0
        final = self._two.final[s2]
        ends = (final < np.inf) & self._ends[sets]
        with np.errstate(divide="ignore", invalid="ignore"):
            cost = (-np.log(mass)).astype(np.float32)
        for at in np.flatnonzero(reached & ~((mass > 0) & (mass < np.inf))).tolist():
            mine = owner == at  # costs beyond what sums can hold
            _, arcs = spread(low[mine], (high - low)[mine])
            cost[at] = self._two.arcs["weight"][arcs].min()
        cost[~reached] = np.inf
        cost[ends] = np.minimum(cost, final)[ends]
        only = np.where(reached & (last - first == 1) & ~ends, first, _NONE)
        cost[only >= 0] = 0
        return cost, only

    def _joined(
        self,
        owner: np.ndarray,
        place: np.ndarray,
        labels: np.ndarray,
        sets: np.ndarray,
        single: np.ndarray,
    ) -> _Runs:
        """Runs of arcs within intervals, of arcs that are; see `_runs`.

        Args:
            owner, place, labels: of arcs, sorted. single: of owners, whether arcs stay alone.
        """
        alone = single[owner]
        good = ~(alone & (labels == 0))
        owner, place, labels, alone = owner[good], place[good], labels[good], alone[good]
        interval = np.full(len(owner), -1)
        many = np.flatnonzero(~alone)
        interval[many] = self._sets.places(sets[owner[many]], labels[many])
        begins = np.ones(len(owner) + 1, bool)
        begins[1:-1] = alone[1:] | (owner[1:] != owner[:-1]) | (interval[1:] != interval[:-1])
        return owner[begins[:-1]], place[begins[:-1]], place[begins[1:]] + 1

    def _runs(self, chosen: np.ndarray, sets: np.ndarray, s2: np.ndarray) -> _Runs:
        """Runs of the second FST's arcs within intervals: whose they are, begins and ends."""
        graph, words = self._graph, self._words
        begin = graph.interval_begin[sets[chosen]]
        which, number = spread(begin, graph.interval_begin[sets[chosen] + 1] - begin)
        owner = chosen[which]
        state = s2[owner] << 32
        low = np.searchsorted(words, state + graph.intervals[:, 0][number])
        upto = state + graph.intervals[:, 1][number]
        good = np.flatnonzero((low < len(words)) & (words.take(low, mode="clip") < upto))
        return owner[good], low[good], np.searchsorted(words, upto[good])

    def _masses(self, begin: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """The sums of the probabilities of runs of arcs, each within a state that has a begin."""
        sums = self._graph.sums
        upto = sums[high - 1]
        with np.errstate(invalid="ignore"):
            mass = upto - np.where(low > begin, sums[low - 1], 0.0)
        rough = np.flatnonzero(~(mass > PRECISE * upto))
        if len(rough):
            owner, arcs = spread(low[rough], (high - low)[rough])
            with np.errstate(over="ignore"):
                each = np.exp(-self._two.arcs["weight"][arcs].astype(np.float64))
            mass[rough] = bincount(owner, each, len(rough))
        return mass
