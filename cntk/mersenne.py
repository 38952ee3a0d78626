"""The 64-bit Mersenne Twister, CNTK's generator on the CPU; NumPy has the 32-bit one only.

Source: Matsumoto and Nishimura 1998; C++'s `std::mt19937_64`, whose numbers these are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

_SIZE = 312
_MIDDLE = 156
_MATRIX = np.uint64(0xB5026F5AA96619E9)
_UPPER = np.uint64(0xFFFFFFFF80000000)
_LOWER = np.uint64(0x7FFFFFFF)
_SEED_FACTOR = 6364136223846793005
_MASK = (1 << 64) - 1
_ONE = np.uint64(1)
_TEMPERING = (  # shift (to the left if negative) and mask
    (29, np.uint64(0x5555555555555555)),
    (-17, np.uint64(0x71D67FFFEDA60000)),
    (-37, np.uint64(0xFFF7EEE000000000)),
    (43, np.uint64(_MASK)),
)


class Random(Protocol):
    """A source of random integers."""

    def draw(self, count: int) -> np.ndarray:
        """The next `count` integers, uint64, [count]."""
        ...


class Mersenne64:
    """A stream of random integers of 64 bits.

    Args:
        seed: from 0 to 2**64 - 1.
    """

    def __init__(self, seed: int) -> None:
        state = [seed & _MASK]
        for i in range(1, _SIZE):
            before = state[-1]
            state.append((_SEED_FACTOR * (before ^ before >> 62) + i) & _MASK)
        self._state = np.array(state, np.uint64)
        self._ready = np.empty(0, np.uint64)

    def draw(self, count: int) -> np.ndarray:
        """The next `count` integers, uint64, [count]."""
        parts, missing = [self._ready], count - len(self._ready)
        while missing > 0:
            parts.append(self._turn())
            missing -= _SIZE
        numbers = np.concatenate(parts)
        self._ready = numbers[count:]
        return numbers[:count]

    def below(self, bound: int) -> int:
        """The next integer modulo `bound`."""
        return int(self.draw(1)[0]) % bound

    def _turn(self) -> np.ndarray:
        """Moves the state on; returns its integers, tempered."""
        state = self._state
        # Each half depends on the other half as it is by then.
        state[:_MIDDLE] = state[_MIDDLE:] ^ _twist(state[:_MIDDLE], state[1 : _MIDDLE + 1])
        after = np.append(state[_MIDDLE + 1 :], state[0])
        state[_MIDDLE:] = state[:_MIDDLE] ^ _twist(state[_MIDDLE:], after)
        numbers = state.copy()
        for shift, mask in _TEMPERING:
            if shift > 0:
                numbers ^= (numbers >> np.uint64(shift)) & mask
            else:
                numbers ^= (numbers << np.uint64(-shift)) & mask
        return numbers


def _twist(here: np.ndarray, following: np.ndarray) -> np.ndarray:
    mixed = (here & _UPPER) | (following & _LOWER)
    return (mixed >> _ONE) ^ ((mixed & _ONE) * _MATRIX)


def shuffled(count: int, random: Random) -> np.ndarray:
    """The numbers below `count` in random order, as CNTK's RandomShuffleMT puts them."""
    order = list(range(count))
    if count:
        places = (random.draw(count) % np.uint64(count)).tolist()
        for i, j in enumerate(places):
            order[i], order[j] = order[j], order[i]
    return np.array(order, np.int64)


def numbers_of(random: Random, block: int = 4096) -> Iterator[int]:
    """The numbers of a generator, one by one."""
    while True:
        yield from random.draw(block).tolist()
