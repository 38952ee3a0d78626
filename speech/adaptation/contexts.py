"""The decision tree of a model, read back from its graph: which outputs phones have in context."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import FormatError
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


def _walked(fst: Fst, ids: TransitionIds) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """States with the phone before them, [pairs] each; phones and the transition-ids after them,
    [labels, 2], and how many arcs have these."""
    label = np.where(fst.ilabel > ids.count, 0, fst.ilabel)
    loop = np.array(ids.is_loop)
    leaves = np.where(np.array(ids.is_last) & ~loop, ids.phone, 0)
    span = max(ids.phone) + 1
    first = np.full(fst.states, -1)  # a state with one phone before it is the rule
    more: set[int] = set()
    keys = np.array([fst.start * span])
    first[fst.start] = 0
    levels, said = [], []
    while len(keys):
        levels.append(keys)
        state, left = keys // span, keys % span
        path, arc = spread(fst.begin[state], np.diff(fst.begin)[state])
        kept = ~loop[label[arc]]
        path, arc = path[kept], arc[kept]
        here, before = label[arc], left[path]
        said.append((before * len(loop) + here)[here > 0])
        after = np.where(leaves[here] > 0, leaves[here], before)
        keys = np.unique(fst.nextstate[arc].astype(np.int64) * span + after)
        state = keys // span
        known = first[state]
        is_first = np.concatenate(([True], state[1:] != state[:-1]))[: len(state)] & (known < 0)
        first[state[is_first]] = (keys % span)[is_first]
        others = keys[~is_first & (known != keys % span)].tolist()
        fresh = np.array([key for key in others if key not in more], np.int64)
        more.update(fresh.tolist())
        keys = np.concatenate((keys[is_first], fresh))
    pairs = np.concatenate(levels)
    labels, counts = np.unique(np.concatenate(said), return_counts=True)
    both = np.stack((labels // len(loop), labels % len(loop)), axis=1)
    return pairs // span, pairs % span, both, counts


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
