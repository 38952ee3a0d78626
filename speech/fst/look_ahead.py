"""What can come next in a composition: of many pairs of states at once, each found out once.

Source: OpenFst's `lookahead-matcher.h`, `label-reachable.h`.
"""

from __future__ import annotations

import numpy as np

from .arcs import spread
from .graph import LookaheadGraph, joined_key
from .key_table import KeyTable
from .sums import PRECISE

_LOW = 0xFFFFFFFF
_NONE = -1
_MANY = 32  # intervals from which on a set has a bit for each label
_BIT_BYTES = 64 << 20  # of all these sets
_LABELS_EACH = 8  # times as many labels are looked up in bits as intervals are searched for


class LabelSets:
    """Which labels are in sets of intervals; the largest sets have a bit for each label."""

    def __init__(self, graph: LookaheadGraph) -> None:
        self._begin, self._intervals = graph.interval_begin, graph.intervals
        self._starts = graph.keys[2]
        self._labels = int(graph.intervals[:, 1].max(initial=0))  # all are smaller
        self._bytes = self._labels // 8 + 1
        self._bits = np.empty((0, self._bytes), np.uint8)
        self._rows = np.full(len(self._begin) - 1, -1, np.int32)  # of each set; -1: none
        self._used = 0

    def have_bits(self, sets: np.ndarray) -> np.ndarray:
        """Which of some sets have bits from now on."""
        large = self._begin[sets + 1] - self._begin[sets] > _MANY
        for each in np.unique(sets[large & (self._rows[sets] < 0)]).tolist():
            if (self._used + 1) * self._bytes > _BIT_BYTES:
                break
            if self._used == len(self._bits):
                more = np.empty((max(8, self._used), self._bytes), np.uint8)
                self._bits = np.concatenate([self._bits, more])
            inside = np.zeros(8 * self._bytes, bool)
            mine = self._intervals[self._begin[each] : self._begin[each + 1]]
            inside[spread(mine[:, 0], mine[:, 1] - mine[:, 0])[1]] = True
            self._bits[self._used] = np.packbits(inside, bitorder="little")
            self._rows[each] = self._used
            self._used += 1
        return self._rows[sets] >= 0

    def places(self, sets: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """The last interval, of all sets, that does not begin behind each label."""
        return np.searchsorted(self._starts, joined_key(sets, labels), "right") - 1

    def searched(self, sets: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Whether labels are in sets."""
        at = self.places(sets, labels)
        inside = at >= self._begin[sets]
        if not len(self._starts):
            return inside
        return inside & (labels < self._intervals[np.maximum(at, 0), 1])

    def looked_up(self, sets: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """The same, for sets that have bits."""
        labels = np.minimum(labels, self._labels)
        return (self._bits[self._rows[sets], labels >> 3] >> (labels & 7)) & 1 > 0


class LookAhead:
    """Looks ahead in a graph, and keeps what it found by set of intervals and grammar state."""

    def __init__(self, graph: LookaheadGraph) -> None:
        self._graph, self._two = graph, graph.second
        self._words = graph.keys[0]
        self._sets = LabelSets(graph)
        self._known = KeyTable()
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
        known, before = self._known, self._known.count
        keys = joined_key(s2, self._graph.interval_set[s1])
        row = known.numbers(keys, np.zeros(len(keys), np.int64))
        if known.count > before:
            if known.count > len(self._costs):
                more = len(known.first) - len(self._costs)
                self._costs = np.concatenate([self._costs, np.empty(more, np.float32)])
                self._only = np.concatenate([self._only, np.empty(more, np.int64)])
            keys = known.first[before : known.count]
            order = np.argsort(keys)  # neighbours are searched for in the same arcs
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
        parts = [self._runs(np.flatnonzero(~single & ~by_bits), sets, s2, sizes)]
        for chosen, inside in (
            (single & ~by_bits, self._sets.searched),
            (by_bits, self._sets.looked_up),
        ):
            where = np.flatnonzero(chosen)
            if len(where):
                which, place = spread(begin[where], counts[where])
                owner, labels = where[which], graph.labels[place]
                good = np.flatnonzero(inside(sets[owner], labels))
                owner, place, labels = owner[good], place[good], labels[good]
                parts.append(self._joined(owner, place, labels, sets, single))
        owner, low, high = (np.concatenate(each) for each in zip(*parts, strict=True))
        mass = np.bincount(owner, self._masses(begin[owner], low, high), len(sets))
        # runs of an owner rise: the first one begins where they all do
        first, last = np.full(len(sets), len(self._words)), np.full(len(sets), -1)
        first[owner[::-1]], last[owner] = low[::-1], high
        found = last >= 0
        final = self._two.final[s2]
        ends = final < np.inf
        at = np.flatnonzero(ends)
        ends[at] = self._sets.searched(sets[at], np.full(len(at), graph.final_label))
        with np.errstate(divide="ignore", invalid="ignore"):
            cost = (-np.log(mass)).astype(np.float32)
        for at in np.flatnonzero(found & ~((mass > 0) & (mass < np.inf))).tolist():
            mine = owner == at  # costs beyond what sums can hold
            _, arcs = spread(low[mine], (high - low)[mine])
            cost[at] = self._two.arcs["weight"][arcs].min()
        cost[~found] = np.inf
        cost[ends] = np.minimum(cost, final)[ends]
        only = np.where(found & (last - first == 1) & ~ends, first, _NONE)
        cost[only >= 0] = 0
        return cost, only

    def _joined(
        self,
        owner: np.ndarray,
        place: np.ndarray,
        labels: np.ndarray,
        sets: np.ndarray,
        single: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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

    def _runs(
        self, chosen: np.ndarray, sets: np.ndarray, s2: np.ndarray, sizes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Runs of the second FST's arcs within intervals: whose they are, begins and ends."""
        graph = self._graph
        which, number = spread(graph.interval_begin[sets[chosen]], sizes[chosen])
        owner = chosen[which]
        state, upto = s2[owner], graph.intervals[:, 1][number]
        low = np.searchsorted(self._words, joined_key(state, graph.intervals[:, 0][number]))
        some = np.flatnonzero(low < self._two.begin[state + 1])
        good = some[graph.labels[low[some]] < upto[some]]
        high = np.searchsorted(self._words, joined_key(state[good], upto[good]))
        return owner[good], low[good], high

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
            mass[rough] = np.bincount(owner, each, len(rough))
        return mass
