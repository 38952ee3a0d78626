"""Paths of new words, joined to a look-ahead graph between the states where words begin and end.

The graph is not determinized again. New words share the phones that they begin with, and take the
path of other words as far as one of the same phones has no word on it: a path of their own from the
first phone on would make the search pay for the grammar earlier than for other words, and a beam
would lose it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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


_ROUNDING = 1e-2  # by which costs of paths to one state may differ
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


class _Shared:
    """The states of the graph that beginnings of new words come to on paths of others.

    Attributes:
        costs: for each node of the words, the states, and what is to be added there to what the
            path has cost.
        branches: rows of node, state and HMM: the words go on from there on paths of their own.
        passed: states and the nodes that paths through them lead to.
        used: pairs of phones in the words.
    """

    def __init__(self, fst: Fst, words: _Words, junctions: Junctions, hmms: PhoneHmms) -> None:
        self._fst, self._junctions, self._hmms = fst, junctions, hmms
        self.costs: list[dict[int, float]] = [{}]
        self.branches: list[tuple[int, int, int]] = []
        self.passed: set[tuple[int, int]] = set()
        self.used: set[Pair] = set()
        entries = junctions.entries.tolist()
        after = junctions.after_silence.tolist()
        for node in range(1, len(words.phone)):
            phone, parent = words.phone[node], words.parent[node]
            ways: dict[int, list[tuple[int, int, float, list[int]]]] = {}
            if parent:
                starts = [
                    (state, {self.hmm(words.phone[parent], phone)}, cost)
                    for state, cost in self.costs[parent].items()
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
                    ways.setdefault(end, []).append((state, number, cost - more, states))
            self.costs.append({})
            for end, rows in ways.items():
                costs = [cost for _, _, cost, _ in rows]
                # Paths that come to a state at different costs cannot leave it at one.
                if end < 0 or max(costs) - min(costs) > _ROUNDING:
                    self.branches += [(node, state, number) for state, number, *_ in rows]
                    continue
                self.costs[node][end] = costs[0]
                self.passed |= {(state, node) for row in rows for state in row[-1]}

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


class _Paths:
    """An FST of the HMMs of new words: first the states of the graph that they leave, then one for
    each node of the words, then those inside of HMMs."""

    def __init__(self, words: _Words, shared: _Shared, junctions: Junctions, hmms: PhoneHmms):
        self._hmms = hmms
        self.left = sorted({state for _, state, _ in shared.branches})
        place = {state: at for at, state in enumerate(self.left)}
        self._entries = len(self.left)
        self._inner: dict[tuple[int, int], dict[int, int]] = {}
        self._arcs: list[tuple[int, int, float, int]] = []
        own = {node for node, *_ in shared.branches}
        for node in range(1, len(words.phone)):
            if words.parent[node] in own:
                own.add(node)
        self.nodes = [0] * self._entries + sorted(own)
        """The node that each state leads to."""
        self.of_node = {node: self._entries + at for at, node in enumerate(sorted(own))}
        """The state of each node that has a path of its own."""
        entry_costs = dict(zip(junctions.entries.tolist(), junctions.base.tolist(), strict=True))
        silent = dict(
            zip(junctions.entries.tolist(), junctions.after_silence.tolist(), strict=True)
        )
        for node, state, number in shared.branches:
            parent = words.parent[node]
            if parent:
                base = float(junctions.leave[state]) + shared.costs[parent][state]
            else:
                base = entry_costs[state] + words.shift[node] * silent[state]
            self._add(place[state], number, node, base)
        for node in self.of_node:
            parent = words.parent[node]
            if parent in self.of_node:
                number = shared.hmm(words.phone[parent], words.phone[node])
                self._add(self.of_node[parent], number, node, 0.0)

    def _add(self, source: int, number: int, node: int, base: float) -> None:
        """A way from a state to that of a node."""
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
        places = {len(hmm) - 1: self.of_node[node]}
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
        source, label, weight, target = (
            np.array([arc[column] for arc in self._arcs], dtype)
            for column, dtype in enumerate((np.int64, np.int32, np.float32, np.int32))
        )
        final = np.full(len(self.nodes), np.inf, np.float32)
        final[[state for node, state in self.of_node.items() if words.ends[node]]] = 0
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
    shared = _Shared(fst, tree, junctions, hmms)
    paths = _Paths(tree, shared, junctions, hmms)
    made = paths.fst(tree, junctions.scale)
    entries = len(paths.left)
    place = np.append(np.array(paths.left, np.int64), fst.states + np.arange(made.states - entries))
    source = place[made.source()]
    arcs = made.arcs.copy()
    arcs["nextstate"] = place[made.nextstate]
    ends = [
        (fst.states + at - entries, ilabel, word.label, made.final[at] + cost, after)
        for node, at in paths.of_node.items()
        for word in tree.ends[node]
        for ilabel, after, cost in _exits(word, junctions)
    ]
    ends += [
        (state, ilabel, word.label, junctions.leave[state] + more + cost, after)
        for node, costs in enumerate(shared.costs)
        for state, more in costs.items()
        for word in tree.ends[node]
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
    begins = source < fst.states
    added = bincount(source[begins], minlength=fst.states)
    new = bincount(source[~begins] - fst.states, minlength=states + len(bare) - fst.states)
    begin = fst.begin + np.append(0, np.cumsum(added))
    final = (fst.final[looped] - junctions.leave[looped]).astype(np.float32)
    whole = Fst(
        fst.start,
        np.concatenate((fst.final, np.full(states - fst.states, np.inf, np.float32), final)),
        np.concatenate((begin, begin[-1] + np.cumsum(new))),
        np.concatenate((_merged(fst, source[begins], arcs[begins]), arcs[~begins])),
    )
    labels = {word.label for word in words if word.label >= first_new}
    if labels:
        following = _with_labels(following, junctions.entries, first_new, len(labels))
    sets = tree.intervals()
    following = _with_passed(following, shared.passed, sets)
    following = _with_sets(following, [sets[node] for node in paths.nodes[entries:]], looped)
    return Joined(whole, following, frozenset(shared.used))


def _exits(word: Spelling, junctions: Junctions) -> list[Exit]:
    own = word.silence
    cost = word.cost - (0.0 if own is None else math.log(own[2]))
    exits = junctions.exits(word.phones[-1], None if own is None else own[0])
    return [(ilabel, after, cost + each) for ilabel, after, each in exits]


def _merged(fst: Fst, source: np.ndarray, arcs: np.ndarray) -> np.ndarray:
    """The arcs of an FST and further ones of its states, by their output labels.

    Args:
        source: the states that `arcs` leave, rising; those of each state in the order of labels.
    """
    rows = fst.begin[source], fst.begin[source + 1], arcs["olabel"]
    places = [
        begin + int(np.searchsorted(fst.olabel[begin:end], label))
        for begin, end, label in zip(*(row.tolist() for row in rows), strict=True)
    ]
    return np.insert(fst.arcs, np.array(places, np.int64), arcs)


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
        np.append(begin, begin[-1] + np.cumsum([len(each) for each in new], dtype=np.int64)),
        np.concatenate((intervals, more)),
    )


def _with_passed(
    following: NextLabels, passed: set[tuple[int, int]], new: Sequence[_Intervals]
) -> NextLabels:
    """With the labels of nodes at states that lead there."""
    sets, begin, intervals = following
    sets = sets.copy()
    more: dict[int, set[int]] = {}
    for state, node in passed:
        more.setdefault(state, set()).add(node)
    known: dict[tuple[int, frozenset[int]], int] = {}
    made: list[_Intervals] = []
    for state, nodes in more.items():
        key = int(sets[state]), frozenset(nodes)
        if key not in known:
            mine = intervals[begin[key[0]] : begin[key[0] + 1]].tolist()
            wider = _union(mine, [pair for node in nodes for pair in new[node]])
            known[key] = (
                key[0] if wider == [tuple(pair) for pair in mine] else len(begin) - 1 + len(made)
            )
            if known[key] != key[0]:
                made.append(wider)
        sets[state] = known[key]
    sizes = [len(each) for each in made]
    pairs = np.array([pair for each in made for pair in each], np.int32).reshape(-1, 2)
    return NextLabels(
        sets,
        np.append(begin, begin[-1] + np.cumsum(sizes, dtype=np.int64)),
        np.concatenate((intervals, pairs)),
    )


def _union(one: Sequence[Sequence[int]], other: Sequence[Sequence[int]]) -> _Intervals:
    found: _Intervals = []
    for first, end in sorted((*map(tuple, one), *map(tuple, other))):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((first, end))
    return found
