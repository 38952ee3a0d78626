"""What every reader can do, and readers by name.

A reader from elsewhere plugs in by an entry point of the group `opscope.readers`, whose name is the
`readerType` of configs. Source: CNTK's `IDataReader` (`Common/Include/DataReader.h`), and for the
reading ahead `ReaderLib/ReaderShim.cpp`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, TypeAlias

import numpy as np

from ....framework.base.errors import RunError, nearest
from ...config.parameters import ConfigParameters
from .data import Samples, Stream
from .layout import Layout
from .pack import Minibatch, Packer

Factory: TypeAlias = Callable[[ConfigParameters], "DataReader"]

GROUP = "opscope.readers"

_OWN = {  # reader type: module of this package and the function that makes the reader of a config
    "BinaryReader": ("binary.reader", "binary_reader"),
    "CNTKBinaryReader": ("binary.format", "cntk_binary_reader"),
    "CNTKTextFormatReader": ("text.reader", "text_format_reader"),
    "CompositeDataReader": ("composite", "composite_reader"),
    "HTKDeserializers": ("composite", "htk_deserializers_reader"),
    "HTKMLFReader": ("htk.reader", "htk_mlf_reader"),
    "ImageReader": ("image.reader", "image_reader"),
    "LMSequenceReader": ("language.lm_reader", "lm_sequence_reader"),
    "LUSequenceReader": ("language.lu_reader", "lu_sequence_reader"),
    "UCIFastReader": ("uci.reader", "uci_fast_reader"),
}


class DataReader(ABC):
    """A source of minibatches.

    Attributes:
        streams: what a minibatch consists of.
    """

    streams: list[Stream]

    @property
    def parallel(self) -> int:
        """Sequences side by side, for readers that have a fixed number of them (CNTK's
        `GetNumParallelSequencesForFixingBPTTMode`); 1 for others."""
        return 1

    @abstractmethod
    def start_minibatch_loop(self, size: int, epoch: int, epoch_size: int | None = None) -> None:
        """Begin an epoch.

        Args:
            size: of a minibatch, in samples (of all parallel sequences together).
            epoch: counted from 0.
            epoch_size: in samples; None: one sweep over the data.
        """

    @abstractmethod
    def get_minibatch(self) -> Minibatch | None:
        """The next minibatch; None at the end of the epoch.

        Raises:
            FormatError: the data are not as they should be.
        """

    def data_end(self) -> bool:
        """Whether all sequences of the last minibatch ended with it (CNTK's `endDataSentence`)."""
        return True

    @property
    def parallel_sequences(self) -> int:
        """Slots of the last minibatch; 1 before the first one."""
        return 1

    def sentence_ends(self) -> np.ndarray:
        """Whether what each slot held ended within the last minibatch, bool, [slots]."""
        return np.ones(self.parallel_sequences, bool)

    def label_mapping(self, stream: str) -> Mapping[int, str]:
        """The labels of a stream by their numbers; empty where they have no names."""
        return {}

    def set_label_mapping(self, stream: str, mapping: Mapping[int, str]) -> None:
        """Give the labels of a stream other names; their numbers stay.

        Raises:
            RunError: the reader has no labels with names in this stream.
        """
        raise RunError(f"the labels of {stream!r} have no names")

    def get_data(self, stream: str, first: int, count: int) -> Samples:
        """Sequences of a stream by their numbers, in the order of the files.

        Raises:
            RunError: there is no such stream, there are fewer sequences, or the reader cannot give
                sequences by number.
        """
        raise RunError(f"this reader cannot give sequences of {stream!r} by number")

    def close(self) -> None:  # noqa: B027  many readers have nothing to let go of
        """Let go of files and threads."""

    def __enter__(self) -> DataReader:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


class PackedReader(DataReader):
    """A reader made of a packer. A thread reads the next minibatch while this one is used.

    Args:
        packer: gives minibatches.
        ahead: whether to read ahead.
        labels: names of the labels of a stream by their numbers, stream by stream.
    """

    def __init__(
        self,
        packer: Packer,
        *,
        ahead: bool = True,
        labels: Mapping[str, Mapping[int, str]] | None = None,
    ) -> None:
        self.streams = packer.streams
        self._labels = dict(labels or {})
        self._packer = packer
        self._thread = ThreadPoolExecutor(1, "opscope-reader") if ahead else None
        self._coming: Future[Minibatch] | None = None
        self._last = Minibatch(end_of_epoch=True)

    @property
    def parallel(self) -> int:
        """See `DataReader.parallel`."""
        return self._packer.parallel

    def start_minibatch_loop(self, size: int, epoch: int, epoch_size: int | None = None) -> None:
        """See `DataReader.start_minibatch_loop`."""
        self._wait()
        self._packer.start_epoch(epoch, size, epoch_size)
        self._last = Minibatch()
        self._read_ahead()

    def get_minibatch(self) -> Minibatch | None:
        """See `DataReader.get_minibatch`."""
        if self._last.end_of_epoch:
            return None
        coming, self._coming = self._coming, None
        self._last = self._packer.read() if coming is None else coming.result()
        if not self._last.end_of_epoch:
            self._read_ahead()
        return self._last or None

    def data_end(self) -> bool:
        """See `DataReader.data_end`."""
        return all(
            bool((layout.end <= layout.steps).all()) for layout in self._last.layouts.values()
        )

    def _layout(self) -> Layout | None:
        """The layout with the most columns of the last minibatch."""
        return max(self._last.layouts.values(), key=lambda layout: layout.columns, default=None)

    @property
    def parallel_sequences(self) -> int:
        """See `DataReader.parallel_sequences`."""
        layout = self._layout()
        return 1 if layout is None else layout.parallel

    def sentence_ends(self) -> np.ndarray:
        """See `DataReader.sentence_ends`."""
        layout = self._layout()
        if layout is None:
            return np.ones(1, bool)
        ended = np.ones(layout.parallel, bool)
        ended[layout.slot[layout.end > layout.steps]] = False
        return ended

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
        """What was read ahead is dropped, and so are its errors."""
        if self._coming is not None:
            self._coming.exception()
            self._coming = None


def reader_types() -> list[str]:
    """Names of all readers, plugged-in ones included."""
    return sorted({*_OWN, *(point.name for point in entry_points(group=GROUP))})


def create_reader(config: ConfigParameters) -> DataReader:
    """The reader that a reader section asks for by its `readerType`, by its `deserializers`, or by
    a list of sections, `readers`; CNTKTextFormatReader where it says nothing.

    Raises:
        FormatError: there is no such reader; and what the reader itself does not like.
    """
    if config.has("readers"):
        from .multi_reader import several_readers

        return several_readers(config)
    composed = config.has("deserializers") and not config.has("readerType")
    default = "CompositeDataReader" if composed else "CNTKTextFormatReader"
    value = config.find("readerType", default)
    name = default if composed or value is None else str(value)
    for known, (module, function) in _OWN.items():
        if known.lower() == name.lower():
            made: Factory = getattr(import_module(f"..{module}", __package__), function)
            return made(config)
    for point in entry_points(group=GROUP):
        if point.name.lower() == name.lower():
            return point.load()(config)
    hint = nearest(name, reader_types())
    raise value.error(f"there is no reader type {name!r}{hint}")
