"""Kaldi's lossily compressed matrices: three layouts, seven methods.

Layouts, by the token in front of them:
- `CM`: one byte for each element, column by column. Every column has four of its sorted values
  (least, at a quarter, at three quarters, greatest) as 16-bit fractions of the whole range, and the
  byte runs linearly between these: 0 to 64, 64 to 192, 192 to 255.
- `CM2`: two bytes for each element, row by row, linear over the whole range.
- `CM3`: one byte for each element, row by row, linear over the whole range.

Format and rounding: Kaldi's `matrix/compressed-matrix.cc`. The arithmetic here rounds where Kaldi
does when it is compiled for processors that multiply and add in one step, as all newer ones do: so
bytes and values are the same to the last bit. Other builds of Kaldi differ in the last bit of some
values.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ...framework.base.errors import FormatError
from .tokens import TokenReader

_HEADER = np.dtype([("least", "<f4"), ("range", "<f4"), ("rows", "<i4"), ("columns", "<i4")])
_ELEMENTS = {"CM": np.dtype("u1"), "CM2": np.dtype("<u2"), "CM3": np.dtype("u1")}
_STEP = np.float32(1.52590218966964e-05)  # 1 / 65535
_FEW_ROWS = 8  # up to here the automatic method takes two bytes and no column headers


class Compression(enum.IntEnum):
    """How a matrix is compressed; the numbers are Kaldi's."""

    AUTOMATIC = 1
    SPEECH_FEATURE = 2
    TWO_BYTE_AUTO = 3
    TWO_BYTE_SIGNED_INTEGER = 4
    ONE_BYTE_AUTO = 5
    ONE_BYTE_UNSIGNED_INTEGER = 6
    ONE_BYTE_ZERO_ONE = 7


_LAYOUTS = {
    Compression.SPEECH_FEATURE: "CM",
    Compression.TWO_BYTE_AUTO: "CM2",
    Compression.TWO_BYTE_SIGNED_INTEGER: "CM2",
    Compression.ONE_BYTE_AUTO: "CM3",
    Compression.ONE_BYTE_UNSIGNED_INTEGER: "CM3",
    Compression.ONE_BYTE_ZERO_ONE: "CM3",
}
_FIXED_RANGES = {  # least value, range
    Compression.TWO_BYTE_SIGNED_INTEGER: (-32768.0, 65535.0),
    Compression.ONE_BYTE_UNSIGNED_INTEGER: (0.0, 255.0),
    Compression.ONE_BYTE_ZERO_ONE: (0.0, 1.0),
}


class MatrixWriter(Protocol):
    """A writer of Kaldi's files that writes plain matrices; see `kaldi_io.Writer`."""

    binary: bool

    def write_token(self, token: str) -> None:
        """Write a token and a space."""

    def write_raw(self, data: str | bytes) -> None:
        """Write text or bytes as they are."""

    def write_matrix(self, matrix: np.ndarray) -> None:
        """Write a plain matrix."""


@dataclass(frozen=True, eq=False)
class CompressedMatrix:
    """A compressed matrix as it is stored.

    Attributes:
        layout: `CM`, `CM2` or `CM3`.
        least, range: the least value, and the greatest minus the least; float32.
        elements: uint8 or uint16, [rows, columns] (for `CM` a view of the columns in the file).
        quartiles: `CM` only: uint16, [columns, 4].
    """

    layout: str
    least: np.float32
    range: np.float32
    elements: np.ndarray
    quartiles: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)"""
        rows, columns = self.elements.shape
        return rows, columns

    @classmethod
    def read(cls, reader: TokenReader) -> CompressedMatrix:
        """Read one from a binary file, beginning with its token.

        Raises:
            FormatError: it is cut off, or its sizes go beyond the end of the file.
        """
        layout, least, span, rows, columns = read_header(reader)
        itemsize = _ELEMENTS[layout].itemsize
        reader.check_left(rows * columns * itemsize, f"a matrix of {rows} rows, {columns} columns")
        if layout == "CM":
            if columns == 0:  # Kaldi writes 4 bytes more here than it reads back
                reader.offset += 4 * (reader.data[reader.offset : reader.offset + 4] == bytes(4))
            quartiles = reader.read_array("<u2", 4 * columns).reshape(columns, 4)
            elements = reader.read_array("u1", rows * columns).reshape(columns, rows).T
            return cls(layout, least, span, elements, quartiles)
        elements = reader.read_array(_ELEMENTS[layout], rows * columns).reshape(rows, columns)
        return cls(layout, least, span, elements)

    @classmethod
    def compress(
        cls, matrix: np.ndarray, method: Compression = Compression.AUTOMATIC
    ) -> CompressedMatrix:
        """Compress `matrix`, [rows, columns], of float32 (or what can be rounded to it).

        Raises:
            FormatError: it is not a matrix, or holds a NaN, or an infinity where the range is to be
                determined.
        """
        matrix = np.asarray(matrix, np.float32)
        if matrix.ndim != 2:
            raise FormatError(f"only a matrix can be compressed, not {list(matrix.shape)}")
        if matrix.size == 0:
            empty = np.zeros((0, 0), np.uint8)
            return cls("CM", np.float32(0), np.float32(0), empty, np.zeros((0, 4), np.uint16))
        method = Compression(method)
        if method == Compression.AUTOMATIC:
            many = matrix.shape[0] > _FEW_ROWS
            method = Compression.SPEECH_FEATURE if many else Compression.TWO_BYTE_AUTO
        least, span = _range_of(matrix, method)
        layout = _LAYOUTS[method]
        if layout == "CM":
            quartiles = _quartiles_of(matrix, least, span)
            return cls(
                layout, least, span, _column_bytes(matrix, quartiles, least, span), quartiles
            )
        return cls(layout, least, span, _fractions(matrix, least, span, _ELEMENTS[layout]))

    def decompress(self) -> np.ndarray:
        """The values, float32, [rows, columns]."""
        if self.layout == "CM":
            return self._decompress_columns()
        most = np.iinfo(self.elements.dtype).max
        step = np.float32(float(self.range) * (1.0 / most))
        return _fused(step, self.elements, self.least)

    def write(self, writer: MatrixWriter) -> None:
        """Write it; in text as a plain matrix, as Kaldi does."""
        if not writer.binary:
            writer.write_matrix(self.decompress())
            return
        rows, columns = self.shape
        writer.write_token(self.layout)
        writer.write_raw(np.array((self.least, self.range, rows, columns), _HEADER).tobytes())
        if self.quartiles is not None:
            if columns == 0:
                writer.write_raw(bytes(4))
            writer.write_raw(self.quartiles.astype("<u2", copy=False).tobytes())
            writer.write_raw(self.elements.T.tobytes())
        else:
            writer.write_raw(self.elements.astype(_ELEMENTS[self.layout], copy=False).tobytes())

    def rows(self, first: int, stop: int) -> CompressedMatrix:
        """Some of the rows, still compressed."""
        chosen = self.elements[first:stop]
        return CompressedMatrix(self.layout, self.least, self.range, chosen, self.quartiles)

    def corner_values(self) -> np.ndarray:
        """Of the layout `CM` the four sorted values of each column, float32, [columns, 4]."""
        assert self.quartiles is not None
        return _corner_values(self.quartiles, self.least, self.range)

    def _decompress_columns(self) -> np.ndarray:
        codes = self.elements.T
        corners = self.corner_values()[..., None]
        if codes.shape[1] <= 256:
            values = _between(corners, codes)
        else:  # every code occurs several times: its value is worked out once for each column
            table = _between(corners, np.arange(256, dtype=np.uint8)[None])
            starts = np.arange(0, table.size, 256, dtype=np.int32)[:, None]
            values = table.ravel().take(codes + starts)
        return np.ascontiguousarray(values.T)


def read_header(reader: TokenReader) -> tuple[str, np.float32, np.float32, int, int]:
    """What stands before the elements: layout, least value, range, rows, columns.

    Raises:
        FormatError: no compressed matrix begins here.
    """
    start = reader.offset
    layout = reader.expect_token(*_ELEMENTS)
    header = reader.read_array(_HEADER, 1)[0]
    rows, columns = int(header["rows"]), int(header["columns"])
    if rows < 0 or columns < 0 or (rows == 0) != (columns == 0):
        raise reader.error(f"no matrix has {rows} rows and {columns} columns", start)
    return layout, header["least"], header["range"], rows, columns


def decompress_stacked(matrices: Sequence[CompressedMatrix]) -> np.ndarray:
    """The values of several matrices one below the other, float32.

    Matrices of the layout `CM` and of equal sizes, as the features of a minibatch are, take little
    more time together than one alone.
    """
    shape, layout = matrices[0].shape, matrices[0].layout
    if layout != "CM" or any((m.shape, m.layout) != (shape, layout) for m in matrices):
        return np.concatenate([matrix.decompress() for matrix in matrices])
    rows, columns = shape
    corners = np.concatenate([matrix.corner_values() for matrix in matrices])
    codes = np.concatenate([m.elements.T for m in matrices])
    values = _between(corners[..., None], codes).reshape(len(matrices), columns, rows)
    return np.ascontiguousarray(values.swapaxes(1, 2)).reshape(-1, columns)


def _range_of(matrix: np.ndarray, method: Compression) -> tuple[np.float32, np.float32]:
    """The least value and the range that `method` gives the elements."""
    least, most = matrix.min(), matrix.max()
    if np.isnan(least):
        raise FormatError("a matrix with a NaN cannot be compressed")
    if method in _FIXED_RANGES:
        least, span = _FIXED_RANGES[method]
        return np.float32(least), np.float32(span)
    with np.errstate(over="ignore", invalid="ignore"):
        if least == most:
            most = np.float32(float(least) + (1.0 + abs(float(least))))
        span = most - least
    if not np.isfinite(span):
        raise FormatError("a matrix with an infinite value or range cannot be compressed")
    return least, span


def _fractions(
    values: np.ndarray, least: np.float32, span: np.float32, dtype: np.dtype
) -> np.ndarray:
    """How far in the range each value lies, as integers of `dtype`."""
    fractions = (values - least) / span
    np.clip(fractions, 0, 1, out=fractions)
    fractions *= np.float32(np.iinfo(dtype).max)
    return (fractions + np.float64(0.499)).astype(dtype)


def _quartiles_of(matrix: np.ndarray, least: np.float32, span: np.float32) -> np.ndarray:
    """Four rising 16-bit fractions for each column, [columns, 4]."""
    rows, columns = matrix.shape
    quarter = rows // 4
    chosen = [0, quarter, 3 * quarter, rows - 1] if rows >= 5 else range(rows)
    quartiles = np.zeros((columns, 4), np.int32)
    corners = np.sort(matrix, axis=0)[chosen].T
    quartiles[:, : corners.shape[1]] = _fractions(corners, least, span, np.dtype("u2"))
    quartiles[:, 0] = np.minimum(quartiles[:, 0], 65532)
    for place, highest in ((1, 65533), (2, 65534), (3, 65535)):
        raised = np.maximum(quartiles[:, place], quartiles[:, place - 1] + 1)
        quartiles[:, place] = np.minimum(raised, highest)
    return quartiles.astype(np.uint16)


def _corner_values(quartiles: np.ndarray, least: np.float32, span: np.float32) -> np.ndarray:
    """The values of the four fractions of each column, float32, [columns, 4]."""
    return _fused(span * _STEP, quartiles, least)


def _between(corners: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """The values of bytes between the four `corners`, [columns, 4, 1], of their column."""
    values = np.empty((len(corners), codes.shape[1]), np.float32)
    for part, (low, high) in enumerate(((0, 64), (64, 192), (192, 255))):
        inside = (codes <= high) & (codes > low) if part else codes <= high
        start = corners[:, part]
        with np.errstate(over="ignore", invalid="ignore"):
            steps = (corners[:, part + 1] - start) * (codes.astype(np.float32) - np.float32(low))
            line = start + steps * np.float64(1.0 / (high - low))
        np.copyto(values, line, casting="same_kind", where=inside)
    return values


def _fused(factor: np.float32, numbers: np.ndarray, term: np.float32) -> np.ndarray:
    """`factor * numbers + term`, rounded once to float32."""
    exact = numbers.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        exact *= np.float64(factor)
        exact += np.float64(term)
        return exact.astype(np.float32)


def _column_bytes(
    matrix: np.ndarray, quartiles: np.ndarray, least: np.float32, span: np.float32
) -> np.ndarray:
    """The byte of each element, [rows, columns]: its place between its column's four values."""
    p0, p25, p75, p100 = _corner_values(quartiles, least, span).T[..., None]
    columns = np.ascontiguousarray(matrix.T)
    codes = np.empty(columns.shape, np.uint8)
    below = columns < p25
    above = columns >= p75
    with np.errstate(divide="ignore", invalid="ignore"):
        for inside, start, end, low, high in (
            (below, p0, p25, 0, 64),
            (~(below | above), p25, p75, 64, 192),
            (above, p75, p100, 192, 255),
        ):
            fractions = (columns - start) / (end - start) * np.float32(high - low)
            # Corners that fall together in float32 make this infinite: the lower end is taken.
            fractions[~np.isfinite(fractions)] = 0
            places = low + (fractions + np.float64(0.5)).clip(0, high - low)
            np.copyto(codes, places, casting="unsafe", where=inside)
    return codes.T
