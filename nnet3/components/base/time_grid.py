"""Grids of times: how components that look over time order their rows, and where they read.

A component with fixed time offsets wants its rows on a regular grid, t outermost, then the pairs
(n, x), so that one offset is one shift of rows. Times outside the request become padding rows.
Where outputs come less often than inputs, `reorder` consecutive times stay together innermost, and
an offset is a range of rows with a stride.

Sources: Kaldi's `nnet3/convolution.cc`, `nnet-tdnn-component.cc`, `nnet-attention-component.cc`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....framework.base.errors import ShapeError
from ...index.indexes import N_BITS, NO_TIME, Columns, IndexList, is_among, pack_tx


def sort_keys(indexes: np.ndarray) -> np.ndarray:
    """An int64 for every row, different for different rows; the rows must have a time."""
    n, t, x = indexes.T
    return (pack_tx(t, x) << N_BITS) + n


@dataclass(frozen=True)
class TimeGrid:
    """Kaldi's `ConvolutionComputationIo`: two regular series of times for the same images."""

    images: np.ndarray  # the pairs (n, x), sorted, int32 [I, 2]
    start_in: int
    step_in: int
    count_in: int
    start_out: int
    step_out: int
    count_out: int
    reorder: int = 1

    @classmethod
    def of(cls, inputs: IndexList, outputs: IndexList) -> TimeGrid:
        """The smallest grid that holds the times of some rows."""
        return cls(inputs.images, *_series(inputs.times), *_series(outputs.times))

    def with_whole_blocks(self) -> TimeGrid:
        """With as many inputs to a block as there are for each output, and no block cut short."""
        if self.step_in == 0 or self.step_out % self.step_in:
            raise ShapeError(
                f"outputs in steps of {self.step_out} cannot be computed from inputs in steps"
                f" of {self.step_in}"
            )
        block = self.step_out // self.step_in
        if block == 1:
            return self
        count = -(-self.count_in // block) * block
        return replace(self, reorder=block, count_in=count)

    def first_row(self, offset: int) -> int:
        """The input row that the first output row reads for a time offset."""
        distance = self.start_out + offset - self.start_in
        number = distance // max(self.step_in, 1)
        last = number + (self.count_out - 1) * self.reorder
        if distance % max(self.step_in, 1) or number < 0 or last >= self.count_in:
            raise ShapeError(f"time offset {offset} leads out of the inputs that are there")
        block, place = divmod(number, self.reorder)
        return block * self.reorder * len(self.images) + place

    def arrange(self, inputs: Columns, outputs: Columns) -> tuple[Columns, Columns]:
        """All rows of the grid in order; those that were not there before are padding."""
        return (
            self._rows(self.start_in, self.step_in, self.count_in, self.reorder, inputs),
            self._rows(self.start_out, self.step_out, self.count_out, 1, outputs),
        )

    def _rows(self, start: int, step: int, count: int, reorder: int, there: Columns) -> Columns:
        full = len(there.times) == count and reorder == 1 and there.regular
        if full and (there.images is self.images or np.array_equal(there.images, self.images)):
            return there
        times = start + max(step, 1) * np.arange(count, dtype=np.int32)
        blocks = times.reshape(-1, 1, reorder)
        images = self.images[None, :, None]
        rows = np.empty((len(blocks), len(self.images), reorder, 3), np.int32)
        rows[..., 0], rows[..., 1], rows[..., 2] = images[..., 0], blocks, images[..., 1]
        rows = rows.reshape(-1, 3)
        real = there.indexes if there.real is None else there.indexes[there.real]
        if len(real) < len(rows):
            rows[~is_among(sort_keys(rows), sort_keys(real)), 1] = NO_TIME
        arranged = Columns.of(rows)
        arranged.images = there.images
        arranged.times = there.times
        return arranged


def _series(times: np.ndarray) -> tuple[int, int, int]:
    """Start, step and count of the regular series that holds all times; step 0 for one time."""
    if not len(times):
        raise ShapeError("a component is asked for rows without any time")
    start = int(times[0])
    last = int(times[-1])
    if last == start:
        return start, 0, 1
    dense = last - start == len(times) - 1
    step = 1 if dense else int(np.gcd.reduce(times[1:] - times[:-1]))
    return start, step, 1 + (last - start) // step


class OnTimeGrid(ABC):
    """Mixin of components that want their rows on a grid; put it before `Component`."""

    @abstractmethod
    def grid(self, inputs: IndexList, outputs: IndexList) -> TimeGrid:
        """The grid that holds these rows."""

    @abstractmethod
    def locate(self, grid: TimeGrid, rows: int) -> Any:
        """The places of rows in a grid, as operators need them; `rows`: number of output rows."""

    def reorder(self, inputs: Columns, outputs: Columns) -> tuple[Columns, Columns]:
        """See `Component.reorder`."""
        return self.grid(inputs, outputs).arrange(inputs, outputs)

    def precompute(self, inputs: IndexList, outputs: IndexList) -> Any:
        """See `Component.precompute`."""
        return self.locate(self.grid(inputs, outputs), outputs.size)
