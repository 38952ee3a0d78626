"""The 64-bit Mersenne Twister, CNTK's generator on the CPU; NumPy has the 32-bit one only.

Source: Matsumoto and Nishimura 1998; C++'s `std::mt19937_64`, whose numbers these are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from ...framework.fusion.compiled import native
from ...framework.fusion.compiled.arguments import bind

_SIZE = 312
_MIDDLE = 156
# Arrays without dimensions: ufuncs take them faster than scalars.
_MATRIX = np.array(0xB5026F5AA96619E9, np.uint64)
_UPPER = np.array(0xFFFFFFFF80000000, np.uint64)
_LOWER = np.array(0x7FFFFFFF, np.uint64)
_SEED_FACTOR = 6364136223846793005
_MASK = (1 << 64) - 1
_ONE = np.array(1, np.uint64)
_TEMPERING = (  # shift (to the left if negative) and mask
    (29, np.uint64(0x5555555555555555)),
    (-17, np.uint64(0x71D67FFFEDA60000)),
    (-37, np.uint64(0xFFF7EEE000000000)),
    (43, np.uint64(_MASK)),
)


_MANY = 8
"""Turns of the state from which it is worth loading the native library, some ten times as fast."""


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
        self._mixed, self._odd = np.empty((2, _MIDDLE), np.uint64)

    def draw(self, count: int) -> np.ndarray:
        """The next `count` integers, uint64, [count]."""
        ready = self._ready
        if count > len(ready):
            turns = -(-(count - len(ready)) // _SIZE)
            new = np.empty((turns, _SIZE), np.uint64)
            library = native.load("mersenne") if turns >= _MANY else None
            if library is not None:
                bind(library, "mersenne64", turns=turns, state=self._state, out=new).run()
            else:
                for row in new:
                    self._turn()
                    row[:] = self._state
                _temper(new)
            ready = np.concatenate([ready, new.reshape(-1)]) if len(ready) else new.reshape(-1)
        self._ready = ready[count:]
        return ready[:count]

    def fill_uniform(self, out: np.ndarray, low: float, span: float, high: float) -> bool:
        """Fill an array from a state that nothing was drawn from with low + span u, u in [0, 1),
        leaving out what is not below `high`.

        Args:
            out: [N], float32 or float64, in which all is computed.

        Returns:
            Whether it was done: not without the native library.
        """
        library = native.load("mersenne") if out.size >= _MANY * _SIZE else None
        if library is None:
            return False
        fields = {"count": out.size, "single": out.dtype == np.float32, "state": self._state}
        bind(library, "uniform", out=out, low=low, span=span, high=high, **fields).run()
        return True

    def below(self, bound: int) -> int:
        """The next integer modulo `bound`."""
        return int(self.draw(1)[0]) % bound

    def _turn(self) -> None:
        """Moves the state on. Each half depends on the other half as it is by then."""
        state = self._state
        low, high = state[:_MIDDLE], state[_MIDDLE:]
        self._twist(low, state[1 : _MIDDLE + 1])
        np.bitwise_xor(high, self._mixed, low)
        self._twist(high, state[_MIDDLE + 1 :], state[0])
        np.bitwise_xor(low, self._mixed, high)

    def _twist(self, here: np.ndarray, after: np.ndarray, last: np.integer | None = None) -> None:
        """The next state from numbers and their successors; `last` follows the last number."""
        mixed, odd = self._mixed, self._odd
        np.bitwise_and(after, _LOWER, odd[: len(after)])
        if last is not None:
            odd[-1] = last & _LOWER
        np.bitwise_and(here, _UPPER, mixed)
        np.bitwise_or(mixed, odd, mixed)
        np.bitwise_and(odd, _ONE, odd)
        np.multiply(odd, _MATRIX, odd)
        np.right_shift(mixed, _ONE, mixed)
        np.bitwise_xor(mixed, odd, mixed)


def _temper(numbers: np.ndarray) -> None:
    work = np.empty_like(numbers)
    for shift, mask in _TEMPERING:
        if shift > 0:
            np.right_shift(numbers, np.uint64(shift), work)
        else:
            np.left_shift(numbers, np.uint64(-shift), work)
        np.bitwise_and(work, mask, work)
        np.bitwise_xor(numbers, work, numbers)


def shuffled(count: int, random: Random) -> np.ndarray:
    """The numbers below `count` in random order, as CNTK's RandomShuffleMT puts them."""
    order = list(range(count))
    if count:
        places = (random.draw(count) % np.uint64(count)).tolist()
        for i, j in enumerate(places):
            order[i], order[j] = order[j], order[i]
    return np.array(order, np.int64)


def numbers_of(random: Random) -> Iterator[int]:
    """The numbers of a generator, one by one."""
    while True:
        yield from random.draw(4096).tolist()
