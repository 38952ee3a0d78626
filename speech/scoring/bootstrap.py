"""Confidence intervals of word error rates: sentences drawn at random, again and again.

Source: Bisani and Ney, "Bootstrap estimates for confidence intervals in ASR performance
evaluation", 2004; Kaldi's `bin/compute-wer-bootci.cc`, whose results depend on its random numbers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

_LAGS = 3, 31
_SKIPPED = 310
_BLOCK = 4096
_AT_ONCE = 1 << 20


class CRandom:
    """The numbers of the function `rand` of GNU's C library where nothing seeded it.

    Each is the sum of those 3 and 31 before it, modulo 2^32, without its last bit.
    """

    def __init__(self) -> None:
        first = [1]
        while len(first) < _LAGS[1]:
            first.append(16807 * first[-1] % 0x7FFFFFFF)
        # Row i holds what number i is made of, out of the 31 numbers before the block.
        rows = np.zeros((_BLOCK + _LAGS[1], _LAGS[1]), np.uint32)
        rows[: _LAGS[1]] = np.eye(_LAGS[1], dtype=np.uint32)
        for at in range(_LAGS[1], len(rows)):
            rows[at] = rows[at - _LAGS[0]] + rows[at - _LAGS[1]]
        self._rows = rows[_LAGS[1] :]
        # The numbers 31 to 33 repeat the first three; the sums begin after them.
        self._state = np.array(first[3:] + first[:3], np.uint32)
        self._ready = np.empty(0, np.uint32)
        self.take(_SKIPPED)

    def take(self, count: int) -> np.ndarray:
        """The next numbers, from 0 to 2^31 - 1, int64."""
        blocks = [self._ready]
        missing = count - len(self._ready)
        while missing > 0:
            block = self._rows @ self._state
            self._state = block[-_LAGS[1] :]
            blocks.append(block)
            missing -= _BLOCK
        numbers = np.concatenate(blocks)
        self._ready = numbers[count:]
        return (numbers[:count] >> 1).astype(np.int64)


class Interval(NamedTuple):
    """A word error rate, and how far from it 95% of others are; both as parts of 1, float32."""

    mean: np.float32
    half: np.float32


class Bootstrap:
    """Draws as many sentences as there are, several times.

    Args:
        sentences: how many. replications: how often they are drawn.
    """

    def __init__(self, sentences: int, replications: int) -> None:
        self._sentences = sentences
        self._replications = replications
        self._random = CRandom()

    def _sums(self, values: np.ndarray) -> np.ndarray:
        """Sums of the rows of `values` [sentences, n] that are drawn, [replications, n]."""
        count = self._sentences
        each = max(_AT_ONCE // count, 1)
        sums: list[np.ndarray] = []
        for begin in range(0, self._replications, each):
            draws = min(each, self._replications - begin)
            # Of one sentence Kaldi draws no number.
            chosen = self._random.take(draws * count) % count if count > 1 else np.zeros(draws, int)
            sums.append(values[chosen.reshape(draws, count)].sum(1))
        return np.concatenate(sums)

    def interval(self, errors: np.ndarray, words: np.ndarray) -> Interval:
        """The rate of errors of sentences; sums are rounded to float32 as Kaldi's are."""
        drawn = self._sums(np.stack([errors, words], 1)).astype(np.float32)
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = drawn[:, 0] / drawn[:, 1]
            count = np.float32(self._replications)
            mean = np.cumsum(rates)[-1] / count
            spread = np.cumsum(rates * rates)[-1] / count - mean * mean
        half = math.sqrt(spread) if spread >= 0 else math.nan
        return Interval(mean, np.float32(1.96 * half))

    def improvement(self, errors: np.ndarray, others: np.ndarray) -> np.float32:
        """How often the others are fewer, as a part of 1."""
        drawn = self._sums((errors - others)[:, None])
        return np.float32(np.count_nonzero(drawn > 0)) / np.float32(self._replications)
