"""N-gram models with back-off as arrays by order: a trie, each order sorted by context and word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.python.cached import cached_property
from ...framework.base.sequence import bincount

BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"
NO_PROBABILITY = -99.0
"""log10 of a probability that is 0, as ARPA files have it."""


def natural_log(log10: np.ndarray) -> np.ndarray:
    """Natural logarithms, float32, rounded where Kaldi rounds."""
    return (log10.astype(np.float32) * np.log(10.0)).astype(np.float32)


@dataclass(eq=False)
class Ngrams:
    """The n-grams of one order n, sorted by `key`.

    Attributes:
        context: the row of the first n - 1 words among the n-grams of the order before, int64;
            0 for n = 1. word: the last word, int64; for n = 1 the row itself.
        log10: of the probability, float64. backoff: log10 of the weight of shorter contexts where
            these words are the context, float64; 0 where they are none.
        words: how many words the model has.
    """

    context: np.ndarray
    word: np.ndarray
    log10: np.ndarray
    backoff: np.ndarray
    words: int

    def __len__(self) -> int:
        return len(self.word)

    @cached_property
    def key(self) -> np.ndarray:
        """Context and word as one number, int64, ascending."""
        return self.context * self.words + self.word

    def find(self, context: np.ndarray, word: np.ndarray) -> np.ndarray:
        """The rows of n-grams, int64; -1 for those that there are not, or whose context is -1."""
        if not len(self):
            return np.full(np.broadcast(context, word).shape, -1)
        wanted = context * self.words + word
        row = np.minimum(np.searchsorted(self.key, wanted), len(self) - 1)
        return np.where((self.key[row] == wanted) & (context >= 0) & (word >= 0), row, -1)


@dataclass(eq=False)
class NgramModel:
    """An n-gram model with back-off, as ARPA files describe it.

    Attributes:
        vocabulary: the words, by the rows of `orders[0]`. orders: its n-grams, from n = 1 on.
    """

    vocabulary: list[str]
    orders: list[Ngrams]

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """The number of each word."""
        return {word: number for number, word in enumerate(self.vocabulary)}

    @property
    def order(self) -> int:
        """The length of its longest n-grams."""
        return len(self.orders)

    def number(self, word: str) -> int:
        """The number of a word, the number of `<unk>` for others, -1 where the model has none."""
        return self.numbers.get(word, self.numbers.get(UNKNOWN, -1))

    @cached_property
    def tails(self) -> list[list[np.ndarray]]:
        """`tails[n][j]`: the row, of order j, of the last j words of each n-gram of order n.

        -1 where there is no such n-gram; the only row of order 0 is the empty context.
        """
        empty = np.zeros(1, np.int64)
        tails = [[empty]]
        for order, ngrams in enumerate(self.orders, 1):
            rows = [np.zeros(len(ngrams), np.int64)]
            for j in range(1, order):
                context = tails[order - 1][j - 1][ngrams.context]
                rows.append(self.orders[j - 1].find(context, ngrams.word))
            tails.append([*rows, np.arange(len(ngrams))])
        return tails

    def scored(
        self, contexts: Sequence[np.ndarray], word: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The probability of each word after its context, and what order of n-gram gave it.

        Args:
            contexts: of each order j from 0 on, the rows of the last j words before, int64,
                [positions]; -1 where there is no such n-gram. word: the words, int64.

        Returns:
            log10, float64, with minus infinity for words that are -1; orders, int64, 0 for those.
        """
        total = np.zeros(len(word))
        used = np.zeros(len(word), np.int64)
        for order in range(len(contexts), 0, -1):
            context = contexts[order - 1]
            ngrams = self.orders[order - 1]
            row = np.where(used == 0, ngrams.find(context, word), -1)
            found = row >= 0
            total[found] += ngrams.log10[row[found]]
            used[found] = order
            if order > 1:
                shorter = (used == 0) & (context >= 0)
                total[shorter] += self.orders[order - 2].backoff[context[shorter]]
        total[used == 0] = -np.inf
        return total, used

    def tails_of(self, order: int, rows: np.ndarray) -> list[np.ndarray]:
        """What `scored` takes as contexts: n-grams of an order, with all that they end in."""
        return [tail[rows] for tail in self.tails[order][: order + 1]]

    def shorter(self, order: int) -> np.ndarray:
        """log10 of the probabilities of the n-grams of an order, without their first word."""
        ngrams = self.orders[order - 1]
        contexts = self.tails_of(order - 1, ngrams.context)[: order - 1]
        return self.scored(contexts, ngrams.word)[0]

    def is_event(self, order: int) -> np.ndarray:
        """Whether an n-gram has a probability: not those that end in `<s>`."""
        return self.orders[order - 1].word != self.numbers.get(BEGIN, -1)

    def with_backoffs(self) -> NgramModel:
        """The same n-grams and probabilities, with back-off weights that make every context add
        up to 1."""
        made = NgramModel(self.vocabulary, [])
        for order, ngrams in enumerate(self.orders, 1):
            made.orders.append(
                Ngrams(ngrams.context, ngrams.word, ngrams.log10, np.zeros(len(ngrams)), self.words)
            )
            if order > 1:
                left, left_shorter = made.left_over(order)
                weight = np.where(
                    left_shorter > 0, left / np.where(left_shorter > 0, left_shorter, 1), 1
                )
                is_context = bincount(ngrams.context, minlength=len(left)) > 0
                backoff = np.where(
                    is_context & (weight > 0), np.log10(np.maximum(weight, 1e-99)), 0.0
                )
                backoff[is_context & (weight <= 0)] = NO_PROBABILITY
                made.orders[order - 2].backoff = backoff
        return made

    @property
    def words(self) -> int:
        """How many words it has."""
        return len(self.vocabulary)

    def left_over(self, order: int) -> tuple[np.ndarray, np.ndarray]:
        """What the n-grams of an order leave of 1, for each context: by their own probabilities,
        and by probabilities of shorter contexts. float64, [n-grams of the order before]."""
        ngrams, event = self.orders[order - 1], self.is_event(order)
        rows = len(self.orders[order - 2])

        def left(log10: np.ndarray) -> np.ndarray:
            mass = np.where(event, 10.0**log10, 0)
            rest = 1 - bincount(ngrams.context, mass, minlength=rows)
            # What rounding leaves of contexts that all words follow is no probability.
            return np.where(rest > 1e-9, rest, 0)

        return left(ngrams.log10), left(self.shorter(order))

    @classmethod
    def of_rows(
        cls,
        vocabulary: list[str],
        rows: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]],
    ) -> tuple[NgramModel, list[np.ndarray]]:
        """A model of n-grams in any order.

        Args:
            vocabulary: the words of the first order, in the order of its rows.
            rows: of each order n: words, int64, [n-grams, n]; log10 of probabilities and of
                back-off weights, float64.

        Returns:
            The model; for each order, what row of those given is each of its rows: those whose
            context is no n-gram of the model are left out, and doubles but the first.
        """
        model, taken = cls(vocabulary, []), []
        count = len(vocabulary)
        for order, (words, log10, backoff) in enumerate(rows, 1):
            context = np.zeros(len(words), np.int64)
            for j in range(order - 1):
                context = model.orders[j].find(context, words[:, j])
            key = context * count + words[:, -1]
            known = np.flatnonzero((context >= 0) & (words[:, -1] >= 0))
            first = known[np.unique(key[known], return_index=True)[1]]
            last = words[first, -1]
            model.orders.append(Ngrams(context[first], last, log10[first], backoff[first], count))
            taken.append(first)
        return model, taken

    def row_words(self, order: int) -> np.ndarray:
        """The words of the n-grams of an order, int64, [n-grams, order]."""
        columns = []
        rows = np.arange(len(self.orders[order - 1]))
        for j in range(order, 0, -1):
            ngrams = self.orders[j - 1]
            columns.append(ngrams.word[rows])
            rows = ngrams.context[rows]
        return np.stack(columns[::-1], 1)

    def need(self, *words: str) -> None:
        """Raises FormatError: the model lacks one of these words."""
        for word in words:
            if word not in self.numbers:
                raise FormatError(f"the language model has no {word}")
