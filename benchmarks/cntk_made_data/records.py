"""Tables of UCIFastReader, batches of LibSVMBinaryReader, files of CNTKBinaryReader."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from opscope.cntk.config import ConfigParameters
from opscope.cntk.readers.base.data import ChunkInfo, Deserializer, Samples, Stream
from opscope.cntk.readers.base.sections import file_sections
from opscope.cntk.readers.binary.format import write_binary

from .base import CLASSES, MadeData, make_folder_of, write

_RECORDS = 64  # of LibSVMBinaryReader: more than a network compares each with


def table(made: MadeData, section: ConfigParameters) -> None:
    """A table of UCIFastReader, with its list of labels."""
    features, labels = file_sections(section)
    name, part = features[0]
    columns = part.size("start", 0) + part.size("dim")
    place = columns
    if labels:
        place = labels[0][1].size("start", 0)
    width = max(columns, place + 1)
    rows = []
    for number in range(made.count):
        kind = number % CLASSES
        row = [f"{value:.4g}" for value in made.row(name, width, kind)]
        if labels:
            kind %= labels[0][1].size("labelDim", 1)
            row[place] = str(kind)
        rows.append(" ".join(row) + "\n")
    write(part.string("file"), "".join(rows))
    if labels and labels[0][1].string("labelMappingFile", ""):
        count = labels[0][1].size("labelDim")
        write(labels[0][1].string("labelMappingFile"), "".join(f"{n}\n" for n in range(count)))


def libsvm(made: MadeData, section: ConfigParameters) -> None:
    """A batch of LibSVMBinaryReader: the sparse inputs of the networks, one-hot samples."""
    made.minibatch = made.count = _RECORDS  # those of a batch are read together
    sparse = [one for one in made.meanings.values() if one.sparse]
    head = struct.pack("<qqii", made.count, 1, len(sparse), 0)
    batch = struct.pack("<i", made.count)
    kinds = np.arange(made.count, dtype="<i4") % CLASSES
    for one in sparse:
        head += struct.pack("<i", len(one.name)) + one.name.encode()
        head += struct.pack("<i", int(np.prod(one.shape)))
        begin = np.arange(made.count + 1, dtype="<i4")
        batch += struct.pack("<i", made.count) + np.ones(made.count, "<f4").tobytes()
        batch += kinds.tobytes() + begin.tobytes()
    path = section.string("file")
    make_folder_of(path)
    Path(path).write_bytes(head + struct.pack("<q", 0) + batch)


def binary(made: MadeData, section: ConfigParameters) -> None:
    """A file of CNTKBinaryReader: features and one-hot labels of 10 numbers."""
    inputs = section.section("input")
    streams = []
    for name in inputs.names():
        part = inputs.section(name)
        alias = part.string("alias", name)
        streams.append(Stream(alias, 10, "label" in name.lower(), np.dtype(np.float32)))
    path = section.string("file")
    make_folder_of(path)
    write_binary(path, _Made(made, streams))


class _Made(Deserializer):
    """Single samples in memory."""

    def __init__(self, maker: MadeData, streams: list[Stream]) -> None:
        self.streams = streams
        self.chunks = [ChunkInfo(np.ones(maker.count, np.int64))]
        self._maker = maker

    def read_chunk(self, number: int) -> list[Samples]:
        """See `Deserializer.read_chunk`."""
        kinds = np.arange(self._maker.count) % CLASSES
        begin = np.arange(len(kinds) + 1)
        chunk = []
        for stream in self.streams:
            if stream.sparse:
                ones = np.ones(len(kinds), stream.dtype)
                chunk.append(Samples(begin, ones, kinds.astype(np.int64), begin))
            else:
                rows = [self._maker.row(stream.name, stream.dim, kind) for kind in kinds.tolist()]
                chunk.append(Samples(begin, np.array(rows, stream.dtype)))
        return chunk
