"""DSSMReader: queries and documents, line by line, for deep structured semantic models.

    reader = [
        readerType = "DSSMReader"
        featuresQ = [ dim = 49292 ; file = "query.bin" ]
        featuresD = [ dim = 49292 ; file = "document.bin" ]
        labels = [ labelDim = 51 ]
    ]

A file has the number of records (int64), of columns (int32) and of elements (int64), where each
record begins behind this table (int64 each), and the records: the number of elements (int32), their
values, their indices (int32 each); all is little-endian. Labels are 1 in their first element: the
document of the query is the first one of those that it is compared with.
Source: CNTK's `DSSMReader/DSSMReader.cpp`.
"""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np

from ....framework.base.errors import FormatError
from ...config.parameters import ConfigParameters
from ..base.data import Samples, Stream
from ..base.packed_reader import PackedReader
from ..base.reader import DataReader
from ..base.sections import complaint, file_sections, precision
from ..base.steady_file import SteadyFile
from ..opening import Opening
from .records import (
    COUNT,
    RecordMinibatches,
    Records,
    check_indices,
    elements,
    file_order,
    first_of_each,
)

_HEAD = np.dtype([("rows", "<i8"), ("columns", "<i4"), ("elements", "<i8")])
_OFFSET = np.dtype("<i8")


def dssm_reader(config: ConfigParameters) -> Opening[DataReader]:
    """The reader of a section with readerType DSSMReader.

    Raises:
        FormatError: a parameter is missing or wrong.
    """
    features, labels = file_sections(config)
    if len(features) != 2 or len(labels) != 1:
        raise complaint(
            config, "two sections of features and one of labels are needed by DSSMReader"
        )
    file_order(config)
    dtype = precision(config)
    streams = [Stream(name, part.size("dim"), True, dtype) for name, part in features]
    paths = [part.string("file") for _, part in features]
    for (_, part), stream in zip(features, streams, strict=True):
        if not 0 < stream.dim < 1 << 31:
            raise part["dim"].error(f"a sample cannot have {stream.dim} values")
    label = Stream(labels[0][0], 0, True, dtype)

    def opened() -> DataReader:
        return PackedReader(RecordMinibatches(_Pairs(paths, streams, label)), legacy=True)

    files = [file for _, part in features for file in part.files("file")]
    return Opening(opened, files, [*streams, label], light=True)


class _Pairs(Records):
    """The records of two files side by side; the second by name, with queries, counts them."""

    def __init__(self, paths: list[str], streams: list[Stream], label: Stream) -> None:
        self.streams = [*streams, label]
        with ExitStack() as stack:
            self._files = []
            for path, stream in zip(paths, streams, strict=True):
                self._files.append(_RecordFile(path, stream))
                stack.callback(self._files[-1].close)
            documents, queries = self._files
            self.count = queries.count
            if documents.count < self.count:
                raise FormatError(
                    f"{documents.path}: {documents.count} records; {queries.path} has {self.count}"
                )
            stack.pop_all()

    def read(self, first: int, last: int) -> list[Samples]:
        """See `Records.read`."""
        parts = [file.read(first, last) for file in self._files]
        return [*parts, first_of_each(last - first, self.streams[-1].dtype)]

    def close(self) -> None:
        """See `Records.close`."""
        for file in self._files:
            file.close()


class _RecordFile:
    """A file of records.

    Raises:
        FormatError: its head or its table are damaged; byte offset.
    """

    def __init__(self, path: str, stream: Stream) -> None:
        self.path = path
        self._stream = stream
        self._file = SteadyFile(path)
        try:
            self._begin = self._table()
        except BaseException:
            self.close()
            raise
        self.count = len(self._begin) - 1

    def _table(self) -> np.ndarray:
        """Where each record begins in the file, and the last one ends."""
        size = self._file.size
        if size < _HEAD.itemsize:
            raise FormatError(f"{self.path}: byte 0: the head was expected; the file ends")
        rows = int(self._file.read(0, _HEAD.itemsize).view(_HEAD)["rows"][0])
        begin = _HEAD.itemsize + rows * _OFFSET.itemsize
        if rows < 1 or begin > size:
            raise FormatError(f"{self.path}: byte 0: {rows} records in a file of {size} bytes")
        offsets = self._file.read(_HEAD.itemsize, begin).view(_OFFSET).astype(np.int64)
        places = np.append(offsets, size - begin)
        wrong = np.flatnonzero((np.diff(places) < COUNT.itemsize) | (offsets < 0))
        if len(wrong):
            at = _HEAD.itemsize + int(wrong[0]) * _OFFSET.itemsize
            raise FormatError(f"{self.path}: byte {at}: places of records do not ascend")
        return places + begin

    def read(self, first: int, last: int) -> Samples:
        """Records `first` to `last`."""
        dtype = self._stream.dtype
        begin = self._begin[first:last]
        start = int(begin[0])
        data = self._file.read(start, int(self._begin[last]))
        heads = (begin - start)[:, None] + np.arange(COUNT.itemsize)
        counts = data[heads].reshape(-1).view(COUNT).astype(np.int64)
        room = self._begin[first + 1 : last + 1] - begin - COUNT.itemsize
        wrong = np.flatnonzero((counts < 0) | (counts * (dtype.itemsize + COUNT.itemsize) > room))
        if len(wrong):
            raise FormatError(
                f"{self.path}: byte {begin[wrong[0]]}: {counts[wrong[0]]} elements in a record of"
                f" {room[wrong[0]]} bytes"
            )
        places = begin - start + COUNT.itemsize
        values, indices = elements(data, places, counts, dtype)
        bounds = np.concatenate([[0], np.cumsum(counts)])
        samples = Samples(np.arange(last - first + 1), values, indices, bounds)
        check_indices(self._file, begin, bounds, samples, self._stream)
        return samples

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()
