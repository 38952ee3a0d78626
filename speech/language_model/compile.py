"""N-gram models as FSTs: a state for each history, arcs to shorter ones, the end of sentences.

Semantics: Kaldi's `arpa2fst`.
"""

from __future__ import annotations

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.sequence import bincount
from ...kaldi.fst.algorithms.acceptors import connect
from ...kaldi.fst.fst import Fst
from .model import NgramModel, natural_log


def compiled(
    model: NgramModel, labels: np.ndarray, begin: int, end: int, backoff_label: int = 0
) -> Fst:
    """The FST whose paths are sentences, with the negated natural logarithms of probabilities.

    Args:
        labels: of the model's words, int64; n-grams with a word of label -1 are left out.
        begin, end: the labels of the words that begin and end a sentence; n-grams with the
            first elsewhere than first, or the second elsewhere than last, are left out.
        backoff_label: of arcs to shorter histories, on the input side; sentences then have no
            begin and end. 0: arcs have it, and both are words of the paths.

    Returns:
        With the arcs of a state in no particular order.

    Raises:
        FormatError: no 1-gram has the label `begin`.
    """
    label = [labels[ngrams.word] for ngrams in model.orders]
    if not (label[0] == begin).any():
        raise FormatError("the language model has no word that begins a sentence")
    state, states = _states(model, label, begin, end, 1 if backoff_label else 2)
    final = np.full(states + (not backoff_label), np.inf, np.float32)
    arcs: list[tuple[np.ndarray, ...]] = []
    start = states
    for order, ngrams in enumerate(model.orders, 1):
        source = state[order - 1][ngrams.context]
        cost = _cost(ngrams.log10)
        target = _longest(model, state, order, order - (order == model.order))
        word = label[order - 1]
        kept = (source >= 0) & (word >= 0) & (word != begin)
        ends = kept & (word == end)
        if backoff_label:
            final[source[ends]] = cost[ends]
            kept &= ~ends
        else:
            final[1] = 0
            target = np.where(ends, 1, target)
        if order == 1:
            first = target[word == begin]
            if backoff_label:
                start = int(first[0])
            else:
                arcs.append((np.array([start]), *[np.array([begin])] * 2, np.zeros(1), first[:1]))
        arcs.append((source[kept], word[kept], word[kept], cost[kept], target[kept]))
        if order < model.order:
            rows = np.flatnonzero(state[order] >= 0)
            shorter = _longest(model, state, order, order - 1)[rows]
            label_in = np.full(len(rows), backoff_label)
            weight = _cost(ngrams.backoff)[rows]
            arcs.append((state[order][rows], label_in, np.zeros(len(rows), int), weight, shorter))
    source, ilabel, olabel, weight, target = map(np.concatenate, zip(*arcs, strict=True))
    if backoff_label:
        ilabel[source == start] = _plain_start(source, ilabel, final, start, backoff_label)
        weight = weight.astype(np.float32)
        kept = _without_passing(source, ilabel, weight, target, final, start, backoff_label)
        columns = source, ilabel, olabel, weight, target
        source, ilabel, olabel, weight, target = (column[kept] for column in columns)
    fst = Fst.of_arcs(source, ilabel, weight, target, final, olabel, start)
    return connect(fst) if backoff_label else fst


def _cost(log10: np.ndarray) -> np.ndarray:
    return 0 - natural_log(log10)


def _states(
    model: NgramModel, label: list[np.ndarray], begin: int, end: int, first: int
) -> tuple[list[np.ndarray], int]:
    """The state of each n-gram that is a history, by order; -1: none. How many there are."""
    state = [np.zeros(1, np.int64)]
    count = first
    for order in range(1, model.order):
        ngrams = model.orders[order - 1]
        word = label[order - 1]
        kept = (state[-1][ngrams.context] >= 0) & (word >= 0) & (word != end)
        if order > 1:
            kept &= word != begin
        numbers = np.full(len(ngrams), -1)
        numbers[kept] = count + np.arange(kept.sum())
        count += int(kept.sum())
        state.append(numbers)
    return state, count


def _longest(model: NgramModel, state: list[np.ndarray], order: int, most: int) -> np.ndarray:
    """The state of the longest history, of at most `most` words, that each n-gram ends in."""
    found = np.full(len(model.orders[order - 1]), -1)
    for j in range(most, -1, -1):
        tail = model.tails[order][j]
        found = np.where((found < 0) & (tail >= 0), state[j][tail], found)
    return found


def _plain_start(
    source: np.ndarray, ilabel: np.ndarray, final: np.ndarray, start: int, backoff_label: int
) -> np.ndarray:
    """The input labels of the start's arcs: a lone one to a shorter history is an epsilon."""
    labels = ilabel[source == start]
    is_passing = len(labels) == 1 and labels[0] == backoff_label and np.isinf(final[start])
    return np.zeros_like(labels) if is_passing else labels


def _without_passing(
    source: np.ndarray,
    ilabel: np.ndarray,
    weight: np.ndarray,
    target: np.ndarray,
    final: np.ndarray,
    start: int,
    backoff_label: int,
) -> np.ndarray:
    """Lead arcs past states that only lead on to shorter histories; which arcs are still wanted.

    `weight` and `target` are changed. Nothing can be read in such a state, and without them L
    composed with G has fewer states.
    """
    counts = bincount(source, minlength=len(final))
    passing = (counts[source] == 1) & (ilabel == backoff_label) & np.isinf(final[source])
    passing &= source != start
    following = np.full(len(final), -1)
    cost = np.zeros(len(final), np.float32)
    following[source[passing]] = target[passing]
    cost[source[passing]] = weight[passing]
    # Histories get shorter from arc to arc: this ends.
    while (led := following[target] >= 0).any():
        weight[led] += cost[target[led]]
        target[led] = following[target[led]]
    return ~passing
