"""The decision tree of a model, read back from its graph: which outputs phones have in context."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
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
        source, label: the state that each arc leaves, and its transition-id, 0 where it has none.
        state, left: each state that paths come to, with the last phone that they have left, int64.
        tree: for windows of two phones. A pair that the graph lacks has the outputs that the second
            phone has after the one that it follows most often.
        seen: pairs of phones in the graph.
    """

    source: np.ndarray
    label: np.ndarray
    state: np.ndarray
    left: np.ndarray
    tree: ContextDependency
    seen: frozenset[Pair]


def graph_contexts(
    fst: Fst, ids: TransitionIds, model: TransitionModel, phones: Collection[int] | None = None
) -> Contexts:
    """Follow all paths of a graph.

    Args:
        fst: labels beyond the transition-ids are disambiguation symbols.
        phones: those that the tree and the pairs are wanted of; None: all.

    Raises:
        FormatError: a phone has several outputs after the same phone: the model looks further.
    """
    label = np.where(fst.ilabel > ids.count, 0, fst.ilabel)
    source = fst.source()
    lefts = _lefts(fst, ids, source, label)
    labels, counts = lefts.before(fst, source, label, _spoken(ids, phones))
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
    state, left = lefts.all()
    return Contexts(source, label, state, left, _tree(outputs, often), frozenset(outputs))


def _spoken(ids: TransitionIds, phones: Collection[int] | None) -> np.ndarray:
    """Whether each transition-id is a step of one of some phones; bool."""
    steps = ~np.array(ids.is_loop)
    steps[0] = False
    return steps if phones is None else steps & np.isin(ids.phone, list(phones))


class _Lefts:
    """The phones that paths have left before each state: one, as a rule."""

    def __init__(self, states: int, span: int) -> None:
        self._first = np.full(
            states, -1, np.int32
        )  # the only or first one; -1: no path leads there
        self._span = span
        self._more: set[int] = set()

    def add(self, state: np.ndarray, phone: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Add pairs of a state and a phone; returns those that are new."""
        new = np.flatnonzero(self._first[state] < 0)
        self._first[state[new]] = phone[new]
        others = np.flatnonzero(self._first[state] != phone)
        keys = set((state[others].astype(np.int64) * self._span + phone[others]).tolist())
        keys -= self._more
        self._more |= keys
        is_new = np.zeros(len(self._first), bool)
        is_new[state[new]] = True
        fresh = np.flatnonzero(is_new)
        more = self._split(keys)
        return np.append(fresh, more[0]), np.append(self._first[fresh], more[1])

    def all(self) -> tuple[np.ndarray, np.ndarray]:
        """All pairs."""
        known = np.flatnonzero(self._first >= 0)
        state, phone = self._split(self._more)
        return np.append(known, state), np.append(self._first[known], phone)

    def before(
        self, fst: Fst, source: np.ndarray, label: np.ndarray, wanted: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Phones and the wanted labels after them, [labels, 2], and how many arcs have these."""
        chosen = np.flatnonzero(wanted[label])
        keys = self._first[source[chosen]] * np.int64(len(wanted)) + label[chosen]
        state, phone = self._split(self._more)
        path, arc = spread(fst.begin[state], np.diff(fst.begin)[state])
        more = (phone[path] * len(wanted) + label[arc])[wanted[label[arc]]]
        keys, counts = np.unique(np.append(keys, more), return_counts=True)
        known = keys > 0  # below it where no path leads
        return np.stack(np.divmod(keys[known], len(wanted)), axis=1), counts[known]

    def _split(self, keys: set[int]) -> tuple[np.ndarray, np.ndarray]:
        sorted_keys = np.array(sorted(keys), np.int64)
        return sorted_keys // self._span, sorted_keys % self._span


def _lefts(fst: Fst, ids: TransitionIds, source: np.ndarray, label: np.ndarray) -> _Lefts:
    loop = np.array(ids.is_loop)
    left = np.where(np.array(ids.is_last) & ~loop, ids.phone, 0).astype(np.int32)[label]
    lefts = _Lefts(fst.states, max(ids.phone) + 1)
    leaving = np.flatnonzero(left)
    lefts.add(fst.nextstate[leaving], left[leaving])
    lefts.add(np.array([fst.start]), np.zeros(1, np.int32))
    # What leaves no phone passes on the one before it.
    quiet = np.flatnonzero((left == 0) & ~loop[label])
    counts = bincount(source[quiet], minlength=fst.states)
    begin = np.cumsum(counts) - counts
    state, phone = lefts.all()
    passing = counts[state] > 0
    state, phone = state[passing], phone[passing]
    while len(state):
        path, at = spread(begin[state], counts[state])
        state, phone = lefts.add(fst.nextstate[quiet[at]], phone[path])
    return lefts


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
