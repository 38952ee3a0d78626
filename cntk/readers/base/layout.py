"""How the sequences of a minibatch lie in its columns: parallel sequences, time steps, gaps.

Column t * parallel + s of the minibatch is time step t of slot s. Source: CNTK's `MBLayout`
(`Common/Include/Sequences.h`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ....framework.base.python.cached import cached_property
from ....framework.base.sequence import repeated


@dataclass(eq=False)
class Layout:
    """The layout of a minibatch.

    Attributes:
        parallel: slots side by side.
        steps: time steps of the minibatch.
        slot: of each sequence, int64, [sequences].
        begin, end: the steps at which each begins and ends, int64, [sequences]. A sequence that
            began in an earlier minibatch has begin < 0, one that continues has end > steps.
        first_slot: of a part of a minibatch: which slot of the whole its first one is.
    """

    parallel: int
    steps: int
    slot: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    first_slot: int = 0

    @property
    def columns(self) -> int:
        """Columns of the minibatch, gaps included."""
        return self.parallel * self.steps

    @property
    def samples(self) -> int:
        """Columns that hold a sample."""
        return len(self.column)

    @cached_property
    def _steps(self) -> tuple[np.ndarray, np.ndarray]:
        """Sequence and step of each sample here, sequence after sequence."""
        first = np.maximum(self.begin, 0)
        last = np.minimum(self.end, self.steps)
        counts = last - first
        sequence = repeated(np.arange(len(self.slot)), counts)
        offsets = np.cumsum(counts) - counts
        return sequence, np.arange(int(counts.sum())) + (first - offsets)[sequence]

    @cached_property
    def column(self) -> np.ndarray:
        """The column of each sample, sequence after sequence, int64, [samples]."""
        sequence, step = self._steps
        return step * self.parallel + self.slot[sequence]

    @cached_property
    def sequence(self) -> np.ndarray:
        """The sequence of each sample, int64, [samples]."""
        return self._steps[0]

    def spread(self, rows: np.ndarray) -> np.ndarray:
        """Samples, [samples, ...], in their columns, [columns, ...]; gaps hold zeros."""
        out = np.zeros((self.columns, *rows.shape[1:]), rows.dtype)
        out[self.column] = rows
        return out


def packed(lengths: np.ndarray) -> Layout:
    """Whole sequences: each goes into the first slot that has room, up to the longest one."""
    steps = int(lengths.max(initial=0))
    if (lengths == steps).all():  # no search: single samples may be many
        zeros = np.zeros(len(lengths), np.int64)
        return Layout(len(lengths), steps, np.arange(len(lengths)), zeros, zeros + steps)
    filled: list[int] = []
    slot = np.empty(len(lengths), np.int64)
    begin = np.empty(len(lengths), np.int64)
    for number, length in enumerate(lengths.tolist()):
        place = next((s for s, used in enumerate(filled) if used + length <= steps), len(filled))
        if place == len(filled):
            filled.append(0)
        slot[number], begin[number] = place, filled[place]
        filled[place] += length
    return Layout(len(filled), steps, slot, begin, begin + lengths)


@lru_cache(maxsize=8)  # minibatches of equal size have one layout, whose columns are found once
def frames(count: int) -> Layout:
    """Single samples: every one is a sequence of one step in a slot of its own."""
    return packed(np.ones(count, np.int64))
