"""SparsePCReader: the sparse sides of parallel records, with one number as the label.

    reader = [
        readerType = "SparsePCReader" ; file = "pairs.bin" ; microbatchSize = 5
        Query = [ dim = 50000 ] ; Document = [ dim = 50000 ]
        labels = [ labelDim = 1 ]
    ]

The file is records without a head, little-endian: for each feature, the last one by name first, the
number of elements (int32), their values, their indices (int32 each); the label; and a code (int32)
where `verificationCode` says which. Each `microbatchSize` records are a sequence.
Source: CNTK's `SparsePCReader/SparsePCReader.cpp`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....framework.base.errors import FormatError
from ...config.parameters import ConfigParameters
from ..base.data import Samples, Stream
from ..base.packed_reader import PackedReader
from ..base.reader import DataReader
from ..base.sections import complaint, file_sections, precision
from ..base.steady_file import SteadyFile
from ..opening import Opening
from .records import COUNT, RecordMinibatches, Records, check_indices, elements

_WINDOW = 1 << 20  # bytes that are read at once to find records


@dataclass(frozen=True)
class _Options:
    """The settings of a section.

    Attributes:
        unit: records of a sequence.
        most: bytes before which records begin that are read; 0: all.
        sparseness: a record has at most an element for so many dimensions.
        code: behind each record; 0: there is none.
    """

    unit: int
    most: int
    sparseness: int
    code: int


def sparse_pc_reader(config: ConfigParameters) -> Opening[DataReader]:
    """The reader of a section with readerType SparsePCReader.

    Raises:
        FormatError: a parameter is missing or wrong.
    """
    features, labels = file_sections(config)
    if len(labels) != 1 or not features:
        raise complaint(config, "SparsePCReader needs sections of features and one of labels")
    options = _Options(
        config.size("microbatchSize", 1),
        config.size("maxReadData", 0),
        config.size("sparsenessFactor", 50),
        config.int("verificationCode", 0),
    )
    for name, value in (("microbatchSize", options.unit), ("sparsenessFactor", options.sparseness)):
        if value < 1:
            raise config[name].error(f"{name} is at least 1")
    dense = config.bool("returnDense", False) or config.bool("gradientCheck", False)
    dtype = precision(config)
    path = config.string("file")
    streams = [
        Stream(name, part.size("dim"), not dense, dtype) for name, part in reversed(features)
    ]
    for (_, part), stream in zip(reversed(features), streams, strict=True):
        if not 0 < stream.dim < 1 << 31:
            raise part["dim"].error(f"a sample cannot have {stream.dim} values")
    streams.append(Stream(labels[0][0], 1, dtype=dtype))

    def opened() -> DataReader:
        return PackedReader(RecordMinibatches(_Corpus(path, streams, options)), legacy=True)

    return Opening(opened, config.files("file"), streams, light=True)


class _Corpus(Records):
    """The records of a file, found when it is opened.

    Raises:
        FormatError: a record is damaged, or the last sequence is not whole; byte offset.
    """

    def __init__(self, path: str, streams: list[Stream], options: _Options) -> None:
        self.streams = streams
        self.unit = options.unit
        self._options = options
        *self._features, label = streams
        self._element = label.dtype.itemsize + COUNT.itemsize
        self._tail = label.dtype.itemsize + (COUNT.itemsize if options.code else 0)
        self._file = SteadyFile(path)
        try:
            self._begin, self._counts = self._find()
            records = len(self._counts)
            if records % self.unit:
                raise FormatError(
                    f"{path}: {records} records, no multiple of microbatchSize = {self.unit}"
                )
        except BaseException:
            self.close()
            raise
        self.count = records // self.unit

    def _find(self) -> tuple[np.ndarray, np.ndarray]:
        """Where each record begins, and the last one ends; the elements of each feature."""
        size = self._file.size
        end = min(self._options.most or size, size)
        begin = [0]
        counts: list[int] = []
        base = 0
        window = self._file.read(0, min(_WINDOW, size))
        while begin[-1] < end:
            at = begin[-1]
            for stream in self._features:
                if at + COUNT.itemsize > size:
                    raise self._error(begin[-1], "the file ends within this record")
                if at + COUNT.itemsize > base + len(window):
                    base = at
                    window = self._file.read(at, min(at + _WINDOW, size))
                count = window[at - base : at - base + COUNT.itemsize].tobytes()
                number = int.from_bytes(count, "little", signed=True)
                if number < 0:
                    raise self._error(at, f"the number of elements of {stream.name} was expected")
                if number > stream.dim // self._options.sparseness:
                    raise self._error(
                        at,
                        f"Input data is too dense: {number} elements of {stream.name}; with"
                        f" sparsenessFactor = {self._options.sparseness} a record of dim"
                        f" {stream.dim} has {stream.dim // self._options.sparseness} at most",
                    )
                counts.append(number)
                at += COUNT.itemsize + number * self._element
            at += self._tail
            if at > size:
                raise self._error(begin[-1], "the file ends within this record")
            begin.append(at)
        table = np.array(counts, np.int64).reshape(-1, len(self._features))
        return np.array(begin, np.int64), table

    def _error(self, at: int, text: str) -> FormatError:
        return FormatError(f"{self._file.path}: byte {at}: {text}")

    def read(self, first: int, last: int) -> list[Samples]:
        """See `Records.read`."""
        records = slice(first * self.unit, last * self.unit)
        begin, counts = self._begin[records], self._counts[records]
        data = self._file.read(int(begin[0]), int(self._begin[records.stop]))
        sequences = np.arange(0, len(begin) + 1, self.unit)
        at = begin - begin[0]
        parts = []
        for number, stream in enumerate(self._features):
            values, indices = elements(data, at + COUNT.itemsize, counts[:, number], stream.dtype)
            bounds = np.concatenate([[0], np.cumsum(counts[:, number])])
            samples = Samples(sequences, values, indices, bounds)
            check_indices(self._file, begin, bounds, samples, stream)
            if not stream.sparse:
                samples = Samples(sequences, samples.dense(stream.dim))
            parts.append(samples)
            at = at + COUNT.itemsize + counts[:, number] * self._element
        label = self.streams[-1].dtype
        parts.append(Samples(sequences, _numbers(data, at, label).astype(label)[:, None]))
        if self._options.code:
            codes = _numbers(data, at + label.itemsize, COUNT)
            wrong = np.flatnonzero(codes != self._options.code)
            if len(wrong):
                raise self._error(
                    int(begin[wrong[0]]),
                    f"Verification code did not match (expected {self._options.code}, found"
                    f" {codes[wrong[0]]}) - error in reading data",
                )
        return parts

    def close(self) -> None:
        """See `Records.close`."""
        self._file.close()


def _numbers(data: np.ndarray, places: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Numbers at places that need not be aligned."""
    found = data[places[:, None] + np.arange(kind.itemsize)]
    return found.reshape(-1).view(kind.newbyteorder("<"))
