"""CNTK's binary files: little-endian numbers, zero-terminated strings, sections between markers.

A marker is a string such as `BNodeList` or `ENodeList`; wide strings have 2 bytes a character
(UTF-16). Source: Common/File.cpp, fileutil.cpp.

Strings may hold what no text can: half of a surrogate pair, or bytes that are no UTF-8. Readers
give such a half as `\\ud800`, so that names can be printed and put into any file; a backslash that
would look like the beginning of one is `\\u005c`. Writers turn both back, to the same bytes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...framework.base.errors import FormatError
from ...framework.base.sequence import repeated
from ...framework.base.untrusted.limits import check_limit

_NUMBERS = {
    "bool": struct.Struct("<?"),
    "char": struct.Struct("<c"),
    "int32": struct.Struct("<i"),
    "uint32": struct.Struct("<I"),
    "int64": struct.Struct("<q"),
    "uint64": struct.Struct("<Q"),
    "float": struct.Struct("<f"),
    "double": struct.Struct("<d"),
}
_DENSE_NAME = "unnamed"
_DENSEST = 1024  # elements of a sparse matrix for each byte of its file, at most
_LARGEST = 1 << 31  # rows or columns of a matrix
_CSC, _CSR = 5, 9  # MatrixFormat: 1 sparse, 4 compressed, 8 row-major
_HALF = re.compile(r"[\ud800-\udfff]|\\(?=u(?:d[89a-f][0-9a-f]{2}|005c))")
_ESCAPE = re.compile(r"\\u(d[89a-f][0-9a-f]{2}|005c)")


def _escaped(text: str) -> str:
    return _HALF.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


class BinaryReader:
    """Reads a file's bytes from the front; every error names the file and the offset."""

    def __init__(self, data: bytes, name: str = "model"):
        self.data = data
        self.name = name
        self.offset = 0
        self._expanded = 0  # elements that sparse matrices were expanded to

    def error(self, message: str, offset: int | None = None) -> FormatError:
        at = self.offset if offset is None else offset
        return FormatError(f"{self.name}: byte {at}: {message}")

    @property
    def left(self) -> int:
        return len(self.data) - self.offset

    def take(self, count: int, what: str) -> memoryview:
        """The next `count` bytes.

        Raises:
            FormatError: the file is shorter.
        """
        if count < 0 or count > self.left:
            raise self.error(f"the file ends within {what}: {count} bytes wanted, {self.left} left")
        start = self.offset
        self.offset += count
        return memoryview(self.data)[start : self.offset]

    def number(self, kind: str) -> Any:
        """A number of one of the kinds bool, char, int32, uint32, int64, uint64, float, double."""
        layout = _NUMBERS[kind]
        return layout.unpack(self.take(layout.size, f"a number ({kind})"))[0]

    def wide(self) -> str:
        """A zero-terminated string of UTF-16."""
        start = self.offset
        end = start
        while True:
            end = self.data.find(b"\0\0", end)
            if end < 0:
                raise self.error("a string does not end", start)
            if (end - start) % 2 == 0:
                break
            end += 1
        try:
            text = self.data[start:end].decode("utf-16-le", errors="surrogatepass")
        except UnicodeDecodeError as error:
            raise self.error(f"not a string: {error.reason}", start) from None
        self.offset = end + 2
        return _escaped(text)

    def narrow(self) -> str:
        """A zero-terminated string of bytes, as UTF-8."""
        end = self.data.find(b"\0", self.offset)
        if end < 0:
            raise self.error("a string does not end")
        text = self.data[self.offset : end].decode("utf-8", errors="surrogateescape")
        self.offset = end + 1
        return _escaped(text)

    def marker(self, *names: str) -> str:
        """Skip one of the markers `names`, and say which.

        Raises:
            FormatError: something else is there.
        """
        start = self.offset
        for name in names:
            if self.try_marker(name):
                return name
        shown = bytes(self.data[start : start + 24])
        raise self.error(f"section {' or '.join(names)} expected, not {shown!r}", start)

    def try_marker(self, name: str) -> bool:
        """Skip the marker `name` if it is next."""
        encoded = name.encode("utf-16-le") + b"\0\0"
        if self.data[self.offset : self.offset + len(encoded)] != encoded:
            return False
        self.offset += len(encoded)
        return True

    def count(self, size: int, what: str) -> int:
        """A 64-bit number of things, each of which takes at least `size` of the following bytes.

        Raises:
            FormatError: the rest of the file cannot hold so many.
        """
        start = self.offset
        value = self.number("uint64")
        if value * size > self.left:
            raise self.error(f"{value} {what} do not fit into {self.left} bytes", start)
        return value

    def shape(self, legacy: bool = False) -> tuple[int, ...]:
        """A tensor shape. With `legacy`, also three 64-bit numbers W, H, C."""
        start = self.offset
        rank, first = self.number("uint32"), self.number("uint32")
        if legacy and first == 0:  # the upper half of the first 64-bit number
            height, channels = self.number("uint64"), self.number("uint64")
            return (channels, rank, height)
        if rank < 1 or rank > 64:
            raise self.error(f"a tensor of rank {rank}", start)
        return (first, *(self.number("uint32") for _ in range(rank - 1)))

    def bools(self) -> tuple[bool, ...]:
        """A list of truth values."""
        return tuple(self.number("bool") for _ in range(self.count(1, "truth values")))

    def matrix(self) -> np.ndarray:
        """A matrix, dense or sparse, as a dense array in column-major order.

        Raises:
            FormatError: it is cut off, or its header makes no sense.
        """
        start = self.offset
        kind = self.number("char")
        if kind not in (b"d", b"s"):
            raise self.error(f"a matrix begins with 'd' or 's', not {kind!r}", start)
        self.marker("BMAT")
        width = self.number("uint64")
        if width not in (4, 8):
            raise self.error(f"elements of {width} bytes in a matrix", start)
        dtype = np.dtype("<f4" if width == 4 else "<f8")
        self.wide()  # the matrix's name means nothing
        layout = self.number("int32")
        result = self._dense(dtype) if kind == b"d" else self._sparse(dtype, layout)
        self.marker("EMAT")
        return result

    def _dense(self, dtype: np.dtype) -> np.ndarray:
        start = self.offset
        rows, columns = self.number("uint64"), self.number("uint64")
        self._check_size(rows, columns, start)
        data = self.take(rows * columns * dtype.itemsize, f"a matrix of {rows} x {columns}")
        array = np.frombuffer(data, dtype).astype(dtype.newbyteorder("="))
        return array.reshape((rows, columns), order="F")

    def _check_size(self, rows: int, columns: int, start: int) -> None:
        """Refuse what an empty matrix could claim to be: its header alone bounds nothing."""
        if max(rows, columns) > _LARGEST:
            raise self.error(f"a matrix of {rows} x {columns}", start)

    def _sparse(self, dtype: np.dtype, layout: int) -> np.ndarray:
        start = self.offset
        filled = self.count(dtype.itemsize + 8, "elements")
        columns, rows = self.number("uint64"), self.number("uint64")
        if layout not in (_CSC, _CSR):
            raise self.error(f"sparse matrix format {layout} is not known", start)
        self._check_size(rows, columns, start)
        major, minor = (columns, rows) if layout == _CSC else (rows, columns)
        self._expanded += rows * columns
        if self._expanded > _DENSEST * len(self.data):
            raise self.error(f"a sparse matrix of {rows} x {columns}", start)
        what = f"{self.name}: byte {start}: the elements of sparse matrices"
        check_limit("fill", self._expanded * dtype.itemsize, what)
        result = np.zeros((rows, columns), dtype.newbyteorder("="), order="F")
        if not filled:
            return result
        values = np.frombuffer(self.take(filled * dtype.itemsize, "sparse values"), dtype)
        inner = np.frombuffer(self.take(filled * 8, "sparse indexes"), "<u8")
        starts = np.frombuffer(self.take((major + 1) * 8, "sparse offsets"), "<u8")
        if starts[0] != 0 or starts[-1] != filled or np.any(starts[1:] < starts[:-1]):
            raise self.error("offsets of a sparse matrix do not rise to its size", start)
        if np.any(inner >= minor):
            raise self.error("an index of a sparse matrix is out of bounds", start)
        outer = repeated(np.arange(major), np.diff(starts).astype(np.int64))
        where = (inner, outer) if layout == _CSC else (outer, inner)
        result[tuple(w.astype(np.int64) for w in where)] = values
        return result


class BinaryWriter:
    """Collects the bytes of a file in CNTK's format.

    Large matrices are not copied: `parts` hold them where they are.

    Its methods raise FormatError for values that the format cannot hold.
    """

    def __init__(self) -> None:
        self.parts: list[bytes | memoryview] = []

    def bytes(self) -> bytes:
        return b"".join(self.parts)

    def number(self, kind: str, value: Any) -> None:
        self._pack(_NUMBERS[kind], value)

    def _pack(self, layout: struct.Struct, *values: Any) -> None:
        try:
            self.parts.append(layout.pack(*values))
        except (struct.error, OverflowError) as error:
            raise FormatError(f"{values} cannot be stored: {error}") from None

    def wide(self, text: str) -> None:
        if "\0" in text:
            raise FormatError(f"{text!r} cannot be stored: it holds a zero character")
        data = _unescaped(text).encode("utf-16-le", errors="surrogatepass")
        self.parts.append(data + b"\0\0")

    marker = wide

    def narrow(self, text: str) -> None:
        data = _unescaped(text).encode("utf-8", errors="surrogateescape")
        self.parts.append(data + b"\0")

    def shape(self, dims: Sequence[int]) -> None:
        self._pack(struct.Struct(f"<{len(dims) + 1}I"), len(dims), *dims)

    def bools(self, values: Sequence[bool]) -> None:
        self.number("uint64", len(values))
        for value in values:
            self.number("bool", value)

    def matrix(self, value: np.ndarray) -> None:
        """A dense matrix; tensors are flattened to first dimension x the others."""
        value = np.asarray(value)
        dtype = np.dtype("<f8" if value.dtype == np.float64 else "<f4")
        rows = value.shape[0] if value.ndim else 1
        columns = value.size // rows if rows else 0
        self.number("char", b"d")
        self.marker("BMAT")
        self.number("uint64", dtype.itemsize)
        self.wide(_DENSE_NAME)
        self.number("int32", 0)
        self.number("uint64", rows)
        self.number("uint64", columns)
        self.parts.append(np.asarray(value, dtype).ravel(order="F").data)
        self.marker("EMAT")
