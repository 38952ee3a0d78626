"""The decision tree of a model, read back from its graph: which outputs phones have in context."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.sequence import bincount
from ...kaldi.files.context_dependency import PDF_CLASS, ContextDependency, Leaf, Table
from ...kaldi.files.transition_model import TransitionModel
from ...kaldi.fst.arcs import spread
from ...kaldi.fst.fst import Fst
from ...kaldi.lattices.transition_ids import TransitionIds

Pair = tuple[int, int]
"""A phone, 0 at the beginning, and the phone after it."""


@dataclass(frozen=True, eq=False)
class Contexts:
    """What the paths of a graph say.

    Attributes:
        state, left: each state that paths come to, with the last phone that they have left, int64.
        tree: for windows of two phones. A pair that the graph lacks has the outputs that the second
            phone has after the one that it follows most often.
        seen: pairs of phones in the graph.
    """

    state: np.ndarray
    left: np.ndarray
    tree: ContextDependency
    seen: frozenset[Pair]


def graph_contexts(fst: Fst, ids: TransitionIds, model: TransitionModel) -> Contexts:
    """Follow all paths of a graph.

    Args:
        fst: labels beyond the transition-ids are disambiguation symbols.

    Raises:
        FormatError: a phone has several outputs after the same phone: the model looks further.
    """
    state, left, labels, counts = _walked(fst, ids)
    often: Counter[Pair] = Counter()
    outputs: dict[Pair, dict[int, int]] = {}
    for (before, ident), count in zip(labels.tolist(), counts.tolist(), strict=True):
        phone, place, *pdfs = model.tuples[ids.state[ident] - 1].tolist()
        hmm_state = model.entries[model.entry_of[phone]][place]
        often[before, phone] += count
        known = outputs.setdefault((before, phone), {})
        for number, pdf in ((hmm_state.forward, pdfs[0]), (hmm_state.self_loop, pdfs[-1])):
            if known.setdefault(number, pdf) != pdf:
                raise FormatError(
                    f"phone {phone} has the outputs {known[number]} and {pdf} after phone {before}:"
                    " the contexts of the model are wider than one phone to the left"
                )
    return Contexts(state, left, _tree(outputs, often), frozenset(outputs))


class _Lefts:
    """The phones that paths have left before each state: one, as a rule.

    Attributes:
        first: the only or first one of each state; -1: no path leads there.
    """

    def __init__(self, states: int, span: int) -> None:
        self.first = np.full(states, -1, np.int32)
        self._span = span
        self._more: set[int] = set()

    def add(self, state: np.ndarray, phone: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Add pairs of a state and a phone; returns those that are new."""
        new = np.flatnonzero(self.first[state] < 0)
        self.first[state[new]] = phone[new]
        others = np.flatnonzero(self.first[state] != phone)
        keys = set((state[others].astype(np.int64) * self._span + phone[others]).tolist())
        keys -= self._more
        self._more |= keys
        fresh = np.unique(state[new])
        more = self._split(keys)
        return np.append(fresh, more[0]), np.append(self.first[fresh], more[1])

    def more(self) -> tuple[np.ndarray, np.ndarray]:
        """The pairs of states that have several, but for the first one of each."""
        return self._split(self._more)

    def _split(self, keys: set[int]) -> tuple[np.ndarray, np.ndarray]:
        sorted_keys = np.array(sorted(keys), np.int64)
        return sorted_keys // self._span, sorted_keys % self._span


def _walked(fst: Fst, ids: TransitionIds) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """States with the phone before them, [pairs] each; phones and the transition-ids after them,
    [labels, 2], and how many arcs have these."""
    loop = np.array(ids.is_loop)
    leaves = np.where(np.array(ids.is_last) & ~loop, ids.phone, 0).astype(np.int32)
    label = np.where(fst.ilabel > ids.count, 0, fst.ilabel)
    source = fst.source()
    left = leaves[label]
    span = max(ids.phone) + 1
    lefts = _Lefts(fst.states, span)
    leaving = np.flatnonzero(left)
    lefts.first[fst.nextstate[leaving]] = left[leaving]
    lefts.add(fst.nextstate[leaving], left[leaving])
    lefts.add(np.array([fst.start]), np.zeros(1, np.int32))
    # What leaves no phone passes on the one before it.
    quiet = np.flatnonzero((left == 0) & ~loop[label])
    counts = bincount(source[quiet], minlength=fst.states)
    begin = np.cumsum(counts) - counts
    state = np.flatnonzero((counts > 0) & (lefts.first >= 0))
    phone = lefts.first[state]
    state, phone = (np.append(*pair) for pair in zip((state, phone), lefts.more(), strict=True))
    while len(state):
        path, at = spread(begin[state], counts[state])
        state, phone = lefts.add(fst.nextstate[quiet[at]], phone[path])
    known = np.flatnonzero(lefts.first >= 0)
    state, phone = lefts.more()
    said = np.flatnonzero((label > 0) & ~loop[label])
    keys = lefts.first[source[said]] * np.int64(len(loop)) + label[said]
    path, arc = spread(fst.begin[state], np.diff(fst.begin)[state])
    more = (phone[path] * len(loop) + label[arc])[(label[arc] > 0) & ~loop[label[arc]]]
    # Where no path leads the key is below 0.
    counts = bincount(keys[keys > 0], minlength=span * len(loop))
    counts += bincount(more, minlength=span * len(loop))
    keys = np.flatnonzero(counts)
    both = np.stack((keys // len(loop), keys % len(loop)), axis=1)
    return np.append(known, state), np.append(lefts.first[known], phone), both, counts[keys]


def _tree(outputs: dict[Pair, dict[int, int]], often: Counter[Pair]) -> ContextDependency:
    usual: dict[int, int] = {}
    for (before, phone), _ in often.most_common():
        usual.setdefault(phone, before)
    leaves = {pair: _by_class(known) for pair, known in outputs.items()}
    count = max((max(pair) for pair in outputs), default=0) + 1
    children: list[Table | None] = [None] * count
    for phone, most in usual.items():
        after = (leaves.get((before, phone), leaves[most, phone]) for before in range(count))
        children[phone] = Table(0, tuple(after))
    return ContextDependency(2, 1, Table(1, tuple(children)))


def _by_class(known: dict[int, int]) -> Table:
    leaves = (Leaf(known[at]) if at in known else None for at in range(max(known) + 1))
    return Table(PDF_CLASS, tuple(leaves))
