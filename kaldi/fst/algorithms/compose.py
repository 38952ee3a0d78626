"""Composition of transducers: in C, or on whole arrays, all states that are equally far from the
start at once.

States are numbered as they are met. The arcs of a state are those without a label in between, of
the first FST, then of the second; then those that match, by label. That is the order of Kaldi's
`fsttablecompose` where the second FST is sorted.

`acceptors.compose` is the one of acceptors without arcs of label 0, which gives OpenFst's order of
states; `speech.fst.composition` looks ahead, and computes arcs when they are searched.

Source: OpenFst's `compose.h`, `compose-filter.h`; Allauzen and Mohri 2009, "N-way composition of
weighted finite-state transducers".
"""

from __future__ import annotations

import numpy as np

from ....framework.base.sequence import bincount
from ..arcs import ARC, spread
from ..fst import Fst
from . import compiled
from .acceptors import connect


def compose(first: Fst, second: Fst, *, connected: bool = True) -> Fst:
    """The transducer that puts the output of the first into the second; weights are added.

    Of paths that differ only in when arcs without labels in between are taken, one is kept: those
    of the first FST come first. Arcs need not be sorted.

    Args:
        connected: leave out states that are on no path.
    """
    functions = compiled.library()
    if functions is None or min(first.start, second.start) < 0:
        first, second = first.ordered(first.olabel), second.ordered(second.ilabel)
        made = _Composition(first, second).run()
        return connect(made) if connected else made
    one, two = (compiled.fst_block(functions, fst) for fst in (first, second))
    return compiled.make(functions, "composed", first=one, second=two, connected=connected)


def invert(fst: Fst) -> Fst:
    """The transducer with input and output exchanged."""
    rows = fst.source(), fst.olabel, fst.weight, fst.nextstate
    return Fst.of_arcs(*rows, fst.final, fst.ilabel, fst.start)


class _Side:
    """One of the FSTs, whose arcs are sorted by the label that must be equal.

    Attributes:
        begin, arcs: as those of an FST. counts, silent: how many arcs each state has, and how many
            of them have label 0 there, which come first. keys: of state and label, sorted.
    """

    def __init__(self, fst: Fst, side: str, labels: int) -> None:
        source = fst.source()
        self.begin, self.arcs = fst.begin, fst.arcs
        self.counts = np.diff(fst.begin)
        self.silent = bincount(source[fst.arcs[side] == 0], minlength=fst.states)
        self.final = fst.final
        self.label = fst.arcs[side].astype(np.int64)
        self.keys = source * labels + self.label

    def spread(self, states: np.ndarray, silent: bool) -> tuple[np.ndarray, np.ndarray]:
        """The arcs of states, those of label 0 or the others: which state, and which arc."""
        skipped = 0 if silent else self.silent[states]
        counts = self.silent[states] if silent else self.counts[states] - skipped
        return spread(self.begin[states] + skipped, counts)


class _Composition:
    def __init__(self, first: Fst, second: Fst) -> None:
        labels = 1 + max(int(first.olabel.max(initial=0)), int(second.ilabel.max(initial=0)))
        self._labels = labels
        self._first = _Side(first, "olabel", labels)
        self._second = _Side(second, "ilabel", labels)
        self._start = first.start, second.start
        # where all that the first FST can do is silent, its silent arcs come first
        sizes = self._first.counts, self._first.silent
        self._waits = (sizes[0] == sizes[1]) & np.isinf(first.final)

    def run(self) -> Fst:
        if min(self._start) < 0:
            none = np.zeros(0, np.int64)
            return Fst.of_arcs(none, none, none, none, none, start=-1)
        first, second = (np.array([state]) for state in self._start)
        level = self._key(first, second, 0)
        number = {int(level[0]): 0}
        levels: list[np.ndarray] = []
        sources: list[np.ndarray] = []
        targets: list[np.ndarray] = []
        arcs: list[np.ndarray] = []
        while len(level):
            owner, key, made = self._arcs(level)
            sources.append(owner + (len(number) - len(level)))
            levels.append(level)
            different, at, which = np.unique(key, return_index=True, return_inverse=True)
            met = different[np.argsort(at)].tolist()
            fresh = [each for each in met if each not in number]
            for each in fresh:
                number[each] = len(number)
            known = np.array([number[each] for each in different.tolist()], np.int64)
            targets.append(known[which.ravel()])
            arcs.append(made)
            level = np.array(fresh, np.int64)
        s1, s2, _ = self._parts(np.concatenate(levels))
        columns = np.concatenate(arcs)
        return Fst.of_arcs(
            np.concatenate(sources),
            columns["ilabel"],
            columns["weight"],
            np.concatenate(targets),
            self._first.final[s1] + self._second.final[s2],
            columns["olabel"],
        )

    def _key(self, s1: np.ndarray, s2: np.ndarray, over: np.ndarray | int) -> np.ndarray:
        """A number for each composed state; `over`: the first FST's silent arcs are."""
        return (s1.astype(np.int64) * len(self._second.final) + s2) * 2 + over

    def _parts(self, key: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        s1, s2 = np.divmod(key >> 1, len(self._second.final))
        return s1, s2, key & 1

    def _arcs(self, level: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The arcs of composed states: the place in `level`, the key of the target, the arc."""
        s1, s2, over = self._parts(level)
        one, two = self._first, self._second
        chosen = np.flatnonzero(over == 0)
        which, place = one.spread(s1[chosen], silent=True)
        owner = chosen[which]
        passed = one.arcs[place]
        passed["olabel"] = 0
        found = [(owner, self._key(passed["nextstate"], s2[owner], 0), passed)]
        chosen = np.flatnonzero(~self._waits[s1])
        which, place = two.spread(s2[chosen], silent=True)
        owner = chosen[which]
        passed = two.arcs[place]
        passed["ilabel"] = 0
        later = (one.silent[s1[owner]] > 0).astype(np.int64)
        found.append((owner, self._key(s1[owner], passed["nextstate"], later), passed))
        found.append(self._matches(s1, s2))
        owner, key, arcs = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.argsort(owner, kind="stable")
        return owner[order], key[order], arcs[order]

    def _matches(self, s1: np.ndarray, s2: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Arcs of both FSTs with one label, looked up for each arc of the state with fewer."""
        one, two = self._first, self._second
        fewer = one.counts[s1] - one.silent[s1] <= two.counts[s2] - two.silent[s2]
        found = []
        for chosen, mine, states, other, others in (
            (np.flatnonzero(fewer), one, s1, two, s2),
            (np.flatnonzero(~fewer), two, s2, one, s1),
        ):
            which, place = mine.spread(states[chosen], silent=False)
            owner = chosen[which]
            wanted = others[owner] * self._labels + mine.label[place]
            low, high = (np.searchsorted(other.keys, wanted, side) for side in ("left", "right"))
            which, match = spread(low, high - low)
            pair = place[which], match
            found.append((owner[which], *(pair if mine is one else pair[::-1])))
        owner, left, right = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.lexsort((left, right, owner))
        owner, left, right = owner[order], left[order], right[order]
        arcs = np.empty(len(owner), ARC)
        arcs["ilabel"], arcs["olabel"] = one.arcs["ilabel"][left], two.arcs["olabel"][right]
        arcs["weight"] = one.arcs["weight"][left] + two.arcs["weight"][right]
        targets = one.arcs["nextstate"][left], two.arcs["nextstate"][right]
        return owner, self._key(*targets, 0), arcs
