"""The one opener: every file that the package reads is opened here.

A name must be one that the system can take, lie below the roots where there are some (`roots.py`),
and lead to a regular file: a pipe whose writer never comes would hold up its reader for ever, a
device may do anything. Callers that take pipes say so (`pipes`); that is right for what somebody
types, as a shell's `<(...)`, and wrong for what stands in a file. What was opened is what was
checked: a name that changes meanwhile leads nowhere else.

Whatever is wrong is one error, a FormatError that names the file and who named it.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from typing import IO, BinaryIO, TextIO, cast

from ..errors import FormatError, check_kind
from .limits import check_limit
from .roots import current
from .values import shown

PathLike = str | os.PathLike[str]
_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
# Opening a terminal must not make it this process's controlling one.
_READ |= getattr(os, "O_NOCTTY", 0)
_AT_ONCE = getattr(os, "O_NONBLOCK", 0)  # nothing waits for the writer of a pipe
_PIECE = 1 << 20


def open_file(
    path: PathLike, *, pipes: bool = False, place: str = "", buffering: int = -1
) -> BinaryIO:
    """A file that may be opened, to read its bytes.

    Args:
        path: of the file.
        pipes: whether it may also be a pipe or a device, which is waited for.
        place: where the name stands, as `list.scp:3`, for messages.
        buffering: as for `open`.

    Raises:
        FormatError: there is no such file, or it cannot be opened; the name is none that a file
            has; it is a folder, or not regular where it must be.
        OutsideError: under roots, the file lies outside of them.
    """
    name = _encodable(path, place)
    # Opening a pipe for reading waits for a writer; what it is shows only once it is open.
    flags = _READ if pipes else _READ | _AT_ONCE
    confinement = current()
    try:
        if confinement is None:
            handle = os.open(name, flags)
        else:
            handle = confinement.open(name, flags, place=place)
        # Of the handle: what a path says before may not hold when it is opened.
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            try:
                _check_kind(mode, pipes, f"{_before(place)}{name}")
            except FormatError:
                os.close(handle)
                raise
        return cast(BinaryIO, open(name, "rb", buffering, opener=lambda *_: handle))
    except OSError as error:
        raise _named(error, name, place) from error


def open_text(path: PathLike, errors: str = "strict") -> TextIO:
    """The same, to read text in UTF-8 line by line."""
    return io.TextIOWrapper(open_file(path), encoding="utf-8", errors=errors)


def read_file(path: PathLike, *, pipes: bool = False, place: str = "") -> bytes:
    """All bytes of a file; of a pipe or a device no more than the limit `stream` allows.

    Raises:
        FormatError: as for `open_file`; or it cannot be read, or there is more.
    """
    with open_file(path, pipes=pipes, place=place) as file:
        try:
            if not pipes or stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                # A regular file pays for its bytes with its length; a pipe has no end that could be
                # looked up.
                return file.read()
            return read_bounded(file, os.fspath(path))
        except OSError as error:
            raise _named(error, os.fspath(path), place) from error


def read_text(
    path: PathLike, errors: str = "strict", *, pipes: bool = False, place: str = ""
) -> str:
    """The text of a file in UTF-8, its line ends as newlines.

    Args:
        errors: what happens to other bytes, as for `bytes.decode`.

    Raises:
        FormatError: as for `read_file`; or it holds other bytes, and `errors` is `strict`.
    """
    data = read_file(path, pipes=pipes, place=place)
    try:
        text = data.decode("utf-8", errors)
    except UnicodeDecodeError as error:
        raise FormatError(
            f"{_before(place)}{os.fspath(path)}: no text in UTF-8 (byte {error.start})"
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_bounded(file: IO[bytes], what: str, most: int | None = None) -> bytes:
    """All that comes from a file of unknown size, if the limit `stream` allows it.

    Args:
        file: to read. what: names it. most: bytes that such a file can have.

    Raises:
        FormatError: there is more.
    """
    parts = []
    total = 0
    while part := file.read(_PIECE):
        parts.append(part)
        total += len(part)
        check_limit("stream", total, what)
        if most is not None and total > most:
            raise FormatError(f"{what}: more than {most} bytes")
    return b"".join(parts)


def open_output(path: PathLike, *, buffering: int = -1) -> BinaryIO:
    """A file that is written where it is, as a log or a pipe is; `atomic.py` writes all others.

    Raises:
        FormatError, OutsideError: as for `file_path`. OSError: it cannot be opened.
    """
    name = _encodable(path, "")
    confinement = current()
    opener = None if confinement is None else confinement.open
    return cast(BinaryIO, open(name, "wb", buffering, opener=opener))


def file_path(path: PathLike) -> str:
    """The name of a file, as the system can take it, that may be opened.

    Raises:
        FormatError: it holds a NUL, or characters that no name of a file has.
        OutsideError: under roots, the file lies outside of them; see `roots.py`.
    """
    name = _encodable(path, "")
    confinement = current()
    if confinement is not None:
        confinement.check(name, "")
    return name


def real_path(path: PathLike) -> str:
    """Where a file is: links and `..` are followed. Raises FormatError: the name is none."""
    return os.path.realpath(_encodable(path, ""))


def path_text(path: PathLike) -> str:
    """A path as text, for functions that users call.

    Raises:
        AttributeTypeError: it is neither text nor a path object.
    """
    check_kind(path, str | os.PathLike, "the path of a file")
    return os.fspath(path)


def no_such_file(path: PathLike, hint: str = "") -> FormatError:
    """The error that the opener raises where there is no file; `hint` follows, such as `; want x`.

    For those who look for several files, or know what was wanted.
    """
    return FormatError(f"{os.fspath(path)}: {os.strerror(errno.ENOENT)}{hint}")


def is_missing(error: BaseException) -> bool:
    """Whether an error of the opener says that there is no such file."""
    return isinstance(error.__cause__, FileNotFoundError)


def _encodable(path: PathLike, place: str) -> str:
    name = path if type(path) is str else path_text(path)
    if "\0" in name:
        raise FormatError(f"{_before(place)}{shown(name)} is no file name: it holds a NUL")
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        problem = f"{shown(name)} is no file name: it cannot be encoded"
        raise FormatError(f"{_before(place)}{problem}") from None
    return name


def _before(place: str) -> str:
    return f"{place}: " if place else ""


def _check_kind(mode: int, pipes: bool, what: str) -> None:
    """Raises FormatError: a file of this mode, which is not regular, is not read."""
    for kind, is_kind in (("a folder", stat.S_ISDIR), ("a socket", stat.S_ISSOCK)):
        if is_kind(mode):
            raise FormatError(f"{what}: {kind}, not a file")
    if not pipes:
        raise FormatError(f"{what}: a pipe or a device, not a file")


def _named(error: OSError, name: str, place: str) -> FormatError:
    what = f"{_before(place)}{name}"
    with contextlib.suppress(OSError):  # of a socket the system says "no such device"
        _check_kind(os.stat(name).st_mode, True, what)
    return FormatError(f"{what}: {error.strerror}")
