"""Readers made of a packer, which read ahead. Source: CNTK's `ReaderLib/ReaderShim.cpp`."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future

from ....framework.base.cpu.executors import executor
from ....framework.base.errors import RunError, nearest
from .data import Samples
from .pack import Minibatch, Packer
from .reader import DataReader


class PackedReader(DataReader):
    """A reader made of a packer. A thread reads the next minibatch while this one is used.

    Args:
        packer: gives minibatches.
        ahead: whether to read ahead.
        labels: names of the labels of a stream by their numbers, stream by stream.
        legacy: see `DataReader`.
    """

    def __init__(
        self,
        packer: Packer,
        *,
        ahead: bool = True,
        labels: Mapping[str, Mapping[int, str]] | None = None,
        legacy: bool = False,
    ) -> None:
        self.streams = packer.streams
        self.legacy = legacy
        self._labels = dict(labels or {})
        self._packer = packer
        self._thread = executor(1, "opscope-reader") if ahead else None
        self._coming: Future[Minibatch] | None = None
        self.last = Minibatch(end_of_epoch=True)

    @property
    def parallel(self) -> int:
        """See `DataReader.parallel`."""
        return self._packer.parallel

    def take_share(self, rank: int, ranks: int) -> bool:
        """See `DataReader.take_share`."""
        self._wait()
        return self._packer.take_share(rank, ranks)

    def start_minibatch_loop(self, size: int, epoch: int, epoch_size: int | None = None) -> None:
        """See `DataReader.start_minibatch_loop`."""
        self._wait()
        self._packer.start_epoch(epoch, size, epoch_size)
        self.last = Minibatch()
        self._read_ahead()

    def get_minibatch(self) -> Minibatch | None:
        """See `DataReader.get_minibatch`."""
        if self.last.end_of_epoch:
            return None
        coming = self._coming
        self._coming = None
        self.last = self._packer.read() if coming is None else coming.result()
        if not self.last.end_of_epoch:
            self._read_ahead()
        return None if self.last.end_of_epoch and not self.last else self.last

    def label_mapping(self, stream: str) -> Mapping[int, str]:
        """See `DataReader.label_mapping`."""
        return self._labels.get(stream, {})

    def set_label_mapping(self, stream: str, mapping: Mapping[int, str]) -> None:
        """See `DataReader.set_label_mapping`.

        Raises:
            RunError: the numbers are others than before, or two labels have one name.
        """
        known = self._labels.get(stream)
        if known is None:
            super().set_label_mapping(stream, mapping)
        elif set(mapping) != set(known) or len(set(mapping.values())) != len(mapping):
            raise RunError(f"the labels of {stream!r} need {len(known)} names, each once")
        else:
            self._labels[stream] = dict(mapping)

    def get_data(self, stream: str, first: int, count: int) -> Samples:
        """See `DataReader.get_data`."""
        names = [known.name for known in self.streams]
        if stream not in names:
            raise RunError(f"there is no stream {stream!r}{nearest(stream, names)}")
        self._wait()
        return self._packer.records(names.index(stream), first, count)

    def close(self) -> None:
        """See `DataReader.close`."""
        self._wait()
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        self._packer.close()

    def _read_ahead(self) -> None:
        if self._thread is not None:
            self._coming = self._thread.submit(self._packer.read)

    def _wait(self) -> None:
        """Drop the minibatch that was read ahead, and its errors."""
        if self._coming is not None:
            self._coming.exception()
            self._coming = None
