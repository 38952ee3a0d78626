"""Paths of new words from where these leave the paths of others.

They are determinized as a graph is when it is made: the label and the costs of a word stand where
it parts from the other new ones. Where they stood later, a search would take a word for cheaper
than in a graph that was made with it, and its beam would lose other paths.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import FormatError
from ...kaldi.fst.algorithms.determinize_star import determinize_star
from ...kaldi.fst.arcs import ARC
from ...kaldi.fst.fst import Fst
from ...kaldi.graphs.hmms import PhoneHmms
from ...kaldi.graphs.self_loops import add_self_loops
from .junctions import Junctions
from .shared_paths import SharedPaths, WordTree

_START, _END = 0, 1


@dataclass(frozen=True)
class OwnPaths:
    """An FST of HMMs with self-loops, as a part of a graph.

    Attributes:
        source, arcs: the arcs between its states, by their numbers in the graph.
        ends: rows of state, output label, cost and word: what ends the words, as places in those
            of the tree. The label is 0 where it stands on an arc before.
        states: how many states the graph did not have.
    """

    source: np.ndarray
    arcs: np.ndarray
    ends: list[tuple[int, int, float, int]]
    states: int


def own_paths(
    fst: Fst, tree: WordTree, shared: SharedPaths, junctions: Junctions, hmms: PhoneHmms
) -> OwnPaths:
    """The paths of words after the states of a graph where they leave the paths of others.

    Raises:
        FormatError: HMMs of the model have loops beyond single states.
    """
    left = sorted({state for _, state, *_ in shared.branches})
    hmm_paths = _HmmPaths(tree, shared, hmms, len(left))
    place = {state: at for at, state in enumerate(left)}
    for node, state, number, base in shared.branches:
        hmm_paths.branch(place[state], node, number, base)
    made = add_self_loops(
        determinize_star(hmm_paths.fst()), hmms, junctions.scale, hmm_paths.symbols
    )
    begins = made.ilabel >= hmms.count
    ends = made.ilabel >= hmms.count + len(left)
    number = np.full(made.states, -1)
    entered = np.flatnonzero(begins & ~ends)
    number[made.nextstate[entered]] = np.array(left, np.int64)[made.ilabel[entered] - hmms.count]
    new = number < 0
    new[made.start] = False
    new[made.nextstate[ends]] = False
    number[new] = fst.states + np.arange(int(new.sum()))
    source = number[made.source()]
    arcs = made.arcs[~begins].copy()
    arcs["nextstate"] = number[arcs["nextstate"]]
    rows = zip(
        source[ends].tolist(),
        made.olabel[ends].tolist(),
        made.weight[ends].tolist(),
        (made.ilabel[ends] - hmms.count - len(left)).tolist(),
        strict=True,
    )
    return OwnPaths(source[~begins], arcs, list(rows), int(new.sum()))


class _HmmPaths:
    """The HMMs of words, a path for each, from states that have labels of their own.

    Its start leads to these states; a label of its own is also the end of each word.

    Args:
        left: how many states there are that words leave.
    """

    def __init__(self, tree: WordTree, shared: SharedPaths, hmms: PhoneHmms, left: int) -> None:
        self._tree, self._shared, self._hmms = tree, shared, hmms
        self.symbols = range(hmms.count, hmms.count + left + len(tree.words))
        self._arcs = [(_START, self.symbols[at], 0, 0.0, 2 + at) for at in range(left)]
        self._ends = self.symbols[left:]
        self._states = 2 + left
        self._places: dict[tuple[int, int], int] = {}  # by word and phones that were passed
        self._inner: dict[tuple[int, int], dict[int, int]] = {}  # by target and HMM

    def branch(self, place: int, node: int, number: int, base: float) -> None:
        """Let the words of a node leave one of the states by an HMM, at a cost."""
        for word in self._tree.below[node]:
            spelling = self._tree.words[word]
            target = self._place(word, self._tree.depth[node])
            self._pass(2 + place, number, target, base + spelling.begun, spelling.label)

    def fst(self) -> Fst:
        """The FST of what there is."""
        final = np.full(self._states, np.inf, np.float32)
        final[_END] = 0
        arcs = np.array([arc[1:] for arc in self._arcs], ARC)
        source = np.array([arc[0] for arc in self._arcs], np.int64)
        columns = arcs["ilabel"], arcs["weight"], arcs["nextstate"]
        return Fst.of_arcs(source, *columns, final, arcs["olabel"])

    def _place(self, word: int, passed: int) -> int:
        """The state of a word after some of its phones; the other ones follow it."""
        phones = self._tree.words[word].phones
        for at in range(len(phones), passed - 1, -1):
            if (word, at) in self._places:
                continue
            state = self._places[word, at] = self._new_state()
            if at == len(phones):
                self._arcs.append((state, self._ends[word], 0, 0.0, _END))
            else:
                number = self._shared.hmm(phones[at - 1], phones[at])
                self._pass(state, number, self._places[word, at + 1])
        return self._places[word, passed]

    def _pass(
        self, source: int, number: int, target: int, cost: float = 0.0, label: int = 0
    ) -> None:
        """A way through an HMM, whose first step has a cost and an output label."""
        places = self._inner_places(target, number)
        for ident, own, after in self._hmms.hmms[number][0]:
            self._arcs.append((source, ident, label, cost + float(own), places[after]))

    def _inner_places(self, target: int, number: int) -> dict[int, int]:
        """The states of an HMM that leads to a state, but for its first one."""
        known = self._inner.get((target, number))
        if known is not None:
            return known
        hmm = self._hmms.hmms[number]
        if any(not after for arcs in hmm for _, _, after in arcs):
            raise FormatError("an HMM of the model returns to its first state")
        last = len(hmm) - 1
        places = {place: self._new_state() for place in range(1, last)} | {last: target}
        for place in range(1, last):
            for ident, own, after in hmm[place]:
                self._arcs.append((places[place], ident, 0, float(own), places[after]))
        self._inner[target, number] = places
        return places

    def _new_state(self) -> int:
        self._states += 1
        return self._states - 1
