"""A reader of several readers, whose minibatches together are one.

    reader = [
        readers = a:b
        a = [ readerType = "LUSequenceReader" ; ... ]
        b = [ readerType = "LUSequenceReader" ; ... ]
    ]

Source: CNTK's `Common/DataReader.cpp`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from ...framework.base.errors import RunError
from .base.data import Samples
from .base.minibatches import minibatches
from .base.pack import Minibatch
from .base.reader import DataReader


class MultiReader(DataReader):
    """Readers side by side. An epoch ends when the first reader's epoch ends."""

    def __init__(self, readers: Sequence[DataReader]) -> None:
        self._readers = list(readers)
        self._epochs: list[Iterator[Minibatch]] = []
        self.streams = [stream for reader in self._readers for stream in reader.streams]
        self.legacy = any(reader.legacy for reader in self._readers)

    @property
    def parallel(self) -> int:
        """See `DataReader.parallel`."""
        return self._same("parallel")

    @property
    def parallel_sequences(self) -> int:
        """See `DataReader.parallel_sequences`."""
        return self._same("parallel_sequences")

    def _same(self, name: str) -> int:
        """The value that all readers give.

        Raises:
            RunError: they do not say the same.
        """
        counts = [getattr(reader, name) for reader in self._readers]
        if len(set(counts)) > 1:
            listed = ", ".join(map(str, counts))
            raise RunError(
                "The specified number of utterances per minibatch is not consistent to the actual "
                f"number of utterances per minibatch: the readers have {listed}"
            )
        return counts[0]

    def take_share(self, rank: int, ranks: int) -> bool:
        """See `DataReader.take_share`."""
        if all([reader.take_share(rank, ranks) for reader in self._readers]):
            return True
        for reader in self._readers:
            reader.take_share(0, 1)
        return False

    def use_network(self, output: Callable[[Minibatch], np.ndarray]) -> None:
        """See `DataReader.use_network`: a reader that asks for outputs gives its own streams."""
        for reader in self._readers:
            reader.use_network(output)

    def start_minibatch_loop(self, size: int, epoch: int, epoch_size: int | None = None) -> None:
        """See `DataReader.start_minibatch_loop`."""
        self._epochs = [minibatches(one, size, epoch, epoch_size) for one in self._readers]

    def get_minibatch(self) -> Minibatch | None:
        """See `DataReader.get_minibatch`.

        Raises:
            RunError: the readers have different numbers of sequences side by side.
        """
        parts: list[Minibatch] = []
        for minibatch in [next(epoch, None) for epoch in self._epochs]:
            if minibatch is None:
                return None
            parts.append(minibatch)
        self._same("parallel_sequences")
        first = parts[0]
        streams = {name: samples for one in parts for name, samples in one.streams.items()}
        layouts = {name: layout for one in parts for name, layout in one.layouts.items()}
        last = any(one.end_of_epoch for one in parts)
        lattices = next((one.lattices for one in parts if one.lattices is not None), None)
        return Minibatch(streams, layouts, first.sequences, last, lattices)

    def data_end(self) -> bool:
        """See `DataReader.data_end`."""
        return all(reader.data_end() for reader in self._readers)

    def sentence_ends(self) -> np.ndarray:
        """See `DataReader.sentence_ends`."""
        return self._readers[0].sentence_ends()

    def _owner(self, stream: str) -> DataReader:
        for reader in self._readers:
            if any(known.name == stream for known in reader.streams):
                return reader
        return self._readers[0]  # which reports that there is none

    def label_mapping(self, stream: str) -> Mapping[int, str]:
        """See `DataReader.label_mapping`."""
        return self._owner(stream).label_mapping(stream)

    def set_label_mapping(self, stream: str, mapping: Mapping[int, str]) -> None:
        """See `DataReader.set_label_mapping`."""
        self._owner(stream).set_label_mapping(stream, mapping)

    def get_data(self, stream: str, first: int, count: int) -> Samples:
        """See `DataReader.get_data`."""
        return self._owner(stream).get_data(stream, first, count)

    def close(self) -> None:
        """See `DataReader.close`."""
        for reader in self._readers:
            reader.close()
