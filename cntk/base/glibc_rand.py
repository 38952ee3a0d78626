"""The integers that CNTK makes from C's `rand`, and the orders that it makes from these.

Source: CNTK's `Common/Include/RandomOrdering.h`.
"""

from __future__ import annotations

import numpy as np

from ...framework.base.algorithms.glibc_rand import GlibcRand
from .mersenne import numbers_of

_TRIES = 5
RAND_MAX = (1 << 31) - 1


class WideRand(GlibcRand):
    """`rand` with CNTK's integers of two numbers each."""

    def draw(self, count: int) -> np.ndarray:
        """CNTK's wide integers, uint64, [count]: `rand() * RAND_MAX + rand()`, computed in C's int,
        which wraps, and then widened with its sign."""
        pairs = self.rand(2 * count).reshape(count, 2)
        low = pairs[:, 0] * np.uint32(RAND_MAX) + pairs[:, 1]
        return low.view(np.int32).astype(np.int64).view(np.uint64)


def nearby_order(count: int, half: int | None, seed: int) -> np.ndarray:
    """CNTK's RandomOrdering: the numbers below `count`, each exchanged with one near it.

    Args:
        half: how far a number may move; None: anywhere.
        seed: of the generator.
    """
    order = list(range(count))
    random = WideRand(seed)
    if half is None or half > count:
        for t, j in enumerate((random.draw(count) % np.uint64(max(count, 1))).tolist()):
            order[t], order[j] = order[j], order[t]
        return np.array(order, np.int64)
    numbers = numbers_of(random)
    for t in range(count if half else 0):
        low = max(t - half, 0)
        high = min(t + half, count)
        for _ in range(_TRIES):
            j = low + next(numbers) % (high - low)
            if j <= order[t] + half and order[t] < j + half:
                if t <= order[j] + half and order[j] < t + half:
                    order[t], order[j] = order[j], order[t]
                    break
    return np.array(order, np.int64)
