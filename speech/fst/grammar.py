"""Grammars from lists of phrases: a bigram model with fixed discount, as Vosk makes them.

Source: Vosk's `language_model.cc` and `recognizer.cc`, after Kaldi's `chain/language-model.cc`.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from ...framework.base.errors import OpscopeError
from ...kaldi.fst.arcs import ARC
from ...kaldi.fst.fst import Fst
from .words import Words

_log = logging.getLogger(__name__)

DISCOUNT = 0.5
"""The probability that Vosk leaves to what the phrases have; the rest backs off."""


def phrase_labels(phrases: Iterable[str], words: Words) -> list[list[int]]:
    """The labels of the words of phrases; a warning names the words that the model lacks, which
    are left out. Phrases without any word of the model allow silence alone, as in Vosk."""
    labels_of_phrases = []
    for phrase in phrases:
        labels = []
        for text in phrase.split():
            label = words.find(text)
            if label:
                labels.append(label)
            else:
                _log.warning("a word of the grammar is not in the model, and is left out: %s", text)
        labels_of_phrases.append(labels)
    if not any(labels_of_phrases):
        _log.warning("the grammar has no word of the model: every result will be empty")
    return labels_of_phrases


def grammar_fst(phrases: Sequence[Sequence[int]], discount: float = DISCOUNT) -> Fst:
    """An acceptor of sentences that follow each other as in the phrases.

    The state of each word has arcs to the words that follow it, an end where a phrase ends with it,
    and an epsilon to the state of no context, where each word of the phrases can come.

    Args:
        phrases: labels of words. discount: the probability of what was seen.

    Raises:
        OpscopeError: there is no phrase, or a label is not above 0.
    """
    if not phrases:
        raise OpscopeError("the grammar has no phrase")
    counts: dict[int, Counter[int]] = {0: Counter()}  # by the word before, 0: none
    for phrase in phrases:
        before = 0
        if min(phrase, default=1) < 1:
            raise OpscopeError(f"the grammar has the label {min(phrase)}, which is no word")
        for label in (*phrase, 0):
            counts.setdefault(before, Counter())[label] += 1
            before = label
    for before, following in counts.items():
        if before:
            counts[0].update(following)
    state = {before: number for number, before in enumerate(counts)}
    arcs: list[tuple[int, int, float, int]] = []
    begin = [0]
    final = np.full(len(state), np.inf, np.float32)
    for before, following in counts.items():
        total = sum(following.values())
        if before:
            arcs.append((0, 0, -math.log(1 - discount), 0))
        for label, count in sorted(following.items()):
            cost = -math.log(count * discount / total)
            if label:
                arcs.append((label, label, cost, state[label]))
            else:
                final[state[before]] = cost
        begin.append(len(arcs))
    return Fst(0, final, np.array(begin, np.int64), np.array(arcs, ARC))
