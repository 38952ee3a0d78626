"""Pairs of index and value, sparse matrices, and what may be any kind of matrix, in Kaldi's files.

A sparse matrix is kept as its rows one after the other; nothing here makes a Python object for
each element. Formats: Kaldi's `matrix/sparse-matrix.cc`.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.sequence import repeated
from . import matrix_io
from .compressed import CompressedMatrix
from .kaldi_io import Reader, Writer

_LARGEST_DENSE = 1 << 29  # elements, 2 GiB
_PAIRS = {
    size: np.dtype([("i", "u1"), ("index", "<i4"), ("f", "u1"), ("value", f"<f{size}")])
    for size in (4, 8)
}
_ROW_HEADER = struct.Struct("<3sbibi")
_WORD = re.compile(rb"\S+")


@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """A sparse matrix.

    Attributes:
        dims: columns of each row, int32, [rows] (all the same in a matrix that makes sense).
        starts: where the elements of each row begin, int64, [rows + 1].
        columns: int32, [elements].
        values: float32, [elements].
    """

    dims: np.ndarray
    starts: np.ndarray
    columns: np.ndarray
    values: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)"""
        return len(self.dims), int(self.dims[0]) if len(self.dims) else 0

    @classmethod
    def from_dense(cls, matrix: np.ndarray) -> SparseMatrix:
        """The elements of `matrix` that are not zero."""
        matrix = np.asarray(matrix, np.float32)
        rows, columns = np.nonzero(matrix)
        starts = np.searchsorted(rows, np.arange(len(matrix) + 1))
        dims = np.full(len(matrix), matrix.shape[1], np.int32)
        return cls(dims, starts, columns.astype(np.int32), matrix[rows, columns])

    def dense(self) -> np.ndarray:
        """All elements, float32, [rows, columns].

        Raises:
            FormatError: rows differ in their number of columns, or the matrix would be too large
                for the memory (2 GiB), as a damaged size in a file makes it.
        """
        rows, columns = self.shape
        if np.any(self.dims != columns):
            raise FormatError("the rows of a sparse matrix differ in their number of columns")
        if rows * columns > _LARGEST_DENSE:
            raise FormatError(f"a sparse matrix of {rows} x {columns} is too large to fill in")
        dense = np.zeros((rows, columns), np.float32)
        dense[repeated(np.arange(rows), np.diff(self.starts)), self.columns] = self.values
        return dense

    @classmethod
    def read(cls, reader: Reader) -> SparseMatrix:
        """Read one, binary or text.

        Raises:
            FormatError: the bytes are something else, are cut off, or a column does not exist.
        """
        rows = _row_count(reader)
        uniform = _read_uniform(reader, rows) if reader.binary and rows else None
        if uniform is not None:
            return uniform
        dims, parts = [], []
        for _ in range(rows):
            start = reader.offset
            dim, columns, values = _read_row(reader)
            if dim < 0 or np.any(columns < 0) or np.any(columns >= dim):
                raise reader.error(f"a sparse row of {dim} columns has others than these", start)
            dims.append(dim)
            parts.append((columns, values))
        starts = np.cumsum([0] + [len(columns) for columns, _ in parts], dtype=np.int64)
        empty = (np.zeros(0, np.int32), np.zeros(0, np.float32))
        columns, values = (np.concatenate(part) for part in zip(empty, *parts, strict=True))
        return cls(np.array(dims, np.int32), starts, columns, values)

    def write(self, writer: Writer) -> None:
        """Write it, in the form of the writer."""
        rows = zip(self.dims.tolist(), self.starts[:-1], self.starts[1:], strict=True)
        if writer.binary:
            writer.write_token("SM")
            writer.write_int32(len(self.dims))
            for dim, start, stop in rows:
                writer.write_raw(_ROW_HEADER.pack(b"SV ", 4, dim, 4, stop - start))
                write_pairs(writer, self.columns[start:stop], self.values[start:stop])
        else:
            writer.write_raw(f"rows={len(self.dims)} ")
            for dim, start, stop in rows:
                writer.write_raw(f"dim={dim} [ ")
                write_pairs(writer, self.columns[start:stop], self.values[start:stop])
                writer.write_raw("] ")
            writer.write_raw("\n")


GeneralMatrix: TypeAlias = np.ndarray | CompressedMatrix | SparseMatrix


def read_general_matrix(reader: Reader) -> GeneralMatrix:
    """A matrix of any kind, kept in the kind it is stored in."""
    start = reader.peek()
    if start == ("S" if reader.binary else "r"):
        return SparseMatrix.read(reader)
    if reader.binary and start == "C":
        return CompressedMatrix.read(reader)
    return matrix_io.read_matrix(reader)


def write_general_matrix(writer: Writer, matrix: GeneralMatrix) -> None:
    """A matrix of any kind; in text a compressed one is written as a plain one."""
    if isinstance(matrix, SparseMatrix | CompressedMatrix):
        matrix.write(writer)
    else:
        matrix_io.write_matrix(writer, matrix)


def to_dense(matrix: GeneralMatrix) -> np.ndarray:
    """The elements of a matrix of any kind, [rows, columns]."""
    if isinstance(matrix, CompressedMatrix):
        return matrix.decompress()
    return matrix.dense() if isinstance(matrix, SparseMatrix) else matrix


def read_pairs(reader: Reader, count: int) -> tuple[np.ndarray, np.ndarray]:
    """`count` binary pairs of an integer and a number, each after its size: int32, float32."""
    start = reader.offset
    mark = bytes(reader.data[start + 5 : start + 6])
    size = 8 if mark == b"\x08" else 4
    pairs = reader.read_array(_PAIRS[size], count)
    if np.any(pairs["i"] != 4) or np.any(pairs["f"] != size):
        raise reader.error("pairs of an integer and a number were expected here", start)
    return pairs["index"].astype(np.int32), pairs["value"].astype(np.float32)


def parse_pairs(reader: Reader, text: bytes, start: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs `1 0.5 2 0.25` in `text`, which stands at `start` of the file: int32, float32."""
    words = text.split()
    if len(words) % 2:
        raise reader.error("an index without a value: pairs were expected here", start)
    try:
        indexes = np.array(list(map(int, words[::2])), np.int64)
        values = np.array(list(map(float, words[1::2])), np.float64)
        if b"_" in text or not np.array_equal(indexes.astype(np.int32), indexes):
            raise ValueError
    except (ValueError, OverflowError):
        raise _wrong_pair(reader, text, start) from None
    with np.errstate(over="ignore"):
        return indexes.astype(np.int32), values.astype(np.float32)


def write_pairs(writer: Writer, indexes: np.ndarray, values: np.ndarray) -> None:
    """Pairs of an integer and a number, without their count or brackets."""
    if writer.binary:
        pairs = np.empty(len(indexes), _PAIRS[4])
        pairs["i"] = pairs["f"] = 4
        pairs["index"], pairs["value"] = indexes, values
        writer.write_raw(pairs.tobytes())
    else:
        words: list = [None] * (2 * len(indexes))
        words[::2] = indexes.tolist()
        words[1::2] = matrix_io.format_numbers(np.asarray(values, np.float32)).split()
        writer.write_raw(b"%d %s " * len(indexes) % tuple(words))


def _wrong_pair(reader: Reader, text: bytes, start: int) -> FormatError:
    """An error at the first word that is no integer, or no number, in its turn."""
    for place, match in enumerate(_WORD.finditer(text)):
        word = match.group()
        right = matrix_io.is_number(word) if place % 2 else matrix_io.is_integer(word, 4)
        if not right:
            what = "a number" if place % 2 else "an integer of 4 bytes"
            shown = word[:40].decode("utf-8", "backslashreplace")
            return reader.error(
                f"{what} was expected here, but this is {shown!r}", start + match.start()
            )
    return reader.error("pairs were expected here", start)


def _read_uniform(reader: Reader, rows: int) -> SparseMatrix | None:
    """All rows at once where each has as many elements as the first, as class labels have; else
    None, and the reader stays where it is."""
    start = reader.offset
    head = bytes(reader.data[start : start + _ROW_HEADER.size])
    if len(head) < _ROW_HEADER.size:
        return None
    mark, four, dim, also_four, count = _ROW_HEADER.unpack(head)
    size = _ROW_HEADER.size + count * _PAIRS[4].itemsize
    if (mark, four, also_four) != (b"SV ", 4, 4) or count < 0:
        return None
    if rows * size > reader.remaining():
        return None
    row = np.dtype([("head", f"V{_ROW_HEADER.size}"), ("pairs", _PAIRS[4], (count,))])
    records = np.frombuffer(reader.data, row, rows, start)
    pairs = records["pairs"].reshape(-1)
    columns = pairs["index"].astype(np.int32)
    same = (records["head"] == records["head"][0]).all()
    if not same or (pairs["i"] != 4).any() or (pairs["f"] != 4).any():
        return None
    if (columns < 0).any() or (columns >= dim).any():
        return None
    reader.offset = start + rows * size
    dims = np.full(rows, dim, np.int32)
    starts = count * np.arange(rows + 1, dtype=np.int64)
    return SparseMatrix(dims, starts, columns, pairs["value"].astype(np.float32))


def _row_count(reader: Reader) -> int:
    """Read the beginning of a sparse matrix; the number of its rows."""
    start = reader.offset
    if reader.binary:
        reader.expect_token("SM")
        rows = reader.read_int32()
        least = _ROW_HEADER.size
    else:
        rows = _named_integer(reader, "rows")
        least = len("dim=0 [ ]")
    if rows < 0 or rows * least > reader.remaining() + 1:
        raise reader.error(f"a sparse matrix of {rows} rows cannot stand here", start)
    return rows


def _read_row(reader: Reader) -> tuple[int, np.ndarray, np.ndarray]:
    if not reader.binary:
        dim = _named_integer(reader, "dim")
        start, body = matrix_io.bracketed(reader)
        return dim, *parse_pairs(reader, body, start)
    start = reader.offset
    header = reader.read_bytes(_ROW_HEADER.size)
    token, mark, dim, count_mark, count = _ROW_HEADER.unpack(header)
    if token != b"SV " or mark != 4 or count_mark != 4 or count < 0:
        raise reader.error("a sparse row, 'SV', was expected here", start)
    return dim, *read_pairs(reader, count)


def _named_integer(reader: Reader, name: str) -> int:
    """The integer of `name=5`, which ends with a space."""
    start = reader.offset
    token = reader.read_token()
    key, _, number = token.partition("=")
    if key != name or not matrix_io.is_integer(number.encode("utf-8", "replace"), 4):
        reader.offset = start
        raise reader.error(
            f"'{name}=' and an integer were expected, but this is {reader.shown_token()}"
        )
    return int(number)
