"""C++'s `std::shuffle` as the GNU library has it, with two of its generators.

Source: libstdc++'s `bits/stl_algo.h` (`shuffle`) and `bits/uniform_int_dist.h`; the C++ standard
(`std::mt19937`, `std::minstd_rand0`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

_BLOCK = 1024


class Engine:
    """A generator of random integers.

    Attributes:
        span: the largest difference of two of its numbers.
    """

    def __init__(self, span: int, numbers: Iterator[int]) -> None:
        self.span = span
        self._numbers = numbers

    def below(self, bound: int) -> int:
        """An integer from 0 to `bound` - 1, all equally likely."""
        scale = self.span // bound
        while True:
            number = next(self._numbers)  # less the smallest that there is
            if number < scale * bound:
                return number // scale


def mersenne32(seed: int) -> Engine:
    """`std::mt19937`."""

    def numbers() -> Iterator[int]:
        random = np.random.RandomState(seed & 0xFFFFFFFF)
        while True:
            yield from random.randint(0, 1 << 32, _BLOCK, dtype=np.uint32).tolist()

    return Engine((1 << 32) - 1, numbers())


def minimal_standard(seed: int) -> Engine:
    """`std::minstd_rand0`, the GNU library's default."""
    modulus = (1 << 31) - 1

    def numbers() -> Iterator[int]:
        state = seed % modulus or 1
        while True:
            state = 16807 * state % modulus
            yield state - 1

    return Engine(modulus - 2, numbers())


def shuffled(count: int, engine: Engine) -> list[int]:
    """The numbers below `count` in random order."""
    order = list(range(count))
    for place, other in _exchanges(count, engine.below, engine.span):
        order[place], order[other] = order[other], order[place]
    return order


def _exchanges(count: int, below: Callable[[int], int], span: int) -> Iterator[tuple[int, int]]:
    """Places whose contents change places, in turn."""
    place = 1
    if count and span // count >= count:
        # One random number is enough for two places.
        if count % 2 == 0:
            yield 1, below(2)
            place = 2
        while place < count:
            first, second = divmod(below((place + 1) * (place + 2)), place + 2)
            yield place, first
            yield place + 1, second
            place += 2
        return
    for place in range(1, count):
        yield place, below(place + 1)
