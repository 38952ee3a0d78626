"""Composition on the fly in NumPy: what `compose_source.py` does in C, arc for arc.

A state is a pair of states with what was looked ahead: a word that is already passed and still has
to be met in the first FST, or the cost of all words that can come, already counted. Epsilons of the
grammar, which lead to shorter contexts, stand before those of the first FST.

Source: OpenFst's `compose.h`, `lookahead-filter.h` (label and weight pushing),
`lookahead-matcher.h`, `label-reachable.h`.
"""

from __future__ import annotations

import numpy as np

from .graph import LookaheadGraph
from .sums import PRECISE

NONE = -1
STATE = np.dtype(
    [("s1", "<i4"), ("s2", "<i4"), ("word", "<i4"), ("filter", "<i4"), ("ahead", "<f4")]
)
"""A composed state: two states, the word passed (-1: none), whether the grammar's epsilons are
over, and the cost that is looked ahead."""

MADE = np.dtype(
    [
        *(("state", "<i8"), ("phase", "<i4"), ("place", "<i8"), ("other", "<i8")),
        *(("ilabel", "<i4"), ("olabel", "<i4"), ("weight", "<f4"), ("target", STATE)),
    ]
)
"""An arc of the `state`-th of some states, and where it stands among that state's arcs."""


def spread(begin: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Runs of numbers from each `begin` on: which run each belongs to, and the numbers."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) + (begin - (np.cumsum(counts) - counts))[owner]


def _key(states: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return states.astype(np.int64) << 32 | labels.astype(np.int64)


class Composition:
    """The arcs of composed states, of many at once."""

    def __init__(self, graph: LookaheadGraph) -> None:
        self._graph = graph
        self._one, self._two = graph.first, graph.second
        self._words, self._outputs, self._starts = graph.keys
        self.forget()

    def forget(self) -> None:
        """Forget what was looked ahead."""
        self._known: dict[int, int] = {}
        self._costs = np.empty(0, np.float32)
        self._only = np.empty(0, np.int64)

    def start(self) -> np.ndarray:
        """The start state: `STATE`, [1]."""
        return np.array([(self._one.start, self._two.start, NONE, 0, 0.0)], STATE)

    def finals(self, states: np.ndarray) -> np.ndarray:
        """Costs of ending in states, float32."""
        costs = self._one.final[states["s1"]] - states["ahead"] + self._two.final[states["s2"]]
        return np.where(states["word"] == NONE, costs, np.float32(np.inf))

    def arcs(self, states: np.ndarray) -> np.ndarray:
        """The arcs of states, those of a state with input labels first, else in OpenFst's order.

        Args:
            states: `STATE`. Returns: `MADE`, sorted by state.
        """
        s1, s2 = states["s1"], states["s2"]
        sizes = np.diff(self._one.begin)[s1], np.diff(self._two.begin)[s2]
        by_first = sizes[0] <= sizes[1]
        waiting = states["word"] != NONE
        silent = np.searchsorted(self._outputs, _key(s1, np.ones(len(s1), np.int64)))
        silent -= self._one.begin[s1]
        parts = [
            self._silent(states, np.where(waiting, 0, silent), by_first),
            self._shorter(states, np.where(waiting, 0, self._graph.epsilons[s2]), by_first),
            self._matches(states, np.where(waiting | ~by_first, 0, sizes[0] - silent), silent),
            self._matches_of_words(states, np.where(waiting | by_first, 0, sizes[1])),
            self._passed(states, waiting, by_first),
            self._waiting(states, np.where(waiting, silent, 0), by_first, sizes[0]),
        ]
        made = np.concatenate(parts)
        order = np.lexsort(
            (made["other"], made["place"], made["phase"], made["ilabel"] == 0, made["state"])
        )
        return made[order]

    def _made(self, owner: np.ndarray, phase: np.ndarray | int, place: np.ndarray) -> np.ndarray:
        made = np.zeros(len(owner), MADE)
        made["state"], made["phase"], made["place"] = owner, phase, place
        made["target"]["word"] = NONE
        return made

    def _silent(self, states: np.ndarray, counts: np.ndarray, by_first: np.ndarray) -> np.ndarray:
        """Arcs of the first FST without a word, while the grammar stays or a word is passed."""
        s2 = states["s2"]
        epsilons = self._graph.epsilons[s2]
        stuck = (np.diff(self._two.begin)[s2] == epsilons) & np.isinf(self._two.final[s2])
        owner, place = spread(self._one.begin[states["s1"]], np.where(stuck, 0, counts))
        arcs = self._one.arcs[place]
        cost, only = self._look_ahead(arcs["nextstate"], s2[owner])
        good = (only >= 0) | (cost < np.inf)
        owner, place, arcs, cost, only = (x[good] for x in (owner, place, arcs, cost, only))
        made = self._made(owner, by_first[owner], place)
        made["ilabel"] = arcs["ilabel"]
        target = made["target"]
        target["s1"], target["s2"] = arcs["nextstate"], s2[owner]
        target["filter"] = epsilons[owner] > 0
        target["ahead"] = np.floor(cost * np.float32(1024) + np.float32(0.5)) / np.float32(1024)
        ahead = states["ahead"][owner]
        made["weight"] = arcs["weight"] + (cost - ahead)
        pushed = np.flatnonzero(only >= 0)
        words = self._two.arcs[only[pushed]]
        made["olabel"][pushed] = words["olabel"]
        price = (np.float32(0) - ahead[pushed]) + words["weight"]
        made["weight"][pushed] = arcs["weight"][pushed] + price
        target["s2"][pushed], target["word"][pushed] = words["nextstate"], words["ilabel"]
        target["ahead"][pushed] = 0
        return made

    def _shorter(self, states: np.ndarray, counts: np.ndarray, by_first: np.ndarray) -> np.ndarray:
        counts = np.where(states["filter"] == 1, 0, counts)
        owner, place = spread(self._two.begin[states["s2"]], counts)
        arcs = self._two.arcs[place]
        made = self._made(owner, ~by_first[owner], place)
        made["olabel"] = arcs["olabel"]
        made["weight"] = (arcs["weight"] - states["ahead"][owner]) + np.float32(0)
        made["target"]["s1"], made["target"]["s2"] = states["s1"][owner], arcs["nextstate"]
        return made

    def _matches(self, states: np.ndarray, counts: np.ndarray, silent: np.ndarray) -> np.ndarray:
        """Arcs with words of both FSTs, found for each arc of the first."""
        owner, place = spread(self._one.begin[states["s1"]] + silent, counts)
        wanted = _key(states["s2"][owner], self._one.arcs["olabel"][place])
        low, high = (np.searchsorted(self._words, wanted, side) for side in ("left", "right"))
        which, other = spread(low, high - low)
        return self._pairs(states, owner[which], place[which], other, place[which], other)

    def _matches_of_words(self, states: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """The same, found for each arc of the grammar."""
        skipped = np.minimum(self._graph.epsilons[states["s2"]], counts)
        owner, other = spread(self._two.begin[states["s2"]] + skipped, counts - skipped)
        wanted = _key(states["s1"][owner], self._graph.labels[other])
        low, high = (np.searchsorted(self._outputs, wanted, side) for side in ("left", "right"))
        which, place = spread(low, high - low)
        return self._pairs(states, owner[which], other[which], place, place, other[which])

    def _pairs(
        self,
        states: np.ndarray,
        owner: np.ndarray,
        outer: np.ndarray,
        inner: np.ndarray,
        place: np.ndarray,
        other: np.ndarray,
    ) -> np.ndarray:
        made = self._made(owner, 2, outer)
        made["other"] = inner
        first, second = self._one.arcs[place], self._two.arcs[other]
        made["ilabel"], made["olabel"] = first["ilabel"], second["olabel"]
        made["weight"] = first["weight"] + (second["weight"] - states["ahead"][owner])
        made["target"]["s1"], made["target"]["s2"] = first["nextstate"], second["nextstate"]
        return made

    def _passed(self, states: np.ndarray, waiting: np.ndarray, by_first: np.ndarray) -> np.ndarray:
        """Arcs with the word that was passed before."""
        alive = np.flatnonzero(waiting)
        wanted = _key(states["s1"][alive], states["word"][alive])
        low, high = (np.searchsorted(self._outputs, wanted, side) for side in ("left", "right"))
        which, place = spread(low, high - low)
        owner = alive[which]
        arcs = self._one.arcs[place]
        made = self._made(owner, by_first[owner], place)
        made["ilabel"], made["weight"] = arcs["ilabel"], arcs["weight"]
        made["target"]["s1"], made["target"]["s2"] = arcs["nextstate"], states["s2"][owner]
        return made

    def _waiting(
        self, states: np.ndarray, counts: np.ndarray, by_first: np.ndarray, sizes: np.ndarray
    ) -> np.ndarray:
        """Arcs without a word, from where the word that was passed can still come."""
        owner, place = spread(self._one.begin[states["s1"]], counts)
        arcs = self._one.arcs[place]
        good = (sizes[owner] == 1) | self._reaches(arcs["nextstate"], states["word"][owner])
        owner, place, arcs = owner[good], place[good], arcs[good]
        made = self._made(owner, ~by_first[owner], place)
        made["ilabel"], made["weight"] = arcs["ilabel"], arcs["weight"]
        made["target"] = states[owner]
        made["target"]["s1"] = arcs["nextstate"]
        return made

    # Look-ahead

    def _reaches(self, s1: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Whether labels can come next from states of the first FST."""
        return self._in_sets(self._graph.interval_set[s1], labels)

    def _in_sets(self, sets: np.ndarray, labels: np.ndarray) -> np.ndarray:
        at = np.searchsorted(self._starts, _key(sets, labels), "right") - 1
        inside = at >= self._graph.interval_begin[sets]
        if not len(self._starts):
            return inside
        return inside & (labels < self._graph.intervals[np.maximum(at, 0), 1])

    def _look_ahead(self, s1: np.ndarray, s2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What can come next: the cost of all words and ends (infinity: nothing); the arc of the
        only word, else -1."""
        pairs, row = np.unique(_key(self._graph.interval_set[s1], s2), return_inverse=True)
        known = np.array([self._known.get(pair, -1) for pair in pairs.tolist()], np.int64)
        new = np.flatnonzero(known < 0)
        if len(new):
            cost, only = self._search(pairs[new] >> 32, pairs[new] & 0xFFFFFFFF)
            known[new] = np.arange(len(self._costs), len(self._costs) + len(new))
            self._known.update(zip(pairs[new].tolist(), known[new].tolist(), strict=True))
            self._costs = np.concatenate([self._costs, cost])
            self._only = np.concatenate([self._only, only])
        return self._costs[known[row]], self._only[known[row]]

    def _search(self, sets: np.ndarray, s2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        graph = self._graph
        counts = self._two.begin[s2 + 1] - self._two.begin[s2]
        sizes = graph.interval_begin[sets + 1] - graph.interval_begin[sets]
        few = 2 * counts < sizes
        owner, place = spread(self._two.begin[s2], np.where(few, counts, 0))
        labels = graph.labels[place]
        good = (labels > 0) & self._in_sets(sets[owner], labels)
        owner, low = owner[good], place[good]
        other, number = spread(graph.interval_begin[sets], np.where(few, 0, sizes))
        bounds = (_key(s2[other], graph.intervals[number, side]) for side in (0, 1))
        first, last = (np.searchsorted(self._words, bound) for bound in bounds)
        good = first < last
        owner = np.concatenate([owner, other[good]])
        low, high = np.concatenate([low, first[good]]), np.concatenate([low + 1, last[good]])
        mass = np.bincount(owner, self._masses(s2[owner], low, high), len(sets))
        begin = np.full(len(sets), len(self._words))
        end = np.full(len(sets), -1)
        np.minimum.at(begin, owner, low)
        np.maximum.at(end, owner, high)
        found = end >= 0
        final = self._two.final[s2]
        ends = (final < np.inf) & self._in_sets(sets, np.full(len(sets), graph.final_label))
        with np.errstate(divide="ignore", invalid="ignore"):
            cost = (-np.log(mass)).astype(np.float32)
        for at in np.flatnonzero(found & ~((mass > 0) & (mass < np.inf))).tolist():
            mine = owner == at  # costs beyond what sums can hold
            _, arcs = spread(low[mine], (high - low)[mine])
            cost[at] = self._two.arcs["weight"][arcs].min()
        cost[~found] = np.inf
        cost[ends] = np.minimum(cost, final)[ends]
        only = np.where(found & (end - begin == 1) & ~ends, begin, NONE)
        cost[only >= 0] = 0
        return cost, only

    def _masses(self, s2: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """The sums of the probabilities of runs of arcs, each within a state of the grammar."""
        sums = self._graph.sums
        upto = sums[high - 1]
        with np.errstate(invalid="ignore"):
            mass = upto - np.where(low > self._two.begin[s2], sums[low - 1], 0.0)
        rough = np.flatnonzero(~(mass > PRECISE * upto))
        if len(rough):
            owner, arcs = spread(low[rough], (high - low)[rough])
            with np.errstate(over="ignore"):
                each = np.exp(-self._two.arcs["weight"][arcs].astype(np.float64))
            mass[rough] = np.bincount(owner, each, len(rough))
        return mass
