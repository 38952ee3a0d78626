"""Training examples of nnet3: named matrices with an Index for each row.

Format: Kaldi's `nnet3/nnet-example.cc`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...kaldi.files.kaldi_io import Reader, Writer
from ...kaldi.files.sparse import GeneralMatrix, read_general_matrix, write_general_matrix
from .index_io import read_indexes, write_indexes

_SHORTEST_IO = len("<NnetIo> a <I1V> ")


@dataclass(eq=False)
class NnetIo:
    """One input or output of an example.

    Attributes:
        name: of the node.
        indexes: n, t, x of each row, int32, [rows, 3].
        features: [rows, dim], of any kind: plain, compressed or sparse.
    """

    name: str
    indexes: np.ndarray
    features: GeneralMatrix

    @classmethod
    def read(cls, reader: Reader) -> NnetIo:
        """Read one.

        Raises:
            FormatError: the bytes are something else, are cut off, or the number of Indexes is
                not the number of rows.
        """
        start = reader.offset
        reader.expect_token("<NnetIo>")
        name = reader.read_token()
        indexes = read_indexes(reader)
        features = read_general_matrix(reader)
        if len(indexes) != features.shape[0]:
            raise reader.error(
                f"{name} has {len(indexes)} Indexes and {features.shape[0]} rows", start
            )
        reader.expect_token("</NnetIo>")
        return cls(name, indexes, features)

    def write(self, writer: Writer) -> None:
        """Write it, in the form of the writer."""
        writer.write_token("<NnetIo>")
        writer.write_token(self.name)
        write_indexes(writer, self.indexes)
        write_general_matrix(writer, self.features)
        writer.write_token("</NnetIo>")


@dataclass(eq=False)
class NnetExample:
    """The inputs and outputs of one example, or of several merged ones (with n from 0 on)."""

    io: list[NnetIo]

    @classmethod
    def read(cls, reader: Reader) -> NnetExample:
        """Read one.

        Raises:
            FormatError: the bytes are something else, or are cut off.
        """
        reader.expect_token("<Nnet3Eg>")
        reader.expect_token("<NumIo>")
        start = reader.offset
        count = reader.read_int32()
        if count <= 0 or count * _SHORTEST_IO > reader.remaining():
            raise reader.error(
                f"an example with {count} inputs and outputs cannot stand here", start
            )
        io = [NnetIo.read(reader) for _ in range(count)]
        reader.expect_token("</Nnet3Eg>")
        return cls(io)

    def write(self, writer: Writer) -> None:
        """Write it, in the form of the writer."""
        writer.write_token("<Nnet3Eg>")
        writer.write_token("<NumIo>")
        writer.write_int32(len(self.io))
        for io in self.io:
            io.write(writer)
        writer.write_token("</Nnet3Eg>")
