"""Paths of new words, joined to a look-ahead graph between the states where words begin and end.

The graph is not determinized again: a new word has a path of its own beside those of others, which
a search follows as well. New words share the phones that they begin with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.sequence import bincount
from ...kaldi.fst.arcs import ARC
from ...kaldi.fst.fst import EXPANDED, Fst, Reachability
from ...kaldi.fst.fst_properties import label_properties, reachable
from ...kaldi.graphs.hmms import PhoneHmms
from ...kaldi.graphs.self_loops import add_self_loops
from .contexts import Pair
from .junctions import Junctions

Spelling = tuple[int, tuple[int, ...]]
"""The output label of a word and its phones."""
_Intervals = list[tuple[int, int]]


class _Words:
    """The new words as a tree of phones; node 0 is where all begin.

    Attributes:
        phone, parent: of each node. labels: of the words that end there.
    """

    def __init__(self, words: Sequence[Spelling]) -> None:
        self.phone, self.parent = [0], [-1]
        self.labels: list[list[int]] = [[]]
        known: dict[tuple[int, int], int] = {}
        for label, phones in words:
            node = 0
            for phone in phones:
                after = known.setdefault((node, phone), len(self.phone))
                if after == len(self.phone):
                    self.phone.append(phone)
                    self.parent.append(node)
                    self.labels.append([])
                node = after
            self.labels[node].append(label)

    def intervals(self) -> list[_Intervals]:
        """The labels that can come after each node."""
        sets = [set(labels) for labels in self.labels]
        for node in range(len(sets) - 1, 0, -1):
            sets[self.parent[node]] |= sets[node]
        return [_intervals(sorted(each)) for each in sets]


def _intervals(labels: list[int]) -> _Intervals:
    found: _Intervals = []
    for label in labels:
        if found and found[-1][1] == label:
            found[-1] = found[-1][0], label + 1
        else:
            found.append((label, label + 1))
    return found


class _Paths:
    """An FST of the HMMs of new words: first the states that words begin in, then one for each
    node of the words, then those inside of HMMs."""

    def __init__(self, words: _Words, junctions: Junctions, hmms: PhoneHmms) -> None:
        self._hmms = hmms
        self._entries = len(junctions.entries)
        self._inner: dict[tuple[int, int], dict[int, int]] = {}
        self._arcs: list[tuple[int, int, float, int]] = []
        self.nodes = [0] * self._entries + list(range(1, len(words.phone)))
        """The node that each state leads to."""
        self.used: set[Pair] = set()
        for node in range(1, len(words.phone)):
            phone, parent = words.phone[node], words.parent[node]
            if parent:
                state = self._entries + parent - 1
                self._add(state, {self._hmm(words.phone[parent], phone)}, node, 0.0)
                continue
            for entry, lefts in enumerate(junctions.lefts):
                numbers = {self._hmm(left, phone) for left in lefts}
                self._add(entry, numbers, node, float(junctions.base[entry]))

    def _hmm(self, left: int, phone: int) -> int:
        self.used.add((left, phone))
        return self._hmms.of_window((left, phone))

    def _add(self, source: int, numbers: set[int], node: int, base: float) -> None:
        """Ways from a state to that of a node."""
        for number in sorted(numbers):
            places = self._places(node, number)
            for ident, cost, after in self._hmms.hmms[number][0]:
                self._arcs.append((source, ident, base + float(cost), places[after]))

    def _places(self, node: int, number: int) -> dict[int, int]:
        """The states of an HMM that leads to a node, but for its first one."""
        known = self._inner.get((node, number))
        if known is not None:
            return known
        hmm = self._hmms.hmms[number]
        if any(not after for arcs in hmm for _, _, after in arcs):
            raise FormatError("an HMM of the model returns to its first state")
        places = {len(hmm) - 1: self._entries + node - 1}
        for place in range(1, len(hmm) - 1):
            places[place] = len(self.nodes)
            self.nodes.append(node)
        for place in range(1, len(hmm) - 1):
            for ident, cost, after in hmm[place]:
                self._arcs.append((places[place], ident, float(cost), places[after]))
        self._inner[node, number] = places
        return places

    def fst(self, words: _Words, scale: float) -> Fst:
        """With self-loops; ends are where words end."""
        source, label, weight, target = map(np.array, zip(*self._arcs, strict=True))
        final = np.full(len(self.nodes), np.inf, np.float32)
        ends = np.array([node for node, labels in enumerate(words.labels) if labels])
        final[ends + self._entries - 1] = 0
        silent = np.zeros(len(source), np.int32)
        fst = add_self_loops(
            Fst.of_arcs(source, label, weight, target, final, silent), self._hmms, scale
        )
        for state in range(len(self.nodes), fst.states):  # made for the loops of mixed states
            (after,) = {*fst.nextstate[fst.begin[state] : fst.begin[state + 1]].tolist()} - {state}
            self.nodes.append(self.nodes[after])
        return fst


def joined(
    fst: Fst, words: Sequence[Spelling], junctions: Junctions, hmms: PhoneHmms, first_new: int
) -> tuple[Fst, frozenset[Pair]]:
    """A look-ahead graph with new words, and the pairs of phones in these.

    Args:
        words: those with labels from `first_new` on are new, the others are in the graph. All their
            phones are, and words end in their last ones.

    Raises:
        FormatError: HMMs of the model have loops beyond single states.
    """
    tree = _Words(sorted(words, key=lambda word: word[1]))
    paths = _Paths(tree, junctions, hmms)
    made = paths.fst(tree, junctions.scale)
    entries = len(junctions.entries)
    place = np.concatenate((junctions.entries, fst.states + np.arange(made.states - entries)))
    source = place[made.source()]
    arcs = made.arcs.copy()
    arcs["nextstate"] = place[made.nextstate]
    ends = [
        (fst.states + node - 1, ilabel, label, made.final[entries + node - 1] + cost, after)
        for node, labels in enumerate(tree.labels)
        for label in labels
        for ilabel, after, cost in junctions.exits(tree.phone[node])
    ]
    # The self-loop of a state between words is not that of a new word's last transition.
    looped = sorted({row[-1] for row in ends if not row[1] and junctions.leave[row[-1]]})
    states = fst.states + made.states - entries
    copies = {state: states + at for at, state in enumerate(looped)}
    ends = [(*row[:-1], copies.get(row[-1], row[-1])) for row in ends]
    bare = [_without_loop(fst, state, arcs[source == state], junctions) for state in looped]
    sizes = [len(each) for each in bare]
    source = np.concatenate(
        (source, [row[0] for row in ends], np.repeat(states + np.arange(len(bare)), sizes))
    ).astype(np.int64)
    arcs = np.concatenate((arcs, np.array([row[1:] for row in ends], ARC), *bare))
    order = np.lexsort((arcs["ilabel"], arcs["olabel"], source))
    source, arcs = source[order], arcs[order]
    begins = source < fst.states  # without words: they come first
    counts = np.diff(fst.begin) + bincount(source[begins], minlength=fst.states)
    new = bincount(source[~begins] - fst.states, minlength=states + len(bare) - fst.states)
    merged = np.insert(fst.arcs, fst.begin[source[begins]], arcs[begins])
    final = (fst.final - junctions.leave)[looped].astype(np.float32)
    whole = Fst(
        fst.start,
        np.concatenate((fst.final, np.full(states - fst.states, np.inf, np.float32), final)),
        np.concatenate(([0], np.cumsum(np.concatenate((counts, new))))),
        np.concatenate((merged, arcs[~begins])),
    )
    added = [each for each in {label for label, _ in words} if each >= first_new]
    known = fst.header.reachability
    assert known is not None  # it is a look-ahead graph
    if added:
        known = _with_labels(known, _before_words(fst, junctions), first_new, len(added))
    sets = tree.intervals()
    runs = [known.intervals[known.begin[at] : known.begin[at + 1]] for at in looped]
    known = _with_states(known, [*(sets[node] for node in paths.nodes[entries:]), *runs])
    properties = EXPANDED | label_properties(whole)
    header = replace(
        fst.header, properties=properties, arcs=len(whole.arcs), reachability=known, version=1
    )
    return replace(whole, header=header), frozenset(paths.used)


def _without_loop(fst: Fst, state: int, more: np.ndarray, junctions: Junctions) -> np.ndarray:
    """The arcs of a state and `more`, but for its self-loop and what it costs to leave that."""
    mine = slice(fst.begin[state], fst.begin[state + 1])
    arcs = np.concatenate((fst.arcs[mine][~junctions.loop[mine]], more))
    arcs["weight"] -= junctions.leave[state]
    return arcs


def _before_words(fst: Fst, junctions: Junctions) -> np.ndarray:
    """The states from which words begin before another word has ended."""
    silent = fst.olabel == 0
    source = fst.source()[silent]
    found = reachable(fst.nextstate[silent], source, fst.states, junctions.entries.tolist())
    return np.flatnonzero(found)


def _with_labels(known: Reachability, states: np.ndarray, first: int, count: int) -> Reachability:
    """With labels that are larger than all others, which can come next from some states."""
    intervals, end = known.intervals.copy(), first + count
    last = known.begin[states + 1] - 1
    touches = (last >= known.begin[states]) & (intervals[last, 1] == first)
    intervals[last[touches], 1] = end
    others = states[~touches]
    sizes = np.diff(known.begin)
    intervals = np.insert(intervals, known.begin[others + 1], (first, end), axis=0)
    sizes[others] += 1
    return replace(known, begin=np.concatenate(([0], np.cumsum(sizes))), intervals=intervals)


def _with_states(known: Reachability, sets: Sequence[_Intervals | np.ndarray]) -> Reachability:
    begin = known.begin[-1] + np.cumsum([len(each) for each in sets])
    more = np.array([pair for each in sets for pair in each], np.int32).reshape(-1, 2)
    return replace(
        known,
        begin=np.concatenate((known.begin, begin)),
        intervals=np.concatenate((known.intervals, more)),
    )
