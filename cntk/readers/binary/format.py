"""CNTKBinaryReader: CNTK's binary format of chunks, read and written.

All numbers are little-endian. The file has a version (int64, 1), the number of chunks (int64) and
of streams (int32); for each stream its name (int32 length, bytes), 0 for dense or 1 for sparse, and
then: dense: type (0 float, 1 double), dimension; sparse: storage (0), type, 1 for sequences,
dimension, all int32. A table of chunks follows: offset (int64), sequences and samples (int32). A
chunk has the streams one after the other. Dense: a sample for each sequence. Sparse: the number of
elements (int32), their values, their rows (int32; row = sample in sequence * dimension + index) and
where the elements of each sequence begin (int32, sequences + 1). Source: CNTK's
`CNTKBinaryReader/BinaryChunkDeserializer.cpp`, `Scripts/ctf2bin.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from ....framework.base.errors import FormatError, ShapeError
from ....framework.base.files.atomic import PathLike, atomic_file
from ....framework.base.sequence import bincount, repeated
from ....framework.base.untrusted.values import shown
from ...config.parameters import ConfigParameters
from ..base.data import ChunkInfo, Deserializer, Samples, Stream
from ..base.order import WHOLE_SWEEP, BlockShuffle, FileOrder
from ..base.pack import SequencePacker
from ..base.packed_reader import PackedReader
from ..base.reader import DataReader
from ..base.steady_file import Cursor, SteadyFile
from ..opening import Opening

_VERSION = 1
_TYPES = (np.dtype("<f4"), np.dtype("<f8"))
_ENTRY = 16
_CODE_OF = {np.dtype(np.float32): 0, np.dtype(np.float64): 1}


class BinaryFile(Deserializer):
    """A file of the binary format.

    Args:
        path: of the file.
        names: other names for streams, by their names in the file.

    Raises:
        FormatError: the file is wrong; the message has the byte offset.
    """

    def __init__(self, path: PathLike, names: Mapping[str, str] | None = None) -> None:
        self.path = str(path)
        self._file = SteadyFile(path)
        try:
            self._read_head(names or {})
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """See `Deserializer.close`."""
        self._file.close()

    def _read_head(self, renamed: Mapping[str, str]) -> None:
        """Streams, and where chunks are."""
        size = self._file.size
        at = Cursor(self._file, 0, size)
        version = at.number("<i8", "the version")
        if version != _VERSION:
            raise FormatError(f"{self.path}: byte 0: version {version}; {_VERSION} was expected")
        chunks = at.number("<i8", "the number of chunks")
        inputs = at.number("<i4", "the number of streams")
        if not 0 < inputs <= size or not 0 < chunks <= size:
            raise FormatError(f"{self.path}: byte 8: {chunks} chunks of {inputs} streams")
        self.streams = [self._stream(at) for _ in range(inputs)]
        self.streams = [replace(s, name=renamed.get(s.name, s.name)) for s in self.streams]
        seen: set[str] = set()
        for stream in self.streams:
            if stream.name in seen:
                raise FormatError(f"{self.path}: byte {at.at}: two streams {shown(stream.name)}")
            seen.add(stream.name)
        entry = [("offset", "<i8"), ("sequences", "<i4"), ("samples", "<i4")]
        table = at.take(np.dtype(entry), chunks, "the table of chunks")
        self._begin = at.at + table["offset"].astype(np.int64)
        self._end = np.append(self._begin[1:], size)
        self._counts = table["sequences"].astype(np.int64)
        place = at.at - _ENTRY * chunks
        if np.any(self._begin < at.at) or np.any(self._begin > self._end):
            raise FormatError(f"{self.path}: byte {place}: offsets do not ascend")
        if min(self._counts) < 1:  # such chunks would cost time and no bytes
            empty = int(np.argmin(self._counts))
            raise FormatError(
                f"{self.path}: byte {place + _ENTRY * empty + 8}: chunk {empty} has "
                f"{self._counts[empty]} sequences"
            )
        self.chunks = []
        for number in range(chunks):
            lengths = [samples.lengths for samples in self.read_chunk(number)]
            self.chunks.append(ChunkInfo(np.max(lengths, axis=0, initial=1)))

    def _stream(self, at: Cursor) -> Stream:
        length = at.number("<i4", "the length of a name")
        name = at.take("S1", length, "the name of a stream").tobytes().decode("utf-8", "replace")
        sparse = at.choice(2, "the kind of stream") == 1
        if sparse:
            at.choice(1, "the storage of a sparse stream")
        dtype = _TYPES[at.choice(2, "the type of numbers")]
        if sparse:
            at.choice(2, "the mark of sequences")
        begin = at.at
        dim = at.number("<i4", "a dimension")
        if dim < 1:
            raise FormatError(f"{self.path}: byte {begin}: the dimension of {name!r} is {dim}")
        return Stream(name, dim, sparse, dtype.newbyteorder("="))

    def read_chunk(self, number: int) -> list[Samples]:
        """See `Deserializer.read_chunk`.

        Raises:
            FormatError: the file is wrong; the message has the byte offset.
        """
        begin, end = int(self._begin[number]), int(self._end[number])
        at = Cursor(self._file, begin, end)
        count = int(self._counts[number])
        read = (self._sparse if stream.sparse else self._dense for stream in self.streams)
        return [kind(at, stream, count) for kind, stream in zip(read, self.streams, strict=True)]

    def _dense(self, at: Cursor, stream: Stream, count: int) -> Samples:
        kind = _TYPES[_CODE_OF[stream.dtype]]
        values = at.take(kind, count * stream.dim, f"the samples of {stream.name}")
        return Samples(np.arange(count + 1), values.astype(stream.dtype).reshape(count, stream.dim))

    def _sparse(self, at: Cursor, stream: Stream, count: int) -> Samples:
        name = stream.name
        kind = _TYPES[_CODE_OF[stream.dtype]]
        elements = at.number("<i4", f"the number of elements of {name}")
        values = at.take(kind, elements, f"the values of {name}").astype(stream.dtype)
        place = at.at
        rows = at.take("<i4", elements, f"the rows of {name}").astype(np.int64)
        bounds = at.take("<i4", count + 1, f"the sequences of {name}").astype(np.int64)
        if bounds[0] != 0 or bounds[-1] != elements or np.any(np.diff(bounds) < 0):
            raise FormatError(f"{self.path}: byte {place}: {name}: sequences do not ascend")
        owner = repeated(np.arange(count), np.diff(bounds))
        key = owner << 32 | rows
        if np.any(rows < 0) or np.any(np.diff(key) < 0):
            raise FormatError(f"{self.path}: byte {place}: {name}: the rows do not ascend")
        sample, index = np.divmod(rows, stream.dim)
        # A sequence reaches to the last sample that has an element; one without any has one sample.
        lengths = np.ones(count, np.int64)
        np.maximum.at(lengths, owner, sample + 1)
        if lengths.sum() > self._file.size + count:
            raise FormatError(f"{self.path}: byte {place}: {name}: a row is out of range")
        begin = np.concatenate([[0], np.cumsum(lengths)])
        counts = bincount(begin[owner] + sample, minlength=int(begin[-1]))
        return Samples(begin, values, index, np.concatenate([[0], np.cumsum(counts)]))


def write_binary(path: PathLike, source: Deserializer) -> None:
    """Write all chunks of a source in the binary format.

    Raises:
        ShapeError: a dense stream has sequences of more than one sample, which the format lacks.
        SaveError: the file cannot be written; an older file is untouched.
    """
    head = struct.pack("<qqi", _VERSION, len(source.chunks), len(source.streams))
    for stream in source.streams:
        name = stream.name.encode()
        head += struct.pack("<i", len(name)) + name
        code = _CODE_OF[stream.dtype]
        fields = (1, 0, code, 1, stream.dim) if stream.sparse else (0, code, stream.dim)
        head += struct.pack(f"<{len(fields)}i", *fields)
    with atomic_file(path) as file:
        file.write(head)
        file.write(bytes(_ENTRY * len(source.chunks)))
        begin = file.tell()
        table = b""
        for number, chunk in enumerate(source.chunks):
            place = file.tell() - begin
            table += struct.pack("<qii", place, len(chunk.lengths), chunk.samples)
            for stream, samples in zip(source.streams, source.read_chunk(number), strict=True):
                file.write(_bytes(stream, samples))
        file.seek(begin - len(table))
        file.write(table)


def _bytes(stream: Stream, samples: Samples) -> bytes:
    kind = _TYPES[_CODE_OF[stream.dtype]]
    if samples.first is None or samples.indices is None:
        if np.any(samples.lengths != 1):
            raise ShapeError(f"{stream.name}: the binary format has no dense sequences")
        return samples.values.astype(kind).tobytes()
    counts = np.diff(samples.first)
    sequence = repeated(np.arange(len(samples.lengths)), samples.lengths)
    step = np.arange(len(counts)) - samples.begin[sequence]
    sample = repeated(np.arange(len(counts)), counts)
    rows = samples.indices + step[sample] * stream.dim
    order = np.lexsort((rows, sequence[sample]))
    bounds = samples.first[samples.begin]
    parts = (
        np.array([len(rows)], "<i4"),
        samples.values[order].astype(kind),
        rows[order].astype("<i4"),
        bounds.astype("<i4"),
    )
    return b"".join(part.tobytes() for part in parts)


def binary_source(config: ConfigParameters) -> Opening[Deserializer]:
    """CNTKBinaryFormatDeserializer: the file of a section, its streams named by `alias`."""
    names: dict[str, str] = {}
    if config.has("input"):
        inputs = config.section("input")
        for name in inputs.names():
            part = inputs.section(name)
            names[part.string("alias") if part.has("alias") else name] = name
    return Opening(
        partial(BinaryFile, config.string("file"), names), config.files("file"), light=True
    )


def cntk_binary_reader(config: ConfigParameters) -> Opening[DataReader]:
    """The reader of a section with readerType CNTKBinaryReader; it shuffles where `randomize` is
    true.

    Raises:
        FormatError: a parameter is missing or wrong.
    """
    source = binary_source(config)
    shuffles = config.match("randomize", "true")
    config.only_if(shuffles, "nothing is randomized", "randomizationWindow")
    window: int | None = WHOLE_SWEEP
    if shuffles and "randomizationWindow" in config:
        window = config.size("randomizationWindow")
    ahead = config.bool("prefetch", True)

    def opened() -> DataReader:
        data = source.open()
        order = BlockShuffle(data, window) if shuffles else FileOrder(data)
        return PackedReader(SequencePacker(order, data.streams), ahead=ahead)

    return Opening(opened, source.files, light=True)
