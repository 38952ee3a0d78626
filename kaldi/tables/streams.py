"""Kaldi's file names: a path, `-`, a place `file:123` in a file, a command with `|`.

Commands run only where the caller, or the switch `OPSCOPE_PIPES`, allows it. Commands that stand
in a file, in a line of an `.scp`, want a permission of their own (`files`): who types a command
knows it, who opens somebody's list does not.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import IO, Literal, TypeAlias, TypeVar

from ...framework.base.errors import FormatError, SaveError
from ...framework.base.files.atomic import atomic_file, mark_of
from ...framework.base.files.leftovers import temporary_name
from ...framework.base.options.settings import switch
from ...framework.base.untrusted.opener import (
    file_path,
    open_file,
    read_bounded,
    read_file,
    real_path,
)
from ...framework.base.untrusted.values import INT64, plain, whole_number
from ..files.kaldi_io import Reader
from .windows import WindowedFile

Value = TypeVar("Value")
Pipes: TypeAlias = bool | Literal["files"] | None
"""Which commands may run: none, those that the caller gives, or also those in `"files"` that he
names; None: as the switch `OPSCOPE_PIPES` says."""

_PLACE = re.compile(r"(.+):(\d+)", re.DOTALL)
_SPECIFIER = re.compile(r"(?:[a-z]+[, ]+)*(?:ark|scp)(?:[, ]+[a-z]+)*:")


class Files:
    """Opens inputs; keeps the last file open, since entries of one archive follow each other.

    Args:
        pipes: which commands may run.
    """

    def __init__(self, pipes: Pipes = None) -> None:
        self.pipes: Pipes = pipes
        self._last: WindowedFile | None = None

    def reader(self, name: str, *, listed: bool = False) -> Reader:
        """A reader at the beginning of what `name` means, in text mode, before any header.

        The whole file is read; see `read` for values in archives.

        Args:
            name: a path, `-`, a place in a file, or a command.
            listed: whether the name stands in a file.

        Raises:
            FormatError: the name has no meaning, is a command that may not run or fails, or the
                file cannot be read.
        """
        if is_stream(name, pipes=self.pipes, listed=listed):
            return self._streamed(name)
        path, offset = place_in_file(name)
        reader = Reader(read_file(path, pipes=not listed), name=path, binary=False)
        if offset > reader.size:
            raise FormatError(f"{name}: the file has only {reader.size} bytes")
        reader.offset = offset
        return reader

    def read(self, name: str, read: Callable[[Reader], Value], *, listed: bool = False) -> Value:
        """The value that `read` finds at the beginning of what `name` means.

        Of a regular file no more is read than the value takes, and a little.

        Args:
            name, listed: as for `reader`.
            read: from a reader in text mode, before any header.

        Raises:
            FormatError: as for `reader`; or `read` raises it.
        """
        if is_stream(name, pipes=self.pipes, listed=listed):
            return read(self._streamed(name))
        path, offset = place_in_file(name)
        if self._last is None or self._last.path != path:
            self._last = WindowedFile(path, listed=listed)
        if offset > self._last.size:
            raise FormatError(f"{name}: the file has only {self._last.size} bytes")
        return self._last.read(offset, read)

    def _streamed(self, name: str) -> Reader:
        """All of standard input, or of what a command that may run gives."""
        if not name.endswith("|"):
            data = read_bounded(sys.stdin.buffer, "standard input")
            return Reader(data, name="standard input", binary=False)
        with open_stream(name, pipes="files") as file:
            return Reader(read_bounded(file, name), name=name, binary=False)


def place_in_file(name: str) -> tuple[str, int]:
    """The path and the offset that a plain file name means, which may be `file:123`.

    Raises:
        FormatError: it is the name of something else.
    """
    _check_plain(name, "read from")
    place = _PLACE.fullmatch(name)
    if place is None:
        return name, 0
    return place[1], whole_number(place[2], f"{plain(place[1])}: the place in it", 0, INT64[1])


def check_there(path: str) -> None:
    """Refuse the name of a file that is not there, before it is opened.

    Raises:
        FormatError: it is not there.
    """
    try:
        os.stat(file_path(path))
    except OSError as error:
        raise FormatError(f"{path}: {error.strerror}") from error


def is_regular(name: str) -> bool:
    """Whether a name is a regular file's, which can be read at any place, any time."""
    return "\0" not in name and os.path.isfile(name)


def open_reader(name: str, *, pipes: Pipes = None, listed: bool = False) -> Reader:
    """A reader of the file that `name` means, after its header; for models and other single files.

    Args:
        listed: whether the name stands in a file.

    Raises:
        FormatError: as for `Files.reader`.
    """
    reader = Files(pipes).reader(name, listed=listed)
    reader.read_header()
    return reader


def is_stream(name: str, *, pipes: Pipes = None, listed: bool = False) -> bool:
    """Whether a name means standard input or a command, which can be read once only.

    Args:
        listed: whether the name stands in a file.

    Raises:
        FormatError: it is a command that may not run.
    """
    if name.endswith("|"):
        _check_pipe(name, pipes, listed)
    return name in ("", "-") or name.endswith("|")


@contextlib.contextmanager
def open_stream(name: str, *, pipes: Pipes = None) -> Iterator[IO[bytes]]:
    """Open a plain file, standard input or the output of a command, to be read from its beginning.

    Raises:
        FormatError: the file cannot be read; the command may not run, or (at the end) failed.
    """
    if name in ("", "-"):
        yield sys.stdin.buffer
        return
    if not name.endswith("|"):
        with open_file(name, pipes=True) as file:
            yield file
        return
    _check_pipe(name, pipes)
    process = subprocess.Popen(name[:-1], shell=True, stdout=subprocess.PIPE)
    assert process.stdout is not None
    failed: FormatError | None = None
    try:
        with process.stdout:
            yield process.stdout
    except FormatError as error:  # it may have been cut off by what ended the command
        failed = error
    finally:
        status = process.wait()
    if status:
        why = f"; {failed}" if failed else ""
        raise FormatError(f"{name}: the command ended with status {status}{why}")
    if failed:
        raise failed


@contextlib.contextmanager
def open_output(name: str, *, pipes: Pipes = None, listed: bool = False) -> Iterator[IO[bytes]]:
    """A binary file for what `name` means. A plain file is replaced as a whole at the end.

    Raises:
        FormatError: the name has no meaning, or is a command that may not run.
        SaveError: the file cannot be written, or the command failed.
    """
    if name in ("", "-"):
        with _saving("standard output"):
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
    elif name.startswith("|"):
        with _saving(name), _pipe_to(name, pipes, listed) as file:
            yield file
    else:
        _check_plain(name, "written to")
        if _PLACE.fullmatch(name):
            raise FormatError(f"{name}: a place within a file can only be read from")
        with atomic_file(name) as file:
            yield file


class SetAside:
    """A script file that is not there while the archive that it points into takes its place.

    A program that is killed in between leaves no script file, never one with wrong places. Both
    methods are exits for a `contextlib.ExitStack`.
    """

    def __init__(self, name: str, archive: str) -> None:
        self._path = real_path(name)
        self._archive = archive
        self._before = mark_of(archive)
        self._aside = ""

    def begin(self, kind: type[BaseException] | None, *_: object) -> None:
        """Set it aside, unless there was an error: then nothing is replaced."""
        if kind is None and os.path.isfile(self._path):
            aside = temporary_name(self._path)
            with _saving(self._path):
                os.replace(self._path, aside)
            self._aside = aside

    def end(self, *_: object) -> None:
        """Put it back where the archive is still the old one and no new script file has come."""
        if self._aside:
            with contextlib.suppress(OSError):
                if os.path.exists(self._path) or mark_of(self._archive) != self._before:
                    os.unlink(self._aside)
                else:
                    os.replace(self._aside, self._path)


def _check_plain(name: str, use: str) -> None:
    """Refuse names that look like something else than a path."""
    if name != name.strip():
        raise FormatError(f"{name!r} begins or ends with white space: no file name of Kaldi")
    if "|" in name:
        raise FormatError(f"{name}: a command with '|' in this place cannot be {use}")
    if _SPECIFIER.match(name):
        raise FormatError(f"{name} says how to find a table, but a file name is wanted here")


def _check_pipe(name: str, pipes: Pipes, listed: bool = False) -> None:
    if pipes is None:
        setting = switch("OPSCOPE_PIPES")
        pipes = "files" if setting == "files" else setting == "1"
    if pipes == "files" or (pipes and not listed):
        return
    what, value, python = "this would run a command", "1", "True"
    if listed:
        what, value, python = "a line of a file would run this command", "files", "'files'"
    raise FormatError(
        f"{name}: {what}, which is not allowed; set OPSCOPE_PIPES={value} (in Python: "
        f"pipes={python}) where you trust its origin"
    )


@contextlib.contextmanager
def _pipe_to(name: str, pipes: Pipes, listed: bool) -> Iterator[IO[bytes]]:
    _check_pipe(name, pipes, listed)
    process = subprocess.Popen(name[1:], shell=True, stdin=subprocess.PIPE)
    assert process.stdin is not None
    try:
        with process.stdin:
            yield process.stdin
    finally:
        status = process.wait()
    if status:
        raise SaveError(f"{name}: the command ended with status {status}")


@contextlib.contextmanager
def _saving(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SaveError(f"cannot write {name}: {error.strerror or error}") from error
