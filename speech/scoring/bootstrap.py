"""Confidence intervals of word error rates: sentences drawn at random, again and again.

Source: Bisani and Ney, "Bootstrap estimates for confidence intervals in ASR performance
evaluation", 2004; Kaldi's `bin/compute-wer-bootci.cc`, whose results depend on its random numbers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...framework.base.algorithms.glibc_rand import GlibcRand

_AT_ONCE = 1 << 20


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
        self._random = GlibcRand(1)  # as `rand` begins where nothing seeded it

    def _sums(self, values: np.ndarray) -> np.ndarray:
        """Sums of the rows of `values` [sentences, n] that are drawn, [replications, n]."""
        count = self._sentences
        each = max(_AT_ONCE // count, 1)
        sums: list[np.ndarray] = []
        for begin in range(0, self._replications, each):
            draws = min(each, self._replications - begin)
            # Of one sentence Kaldi draws no number.
            if count > 1:
                chosen = self._random.rand(draws * count) % np.uint32(count)
            else:
                chosen = np.zeros(draws, int)
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
