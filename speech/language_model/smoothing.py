"""Probabilities of n-grams from their counts, interpolated with shorter contexts.

Source: Chen and Goodman, "An empirical study of smoothing techniques for language modeling" (1998);
the vocabulary and the start of sentences as in Heafield and others, "Scalable modified Kneser-Ney
language model estimation" (2013).
"""

from __future__ import annotations

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.sequence import bincount
from .counting import Counts, Text, counted
from .model import NO_PROBABILITY, NgramModel, Ngrams


def witten_bell(text: Text, order: int) -> NgramModel:
    """The model of a text whose contexts leave to unseen words as much as they had new ones."""
    counts = counted(text, order)
    shares = []
    for ngrams in counts:
        count, rows = _events(ngrams)
        seen = bincount(ngrams.context, count > 0, minlength=rows)
        total = bincount(ngrams.context, count, minlength=rows) + seen
        shares.append((count / np.maximum(total, 1)[ngrams.context], seen / np.maximum(total, 1)))
    return _interpolated(text, counts, shares)


def kneser_ney(text: Text, order: int) -> NgramModel:
    """The model of a text by interpolated modified Kneser-Ney smoothing.

    Raises:
        FormatError: the text has too few n-grams to tell the discounts of an order.
    """
    counts = counted(text, order)
    shares = []
    for place, ngrams in enumerate(counts):
        if place + 1 < len(counts):
            count = _continuations(counts, place)
        else:
            count = ngrams.count
        ngrams = Counts(ngrams.context, ngrams.word, count, ngrams.tail)
        count, rows = _events(ngrams)
        discount = _discounts(count, place + 1)[np.minimum(count, 3)]
        total = np.maximum(bincount(ngrams.context, count, minlength=rows), 1)
        freed = bincount(ngrams.context, discount, minlength=rows)
        shares.append(((count - discount) / total[ngrams.context], freed / total))
    return _interpolated(text, counts, shares)


METHODS = {"kneser-ney": kneser_ney, "witten-bell": witten_bell}
"""Ways of smoothing by name."""


def _events(ngrams: Counts) -> tuple[np.ndarray, int]:
    """Counts except of `<s>` as a word, which has no probability; rows of contexts."""
    count = np.where(ngrams.word == 0, 0, ngrams.count)
    return count, int(ngrams.context.max(initial=0)) + 1


def _continuations(counts: list[Counts], place: int) -> np.ndarray:
    """How many words stand before each n-gram; how often it is there if it begins a sentence."""
    ngrams = counts[place]
    first = ngrams.word if place == 0 else _first_words(counts, place)
    before = bincount(counts[place + 1].tail, minlength=len(ngrams.word))
    return np.where(first == 0, ngrams.count, before)


def _first_words(counts: list[Counts], place: int) -> np.ndarray:
    rows = counts[place].context
    for ngrams in counts[place - 1 : 0 : -1]:
        rows = ngrams.context[rows]
    return rows


def _discounts(count: np.ndarray, order: int) -> np.ndarray:
    """What is taken from counts of 0, 1, 2 and more: float64, [4]."""
    n1, n2, n3, n4 = (int((count == number).sum()) for number in (1, 2, 3, 4))
    if min(n1, n2, n3) > 0:
        y = n1 / (n1 + 2 * n2)
        found = np.array([0, 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3])
        if (found >= 0).all():
            return found
    raise FormatError(
        f"the text is too small for Kneser-Ney smoothing: {n1}, {n2}, {n3} and {n4} {order}-grams"
        " count 1, 2, 3 and 4 times; the method witten-bell takes any text"
    )


def _interpolated(
    text: Text, counts: list[Counts], shares: list[tuple[np.ndarray, np.ndarray]]
) -> NgramModel:
    """The model of each n-gram's own share, and of each context's share for shorter ones."""
    vocabulary = text.vocabulary
    own, rest = shares[0]
    # Words that have no count share what is left with all others; `<s>` is none of them.
    probability = own + rest[0] / (len(vocabulary) - 1)
    orders: list[Ngrams] = []
    for place, ngrams in enumerate(counts):
        if place:
            own, rest = shares[place]
            probability = own + rest[ngrams.context] * probability[ngrams.tail]
            is_context = bincount(ngrams.context, minlength=len(orders[-1])) > 0
            weight = np.zeros(len(is_context))
            weight[: len(rest)] = rest
            orders[-1].backoff[is_context] = _log10(weight[is_context])
        log10 = _log10(probability)
        if not place:
            log10[0] = NO_PROBABILITY
        blank = np.zeros(len(log10))
        orders.append(Ngrams(ngrams.context, ngrams.word, log10, blank, len(vocabulary)))
    return NgramModel(vocabulary, orders)


def _log10(values: np.ndarray) -> np.ndarray:
    return np.log10(np.maximum(values, 10.0**NO_PROBABILITY))
