"""Minibatches of records that lie one after the other in a binary file.

Every epoch is the whole file from its start, whatever its size in the config, and nothing is
shuffled: so CNTK's readers of such files have it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from ....framework.base.errors import FormatError
from ...config.parameters import ConfigParameters
from ..base.data import Samples, Stream
from ..base.layout import packed
from ..base.pack import Minibatch, Packer, part_of
from ..base.steady_file import SteadyFile

COUNT = np.dtype("<i4")
"""Of numbers of elements, and of their indices."""


class Records(ABC):
    """A file, or several side by side, of records.

    Attributes:
        streams: of a record.
        count: units in the file: as many records as are always read together.
        unit: samples of a unit.
    """

    streams: list[Stream]
    count: int
    unit: int = 1

    @abstractmethod
    def read(self, first: int, last: int) -> list[Samples]:
        """Units `first` to `last`, a `Samples` for each stream.

        Raises:
            FormatError: byte offset of what is damaged.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of the files."""


class RecordMinibatches(Packer):
    """Minibatches of whole units.

    Args:
        records: of the file.
        divided: whether each of several ranks reads its own part of the file.
    """

    def __init__(self, records: Records, *, divided: bool = False) -> None:
        self.streams = records.streams
        self._records = records
        self._divided = divided
        self._rank = 0
        self._ranks = 1
        self._position = self._end = self._step = 0

    def take_share(self, rank: int, ranks: int) -> bool:
        """See `DataReader.take_share`."""
        if not self._divided:
            return ranks == 1
        self._rank = rank
        self._ranks = ranks
        return True

    def start_epoch(self, epoch: int, size: int, epoch_size: int | None = None) -> None:
        """See `Packer.start_epoch`.

        Raises:
            FormatError: a minibatch has no room for a unit.
        """
        unit = self._records.unit
        self._step = size // self._ranks // unit
        if not self._step:
            raise FormatError(
                f"a minibatch of {size} samples for {self._ranks} ranks is smaller than the"
                f" {unit} samples that the file has together"
            )
        parts = [part_of(self._records.count, rank, self._ranks) for rank in range(self._ranks)]
        self._position = sum(parts[: self._rank])
        self._end = self._position + parts[self._rank]

    def read(self) -> Minibatch:
        """See `Packer.read`."""
        first = self._position
        last = self._position = min(first + self._step, self._end)
        if first >= last:
            return Minibatch(end_of_epoch=True)
        parts = self._records.read(first, last)
        names = [stream.name for stream in self.streams]
        sequences = len(parts[0].begin) - 1
        numbers = first * self._records.unit + np.arange(sequences)
        return Minibatch(
            dict(zip(names, parts, strict=True)),
            dict.fromkeys(names, packed(parts[0].lengths)),
            np.stack([np.zeros(sequences, np.int64), numbers], axis=1),
            last >= self._end,
        )

    def close(self) -> None:
        """See `Packer.close`."""
        self._records.close()


def file_order(config: ConfigParameters) -> None:
    """Read the settings that CNTK's readers of records take, and that change nothing there."""
    ordered = "randomize" not in config or config.match("randomize", "none")
    if not ordered and not config.match("randomize", "0"):
        config.only_if(False, "records come in the order of the file", "randomize")
    if "minibatchMode" in config and not config.match("minibatchMode", "partial"):
        config.only_if(False, "the last minibatch may be short", "minibatchMode")


def elements(
    data: np.ndarray, places: np.ndarray, counts: np.ndarray, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """Values and indices of records that have the values first.

    Args:
        data: bytes, uint8.
        places: of the first value of each record, int64.
        counts: elements of each record, int64.
        dtype: of the values.
    """
    ends = places + counts * dtype.itemsize
    values = _joined(data, places, ends).view(dtype.newbyteorder("<")).astype(dtype, copy=False)
    return values, _joined(data, ends, ends + counts * COUNT.itemsize).view(COUNT).astype(np.int64)


def _joined(data: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    parts = zip(begin.tolist(), end.tolist(), strict=True)
    return np.concatenate([np.zeros(0, np.uint8), *(data[a:b] for a, b in parts)])


def check_indices(
    file: SteadyFile,
    places: Sequence[int] | np.ndarray,
    first: np.ndarray,
    samples: Samples,
    stream: Stream,
) -> None:
    """Refuse an index that is not below the dimension of its stream.

    Args:
        file: that has them.
        places: byte offset of each record, or of the only place that is known.
        first: where the elements of each record begin, int64, [records + 1].
        samples: of the records. stream: theirs.

    Raises:
        FormatError: byte offset of the record.
    """
    assert samples.indices is not None
    wrong = np.flatnonzero((samples.indices < 0) | (samples.indices >= stream.dim))
    if len(wrong):
        record = int(np.searchsorted(first, wrong[0], side="right")) - 1
        raise FormatError(
            f"{file.path}: byte {places[record]}: {stream.name}: index"
            f" {samples.indices[wrong[0]]} is not below {stream.dim}, the dimension"
        )


def first_of_each(count: int, dtype: np.dtype) -> Samples:
    """Labels that are 1 in their first element and 0 elsewhere, whatever their dimension."""
    rows = np.arange(count + 1)
    return Samples(rows, np.ones(count, dtype), np.zeros(count, np.int64), rows)
