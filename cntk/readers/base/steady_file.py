"""Files that are read in pieces and must not change meanwhile."""

from __future__ import annotations

import os
from io import FileIO
from threading import Lock
from typing import cast

import numpy as np

from ....framework.base.errors import FormatError
from ....framework.base.files.atomic import PathLike
from ....framework.base.untrusted.opener import open_file


class SteadyFile:
    """A file of which parts are read, from any thread.

    A file that is mapped into memory would stop the program with a signal if somebody cut it.

    Attributes:
        path: as it was given.
        size: in bytes.

    Raises:
        FormatError: it cannot be read, or is empty.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = str(path)
        self._lock = Lock()
        self._file = cast("FileIO", open_file(path, buffering=0))
        self._state = self._now()
        self.size = self._state[0]
        if not self.size:
            self.close()
            raise FormatError(f"{self.path}: the file is empty")

    def _now(self) -> tuple[int, int]:
        state = os.fstat(self._file.fileno())
        return state.st_size, state.st_mtime_ns

    def read(self, begin: int, end: int) -> np.ndarray:
        """Bytes `begin` to `end`, uint8.

        Raises:
            FormatError: the file has changed since it was opened, or cannot be read.
        """
        data = np.empty(end - begin, np.uint8)
        view = data.data
        try:
            with self._lock:
                self._file.seek(begin)
                while len(view) and (count := self._file.readinto(view)):
                    view = view[count:]
        except OSError as error:
            raise FormatError(f"{self.path}: byte {begin}: {error.strerror}") from error
        if len(view) or self._now() != self._state:
            raise FormatError(f"{self.path}: the file has changed while it was read")
        return data

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


class Cursor:
    """A place in the bytes of a file, which end somewhere."""

    def __init__(self, file: SteadyFile, at: int, end: int) -> None:
        self.path = file.path
        self.file = file
        self.at = at
        self.end = end

    def take(self, dtype: np.dtype | str, count: int, what: str) -> np.ndarray:
        """The next numbers.

        Raises:
            FormatError: the file ends before; `what` was expected.
        """
        dtype = np.dtype(dtype)
        size = count * dtype.itemsize
        if count < 0 or size > self.end - self.at:
            raise FormatError(f"{self.path}: byte {self.at}: {what} was expected; the file ends")
        self.at += size
        return self.file.read(self.at - size, self.at).view(dtype)

    def number(self, dtype: str, what: str) -> int:
        return int(self.take(dtype, 1, what)[0])

    def choice(self, count: int, what: str) -> int:
        """A number below `count`."""
        begin = self.at
        number = self.number("<i4", what)
        if not 0 <= number < count:
            raise FormatError(f"{self.path}: byte {begin}: {what} is {number}, not below {count}")
        return number
