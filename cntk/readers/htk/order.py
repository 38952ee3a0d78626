"""The orders of HTKMLFReader: CNTK's first reader of speech, older than the others.

Source: CNTK's `HTKMLFReader/utterancesourcemulti.h` (block randomization), `rollingwindowsource.h`
and `Common/Include/RandomOrdering.h` (rolling window).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...base.glibc_rand import WideRand, nearby_order
from ...base.mersenne import Mersenne64, Random
from ..base.data import Deserializer
from ..base.order import BlockShuffle, Enumerator


class UtteranceShuffle(BlockShuffle):
    """Whole utterances in random order. A minibatch takes further ones while it stays below its
    size, and may reach over the end of the epoch."""

    def _wanted(self, size: int) -> int:
        return min(size, self._epoch_end - self.position) - 1


def block_shuffle(
    source: Deserializer, window: int | None, *, frame_mode: bool, mersenne: bool
) -> BlockShuffle:
    """The order of `readMethod = blockRandomize`, with C's generator or the Mersenne Twister."""
    generator: Callable[[int], Random] = Mersenne64 if mersenne else WideRand
    seeds = (0, 0) if mersenne else (0, 1)
    return (BlockShuffle if frame_mode else UtteranceShuffle)(source, window, generator, seeds)


class RollingWindow(Enumerator):
    """Single frames in the order of the files, or each exchanged with one in a window around it.

    Args:
        source: its sequences are single frames.
        window: frames around each that it may change places with; 0: it stays; None: all.
    """

    def __init__(self, source: Deserializer, window: int | None = 0) -> None:
        super().__init__(source)
        self._half = None if window is None else window // 2
        self._begin = np.cumsum([0] + [chunk.samples for chunk in source.chunks])
        self._sweep = -1
        self._order: np.ndarray | None = None

    def seek(self, position: int) -> None:
        """See `Enumerator.seek`."""
        self.position = position

    def _next(self, most: int) -> np.ndarray:
        sweep, begin = divmod(self.position, self.sweep_size)
        if sweep != self._sweep and self._half != 0:
            self._order = nearby_order(self.sweep_size, self._half, sweep)
            self._sweep = sweep
        self.position += most
        rows = np.arange(begin, begin + most)
        if self._order is not None:
            rows = self._order[rows]
        chunk = np.searchsorted(self._begin, rows, side="right") - 1
        return np.stack([chunk, rows - self._begin[chunk]], axis=1)

    def take_share(self, rank: int, ranks: int) -> bool:
        """See `Enumerator.take_share`: ranks have to cut the minibatches."""
        return ranks == 1

    def _next_share(self, most: int, own: int) -> np.ndarray:
        """See `Enumerator._next_share`; there is only ever one rank."""
        return self._next(most)

    def _needed(self) -> set[int]:
        here = self.position % self.sweep_size
        half = self.sweep_size if self._half is None else self._half
        first = np.searchsorted(self._begin, max(here - half, 0), side="right") - 1
        last = np.searchsorted(self._begin, min(here + half, self.sweep_size - 1), side="right")
        return set(range(int(first), int(last)))
