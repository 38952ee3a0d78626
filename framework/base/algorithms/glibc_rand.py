"""The generator of C's `rand` in the GNU library.

Every number is the sum, modulo 2**32, of those 3 and 31 places before it, less its lowest bit.
Source: glibc's `stdlib/random_r.c` (additive feedback, degree 31).
"""

from __future__ import annotations

from functools import cache

import numpy as np

_DEGREE, _LAG = 31, 3
_DROPPED = 310  # numbers that seeding throws away
_FACTOR = 16807
_MODULUS = (1 << 31) - 1
_BLOCK = 1024


class GlibcRand:
    """`srand(seed)` and `rand()`.

    Args:
        seed: from 0 to 2**32 - 1; 0 counts as 1.
    """

    def __init__(self, seed: int) -> None:
        word = (seed & 0xFFFFFFFF) or 1
        state = [word]
        last = word - (1 << 32) if word >> 31 else word
        for _ in range(_DEGREE - 1):
            # 16807 * last modulo 2**31 - 1 by Schrage's method, which keeps the sign of last.
            high = int(last / 127773)
            last = _FACTOR * (last - 127773 * high) - 2836 * high
            last += _MODULUS if last < 0 else 0
            state.append(last)
        # The first number drawn is the sum of state[3] and state[0]: the window is rotated by 3.
        self._state = np.array(state[_LAG:] + state[:_LAG], np.uint32)
        self._ready = np.empty(0, np.uint32)
        self.rand(_DROPPED)

    def rand(self, count: int) -> np.ndarray:
        """The next `count` results of `rand()`, uint32 below 2**31, [count]."""
        parts = [self._ready]
        missing = count - len(self._ready)
        while missing > 0:
            block = _turn() @ self._state
            self._state = block[-_DEGREE:]
            parts.append(block >> np.uint32(1))
            missing -= _BLOCK
        numbers = np.concatenate(parts)
        self._ready = numbers[count:]
        return numbers[:count]


@cache
def _turn() -> np.ndarray:
    """The next `_BLOCK` words as linear forms of the last 31, uint32, [_BLOCK, 31]."""
    rows = np.zeros((_DEGREE + _BLOCK, _DEGREE), np.uint32)
    rows[:_DEGREE] = np.eye(_DEGREE, dtype=np.uint32)
    for place in range(_DEGREE, len(rows)):
        rows[place] = rows[place - _LAG] + rows[place - _DEGREE]
    return rows[_DEGREE:]


def rand_r(seed: int, count: int) -> np.ndarray:
    """The first `count` results of `rand_r` with this seed, uint32 below 2**31, [count].

    A result joins bits of three words of a linear congruential generator. Source: glibc's
    `stdlib/rand_r.c`.
    """
    factors = np.multiply.accumulate(np.full(3 * count, 1103515245, np.uint32))
    sums = np.cumsum(np.append(np.uint32(1), factors[:-1]), dtype=np.uint32)
    words = (factors * np.uint32(seed & 0xFFFFFFFF) + sums * np.uint32(12345)) >> np.uint32(16)
    high, middle, low = words.reshape(count, 3).T
    return (high % 2048 << 20) ^ (middle % 1024 << 10) ^ (low % 1024)
