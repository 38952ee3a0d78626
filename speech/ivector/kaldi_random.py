"""The random numbers of Kaldi's programs. Source: `base/kaldi-math.cc`, `SetRandn` of matrices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...framework.base.algorithms.glibc_rand import GlibcRand, rand_r

_BLOCK = 1024
_SPACING = 27437  # from a number of `rand` to the seed of a matrix
_HIGHEST = 2**31 - 1


class KaldiRandom:
    """Numbers of a program that has called `srand(seed)`, which is 1 where it has not."""

    def __init__(self, seed: int = 1) -> None:
        self._numbers = c_rand(seed)

    def integer(self, count: int) -> int:
        """A number from 0 to `count` - 1."""
        return next(self._numbers) % count if count > 1 else 0

    def happens(self, probability: float) -> bool:
        """True with a probability above 0, at most 1."""
        if probability == 1.0:
            return True
        drawn = np.float32(next(self._numbers))
        return bool(drawn < np.float32(2**31) * np.float32(probability))

    def normals(self, count: int) -> np.ndarray:
        """Numbers of the standard normal distribution, float32, [count]."""
        drawn = np.array([next(self._numbers) for _ in range(2 * count)], np.uint32)
        radius, angle = _polar(drawn.reshape(count, 2))
        return radius * _rounded(np.cos(angle))

    def normal_matrix(self, rows: int, columns: int) -> np.ndarray:
        """The same as Kaldi fills a matrix with them: float32, [rows, columns]."""
        seed = next(self._numbers) + _SPACING
        pairs = (columns + 1) // 2
        drawn = rand_r(seed, 2 * rows * pairs).reshape(rows, pairs, 2)
        radius, angle = _polar(drawn)
        cosines, sines = radius * _rounded(np.cos(angle)), radius * _rounded(np.sin(angle))
        return np.stack((cosines, sines), axis=-1).reshape(rows, -1)[:, :columns]


def c_rand(seed: int = 1) -> Iterator[int]:
    """The numbers of C's `rand()` after `srand(seed)`."""
    random = GlibcRand(seed)
    while True:
        yield from random.rand(_BLOCK).tolist()


def _polar(drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Length, float32, and angle of points in the plane of two numbers each, [..., 2]: functions
    are computed in float64, since float32 gives other last bits on other processors."""
    uniform = _rounded((drawn + 1.0) / (_HIGHEST + 2.0)).astype(np.float64)
    logarithms = np.float32(-2) * _rounded(np.log(uniform[..., 0]))
    return np.sqrt(logarithms), _rounded(2 * np.pi * uniform[..., 1]).astype(np.float64)


def _rounded(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32)
