"""Files that are read in pieces and must not change meanwhile."""

from __future__ import annotations

import os
from io import FileIO
from threading import Lock
from typing import cast

import numpy as np

from ....framework.base.atomic import PathLike
from ....framework.base.errors import FormatError
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
