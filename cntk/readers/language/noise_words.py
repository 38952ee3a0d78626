"""Words drawn by their frequency, as CNTK's LMSequenceReader draws noise: the same words.

Boost's `discrete_distribution` keeps an alias table: each word has a share of its own and gives the
rest to another one, so a draw takes one word and one number from 0 to 1. CNTK throws away one word
before each draw and one number after it. Sources: Walker 1977, An efficient method for generating
discrete random variables; Boost.Random 1.47 and later (`discrete_distribution.hpp`,
`uniform_int_distribution.hpp`, `piecewise_constant_distribution.hpp`); CNTK's
`LMSequenceReader/SequenceReader.h` (`noiseSampler`).
"""

from __future__ import annotations

import numpy as np

_SEED = 1234
_SPAN = 1 << 32
_DRAWS = 4  # numbers of the generator for a word


class NoiseWords:
    """A stream of words.

    Args:
        counts: how often each word occurs, not negative, [words].
    """

    def __init__(self, counts: np.ndarray) -> None:
        self.share, self.other = alias_table(counts)
        self._bucket = _SPAN // len(counts)
        self._limit = self._bucket * len(counts)
        self._random = np.random.RandomState(_SEED)
        with np.errstate(divide="ignore"):
            self.logs = np.log(counts / counts.sum())

    def draw(self, count: int) -> np.ndarray:
        """The next words, int64, [count]."""
        if len(self.share) == 1:  # then boost asks for no integer
            self._numbers(2 * count)
            return np.zeros(count, np.int64)
        numbers = self._accepted(count)
        words = (numbers[:, 1] // self._bucket).astype(np.int64)
        own = numbers[:, 2] / _SPAN < self.share[words]
        return np.where(own, words, self.other[words])

    def _numbers(self, count: int) -> np.ndarray:
        return self._random.randint(0, _SPAN, count, dtype=np.uint32)

    def _accepted(self, count: int) -> np.ndarray:
        """Numbers for the words, [count, 4]: the first two of each are below the limit.

        A number above it is passed over, which moves all that follow.
        """
        numbers = self._numbers(_DRAWS * count)
        begin = 0
        while True:
            rows = numbers.reshape(-1, _DRAWS)[begin:, :2]
            bad = np.flatnonzero(rows >= self._limit)
            if not len(bad):
                return numbers.reshape(-1, _DRAWS)
            row, column = divmod(int(bad[0]), 2)
            begin += row
            numbers = np.append(np.delete(numbers, _DRAWS * begin + column), self._numbers(1))


def alias_table(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The share that each word keeps, float64, and the word that gets the rest, int64, [words]."""
    chance = counts / np.cumsum(counts)[-1]
    values = (chance / (np.cumsum(chance)[-1] / len(counts))).tolist()
    below = [word for word, value in enumerate(values) if value < 1]
    above = [word for word, value in enumerate(values) if not value < 1]
    share = np.ones(len(counts))
    other = np.zeros(len(counts), np.int64)
    i = j = 0
    while i < len(below) and j < len(above):
        low, high = below[i], above[j]
        share[low], other[low] = values[low], high
        values[high] -= 1 - values[low]
        if values[high] < 1:
            below[i] = high  # the rest of it is small, and is filled up next
            j += 1
        else:
            i += 1
    return share, other
