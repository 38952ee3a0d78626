"""Minibatches of the records of a table.

Source: CNTK's `UCIFastReader/UCIFastReader.cpp`.
"""

from __future__ import annotations

import numpy as np

from ....framework.base.errors import FormatError, RunError
from ...base.glibc_rand import nearby_order
from .data import Samples, Stream
from .layout import frames
from .order import WHOLE_SWEEP
from .pack import Minibatch, Packer


class TableMinibatches(Packer):
    """Minibatches of the records of a table, which lie in memory.

    Args:
        streams: of a record.
        data: the samples of each stream, one for each record.
        window: records are exchanged within ranges of so many; 0: not at all; None: of an epoch.
        partial: whether a minibatch may be short: the last one of the epoch and of the data. If
            not, epochs are made of whole minibatches, and begin the data again where they end.
    """

    def __init__(
        self,
        streams: list[Stream],
        data: list[Samples],
        window: int | None,
        *,
        partial: bool = True,
    ) -> None:
        self.streams = streams
        self._data = data
        self._count = len(data[0].begin) - 1
        self._window = window
        self._partial = partial
        self._position = self._end = self._size = 0
        self._order: tuple[int, int, np.ndarray] = (-1, 0, np.zeros(0, np.int64))

    def start_epoch(self, epoch: int, size: int, epoch_size: int | None = None) -> None:
        """See `Packer.start_epoch`.

        Raises:
            FormatError: the window is no multiple of the minibatch, or the epoch none of it.
        """
        given = epoch_size
        length = self._count if given is None else given
        if not self._partial:
            unit = (self._window or size) if given is None else size
            length = -(-length // unit) * unit
        self._range = length
        if self._window not in (0, WHOLE_SWEEP):
            self._range = max(self._window, size)
            if self._range > length:
                self._range = length
            elif self._range % size or (given is not None and length % self._range):
                raise FormatError(
                    f"randomize = {self._window}: the range must be a multiple of the minibatch "
                    f"size {size}, and the epoch of {length} a multiple of it"
                )
        self._size = size
        self._length = length
        self._position = self._begin = epoch * length
        self._end = self._begin + length

    def read(self) -> Minibatch:
        """See `Packer.read`."""
        count = min(self._count, self._size, self._end - self._position)
        if self._partial:
            count = min(count, self._count - self._position % self._count)
        elif count < self._size:
            count = 0
        if count <= 0:
            return Minibatch(end_of_epoch=True)
        rows = self._rows(count)
        self._position += count
        layout = frames(count)
        names = [stream.name for stream in self.streams]
        return Minibatch(
            {name: part.take(rows) for name, part in zip(names, self._data, strict=True)},
            dict.fromkeys(names, layout),
            np.stack([np.zeros(count, np.int64), rows], axis=1),
            self._position >= self._end,
        )

    def records(self, stream: int, first: int, count: int) -> Samples:
        """See `Packer.records`."""
        if first < 0 or count < 1 or first + count > self._count:
            raise RunError(f"records {first} to {first + count} are wanted of {self._count}")
        return self._data[stream].take(np.arange(first, first + count))

    def _rows(self, count: int) -> np.ndarray:
        """The records of the next minibatch."""
        here = np.arange(self._position, self._position + count)
        if self._window == 0:
            return here % self._count
        sweep = self._position // self._range
        if self._order[:2] != (sweep, self._range):
            order = nearby_order(self._range, self._range // 2, sweep)
            self._order = (sweep, self._range, order)
        within = self._position % self._length
        moved = within - within % self._range + self._order[2][here % self._range]
        return (self._begin + moved % self._length) % self._count
