"""Paths of new words, joined to a look-ahead graph between the states where words begin and end.

The graph is not determinized again: a new word has a path of its own beside those of others, which
a search follows as well. New words share the phones that they begin with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.sequence import bincount, repeated
from ...kaldi.fst.arcs import ARC, runs
from ...kaldi.fst.fst import EXPANDED, Fst
from ...kaldi.fst.fst_properties import label_properties
from ...kaldi.graphs.hmms import PhoneHmms
from ...kaldi.graphs.self_loops import add_self_loops
from ..fst.graph import NextLabels
from .contexts import Pair
from .junctions import Exit, Junctions


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


_Intervals = list[tuple[int, int]]


class _Words:
    """The new words as a tree of phones; node 0 is where all begin.

    Attributes:
        phone, parent: of each node. ends: the words that end there.
        shift: by how much the words cost more after silence, of the nodes after the first one. It
            is what they share, since a path does not know anymore where it began.
    """

    def __init__(self, words: Sequence[Spelling]) -> None:
        self.phone, self.parent = [0], [-1]
        self.ends: list[list[Spelling]] = [[]]
        self.shift = [0.0]
        known: dict[tuple[int, int, float], int] = {}
        for word in words:
            node = 0
            shift = 0.0 if word.silence is None else math.log(word.silence[2] / word.silence[1])
            for phone in word.phones:
                after = known.setdefault((node, phone, shift), len(self.phone))
                if after == len(self.phone):
                    self.phone.append(phone)
                    self.parent.append(node)
                    self.ends.append([])
                    self.shift.append(shift)
                node = after
            self.ends[node].append(word)

    def intervals(self) -> list[_Intervals]:
        """The labels that can come after each node."""
        sets = [{word.label for word in words} for words in self.ends]
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
                shift = words.shift[node] if junctions.after_silence[entry] else 0.0
                self._add(entry, numbers, node, float(junctions.base[entry]) + shift)

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
        ends = np.array([node for node, of in enumerate(words.ends) if of])
        final[ends + self._entries - 1] = 0
        silent = np.zeros(len(source), np.int32)
        fst = add_self_loops(
            Fst.of_arcs(source, label, weight, target, final, silent), self._hmms, scale
        )
        for state in range(len(self.nodes), fst.states):  # made for the loops of mixed states
            (after,) = {*fst.nextstate[fst.begin[state] : fst.begin[state + 1]].tolist()} - {state}
            self.nodes.append(self.nodes[after])
        return fst


@dataclass(frozen=True)
class Joined:
    """A look-ahead graph with new words.

    Attributes:
        fst: the states that were there come first. following: the labels that can come next.
        used: pairs of phones in the new words.
    """

    fst: Fst
    following: NextLabels
    used: frozenset[Pair]

    def with_header_of(self, old: Fst) -> Fst:
        """The FST as a file has it; `old` is that of a file without the new words."""
        sets, begin, intervals = self.following
        known = old.header.reachability
        assert known is not None  # it is a look-ahead graph
        sizes = np.diff(begin)[sets]
        reached = replace(
            known,
            begin=np.append(0, np.cumsum(sizes)),
            intervals=intervals[runs(begin[sets], sizes)],
        )
        header = replace(
            old.header,
            properties=EXPANDED | label_properties(self.fst),
            arcs=len(self.fst.arcs),
            reachability=reached,
            version=1,
        )
        return replace(self.fst, header=header)


def joined(
    fst: Fst,
    following: NextLabels,
    words: Sequence[Spelling],
    junctions: Junctions,
    hmms: PhoneHmms,
    first_new: int,
) -> Joined:
    """A look-ahead graph with new words.

    Args:
        fst, following: the graph, and the labels that can come next from its states.
        words: those with labels from `first_new` on are new, the others are in the graph. All their
            phones are, and words end in their last ones.

    Raises:
        FormatError: HMMs of the model have loops beyond single states.
    """
    tree = _Words(sorted(words, key=lambda word: word.phones))
    paths = _Paths(tree, junctions, hmms)
    made = paths.fst(tree, junctions.scale)
    entries = len(junctions.entries)
    place = np.concatenate((junctions.entries, fst.states + np.arange(made.states - entries)))
    source = place[made.source()]
    arcs = made.arcs.copy()
    arcs["nextstate"] = place[made.nextstate]
    ends = [
        (fst.states + node - 1, ilabel, word.label, made.final[entries + node - 1] + cost, after)
        for node, of in enumerate(tree.ends)
        for word in of
        for ilabel, after, cost in _exits(word, junctions)
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
    added = bincount(source[begins], minlength=fst.states)
    new = bincount(source[~begins] - fst.states, minlength=states + len(bare) - fst.states)
    begin = fst.begin + np.append(0, np.cumsum(added))
    final = (fst.final[looped] - junctions.leave[looped]).astype(np.float32)
    whole = Fst(
        fst.start,
        np.concatenate((fst.final, np.full(states - fst.states, np.inf, np.float32), final)),
        np.concatenate((begin, begin[-1] + np.cumsum(new))),
        np.concatenate((*_inserted(fst, source[begins], arcs[begins]), arcs[~begins])),
    )
    labels = {word.label for word in words if word.label >= first_new}
    if labels:
        following = _with_labels(following, junctions.entries, first_new, len(labels))
    sets = tree.intervals()
    following = _with_sets(following, [sets[node] for node in paths.nodes[entries:]], looped)
    return Joined(whole, following, frozenset(paths.used))


def _exits(word: Spelling, junctions: Junctions) -> list[Exit]:
    own = word.silence
    cost = word.cost - (0.0 if own is None else math.log(own[2]))
    exits = junctions.exits(word.phones[-1], None if own is None else own[0])
    return [(ilabel, after, cost + each) for ilabel, after, each in exits]


def _inserted(fst: Fst, source: np.ndarray, arcs: np.ndarray) -> Iterator[np.ndarray]:
    """The arcs of an FST in pieces, further ones before the others of their states.

    Args:
        source: the states that `arcs` leave, rising.
    """
    begin = 0
    places, first = np.unique(fst.begin[source], return_index=True)
    for place, more in zip(places.tolist(), np.split(arcs, first[1:]), strict=True):
        yield fst.arcs[begin:place]
        yield more
        begin = place
    yield fst.arcs[begin:]


def _without_loop(fst: Fst, state: int, more: np.ndarray, junctions: Junctions) -> np.ndarray:
    """The arcs of a state and `more`, but for its self-loop and what it costs to leave that."""
    mine = slice(fst.begin[state], fst.begin[state + 1])
    arcs = np.concatenate((fst.arcs[mine][~junctions.loop[mine]], more))
    arcs["weight"] -= junctions.leave[state]
    return arcs


def _with_labels(following: NextLabels, entries: np.ndarray, first: int, count: int) -> NextLabels:
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


def _with_sets(
    following: NextLabels, new: Sequence[_Intervals], copied: Sequence[int]
) -> NextLabels:
    """With states that have new sets, and states that have those of others."""
    sets, begin, intervals = following
    numbers = len(begin) - 1 + np.arange(len(new), dtype=np.int32)
    more = np.array([pair for each in new for pair in each], np.int32).reshape(-1, 2)
    return NextLabels(
        np.concatenate((sets, numbers, sets[list(copied)])),
        np.append(begin, begin[-1] + np.cumsum([len(each) for each in new])),
        np.concatenate((intervals, more)),
    )
