"""Tokens, numbers, flags and lines of Kaldi's files.

Every file begins with two bytes, zero and `B`, when it is binary, and is text otherwise. In both
forms tokens end with a space. Binary numbers are little-endian and follow a byte with their size
(negative for unsigned integers); text numbers are printed as C++ streams do with 7 digits.
Format: Kaldi's `base/io-funcs.cc`.

`kaldi_io.Reader` and `kaldi_io.Writer` read and write arrays as well.
"""

from __future__ import annotations

import os
import re
import struct

import numpy as np

from ...framework.base.errors import FormatError, check_kind
from ...framework.base.files.atomic import PathLike, write_atomically
from ...framework.base.untrusted.opener import read_file

MAGIC = b"\0B"
_LONGEST_TOKEN = 4096
_SHOWN = 40  # characters of a wrong token that a message shows
_SPACE = re.compile(rb"\s*")
_TOKEN = re.compile(rb"\S{1,%d}" % _LONGEST_TOKEN)
_INTEGER = re.compile(rb"[+-]?\d{1,40}")
_FLOAT = re.compile(
    rb"[+-]?(?:(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:[eE][+-]?\d{1,9})?"
    rb"|(?i:infinity|inf|nan))"
)
_INTEGER_CODES = {(1, True): "b", (2, True): "h", (4, True): "i", (8, True): "q"}
_INTEGER_CODES |= {(size, False): code.upper() for (size, _), code in _INTEGER_CODES.items()}


class CutOff(FormatError):
    """The bytes at hand end within something, and the file continues after them.

    Attributes:
        wanted: how many bytes, from the first one at hand, hold it.
    """

    def __init__(self, message: str, wanted: int) -> None:
        super().__init__(message)
        self.wanted = wanted


class TokenReader:
    """A position in the bytes of a Kaldi file, with methods that read the next item.

    Text mode skips white space before every item. Every failure is a `FormatError` that names the
    file and the byte offset (in text also the line), and leaves `offset` where the item began.

    Args:
        source: a path, or the bytes themselves.
        name: what messages call the file; by default the path, or `<bytes>`.
        binary: whether the form is binary. None, the default: as the header says, which is then
            passed over; otherwise no header is expected.
        offset: where to begin.
        before, lines_before: bytes and line ends that stood before these bytes, where they are a
            piece of something longer; None: the lines were not counted.
        beyond: bytes that follow these in the file.

    Raises:
        FormatError: the file cannot be read, or begins with a zero byte and no `B`.
    """

    def __init__(
        self,
        source: PathLike | bytes,
        *,
        name: str | None = None,
        binary: bool | None = None,
        offset: int = 0,
        before: int = 0,
        lines_before: int | None = 0,
        beyond: int = 0,
    ) -> None:
        self.before = before
        self.lines_before = lines_before
        self.beyond = beyond
        check_kind(source, str | os.PathLike | bytes, "the path of a file")
        if isinstance(source, bytes):
            self.data = source
            self.name = name or "<bytes>"
        else:
            self.name = name or os.fspath(source)
            self.data = read_file(source)
        self.size = len(self.data)
        self.offset = offset
        self.binary = bool(binary)
        if binary is None:
            self.read_header()

    def read_header(self) -> bool:
        """Pass over a binary header if one is here; sets and returns `binary`."""
        start = self.data[self.offset : self.offset + 2]
        self.binary = start == MAGIC
        if self.binary:
            self.offset += 2
        elif start[:1] == b"\0":
            raise self.error("a zero byte that no 'B' follows: neither binary nor text of Kaldi")
        return self.binary

    def error(self, message: str, offset: int | None = None) -> FormatError:
        """A `FormatError` about what stands at `offset` (by default: here)."""
        offset = min(self.offset if offset is None else offset, self.size)
        place = f"byte {self.before + offset}"
        if not self.binary and self.lines_before is not None:
            line = self.lines_before + bytes(self.data[:offset]).count(b"\n") + 1
            place += f", line {line}"
        return FormatError(f"{self.name}: {message} ({place})")

    def shown_token(self) -> str:
        """The beginning of the next token, for messages."""
        start = self._skip(self.offset)
        if start >= self.size:
            return "the end of the file"
        match = _TOKEN.match(self.data, start, min(start + _SHOWN, self.size))
        assert match is not None
        return repr(match.group().decode("utf-8", "backslashreplace"))

    # Looking ahead

    def remaining(self) -> int:
        """How many bytes are left."""
        return self.size - self.offset

    def at_end(self) -> bool:
        """Whether nothing is left; in text, nothing but white space."""
        if not self.binary:
            return self._skip(self.offset) >= self.size
        return self.offset >= self.size

    def skip_space(self) -> None:
        """Pass over white space, in either mode."""
        self.offset = self._skip(self.offset)

    def peek(self) -> str:
        """The next character, which stays there; in text, after white space. `''` at the end."""
        start = self.offset if self.binary else self._skip(self.offset)
        return self.data[start : start + 1].decode("latin-1")

    def peek_token(self) -> str:
        """The next token, which stays there; `''` at the end."""
        start = self._skip(self.offset)
        match = _TOKEN.match(self.data, start)
        return _text(match.group()) if match else ""

    # Tokens and lines

    def read_token(self) -> str:
        """The next token; it and the one white-space character after it are passed over."""
        start = self._skip(self.offset)
        match = _TOKEN.match(self.data, start)
        if match is None:
            raise self.error("a token was expected here, but the file ends")
        end = match.end()
        if not self.data[end : end + 1].isspace():
            why = "the file ends" if end >= self.size else "it is too long"
            raise self.error(f"the token {self.shown_token()} is not followed by a space: {why}")
        self.offset = end + 1
        return _text(match.group())

    def expect_token(self, *tokens: str) -> str:
        """Pass over the next token, which must be one of `tokens`, and return it."""
        start = self.offset
        # As nearly all stand in files: without space before, and with one behind.
        end = start + len(tokens[0]) + 1
        if self.data[start:end] == b"%b " % tokens[0].encode():
            self.offset = end
            return tokens[0]
        if self.peek_token() not in tokens:
            wanted = " or ".join(tokens)
            raise self.error(f"{wanted} was expected here, but this is {self.shown_token()}")
        try:
            return self.read_token()
        except FormatError:
            self.offset = start
            raise

    def read_line(self) -> str:
        """The rest of the line without its end, in either mode."""
        if self.offset >= self.size:
            raise self.error("a line was expected here, but the file ends")
        end = self.data.find(b"\n", self.offset)
        stop = self.size if end < 0 else end
        line = _text(self.data[self.offset : stop])
        self.offset = min(stop + 1, self.size)
        return line

    # Basic types

    def read_bool(self) -> bool:
        """`T` or `F`."""
        value = {"T": True, "F": False}.get(self.peek())
        if value is None:
            raise self.error(f"a flag, T or F, was expected here, but this is {self.shown_token()}")
        self.offset = (self.offset if self.binary else self._skip(self.offset)) + 1
        return value

    def read_int32(self) -> int:
        """An integer of 4 bytes with a sign."""
        return self.read_int(4)

    def read_int(self, size: int = 4, signed: bool = True) -> int:
        """An integer of 1, 2, 4 or 8 bytes."""
        if self.binary:
            mark = size if signed else 256 - size
            data = self._sized({mark: size}, "an integer")
            return struct.unpack("<" + _INTEGER_CODES[size, signed], data)[0]
        start = self._skip(self.offset)
        match = _INTEGER.match(self.data, start)
        if match is None:
            raise self.error(f"an integer was expected here, but this is {self.shown_token()}")
        value = int(match.group())
        low, high = integer_range(size, signed)
        if not low <= value <= high:
            raise self.error(f"the integer {value} does not fit in {size} bytes")
        self.offset = match.end()
        return value

    def read_float(self) -> float:
        """A number of 4 bytes (one of 8 bytes is rounded to it)."""
        with np.errstate(over="ignore"):
            return float(np.float32(self.read_double()))

    def read_double(self) -> float:
        """A number of 8 or 4 bytes."""
        if self.binary:
            data = self._sized({4: 4, 8: 8}, "a number")
            return struct.unpack("<f" if len(data) == 4 else "<d", data)[0]
        match = _FLOAT.match(self.data, self._skip(self.offset))
        if match is None:
            raise self.error(f"a number was expected here, but this is {self.shown_token()}")
        self.offset = match.end()
        return float(match.group())

    def read_bytes(self, count: int) -> bytes:
        """The next `count` bytes as they stand."""
        self.check_left(count, "bytes")
        data = bytes(self.data[self.offset : self.offset + count])
        self.offset += count
        return data

    def read_array(self, dtype: str | np.dtype, count: int) -> np.ndarray:
        """`count` binary numbers without any header, as a new array; `dtype` is little-endian."""
        dtype = np.dtype(dtype)
        self.check_left(count * dtype.itemsize, f"{count} numbers of {dtype.itemsize} bytes")
        array = np.frombuffer(self.data, dtype, count, self.offset)
        self.offset += count * dtype.itemsize
        return array.astype(dtype.newbyteorder("="), copy=True)

    def check_left(self, count: int, what: str) -> None:
        """Refuse sizes that are negative or go beyond the end, before anything is allocated."""
        if count < 0:
            raise self.error(f"{what}: a negative size")
        if self.remaining() < count <= self.remaining() + self.beyond:
            raise CutOff(f"{self.name}: {what} end after the bytes at hand", self.offset + count)
        if count > self.remaining():
            raise self.error(f"{what}: {count} bytes are wanted, but {self.remaining()} are left")

    def _skip(self, offset: int) -> int:
        match = _SPACE.match(self.data, offset)
        assert match is not None
        return match.end()

    def _sized(self, sizes: dict[int, int], what: str) -> bytes:
        """The bytes of a number after the byte that says how many; `sizes`: mark to size."""
        if self.offset >= self.size:
            raise self.error(f"{what} was expected here, but the file ends")
        mark = self.data[self.offset]
        if mark not in sizes:
            wanted = " or ".join(str(size) for size in sizes.values())
            raise self.error(f"{what} of {wanted} bytes was expected, but its size byte is {mark}")
        size = sizes[mark]
        data = self.data[self.offset + 1 : self.offset + 1 + size]
        if len(data) < size:
            raise self.error(f"the file ends within {what} of {size} bytes")
        self.offset += 1 + size
        return data


class TokenWriter:
    """Collects the bytes of a Kaldi file, binary or text.

    Args:
        binary: the form.
        header: whether a binary file begins with the header.
    """

    def __init__(self, binary: bool = True, *, header: bool = True) -> None:
        self.binary = binary
        self._data = bytearray(MAGIC if binary and header else b"")

    def getvalue(self) -> bytes:
        """All that was written so far."""
        return bytes(self._data)

    def save(self, path: PathLike) -> None:
        """Put it all into the file `path`, which is replaced as a whole or not at all.

        Raises:
            SaveError: the file cannot be written.
        """
        check_kind(path, str | os.PathLike, "the path of a file")
        write_atomically(path, self.getvalue())

    def take(self) -> bytearray:
        """The same without a copy; what is written from now on is without what came before."""
        data = self._data
        self._data = bytearray()
        return data

    def write_raw(self, data: str | bytes | memoryview) -> None:
        """Text (as UTF-8) or bytes just as they are, in either mode."""
        self._data += data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data

    def write_token(self, token: str) -> None:
        """A token and a space.

        Raises:
            FormatError: it is empty or holds white space.
        """
        data = token.encode("utf-8", "surrogateescape")
        if not data or len(data.split()) != 1 or len(data) != len(data.strip()):
            raise FormatError(f"{token!r} cannot be a token: it is empty or holds white space")
        self._data += data + b" "

    def write_bool(self, value: bool) -> None:
        """`T` or `F`."""
        self._data += (b"T" if value else b"F") + (b"" if self.binary else b" ")

    def write_int32(self, value: int) -> None:
        """An integer of 4 bytes with a sign."""
        self.write_int(value)

    def write_int(self, value: int, size: int = 4, signed: bool = True) -> None:
        """An integer of 1, 2, 4 or 8 bytes.

        Raises:
            FormatError: it does not fit.
        """
        low, high = integer_range(size, signed)
        if not low <= value <= high:
            raise FormatError(f"the integer {value} does not fit in {size} bytes")
        if self.binary:
            code = "<B" + _INTEGER_CODES[size, signed]
            self._data += struct.pack(code, size if signed else 256 - size, value)
        else:
            self._data += b"%d " % value

    def write_float(self, value: float) -> None:
        """A number of 4 bytes."""
        self._write_number(np.float32(value), "<Bf", 4)

    def write_double(self, value: float) -> None:
        """A number of 8 bytes."""
        self._write_number(np.float64(value), "<Bd", 8)

    def _write_number(self, value: np.floating, code: str, size: int) -> None:
        if self.binary:
            self._data += struct.pack(code, size, value)
        else:
            self._data += format_number(value).encode() + b" "


def integer_range(size: int, signed: bool = True) -> tuple[int, int]:
    """The least and the greatest integer of `size` bytes."""
    bits = 8 * size
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)


def format_number(value: float | np.floating) -> str:
    """A number as a C++ stream prints it with 7 digits, the precision of Kaldi's text files."""
    if np.isnan(value):
        return "-nan" if np.signbit(value) else "nan"
    return f"{value:.7g}"


def _text(data: bytes) -> str:
    """Bytes as text; bytes that are not UTF-8 come back in `write_raw`."""
    return data.decode("utf-8", "surrogateescape")
