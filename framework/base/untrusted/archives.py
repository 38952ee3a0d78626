"""Zip files: their directory is read once, their members when asked for; errors are our own."""

from __future__ import annotations

import contextlib
import os
import zipfile
from collections.abc import Iterator
from typing import IO

from ..errors import FormatError, OpscopeError
from .opener import open_file
from .values import shown


class Archive:
    """A zip file, open until it is closed or no longer referenced. Threads may share it.

    Attributes:
        path: of the file.
        size: its bytes.
        sizes: name of each member -> its bytes once unpacked, as the directory says; no more are
            ever read of it.

    Raises:
        FormatError: it cannot be opened, is no regular file or no zip file, or holds two members
            of one name.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = open_file(path)
        # Of the open file, not of the path, which may name another file by now.
        self.size = os.fstat(self._file.fileno()).st_size
        with self._naming(""):
            self._zip = zipfile.ZipFile(self._file)
            members = [member for member in self._zip.infolist() if not member.is_dir()]
        self.sizes = {member.filename: member.file_size for member in members}
        # Which of two equal names a reader gets differs from tool to tool: a checker and a user
        # would see different contents.
        if len(self.sizes) != len(members):
            raise FormatError(f"{path}: a file is in it twice")

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """A block that reads a member; an error in it of any kind names file and member.

        Raises:
            FormatError: it is not there, is damaged, encrypted, or packed in an unknown way.
        """
        if name not in self.sizes:
            raise FormatError(f"{self.path}@{shown(name)}: the archive holds no such file")
        with self._naming(f"@{shown(name)}"), self._zip.open(name) as member:
            yield member

    @contextlib.contextmanager
    def _naming(self, name: str) -> Iterator[None]:
        try:
            yield
        except OpscopeError:
            raise
        except Exception as error:  # damaged archives raise anything, in the unpacker too
            raise FormatError(f"{self.path}{name}: {error}") from error

    def close(self) -> None:
        """Close the file; nothing is read of it then."""
        if hasattr(self, "_file"):
            self._file.close()

    __del__ = close
