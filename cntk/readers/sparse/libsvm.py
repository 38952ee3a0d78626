"""LibSVMBinaryReader: sparse features and dense labels in batches.

    reader = [
        readerType = "LibSVMBinaryReader" ; file = "train.bin"
        Query = [ rename = "features" ]
    ]

A file has the number of records and of batches (int64), of features and of labels (int32); for each
of these its name (int32 length, bytes) and its dimension (int32); where each batch begins behind
this table (int64 each); and the batches: the number of records (int32); for each feature the number
of elements (int32), their values, their indices (int32), and where each record's begin
(int32, records + 1); for each label the values of all records. All is little-endian. The first
batch shows how many records a batch has. The input `DSSMLabel` gets 1 in its first element.
Source: CNTK's `LibSVMBinaryReader/LibSVMBinaryReader.cpp`.
"""

from __future__ import annotations

import numpy as np

from ....framework.base.errors import FormatError, doubled
from ....framework.base.untrusted.values import shown
from ...config.parameters import ConfigParameters
from ..base.data import Samples, Stream, join
from ..base.packed_reader import PackedReader
from ..base.reader import DataReader
from ..base.sections import precision, sections_with
from ..base.steady_file import Cursor, SteadyFile
from ..opening import Opening
from .records import COUNT, RecordMinibatches, Records, check_indices, file_order, first_of_each

_LABEL = "DSSMLabel"


def libsvm_binary_reader(config: ConfigParameters) -> Opening[DataReader]:
    """The reader of a section with readerType LibSVMBinaryReader.

    Raises:
        FormatError: a parameter is missing or wrong.
    """
    renamed = {name: part.string("rename") for name, part in sections_with(config, "rename")}
    file_order(config)
    path = config.string("file")
    size = config.size("minibatch", 0)
    dtype = precision(config)

    def opened() -> DataReader:
        batches = _Batches(path, renamed, dtype)
        if size and size != batches.unit:
            batches.close()
            raise config["minibatch"].error(
                f"Data file and config file have mismatched minibatch sizes: {path} has"
                f" {batches.unit}"
            )
        return PackedReader(RecordMinibatches(batches, divided=True), legacy=True)

    return Opening(opened, config.files("file"), light=True)


class _Batches(Records):
    """The batches of a file.

    Raises:
        FormatError: its head is damaged; byte offset.
    """

    def __init__(self, path: str, renamed: dict[str, str], dtype: np.dtype) -> None:
        self._file = SteadyFile(path)
        try:
            self._read_head(renamed, dtype)
        except BaseException:
            self.close()
            raise

    def _read_head(self, renamed: dict[str, str], dtype: np.dtype) -> None:
        at = Cursor(self._file, 0, self._file.size)
        at.number("<i8", "the number of records")
        batches = at.number("<i8", "the number of batches")
        counts = [at.number("<i4", f"the number of {what}") for what in ("features", "labels")]
        if batches < 1 or min(counts) < 0 or not 0 < sum(counts) <= self._file.size:
            raise FormatError(
                f"{at.path}: byte 8: {batches} batches of {counts[0]} features and {counts[1]}"
                " labels"
            )
        self.streams = [
            self._stream(at, number < counts[0], renamed, dtype) for number in range(sum(counts))
        ]
        twice = doubled(stream.name for stream in self.streams)
        if twice:
            raise FormatError(f"{at.path}: byte {at.at}: two streams {shown(twice[0])}")
        self._own = list(self.streams)
        if _LABEL not in [stream.name for stream in self.streams]:
            self.streams.append(Stream(_LABEL, 0, True, dtype))
        place = at.at
        offsets = at.take("<i8", batches, "the table of batches").astype(np.int64)
        self._begin = np.append(offsets + at.at, self._file.size)
        if np.any(np.diff(self._begin) < COUNT.itemsize) or offsets[0] < 0:
            raise FormatError(f"{at.path}: byte {place}: places of batches do not ascend")
        self.count = batches
        first = Cursor(self._file, int(self._begin[0]), int(self._begin[1]))
        self.unit = self._size(first)

    def _stream(self, at: Cursor, sparse: bool, renamed: dict[str, str], dtype: np.dtype) -> Stream:
        length = at.number("<i4", "the length of a name")
        name = at.take("S1", length, "a name").tobytes().decode("utf-8", "replace")
        place = at.at
        dim = at.number("<i4", f"the dimension of {name}")
        if dim < 1:
            raise FormatError(f"{at.path}: byte {place}: the dimension of {name!r} is {dim}")
        return Stream(renamed.get(name, name), dim, sparse, dtype)

    def _size(self, at: Cursor) -> int:
        place = at.at
        size = at.number("<i4", "the number of records")
        if not 0 < size <= at.end - place:
            raise FormatError(f"{at.path}: byte {place}: a batch of {size} records")
        return size

    def read(self, first: int, last: int) -> list[Samples]:
        """See `Records.read`."""
        return [
            join(list(parts)) for parts in zip(*map(self._batch, range(first, last)), strict=True)
        ]

    def _batch(self, number: int) -> list[Samples]:
        at = Cursor(self._file, int(self._begin[number]), int(self._begin[number + 1]))
        size = self._size(at)
        parts = [
            self._sparse(at, size, stream) if stream.sparse else _dense(at, size, stream)
            for stream in self._own
        ]
        if len(self.streams) > len(parts):
            parts.append(first_of_each(size, self.streams[-1].dtype))
        return parts

    def _sparse(self, at: Cursor, size: int, stream: Stream) -> Samples:
        place = at.at
        name = stream.name
        count = at.number("<i4", f"the number of elements of {name}")
        values = at.take(stream.dtype.newbyteorder("<"), count, f"the values of {name}")
        indices = at.take("<i4", count, f"the indices of {name}").astype(np.int64)
        first = at.take("<i4", size + 1, f"the records of {name}").astype(np.int64)
        if first[0] or first[-1] != count or np.any(np.diff(first) < 0):
            raise FormatError(f"{at.path}: byte {place}: {name}: records do not ascend")
        samples = Samples(np.arange(size + 1), values.astype(stream.dtype), indices, first)
        check_indices(self._file, [place] * size, first, samples, stream)
        return samples

    def close(self) -> None:
        """See `Records.close`."""
        self._file.close()


def _dense(at: Cursor, size: int, stream: Stream) -> Samples:
    kind = stream.dtype.newbyteorder("<")
    values = at.take(kind, size * stream.dim, f"the values of {stream.name}")
    return Samples(np.arange(size + 1), values.astype(stream.dtype).reshape(size, stream.dim))
