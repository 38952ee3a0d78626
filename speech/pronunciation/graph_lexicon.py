"""Pronunciations read back from a decoding graph: the paths of single words through it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...kaldi.fst.arcs import spread
from ...kaldi.fst.fst import Fst
from ...kaldi.lattices.transition_ids import TransitionIds
from ..lattice.word_boundary import KINDS, WordBoundaries

_MOST_STEPS = 2000  # arcs of a word's path: a loop of epsilons would have no end
_OUTSIDE, _BEGIN, _END, _INSIDE, _ALONE = range(len(KINDS))


def graph_pronunciations(
    fst: Fst, ids: TransitionIds, boundaries: WordBoundaries
) -> list[tuple[int, tuple[int, ...]]]:
    """The words that can begin at the start of a graph, and the phones of each, once each.

    Args:
        fst: HCLG, or the first part of a look-ahead graph, without disambiguation symbols.
        ids: of its input labels.
    """
    rows = np.unique(word_paths(fst, ids, boundaries, fst.start).rows(), axis=0)
    return [(row[0], tuple(phone for phone in row[1:] if phone)) for row in rows.tolist()]


@dataclass(frozen=True)
class WordPaths:
    """Paths of single words through a graph.

    Attributes:
        word, state, cost: of each path, where its word has ended, [paths].
    """

    word: np.ndarray
    state: np.ndarray
    cost: np.ndarray
    _node: np.ndarray
    _parents: np.ndarray
    _phones: np.ndarray

    def rows(self) -> np.ndarray:
        """Word and phones of each path, these with zeros before them, [paths, 1 + phones]."""
        node = self._node
        columns = []
        while node.any():
            columns.append(self._phones[node])
            node = np.maximum(self._parents[node], 0)
        return np.stack([self.word, *columns[::-1]], 1)


def word_paths(
    fst: Fst,
    ids: TransitionIds,
    boundaries: WordBoundaries,
    start: int,
    costs: np.ndarray | None = None,
    only: tuple[np.ndarray, np.ndarray] | None = None,
) -> WordPaths:
    """Follow all paths from a state at once, until their word has ended; silence is not passed.

    Args:
        costs: of arcs; None: their weights.
        only: the words that are wanted, and whether one of them can come next from each state,
            bool, [states]; None: all.
    """
    costs = fst.weight if costs is None else costs
    phone_of = np.array(ids.phone)
    kind_of_name = {kind: number for number, kind in enumerate(KINDS)}
    kinds = np.array([kind_of_name.get(kind, _OUTSIDE) for kind in boundaries.kinds])
    # A phone counts where it is left: whatever its states are, that happens once.
    leaves = np.array(ids.is_last)
    loop, target = np.array(ids.is_loop), np.array(ids.target)
    parents: list[np.ndarray] = [np.full(1, -1)]
    phones: list[np.ndarray] = [np.zeros(1, np.int64)]
    nodes = 1
    state, word, node = (np.array([value]) for value in (start, 0, 0))
    ended, cost = np.zeros(1, bool), np.zeros(1)
    place = np.zeros(1, np.int64)  # HMM state
    returned: set[tuple[int, ...]] = set()  # states, words and nodes that an HMM led back to
    found: list[tuple[np.ndarray, ...]] = []
    for _ in range(_MOST_STEPS):
        if not len(state):
            break
        path, arc = spread(fst.begin[state], np.diff(fst.begin)[state])
        label, output = fst.ilabel[arc], fst.olabel[arc].astype(np.int64)
        moves = ~loop[label] & ~((label == 0) & (fst.nextstate[arc] == state[path]))
        # A second word, or a phone after the last one, belongs to the next word.
        moves &= (output == 0) | (word[path] == 0)
        moves &= ~(ended[path] & (label != 0))
        phone = np.where(leaves[label], phone_of[label], 0)
        moves &= (label == 0) | (kinds[phone_of[label]] != _OUTSIDE)
        if only is not None:
            known = word[path] + output
            moves &= np.where(known != 0, np.isin(known, only[0]), only[1][fst.nextstate[arc]])
        # An HMM whose states lead back, such as silence, would be followed without end.
        back = np.flatnonzero(moves & (label != 0) & (target[label] <= place[path]))
        way = path[back]
        keys = np.stack((fst.nextstate[arc[back]], word[way] + output[back], node[way]), axis=1)
        for at, key in zip(back.tolist(), map(tuple, keys.tolist()), strict=True):
            moves[at] = key not in returned
            returned.add(key)
        path, arc, output, phone = path[moves], arc[moves], output[moves], phone[moves]
        place = np.where(label[moves] != 0, target[label[moves]], place[path])
        state = fst.nextstate[arc].astype(np.int64)
        word, node, ended = word[path] + output, node[path].copy(), ended[path]
        cost = cost[path] + costs[arc]
        said = np.flatnonzero(phone)
        parents.append(node[said])
        phones.append(phone[said])
        node[said] = nodes + np.arange(len(said))
        nodes += len(said)
        place[said] = 0
        ended[said] = np.isin(kinds[phone[said]], (_END, _ALONE))
        done = ended & (word != 0)
        found.append(tuple(each[done] for each in (word, state, cost, node)))
        state, word, node, place = (each[~done] for each in (state, word, node, place))
        ended, cost = ended[~done], cost[~done]
    word, state, cost, node = (np.concatenate(column) for column in zip(*found, strict=True))
    return WordPaths(word, state, cost, node, np.concatenate(parents), np.concatenate(phones))
