"""Vectors and matrices in Kaldi's files, binary and text.

Binary: a token with the kind (`F` float, `D` double; `V` vector, `M` matrix), the dimensions as
sized integers, then the numbers, row by row. Text: ` [ 1 2 ]` and, for matrices, a line for each
row. Formats: Kaldi's `matrix/kaldi-vector.cc`, `matrix/kaldi-matrix.cc`, `base/io-funcs-inl.h`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import partial

import numpy as np

from ...framework.base.errors import FormatError
from .compressed import CompressedMatrix, read_header
from .tokens import TokenReader, TokenWriter

_FLOATS = {"F": np.dtype("<f4"), "D": np.dtype("<f8")}
_KINDS = {np.dtype(np.float32): "F", np.dtype(np.float64): "D"}
_WORD = re.compile(rb"\S+")
_ROW_END = re.compile(rb"[\n;]")
_PAIR = re.compile(rb"\S+,\S+")


def read_vector(reader: TokenReader, dtype: type | None = None) -> np.ndarray:
    """A vector, [dim].

    Args:
        reader: where it stands.
        dtype: the type of the result. None: the type in the file; in text, float32.

    Raises:
        FormatError: the bytes are something else, or are cut off.
    """
    if reader.binary:
        kind = reader.expect_token("FV", "DV")[0]
        dim = reader.read_int32()
        vector = reader.read_array(_FLOATS[kind], dim)
        return vector if dtype is None else vector.astype(dtype, copy=False)
    start, body = bracketed(reader)
    if b"\n" in body or b"\r" in body:
        raise reader.error("a line end within a vector: perhaps this is a matrix", start)
    return parse_numbers(reader, body, start, dtype or np.float32)


def write_vector(writer: TokenWriter, vector: np.ndarray) -> None:
    """A vector of float32 or float64, [dim]."""
    kind = _kind(vector, 1)
    if writer.binary:
        writer.write_token(kind + "V")
        writer.write_int32(len(vector))
        writer.write_raw(_bytes(vector, kind))
    else:
        writer.write_raw(b" [ " + format_numbers(vector) + b"]\n")


def read_matrix(reader: TokenReader, dtype: type | None = None) -> np.ndarray:
    """A matrix, [rows, columns]; compressed ones are decompressed.

    Args:
        reader: where it stands.
        dtype: the type of the result. None: the type in the file; in text and for compressed
            matrices, float32.

    Raises:
        FormatError: the bytes are something else, or are cut off.
    """
    if not reader.binary:
        return _read_text_matrix(reader, dtype or np.float32)
    if reader.peek_token().startswith("CM"):
        matrix = CompressedMatrix.read(reader).decompress()
    else:
        kind, rows, columns = _read_plain_header(reader)
        matrix = reader.read_array(_FLOATS[kind], rows * columns).reshape(rows, columns)
    return matrix if dtype is None else matrix.astype(dtype, copy=False)


def read_matrix_shape(reader: TokenReader) -> tuple[int, int]:
    """Rows and columns of the matrix that stands here; of a binary one no elements are read.

    Raises:
        FormatError: no matrix begins here.
    """
    if not reader.binary:
        rows, columns = _read_text_matrix(reader, np.float32).shape
        return rows, columns
    if reader.peek_token().startswith("CM"):
        return read_header(reader)[3:]
    return _read_plain_header(reader)[1:]


def _read_plain_header(reader: TokenReader) -> tuple[str, int, int]:
    """The letter of the type, rows and columns."""
    start = reader.offset
    kind = reader.expect_token("FM", "DM")[0]
    rows, columns = reader.read_int32(), reader.read_int32()
    check_dimensions(reader, rows, columns, start)
    return kind, rows, columns


def write_matrix(writer: TokenWriter, matrix: np.ndarray) -> None:
    """A matrix of float32 or float64, [rows, columns]; one without elements is written as 0 x 0."""
    kind = _kind(matrix, 2)
    if matrix.size == 0:
        matrix = matrix.reshape(-1)[:0].reshape(0, 0)
    rows, columns = matrix.shape
    if writer.binary:
        writer.write_token(kind + "M")
        writer.write_int32(rows)
        writer.write_int32(columns)
        writer.write_raw(_bytes(matrix, kind))
    elif columns == 0:
        writer.write_raw(b" [ ]\n")
    else:
        lines = (b"\n  " + format_numbers(row) for row in matrix)
        writer.write_raw(b" [" + b"".join(lines) + b"]\n")


def read_int_vector(reader: TokenReader, size: int = 4) -> np.ndarray:
    """A vector of integers of 1, 2, 4 or 8 bytes, [dim]."""
    if reader.binary:
        return _read_counted(reader, size, 1)
    start, body = bracketed(reader)
    return parse_integers(reader, body, start, size)


def write_int_vector(writer: TokenWriter, vector: np.ndarray, size: int = 4) -> None:
    """A vector of integers of 1, 2, 4 or 8 bytes, [dim]."""
    vector = integer_array(vector, size)
    if writer.binary:
        _write_counted(writer, vector, size)
    else:
        writer.write_raw(b"[ " + b"%d " * vector.size % tuple(vector.tolist()) + b"]\n")


def read_int_pairs(reader: TokenReader, size: int = 4) -> np.ndarray:
    """A vector of pairs of integers of 1, 2, 4 or 8 bytes, [n, 2]."""
    if reader.binary:
        return _read_counted(reader, size, 2).reshape(-1, 2)
    start, body = bracketed(reader)
    for match in _WORD.finditer(body):
        if match.group().count(b",") != 1 or not _PAIR.fullmatch(match.group()):
            raise reader.error("a pair 'a,b' was expected here", start + match.start())
    return parse_integers(reader, body.replace(b",", b" "), start, size).reshape(-1, 2)


def write_int_pairs(writer: TokenWriter, pairs: np.ndarray, size: int = 4) -> None:
    """A vector of pairs of integers of 1, 2, 4 or 8 bytes, [n, 2]."""
    pairs = integer_array(pairs, size).reshape(-1, 2)
    if writer.binary:
        _write_counted(writer, pairs, size)
    else:
        writer.write_raw(b"[ " + b"%d,%d " * len(pairs) % tuple(pairs.ravel().tolist()) + b"]\n")


def check_dimensions(reader: TokenReader, rows: int, columns: int, start: int) -> None:
    """Refuse what no matrix of Kaldi has: a negative size, or one dimension alone being zero."""
    if rows < 0 or columns < 0 or (rows == 0) != (columns == 0):
        raise reader.error(f"no matrix has {rows} rows and {columns} columns", start)


def format_numbers(numbers: np.ndarray) -> bytes:
    """Numbers as Kaldi prints them in text, each with a space after it."""
    text = "%.7g " * numbers.size % tuple(numbers.ravel().tolist())
    if "nan" in text:
        signs = np.signbit(numbers.ravel()[np.isnan(numbers.ravel())])
        parts = text.split("nan")
        text = parts[0] + "".join(
            ("-nan" if sign else "nan") + part for sign, part in zip(signs, parts[1:], strict=True)
        )
    return text.encode()


def _read_text_matrix(reader: TokenReader, dtype: type) -> np.ndarray:
    start, body = bracketed(reader)
    rows = []
    offset = start
    for line in _ROW_END.split(body):
        row = parse_numbers(reader, line, offset, dtype)
        if row.size:
            if rows and row.size != rows[0].size:
                raise reader.error(
                    f"row {len(rows)} has {row.size} columns, the first one has {rows[0].size}",
                    offset,
                )
            rows.append(row)
        offset += len(line) + 1
    return np.stack(rows) if rows else np.zeros((0, 0), dtype)


def bracketed(reader: TokenReader) -> tuple[int, bytes]:
    """Read `[ ... ]` and the end of the line: the offset and the bytes of the text inside."""
    if reader.peek() != "[":
        raise reader.error(f"'[' was expected here, but this is {reader.shown_token()}")
    reader.skip_space()
    start = reader.offset + 1
    end = reader.data.find(b"]", start)
    if end < 0:
        raise reader.error("the ']' of this '[' is missing")
    body = bytes(reader.data[start:end])
    after = bytes(reader.data[end + 1 : end + 3])
    line_end = 2 if after == b"\r\n" else int(after[:1] == b"\n")
    reader.offset = end + 1 + line_end
    return start, body


def parse_numbers(reader: TokenReader, text: bytes, start: int, dtype: type) -> np.ndarray:
    """The numbers in `text`, which stands at `start` of the file."""
    words = text.split()
    try:
        if b"_" in text:  # Python would take 1_0 for a number
            raise ValueError
        with np.errstate(over="ignore"):
            return np.array(list(map(float, words)), np.float64).astype(dtype)
    except ValueError:
        raise misplaced(reader, text, start, is_number, "a number") from None


def parse_integers(reader: TokenReader, text: bytes, start: int, size: int) -> np.ndarray:
    """The integers of `size` bytes in `text`, which stands at `start` of the file."""
    try:
        if b"_" in text:
            raise ValueError
        numbers = np.array(list(map(int, text.split())), np.int64)
        return integer_array(numbers, size)
    except (ValueError, OverflowError, FormatError):
        what = f"an integer of {size} bytes"
        raise misplaced(reader, text, start, partial(is_integer, size=size), what) from None


def misplaced(
    reader: TokenReader, text: bytes, start: int, is_right: Callable[[bytes], bool], what: str
) -> FormatError:
    """An error at the first word of `text` that is not right."""
    wrong = next(match for match in _WORD.finditer(text) if not is_right(match.group()))
    word = wrong.group()[:40].decode("utf-8", "backslashreplace")
    return reader.error(f"{what} was expected here, but this is {word!r}", start + wrong.start())


def is_number(word: bytes) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return b"_" not in word


def is_integer(word: bytes, size: int) -> bool:
    try:
        return b"_" not in word and -(1 << 8 * size - 1) <= int(word) < 1 << 8 * size - 1
    except ValueError:
        return False


def integer_array(numbers: np.ndarray, size: int) -> np.ndarray:
    """`numbers` as integers of `size` bytes, or an error where one does not fit."""
    numbers = np.asarray(numbers)
    if numbers.size and numbers.dtype.kind not in "iub":
        raise FormatError(f"integers are wanted, but these are {numbers.dtype}")
    fitting = numbers.astype(f"i{size}", copy=False)
    if not np.array_equal(fitting, numbers):
        raise FormatError(f"an integer does not fit in {size} bytes")
    return fitting


def _read_counted(reader: TokenReader, size: int, width: int) -> np.ndarray:
    """Integers after their size and their number; `width` of them count as one."""
    start = reader.offset
    mark = reader.read_bytes(1)[0]
    if mark != size:
        raise reader.error(f"integers of {size} bytes were expected, but the mark is {mark}", start)
    count = int(reader.read_array("<i4", 1)[0])
    return reader.read_array(f"<i{size}", count * width)


def _write_counted(writer: TokenWriter, numbers: np.ndarray, size: int) -> None:
    writer.write_raw(struct.pack("<Bi", size, len(numbers)))
    writer.write_raw(numbers.astype(f"<i{size}", copy=False).tobytes())


def _kind(array: np.ndarray, rank: int) -> str:
    """Kaldi's letter for the type of the numbers."""
    if array.ndim != rank or array.dtype not in _KINDS:
        raise FormatError(
            f"a {'vector' if rank == 1 else 'matrix'} of float32 or float64 is wanted, but this is "
            f"{array.dtype} {list(array.shape)}"
        )
    return _KINDS[array.dtype]


def _bytes(array: np.ndarray, kind: str) -> bytes | memoryview:
    """The bytes of an array, for a writer that copies them at once."""
    if not array.size:
        return b""
    return np.ascontiguousarray(array, _FLOATS[kind]).data.cast("B")
