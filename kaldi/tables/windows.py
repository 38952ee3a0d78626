"""Single values out of files that may be larger than memory, and may change while they are read.

A file is read in pieces from the place of a value on, until the value is whole. It is not mapped
into memory: to touch a map of a file that has become shorter ends the process.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import TypeVar

from ...framework.base.errors import FormatError
from ...framework.base.untrusted.limits import check_limit
from ...framework.base.untrusted.opener import open_file, read_bounded
from ..files.kaldi_io import Reader
from ..files.tokens import CutOff

Value = TypeVar("Value")
_LEAST = 1 << 16  # bytes that are read for a value of unknown size
_GROWTH = 4


class WindowedFile:
    """A file whose values are read one by one, at any places.

    Args:
        path: of the file. A pipe or a device is read whole.
        listed: whether the name stands in a file; then it must be of a regular file.

    Raises:
        FormatError: it cannot be opened, or is not regular where it must be.
    """

    def __init__(self, path: str, *, listed: bool = False) -> None:
        self.path = path
        self._piece = _LEAST
        self._file = open_file(path, pipes=not listed, buffering=0)
        state = os.fstat(self._file.fileno())
        self._data: bytes | None = None
        self.size = state.st_size
        if not stat.S_ISREG(state.st_mode):
            with self._file:
                self._data = read_bounded(self._file, path)
            self.size = len(self._data)

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()

    def read(self, offset: int, read: Callable[[Reader], Value]) -> Value:
        """The value that `read` finds at a place.

        Raises:
            FormatError: there is none; or the file ends in it, was cut off while it was read, or
                has no end of it within the limit `stream`.
        """
        if offset > self.size:
            raise FormatError(f"{self.path}: place {offset} in a file of {self.size} bytes")
        piece = self._piece
        while True:
            check_limit("stream", piece, f"{self.path}: the value at byte {offset}")
            data = self.bytes_at(offset, piece)
            beyond = max(self.size - offset - len(data), 0)
            ended = len(data) < piece or not beyond
            lines = self._lines_before(offset) if ended and data[:2] != b"\0B" else None
            reader = Reader(
                data,
                name=self.path,
                binary=False,
                before=offset,
                lines_before=lines,
                beyond=0 if ended else beyond,
            )
            try:
                value = read(reader)
            except CutOff as error:
                piece = max(error.wanted + 1, piece + 1)
                continue
            except FormatError:
                if ended:
                    raise
                piece *= _GROWTH
                continue
            if ended or reader.offset < reader.size:
                self._piece = max(_LEAST, min(reader.offset + (reader.offset >> 2), _LEAST << 8))
                return value
            piece *= _GROWTH

    def bytes_at(self, offset: int, count: int) -> bytes:
        """At most `count` bytes from a place on; fewer only where the file ends."""
        if self._data is not None:
            return self._data[offset : offset + count]
        handle = self._file.fileno()
        try:
            data = _pread(handle, count, offset)
            while 0 < len(data) < count:
                more = _pread(handle, count - len(data), offset + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise FormatError(f"{self.path}: {error.strerror}") from error
        return data

    def _lines_before(self, offset: int) -> int | None:
        """Line ends before a place, for messages about text; far into a file none are counted."""
        return self.bytes_at(0, offset).count(b"\n") if offset <= _LEAST << 8 else None


def _pread(handle: int, count: int, offset: int) -> bytes:
    if hasattr(os, "pread"):
        return os.pread(handle, count, offset)
    os.lseek(handle, offset, os.SEEK_SET)
    return os.read(handle, count)
