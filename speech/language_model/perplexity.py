"""What a model says about a text: probabilities, words that it does not know, perplexity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.sequence import bincount
from .counting import Text
from .model import BEGIN, END, UNKNOWN, NgramModel


@dataclass(frozen=True)
class Perplexity:
    """How well a model foretells a text.

    Attributes:
        sentences, words: how many the text has. unknown: words that the model does not know.
        log10: of the probability of the known words and the ends of sentences.
        log10_unknown: of the others' probability, as `<unk>`; None: the model has no `<unk>`.
        used: how many words had a probability by an n-gram of order 1, 2, and so on.
    """

    sentences: int
    words: int
    unknown: int
    log10: float
    log10_unknown: float | None
    used: tuple[int, ...]

    @property
    def value(self) -> float:
        """The perplexity of known words and ends of sentences."""
        return 10 ** (-self.log10 / max(self.words - self.unknown + self.sentences, 1))

    @property
    def with_unknown(self) -> float | None:
        """The perplexity of all words and ends of sentences; None: the model has no `<unk>`."""
        if self.log10_unknown is None:
            return None
        return 10 ** (-(self.log10 + self.log10_unknown) / (self.words + self.sentences))


def word_scores(model: NgramModel, text: Text) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """log10 of the probability of each word of a text that is no `<s>`.

    Returns:
        float64, minus infinity for words that are unknown to a model without `<unk>`; the order
        of the n-gram that it came from, int64; whether the model knows the word.

    Raises:
        FormatError: the model has no `<s>` or no `</s>`.
    """
    model.need(BEGIN, END)
    number = np.array([model.number(word) for word in text.vocabulary], np.int64)
    is_known = np.array([word in model.numbers for word in text.vocabulary])
    is_known &= np.array([word != UNKNOWN for word in text.vocabulary])
    words = number[text.words]
    begins = text.words == 0
    # rows[j][i]: the n-gram of order j that ends at position i, within its sentence.
    zeros = np.zeros(len(words), np.int64)
    rows = [zeros]
    for order, ngrams in enumerate(model.orders[:-1], 1):
        before = zeros if order == 1 else np.where(begins, -1, np.roll(rows[-1], 1))
        rows.append(ngrams.find(before, words))
    asked = np.flatnonzero(~begins)
    log10, used = model.scored([row[asked - 1] for row in rows], words[asked])
    return log10, used, is_known[text.words[asked]]


def perplexity(model: NgramModel, text: Text) -> Perplexity:
    """How well a model foretells a text.

    Raises:
        FormatError: the model has no `<s>` or no `</s>`, or gives a word no probability.
    """
    log10, used, is_known = word_scores(model, text)
    unknown = int((~is_known).sum())
    if np.isinf(log10[is_known]).any():
        raise FormatError("the language model has a word without a probability")
    others = float(log10[~is_known].sum()) if UNKNOWN in model.numbers else None
    orders = bincount(used[is_known], minlength=model.order + 1)[1:]
    return Perplexity(
        text.sentences,
        len(log10) - text.sentences,
        unknown,
        float(log10[is_known].sum()),
        others,
        tuple(orders.tolist()),
    )
